"""Conv2d:  z[h, w, o] = b_o + Σ_{i, j, c} W[o, c, i, j] a[h stride + i, w stride + j, c], a linear map of each window.

With the windows of an image as rows of a matrix A (Ho Wo, kh kw C) this is `Linear`, and so are its derivatives; the
way from the gradient of A to that of the image is the adjoint of taking windows (`windows.Windows`).
"""

from __future__ import annotations

from typing import Any

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace
from hgp_ref.neural.layer import Into, Layer, Parameters, Shape, image_shape, pair
from hgp_ref.neural.linear import apply, weigh
from hgp_ref.neural.windows import Windows

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

    Raises
    ------
    TypeError, ValueError
        Channels, kernel and stride must be integers ≥ 1; padding "same" needs stride 1.

    Examples
    --------
    >>> hgp.neural.Sequential((1, 8, 8), hgp.neural.Conv2d(1, 4, 3)).dim
    40
    """

    def __init__(self, inputs: int, outputs: int, kernel: Any, stride: Any = 1, padding: Any = "valid") -> None:
        self.inputs, self.outputs = arguments.integer("inputs", inputs), arguments.integer("outputs", outputs)
        self.kernel, self.stride = pair("kernel", kernel), pair("stride", stride)
        none = isinstance(padding, int) and not isinstance(padding, bool) and padding == 0
        self.padding = arguments.choice("padding", "valid" if none else padding, ("valid", "same"))
        if self.padding == "same" and self.stride != (1, 1):
            raise ValueError(f"padding='same' given with stride={stride!r}, needed stride 1 (as in PyTorch)")
        self.shapes = ((self.outputs, self.inputs, *self.kernel), (self.outputs,))
        self.fan_in = self.inputs * self.kernel[0] * self.kernel[1]

    def __repr__(self) -> str:
        return f"Conv2d({self.inputs}, {self.outputs}, {self.kernel}, stride={self.stride}, padding={self.padding!r})"

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = image_shape(repr(self), shape)
        if channels != self.inputs:
            raise ValueError(f"{self!r}: {channels} channels given, needed {self.inputs}")
        rows, columns = self.windows(height, width).output
        if rows < 1 or columns < 1:
            raise ValueError(f"{self!r}: images of {height} x {width} given, needed at least the size of the kernel")
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
