"""Neural networks of n clients at once, and the passes that differentiate them.

    z = layer_L(… layer_1(X)),    the parameters of client i are row i of x (n, d)

A row holds the parameters in PyTorch's order and layout, as `torch.nn.utils.parameters_to_vector(net.parameters())`
does: layer by layer, weight before bias, each in C order.

    tape = model.forward(x, X)         z = model(x, X) for every client, with the activations
    tape.backward(c)                   (∂z/∂x)ᵀ c, the gradient of a cost with ∂cost/∂z = c                   # (n, d)
    adjoint = tape.adjoint(c)          the gradients of that cost at the output of every layer
    tangent = tape.tangent(u)          tangent.output = ż = (∂z/∂x) u                               # (n, N, ...)
    adjoint.tangent(tangent, c_dot)    the derivative of (∂z/∂x)ᵀ c along u, if c changes by c_dot            # (n, d)

A cost l(z) has c = l'(z) and c_dot = l''(z) ż; the last line is then its Hessian times u. Mixed derivatives with
anything that acts on the outputs need ż alone. A tape refers to x, which must not be modified while the tape is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._numba import njit
from hgp_ref.backend import Array, Namespace, array_namespace, computes_on_device, from_host, host_dtype, is_numpy
from hgp_ref.neural.kernels import fuse
from hgp_ref.neural.layers import (
    Conv2d,
    Flatten,
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
    """Layers one after the other.

    Parameters
    ----------
    input_shape : of one instance, (C, H, W) or (features,), as in PyTorch.
    fused : on NumPy, run a layer with parameters and the ReLU and pooling behind it as one compiled step. The numbers
        are the same up to rounding.

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
            raise ValueError("layers must contain at least one layer, got none")
        self.layers, self.shapes = layers, [self.input_shape]
        for k, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{k}] must be a layer of hgp_ref.neural, got {type(layer).__name__}")
            self.shapes.append(layer.output_shape(self.shapes[-1]))
        self.output_shape = self.shapes[-1]
        self.dim = sum(math.prod(shape) for layer in layers for shape in layer.shapes)
        if self.dim == 0:
            raise ValueError("layers must contain at least one layer with parameters, got none")
        self._fused = fuse(layers) if validation.boolean("fused", fused) else list(layers)

    def __repr__(self) -> str:
        return f"Sequential({self.input_shape}, {', '.join(map(repr, self.layers))})"

    @computes_on_device
    def forward(self, x: Array, X: Array) -> Tape:
        """The outputs of every instance as a `Tape`; x (n, d), X (n, N, *input_shape)."""
        xp = self._check(x, X)
        return Tape(self._fused if is_numpy(x) else self.layers, x, X, xp)

    @computes_on_device
    def logits(self, x: Array, X: Array) -> Array:
        """Outputs of every instance; x (n, d), X (n, N, *input_shape).  # (n, N, *output_shape)"""
        return self.forward(x, X).output

    @computes_on_device
    def init(self, n: int, seed: int = 0, *, like: Array | None = None, dtype: Any = None,
             same_for_all: bool = True) -> Array:  # fmt: skip
        """Initial parameters of n clients, U(−1/√fan_in, 1/√fan_in) for weights and biases (PyTorch's default).

        They are the same on every library: a function of (seed, i) for client i, or of seed alone with same_for_all.
        The result (n, d) has the library, device and (without `dtype`) dtype of `like`; by default NumPy and float64.
        """
        n, same = validation.integer("n", n), validation.boolean("same_for_all", same_for_all)
        return draw([(math.prod(shape), layer.fan_in) for layer in self.layers for shape in layer.shapes],
                    n, seed, like, dtype, same)  # fmt: skip

    @validation.checked(temporary=validation.Boolean())
    def floats_per_instance(self, temporary: bool = False) -> int:
        """Numbers that a tape and its adjoint store for an instance; `temporary` includes the buffers of one pass."""
        activations = sum(math.prod(shape) for shape in self.shapes)
        rows = [math.prod(shape[1:]) * layer.fan_in for layer, shape in zip(self.layers, self.shapes[1:], strict=True)]
        return 2 * activations + (2 * max(rows) if temporary else 0)

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
# K networks of one architecture: x holds their parameters one after the other, z (K, ...) their outputs. A tape of an
# ensemble holds K tapes and has the members of one.


class Ensemble:
    """`components` networks like `model`, with the methods of a `Sequential`; x holds their parameters one by one.

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

    @computes_on_device
    def forward(self, x: Array, X: Array) -> EnsembleTape:
        """As `Sequential.forward`; outputs are (n, N, K, *model.output_shape)."""
        validation.same_kind(x=x, X=X)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"x must have shape (n, {self.dim}) = (n, components * model.dim), got {tuple(x.shape)}")
        return EnsembleTape([self.model.forward(part, X) for part in self.split(x)], self, array_namespace(x))

    @computes_on_device
    def logits(self, x: Array, X: Array) -> Array:
        """Outputs of every instance.  # (n, N, K, *model.output_shape)"""
        return self.forward(x, X).output

    @computes_on_device
    def init(self, n: int, seed: int = 0, *, like: Array | None = None, dtype: Any = None,
             same_for_all: bool = True) -> Array:  # fmt: skip
        """As `Sequential.init`, component k with seed + k.  # (n, d)"""
        seed = check_seed(seed)
        options: dict[str, Any] = {"like": like, "dtype": dtype, "same_for_all": same_for_all}
        parts = [self.model.init(n, seed + k, **options) for k in range(self.components)]
        return array_namespace(parts[0]).concat(parts, axis=1)

    def floats_per_instance(self, temporary: bool = False) -> int:
        """As `Sequential.floats_per_instance`."""
        return self.components * self.model.floats_per_instance(temporary)

    def split(self, x: Array) -> list[Array]:
        """The parameters of each component.  # K arrays (n, model.dim)"""
        d = self.model.dim
        return [x[:, k * d : (k + 1) * d] for k in range(self.components)]


@dataclass(frozen=True)
class EnsembleTangent:
    """Tangents of all components."""

    output: Array  # (n, N, K, *shape)
    components: list[Tangent]


class EnsembleTape:
    """Tapes of all components."""

    def __init__(self, tapes: list[Tape], ensemble: Ensemble, xp: Namespace) -> None:
        self._tapes, self._ensemble, self._xp = tapes, ensemble, xp
        self.output = xp.stack([tape.output for tape in tapes], axis=2)

    def backward(self, c: Array, out: Array | None = None) -> Array:
        """As `Tape.backward`.  # (n, d)"""
        return self._join(lambda k, part: self._tapes[k].backward(c[:, :, k, ...], part), out)

    def adjoint(self, c: Array) -> EnsembleAdjoint:
        """As `Tape.adjoint`."""
        return EnsembleAdjoint([tape.adjoint(c[:, :, k, ...]) for k, tape in enumerate(self._tapes)], self)

    def tangent(self, u: Array) -> EnsembleTangent:
        """As `Tape.tangent`."""
        parts = self._ensemble.split(u)
        tangents = [tape.tangent(part) for tape, part in zip(self._tapes, parts, strict=True)]
        return EnsembleTangent(self._xp.stack([tangent.output for tangent in tangents], axis=2), tangents)

    def _join(self, gradient: Callable[[int, Array | None], Array], out: Array | None) -> Array:
        """The gradients of all components in one array, `out` if there is one."""
        if out is None:
            return self._xp.concat([gradient(k, None) for k in range(len(self._tapes))], axis=1)
        for k, part in enumerate(self._ensemble.split(out)):
            gradient(k, part)
        return out


class EnsembleAdjoint:
    """Adjoints of all components."""

    def __init__(self, adjoints: list[Adjoint], tape: EnsembleTape) -> None:
        self._adjoints, self._tape = adjoints, tape

    def tangent(self, tangent: EnsembleTangent, c_dot: Array, out: Array | None = None) -> Array:
        """As `Adjoint.tangent`.  # (n, d)"""
        return self._tape._join(
            lambda k, part: self._adjoints[k].tangent(tangent.components[k], c_dot[:, :, k, ...], part), out
        )


# ----------------------------------------------------- the convolutional networks of the paper (tables in its appendix)


@validation.checked(classes=validation.Integer())
def influence_cnn(classes: int = 10) -> Sequential:
    """The network of the influence experiment on images of 28 x 28: 13,750 parameters for 10 classes.

    Examples
    --------
    >>> hgp.neural.influence_cnn().dim
    13750
    """
    return Sequential(
        (1, 28, 28),
        Conv2d(1, 20, 5), ReLU(), MaxPool2d(2),
        Conv2d(20, 20, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(320, classes),
    )  # fmt: skip


@validation.checked(classes=validation.Integer())
def personalization_cnn(classes: int = 62) -> Sequential:
    """The network of the personalization experiment on images of 28 x 28: 2,278,334 parameters for 62 classes.

    The paper's table lists the layers without their ReLUs; one follows each hidden layer.

    Examples
    --------
    >>> hgp.neural.personalization_cnn().dim
    2278334
    """
    return Sequential(
        (1, 28, 28),
        Conv2d(1, 32, 5), ReLU(), MaxPool2d(2),
        Conv2d(32, 64, 5), ReLU(), MaxPool2d(2),
        Flatten(), Linear(1024, 2048), ReLU(), Linear(2048, classes),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ forward and backward passes


def split(layers: Sequence[Layer], x: Array, xp: Namespace) -> list[Parameters]:
    """Rows of x as the parameters of each layer, in order; views if the library has them."""
    parameters: list[Parameters] = []
    start = 0
    for layer in layers:
        parameters.append([])
        for shape in layer.shapes:
            size = math.prod(shape)
            parameters[-1].append(xp.reshape(x[:, start : start + size], (x.shape[0], *shape)))
            start += size
    return parameters


class Gradient:
    """The gradients of all layers as one array (n, d). On NumPy it is allocated first, and layers write into it."""

    def __init__(self, layers: Sequence[Layer], x: Array, xp: Namespace, out: Array | None) -> None:
        self._xp, self._n = xp, x.shape[0]
        self._parts: list[list[Array]] = [[] for _ in layers]
        self._whole = np.empty(x.shape, dtype=x.dtype) if out is None and is_numpy(x) else out
        self._views = None if self._whole is None else split(layers, self._whole, xp)

    def into(self, k: int) -> list[Array] | None:
        """The arrays into which layer k may write."""
        return None if self._views is None else self._views[k]

    def put(self, k: int, grads: list[Array]) -> None:
        """Store the gradients of layer k."""
        if self._views is None:
            self._parts[k] = [self._xp.reshape(grad, (self._n, -1)) for grad in grads]
            return
        for view, grad in zip(self._views[k], grads, strict=True):
            if grad is not view:
                view[...] = grad

    def array(self) -> Array:
        """All gradients.  # (n, d)"""
        if self._whole is not None:
            return self._whole
        return self._xp.concat([part for parts in self._parts for part in parts], axis=1)


@dataclass(frozen=True)
class Tangent:
    """Derivatives of all activations along u; made by `Tape.tangent`.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> tape = model.forward(model.init(2, 0), np.ones((2, 5, 4)))
    >>> tape.tangent(np.ones((2, model.dim))).output[0, 0]  # four weights and a bias
    array([5., 5., 5.])
    """

    output: Array  # ż of the last layer, (n, N, *output_shape)
    parameters: list[Parameters]  # u, layer by layer
    inputs: list[Array | None]  # ȧ of each layer, None if it is zero


class Tape:
    """A forward pass that can be differentiated; made by `Sequential.forward`.

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
        self._saved: list[Any] = []  # what each layer saved for its other passes
        self._first = next((k for k, layer in enumerate(layers) if layer.shapes), len(layers))  # layer with parameters
        a, shape = channels_last(X, xp), tuple(X.shape[2:])
        self._shapes = [tuple(a.shape)]  # of the input of each layer and of the last output
        for layer, p in zip(layers, self._parameters, strict=True):
            a, saved = layer.forward(p, a, xp)
            shape = layer.output_shape(shape)
            self._shapes.append((*X.shape[:2], *shape[1:], shape[0]))
            check(a, self._shapes[-1], x, layer, "forward")
            self._saved.append(saved)
        self.output = channels_first(a, xp)  # (n, N, *output_shape)

    def backward(self, c: Array, out: Array | None = None) -> Array:
        """(∂z/∂x)ᵀ c; `out`, a NumPy array (n, d), receives the result if there is one.  # (n, d)"""
        gradient = Gradient(self._layers, self._x, self._xp, out)
        delta = self.checked_cotangent("c", c)
        for k in range(len(self._layers) - 1, self._first - 1, -1):
            grads, delta = self._layers[k].backward(
                self._parameters[k], self._saved[k], delta, k > self._first, self._xp, gradient.into(k)
            )
            gradient.put(k, grads)
            if k > self._first:
                check(delta, self._shapes[k], self._x, self._layers[k], "backward")
        return gradient.array()

    def adjoint(self, c: Array) -> Adjoint:
        """The gradient at every layer's output, for `Adjoint.tangent`."""
        deltas: list[Array] = [None] * len(self._layers)
        delta = self.checked_cotangent("c", c)
        for k in range(len(self._layers) - 1, self._first - 1, -1):
            deltas[k] = delta
            if k > self._first:
                delta = self._layers[k].pull(self._parameters[k], self._saved[k], delta, self._xp)
                check(delta, self._shapes[k], self._x, self._layers[k], "pull")
        return Adjoint(self, deltas)

    def tangent(self, u: Array) -> Tangent:
        """The derivatives of all activations along u (n, d)."""
        check(u, tuple(self._x.shape), self._x, "u")
        directions = split(self._layers, u, self._xp)
        a_dot: Array | None = None
        inputs: list[Array | None] = []
        for k, layer in enumerate(self._layers):
            inputs.append(a_dot)
            a_dot = layer.tangent(self._parameters[k], self._saved[k], directions[k], a_dot, self._xp)
            if k >= self._first:
                check(a_dot, self._shapes[k + 1], self._x, layer, "tangent")
        return Tangent(channels_first(a_dot, self._xp), directions, inputs)

    def checked_cotangent(self, name: str, c: Array) -> Array:
        """The argument of a backward pass, with channels last."""
        check(c, tuple(self.output.shape), self._x, name)
        return channels_last(c, self._xp)


def check(a: Array, shape: tuple[int, ...], x: Array, where: str | Layer, method: str = "") -> None:
    """ValueError unless `a` has this shape and the dtype of x. Compiled loops do not check what they read."""
    if tuple(getattr(a, "shape", (-1,))) == shape and a.dtype == x.dtype:
        return
    received = f"shape {tuple(a.shape)} of {a.dtype}" if hasattr(a, "shape") else type(a).__name__
    subject = f"{where} must have" if isinstance(where, str) else f"layers: {where!r}.{method} must return"
    raise ValueError(f"{subject} shape {shape} of {x.dtype}, got {received}")


@dataclass(frozen=True)
class Adjoint:
    """A backward pass that can be differentiated; made by `Tape.adjoint`.

    Examples
    --------
    >>> model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    >>> tape = model.forward(model.init(2, 0), np.ones((2, 5, 4)))
    >>> c, tangent = np.ones((2, 5, 3)), tape.tangent(np.ones((2, model.dim)))
    >>> float(np.abs(tape.adjoint(c).tangent(tangent, np.zeros_like(c))).max())  # z is linear in the parameters
    0.0
    """

    _tape: Tape
    _deltas: list[Array]  # at the output of each layer

    def tangent(self, tangent: Tangent, c_dot: Array, out: Array | None = None) -> Array:
        """The derivative of (∂z/∂x)ᵀ c along u, if c changes by c_dot; `out` as in `Tape.backward`.  # (n, d)"""
        tape = self._tape
        gradient = Gradient(tape._layers, tape._x, tape._xp, out)
        delta_dot = tape.checked_cotangent("c_dot", c_dot)
        for k in range(len(tape._layers) - 1, tape._first - 1, -1):
            grads, delta_dot = tape._layers[k].backward_tangent(
                tape._parameters[k], tape._saved[k], tangent.parameters[k], tangent.inputs[k],
                self._deltas[k], delta_dot, k > tape._first, tape._xp, gradient.into(k),
            )  # fmt: skip
            gradient.put(k, grads)
            if k > tape._first:
                check(delta_dot, tape._shapes[k], tape._x, tape._layers[k], "backward_tangent")
        return gradient.array()


# --------------------------------------------------------------------------------------------------- initial parameters
#
# Parameter j of client i is U(−b_j, b_j), b_j = 1/√fan_in. This is PyTorch's default for Linear and Conv2d (Kaiming's
# uniform distribution with a = √5, and the same bound for the bias). It is computed on the host, so that every library
# and device has the same numbers: (2 (w + ½)/2³² − 1) b in float64, rounded to the dtype, with the j-th 32-bit output w
# of Philox4x32-10 for (seed, i).


def draw(parts: list[tuple[int, int]], n: int, seed: int, like: Array | None, dtype: Any, same: bool) -> Array:
    """Parameters of n clients; `parts` lists (size, fan_in) of each parameter.  # (n, d)"""
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
        bits = philox4x32(block, client, c2, c3, k0, k1)
        for w in range(4):
            out[4 * block + w] = (bits[w] + 0.5) / 2.0**31 - 1.0
