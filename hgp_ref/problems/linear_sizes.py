"""Term sizes of the linear models: a running error analysis, with |X| in place of X.

With u = eps/2, in units of u, N_i instances and d features of client i:

    logits      a = X x, a sum of d products in any order:   L = d |X||x|
    slopes      l'(a) by `loss_errors`, an error of E' for logits known to u L
    gradient    Xᵀ(weight l') + rate x, sums of N_i products:  |X|ᵀ(|weight| (E' + (N_i + 5)|l'|)) + 3 |rate||x|
    products    Xᵀ(weight l'' (X u)) + rate u, by the Hessian or through the data: N_i + d_x and a few

and so on: every term is multiplied by the number of roundings on its own way to the result, then divided by K, the
largest of these. Terms of few roundings (rate x) then weigh little beside those of many. Sums may run in any order,
and products are assumed to be rounded in the dtype itself (no TF32). Underflow is gradual: it adds at most u times the
smallest normal number for every product.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref.backend import Array, device, from_host, host_dtype
from hgp_ref.problems.arrays import matvec
from hgp_ref.problems.instances import View
from hgp_ref.problems.loss_errors import LossErrors, loss_errors
from hgp_ref.problems.term_sizes import TermSizes, allowance

if TYPE_CHECKING:
    from hgp_ref.problems.linear import LinearProblem

WEIGHT = 4  # roundings of 1/N_i, of its product with lam, of that with the loss
AT_ONCE = 32  # unit vectors that go through the data together
FEW = 48  # roundings of one instance's loss and of what comes after a sum, at most


class LinearSizes:
    """The sizes of one linear model at (x, lam), full batches."""

    def __init__(self, problem: LinearProblem, x: Array, lam: Array) -> None:
        self._problem, self._xp = problem, problem._xp
        self._x, self._lam = self._xp.asarray(x, copy=True), self._xp.asarray(lam, copy=True)
        self.features = int(problem._train.all.features.shape[-1])  # d
        kind = np.finfo(host_dtype(x))
        self.tiny = float(kind.smallest_normal)
        most = max(int(each.counts.max()) for each in (problem._train, problem._val))
        self.roundings = most + 2 * problem.dim_x + problem._loss.logits + FEW
        self.unit = min(allowance(self.roundings, float(kind.eps)) / self.roundings, float(kind.eps))  # ≥ u
        self.train, self.errors = self._losses(problem._train)
        self.weight = self._xp.abs(problem._weight(self._lam, problem._train.all)) + self.tiny  # (n, N)
        self.weight = self.weight * self._xp.astype(problem._train.all.mean > 0, self.weight.dtype)
        self.counts = self._counts(problem._train)  # (n, 1)

    def sizes(self) -> TermSizes:
        """All of them."""
        xp, K, p = self._xp, self.roundings, self._problem
        val, errors = self._losses(p._val)
        mean, counts = p._val.all.mean, self._counts(p._val)
        rate, x = self._rate(), xp.abs(self._x)
        inner = self._total(self.train, self.weight, self.counts, errors_of=self.errors)
        inner = inner + 0.5 * (p.dim_x + 4) * xp.sum(rate * x * x + self.tiny, axis=-1)
        gradient = self._adjoint(self.train, self.weight, self.counts, self.errors) + 3 * rate * x + self.tiny
        along_x = self._adjoint(val, mean, counts, errors)
        return TermSizes(
            roundings=K,
            inner_cost=inner / K,
            inner_grad=gradient / K,
            outer_cost=self._total(val, mean, counts, errors_of=errors) / K,
            outer_grad=(along_x / K, xp.zeros_like(self._lam)),
            hvp=self.hvp,
            cross=self.cross,
        )

    def hvp(self, u: Array) -> Array:
        """For X_i^T (weight l'' (X_i u)) + rate u.  # (n, d_x)"""
        u, p = self._xp.abs(u), self._problem
        bent = self._bent(u) if self.train.features.shape[-2] < p.dim_x else matvec(self._matrix, u, xp=self._xp)
        return (bent + (p.dim_x + 3) * self._rate() * u + self.tiny) / self.roundings

    def cross(self, u: Array) -> Array:
        """For d²_{x lam} g_i u_i.  # (n, d_lam)"""
        return self._problem._cross_errors(self, self._xp.abs(self._x), self._xp.abs(u)) / self.roundings

    def along(self, u: Array) -> Array:
        """|X_i| u_i of u ≥ 0, with what underflow may add.  # (..., n, N, C)"""
        return self.train.forward(u, xp=self._xp) + self.features * self.tiny

    # The parts.

    def _losses(self, instances: Any) -> tuple[View, LossErrors]:
        xp, p, whole = self._xp, self._problem, instances.all
        absolute = View(xp.abs(whole.features), whole.targets, whole.mean, whole.rows)
        logits = whole.forward(self._x, xp=xp)
        off = self.features * (absolute.forward(xp.abs(self._x), xp=xp) + self.features * self.tiny)
        return absolute, loss_errors(p._loss, logits, off, whole.targets, self.unit, xp=xp)

    def _counts(self, instances: Any) -> Array:
        return from_host(instances.counts[:, None].astype(host_dtype(self._x)), like=self._x)

    def _rate(self) -> Any:
        rate = self._problem._rate(self._lam)
        return abs(rate) if isinstance(rate, float) else self._xp.abs(rate)

    def _total(self, view: View, weight: Array, counts: Array, errors_of: LossErrors) -> Array:
        each = weight * (errors_of.value_error + (counts + WEIGHT + 1) * errors_of.value)
        return view.total(each, xp=self._xp) + counts[..., 0] * self.tiny

    def _adjoint(self, view: View, weight: Array, counts: Array, errors: LossErrors) -> Array:
        each = errors.slope_error + (counts[..., None] + WEIGHT + 1) * errors.slope
        return view.adjoint(weight[..., None] * each, xp=self._xp) + counts * self.tiny

    def _bent(self, u: Array) -> Array:
        more = (self.counts + WEIGHT + self._problem.dim_x + 2)[..., None]
        each = self.weight[..., None] * self.errors.bend_error(self.along(u), more)
        return self.train.adjoint(each, xp=self._xp) + self.counts * self.tiny

    @cached_property
    def _matrix(self) -> Array:
        """`_bent` of all unit vectors, where that is smaller than the data.  # (n, d_x, d_x)"""
        xp, p = self._xp, self._problem
        n, columns = int(self._x.shape[0]), []
        identity = xp.eye(p.dim_x, dtype=self._x.dtype, device=device(self._x))
        for first in range(0, p.dim_x, AT_ONCE):
            units = identity[first : min(first + AT_ONCE, p.dim_x), :][:, None, :]
            units = xp.broadcast_to(units, (int(units.shape[0]), n, p.dim_x))
            columns.append(xp.moveaxis(self._bent(units), 0, -1))
        return xp.concat(columns, axis=-1)
