"""Windows of an image reduced to a number each; ȧ and δ go through linear maps, for a small step changes no choice.

MaxPool2d   z = a at the largest entry of the window; the first of equal ones, in row-major order, is it
AvgPool2d   z = mean of the window
"""

from __future__ import annotations

from typing import Any

from hgp_ref.backend import Array, Namespace
from hgp_ref.neural.layer import Shape, Unparametrised, image_shape, pair
from hgp_ref.neural.windows import Windows


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
            raise ValueError(f"{self!r}: images of {height} x {width} given, needed at least the size of the kernel")
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
