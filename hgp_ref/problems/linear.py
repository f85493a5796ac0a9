"""Linear models with a loss per logit, for every cost of the form

    g_i(x, λ_i) = Σ_k weight_ik(λ_i) l(a_ik, y_ik) + ½ Σ_j rate_ij(λ_i) x_j²,     a_ik = X_ik U
    f_i(x)      = (1/N_i') Σ_k l(a'_ik, y'_ik)        over validation instances

where U is x as a (d, C) matrix, row-major, and C = 1 for the binary and the squared loss. Least squares, logistic
regression, softmax regression and instance weights differ in the loss and in how weight and rate depend on λ, and
hence in ∂²_{xλ} g. The rest is the same:

    ∂_x g_i    = X_iᵀ (weight l') + rate x
    ∂²_x g_i u = X_iᵀ (weight l'' (X_i u)) + rate u
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels import cuda
from hgp_ref._numba import njit, over_rows
from hgp_ref.backend import Array, array_namespace, device, is_numpy, to_host
from hgp_ref.problems import lipschitz
from hgp_ref.problems.base import FullProblem, Shape, check_argument, check_batch, expand, matvec, run_axes
from hgp_ref.problems.instances import (
    Data,
    InstanceProblem,
    PreparedBatch,
    View,
    array_of,
    digest,
    read_features,
    read_instances,
    read_labels,
)
from hgp_ref.problems.linear_sizes import LinearSizes
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.losses import BinaryLoss, Loss, SoftmaxLoss, SquaredLoss
from hgp_ref.problems.sparse import SparseRows
from hgp_ref.problems.term_sizes import TermSizes
from hgp_ref.validation import check_memory

Batch = Array | PreparedBatch | None
Strategy = tuple[np.ndarray | None, Callable[[Array], Array]]  # clients (None: all) and u ↦ H_i u_i for these

ANY_ORDER = {"reassoc", "contract", "nsz"}  # sums in vector registers; NaN and infinity keep their meaning
SMALLEST = 2**15  # bytes of one client's data; below, one pass gains nothing


class LinearProblem(InstanceProblem, FullProblem):
    """What all linear models share. A subclass sets `dim_lam` and defines weight, rate and their derivatives."""

    broadcasts = True
    dim_lam: int
    _cross_needs_logits = False  # whether J_i u_i is computed from X_i u_i

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, loss: Loss) -> None:
        super().__init__(read_instances(X, y, loss, ("X", "y")), read_instances(X_val, y_val, loss, ("X_val", "y_val")))
        features, val_features = (int(data.all.features.shape[2]) for data in (self._train, self._val))
        if features != val_features:
            raise ValueError(f"X_val must have {features} features as X, got {val_features}")
        self._loss = loss
        self.dim_x = features * loss.logits

    @abstractmethod
    def _weight(self, lam: Array, view: View) -> Array:
        """weight_ik for the instances of `view`.  # (..., n, N)"""

    @abstractmethod
    def _rate(self, lam: Array) -> Any:
        """rate_ij, a number or an array that broadcasts against x.  # (..., n, d_x)"""

    @abstractmethod
    def _cross(self, at: LinearLinearization, u: Array, Xu: Array | None = None) -> Array:
        """J_i u_i at a point; Xu is X_i u_i if known.  # (..., n, d_λ)"""

    @abstractmethod
    def _cross_errors(self, sizes: LinearSizes, x: Array, u: Array) -> Array:
        """The rounding error of J_i u_i in units of eps/2, from |x| and |u|.  # (n, d_λ)"""

    def inner_cost(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """Σ_k weight_ik l_ik + ½ Σ_j rate_ij x_j².  # (n,)"""
        view, lead = self._enter(x, lam, batch)
        xp = self._xp
        value = self._loss.value(view.forward(x, xp=xp), view.targets, xp=xp)
        data = view.total(self._weight(lam, view) * value, xp=xp)
        return expand(data + 0.5 * xp.sum(self._rate(lam) * x * x, axis=-1), lead, 1, xp=xp)

    def inner_grad(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """X_iᵀ (weight l') + rate x.  # (n, d_x)"""
        view, lead = self._enter(x, lam, batch)
        g_x = self._gradient(x, view, self._weight(lam, view), self._rate(lam))
        return expand(g_x, lead, 2, xp=self._xp) if lead else g_x

    def _gradient(self, x: Array, view: View, weight: Array, rate: Any) -> Array:
        xp, loss = self._xp, self._loss
        if view.on_cuda:
            g_x = cuda.linear_product(loss, "slope", view.data, self._train.all.targets, weight, rate, x)
            if g_x is not None:
                return g_x
        slope = loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        return view.adjoint(weight[..., None] * slope, xp=xp) + rate * x

    def gradient_at(self, lam: Array) -> Callable[..., Array]:
        view = self._train.all
        runs = check_argument("lam", lam, view.like, (self.n_clients, self.dim_lam), "n_clients, dim_lam")
        weight, rate = self._weight(lam, view), self._rate(lam)

        def gradient(x: Array, batch: Batch = None) -> Array:
            if batch is not None or x.ndim > 2 or runs:
                return self.inner_grad(x, lam, batch)
            return self._gradient(x, view, weight, rate)

        return gradient

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """The mean loss on the validation instances.  # (n,)"""
        _, lead = self._enter(x, lam, None)
        xp, view = self._xp, self._val.all
        value = self._loss.value(view.forward(x, xp=xp), view.targets, xp=xp)
        return expand(view.total(view.mean * value, xp=xp), lead, 1, xp=xp)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """X'_iᵀ (mean l'), and zero along λ.  # (n, d_x), (n, d_λ)"""
        _, lead = self._enter(x, lam, None)
        xp, view = self._xp, self._val.all
        slope = self._loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        f_x = view.adjoint(view.mean[..., None] * slope, xp=xp)
        return (
            xp.asarray(expand(f_x, lead, 2, xp=xp), copy=True),
            xp.zeros((*lead, self.n_clients, self.dim_lam), dtype=lam.dtype, device=device(lam)),
        )

    def validation_grad(self, x: Array, lam: Array, batch: Array) -> Array:
        """The gradient of the mean loss on a mini-batch (n, b) of validation instances.  # (n, d_x)"""
        self._enter(x, lam, None)
        check_batch(batch, x, self.n_clients)
        xp, view = self._xp, self._val.select(batch, xp=self._xp)
        slope = self._loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        return view.adjoint(view.mean[..., None] * slope, xp=xp)

    def linearize(self, x: Array, lam: Array, batch: Batch = None) -> LinearLinearization:
        """Second derivatives at (x, λ)."""
        view, lead = self._enter(x, lam, batch)
        return LinearLinearization(self, x, lam, view, lead)

    def hessian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """Σ_k weight_ik l''_ik ⊗ X_ik X_ikᵀ + diag(rate), in closed form.  # (n, d_x, d_x)"""
        view, lead = self._enter(x, lam, batch)
        xp = self._xp
        blocks = self._loss.blocks(view.forward(x, xp=xp), xp=xp)  # (..., n, N, C, C)
        data = view.gram(self._weight(lam, view)[..., None, None] * blocks, xp=xp)
        return expand(data + self._diagonal(self._rate(lam), x), lead, 3, xp=xp)

    def _diagonal(self, rate: Any, x: Array) -> Array:
        """diag(rate) with the run axes of rate alone.  # (..., n, d_x, d_x) or (d_x, d_x)"""
        identity = self._xp.eye(self.dim_x, dtype=x.dtype, device=device(x))
        return rate * identity if isinstance(rate, float) else rate[..., None] * identity

    def term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """Term sizes at (x, λ), without run axes; see `linear_sizes`."""
        self._refuse_run_axes("x and lam", self._enter(x, lam, None)[1])
        return LinearSizes(self, x, lam).sizes()

    def _enter(self, x: Array, lam: Array, batch: Batch) -> tuple[View, Shape]:
        """The instances of `batch`, and the run axes of results, after a check of the arguments."""
        whole, n = self._train.all, self.n_clients
        like = whole.like
        if (
            type(x) is type(lam) is type(like) is np.ndarray
            and x.dtype == lam.dtype == like.dtype
            and (x.shape, lam.shape) == ((n, self.dim_x), (n, self.dim_lam))
        ):  # the common case
            leads: dict[str, Shape] = {}
        else:
            leads = {
                "x": check_argument("x", x, like, (n, self.dim_x), "n_clients, dim_x"),
                "lam": check_argument("lam", lam, like, (n, self.dim_lam), "n_clients, dim_lam"),
            }
        if batch is None:
            return whole, run_axes(**leads) if leads else ()
        leads["batch"] = batch.shape[:-2] if isinstance(batch, PreparedBatch) else check_batch(batch, like, n)
        return self._train.select(batch, xp=self._xp), run_axes(**leads)

    def data_digest(self) -> str:
        """SHA-256 of data and settings, which checkpoints compare."""
        return digest(self, self._train, self._val)

    def _check_lam(self, lam: Array) -> None:
        shape = (self.n_clients, self.dim_lam)
        self._refuse_run_axes("lam", check_argument("lam", lam, self._like(), shape, "n_clients, dim_lam"))

    def _lipschitz(self, weight: np.ndarray, nu_J: float, modulus: float) -> Lipschitz | None:
        """Constants along x of losses with weights (n, N) on the host and an L2 modulus."""
        c2, c3, val = self._loss.c2, self._loss.c3, self._val.all
        return lipschitz.representable(
            nu_flam=0.0,
            nu_fx=lipschitz.largest_moment(c2, val.features, lipschitz.host(val.mean), power=0),
            nu_J=nu_J,
            nu_H=lipschitz.largest_moment(c3, self._train.all.features, np.abs(weight), power=1),
            strong_convexity=lipschitz.positive_modulus(modulus),
            holds_apart=True,
        )


# --------------------------------------------- learnt L2 rates:  g_i = mean_k l_ik + ½ xᵀ diag(λ_i) x  or  + ½ λ_i |x|²


class RegularizedLinear(LinearProblem):
    """λ holds a rate per coordinate, (n, d_x), or one per client, (n, 1)."""

    weighs_instances = False

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, loss: Loss, regularization: str) -> None:
        validation.choice("regularization", regularization, ("coordinate", "client"))
        super().__init__(X, y, X_val, y_val, loss)
        self.regularization = regularization
        self.dim_lam = self.dim_x if regularization == "coordinate" else 1

    def _weight(self, lam: Array, view: View) -> Array:
        return view.mean

    def _rate(self, lam: Array) -> Array:
        return lam

    def _cross(self, at: LinearLinearization, u: Array, Xu: Array | None = None) -> Array:
        product = at.x * u  # λ_ij occurs in ∂_x g as λ_ij x_j
        return product if self.dim_lam == self.dim_x else self._xp.sum(product, axis=-1, keepdims=True)

    def _cross_errors(self, sizes: LinearSizes, x: Array, u: Array) -> Array:
        product = x * u + sizes.tiny
        if self.dim_lam == self.dim_x:
            return product
        return (self.dim_x + 1) * self._xp.sum(product, axis=-1, keepdims=True)

    def jacobian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """diag(x_i), or the row x_iᵀ.  # (n, d_λ, d_x)"""
        _, lead = self._enter(x, lam, batch)
        full = x[..., None, :]
        if self.regularization == "coordinate":
            full = full * self._xp.eye(self.dim_x, dtype=x.dtype, device=device(x))
        return expand(full, lead, 3, xp=self._xp)

    def jacobian_norms(self, x: Array, lam: Array) -> Array:
        """‖J_i‖ = max_j |x_ij|, or |x_i|.  # (n,)"""
        xp = self._xp
        self._enter(x, lam, None)
        if self.regularization == "coordinate":
            return xp.max(xp.abs(x), axis=-1)
        peak = xp.max(xp.abs(x), axis=-1, keepdims=True)  # the squares of x itself may overflow
        scale = xp.where(peak > 0, peak, xp.ones_like(peak))
        return xp.sqrt(xp.sum((x / scale) ** 2, axis=-1)) * scale[..., 0]

    def lipschitz(self, lam: Array) -> Lipschitz | None:
        """Constants along x. The modulus is the smallest mean rate. None if they overflow."""
        self._check_lam(lam)
        mean = lipschitz.host(self._train.all.mean)
        return self._lipschitz(mean, 1.0, lipschitz.mean_rate(lipschitz.host(lam)))


class LeastSquares(RegularizedLinear):
    """Ridge regression: half the mean squared residual; the outer cost is the same mean on validation instances.

        g_i = (1/N_i) Σ_k ½ (X_ik x − y_ik)² + ½ xᵀ diag(λ_i) x,    f_i = (1/N_i') Σ_k ½ (X'_ik x − y'_ik)².

    Parameters
    ----------
    X, X_val, regularization : as in `LogisticRegression`.
    y, y_val : targets (n, N) or lists of n arrays (N_i,), any finite numbers. They take the dtype of X.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(2, 3, 20, 4))  # 3 clients, 20 training and 20 validation instances each
    >>> problem = hgp.problems.LeastSquares(X, X.sum(axis=2), X_val, X_val.sum(axis=2))
    >>> hgp.exact.inner_solution(problem, np.full((3, 4), 1e-9))[0].round(6)
    array([1., 1., 1., 1.])
    """

    trusted = True

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, *, regularization: str = "coordinate") -> None:
        super().__init__(X, y, X_val, y_val, SquaredLoss(), regularization)


class LogisticRegression(RegularizedLinear):
    """Binary cross-entropy of a linear model; the outer cost is the mean loss on validation instances.

    No bias is added. For one, append a column of ones; it is then regularised like any other coordinate.

    Parameters
    ----------
    X, y : training data, (n, N, d) and labels 0 or 1 (n, N), or lists of n arrays (N_i, d) and (N_i,). X may be a list
        of sparse matrices of SciPy, which are converted to CSR once and never made dense.
    X_val, y_val : validation data, likewise.
    regularization : "coordinate" for ½ xᵀ diag(λ_i) x, λ (n, d), or "client" for ½ λ_i |x|², λ (n, 1).

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> problem.inner_cost(np.zeros((3, 6)), np.zeros((3, 6))).round(4)
    array([0.6931, 0.6931, 0.6931])
    """

    trusted = True

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, *, regularization: str = "coordinate") -> None:
        super().__init__(X, y, X_val, y_val, BinaryLoss(), regularization)


class SoftmaxRegression(RegularizedLinear):
    """Cross-entropy of C classes; x_i is the (d, C) weight matrix flattened row by row, d_x = d C.

    Parameters
    ----------
    X, y, X_val, y_val, regularization : as in `LogisticRegression`, with classes 0 … C−1.
    n_classes : C; by default the largest label plus one.

    Examples
    --------
    >>> data = hgp.data.digits(n_clients=3)
    >>> hgp.problems.SoftmaxRegression(data.X, data.y, data.X_val, data.y_val, 10).dim_x
    650
    """

    trusted = True

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, n_classes: int | None = None, *,
                 regularization: str = "coordinate") -> None:  # fmt: skip
        loss = softmax_loss(X, y, y_val, n_classes)
        super().__init__(X, y, X_val, y_val, loss, regularization)
        self.n_classes = loss.logits


def softmax_loss(X: Data, y: Data, y_val: Data, n_classes: int | None) -> SoftmaxLoss:
    """The loss for `n_classes` classes; if None, the largest label plus one."""
    if n_classes is None:
        features, _ = read_features("X", X)
        labels = [read_labels(name, part, array_of(features))[0] for name, part in (("y", y), ("y_val", y_val))]
        n_classes = 1 + max(int(to_host(array_namespace(part).max(part))) for part in labels)
        if n_classes < 2:
            raise ValueError("y, y_val must have labels of at least two classes, got only 0; or pass n_classes")
    n_classes = validation.integer("n_classes", n_classes, 2)
    check_memory(f"n_classes={n_classes}", 16 * n_classes)  # at least, for one-hot labels and x
    return SoftmaxLoss(n_classes)


# --------------------------------------------------------------------------------------------------- second derivatives


class LinearLinearization:
    """Second derivatives of a linear model at a fixed point: u ↦ X_iᵀ (weight l'' (X_i u_i)) + rate u_i.

    A product is computed in one of three ways:

    - by the Hessian: on full batches with d_x ≤ N_i the (d_x, d_x) matrix is formed once. It is at most C times as
      large as the data, and a product costs d_x² instead of 2 N_i d_x;
    - in one pass: otherwise on NumPy, if the data of the client are large, both products with X_i in one sweep;
    - matrix-free: otherwise, and always if features are sparse, two products with X_i.

    The choice depends on the data of a client alone, so that its numbers are the same bit for bit whichever clients
    share the arrays. On libraries other than NumPy all clients are padded to one length and use the same way. What
    depends on the point and the batch alone is computed at its first use.
    """

    joined = True  # run axes of u are further columns of one product

    def __init__(self, problem: LinearProblem, x: Array, lam: Array, view: View, lead: Shape) -> None:
        xp = problem._xp
        self._problem, self.view, self._lead = problem, view, lead
        self.x = xp.asarray(x, copy=True)  # the caller may modify x and lam in place later
        self.lam = xp.asarray(lam, copy=True)

    def hvp(self, u: Array) -> Array:
        """H_i u_i.  # (n, d_x)"""
        x, hessian = self.x, self._hessian_of_all
        if hessian is not None and type(u) is np.ndarray and (u.shape, u.dtype, self._lead) == (x.shape, x.dtype, ()):
            return (hessian @ u[..., None])[..., 0]  # the common case
        lead, strategies = self._check(u), self._strategies
        if strategies[0][0] is None:  # one for all clients
            return expand(strategies[0][1](u), lead, 2, xp=self._problem._xp)
        Hu = np.empty((*lead, *u.shape[-2:]), dtype=u.dtype)
        for clients, apply in strategies:
            product = apply(u)
            Hu[..., clients, :] = product if product.shape[-2] < u.shape[-2] else product[..., clients, :]
        return Hu

    def cross(self, u: Array) -> Array:
        """J_i u_i.  # (n, d_λ)"""
        lead = self._check(u)
        Ju = self._problem._cross(self, u)
        return expand(Ju, lead, 2, xp=self._problem._xp) if lead else Ju

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u), with one product X_i u_i for both if both are matrix-free."""
        if not self._shared_logits:
            return self.hvp(u), self.cross(u)
        lead, xp = self._check(u), self._problem._xp
        Xu = self.view.forward(u, xp=xp, joined=self.joined)
        Hu = self._matrix_free(u, self.view, Xu, self.joined) + self._rate * u
        Ju = self._problem._cross(self, u, Xu)
        return expand(Hu, lead, 2, xp=xp), expand(Ju, lead, 2, xp=xp)

    def separately(self) -> LinearLinearization:
        """The same point, with one product for each entry of the run axes of u."""
        other = copy.copy(self)
        other.__dict__.pop("_strategies", None)
        other.joined = False
        return other

    def on(self, batch: Any) -> LinearLinearization:
        """The same point on a mini-batch: l' and l'' of its instances are taken from those of all."""
        if self._lead:
            return self._problem.linearize(self.x, self.lam, batch=batch)
        view = self._problem._train.select(batch, xp=self._problem._xp)
        return BatchLinearization(self, view, tuple(batch.shape[:-2]))

    def _check(self, u: Array) -> Shape:
        """The run axes of products with u."""
        x = self.x
        if type(u) is np.ndarray and u.shape == x.shape and u.dtype == x.dtype and not self._lead:
            return ()
        lead = check_argument("u", u, x, (self._problem.n_clients, self._problem.dim_x), "n_clients, dim_x")
        return run_axes(point=self._lead, u=lead)

    @cached_property
    def _rate(self) -> Any:
        return self._problem._rate(self.lam)

    @cached_property
    def _logits(self) -> Array:
        return self.view.forward(self.x, xp=self._problem._xp)

    @cached_property
    def slope(self) -> Array:
        """l' of every instance.  # (..., n, N, C)"""
        p = self._problem
        return p._loss.slope(self._logits, self.view.targets, xp=p._xp)

    @property
    def slope_of_all(self) -> Array | None:
        """l' of all instances if these are a mini-batch whose slopes are picked from them.  # (n, N, C)"""
        return None

    @cached_property
    def _curvature(self) -> Any:
        """weight l'' of every instance, in the form of the loss."""
        p = self._problem
        return p._loss.curvature(self._logits, p._weight(self.lam, self.view), xp=p._xp)

    @cached_property
    def _unweighted_curvature(self) -> Any:
        """l'' of every instance."""
        p = self._problem
        return p._loss.curvature(self._logits, p._xp.ones_like(self.view.mean), xp=p._xp)

    @cached_property
    def _strategies(self) -> list[Strategy]:
        """Groups of clients with the function u ↦ H_i u_i for each."""
        view = self.view
        dense, large = self._applicable
        if view.rows is None:
            return [(None, self._by_hessian(None) if dense else self._through(view, one_pass=large))]
        strategies: list[Strategy] = []
        for k, group in enumerate((dense, large, ~dense & ~large)):
            clients = None if group.all() else np.flatnonzero(group)
            if clients is not None and not clients.size:
                continue
            data = view if clients is None else view.only(clients)
            apply = self._by_hessian(clients) if k == 0 else self._through(data, one_pass=k == 1)
            strategies.append((clients, apply))
        return strategies

    @cached_property
    def _applicable(self) -> tuple[Any, Any]:
        """Whether products go through a client's Hessian, and whether they take one pass over its data.

        (n,) booleans each, or one boolean if all clients have equally many rows.
        """
        view = self.view
        rows: Any = view.mean.shape[-1] if view.rows is None else view.rows
        features = self._problem._train.all.features
        sparse = isinstance(features, SparseRows)
        dense = (rows >= self._problem.dim_x) & (view.index is None) & (not sparse)
        item = self.x.itemsize if is_numpy(self.x) and not sparse else 0
        return dense, (rows * features.shape[-1] * item >= SMALLEST) > dense

    @cached_property
    def _hessian_of_all(self) -> Array | None:
        """The Hessians if the products of all clients go through them, else None.  # (..., n, d_x, d_x)"""
        dense = self._applicable[0]
        return self._hessian() if (dense if self.view.rows is None else dense.all()) else None

    @cached_property
    def _shared_logits(self) -> bool:
        """Whether hvp and cross both need X_i u_i, for all clients."""
        return self._problem._cross_needs_logits and not any(np.any(clients) for clients in self._applicable)

    def _by_hessian(self, clients: np.ndarray | None) -> Callable[[Array], Array]:
        """Products with the Hessians of all or of some clients."""
        xp = self._problem._xp
        if clients is None:
            return lambda u: matvec(self._hessian_of_all, u, xp=xp, joined=self.joined)
        x, lam = self.x[..., clients, :], self.lam[..., clients, :]
        hessian = LinearLinearization(self._problem, x, lam, self.view.of(clients), self._lead)._hessian()
        return lambda u: matvec(hessian, u[..., clients, :], xp=xp, joined=self.joined)

    def _through(self, view: View, one_pass: bool) -> Callable[[Array], Array]:
        """Products with the features of the clients in `view`."""

        def apply(u: Array) -> Array:
            if view.on_cuda and (product := self._by_kernels(u)) is not None:
                return product
            if one_pass and not self.joined and u.ndim > 2:
                return np.stack([apply(part) for part in u.reshape(-1, *u.shape[-2:])]).reshape(u.shape)
            if one_pass and fused_hvp_applies(view.features, self._curvature, u):
                return fused_hvp(view.features, self._curvature, self._rate, u, view.rows)
            return self._matrix_free(u, view, joined=self.joined) + self._rate * u

        return apply

    def _by_kernels(self, u: Array) -> Array | None:
        """X_iᵀ (weight l'' (X_i u_i)) + rate u on CuPy; None if run axes differ or X is sparse."""
        if self._lead or self.view.index is not None:  # l'' is not that of all instances
            return None
        return self._product(u, self._unweighted_curvature)

    def _product(self, u: Array, curvature: Any) -> Array | None:
        loss, at = self._problem._loss, curvature if self.view.logits == 1 else curvature[0]
        return cuda.linear_product(loss, "curvature", self.view.data, at, self._instance_weight, self._rate, u)

    @cached_property
    def _instance_weight(self) -> Array:
        return self._problem._weight(self.lam, self.view)

    def _matrix_free(self, u: Array, view: View, Xu: Array | None = None, joined: bool = True) -> Array:
        """X_iᵀ (weight l'' (X_i u_i)), without the rate; Xu is X_i u_i if known.  # (..., n, d_x)"""
        xp = self._problem._xp
        Xu = view.forward(u, xp=xp, joined=joined) if Xu is None else Xu
        return view.adjoint(self._problem._loss.curvature_product(self._curvature, Xu, xp=xp), xp=xp, joined=joined)

    def _hessian(self) -> Array:
        """The Hessians, by `_matrix_free` of all unit vectors of one class at a time (d of them as a run axis)."""
        p, xp = self._problem, self._problem._xp
        C, n = p._loss.logits, int(self.x.shape[-2])
        d = p.dim_x // C
        identity = xp.reshape(xp.eye(p.dim_x, dtype=self.x.dtype, device=device(self.x)), (d, C, p.dim_x))
        rows = []
        for c in range(C):
            unit = xp.reshape(identity[:, c, :], (d, *(1 for _ in self._lead), 1, p.dim_x))
            unit = xp.broadcast_to(unit, (*unit.shape[:-2], n, p.dim_x))
            columns = self._matrix_free(unit, self.view)  # (d, ..., n, d_x): rows (·, c) of the symmetric Hessians
            rows.append(xp.moveaxis(columns, 0, -2))
        data = xp.stack(rows, axis=-2)  # (..., n, d, C, d_x)
        data = xp.reshape(data, (*data.shape[:-3], p.dim_x, p.dim_x))
        return data + p._diagonal(self._rate, self.x)


class BatchLinearization(LinearLinearization):
    """The linearization `whole` on a mini-batch: the same point, and slopes picked from its own."""

    def __init__(self, whole: LinearLinearization, view: View, lead: Shape) -> None:
        self._problem, self.view, self._lead = whole._problem, view, lead
        self.x, self.lam, self._whole = whole.x, whole.lam, whole

    @property
    def slope_of_all(self) -> Array:
        return self._whole.slope

    @cached_property
    def slope(self) -> Array:
        return self.view.pick(self._whole.slope)

    def _by_kernels(self, u: Array) -> Array | None:
        return self._product(u, self._whole._unweighted_curvature)

    @cached_property
    def _curvature(self) -> Any:
        p = self._problem
        return p._loss.select_curvature(
            self._whole._unweighted_curvature, self.view.pick, p._weight(self.lam, self.view)
        )


# ------------------------------------------------------------------------------------------------- products in one pass
#
# X_iᵀ (s_i (X_i u_i)) + r_i u_i in one pass over the data, for NumPy arrays. Two matrix products read X twice. Here one
# sweep over X_i multiplies four rows by u_i and adds the four rows before, still in the cache, to the result.


def fused_hvp_applies(X: Array, s: Array, u: Array) -> bool:
    """Whether `fused_hvp` takes these arrays: NumPy, float32 or float64, contiguous data, one u per X, one logit.

    X (..., n, N, d), s (..., n, N, 1) and u (..., n, d) must share their leading axes. If one X is multiplied by many u
    (runs over shared data, several classes), products of matrices read it twice for all of them.
    """
    return (
        isinstance(X, np.ndarray)
        and isinstance(s, np.ndarray)
        and X.dtype in (np.float32, np.float64)
        and X.flags.c_contiguous
        and X.shape[:-2] == u.shape[:-1]
        and X.shape[:-1] + (1,) == s.shape
    )


def fused_hvp(
    X: np.ndarray, s: np.ndarray, r: np.ndarray | float, u: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """X_iᵀ (s_i (X_i u_i)) + r_i u_i for every client and run; r is a number or broadcasts to u.  # (..., n, d)

    rows (n,): the rows of X_i beyond the first rows_i are padding; None if there is no padding.
    """
    N, d = X.shape[-2:]
    pairs = X.size // (N * d)  # of a run and a client
    out = np.empty((pairs, d), dtype=X.dtype)
    rate = np.ascontiguousarray(np.broadcast_to(np.asarray(r, dtype=X.dtype), u.shape)).reshape(pairs, d)
    lengths = np.full(pairs, N) if rows is None else np.tile(rows, pairs // len(rows))
    data = (X.reshape(pairs, N, d), s.reshape(pairs, N), rate, np.ascontiguousarray(u).reshape(pairs, d))
    over_rows(_hvp, pairs, 2 * X.size, *data, lengths, out)
    return out.reshape(u.shape)


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _hvp(begin, end, X, s, r, u, lengths, out):
    d = X.shape[2]
    for i in range(begin, end):
        N, rows, w, total = lengths[i], X[i], u[i], out[i]
        for c in range(d):
            total[c] = r[i, c] * w[c]
        single = N if N < 4 else N % 4
        for k in range(single):
            _add(s[i, k] * _dot(rows[k], w), rows[k], total)
        if single == N:
            continue
        p0, p1 = _dot(rows[single], w), _dot(rows[single + 1], w)
        p2, p3 = _dot(rows[single + 2], w), _dot(rows[single + 3], w)
        for k in range(single, N - 4, 4):  # add rows k .. k+3, multiply rows k+4 .. k+7
            p0, p1, p2, p3 = p0 * s[i, k], p1 * s[i, k + 1], p2 * s[i, k + 2], p3 * s[i, k + 3]
            a0, a1, a2, a3 = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
            b0, b1, b2, b3 = rows[k + 4], rows[k + 5], rows[k + 6], rows[k + 7]
            q0 = q1 = q2 = q3 = X.dtype.type(0)
            for c in range(d):
                total[c] += p0 * a0[c] + p1 * a1[c] + p2 * a2[c] + p3 * a3[c]
                q0 += b0[c] * w[c]
                q1 += b1[c] * w[c]
                q2 += b2[c] * w[c]
                q3 += b3[c] * w[c]
            p0, p1, p2, p3 = q0, q1, q2, q3
        for p, k in ((p0, N - 4), (p1, N - 3), (p2, N - 2), (p3, N - 1)):
            _add(p * s[i, k], rows[k], total)


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _dot(a, b):
    total = a.dtype.type(0)
    for c in range(a.size):
        total += a[c] * b[c]
    return total


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _add(p, a, total):
    for c in range(a.size):
        total[c] += p * a[c]
