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

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from hgp_ref import validation
from hgp_ref.backend import Array, Namespace, device

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
            raise ValueError(f"{name} must be an integer >= 1 or two of them (height, width), got {value!r}")
        return validation.integer(f"{name}[0]", value[0]), validation.integer(f"{name}[1]", value[1])
    both = validation.integer(name, value)
    return both, both


def image_shape(layer: str, shape: Shape) -> Shape:
    """`shape` if it is that of an image, (C, H, W)."""
    if len(shape) != 3:
        raise ValueError(f"{layer}: the input must have shape (C, H, W), got {shape}")
    return shape


# ----------------------------------------------------------------------------------------------------
# Linear:  z = a W^T + b,  W (out, in), b (out,).
#
# d_W = δ^T a,    d_b = 1^T δ,    δ' = δ W
# ż   = a Ẇ^T + ȧ W^T + ḃ
# ḋ_W = δ̇^T a + δ^T ȧ,    ḋ_b = 1^T δ̇,    δ̇' = δ̇ W + δ Ẇ


class Linear(Layer):
    """Each of `outputs` numbers is a weighted sum of all `inputs` and a bias.

    Parameters
    ----------
    inputs, outputs : int
        Features.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3)).dim
    15
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = validation.integer("inputs", inputs), validation.integer("outputs", outputs)
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


# ----------------------------------------------------------------------------------------------------
# Windows of images with channels last, and the adjoint: array API standard operations only, nothing in place.
#
# A window of kh x kw pixels slides in steps of `stride` over images (n, N, H, W, C); piece (i, j) holds pixel (i, j) of
# every window, so that piece_ij[h, w] = image[h stride + i, w stride + j]. `scatter` is the adjoint of `gather`:
# <gather(a), pieces> = <a, scatter(pieces)>.


@dataclass(frozen=True)
class Windows:
    """Where windows lie on images of (H, W): size, steps, and rows and columns of zeros around the image."""

    size: tuple[int, int]
    stride: tuple[int, int]
    image: tuple[int, int]  # H, W without the zeros
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
        """The pieces of all windows, in row-major order of the window.  # kh kw arrays (n, N, Ho, Wo, C)"""
        for axis in (0, 1):
            a = pad(a, axis + 2, self.before[axis], self.after[axis], xp)
        (kh, kw), (sh, sw), (ho, wo) = self.size, self.stride, self.output
        return [
            a[:, :, i : i + (ho - 1) * sh + 1 : sh, j : j + (wo - 1) * sw + 1 : sw, :]
            for i in range(kh)
            for j in range(kw)
        ]

    def scatter(self, pieces: list[Array], xp: Namespace) -> Array:
        """The sum of all pieces, each put back where it came from.  # (n, N, H, W, C)"""
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
        """Spread an axis by the stride and set it at `offset` in the padded length."""
        spread = dilate(piece, axis + 2, self.stride[axis], xp)
        return pad(spread, axis + 2, offset, self.padded[axis] - offset - spread.shape[axis + 2], xp)


def pad(a: Array, axis: int, before: int, after: int, xp: Namespace) -> Array:
    """`a` with zeros before and after along `axis`."""

    def zeros(count: int) -> list[Array]:
        shape = (*a.shape[:axis], count, *a.shape[axis + 1 :])
        return [xp.zeros(shape, dtype=a.dtype, device=device(a))] if count else []

    parts = [*zeros(before), a, *zeros(after)]
    return a if len(parts) == 1 else xp.concat(parts, axis=axis)


def dilate(a: Array, axis: int, step: int, xp: Namespace) -> Array:
    """`step` - 1 zeros between neighbours along `axis`: length (L - 1) step + 1."""
    length = a.shape[axis]
    if step == 1 or length == 1:
        return a
    spread = pad(xp.expand_dims(a, axis=axis + 1), axis + 1, 0, step - 1, xp)
    spread = xp.reshape(spread, (*a.shape[:axis], length * step, *a.shape[axis + 1 :]))
    index = (slice(None),) * axis + (slice(0, (length - 1) * step + 1),)
    return spread[(*index, ...)]


# ----------------------------------------------------------------------------------------------------
# Conv2d:  z[h, w, o] = b_o + Σ_{i, j, c} W[o, c, i, j] a[h stride + i, w stride + j, c], a linear map of each window.
#
# With the windows of an image as rows of a matrix A (Ho Wo, kh kw C) this is `Linear`, and so are its derivatives; the
# way from the gradient of A to that of the image is the adjoint of taking windows (`windows.Windows`).


Kept = tuple[Windows, Array]  # where the windows lie, and the images


class Conv2d(Layer):
    """`kernel`, `stride`: an integer, or (height, width). padding: "valid" (or 0) for none, "same" for as many zeros
    around the image as keep its size, one more below and to the right where their number is odd, as in PyTorch.

    Parameters
    ----------
    inputs, outputs : int
        Channels.
    kernel, stride : int or pair
        As in PyTorch.
    padding : {"valid", "same"} or 0
        Zeros around the image, as above; no other number of them.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 8, 8), hgp.neural.Conv2d(1, 4, 3)).dim
    40
    """

    def __init__(self, inputs: int, outputs: int, kernel: Any, stride: Any = 1, padding: Any = "valid") -> None:
        self.inputs, self.outputs = validation.integer("inputs", inputs), validation.integer("outputs", outputs)
        self.kernel, self.stride = pair("kernel", kernel), pair("stride", stride)
        none = isinstance(padding, int) and not isinstance(padding, bool) and padding == 0
        self.padding = validation.choice("padding", "valid" if none else padding, ("valid", "same"))
        if self.padding == "same" and self.stride != (1, 1):
            raise ValueError(f"stride must be 1 with padding='same' (as in PyTorch), got {stride!r}")
        self.shapes = ((self.outputs, self.inputs, *self.kernel), (self.outputs,))
        self.fan_in = self.inputs * self.kernel[0] * self.kernel[1]

    def __repr__(self) -> str:
        return f"Conv2d({self.inputs}, {self.outputs}, {self.kernel}, stride={self.stride}, padding={self.padding!r})"

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = image_shape(repr(self), shape)
        if channels != self.inputs:
            raise ValueError(f"{self!r}: the input must have {self.inputs} channels, got {channels}")
        rows, columns = self.windows(height, width).output
        if rows < 1 or columns < 1:
            raise ValueError(f"{self!r}: images must be at least as large as the kernel, got {height} x {width}")
        return (self.outputs, rows, columns)

    def windows(self, height: int, width: int) -> Windows:
        """Where the kernel lies on images of height x width."""
        kh, kw = self.kernel
        total = (kh - 1, kw - 1) if self.padding == "same" else (0, 0)
        before = (total[0] // 2, total[1] // 2)
        after = (total[0] - before[0], total[1] - before[1])
        return Windows(self.kernel, self.stride, (height, width), before, after)

    def forward(self, p: Parameters, a: Array, xp: Namespace) -> tuple[Array, Kept]:
        windows = self.windows(*a.shape[2:4])
        rows = self._rows(windows, a, xp)
        z = apply(rows, self.matrix(p[0], xp), xp) + p[1][:, None, :]
        return self._image(windows, z, a, xp), (windows, a)

    def backward(self, p: Parameters, kept: Kept, delta: Array, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        windows, a = kept
        flat = _flat(delta, xp)
        grads = [self.unmatrix(weigh(flat, self._rows(windows, a, xp), xp), xp), xp.sum(flat, axis=1)]
        return grads, self.pull(p, kept, delta, xp) if onward else None

    def pull(self, p: Parameters, kept: Kept, delta: Array, xp: Namespace) -> Array:
        return self._back(kept[0], xp.matmul(_flat(delta, xp), self.matrix(p[0], xp)), delta, xp)

    def tangent(self, p: Parameters, kept: Kept, p_dot: Parameters, a_dot: Array | None, xp: Namespace) -> Array:
        windows, a = kept
        z_dot = apply(self._rows(windows, a, xp), self.matrix(p_dot[0], xp), xp) + p_dot[1][:, None, :]
        if a_dot is not None:
            z_dot = z_dot + apply(self._rows(windows, a_dot, xp), self.matrix(p[0], xp), xp)
        return self._image(windows, z_dot, a, xp)

    def backward_tangent(self, p: Parameters, kept: Kept, p_dot: Parameters, a_dot: Array | None, delta: Array,
                         delta_dot: Array, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[Array], Array | None]:  # fmt: skip
        windows, a = kept
        flat, flat_dot = _flat(delta, xp), _flat(delta_dot, xp)
        weight = weigh(flat_dot, self._rows(windows, a, xp), xp)
        if a_dot is not None:
            weight = weight + weigh(flat, self._rows(windows, a_dot, xp), xp)
        grads = [self.unmatrix(weight, xp), xp.sum(flat_dot, axis=1)]
        if not onward:
            return grads, None
        rows = xp.matmul(flat_dot, self.matrix(p[0], xp)) + xp.matmul(flat, self.matrix(p_dot[0], xp))
        return grads, self._back(windows, rows, delta, xp)

    def matrix(self, weight: Array, xp: Namespace) -> Array:
        """W with a row for each output and the order of a window's entries along it.  # (n, O, kh kw C)"""
        turned = xp.permute_dims(weight, (0, 1, 3, 4, 2))
        return xp.reshape(turned, (weight.shape[0], self.outputs, self.fan_in))

    def unmatrix(self, matrix: Array, xp: Namespace) -> Array:
        """The inverse of `matrix`.  # (n, O, C, kh, kw)"""
        full = xp.reshape(matrix, (matrix.shape[0], self.outputs, *self.kernel, self.inputs))
        return xp.permute_dims(full, (0, 1, 4, 2, 3))

    def _rows(self, windows: Windows, a: Array, xp: Namespace) -> Array:
        """Every window of every instance as a row.  # (n, N Ho Wo, kh kw C)"""
        stacked = xp.concat(windows.gather(a, xp), axis=-1)
        return xp.reshape(stacked, (a.shape[0], -1, self.fan_in))

    def _back(self, windows: Windows, rows: Array, delta: Array, xp: Namespace) -> Array:
        """The adjoint of `_rows`.  # (n, N, H, W, C)"""
        full = xp.reshape(rows, (*delta.shape[:4], self.fan_in))
        C = self.inputs
        return windows.scatter([full[..., k * C : (k + 1) * C] for k in range(self.fan_in // C)], xp)

    def _image(self, windows: Windows, z: Array, a: Array, xp: Namespace) -> Array:
        return xp.reshape(z, (*a.shape[:2], *windows.output, self.outputs))


def _flat(delta: Array, xp: Namespace) -> Array:
    """Images as rows of pixels.  # (n, N Ho Wo, O)"""
    return xp.reshape(delta, (delta.shape[0], -1, delta.shape[-1]))


# ----------------------------------------------------------------------------------------------------
# Flatten: an image as one vector, in PyTorch's order of its entries (channel, row, column).


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


# ----------------------------------------------------------------------------------------------------
# Windows of an image reduced to a number each; ȧ and δ go through linear maps, for a small step changes no choice.
#
# MaxPool2d   z = a at the largest entry of the window; the first of equal ones, in row-major order, is it
# AvgPool2d   z = mean of the window


class Pool(Unparametrised):
    """`kernel`, `stride` (the kernel if None): an integer, or (height, width). What fills no window is left out."""

    def __init__(self, kernel: Any, stride: Any = None) -> None:
        self.kernel = pair("kernel", kernel)
        self.stride = self.kernel if stride is None else pair("stride", stride)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kernel}, stride={self.stride})"

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = image_shape(repr(self), shape)
        rows, columns = self.windows(height, width).output
        if rows < 1 or columns < 1:
            raise ValueError(f"{self!r}: images must be at least as large as the kernel, got {height} x {width}")
        return (channels, rows, columns)

    def windows(self, height: int, width: int) -> Windows:
        """Where the windows lie on images of height x width."""
        return Windows(self.kernel, self.stride, (height, width))


class MaxPool2d(Pool):
    """The largest entry of each window; the gradient goes to the first of equal ones. NaN wins, as in PyTorch.

    Parameters
    ----------
    kernel, stride : int or pair
        As in PyTorch.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 4, 4), hgp.neural.MaxPool2d(2), hgp.neural.Flatten(), hgp.neural.Linear(4, 2)).dim
    10
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, tuple[Windows, Array]]:
        windows = self.windows(*a.shape[2:4])
        pieces = windows.gather(a, xp)
        best, which = pieces[0], xp.zeros_like(pieces[0], dtype=xp.int32)
        for k, piece in enumerate(pieces[1:], 1):
            wins = (piece > best) | xp.isnan(piece)
            best, which = xp.where(wins, piece, best), xp.where(wins, xp.full_like(which, k), which)
        return best, (windows, which)

    def push(self, kept: tuple[Windows, Array], a_dot: Array, xp: Namespace) -> Array:
        windows, which = kept
        pieces = windows.gather(a_dot, xp)
        chosen = pieces[0]
        for k, piece in enumerate(pieces[1:], 1):
            chosen = xp.where(which == k, piece, chosen)
        return chosen

    def back(self, kept: tuple[Windows, Array], delta: Array, xp: Namespace) -> Array:
        windows, which = kept
        zero = xp.zeros_like(delta)
        size = windows.size[0] * windows.size[1]
        return windows.scatter([xp.where(which == k, delta, zero) for k in range(size)], xp)


class AvgPool2d(Pool):
    """The mean of each window.

    Parameters
    ----------
    kernel, stride : int or pair
        As in PyTorch.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 4, 4), hgp.neural.AvgPool2d(2), hgp.neural.Flatten(), hgp.neural.Linear(4, 2)).dim
    10
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, Windows]:
        windows = self.windows(*a.shape[2:4])
        return self.push(windows, a, xp), windows

    def push(self, kept: Windows, a_dot: Array, xp: Namespace) -> Array:
        first, *others = kept.gather(a_dot, xp)
        for piece in others:
            first = first + piece
        return first / (len(others) + 1)

    def back(self, kept: Windows, delta: Array, xp: Namespace) -> Array:
        size = kept.size[0] * kept.size[1]
        return kept.scatter([delta / size] * size, xp)


# ----------------------------------------------------------------------------------------------------
# Functions of each number by itself: z = σ(a),  ż = σ'(a) ȧ,  δ' = σ'(a) δ,  δ̇' = σ'(a) δ̇ + σ''(a) ȧ δ.


class Elementwise(Unparametrised):
    """Keeps the shape."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def output_shape(self, shape: Shape) -> Shape:
        return shape


class ReLU(Elementwise):
    """max(a, 0), with σ'(0) = 0; NaN stays NaN.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.ReLU(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, Array]:
        dead = a <= 0
        return self.push(dead, a, xp), dead

    def push(self, kept: Array, a_dot: Array, xp: Namespace) -> Array:
        return xp.where(kept, xp.zeros_like(a_dot), a_dot)

    def back(self, kept: Array, delta: Array, xp: Namespace) -> Array:
        return self.push(kept, delta, xp)


class Tanh(Elementwise):
    """σ = tanh, σ' = 1 - σ², σ'' = -2 σ σ'.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Tanh(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, Array]:
        t = xp.tanh(a)
        return t, t

    def push(self, kept: Array, a_dot: Array, xp: Namespace) -> Array:
        return (1 - kept * kept) * a_dot

    def back(self, kept: Array, delta: Array, xp: Namespace) -> Array:
        return self.push(kept, delta, xp)

    def bend(self, kept: Array, a_dot: Array, delta: Array, xp: Namespace) -> Array:
        return -2 * kept * (1 - kept * kept) * a_dot * delta


class Softplus(Elementwise):
    """σ = log(1 + exp a), σ' = 1 / (1 + exp(-a)), σ'' = σ' (1 - σ').

    PyTorch replaces σ by a beyond a = 20, which is wrong by up to 2e-9; here it is exact everywhere.

    Examples
    --------
    >>> hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3), hgp.neural.Softplus(), hgp.neural.Linear(3, 2)).dim
    23
    """

    def forward(self, p: list[Array], a: Array, xp: Namespace) -> tuple[Array, tuple[Array, Array]]:
        e = xp.exp(-xp.abs(a))
        up, small = a >= 0, 1 / (1 + e)  # σ'(|a|)
        slope, rest = xp.where(up, small, e * small), xp.where(up, e * small, small)  # σ'(a), 1 - σ'(a)
        return xp.where(up, a, xp.zeros_like(a)) + xp.log1p(e), (slope, slope * rest)

    def push(self, kept: tuple[Array, Array], a_dot: Array, xp: Namespace) -> Array:
        return kept[0] * a_dot

    def back(self, kept: tuple[Array, Array], delta: Array, xp: Namespace) -> Array:
        return kept[0] * delta

    def bend(self, kept: tuple[Array, Array], a_dot: Array, delta: Array, xp: Namespace) -> Array:
        return kept[1] * a_dot * delta
