"""A weight for every training instance:  g_i = (1/N_i) Σ_k λ_ik l_ik(x) + (l2/2) |x|².

At λ = 1 this is the usual mean. The hyper-gradient along λ_ik then predicts the effect of removing instance k of client
i on the outer cost: removal sets λ_ik = 0 and still divides by N_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref._kernels import cuda
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.problems import lipschitz as constants
from hgp_ref.problems.base import check_argument, expand, run_axes
from hgp_ref.problems.instances import Data, View
from hgp_ref.problems.linear import Batch, LinearLinearization, LinearProblem, softmax_loss
from hgp_ref.problems.linear_sizes import LinearSizes
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.losses import BinaryLoss, Loss, SquaredLoss, sigmoid
from hgp_ref.problems.transforms import Reparametrised


class InstanceWeights(LinearProblem):
    """A weight λ_ik on each training instance of a linear model: the problem for influence.

    λ is (n, N_max), and its columns beyond N_i are padding with zero derivative.
    A mini-batch cost is the mean over the batch of λ_ik l_ik, plus the L2 term. The outer cost is the mean loss on
    validation instances.

    Parameters
    ----------
    X, y, X_val, y_val, n_classes : as in `LogisticRegression` (loss="binary"), `SoftmaxRegression` (loss="softmax") or
        `LeastSquares` (loss="squared").
    l2 : rate of the L2 term.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=20, seed=0)
    >>> problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.1)
    >>> ones = np.ones((2, 20))
    >>> x = hgp.exact.inner_solution(problem, ones)
    >>> problem.dim_lam, problem.inner_cost(x, ones).shape
    (20, (2,))
    """

    trusted = True
    weighs_instances = True
    _cross_needs_logits = True

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, *, loss: str = "binary",
                 n_classes: int | None = None, l2: float = 0.0) -> None:  # fmt: skip
        validation.choice("loss", loss, ("binary", "softmax", "squared"))
        if loss == "binary" and n_classes is not None and validation.integer("n_classes", n_classes) != 2:
            raise ValueError(f'n_classes must be 2 or None with loss="binary", got {n_classes}')
        if loss == "squared" and n_classes is not None:
            raise ValueError(f'n_classes must be None with loss="squared", got {validation.short(n_classes)}')
        rate = validation.nonnegative("l2", l2)
        one_logit: dict[str, type[BinaryLoss | SquaredLoss]] = {"binary": BinaryLoss, "squared": SquaredLoss}
        chosen: Loss = one_logit[loss]() if loss in one_logit else softmax_loss(X, y, y_val, n_classes)
        super().__init__(X, y, X_val, y_val, chosen)
        self.l2 = rate
        self.dim_lam = int(self._train.all.features.shape[1])

    def _weight(self, lam: Array, view: View) -> Array:
        if view.index is None:
            return view.mean * lam
        if lam.ndim == 2:
            return view.mean * view.pick(lam[..., None])[..., 0]
        lead = run_axes(lam=tuple(lam.shape[:-2]), batch=tuple(view.index.shape[:-2]))
        xp = self._xp
        index = expand(view.index, lead, 2, xp=xp)
        return view.mean * xp.take_along_axis(expand(lam, lead, 2, xp=xp), index, axis=-1)

    def _rate(self, lam: Array) -> float:
        return self.l2

    def _cross(self, at: LinearLinearization, u: Array, Xu: Array | None = None) -> Array:
        xp, view = self._xp, at.view
        if view.on_cuda and Xu is None and at.slope_of_all is not None:
            Ju = cuda.cross_product(view.data, view.index, at.slope_of_all, view.mean, u, self.dim_lam)
            if Ju is not None:
                return Ju
        product = at.slope * (view.forward(u, xp=xp, joined=at.joined) if Xu is None else Xu)  # (..., n, N, C)
        value_dot = view.mean * (product[..., 0] if view.logits == 1 else xp.sum(product, axis=-1))  # (..., n, N)
        if view.index is None:
            return value_dot
        return view.contract(value_dot[..., None], self._one_hot(view.index, value_dot), xp=xp)[..., 0, :]

    def _cross_errors(self, sizes: LinearSizes, x: Array, u: Array) -> Array:
        errors, Xu, mean = sizes.errors, sizes.logits(u), self._train.all.mean
        slope_error = errors.slope_error + (sizes.terms + self._loss.logits + 4) * errors.slope
        return mean * self._xp.sum(slope_error * Xu + sizes.tiny, axis=-1) + sizes.tiny

    def _one_hot(self, index: Array, like: Array) -> Array:
        """The instance of each entry of the batch.  # (..., n, b, N_max)"""
        xp = self._xp
        instances = xp.arange(self.dim_lam, dtype=index.dtype, device=device(index))
        return xp.astype(index[..., None] == instances, like.dtype)

    def jacobian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """Row k is the gradient of (1/N_i) l_ik; rows outside the batch are zero.  # (n, N_max, d_x)"""
        view, lead = self._enter(x, lam, batch)
        xp = self._xp
        slope = self._loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        rows = view.outer(view.mean[..., None] * slope, xp=xp)
        if view.index is not None:
            rows = view.contract(self._one_hot(view.index, rows), rows, xp=xp)
        return expand(rows, lead, 3, xp=xp)

    def jacobian_norms(self, x: Array, lam: Array) -> np.ndarray:
        """‖J_i‖_F ≥ ‖J_i‖ from the norms of its rows.  # (n,) on the host"""
        return rounding.norms(self._jacobian_row_norms(x, lam))

    def _jacobian_row_norms(self, x: Array, lam: Array) -> np.ndarray:
        """Norms of the rows of J_i, which are (1/N_i) slope_k X_kᵀ.  # (n, N_max) on the host"""
        view, _ = self._enter(x, lam, None)
        slope = self._loss.slope(view.forward(x, xp=self._xp), view.targets, xp=self._xp)
        lengths = view.row_norms() * rounding.norms(constants.host(slope))
        return constants.host(view.mean) * lengths

    def lipschitz(self, lam: Array) -> Lipschitz | None:
        """Constants along x. The modulus is l2 if no weight is negative. None if they overflow."""
        self._check_lam(lam)
        mean, features = constants.host(self._train.all.mean), self._train.all.features
        weight = mean * constants.host(lam)
        nu_J = np.sqrt(constants.largest_moment(self._loss.c2**2, features, mean**2, power=2))
        return self._lipschitz(weight, float(nu_J), self.l2 if np.all(weight >= 0) else 0.0)


class HyperCleaning(Reparametrised):
    """Hyper-cleaning: softmax regression with a weight σ(λ_ik) on training instance k of client i.

        g_i = (1/N_i) Σ_k σ(λ_ik) l_ik(x) + (l2/2) |x|²,    f_i = mean loss on validation instances.

    Some training labels are wrong, and it is not known which. λ is learnt so that the model does well on validation
    instances, whose labels are right: the weights of wrong labels fall. ∂_λ f = 0, so that the whole hyper-gradient
    comes through x: without terms of the series (M = 0) it is zero. λ is (n, N_max); columns beyond N_i are padding
    with zero derivative. λ = 0 weights all instances by 1/2. Parameters as in `SoftmaxRegression`.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(2, 3, 20, 2))  # 3 clients, 20 training and 20 validation instances each
    >>> X[0, 0] = 2, 0
    >>> y, y_val = ((A[..., 0] > 0).astype(int) for A in (X, X_val))
    >>> y[0, 0] = 0  # a wrong label
    >>> problem = hgp.problems.HyperCleaning(X, y, X_val, y_val, l2=0.1)
    >>> lam = np.zeros((3, 20))
    >>> v = hgp.exact.hypergradient(problem, hgp.exact.inner_solution(problem, lam), lam)
    >>> tuple(map(int, np.unravel_index(v.argmax(), v.shape)))  # whose weight does most harm
    (0, 0)
    """

    trusted = True

    def __init__(
        self, X: Data, y: Data, X_val: Data, y_val: Data, l2: float = 1e-3, *, n_classes: int | None = None
    ) -> None:
        weighted = InstanceWeights(X, y, X_val, y_val, loss="softmax", n_classes=n_classes, l2=l2)
        super().__init__(weighted)
        self.l2, self.n_classes = weighted.l2, weighted._loss.logits

    def weights(self, lam: Array) -> Array:
        """σ(λ).  # (n, N_max)"""
        check_argument("lam", lam, self._like(), (self.n_clients, self.dim_lam), "n_clients, dim_lam")
        return self._value(lam)

    def jacobian_norms(self, x: Array, lam: Array) -> np.ndarray:
        """‖diag(σ') J_i‖_F from the norms of its rows.  # (n,) on the host"""
        weighted: Any = self._inner.wrapped
        row_norms = weighted._jacobian_row_norms(x, self._phi(x, lam))
        return rounding.norms(constants.host(self._slope(lam)) * row_norms)

    def _value(self, theta: Array) -> Array:
        return sigmoid(theta, xp=array_namespace(theta))

    def _slope(self, theta: Array) -> Array:
        xp = array_namespace(theta)
        return sigmoid(theta, xp=xp) * sigmoid(-theta, xp=xp)
