"""Flatten: an image as one vector, in PyTorch's order of its entries (channel, row, column)."""

from __future__ import annotations

import math

from hgp_ref.backend import Array, Namespace
from hgp_ref.neural.layer import Shape, Unparametrised


class Flatten(Unparametrised):
    """The entries of an instance as a vector.

    Examples
    --------
    >>> hgp.neural.Sequential((2, 3, 3), hgp.neural.Flatten(), hgp.neural.Linear(18, 2)).dim
    38
    """

    def __repr__(self) -> str:
        return "Flatten()"

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, Shape]:
        return self.push(tuple(a.shape), a, xp), tuple(a.shape)

    def push(self, kept: Shape, a_dot: Array, xp: Namespace) -> Array:
        return xp.reshape(channels_first(a_dot, xp), (*kept[:2], math.prod(kept[2:])))

    def back(self, kept: Shape, delta: Array, xp: Namespace) -> Array:
        if len(kept) != 5:
            return xp.reshape(delta, kept)
        n, N, H, W, C = kept
        return channels_last(xp.reshape(delta, (n, N, C, H, W)), xp)


def channels_first(a: Array, xp: Namespace) -> Array:
    """(n, N, H, W, C) as (n, N, C, H, W); other arrays as they are."""
    return xp.permute_dims(a, (0, 1, 4, 2, 3)) if a.ndim == 5 else a


def channels_last(a: Array, xp: Namespace) -> Array:
    """(n, N, C, H, W) as (n, N, H, W, C); other arrays as they are."""
    return xp.permute_dims(a, (0, 1, 3, 4, 2)) if a.ndim == 5 else a
