"""Losses of one instance as functions of its logits, with slopes and curvatures that stay accurate at any logit.

    binary:   l(a) = log(1 + exp(−s a)), s = 2y − 1         one logit
    softmax:  l(a) = log Σ_c exp(a_c) − a_y                 C logits
    squared:  l(a) = ½ (a − y)²                             one logit

c₂ and c₃ bound the second and third derivatives along directions of length one. |l'''| is the third central moment of
a variable whose range is at most 1 (binary) or √2 (softmax), and such a moment over range R is at most R³/(6√3).

Only exponentials of non-positive numbers are taken, so nothing overflows. 1 − p is never formed, so a slope keeps its
relative accuracy if p is close to 1. Logits are (..., N, C), with C = 1 for the binary and the squared loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hgp_ref._kernels import cuda
from hgp_ref.backend import Array, Namespace, device

SKEW = 1 / (6 * math.sqrt(3))  # largest third central moment of a variable with range 1


class OneLogit:
    """What losses of one logit share. `curvature` is l'' of every instance times its weight."""

    logits = 1

    def select_curvature(self, unweighted: Array, pick: Callable[[Array], Array], weights: Array) -> Array:
        """The curvature of some instances from that of all with weights 1; `pick` selects their entries."""
        return weights[..., None] * pick(unweighted)

    def curvature_product(self, curvature: Array, b: Array, *, xp: Namespace) -> Array:
        """weights_k (∂²l_k/∂a²) b_k.  # (..., N, C)"""
        return curvature * b


class BinaryLoss(OneLogit):
    """Binary cross-entropy of one logit; targets are the signs s = 2y − 1."""

    n_classes: int | None = 2
    c2, c3 = 0.25, SKEW
    cuda_curvature, cuda_slope = 0, 1  # kinds of the kernel `weigh_logits`

    def encode(self, y: Array, *, xp: Namespace) -> Array:
        """Labels (n, N), as floats, to targets (n, N, C)."""
        return (2 * y - 1)[..., None]

    def value(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        """l(a).  # (..., N)"""
        return softplus(-targets * a, xp=xp)[..., 0]

    def slope(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        """∂l/∂a.  # (..., N, C)"""
        return -targets * sigmoid(-targets * a, xp=xp)

    def curvature(self, a: Array, weights: Array, *, xp: Namespace) -> Array:
        """What `curvature_product` needs of the point; weights (..., N) multiply each instance."""
        e = xp.exp(-xp.abs(a))
        return weights[..., None] * (e / ((1 + e) * (1 + e)))

    def blocks(self, a: Array, *, xp: Namespace) -> Array:
        """∂²l/∂a² as matrices.  # (..., N, C, C)"""
        return (sigmoid(a, xp=xp) * sigmoid(-a, xp=xp))[..., None]


class SoftmaxLoss:
    """Cross-entropy of C >= 2 logits, with the methods of `BinaryLoss`; targets are one-hot booleans."""

    c2, c3 = 0.5, 2 * math.sqrt(2) * SKEW
    cuda_curvature, cuda_slope = 3, 4

    def __init__(self, n_classes: int) -> None:
        self.logits = self.n_classes = n_classes

    def encode(self, y: Array, *, xp: Namespace) -> Array:
        classes = xp.arange(self.logits, dtype=y.dtype, device=device(y))
        return y[..., None] == classes

    def value(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        # log(1 + exp(z)) with z = log Σ_{c ≠ y} exp(a_c) − a_y: no cancellation if the loss is small
        wrong = xp.where(targets, xp.full_like(a, -float("inf")), a)
        top = xp.max(wrong, axis=-1, keepdims=True)
        rest = top[..., 0] + xp.log(xp.sum(xp.exp(wrong - top), axis=-1))
        label = xp.sum(xp.where(targets, a, xp.zeros_like(a)), axis=-1)
        return softplus(rest - label, xp=xp)

    def slope(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        if cuda.applies(a):
            return cuda.softmax_slope(a, targets)
        p = xp.where(targets, xp.zeros_like(a), softmax(a, xp=xp))  # of the wrong classes
        return xp.where(targets, -xp.sum(p, axis=-1, keepdims=True), p)

    def curvature(self, a: Array, weights: Array, *, xp: Namespace) -> tuple[Array, Array]:
        p = softmax(a, xp=xp)
        return p, weights[..., None] * p

    def select_curvature(
        self, unweighted: tuple[Array, Array], pick: Callable[[Array], Array], weights: Array
    ) -> tuple[Array, Array]:
        p = pick(unweighted[0])
        return p, weights[..., None] * p

    def curvature_product(self, curvature: tuple[Array, Array], b: Array, *, xp: Namespace) -> Array:
        # (diag(p) − p pᵀ) b does not change if a constant is subtracted from b. Subtract the b of a class with p > ½:
        # its entry is then minus a sum of small terms, and not a difference of large ones.
        p, weighted = curvature
        c = b - xp.sum(xp.where(p > 0.5, b, xp.zeros_like(b)), axis=-1, keepdims=True)
        return weighted * (c - xp.sum(p * c, axis=-1, keepdims=True))

    def blocks(self, a: Array, *, xp: Namespace) -> Array:
        p = softmax(a, xp=xp)
        identity = xp.eye(self.logits, dtype=a.dtype, device=device(a))
        products = (1 - identity) * p[..., :, None] * p[..., None, :]  # p_k p_c for k ≠ c, without 1 − p
        return identity * xp.sum(products, axis=-1, keepdims=True) - products


class SquaredLoss(OneLogit):
    """Half the squared residual of one prediction, with the methods of `BinaryLoss`; targets are any numbers."""

    n_classes: int | None = None
    c2, c3 = 1.0, 0.0
    cuda_curvature, cuda_slope = 0, 2

    def encode(self, y: Array, *, xp: Namespace) -> Array:
        return xp.asarray(y, copy=True)[..., None]

    def value(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        residual = (a - targets)[..., 0]
        return 0.5 * (residual * residual)

    def slope(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        return a - targets

    def curvature(self, a: Array, weights: Array, *, xp: Namespace) -> Array:
        return weights[..., None] * xp.ones_like(a)

    def blocks(self, a: Array, *, xp: Namespace) -> Array:
        return xp.ones_like(a)[..., None]


Loss = BinaryLoss | SoftmaxLoss | SquaredLoss


def sigmoid(a: Array, *, xp: Namespace) -> Array:
    """1 / (1 + exp(−a))."""
    e = xp.exp(-xp.abs(a))
    return xp.where(a >= 0, xp.ones_like(e), e) / (1 + e)


def softplus(a: Array, *, xp: Namespace) -> Array:
    """log(1 + exp(a))."""
    return xp.where(a > 0, a, xp.zeros_like(a)) + xp.log1p(xp.exp(-xp.abs(a)))


def softmax(a: Array, *, xp: Namespace) -> Array:
    """exp(a_c) / Σ_c exp(a_c) along the last axis."""
    e = xp.exp(a - xp.max(a, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)
