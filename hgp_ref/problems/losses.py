"""Losses of one instance as functions of its logits, with slopes and curvatures that stay accurate at any logit.

    binary:   l(a) = log(1 + exp(-s a)), s = 2 y - 1         one logit
    softmax:  l(a) = log sum_c exp(a_c) - a_y                C logits

Only exponentials of non-positive numbers are taken, so nothing overflows, and 1 - p is never formed, so a slope keeps
its relative accuracy where the model is sure of itself. Logits are (..., N, C), with C = 1 for the binary loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hgp_ref.backend import Array, Namespace, device


class Loss(Protocol):
    """A loss per instance; `targets` are labels in the form that `encode` gives them."""

    logits: int  # C

    def encode(self, y: Array, *, xp: Namespace) -> Array:
        """Class numbers (n, N), as floats, to targets (n, N, C)."""
        ...

    def value(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        """l(a).  # (..., N)"""
        ...

    def slope(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        """d l / d a.  # (..., N, C)"""
        ...

    def curvature(self, a: Array, weights: Array, *, xp: Namespace) -> Any:
        """What `curvature_product` needs of the point; weights (..., N) multiply each instance."""
        ...

    def select_curvature(self, unweighted: Any, pick: Callable[[Array], Array], weights: Array) -> Any:
        """The curvature of some instances from that of all with weights 1; `pick` selects their entries of an array."""
        ...

    def curvature_product(self, curvature: Any, b: Array, *, xp: Namespace) -> Array:
        """weights_k (d² l_k / d a²) b_k.  # (..., N, C)"""
        ...

    def blocks(self, a: Array, *, xp: Namespace) -> Array:
        """d² l / d a² as matrices.  # (..., N, C, C)"""
        ...


class BinaryLoss:
    """Binary cross-entropy of one logit; targets are the signs s = 2 y - 1 in {-1, 1}."""

    logits = 1

    def encode(self, y: Array, *, xp: Namespace) -> Array:
        return (2 * y - 1)[..., None]

    def value(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        return softplus(-targets * a, xp=xp)[..., 0]

    def slope(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        return -targets * sigmoid(-targets * a, xp=xp)

    def curvature(self, a: Array, weights: Array, *, xp: Namespace) -> Array:
        e = xp.exp(-xp.abs(a))
        return weights[..., None] * (e / ((1 + e) * (1 + e)))

    def select_curvature(self, unweighted: Array, pick: Callable[[Array], Array], weights: Array) -> Array:
        return weights[..., None] * pick(unweighted)

    def curvature_product(self, curvature: Array, b: Array, *, xp: Namespace) -> Array:
        return curvature * b

    def blocks(self, a: Array, *, xp: Namespace) -> Array:
        return (sigmoid(a, xp=xp) * sigmoid(-a, xp=xp))[..., None]


class SoftmaxLoss:
    """Cross-entropy of C >= 2 logits; targets are one-hot booleans."""

    def __init__(self, n_classes: int) -> None:
        self.logits = n_classes

    def encode(self, y: Array, *, xp: Namespace) -> Array:
        classes = xp.arange(self.logits, dtype=y.dtype, device=device(y))
        return y[..., None] == classes

    def value(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        # log(1 + exp(z)) with z = log sum_{c != y} exp(a_c) - a_y: no cancellation when the loss is small
        others = xp.where(targets, xp.full_like(a, -float("inf")), a)
        top = xp.max(others, axis=-1, keepdims=True)
        rest = top[..., 0] + xp.log(xp.sum(xp.exp(others - top), axis=-1))
        own = xp.sum(xp.where(targets, a, xp.zeros_like(a)), axis=-1)
        return softplus(rest - own, xp=xp)

    def slope(self, a: Array, targets: Array, *, xp: Namespace) -> Array:
        others = xp.where(targets, xp.zeros_like(a), softmax(a, xp=xp))
        return xp.where(targets, -xp.sum(others, axis=-1, keepdims=True), others)

    def curvature(self, a: Array, weights: Array, *, xp: Namespace) -> tuple[Array, Array]:
        p = softmax(a, xp=xp)
        return p, weights[..., None] * p

    def select_curvature(
        self, unweighted: tuple[Array, Array], pick: Callable[[Array], Array], weights: Array
    ) -> tuple[Array, Array]:
        p = pick(unweighted[0])
        return p, weights[..., None] * p

    def curvature_product(self, curvature: tuple[Array, Array], b: Array, *, xp: Namespace) -> Array:
        # (diag(p) - p p^T) b is the same for b less a constant: less b of a class with p near 1, whose entry is then
        # minus a sum of small terms and not a difference of large ones
        p, weighted = curvature
        c = b - xp.sum(xp.where(p > 0.5, b, xp.zeros_like(b)), axis=-1, keepdims=True)
        return weighted * (c - xp.sum(p * c, axis=-1, keepdims=True))

    def blocks(self, a: Array, *, xp: Namespace) -> Array:
        p = softmax(a, xp=xp)
        identity = xp.eye(self.logits, dtype=a.dtype, device=device(a))
        products = (1 - identity) * p[..., :, None] * p[..., None, :]  # p_k p_c of other classes: no 1 - p
        return identity * xp.sum(products, axis=-1, keepdims=True) - products


def sigmoid(a: Array, *, xp: Namespace) -> Array:
    """1 / (1 + exp(-a))."""
    e = xp.exp(-xp.abs(a))
    return xp.where(a >= 0, xp.ones_like(e), e) / (1 + e)


def softplus(a: Array, *, xp: Namespace) -> Array:
    """log(1 + exp(a))."""
    return xp.where(a > 0, a, xp.zeros_like(a)) + xp.log1p(xp.exp(-xp.abs(a)))


def softmax(a: Array, *, xp: Namespace) -> Array:
    """exp(a_c) / sum_c exp(a_c) along the last axis."""
    e = xp.exp(a - xp.max(a, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)
