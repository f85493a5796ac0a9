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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.problems import constants
from hgp_ref.problems.arrays import (
    Portable,
    Shape,
    check_argument,
    check_batch,
    chosen,
    expand,
    mover,
    run_axes,
    taker,
)
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.digests import digest
from hgp_ref.problems.instances import View
from hgp_ref.problems.linear_sizes import LinearSizes
from hgp_ref.problems.linearization import LinearLinearization
from hgp_ref.problems.losses import Loss
from hgp_ref.problems.prepared import PreparedBatch, PreparedBatches
from hgp_ref.problems.reading import Data, read_instances
from hgp_ref.problems.term_sizes import TermSizes

Batch = Array | PreparedBatch | None


class LinearProblem(Portable):
    """What all linear models share. A subclass sets `dim_lam` and gives weight, rate and their derivatives."""

    broadcasts = True
    dim_lam: int
    _cross_needs_logits = False  # whether d²_{x lam} g_i u_i is made from X_i u_i

    def __init__(self, X: Data, y: Data, X_val: Data, y_val: Data, loss: Loss) -> None:
        self._train = read_instances(X, y, loss, ("X", "y"))
        self._val = read_instances(X_val, y_val, loss, ("X_val", "y_val"))
        train, val = self._train.all.features, self._val.all.features
        self._xp = arguments.same_kind(X=train, X_val=val)
        for axis, meaning in ((0, "clients"), (2, "features")):
            if train.shape[axis] != val.shape[axis]:
                raise ValueError(f"X_val: {val.shape[axis]} {meaning} given, needed {train.shape[axis]} as in X")
        self._loss = loss
        self.n_clients = int(train.shape[0])
        self.clients = np.arange(self.n_clients)  # their numbers in the problem that this one is a restriction of
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
    def _cross(self, x: Array, slope: Callable[[], Array], view: View, u: Array, along: Array | None = None) -> Array:
        """d²_{x lam} g_i u_i, with slope() = l' of every instance, and along = X_i u_i if known.  # (..., n, d_lam)"""

    @abstractmethod
    def _cross_errors(self, sizes: LinearSizes, x: Array, u: Array) -> Array:
        """What rounding does to it, in units of eps/2, from |x| and |u|.  # (n, d_lam)"""

    # Costs and gradients.

    def inner_cost(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """sum_k weight_ik l_ik + 1/2 sum_j rate_ij x_j^2.  # (n,)"""
        view, lead = self._enter(x, lam, batch)
        xp = self._xp
        value = self._loss.value(view.forward(x, xp=xp), view.targets, xp=xp)
        data = view.total(self._weight(lam, view) * value, xp=xp)
        return expand(data + 0.5 * xp.sum(self._rate(lam) * x * x, axis=-1), lead, 1, xp=xp)

    def inner_grad(self, x: Array, lam: Array, batch: Batch = None) -> Array:
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
        return expand(view.total(view.mean * value, xp=xp), lead, 1, xp=xp)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """Its gradient along x, and zero along lam.  # (n, d_x), (n, d_lam)"""
        _, lead = self._enter(x, lam, None)
        xp, view = self._xp, self._val.all
        slope = self._loss.slope(view.forward(x, xp=xp), view.targets, xp=xp)
        along_x = view.adjoint(view.mean[..., None] * slope, xp=xp)
        return expand(along_x, lead, 2, xp=xp), expand(xp.zeros_like(lam), lead, 2, xp=xp)

    # Second derivatives.

    def linearize(self, x: Array, lam: Array, batch: Batch = None) -> LinearLinearization:
        """Curvature weights of every instance at (x, lam), kept; see LinearLinearization for what else is kept."""
        view, lead = self._enter(x, lam, batch)
        return LinearLinearization(self, x, lam, view, lead)

    def hessian(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """sum_k weight_ik l''_ik (x) X_ik X_ik^T + diag(rate), in closed form.  # (n, d_x, d_x)"""
        view, lead = self._enter(x, lam, batch)
        xp, X = self._xp, view.features
        blocks = self._loss.blocks(view.forward(x, xp=xp), xp=xp)  # (..., n, N, C, C)
        blocks = self._weight(lam, view)[..., None, None] * blocks
        rows = []
        for c in range(self._loss.logits):
            right = X[..., :, None] * blocks[..., c, :][..., None, :]  # (..., n, N, d, C)
            right = xp.reshape(right, (*right.shape[:-2], self.dim_x))
            rows.append(view.contract(X, right, xp=xp))  # (..., n, d, d_x)
        data = xp.stack(rows, axis=-2)  # (..., n, d, C, d_x)
        data = xp.reshape(data, (*data.shape[:-3], self.dim_x, self.dim_x))
        return expand(data + self._diagonal(self._rate(lam), x), lead, 3, xp=xp)

    def _diagonal(self, rate: Any, x: Array) -> Array:
        """diag(rate) with the run axes of rate alone.  # (..., n, d_x, d_x) or (d_x, d_x)"""
        identity = self._xp.eye(self.dim_x, dtype=x.dtype, device=device(x))
        return rate * identity if isinstance(rate, float) else rate[..., None] * identity

    def term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """Sizes of the terms of every cost, gradient and product at (x, lam), without run axes; see `linear_sizes`."""
        _, lead = self._enter(x, lam, None)
        if lead:
            raise ValueError(f"x and lam must have no leading run axes, got {lead}")
        return LinearSizes(self, x, lam).sizes()

    # Entry checks and moving.

    def _check_lam(self, lam: Array) -> None:
        lead = check_argument("lam", lam, self._like(), (self.n_clients, self.dim_lam), "n_clients, dim_lam")
        if lead:
            raise ValueError(f"lam: leading run axes {lead} given, needed none")

    def _enter(self, x: Array, lam: Array, batch: Batch) -> tuple[View, Shape]:
        like, n = self._train.all.features, self.n_clients
        own = check_argument("x", x, like, (n, self.dim_x), "n_clients, dim_x")
        theirs = check_argument("lam", lam, like, (n, self.dim_lam), "n_clients, dim_lam")
        if batch is None and own == theirs:
            return self._train.all, own
        leads = {"x": own, "lam": theirs}
        if isinstance(batch, PreparedBatch):
            leads["batch"] = batch.shape[:-2]
        elif batch is not None:
            leads["batch"] = check_batch(batch, like, n)
        return self._train.select(batch, xp=self._xp), run_axes(**leads)

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> PreparedBatches:
        """Mini-batches (count, streams, ..., n, b) of -1-padded indices, checked on the host and sent at once.

        Entry [k, stream] is what the methods above take as `batch`; it launches no more than a gather on the device.
        """
        return self._train.prepare(host_batches, like)

    def data_digest(self) -> str:
        """SHA-256 of data and settings; see `digests`."""
        return digest(self, self._train, self._val)

    def restrict(self, clients: slice | Sequence[int] | np.ndarray) -> Any:
        """The same problem with some of its clients, a slice or indices; lam keeps its length."""
        which, part = chosen(clients, self.n_clients), copy.copy(self)
        part._train, part._val = (each.restrict(which, taker(which)) for each in (self._train, self._val))
        part.clients = self.clients[which]
        part.n_clients = len(part.clients)
        return part

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
