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
from typing import Any

import numpy as np

from hgp_ref.backend import Array, Namespace, host_dtype
from hgp_ref.problems.losses import BinaryLoss, Loss, sigmoid, softmax, softplus

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
