"""Linear:  z = a W^T + b,  W (out, in), b (out,).

d_W = δ^T a,    d_b = 1^T δ,    δ' = δ W
ż   = a Ẇ^T + ȧ W^T + ḃ
ḋ_W = δ̇^T a + δ^T ȧ,    ḋ_b = 1^T δ̇,    δ̇' = δ̇ W + δ Ẇ
"""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace
from hgp_ref.neural.layer import Into, Layer, Parameters, Shape


class Linear(Layer):
    """Each of `outputs` numbers is a weighted sum of all `inputs` and a bias.

    Parameters
    ----------
    inputs, outputs : int
        Features.

    Raises
    ------
    TypeError, ValueError
        `inputs` and `outputs` must be integers ≥ 1.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3)).dim
    15
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = arguments.integer("inputs", inputs), arguments.integer("outputs", outputs)
        self.shapes = ((self.outputs, self.inputs), (self.outputs,))
        self.fan_in = self.inputs

    def __repr__(self) -> str:
        return f"Linear({self.inputs}, {self.outputs})"

    def output_shape(self, shape: Shape) -> Shape:
        if shape != (self.inputs,):
            raise ValueError(f"{self!r}: input shape {shape} given, needed ({self.inputs},); Flatten() makes vectors")
        return (self.outputs,)

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Array]:
        return apply(a, p[0], xp) + p[1][:, None, :], a

    def backward(self, p: Parameters, kept: Array, delta: Array, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        grads = [weigh(delta, kept, xp), xp.sum(delta, axis=1)]
        return grads, self.pull(p, kept, delta, xp) if onward else None

    def pull(self, p: Parameters, kept: Array, delta: Array, xp: Namespace) -> Array:
        return xp.matmul(delta, p[0])

    def tangent(self, p: Parameters, kept: Array, p_dot: Parameters, a_dot: Array | None, xp: Namespace) -> Array:
        z_dot = apply(kept, p_dot[0], xp) + p_dot[1][:, None, :]
        return z_dot if a_dot is None else z_dot + apply(a_dot, p[0], xp)

    def backward_tangent(self, p: Parameters, kept: Array, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        weight = weigh(delta_dot, kept, xp)
        if a_dot is not None:
            weight = weight + weigh(delta, a_dot, xp)
        back = xp.matmul(delta_dot, p[0]) + xp.matmul(delta, p_dot[0]) if onward else None
        return [weight, xp.sum(delta_dot, axis=1)], back


def apply(a: Array, weight: Array, xp: Namespace) -> Array:
    """a_i W_i^T for every client.  # (n, N, out)"""
    return xp.matmul(a, xp.matrix_transpose(weight))


def weigh(delta: Array, a: Array, xp: Namespace) -> Array:
    """δ_i^T a_i for every client.  # (n, out, in)"""
    return xp.matmul(xp.matrix_transpose(delta), a)
