"""What a forward pass leaves behind, and the three passes that use it.

    tape = model.forward(x, X)              z = model(x, X) for every client, activations kept
    tape.backward(c)                        (∂z/∂x)^T c, the gradient of a cost with ∂cost/∂z = c            # (n, d)
    adjoint = tape.adjoint(c)               the cost's gradient at every layer's output, kept
    moved = tape.tangent(u)                 moved.output = (∂z/∂x) u, how outputs move along u             # (n, N, ...)
    adjoint.tangent(moved, c_dot)           the derivative of (∂z/∂x)^T c along u, if c moves by c_dot       # (n, d)

A cost l(z) has c = l'(z) and c_dot = l''(z) moved.output; the last line is then its Hessian times u. Mixed derivatives
with anything that acts on the outputs need moved.output alone. A tape does not see changes of x made after it: it
refers to x, so x must stay as it is while the tape is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.backend import Array, Namespace, is_numpy
from hgp_ref.neural.flatten import channels_first, channels_last
from hgp_ref.neural.layer import Into, Layer, Parameters


def split(layers: Sequence[Layer], x: Array, xp: Namespace) -> list[Parameters]:
    """Rows of x as the parameters of each layer, in order; views where the library has them."""
    start, each = 0, []
    for layer in layers:
        own = []
        for shape in layer.shapes:
            size = int(np.prod(shape))
            own.append(xp.reshape(x[:, start : start + size], (x.shape[0], *shape)))
            start += size
        each.append(own)
    return each


class Gradient:
    """Gradients of all layers as one array (n, d); on NumPy it is made first, and layers write into it."""

    def __init__(self, layers: Sequence[Layer], x: Array, xp: Namespace, out: Array | None) -> None:
        self._xp, self._n = xp, x.shape[0]
        self._parts: list[list[Array]] = [[] for _ in layers]
        self._whole = np.empty(x.shape, dtype=x.dtype) if out is None and is_numpy(x) else out
        self._places = None if self._whole is None else split(layers, self._whole, xp)

    def into(self, k: int) -> Into:
        """Where layer k may write."""
        return None if self._places is None else self._places[k]

    def put(self, k: int, grads: list[Array]) -> None:
        """The gradients of layer k."""
        if self._places is None:
            self._parts[k] = [self._xp.reshape(grad, (self._n, -1)) for grad in grads]
            return
        for place, grad in zip(self._places[k], grads, strict=True):
            if grad is not place:
                place[...] = grad

    def array(self) -> Array:
        """(n, d)."""
        if self._whole is not None:
            return self._whole
        return self._xp.concat([part for own in self._parts for part in own], axis=1)


@dataclass(frozen=True)
class Tangent:
    """How everything moves along u; made by `Tape.tangent`.

    Attributes
    ----------
    output : (n, N, *output_shape).
    parameters : u, layer by layer.
    inputs : ȧ of each layer, None where it does not move.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> tape = model.forward(model.init(2, 0), np.ones((2, 5, 4)))
    >>> tape.tangent(np.ones((2, model.dim))).output[0, 0]  # four weights and a bias move by 1
    array([5., 5., 5.])
    """

    output: Array
    parameters: list[Parameters]
    inputs: list[Array | None]


class Tape:
    """A forward pass that can be differentiated; see the module.

    Parameters
    ----------
    layers, x, X, xp
        Layers, parameters (n, dim), inputs (n, N, ...) and the array library; `Sequential.forward` gives them.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> tape = model.forward(model.init(2, 0), np.ones((2, 5, 4)))
    >>> tape.output.shape
    (2, 5, 3)
    """

    def __init__(self, layers: Sequence[Layer], x: Array, X: Array, xp: Namespace) -> None:
        self._layers, self._xp, self._x = layers, xp, x
        self._parameters = split(layers, x, xp)
        self._kept: list[Any] = []
        self._first = next((k for k, layer in enumerate(layers) if layer.shapes), len(layers))
        a, shape = channels_last(X, xp), tuple(X.shape[2:])
        self._shapes = [tuple(a.shape)]  # of what goes into each layer, and of what comes out of the last one
        for layer, p in zip(layers, self._parameters, strict=True):
            a, kept = layer.forward(p, a, xp)
            shape = layer.output_shape(shape)
            self._shapes.append((*X.shape[:2], *shape[1:], shape[0]))
            check(a, self._shapes[-1], x, layer, "forward")
            self._kept.append(kept)
        self.output = channels_first(a, xp)  # (n, N, *output_shape)

    def backward(self, c: Array, out: Array | None = None) -> Array:
        """(∂z/∂x)^T c; `out`, a NumPy array (n, d), takes it if given.  # (n, d)"""
        gradient = Gradient(self._layers, self._x, self._xp, out)
        delta = self.entering("c", c)
        for k in range(len(self._layers) - 1, self._first - 1, -1):
            grads, delta = self._layers[k].backward(
                self._parameters[k], self._kept[k], delta, k > self._first, self._xp, gradient.into(k)
            )
            gradient.put(k, grads)
            if k > self._first:
                check(delta, self._shapes[k], self._x, self._layers[k], "backward")
        return gradient.array()

    def adjoint(self, c: Array) -> Adjoint:
        """The gradient at every layer's output, for `Adjoint.tangent`."""
        deltas: list[Array] = [None] * len(self._layers)
        delta = self.entering("c", c)
        for k in range(len(self._layers) - 1, self._first - 1, -1):
            deltas[k] = delta
            if k > self._first:
                delta = self._layers[k].pull(self._parameters[k], self._kept[k], delta, self._xp)
                check(delta, self._shapes[k], self._x, self._layers[k], "pull")
        return Adjoint(self, deltas)

    def tangent(self, u: Array) -> Tangent:
        """(∂z/∂x) u and what moves on the way; u is (n, d)."""
        check(u, tuple(self._x.shape), self._x, "u")
        directions = split(self._layers, u, self._xp)
        a_dot: Array | None = None
        inputs: list[Array | None] = []
        for k, (layer, p, kept, p_dot) in enumerate(
            zip(self._layers, self._parameters, self._kept, directions, strict=True)
        ):
            inputs.append(a_dot)
            a_dot = layer.tangent(p, kept, p_dot, a_dot, self._xp)
            if k >= self._first:
                check(a_dot, self._shapes[k + 1], self._x, layer, "tangent")
        return Tangent(channels_first(a_dot, self._xp), directions, inputs)

    def entering(self, name: str, c: Array) -> Array:
        """What goes into a backward pass, looked at, with channels last."""
        check(c, tuple(self.output.shape), self._x, name)
        return channels_last(c, self._xp)


def check(a: Array, needed: tuple[int, ...], x: Array, where: str | Layer, method: str = "") -> None:
    """An error unless `a` has the shape `needed` and the dtype of x: compiled steps do not look at what they read."""
    if tuple(getattr(a, "shape", (-1,))) == needed and a.dtype == x.dtype:
        return
    given = f"shape {tuple(a.shape)} of {a.dtype}" if hasattr(a, "shape") else type(a).__name__
    said = f"{where}: {given} given" if isinstance(where, str) else f"layers: {where!r}.{method} returned {given}"
    raise ValueError(f"{said}, needed {needed} of {x.dtype}")


@dataclass(frozen=True)
class Adjoint:
    """A backward pass that can be differentiated; made by `Tape.adjoint`.

    Parameters
    ----------
    Made by `Tape.adjoint`, not by hand.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> tape = model.forward(model.init(2, 0), np.ones((2, 5, 4)))
    >>> c, moved = np.ones((2, 5, 3)), tape.tangent(np.ones((2, model.dim)))
    >>> float(np.abs(tape.adjoint(c).tangent(moved, np.zeros_like(c))).max())  # linear in the parameters
    0.0
    """

    _tape: Tape
    _deltas: list[Array]  # at the output of each layer

    def tangent(self, moved: Tangent, c_dot: Array, out: Array | None = None) -> Array:
        """The derivative of the gradient along u, where c moves by c_dot; `out` as in `Tape.backward`.  # (n, d)

        Parameters
        ----------
        moved : what `Tape.tangent(u)` gave.
        c_dot : (n, N, *output_shape).
        out : takes it, if given.

        Returns
        -------
        (n, d).
        """
        tape = self._tape
        gradient = Gradient(tape._layers, tape._x, tape._xp, out)
        delta_dot = tape.entering("c_dot", c_dot)
        for k in range(len(tape._layers) - 1, tape._first - 1, -1):
            grads, delta_dot = tape._layers[k].backward_tangent(
                tape._parameters[k], tape._kept[k], moved.parameters[k], moved.inputs[k], self._deltas[k], delta_dot,
                k > tape._first, tape._xp, gradient.into(k),
            )  # fmt: skip
            gradient.put(k, grads)
            if k > tape._first:
                check(delta_dot, tape._shapes[k], tape._x, tape._layers[k], "backward_tangent")
        return gradient.array()
