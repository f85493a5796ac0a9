"""Term sizes of linear models: a running error analysis with |X| in place of X.

With u = eps/2, N_i instances and d features of client i, the following bounds hold in units of u for sums in any order.
If features are sparse, d is the largest number of stored entries of a row.

    logits      a = X x, a sum of d products:                  |â − a| ≤ u L,    L = d |X||x|
    slopes      l'(a) from logits known to u L:                an error of u E', see below
    gradient    Xᵀ(weight l') + rate x, sums of N_i products:  |X|ᵀ(|weight| (E' + (N_i + 5)|l'|)) + 3 |rate||x|
    products    Xᵀ(weight l'' (X u)) + rate u, by the Hessian or through the data: N_i + d_x and a few

Every term is multiplied by the number of roundings between it and the result. The sum is divided by K, the largest such
number, because certificates multiply sizes by γ_K. Terms with few roundings (rate x) then count little.

A loss has two sources of error. Its operations: additions, products and quotients round once each; exp, log and log1p
are assumed accurate to 4 ulp, 8 u of the result, or to the smallest normal number if the result is below it. And its
logits: since |d log σ'/da| ≤ 1 and d log p_c/da = e_c − p,

    binary     |σ(â) − σ(a)|, |σ'(â) − σ'(a)| ≤ σ'(â) e^{uL} uL, and never more than uL/4
    softmax    |p_c(â) − p_c(a)| ≤ p_c(â) e^{4uL} u (L_c + Σ_k p_k(â) L_k), and never more than u max_c L_c / 2
    softplus   |s(ẑ) − s(z)| ≤ σ(ẑ) e^{uZ} uZ, and never more than uZ
    squared    |(â − y) − (a − y)| ≤ uL

so that a slope that is nearly zero has an error that is nearly zero too.

Products are assumed to be rounded in the dtype itself (no TF32). Underflow is gradual: it adds at most u times the
smallest normal number for every product.
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
from hgp_ref.problems.losses import BinaryLoss, Loss, SquaredLoss, sigmoid, softmax, softplus
from hgp_ref.problems.sparse import SparseRows
from hgp_ref.problems.term_sizes import TermSizes, allowance

if TYPE_CHECKING:
    from hgp_ref.problems.linear import LinearProblem

ELEMENTARY = 8  # error of exp, log, log1p in u of the result: 4 ulp
WEIGHT = 4  # roundings of 1/N_i, of its product with λ, and of the product with the loss
FEW = 48  # roundings of the loss of one instance and after a sum, at most
UNIT_VECTORS = 32  # that are multiplied by the data at once


@dataclass(frozen=True)
class LossErrors:
    """Upper bounds on a loss and its slope at computed logits, and on the errors of both."""

    value: Array  # (..., N), ≥ the exact loss
    value_error: Array  # (..., N), in units of u
    slope: Array  # (..., N, C), ≥ |l'|
    slope_error: Array  # (..., N, C)
    curvature_error: Callable[[Array, Any], Array]  # (b, c) ↦ the error of l'' b̂, for |b̂| ≤ b known to c u b


def loss_errors(loss: Loss, a: Array, L: Array, targets: Array, unit: float, *, xp: Namespace) -> LossErrors:
    """The errors at logits a (..., N, C) known to u L, with `unit` ≥ u."""
    kind = np.finfo(host_dtype(a))
    floor = 2 * float(kind.smallest_normal) / float(kind.eps)  # in units of u: what exp may flush to zero
    kinds: dict[type, Callable[..., LossErrors]] = {BinaryLoss: _binary_errors, SquaredLoss: _squared_errors}
    return kinds.get(type(loss), _softmax_errors)(loss, a, L, targets, unit, floor, xp)


def _squared_errors(
    loss: Loss, a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace
) -> LossErrors:
    slope, value = xp.abs(loss.slope(a, targets, xp=xp)), loss.value(a, targets, xp=xp)
    slope_error = L + slope  # of the logit, and of the difference
    largest = slope + unit * slope_error
    # |ŝ² − s²|/2 ≤ max(|ŝ|, |s|) |ŝ − s|, and the square rounds once
    value_error = (largest * slope_error)[..., 0] + 2 * value + floor

    def curvature_error(b: Array, c: Any) -> Array:
        return (c + 1) * b

    return LossErrors(value + unit * value_error, value_error, largest, slope_error, curvature_error)


def _binary_errors(
    loss: Loss, a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace
) -> LossErrors:
    slope = xp.abs(loss.slope(a, targets, xp=xp))
    value = loss.value(a, targets, xp=xp)
    curvature = sigmoid(a, xp=xp) * sigmoid(-a, xp=xp)
    by_logits = _largest_slope(curvature, L, unit, 0.25, xp) * L
    slope_error = (ELEMENTARY + 6) * slope + by_logits + floor
    second_error = (ELEMENTARY + 12) * curvature + by_logits + floor
    value_error = (2 * ELEMENTARY + 1) * value + (_largest_slope(slope, L, unit, 1.0, xp) * L)[..., 0] + floor
    largest = curvature + unit * second_error

    def curvature_error(b: Array, c: Any) -> Array:
        return (second_error + (c + 1) * largest) * b

    return LossErrors(value + unit * value_error, value_error, slope + unit * slope_error, slope_error, curvature_error)


def _softmax_errors(
    loss: Loss, a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace
) -> LossErrors:
    C, zero = loss.logits, xp.zeros_like(a)
    value, value_error = _softmax_value(a, L, targets, unit, floor, xp)
    p = softmax(a, xp=xp)
    L = L + xp.abs(a - xp.max(a, axis=-1, keepdims=True))  # the argument of exp is a rounded difference
    most = xp.max(L, axis=-1, keepdims=True)
    near = unit * most <= 0.25
    growth = xp.exp(xp.where(near, 4 * unit * most, xp.zeros_like(most)))
    by_logits = xp.where(near, p * growth * (L + xp.sum(p * L, axis=-1, keepdims=True)), 0.5 * most + zero)
    p_error = (2 * ELEMENTARY + C) * p + by_logits + floor
    largest = p + unit * p_error
    other, other_error = (xp.where(targets, zero, a) for a in (largest, p_error + C * largest))  # of wrong classes
    slope = xp.where(targets, xp.sum(other, axis=-1, keepdims=True), other)
    slope_error = xp.where(targets, xp.sum(other_error, axis=-1, keepdims=True), other_error)
    dominant = p > 0.5  # the class whose b `SoftmaxLoss.curvature_product` subtracts, if there is one

    def curvature_error(b: Array, c: Any) -> Array:
        shift = xp.sum(xp.where(dominant, b, xp.zeros_like(b)), axis=-1, keepdims=True)
        size = xp.where(dominant, xp.zeros_like(b), b + shift)
        mean = xp.sum(largest * size, axis=-1, keepdims=True)
        mean_error = xp.sum(p_error * size, axis=-1, keepdims=True)
        return (p_error + (c + C + 4) * largest) * (size + mean) + largest * mean_error

    return LossErrors(value + unit * value_error, value_error, slope, slope_error, curvature_error)


def _softmax_value(a: Array, L: Array, targets: Array, unit: float, floor: float, xp: Namespace) -> tuple[Array, Array]:
    """log(1 + exp(z)) and its error, with z = log Σ_{c ≠ y} exp(a_c) − a_y."""
    C, zero = int(a.shape[-1]), xp.zeros_like(a)
    top = xp.max(xp.where(targets, xp.full_like(a, -float("inf")), a), axis=-1, keepdims=True)
    below = xp.where(targets, zero, a - top)
    terms = xp.where(targets, zero, xp.exp(below))
    total = xp.sum(terms, axis=-1, keepdims=True)
    term_errors = xp.where(targets, zero, L + xp.abs(below))
    most = xp.max(term_errors, axis=-1, keepdims=True)
    near = unit * most <= 0.25
    growth = xp.exp(xp.where(near, 2 * unit * most, xp.zeros_like(most)))
    log_error = xp.where(near, growth * xp.sum(terms * term_errors, axis=-1, keepdims=True) / total, most)
    log = xp.log(total)
    rest, label = top + log, xp.sum(xp.where(targets, a, zero), axis=-1, keepdims=True)
    label_error = xp.sum(xp.where(targets, L, zero), axis=-1, keepdims=True)
    Z = log_error + ELEMENTARY * (1 + log) + C + C * floor + xp.abs(rest) + label_error + xp.abs(rest - label)
    value = softplus(rest - label, xp=xp)
    error = (2 * ELEMENTARY + 1) * value + _largest_slope(sigmoid(rest - label, xp=xp), Z, unit, 1.0, xp) * Z + floor
    return value[..., 0], error[..., 0]


def _largest_slope(slope: Array, L: Array, unit: float, most: float, xp: Namespace) -> Array:
    """A bound on the slope of a function within u L of a point where it is `slope`, if |slope'| ≤ slope ≤ `most`."""
    near = unit * L <= 1
    grown = slope * xp.exp(xp.where(near, unit * L, xp.zeros_like(L)))
    return xp.where(near, grown, xp.full_like(grown, most))


def _longest_sum(features: Any) -> int:
    """The largest number of terms of a logit: d, or the entries of a sparse row."""
    return features.longest if isinstance(features, SparseRows) else int(features.shape[-1])


class LinearSizes:
    """The sizes of one linear model at (x, lam), full batches."""

    def __init__(self, problem: LinearProblem, x: Array, lam: Array) -> None:
        self._problem, self._xp = problem, problem._xp
        self._x, self._lam = self._xp.asarray(x, copy=True), self._xp.asarray(lam, copy=True)
        self._sparse = isinstance(problem._train.all.features, SparseRows)
        self.terms = max(_longest_sum(data.all.features) for data in (problem._train, problem._val))
        kind = np.finfo(host_dtype(x))
        self.tiny = float(kind.smallest_normal)
        most = max(int(data.counts.max()) for data in (problem._train, problem._val))
        self.roundings = most + 2 * problem.dim_x + problem._loss.logits + FEW
        self.unit = min(allowance(self.roundings, float(kind.eps)) / self.roundings, float(kind.eps))  # ≥ u
        self._train, self.errors = self._losses(problem._train)
        self._weight = self._xp.abs(problem._weight(self._lam, problem._train.all)) + self.tiny  # (n, N)
        self._weight = self._weight * self._xp.astype(problem._train.all.mean > 0, self._weight.dtype)
        self._counts = self._counts_of(problem._train)  # (n, 1)

    def sizes(self) -> TermSizes:
        """The sizes of all quantities."""
        xp, K, p = self._xp, self.roundings, self._problem
        val, val_errors = self._losses(p._val)
        mean, val_counts = p._val.all.mean, self._counts_of(p._val)
        rate, x = self._rate(), xp.abs(self._x)
        inner_cost = self._cost(self._train, self._weight, self._counts, self.errors)
        inner_cost = inner_cost + 0.5 * (p.dim_x + 4) * xp.sum(rate * x * x + self.tiny, axis=-1)
        inner_grad = self._gradient(self._train, self._weight, self._counts, self.errors) + 3 * rate * x + self.tiny
        return TermSizes(
            roundings=K,
            inner_cost=inner_cost / K,
            inner_grad=inner_grad / K,
            outer_cost=self._cost(val, mean, val_counts, val_errors) / K,
            outer_grad=(self._gradient(val, mean, val_counts, val_errors) / K, xp.zeros_like(self._lam)),
            hvp=self.hvp,
            cross=self.cross,
        )

    def hvp(self, u: Array) -> Array:
        """For X_iᵀ (weight l'' (X_i u)) + rate u.  # (n, d_x)"""
        u, p = self._xp.abs(u), self._problem
        through_data = self._sparse or self._train.features.shape[-2] < p.dim_x
        Hu = self._hvp_data(u) if through_data else matvec(self._hvp_matrix, u, xp=self._xp)
        return (Hu + (self._row + 3) * self._rate() * u + self.tiny) / self.roundings

    def cross(self, u: Array) -> Array:
        """For J_i u_i.  # (n, d_λ)"""
        return self._problem._cross_errors(self, self._xp.abs(self._x), self._xp.abs(u)) / self.roundings

    def logits(self, u: Array) -> Array:
        """|X_i| u_i of u ≥ 0, with a bound on underflow.  # (..., n, N, C)"""
        return self._train.forward(u, xp=self._xp) + self.terms * self.tiny

    def _losses(self, instances: Any) -> tuple[View, LossErrors]:
        """The instances with |X| in place of X, and the errors of their losses."""
        xp, p, whole = self._xp, self._problem, instances.all
        X = whole.features
        absolute = X.absolute() if isinstance(X, SparseRows) else xp.abs(X)
        absolute = View(absolute, whole.targets, whole.mean, whole.rows)
        a = whole.forward(self._x, xp=xp)
        L = self.terms * (absolute.forward(xp.abs(self._x), xp=xp) + self.terms * self.tiny)
        return absolute, loss_errors(p._loss, a, L, whole.targets, self.unit, xp=xp)

    @property
    def _row(self) -> int:
        """The longest sum of a product H_i u_i along a row: of the Hessian, or of X_i if that is sparse."""
        return self.terms if self._sparse else self._problem.dim_x

    def _counts_of(self, instances: Any) -> Array:
        return from_host(instances.counts[:, None].astype(host_dtype(self._x)), like=self._x)

    def _rate(self) -> Any:
        rate = self._problem._rate(self._lam)
        return abs(rate) if isinstance(rate, float) else self._xp.abs(rate)

    def _cost(self, view: View, weight: Array, counts: Array, errors: LossErrors) -> Array:
        terms = weight * (errors.value_error + (counts + WEIGHT + 1) * errors.value)
        return view.total(terms, xp=self._xp) + counts[..., 0] * self.tiny

    def _gradient(self, view: View, weight: Array, counts: Array, errors: LossErrors) -> Array:
        slopes = errors.slope_error + (counts[..., None] + WEIGHT + 1) * errors.slope
        return view.adjoint(weight[..., None] * slopes, xp=self._xp) + counts * self.tiny

    def _hvp_data(self, u: Array) -> Array:
        """The size of X_iᵀ (weight l'' (X_i u)) for u ≥ 0.  # (..., n, d_x)"""
        roundings = (self._counts + WEIGHT + self._row + 2)[..., None]
        terms = self._weight[..., None] * self.errors.curvature_error(self.logits(u), roundings)
        return self._train.adjoint(terms, xp=self._xp) + self._counts * self.tiny

    @cached_property
    def _hvp_matrix(self) -> Array:
        """The matrix of `_hvp_data`, used if it is smaller than the data.  # (n, d_x, d_x)"""
        xp, p = self._xp, self._problem
        n, columns = int(self._x.shape[0]), []
        identity = xp.eye(p.dim_x, dtype=self._x.dtype, device=device(self._x))
        for first in range(0, p.dim_x, UNIT_VECTORS):
            units = identity[first : min(first + UNIT_VECTORS, p.dim_x), :][:, None, :]
            units = xp.broadcast_to(units, (int(units.shape[0]), n, p.dim_x))
            columns.append(xp.moveaxis(self._hvp_data(units), 0, -1))
        return xp.concat(columns, axis=-1)
