"""What a layer is: a map a -> z(p, a) with its derivatives, for n clients with parameters of their own at once.

With a dot for the derivative along a direction u of all parameters (Pearlmutter's R-operator [1]) and
δ = d cost / d output, δ' = d cost / d input of a layer, four passes give gradients and Hessian-vector products:

    forward             z = z(p, a)
    backward            d_p = (∂z/∂p)^T δ,                        δ' = (∂z/∂a)^T δ          pull    δ' alone
    tangent             ż = (∂z/∂p) ṗ + (∂z/∂a) ȧ
    backward_tangent    ḋ_p and δ̇', the derivatives of the two results of `backward` along (ṗ, ȧ, δ̇)

Shapes. Every array has the client axis first, then instances: activations are (n, N, *shape), parameters (n, *shape).
Images travel between layers with channels last, (n, N, H, W, C): windows are then rows of matrices and every channel of
a pixel lies in one stretch of memory. Shapes are *named* as PyTorch names them, (C, H, W), and parameters have its
layout; `Sequential` turns images on their way in and out.

A layer leaves the arrays that it is given as they are: the first one sees the problem's own data, later ones what tapes
keep. `tape` checks the shape and dtype of what each pass returns.

Nothing in a layer mixes clients, and no sum over instances depends on how many clients there are: on NumPy a client's
results are the same bits whoever shares its array. (PyTorch rounds batched products by where a matrix begins in memory,
so there they are the same up to rounding.)

[1] B. A. Pearlmutter. Fast exact multiplication by the Hessian. Neural Computation 6(1), 1994.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace

Shape = tuple[int, ...]
Parameters = list[Array]  # of one layer: each (n, *shape)
Into = list[Array] | None  # where the gradient of each parameter may be written, (n, *shape); a layer need not


class Layer(ABC):
    """One layer. Only layers with parameters have `shapes` and `fan_in`.

    Examples
    --------
    >>> isinstance(hgp.neural.Linear(4, 3), hgp.neural.Layer)
    True
    """

    shapes: tuple[Shape, ...] = ()  # of the parameters, weight first
    fan_in: int = 0  # inputs that reach one output, for the initialisation

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of an instance's output, given that of its input; ValueError if the layer cannot take it."""

    @abstractmethod
    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Any]:
        """z, and what the other passes need of this one."""

    @abstractmethod
    def backward(self, p: Parameters, kept: Any, delta: Array, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        """d_p, and δ' (None unless it is wanted `onward`)."""

    @abstractmethod
    def pull(self, p: Parameters, kept: Any, delta: Array, xp: Namespace) -> Array:
        """δ'."""

    @abstractmethod
    def tangent(self, p: Parameters, kept: Any, p_dot: Parameters, a_dot: Array | None,
                xp: Namespace) -> Array | None:  # fmt: skip
        """ż; `a_dot` is None where the input does not move, ż where the output does not either."""

    @abstractmethod
    def backward_tangent(self, p: Parameters, kept: Any, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        """ḋ_p, and δ̇' (None unless it is wanted `onward`)."""


class Unparametrised(Layer):
    """A layer without parameters, z = z(a): a subclass says how it maps ȧ and δ, and how its slope moves."""

    @abstractmethod
    def push(self, kept: Any, a_dot: Array, xp: Namespace) -> Array:
        """(∂z/∂a) ȧ."""

    @abstractmethod
    def back(self, kept: Any, delta: Array, xp: Namespace) -> Array:
        """(∂z/∂a)^T δ."""

    def bend(self, kept: Any, a_dot: Array, delta: Array, xp: Namespace) -> Array | None:
        """The derivative of (∂z/∂a)^T δ along ȧ; None for layers that are linear around almost every input."""
        return None

    def backward(self, p: Parameters, kept: Any, delta: Array, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        return [], self.back(kept, delta, xp) if onward else None

    def pull(self, p: Parameters, kept: Any, delta: Array, xp: Namespace) -> Array:
        return self.back(kept, delta, xp)

    def tangent(self, p: Parameters, kept: Any, p_dot: Parameters, a_dot: Array | None,
                xp: Namespace) -> Array | None:  # fmt: skip
        return None if a_dot is None else self.push(kept, a_dot, xp)

    def backward_tangent(self, p: Parameters, kept: Any, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        if not onward:
            return [], None
        moved = self.back(kept, delta_dot, xp)
        bent = None if a_dot is None else self.bend(kept, a_dot, delta, xp)
        return [], moved if bent is None else moved + bent


def pair(name: str, value: Any) -> tuple[int, int]:
    """An integer >= 1 for both directions, or two of them: (height, width)."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise ValueError(f"{name}={value!r} given, needed an integer >= 1 or two of them (height, width)")
        return arguments.integer(f"{name}[0]", value[0]), arguments.integer(f"{name}[1]", value[1])
    both = arguments.integer(name, value)
    return both, both


def image_shape(layer: str, shape: Shape) -> Shape:
    """`shape` if it is that of an image, (C, H, W)."""
    if len(shape) != 3:
        raise ValueError(f"{layer}: input shape {shape} given, needed (C, H, W)")
    return shape
