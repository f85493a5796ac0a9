"""Neural networks of n clients at once, and the passes that differentiate them.

    z = layer_L(… layer_1(X)),    the parameters of client i are row i of x (n, d)

A row holds the parameters in PyTorch's order and layout, as `torch.nn.utils.parameters_to_vector(net.parameters())`
does: layer by layer, weight before bias, each in C order.

    tape = model.forward(x, X)         z = model(x, X) for every client; keeps activations
    tape.backward(c)                   (∂z/∂x)ᵀ c, the gradient of a cost with ∂cost/∂z = c                   # (n, d)
    adjoint = tape.adjoint(c)          the gradient of the cost at every layer's output, kept
    moved = tape.tangent(u)            moved.output = (∂z/∂x) u                                     # (n, N, ...)
    adjoint.tangent(moved, c_dot)      the derivative of (∂z/∂x)ᵀ c along u, if c changes by c_dot            # (n, d)

A cost l(z) has c = l'(z) and c_dot = l''(z) moved.output; the last line is then its Hessian times u. Mixed derivatives
with anything that acts on the outputs need moved.output alone. A tape refers to x, which must not be modified while the
tape is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._numba import njit
from hgp_ref.backend import Array, Namespace, array_namespace, from_host, host_dtype, is_numpy
from hgp_ref.neural.kernels import fuse
from hgp_ref.neural.layers import (
    Conv2d,
    Flatten,
    Into,
    Layer,
    Linear,
    MaxPool2d,
    Parameters,
    ReLU,
    Shape,
    channels_first,
    channels_last,
)
from hgp_ref.philox import INITIAL_PARAMETERS, check_seed, key, philox4x32, step_counter
from hgp_ref.validation import check_memory


class Sequential:
    """Layers one after the other. input_shape: of one instance, (C, H, W) or (features,), as in PyTorch.

    On NumPy a layer with parameters, the ReLU and the pooling behind it run as one compiled step; fused=False keeps the
    array-API text there too. Both give the same numbers up to rounding.

    Parameters
    ----------
    input_shape : tuple
        Of one instance, (C, H, W) or (features,).
    *layers : Layer
        One after the other.
    fused : bool
        Whether NumPy runs compiled steps.

    Examples
    --------
    >>> from hgp_ref.neural import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
    >>> model = Sequential((1, 8, 8), Conv2d(1, 4, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(36, 10))
    >>> model.dim
    410
    """

    def __init__(self, input_shape: Any, *layers: Layer, fused: bool = True) -> None:
        self.input_shape = _check_shape(input_shape)
        if not layers:
            raise ValueError("layers must be at least one, got none")
        self.layers, self.shapes = layers, [self.input_shape]
        for k, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{k}] must be a layer of hgp_ref.neural, got {type(layer).__name__}")
            self.shapes.append(layer.output_shape(self.shapes[-1]))
        self.output_shape = self.shapes[-1]
        self.dim = sum(math.prod(shape) for layer in layers for shape in layer.shapes)
        if self.dim == 0:
            raise ValueError("layers must have parameters, got none with parameters")
        self._fused = fuse(layers) if validation.boolean("fused", fused) else list(layers)

    def __repr__(self) -> str:
        return f"Sequential({self.input_shape}, {', '.join(map(repr, self.layers))})"

    def forward(self, x: Array, X: Array) -> Tape:
        """Outputs of every instance, with what their derivatives need; x (n, d), X (n, N, *input_shape)."""
        xp = self._check(x, X)
        return Tape(self._fused if is_numpy(x) else self.layers, x, X, xp)

    def logits(self, x: Array, X: Array) -> Array:
        """Outputs of every instance; x (n, d), X (n, N, *input_shape).  # (n, N, *output_shape)"""
        return self.forward(x, X).output

    def init(self, n: int, seed: int = 0, *, like: Array | None = None, dtype: Any = None,
             same_for_all: bool = True) -> Array:  # fmt: skip
        """Initial parameters of n clients, U(-1/√fan_in, 1/√fan_in) for weights and biases (PyTorch's default).

        Numbers of client i are a pure function of (seed, i), and of (seed, 0) for all with same_for_all: the same on
        every library. like: an array whose library, device and (unless `dtype` is given) dtype the result has;
        without it, NumPy and float64.  # (n, d)
        """
        n, same = validation.integer("n", n), validation.boolean("same_for_all", same_for_all)
        return draw([(math.prod(shape), layer.fan_in) for layer in self.layers for shape in layer.shapes],
                    n, seed, like, dtype, same)  # fmt: skip

    def numbers(self, kept: bool = True) -> int:
        """Numbers per instance that a tape and its adjoint keep or, with kept=False, that one pass has at hand."""
        kept = validation.boolean("kept", kept)
        steps = sum(math.prod(shape) for shape in self.shapes)
        rows = [math.prod(shape[1:]) * layer.fan_in for layer, shape in zip(self.layers, self.shapes[1:], strict=True)]
        return 2 * steps if kept else 2 * steps + 2 * max(rows)

    def _check(self, x: Array, X: Array) -> Namespace:
        validation.same_kind(x=x, X=X)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"x must have shape (n, {self.dim}) = (n, model.dim), got {tuple(x.shape)}")
        if X.ndim != 2 + len(self.input_shape) or tuple(X.shape[2:]) != self.input_shape or X.shape[0] != x.shape[0]:
            shape = ", ".join(map(str, (x.shape[0], "N", *self.input_shape)))
            raise ValueError(f"X must have shape ({shape}) = (n, N, *model.input_shape), got {tuple(X.shape)}")
        if X.shape[1] < 1:
            raise ValueError("X must have at least one instance, got none")
        return array_namespace(x)


def _check_shape(shape: Any) -> Shape:
    if not isinstance(shape, tuple | list) or len(shape) not in (1, 3):
        raise ValueError(f"input_shape must be (features,) or (C, H, W), got {shape!r}")
    return tuple(validation.integer(f"input_shape[{k}]", size) for k, size in enumerate(shape))


# ------------------------------------------------------------------------------------------------------------ ensembles
#
# K networks of one architecture: x holds their parameters one after the other, z (K, ...) their outputs. Every
# derivative is that of each network by itself, so that a tape is K tapes.


class Ensemble:
    """`components` networks like `model`; used as a `Sequential` is.

    Parameters
    ----------
    model : Sequential
        The architecture of every component.
    components : int
        How many; their parameters stand one after the other in x.

    Examples
    --------
    >>> hgp.neural.Ensemble(hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3)), 2).dim
    30
    """

    def __init__(self, model: Sequential, components: int) -> None:
        validation.instance("model", model, Sequential)
        self.model, self.components = model, validation.integer("components", components, 1, validation.LONGEST)
        self.input_shape, self.output_shape = model.input_shape, (self.components, *model.output_shape)
        self.dim = self.components * model.dim

    def __repr__(self) -> str:
        return f"Ensemble({self.model!r}, {self.components})"

    def forward(self, x: Array, X: Array) -> EnsembleTape:
        """As `Sequential.forward`; outputs are (n, N, K, *model.output_shape)."""
        validation.same_kind(x=x, X=X)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"x must have shape (n, {self.dim}) = (n, components * model.dim), got {tuple(x.shape)}")
        return EnsembleTape([self.model.forward(part, X) for part in self.split(x)], self, array_namespace(x))

    def logits(self, x: Array, X: Array) -> Array:
        """Outputs of every instance.  # (n, N, K, *model.output_shape)"""
        return self.forward(x, X).output

    def init(self, n: int, seed: int = 0, *, like: Array | None = None, dtype: Any = None,
             same_for_all: bool = True) -> Array:  # fmt: skip
        """As `Sequential.init`, component k with seed + k.  # (n, d)"""
        seed = check_seed(seed)
        options: dict[str, Any] = {"like": like, "dtype": dtype, "same_for_all": same_for_all}
        parts = [self.model.init(n, seed + k, **options) for k in range(self.components)]
        return array_namespace(parts[0]).concat(parts, axis=1)

    def numbers(self, kept: bool = True) -> int:
        """As `Sequential.numbers`."""
        return self.components * self.model.numbers(kept)

    def places(self, out: Array | None) -> list[Array | None]:
        """Where each component's gradient goes in `out`, if there is one."""
        return [None] * self.components if out is None else list(self.split(out))

    def split(self, x: Array) -> list[Array]:
        """The parameters of each component.  # K arrays (n, model.dim)"""
        d = self.model.dim
        return [x[:, k * d : (k + 1) * d] for k in range(self.components)]


@dataclass(frozen=True)
class EnsembleTangent:
    """Tangents of all components."""

    output: Array  # (n, N, K, *shape)
    each: list[Tangent]


class EnsembleTape:
    """Tapes of all components, with the members of one `Tape`."""

    def __init__(self, tapes: list[Tape], ensemble: Ensemble, xp: Namespace) -> None:
        self._tapes, self._ensemble, self._xp = tapes, ensemble, xp
        self.output = xp.stack([tape.output for tape in tapes], axis=2)

    def backward(self, c: Array, out: Array | None = None) -> Array:
        """As `Tape.backward`.  # (n, d)"""
        places = self._ensemble.places(out)
        parts = [tape.backward(c[:, :, k, ...], places[k]) for k, tape in enumerate(self._tapes)]
        return self._xp.concat(parts, axis=1) if out is None else out

    def adjoint(self, c: Array) -> EnsembleAdjoint:
        """As `Tape.adjoint`."""
        each = [tape.adjoint(c[:, :, k, ...]) for k, tape in enumerate(self._tapes)]
        return EnsembleAdjoint(each, self._ensemble, self._xp)

    def tangent(self, u: Array) -> EnsembleTangent:
        """As `Tape.tangent`."""
        parts = self._ensemble.split(u)
        each = [tape.tangent(part) for tape, part in zip(self._tapes, parts, strict=True)]
        return EnsembleTangent(self._xp.stack([moved.output for moved in each], axis=2), each)


class EnsembleAdjoint:
    """Adjoints of all components, with the members of one `Adjoint`."""

    def __init__(self, each: list[Adjoint], ensemble: Ensemble, xp: Namespace) -> None:
        self._each, self._ensemble, self._xp = each, ensemble, xp

    def tangent(self, moved: EnsembleTangent, c_dot: Array, out: Array | None = None) -> Array:
        """As `Adjoint.tangent`.  # (n, d)"""
        places = self._ensemble.places(out)
        parts = [adjoint.tangent(moved.each[k], c_dot[:, :, k, ...], places[k]) for k, adjoint in enumerate(self._each)]
        return self._xp.concat(parts, axis=1) if out is None else out


# ----------------------------------------------------- the convolutional networks of the paper (tables in its appendix)


def influence_cnn(classes: int = 10) -> Sequential:
    """The network of the influence experiment on images of 28 x 28: 13,750 parameters for 10 classes.

    Examples
    --------
    >>> hgp.neural.influence_cnn().dim
    13750
    """
    classes = validation.integer("classes", classes)
    return Sequential(
        (1, 28, 28),
        Conv2d(1, 20, 5), ReLU(), MaxPool2d(2),
        Conv2d(20, 20, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(320, classes),
    )  # fmt: skip


def personalization_cnn(classes: int = 62) -> Sequential:
    """The network of the personalization experiment on images of 28 x 28: 2,278,334 parameters for 62 classes.

    The paper's table lists the layers without their ReLUs; one follows each hidden layer.

    Examples
    --------
    >>> hgp.neural.personalization_cnn().dim
    2278334
    """
    classes = validation.integer("classes", classes)
    return Sequential(
        (1, 28, 28),
        Conv2d(1, 32, 5), ReLU(), MaxPool2d(2),
        Conv2d(32, 64, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(1024, 2048), ReLU(), Linear(2048, classes),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ forward and backward passes


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


def check(a: Array, shape: tuple[int, ...], x: Array, where: str | Layer, method: str = "") -> None:
    """An error unless `a` has this shape and the dtype of x: compiled steps do not look at what they read."""
    if tuple(getattr(a, "shape", (-1,))) == shape and a.dtype == x.dtype:
        return
    found = f"shape {tuple(a.shape)} of {a.dtype}" if hasattr(a, "shape") else type(a).__name__
    subject = f"{where} must have" if isinstance(where, str) else f"layers: {where!r}.{method} must return"
    raise ValueError(f"{subject} shape {shape} of {x.dtype}, got {found}")


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
        """The derivative of the gradient along u, where c moves by c_dot; `out` as in `Tape.backward`.  # (n, d)"""
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


# --------------------------------------------------------------------------------------------------- initial parameters
#
# Parameter j of client i is U(−b_j, b_j), b_j = 1/√fan_in, from word j of (seed, i). This is PyTorch's default for its
# Linear and Conv2d (Kaiming's uniform with a = √5, and the same bound for the bias). Words are Philox4x32-10's on the
# host, so that every library and device gets the same numbers: (2 (w + ½)/2³² − 1) b in float64, rounded to the dtype.


def draw(parts: list[tuple[int, int]], n: int, seed: int, like: Array | None, dtype: Any, same: bool) -> Array:
    """Parameters of n clients; `parts` lists how many numbers share a fan-in, in order.  # (n, d)"""
    if like is not None:
        validation.array("like", like)
    if dtype is None:
        dtype = np.dtype(np.float64) if like is None else host_dtype(like)
    dtype = validation.real_floating("dtype", dtype)
    bound = np.concatenate([np.full(size, 1 / math.sqrt(fan_in)) for size, fan_in in parts])
    check_memory(f"n={n}", n * len(bound))
    host = np.empty((n, len(bound)), dtype=dtype)
    for i in range(1 if same else n):
        unit = np.empty(-(-len(bound) // 4) * 4)
        _uniform(unit, i, INITIAL_PARAMETERS, *key(seed))
        host[i] = unit[: len(bound)] * bound
    if same:
        host[1:] = host[0]
    return host if like is None else from_host(host, like=like)


@njit(cache=True, nogil=True)
def _uniform(out, client, stream, k0, k1):
    """Independent numbers, uniform on (-1, 1)."""
    c2, c3 = step_counter(0, stream)
    for block in range(out.size // 4):
        words = philox4x32(block, client, c2, c3, k0, k1)
        for w in range(4):
            out[4 * block + w] = (words[w] + 0.5) / 2.0**31 - 1.0
