"""Layers of neural networks, for n clients with parameters of their own at once.

A layer is a map a ↦ z(p, a) with its derivatives. A dot is the derivative along a direction u of all parameters
(Pearlmutter's R-operator [1]). With δ = ∂cost/∂z and δ' = ∂cost/∂a, four passes give gradients and Hessian-vector
products:

    forward             z = z(p, a)
    backward            d_p = (∂z/∂p)ᵀ δ,    δ' = (∂z/∂a)ᵀ δ          (pull: δ' alone)
    tangent             ż = (∂z/∂p) ṗ + (∂z/∂a) ȧ
    backward_tangent    ḋ_p and δ̇', the derivatives of the two results of `backward` along (ṗ, ȧ, δ̇)

Every array has the client axis first, then instances: activations are (n, N, *shape), parameters (n, *shape). Between
layers, images have their channels last, (n, N, H, W, C), so that windows are rows of matrices. Shapes are written as in
PyTorch, (C, H, W), and parameters have its layout; `Sequential` transposes images on their way in and out.

A layer must not modify its arguments. It must not mix clients, and no sum over instances may depend on the number of
clients: on NumPy the results of a client are then the same, bit for bit, whichever clients share its array. (PyTorch
rounds batched products differently for different memory alignments, so there they agree up to rounding.)

[1] B. A. Pearlmutter. Fast exact multiplication by the Hessian. Neural Computation 6(1), 1994.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from hgp_ref import validation
from hgp_ref._kernels import cuda
from hgp_ref.backend import Array, Namespace, device

Shape = tuple[int, ...]
Parameters = list[Array]  # of one layer, each (n, *shape)
Gradients = tuple[list[Array], Array | None]  # d_p and δ'


class Layer(ABC):
    """One layer. Layers with parameters define `shapes` and `fan_in`.

    `saved` is what `forward` returned besides z. `onward` says whether δ' is needed. A layer may write d_p into the
    arrays `into` and return these.

    Examples
    --------
    >>> isinstance(hgp.neural.Linear(4, 3), hgp.neural.Layer)
    True
    """

    shapes: tuple[Shape, ...] = ()  # of the parameters, weight first
    fan_in: int = 0  # inputs of one output, for the initialisation

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of an output for an input of this shape; ValueError if the layer cannot take it."""

    @abstractmethod
    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Any]:
        """z, and what the other passes need."""

    @abstractmethod
    def backward(self, p: Parameters, saved: Any, delta: Array, onward: bool, xp: Namespace,
                 into: list[Array] | None = None) -> Gradients:  # fmt: skip
        """d_p and δ'."""

    @abstractmethod
    def pull(self, p: Parameters, saved: Any, delta: Array, xp: Namespace) -> Array:
        """δ'."""

    @abstractmethod
    def tangent(self, p: Parameters, saved: Any, p_dot: Parameters, a_dot: Array | None, xp: Namespace) -> Array | None:
        """ż; None if it is zero. ȧ is None if it is zero."""

    @abstractmethod
    def backward_tangent(self, p: Parameters, saved: Any, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: list[Array] | None = None) -> Gradients:  # fmt: skip
        """ḋ_p and δ̇'."""


# -------------------------------------------------------------------------------------------------- layers with weights


class Affine(Layer):
    """z = A Wᵀ + b, with the inputs of each output as the rows of A; Linear and Conv2d differ in what a row is.

    d_W = δᵀ A,    d_b = 1ᵀ δ,    δ' = δ W
    ż   = A Ẇᵀ + Ȧ Wᵀ + ḃ
    ḋ_W = δ̇ᵀ A + δᵀ Ȧ,    ḋ_b = 1ᵀ δ̇,    δ̇' = δ̇ W + δ Ẇ
    """

    @abstractmethod
    def rows(self, a: Array, xp: Namespace) -> Array:
        """A.  # (n, rows, fan_in)"""

    @abstractmethod
    def rows_adjoint(self, rows: Array, a: Array, xp: Namespace) -> Array:
        """The adjoint of `rows`, for inputs of the shape of a.  # like a"""

    @abstractmethod
    def matrix(self, weight: Array, xp: Namespace) -> Array:
        """The parameter as W.  # (n, out, fan_in)"""

    @abstractmethod
    def unmatrix(self, matrix: Array, xp: Namespace) -> Array:
        """The inverse of `matrix`."""

    @abstractmethod
    def image(self, z: Array, a: Array, xp: Namespace) -> Array:
        """Rows of outputs (n, rows, out) in the form of activations, for the input a."""

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Array]:
        z = times_transposed(self.rows(a, xp), self.matrix(p[0], xp), xp) + p[1][:, None, :]
        return self.image(z, a, xp), a

    def backward(self, p: Parameters, saved: Array, delta: Array, onward: bool, xp: Namespace,
                 into: list[Array] | None = None) -> Gradients:  # fmt: skip
        flat = _flat(delta, xp)
        grads = [self.unmatrix(transposed_times(flat, self.rows(saved, xp), xp), xp), xp.sum(flat, axis=1)]
        return grads, self.pull(p, saved, delta, xp) if onward else None

    def pull(self, p: Parameters, saved: Array, delta: Array, xp: Namespace) -> Array:
        return self.rows_adjoint(product(_flat(delta, xp), self.matrix(p[0], xp), xp), saved, xp)

    def tangent(self, p: Parameters, saved: Array, p_dot: Parameters, a_dot: Array | None, xp: Namespace) -> Array:
        z_dot = times_transposed(self.rows(saved, xp), self.matrix(p_dot[0], xp), xp) + p_dot[1][:, None, :]
        if a_dot is not None:
            z_dot = times_transposed(self.rows(a_dot, xp), self.matrix(p[0], xp), xp, z_dot)
        return self.image(z_dot, saved, xp)

    def backward_tangent(self, p: Parameters, saved: Array, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: list[Array] | None = None) -> Gradients:  # fmt: skip
        flat, flat_dot = _flat(delta, xp), _flat(delta_dot, xp)
        weight = transposed_times(flat_dot, self.rows(saved, xp), xp)
        if a_dot is not None:
            weight = transposed_times(flat, self.rows(a_dot, xp), xp, weight)
        grads = [self.unmatrix(weight, xp), xp.sum(flat_dot, axis=1)]
        if not onward:
            return grads, None
        rows = product(flat_dot, self.matrix(p[0], xp), xp)
        rows = product(flat, self.matrix(p_dot[0], xp), xp, rows)
        return grads, self.rows_adjoint(rows, saved, xp)


def product(a: Array, b: Array, xp: Namespace, onto: Array | None = None) -> Array:
    """a_i b_i for every client, or onto_i + a_i b_i, where `onto` may be overwritten.  # (n, p, r)"""
    if cuda.applies(a):
        return cuda.matmul(a, b, onto)
    return xp.matmul(a, b) if onto is None else onto + xp.matmul(a, b)


def times_transposed(a: Array, weight: Array, xp: Namespace, onto: Array | None = None) -> Array:
    """a_i W_iᵀ for every client, plus `onto`.  # (n, rows, out)"""
    return product(a, xp.matrix_transpose(weight), xp, onto)


def transposed_times(delta: Array, a: Array, xp: Namespace, onto: Array | None = None) -> Array:
    """δ_iᵀ a_i for every client, plus `onto`.  # (n, out, in)"""
    return product(xp.matrix_transpose(delta), a, xp, onto)


def _flat(delta: Array, xp: Namespace) -> Array:
    """Images as rows of pixels.  # (n, N Ho Wo, out)"""
    return delta if delta.ndim == 3 else xp.reshape(delta, (delta.shape[0], -1, delta.shape[-1]))


@validation.checked(inputs=validation.Integer(1), outputs=validation.Integer(1))
class Linear(Affine):
    """Each of `outputs` numbers is a weighted sum of all `inputs` plus a bias.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3)).dim
    15
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.shapes = ((self.outputs, self.inputs), (self.outputs,))
        self.fan_in = self.inputs

    def __repr__(self) -> str:
        return f"Linear({self.inputs}, {self.outputs})"

    def output_shape(self, shape: Shape) -> Shape:
        if shape != (self.inputs,):
            raise ValueError(
                f"{self!r}: the input must have shape ({self.inputs},), got {shape}; Flatten() makes vectors"
            )
        return (self.outputs,)

    def rows(self, a: Array, xp: Namespace) -> Array:
        return a

    def rows_adjoint(self, rows: Array, a: Array, xp: Namespace) -> Array:
        return rows

    def matrix(self, weight: Array, xp: Namespace) -> Array:
        return weight

    def unmatrix(self, matrix: Array, xp: Namespace) -> Array:
        return matrix

    def image(self, z: Array, a: Array, xp: Namespace) -> Array:
        return z


@validation.checked(inputs=validation.Integer(1), outputs=validation.Integer(1))
class Conv2d(Affine):
    """Convolution: z[h, w, o] = b_o + Σ_{i, j, c} W[o, c, i, j] a[h stride + i, w stride + j, c].

    With the windows of an image as the rows of a matrix this is `Linear`.

    Parameters
    ----------
    inputs, outputs : channels.
    kernel, stride : an integer, or (height, width).
    padding : "valid" (or 0) for none; "same" for as many zeros around the image as keep its size, one more below and
        to the right if their number is odd, as in PyTorch. Other numbers are not supported.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 8, 8), hgp.neural.Conv2d(1, 4, 3)).dim
    40
    """

    def __init__(self, inputs: int, outputs: int, kernel: Any, stride: Any = 1, padding: Any = "valid") -> None:
        self.inputs, self.outputs = inputs, outputs
        self.kernel, self.stride = _pair("kernel", kernel), _pair("stride", stride)
        none = isinstance(padding, int) and not isinstance(padding, bool) and padding == 0
        self.padding = validation.choice("padding", "valid" if none else padding, ("valid", "same"))
        if self.padding == "same" and self.stride != (1, 1):
            raise ValueError(f"stride must be 1 with padding='same' (as in PyTorch), got {stride!r}")
        self.shapes = ((self.outputs, self.inputs, *self.kernel), (self.outputs,))
        self.fan_in = self.inputs * self.kernel[0] * self.kernel[1]

    def __repr__(self) -> str:
        return f"Conv2d({self.inputs}, {self.outputs}, {self.kernel}, stride={self.stride}, padding={self.padding!r})"

    def output_shape(self, shape: Shape) -> Shape:
        channels, windows = _image_windows(self, shape)
        if channels != self.inputs:
            raise ValueError(f"{self!r}: the input must have {self.inputs} channels, got {channels}")
        return (self.outputs, *windows.output)

    def windows(self, height: int, width: int) -> Windows:
        """The positions of the kernel on images of height x width."""
        kh, kw = self.kernel
        total = (kh - 1, kw - 1) if self.padding == "same" else (0, 0)
        before = (total[0] // 2, total[1] // 2)
        after = (total[0] - before[0], total[1] - before[1])
        return Windows(self.kernel, self.stride, (height, width), before, after)

    def rows(self, a: Array, xp: Namespace) -> Array:
        """Every window of every instance.  # (n, N Ho Wo, kh kw C)"""
        windows = self.windows(*a.shape[2:4])
        stacked = cuda.gather_windows(a, windows) if cuda.applies(a) else xp.concat(windows.gather(a, xp), axis=-1)
        return xp.reshape(stacked, (a.shape[0], -1, self.fan_in))

    def rows_adjoint(self, rows: Array, a: Array, xp: Namespace) -> Array:
        windows, C = self.windows(*a.shape[2:4]), self.inputs
        full = xp.reshape(rows, (*a.shape[:2], *windows.output, self.fan_in))
        return windows.scatter([full[..., k * C : (k + 1) * C] for k in range(self.fan_in // C)], xp)

    def matrix(self, weight: Array, xp: Namespace) -> Array:
        """(n, O, C, kh, kw) as (n, O, kh kw C), in the order of the entries of a window."""
        channels_last = xp.permute_dims(weight, (0, 1, 3, 4, 2))
        return xp.reshape(channels_last, (weight.shape[0], self.outputs, self.fan_in))

    def unmatrix(self, matrix: Array, xp: Namespace) -> Array:
        full = xp.reshape(matrix, (matrix.shape[0], self.outputs, *self.kernel, self.inputs))
        return xp.permute_dims(full, (0, 1, 4, 2, 3))

    def image(self, z: Array, a: Array, xp: Namespace) -> Array:
        return xp.reshape(z, (*a.shape[:2], *self.windows(*a.shape[2:4]).output, self.outputs))


def _pair(name: str, value: Any) -> tuple[int, int]:
    """An integer >= 1 for both directions, or two of them: (height, width)."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise ValueError(f"{name} must be an integer >= 1 or two of them (height, width), got {value!r}")
        return validation.integer(f"{name}[0]", value[0]), validation.integer(f"{name}[1]", value[1])
    both = validation.integer(name, value)
    return both, both


def _image_windows(layer: Conv2d | Pool, shape: Shape) -> tuple[int, Windows]:
    """The channels of images of this shape, and the windows of `layer` on them, at least one."""
    if len(shape) != 3:
        raise ValueError(f"{layer!r}: the input must have shape (C, H, W), got {shape}")
    channels, height, width = shape
    windows = layer.windows(height, width)
    if min(windows.output) < 1:
        raise ValueError(f"{layer!r}: images must be at least as large as the kernel, got {height} x {width}")
    return channels, windows


# --------------------------------------------------------------------------------------------------- windows of images


@dataclass(frozen=True)
class Windows:
    """Windows of kh x kw pixels that slide in steps of `stride` over images (n, N, H, W, C).

    Piece (i, j) holds pixel (i, j) of every window: piece_ij[h, w] = image[h stride + i, w stride + j]. `scatter` is
    the adjoint of `gather`: ⟨gather(a), pieces⟩ = ⟨a, scatter(pieces)⟩. Both use operations of the array API only.
    """

    size: tuple[int, int]
    stride: tuple[int, int]
    image: tuple[int, int]  # H, W without padding
    before: tuple[int, int] = (0, 0)  # zeros above and to the left
    after: tuple[int, int] = (0, 0)  # zeros below and to the right

    @property
    def padded(self) -> tuple[int, int]:
        (h, w), (top, left), (bottom, right) = self.image, self.before, self.after
        return h + top + bottom, w + left + right

    @property
    def output(self) -> tuple[int, int]:
        """How many windows fit: rows and columns."""
        (h, w), (kh, kw), (sh, sw) = self.padded, self.size, self.stride
        return (h - kh) // sh + 1, (w - kw) // sw + 1

    def gather(self, a: Array, xp: Namespace) -> list[Array]:
        """The pieces in row-major order.  # kh kw arrays (n, N, Ho, Wo, C)"""
        for axis in (0, 1):
            a = _pad(a, axis + 2, self.before[axis], self.after[axis], xp)
        (kh, kw), (sh, sw), (ho, wo) = self.size, self.stride, self.output
        return [
            a[:, :, i : i + (ho - 1) * sh + 1 : sh, j : j + (wo - 1) * sw + 1 : sw, :]
            for i in range(kh)
            for j in range(kw)
        ]

    def scatter(self, pieces: list[Array], xp: Namespace) -> Array:
        """The sum of all pieces, each at its place in the image.  # (n, N, H, W, C)"""
        kh, kw = self.size
        total: Array = 0
        for i in range(kh):
            row: Array = 0
            for j in range(kw):
                row = row + self._place(pieces[i * kw + j], 1, j, xp)
            total = total + self._place(row, 0, i, xp)
        (top, left), (h, w) = self.before, self.image
        return total[:, :, top : top + h, left : left + w, :]

    def _place(self, piece: Array, axis: int, offset: int, xp: Namespace) -> Array:
        """Dilate an axis by the stride and set it at `offset` in the padded length."""
        dilated = _dilate(piece, axis + 2, self.stride[axis], xp)
        return _pad(dilated, axis + 2, offset, self.padded[axis] - offset - dilated.shape[axis + 2], xp)


def _pad(a: Array, axis: int, before: int, after: int, xp: Namespace) -> Array:
    """`a` with zeros before and after along `axis`."""

    def zeros(count: int) -> list[Array]:
        shape = (*a.shape[:axis], count, *a.shape[axis + 1 :])
        return [xp.zeros(shape, dtype=a.dtype, device=device(a))] if count else []

    parts = [*zeros(before), a, *zeros(after)]
    return a if len(parts) == 1 else xp.concat(parts, axis=axis)


def _dilate(a: Array, axis: int, step: int, xp: Namespace) -> Array:
    """`step` − 1 zeros between neighbours along `axis`: length (L − 1) step + 1."""
    length = a.shape[axis]
    if step == 1 or length == 1:
        return a
    dilated = _pad(xp.expand_dims(a, axis=axis + 1), axis + 1, 0, step - 1, xp)
    dilated = xp.reshape(dilated, (*a.shape[:axis], length * step, *a.shape[axis + 1 :]))
    index = (slice(None),) * axis + (slice(0, (length - 1) * step + 1),)
    return dilated[(*index, ...)]


# ----------------------------------------------------------------------------------------------- layers without weights


class Unparametrised(Layer):
    """A layer without parameters, z = z(a). A subclass defines products with its Jacobian."""

    @abstractmethod
    def jvp(self, saved: Any, a_dot: Array, xp: Namespace) -> Array:
        """(∂z/∂a) ȧ."""

    @abstractmethod
    def vjp(self, saved: Any, delta: Array, xp: Namespace) -> Array:
        """(∂z/∂a)ᵀ δ."""

    def vjp_dot(self, saved: Any, a_dot: Array, delta: Array, xp: Namespace) -> Array | None:
        """The derivative of (∂z/∂a)ᵀ δ along ȧ; None if z is piecewise linear."""
        return None

    def backward(self, p: Parameters, saved: Any, delta: Array, onward: bool, xp: Namespace,
                 into: list[Array] | None = None) -> Gradients:  # fmt: skip
        return [], self.vjp(saved, delta, xp) if onward else None

    def pull(self, p: Parameters, saved: Any, delta: Array, xp: Namespace) -> Array:
        return self.vjp(saved, delta, xp)

    def tangent(self, p: Parameters, saved: Any, p_dot: Parameters, a_dot: Array | None, xp: Namespace) -> Array | None:
        return None if a_dot is None else self.jvp(saved, a_dot, xp)

    def backward_tangent(self, p: Parameters, saved: Any, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: list[Array] | None = None) -> Gradients:  # fmt: skip
        if not onward:
            return [], None
        first = self.vjp(saved, delta_dot, xp)
        second = None if a_dot is None else self.vjp_dot(saved, a_dot, delta, xp)
        return [], first if second is None else first + second


class Flatten(Unparametrised):
    """An image as one vector, in PyTorch's order of its entries: channel, row, column.

    Examples
    --------
    >>> hgp.neural.Sequential((2, 3, 3), hgp.neural.Flatten(), hgp.neural.Linear(18, 2)).dim
    38
    """

    def __repr__(self) -> str:
        return "Flatten()"

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Shape]:
        return self.jvp(tuple(a.shape), a, xp), tuple(a.shape)

    def jvp(self, saved: Shape, a_dot: Array, xp: Namespace) -> Array:
        return xp.reshape(channels_first(a_dot, xp), (*saved[:2], math.prod(saved[2:])))

    def vjp(self, saved: Shape, delta: Array, xp: Namespace) -> Array:
        if len(saved) != 5:
            return xp.reshape(delta, saved)
        n, N, H, W, C = saved
        return channels_last(xp.reshape(delta, (n, N, C, H, W)), xp)


def channels_first(a: Array, xp: Namespace) -> Array:
    """(n, N, H, W, C) as (n, N, C, H, W); other arrays unchanged."""
    return xp.permute_dims(a, (0, 1, 4, 2, 3)) if a.ndim == 5 else a


def channels_last(a: Array, xp: Namespace) -> Array:
    """(n, N, C, H, W) as (n, N, H, W, C); other arrays unchanged."""
    return xp.permute_dims(a, (0, 1, 3, 4, 2)) if a.ndim == 5 else a


class Pool(Unparametrised):
    """Windows reduced to one number per channel. `kernel` and `stride` (default: the kernel) are an integer or (height,
    width). Pixels that fill no window are left out."""

    def __init__(self, kernel: Any, stride: Any = None) -> None:
        self.kernel = _pair("kernel", kernel)
        self.stride = self.kernel if stride is None else _pair("stride", stride)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kernel}, stride={self.stride})"

    def output_shape(self, shape: Shape) -> Shape:
        channels, windows = _image_windows(self, shape)
        return (channels, *windows.output)

    def windows(self, height: int, width: int) -> Windows:
        """The windows on images of height x width."""
        return Windows(self.kernel, self.stride, (height, width))


class MaxPool2d(Pool):
    """The largest entry of each window. The gradient goes to the first of equal ones; NaN wins, as in PyTorch.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 4, 4), hgp.neural.MaxPool2d(2), hgp.neural.Flatten(), hgp.neural.Linear(4, 2)).dim
    10
    """

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, tuple[Windows, Array]]:
        windows = self.windows(*a.shape[2:4])
        pieces = windows.gather(a, xp)
        best, argmax = pieces[0], xp.zeros_like(pieces[0], dtype=xp.int32)
        for k, piece in enumerate(pieces[1:], 1):
            wins = (piece > best) | xp.isnan(piece)
            best, argmax = xp.where(wins, piece, best), xp.where(wins, xp.full_like(argmax, k), argmax)
        return best, (windows, argmax)

    def jvp(self, saved: tuple[Windows, Array], a_dot: Array, xp: Namespace) -> Array:
        windows, argmax = saved
        pieces = windows.gather(a_dot, xp)
        chosen = pieces[0]
        for k, piece in enumerate(pieces[1:], 1):
            chosen = xp.where(argmax == k, piece, chosen)
        return chosen

    def vjp(self, saved: tuple[Windows, Array], delta: Array, xp: Namespace) -> Array:
        windows, argmax = saved
        zero = xp.zeros_like(delta)
        size = windows.size[0] * windows.size[1]
        return windows.scatter([xp.where(argmax == k, delta, zero) for k in range(size)], xp)


class AvgPool2d(Pool):
    """The mean of each window.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 4, 4), hgp.neural.AvgPool2d(2), hgp.neural.Flatten(), hgp.neural.Linear(4, 2)).dim
    10
    """

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Windows]:
        windows = self.windows(*a.shape[2:4])
        return self.jvp(windows, a, xp), windows

    def jvp(self, saved: Windows, a_dot: Array, xp: Namespace) -> Array:
        total, *pieces = saved.gather(a_dot, xp)
        for piece in pieces:
            total = total + piece
        return total / (len(pieces) + 1)

    def vjp(self, saved: Windows, delta: Array, xp: Namespace) -> Array:
        size = saved.size[0] * saved.size[1]
        return saved.scatter([delta / size] * size, xp)


# --------------------------------------- activations: z = σ(a),  ż = σ'(a) ȧ,  δ' = σ'(a) δ,  δ̇' = σ'(a) δ̇ + σ''(a) ȧ δ


class Activation(Unparametrised):
    """A function of each number. Its Jacobian is diagonal, so that jvp and vjp are the same."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def vjp(self, saved: Any, delta: Array, xp: Namespace) -> Array:
        return self.jvp(saved, delta, xp)


class ReLU(Activation):
    """The activation max(a, 0), with σ'(0) = 0; NaN stays NaN.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.ReLU(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Array]:
        inactive = a <= 0
        return self.jvp(inactive, a, xp), inactive

    def jvp(self, saved: Array, a_dot: Array, xp: Namespace) -> Array:
        return xp.where(saved, xp.zeros_like(a_dot), a_dot)


class Tanh(Activation):
    """The activation σ = tanh, σ' = 1 − σ², σ'' = −2 σ σ'.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Tanh(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Array]:
        t = xp.tanh(a)
        return t, t

    def jvp(self, saved: Array, a_dot: Array, xp: Namespace) -> Array:
        return (1 - saved * saved) * a_dot

    def vjp_dot(self, saved: Array, a_dot: Array, delta: Array, xp: Namespace) -> Array:
        return -2 * saved * (1 - saved * saved) * a_dot * delta


class Softplus(Activation):
    """The activation σ = log(1 + exp a), σ' = 1/(1 + exp(−a)), σ'' = σ' (1 − σ').

    PyTorch replaces σ(a) by a for a > 20, with an error of up to 2e-9; here it is exact everywhere.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Softplus(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, tuple[Array, Array]]:
        e = xp.exp(-xp.abs(a))
        positive, larger = a >= 0, 1 / (1 + e)  # σ'(|a|)
        slope, rest = xp.where(positive, larger, e * larger), xp.where(positive, e * larger, larger)  # σ'(a), 1 − σ'(a)
        return xp.where(positive, a, xp.zeros_like(a)) + xp.log1p(e), (slope, slope * rest)

    def jvp(self, saved: tuple[Array, Array], a_dot: Array, xp: Namespace) -> Array:
        return saved[0] * a_dot

    def vjp_dot(self, saved: tuple[Array, Array], a_dot: Array, delta: Array, xp: Namespace) -> Array:
        return saved[1] * a_dot * delta
