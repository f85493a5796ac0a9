"""Linear models with a loss per logit, for every cost of the form

    g_i(x, lam_i) = sum_k weight_ik(lam_i) l(a_ik, y_ik) + 1/2 sum_j rate_ij(lam_i) x_j^2,     a_ik = X_ik U
    f_i(x)        = (1/N_i') sum_k l(a'_ik, y'_ik)        over validation instances

where U is x as a (d, C) matrix, row-major, and C = 1 for the binary loss. Logistic regression, softmax regression and
instance weights differ in how weight and rate depend on lam, and hence in d²_{x lam} g; the rest is written once here:

    d_x g_i u   = <X_i^T (weight l'), u> + <rate x, u>
    d²_x g_i u  = X_i^T (weight l'' (X_i u)) + rate u
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import array_namespace, device
from hgp_ref.problems import constants, fused
from hgp_ref.problems.arrays import Portable, Shape, check_argument, check_batch, expand, matvec, mover, run_axes
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.instances import View, read_instances
from hgp_ref.problems.losses import Loss

Array = Any


class LinearProblem(Portable):
    """What all linear models share. A subclass sets `dim_lam` and gives weight, rate and their derivatives."""

    broadcasts = True
    dim_lam: int

    def __init__(self, X: Any, y: Any, X_val: Any, y_val: Any, loss: Loss) -> None:
        self._train = read_instances(X, y, loss, ("X", "y"))
        self._val = read_instances(X_val, y_val, loss, ("X_val", "y_val"))
        train, val = self._train.all.features, self._val.all.features
        self._xp = arguments.same_kind(X=train, X_val=val)
        for axis, meaning in ((0, "clients"), (2, "features")):
            if train.shape[axis] != val.shape[axis]:
                raise ValueError(f"X_val: {val.shape[axis]} {meaning} given, needed {train.shape[axis]} as in X")
        self._loss = loss
        self.n_clients = int(train.shape[0])
        self.dim_x = int(train.shape[2]) * loss.logits

    def _like(self) -> Array:
        return self._train.all.features

    @property
    def counts(self) -> np.ndarray:
        """Training instances of each client, on the host.  # (n,)"""
        return self._train.counts.copy()

    # What a subclass says about lam.

    @abstractmethod
    def _weight(self, lam: Array, view: View) -> Array:
        """weight_ik for the instances of `view`.  # (..., n, N)"""

    @abstractmethod
    def _rate(self, lam: Array) -> Any:
        """rate_ij, a number or an array that broadcasts against x.  # (..., n, d_x)"""

    @abstractmethod
    def _cross(self, x: Array, slope: Any, view: View, u: Array) -> Array:
        """d²_{x lam} g_i u_i, where slope() is l' of every instance.  # (..., n, d_lam)"""

    # Costs and gradients.

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """sum_k weight_ik l_ik + 1/2 sum_j rate_ij x_j^2.  # (n,)"""
        view, lead = self._enter(x, lam, batch)
        xp = self._xp
        value = self._loss.value(view.forward(x, xp=xp), view.targets, xp=xp)
        data = xp.sum(self._weight(lam, view) * value, axis=-1)
        return expand(data + 0.5 * xp.sum(self._rate(lam) * x * x, axis=-1), lead, 1, xp=xp)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """X_i^T (weight l') + rate x.  # (n, d_x)"""
        view, lead = self._enter(x, lam, batch)
        xp = self._xp
        slope = self._loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        data = view.adjoint(self._weight(lam, view)[..., None] * slope, xp=xp)
        return expand(data + self._rate(lam) * x, lead, 2, xp=xp)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """Mean loss on the validation instances.  # (n,)"""
        _, lead = self._enter(x, lam, None)
        xp, view = self._xp, self._val.all
        value = self._loss.value(view.forward(x, xp=xp), view.targets, xp=xp)
        return expand(xp.sum(view.mean * value, axis=-1), lead, 1, xp=xp)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """Its gradient along x, and zero along lam.  # (n, d_x), (n, d_lam)"""
        _, lead = self._enter(x, lam, None)
        xp, view = self._xp, self._val.all
        slope = self._loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        along_x = view.adjoint(view.mean[..., None] * slope, xp=xp)
        return expand(along_x, lead, 2, xp=xp), expand(xp.zeros_like(lam), lead, 2, xp=xp)

    # Second derivatives.

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> LinearLinearization:
        """Curvature weights of every instance at (x, lam), kept; see LinearLinearization for what else is kept."""
        view, lead = self._enter(x, lam, batch)
        return LinearLinearization(self, x, lam, view, lead)

    def hessian(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """sum_k weight_ik l''_ik (x) X_ik X_ik^T + diag(rate), in closed form.  # (n, d_x, d_x)"""
        view, lead = self._enter(x, lam, batch)
        xp, X = self._xp, view.features
        blocks = self._loss.blocks(view.forward(x, xp=xp), xp=xp)  # (..., n, N, C, C)
        blocks = self._weight(lam, view)[..., None, None] * blocks
        rows = []
        for c in range(self._loss.logits):
            right = X[..., :, None] * blocks[..., c, :][..., None, :]  # (..., n, N, d, C)
            right = xp.reshape(right, (*right.shape[:-2], self.dim_x))
            rows.append(xp.matmul(xp.matrix_transpose(X), right))  # (..., n, d, d_x)
        data = xp.stack(rows, axis=-2)  # (..., n, d, C, d_x)
        data = xp.reshape(data, (*data.shape[:-3], self.dim_x, self.dim_x))
        return expand(data + self._diagonal(self._rate(lam), x), lead, 3, xp=xp)

    def _diagonal(self, rate: Any, x: Array) -> Array:
        """diag(rate) with the run axes of rate alone.  # (..., n, d_x, d_x) or (d_x, d_x)"""
        identity = self._xp.eye(self.dim_x, dtype=x.dtype, device=device(x))
        return rate * identity if isinstance(rate, float) else rate[..., None] * identity

    # Entry checks and moving.

    def _enter(self, x: Array, lam: Array, batch: Array | None) -> tuple[View, Shape]:
        like, n = self._train.all.features, self.n_clients
        leads = {
            "x": check_argument("x", x, like, (n, self.dim_x), "n_clients, dim_x"),
            "lam": check_argument("lam", lam, like, (n, self.dim_lam), "n_clients, dim_lam"),
        }
        if batch is not None:
            leads["batch"] = check_batch(batch, like, n)
        return self._train.select(batch, xp=self._xp), run_axes(**leads)

    def to(self, target: Any, dtype: Any = None) -> Any:
        """The same problem in another library (its name, or an array to be beside) and, if given, another dtype."""
        move, moved = mover(target, dtype), copy.copy(self)
        moved._train, moved._val = self._train.to(move), self._val.to(move)
        moved._xp = array_namespace(moved._train.all.features)
        return moved

    # Constants along x.

    def _lipschitz(self, weight: np.ndarray, nu_J: float, modulus: float) -> Lipschitz | None:
        """Constants of losses with weights (n, N) on the host and an L2 modulus; see `constants`."""
        c2, c3 = constants.loss_constants(self._loss.logits)
        val = self._val.all
        return constants.representable(
            nu_flam=0.0,
            nu_fx=constants.largest_moment(c2, val.features, constants.host(val.mean), power=0),
            nu_J=nu_J,
            nu_H=constants.largest_moment(c3, self._train.all.features, np.abs(weight), power=1),
            strong_convexity=constants.positive_modulus(modulus),
            holds_apart=True,
        )


class LinearLinearization:
    """u -> X_i^T (weight l'' (X_i u)) + rate u at a fixed point.

    Kept from the point on: weight l'' of every instance, and for a mini-batch its gathered features. On full batches
    with d_x <= N_max the (d_x, d_x) Hessians are formed once and applied by one batched product: they are no larger
    than C times the data, and applying one costs d_x² against 2 N_max d_x. Otherwise each application is two products
    with the features through logit space, and no d_x x d_x array is ever formed; on NumPy the two are fused into one
    pass over the data where that pays (see `fused.applies`).
    """

    def __init__(self, problem: LinearProblem, x: Array, lam: Array, view: View, lead: Shape) -> None:
        xp = problem._xp
        self._problem, self._view, self._lead = problem, view, lead
        self._x = xp.asarray(x, copy=True)  # a caller may go on to change x and lam in place
        self._rate = problem._rate(xp.asarray(lam, copy=True))
        self._logits = view.forward(x, xp=xp)
        self._slope: Array | None = None
        self._kept = problem._loss.curvature(self._logits, problem._weight(lam, view), xp=xp)
        self._hessian: Array | None = None
        if view.index is None and problem.dim_x <= view.features.shape[-2]:
            self._hessian = self._form()  # (..., n, d_x, d_x)

    def hvp(self, u: Array) -> Array:
        """d²_x g_i u_i.  # (n, d_x)"""
        lead, xp = self._check(u), self._problem._xp
        if self._hessian is not None:
            return expand(matvec(self._hessian, u, xp=xp), lead, 2, xp=xp)
        if fused.applies(self._view.features, self._kept, u):
            return expand(fused.hvp(self._view.features, self._kept, self._rate, u), lead, 2, xp=xp)
        return expand(self._bend(u) + self._rate * u, lead, 2, xp=xp)

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i u_i.  # (n, d_lam)"""
        lead = self._check(u)
        crossed = self._problem._cross(self._x, self._slopes, self._view, u)
        return expand(crossed, lead, 2, xp=self._problem._xp)

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u)."""
        return self.hvp(u), self.cross(u)

    def _check(self, u: Array) -> Shape:
        p = self._problem
        lead = check_argument("u", u, self._x, (p.n_clients, p.dim_x), "n_clients, dim_x")
        return run_axes(point=self._lead, u=lead)

    def _slopes(self) -> Array:
        """l' of every instance, kept from the first use on.  # (..., n, N, C)"""
        if self._slope is None:
            p = self._problem
            self._slope = p._loss.slope(self._logits, self._view.targets, xp=p._xp)
        return self._slope

    def _bend(self, u: Array) -> Array:
        """X_i^T (weight l'' (X_i u)).  # (..., n, d_x)"""
        xp = self._problem._xp
        bent = self._problem._loss.bend(self._kept, self._view.forward(u, xp=xp), xp=xp)
        return self._view.adjoint(bent, xp=xp)

    def _form(self) -> Array:
        """The Hessians, by `_bend` of all unit vectors of one class at a time (d of them as a run axis)."""
        p, xp = self._problem, self._problem._xp
        C = p._loss.logits
        d = p.dim_x // C
        identity = xp.reshape(xp.eye(p.dim_x, dtype=self._x.dtype, device=device(self._x)), (d, C, p.dim_x))
        rows = []
        for c in range(C):
            unit = xp.reshape(identity[:, c, :], (d, *(1 for _ in self._lead), 1, p.dim_x))
            unit = xp.broadcast_to(unit, (*unit.shape[:-2], p.n_clients, p.dim_x))
            bent = self._bend(unit)  # (d, ..., n, d_x): rows (., c) of the symmetric Hessians
            rows.append(xp.moveaxis(bent, 0, -2))
        data = xp.stack(rows, axis=-2)  # (..., n, d, C, d_x)
        data = xp.reshape(data, (*data.shape[:-3], p.dim_x, p.dim_x))
        return data + p._diagonal(self._rate, self._x)
