"""Linear and ReLU in one step on NumPy arrays: z = max(a W^T + b, 0), and the passes of `linear` behind it.

The two products of ḋ_W = δ̇^T a + δ^T ȧ are one: [δ̇; δ]^T [a; ȧ], instances one above the other.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.backend import Namespace
from hgp_ref.neural.layer import Into, Layer, Parameters, Shape
from hgp_ref.neural.linear import Linear, apply

Kept = tuple[np.ndarray, np.ndarray | None]  # a, and where ReLU sets to zero


class LinearBlock(Layer):
    """`linear`, and ReLU behind it if `relu`."""

    def __init__(self, linear: Linear, relu: bool) -> None:
        self.linear, self.relu = linear, relu
        self.shapes, self.fan_in = linear.shapes, linear.fan_in

    def output_shape(self, shape: Shape) -> Shape:
        return self.linear.output_shape(shape)

    def forward(self, p: Parameters, a: np.ndarray, xp: Namespace) -> tuple[np.ndarray, Kept]:
        z = apply(a, p[0], xp)
        z += p[1][:, None, :]
        dead = z <= 0 if self.relu else None
        return _without(z, dead), (a, dead)

    def backward(self, p: Parameters, kept: Kept, delta: np.ndarray, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[np.ndarray], np.ndarray | None]:  # fmt: skip
        a, dead = kept
        delta = _alive(delta, dead)
        grads = into if into is not None else [np.empty_like(part) for part in p]
        np.matmul(delta.swapaxes(1, 2), a, out=grads[0])
        np.sum(delta, axis=1, out=grads[1])
        return grads, np.matmul(delta, p[0]) if onward else None

    def pull(self, p: Parameters, kept: Kept, delta: np.ndarray, xp: Namespace) -> np.ndarray:
        return np.matmul(_alive(delta, kept[1]), p[0])

    def tangent(self, p: Parameters, kept: Kept, p_dot: Parameters, a_dot: np.ndarray | None,
                xp: Namespace) -> np.ndarray:  # fmt: skip
        a, dead = kept
        z_dot = apply(a, p_dot[0], xp)
        z_dot += p_dot[1][:, None, :]
        if a_dot is not None:
            z_dot += apply(a_dot, p[0], xp)
        return _without(z_dot, dead)

    def backward_tangent(self, p: Parameters, kept: Kept, p_dot: Parameters, a_dot: np.ndarray | None,
                         delta: np.ndarray, delta_dot: np.ndarray, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[np.ndarray], np.ndarray | None]:  # fmt: skip
        a, dead = kept
        N = a.shape[1]
        both = np.concatenate([delta_dot, delta], axis=1)  # (n, 2N, out)
        _without(both[:, :N], dead)
        _without(both[:, N:], dead)
        grads = into if into is not None else [np.empty_like(part) for part in p]
        if a_dot is None:
            np.matmul(both[:, :N].swapaxes(1, 2), a, out=grads[0])
        else:
            np.matmul(both.swapaxes(1, 2), np.concatenate([a, a_dot], axis=1), out=grads[0])
        np.sum(both[:, :N], axis=1, out=grads[1])
        if not onward:
            return grads, None
        back = np.matmul(both[:, :N], p[0])
        back += np.matmul(both[:, N:], p_dot[0])
        return grads, back


def _without(z: np.ndarray, dead: np.ndarray | None) -> np.ndarray:
    """z with zeros where `dead`, in place."""
    if dead is not None:
        np.copyto(z, 0, where=dead)
    return z


def _alive(delta: np.ndarray, dead: np.ndarray | None) -> np.ndarray:
    """The same of `delta`, which stays as it is."""
    return delta if dead is None else _without(delta.copy(), dead)
