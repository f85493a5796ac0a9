"""What rounding does to the losses of `losses`, in units of u = eps/2: |computed − exact| ≤ u · error.

Two things make an error. The operations themselves: additions, products and quotients round once each; exp, log and
log1p are taken as accurate to 4 ulp, 8 u of the result, or to the smallest normal number where the result is below it.
And the logits: â = a + δ with |δ| ≤ u L. Since |d log σ'/da| ≤ 1 and d log p_c/da = e_c − p,

    binary     |σ(â) − σ(a)|, |σ'(â) − σ'(a)| ≤ σ'(â) e^{uL} uL, and never more than uL/4
    softmax    |p_c(â) − p_c(a)| ≤ p_c(â) e^{4uL} u (L_c + Σ_k p_k(â) L_k), and never more than u max_c L_c / 2
    softplus   |s(ẑ) − s(z)| ≤ σ(ẑ) e^{uZ} uZ, and never more than uZ

so that a slope that is nearly zero has an error that is nearly zero too, and one that is large is not relative to the
sum in which it will cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref.backend import Array, Namespace, device, from_host, host_dtype
from hgp_ref.problems.base import matvec
from hgp_ref.problems.instances import View
from hgp_ref.problems.losses import BinaryLoss, Loss, sigmoid, softmax, softplus
from hgp_ref.problems.term_sizes import TermSizes, allowance

ELEMENTARY = 8  # u of the result: 4 ulp of exp, log, log1p


@dataclass(frozen=True)
class LossErrors:
    """Values and errors of one loss at computed logits, values with all that their error may hide."""

    value: Array  # (..., N), ≥ the exact loss
    value_error: Array  # (..., N), in units of u
    slope: Array  # (..., N, C), ≥ |l'|
    slope_error: Array  # (..., N, C)
    bend_error: Callable[[Array, Any], Array]  # (b, c): error of l'' b where b ≥ |b| has an error of c u b


def loss_errors(loss: Loss, a: Array, L: Array, targets: Array, unit: float, *, xp: Namespace) -> LossErrors:
    """The errors at logits a (..., N, C) known to u L, with `unit` ≥ u."""
    kind = np.finfo(host_dtype(a))
    floor = 2 * float(kind.smallest_normal) / float(kind.eps)  # in units of u: what exp may flush to zero
    given = _binary if isinstance(loss, BinaryLoss) else _softmax
    return given(loss, a, L, targets, unit, floor, xp)


def _binary(loss: Loss, a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace) -> LossErrors:
    slope = xp.abs(loss.slope(a, targets, xp=xp))
    value = loss.value(a, targets, xp=xp)
    curvature = sigmoid(a, xp=xp) * sigmoid(-a, xp=xp)
    off = _growth(curvature, L, unit, 0.25, xp) * L
    slope_error = (ELEMENTARY + 6) * slope + off + floor
    curvature_error = (ELEMENTARY + 12) * curvature + off + floor
    value_error = (2 * ELEMENTARY + 1) * value + (_growth(slope, L, unit, 1.0, xp) * L)[..., 0] + floor
    largest = curvature + unit * curvature_error

    def bend_error(b: Array, c: Any) -> Array:
        return (curvature_error + (c + 1) * largest) * b

    return LossErrors(value + unit * value_error, value_error, slope + unit * slope_error, slope_error, bend_error)


def _softmax(loss: Loss, a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace) -> LossErrors:
    C, zero = loss.logits, xp.zeros_like(a)
    p = softmax(a, xp=xp)
    off = L + xp.abs(a - xp.max(a, axis=-1, keepdims=True))  # the difference that exp is taken of rounds too
    most = xp.max(off, axis=-1, keepdims=True)
    near = unit * most <= 0.25
    grown = xp.exp(xp.where(near, 4 * unit * most, xp.zeros_like(most)))
    by_logits = xp.where(near, p * grown * (off + xp.sum(p * off, axis=-1, keepdims=True)), 0.5 * most + zero)
    p_error = (2 * ELEMENTARY + C) * p + by_logits + floor
    largest = p + unit * p_error
    others, others_error = xp.where(targets, zero, largest), xp.where(targets, zero, p_error + C * largest)
    slope = xp.where(targets, xp.sum(others, axis=-1, keepdims=True), others)
    slope_error = xp.where(targets, xp.sum(others_error, axis=-1, keepdims=True), others_error)
    value, value_error = _softmax_value(a, L, targets, unit, floor, xp)
    ahead = p > 0.5  # the class whose b `bend` subtracts, if there is one

    def bend_error(b: Array, c: Any) -> Array:
        shift = xp.sum(xp.where(ahead, b, xp.zeros_like(b)), axis=-1, keepdims=True)
        size = xp.where(ahead, xp.zeros_like(b), b + shift)
        mean = xp.sum(largest * size, axis=-1, keepdims=True)
        mean_error = xp.sum(p_error * size, axis=-1, keepdims=True)
        return (p_error + (c + C + 4) * largest) * (size + mean) + largest * mean_error

    return LossErrors(value + unit * value_error, value_error, slope, slope_error, bend_error)


def _softmax_value(a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace) -> tuple[Array, Array]:
    """log(1 + exp(z)) and its error, with z = log Σ_{c ≠ y} exp(a_c) − a_y."""
    C, zero = int(a.shape[-1]), xp.zeros_like(a)
    top = xp.max(xp.where(targets, xp.full_like(a, -float("inf")), a), axis=-1, keepdims=True)
    below = xp.where(targets, zero, a - top)
    shares = xp.where(targets, zero, xp.exp(below))
    total = xp.sum(shares, axis=-1, keepdims=True)
    off = xp.where(targets, zero, L + xp.abs(below))
    most = xp.max(off, axis=-1, keepdims=True)
    near = unit * most <= 0.25
    grown = xp.exp(xp.where(near, 2 * unit * most, xp.zeros_like(most)))
    shifted = xp.where(near, grown * xp.sum(shares * off, axis=-1, keepdims=True) / total, most)
    log = xp.log(total)
    rest, own = top + log, xp.sum(xp.where(targets, a, zero), axis=-1, keepdims=True)
    own_off = xp.sum(xp.where(targets, L, zero), axis=-1, keepdims=True)
    Z = shifted + ELEMENTARY * (1 + log) + C + C * floor + xp.abs(rest) + own_off + xp.abs(rest - own)
    value = softplus(rest - own, xp=xp)
    error = (2 * ELEMENTARY + 1) * value + _growth(sigmoid(rest - own, xp=xp), Z, unit, 1.0, xp) * Z + floor
    return value[..., 0], error[..., 0]


def _growth(slope: Array, off: Array, unit: float, most: float, xp: Namespace) -> Array:
    """How fast a function can change within u · off of here, where its slope is `slope` and |slope'| ≤ slope."""
    near = unit * off <= 1
    grown = slope * xp.exp(xp.where(near, unit * off, xp.zeros_like(off)))
    return xp.where(near, grown, xp.full_like(grown, most))


# ----------------------------------------------------------------------------------------------------
# Term sizes of the linear models: a running error analysis, with |X| in place of X.
#
# With u = eps/2, in units of u, N_i instances and d features of client i:
#
#     logits      a = X x, a sum of d products in any order:   L = d |X||x|
#     slopes      l'(a) by `loss_errors`, an error of E' for logits known to u L
#     gradient    Xᵀ(weight l') + rate x, sums of N_i products:  |X|ᵀ(|weight| (E' + (N_i + 5)|l'|)) + 3 |rate||x|
#     products    Xᵀ(weight l'' (X u)) + rate u, by the Hessian or through the data: N_i + d_x and a few
#
# and so on: every term is multiplied by the number of roundings on its own way to the result, then divided by K, the
# largest of these. Terms of few roundings (rate x) then weigh little beside those of many. Sums may run in any order,
# and products are assumed to be rounded in the dtype itself (no TF32). Underflow is gradual: it adds at most u times
# the smallest normal number for every product.


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
        Hu = self._bent(u) if self.train.features.shape[-2] < p.dim_x else matvec(self._matrix, u, xp=self._xp)
        return (Hu + (p.dim_x + 3) * self._rate() * u + self.tiny) / self.roundings

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
