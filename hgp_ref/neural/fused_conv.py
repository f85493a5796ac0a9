"""Conv2d, ReLU and MaxPool2d in one step on NumPy arrays, a block of instances at a time.

With the windows of a block as rows A, their movement Ȧ, and δ given back to the pixels that were chosen:

    z = A W^T + b -> choose          ż = [A | Ȧ] [Ẇ | W]^T + ḃ -> at the same places
    d_W = δ^T A,  δ' = δ W           ḋ_W = δ̇^T A + δ^T Ȧ,    δ̇' = [δ̇ | δ] [W; Ẇ]

so that each step is one or two products of matrices that lie in a cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hgp_ref.backend import Namespace
from hgp_ref.neural.conv import Conv2d
from hgp_ref.neural.kernels import add_windows, choose, follow, give_back, take_windows
from hgp_ref.neural.layer import Into, Layer, Parameters, Shape
from hgp_ref.neural.pooling import MaxPool2d

BLOCK_BYTES = 2**20  # windows of one block: they stay in a cache between being taken and being multiplied

# sizes, a with the zeros around it, and which entry of its pooling window each output is (-1: none)
Kept = tuple["_Place", np.ndarray, np.ndarray]


class ConvBlock(Layer):
    """`conv`, ReLU if `relu`, and `pool`."""

    def __init__(self, conv: Conv2d, relu: bool, pool: MaxPool2d) -> None:
        self.conv, self.relu, self.pool = conv, relu, pool
        self.shapes, self.fan_in = conv.shapes, conv.fan_in

    def output_shape(self, shape: Shape) -> Shape:
        return self.pool.output_shape(self.conv.output_shape(shape))

    def forward(self, p: Parameters, a: np.ndarray, xp: Namespace) -> tuple[np.ndarray, Kept]:
        at, weight = _Place(self, a), self.conv.matrix(p[0], xp)
        a = at.framed(a)
        out = np.empty((*a.shape[:2], *at.pooled, self.conv.outputs), dtype=a.dtype)
        which = np.empty(out.shape, dtype=np.int8 if at.choices < 128 else np.int32)
        rows, z = at.rows(1), at.pixels(1)
        for i, part in at.blocks():
            B = part.stop - part.start
            take_windows(a[i, part], at.windows, rows[:B], 0)
            np.matmul(at.flat(rows[:B]), weight[i].T, out=at.flat(z[:B]))
            choose(at.image(z[:B]), p[1][i], self.relu, at.pool, out[i, part], which[i, part])
        return out, (at, a, which)

    def backward(self, p: Parameters, kept: Kept, delta: np.ndarray, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[np.ndarray], np.ndarray | None]:  # fmt: skip
        at, a, which = kept
        delta, weight = np.ascontiguousarray(delta), self.conv.matrix(p[0], xp)
        matrix, bias = np.zeros_like(weight), np.zeros_like(p[1])
        back = np.empty_like(a) if onward else None
        rows, pixels, sums = at.rows(1), at.pixels(1), np.empty((at.size, self.conv.outputs), dtype=a.dtype)
        for i, part in at.blocks():
            B = part.stop - part.start
            give_back(delta[i, part], which[i, part], at.given, pixels[:B], 0, sums[:B])
            bias[i] += np.sum(sums[:B], axis=0)
            take_windows(a[i, part], at.windows, rows[:B], 0)
            matrix[i] += at.flat(pixels[:B]).T @ at.flat(rows[:B])
            if back is not None:
                np.matmul(at.flat(pixels[:B]), weight[i], out=at.flat(rows[:B]))
                add_windows(rows[:B], at.windows, back[i, part])
        return [self.conv.unmatrix(matrix, xp), bias], None if back is None else at.unframed(back)

    def pull(self, p: Parameters, kept: Kept, delta: np.ndarray, xp: Namespace) -> np.ndarray:
        at, a, which = kept
        delta, weight, back = np.ascontiguousarray(delta), self.conv.matrix(p[0], xp), np.empty_like(a)
        rows, pixels, sums = at.rows(1), at.pixels(1), np.empty((at.size, self.conv.outputs), dtype=a.dtype)
        for i, part in at.blocks():
            B = part.stop - part.start
            give_back(delta[i, part], which[i, part], at.given, pixels[:B], 0, sums[:B])
            np.matmul(at.flat(pixels[:B]), weight[i], out=at.flat(rows[:B]))
            add_windows(rows[:B], at.windows, back[i, part])
        return at.unframed(back)

    def tangent(self, p: Parameters, kept: Kept, p_dot: Parameters, a_dot: np.ndarray | None,
                xp: Namespace) -> np.ndarray:  # fmt: skip
        at, a, which = kept
        moving = [(a, p_dot[0])] if a_dot is None else [(a, p_dot[0]), (at.framed(a_dot), p[0])]
        weight = np.concatenate([self.conv.matrix(w, xp) for _, w in moving], axis=2)  # (n, O, K or 2K)
        out = np.empty(which.shape, dtype=a.dtype)
        rows, z = at.rows(len(moving)), at.pixels(1)
        for i, part in at.blocks():
            B = part.stop - part.start
            for k, (images, _) in enumerate(moving):
                take_windows(images[i, part], at.windows, rows[:B], k * self.fan_in)
            np.matmul(at.flat(rows[:B]), weight[i].T, out=at.flat(z[:B]))
            follow(at.image(z[:B]), p_dot[1][i], which[i, part], at.pool, out[i, part])
        return out

    def backward_tangent(self, p: Parameters, kept: Kept, p_dot: Parameters, a_dot: np.ndarray | None,
                         delta: np.ndarray, delta_dot: np.ndarray, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[np.ndarray], np.ndarray | None]:  # fmt: skip
        at, a, which = kept
        width = self.conv.outputs
        delta, delta_dot = np.ascontiguousarray(delta), np.ascontiguousarray(delta_dot)
        moving = [a] if a_dot is None else [a, at.framed(a_dot)]
        weight = np.concatenate([self.conv.matrix(w, xp) for w in (p[0], p_dot[0])], axis=1)  # (n, 2O, K)
        matrix, bias = np.zeros_like(weight[:, :width]), np.zeros_like(p[1])
        back = np.empty_like(a) if onward else None
        rows, pixels, sums = at.rows(1), at.pixels(2), np.empty((at.size, width), dtype=a.dtype)
        for i, part in at.blocks():
            B = part.stop - part.start
            for k, images in ((1, delta), (0, delta_dot)):
                give_back(images[i, part], which[i, part], at.given, pixels[:B], k * width, sums[:B])
            bias[i] += np.sum(sums[:B], axis=0)  # of δ̇, which came last
            for k, images in enumerate(moving):
                take_windows(images[i, part], at.windows, rows[:B], 0)
                matrix[i] += at.flat(pixels[:B])[:, k * width : (k + 1) * width].T @ at.flat(rows[:B])
            if back is not None:
                np.matmul(at.flat(pixels[:B]), weight[i], out=at.flat(rows[:B]))
                add_windows(rows[:B], at.windows, back[i, part])
        return [self.conv.unmatrix(matrix, xp), bias], None if back is None else at.unframed(back)


class _Place:
    """Sizes of a block's arrays, and where windows of the convolution and of the pooling lie.

    Zeros around images (padding="same") are part of the images here.
    """

    def __init__(self, block: ConvBlock, a: np.ndarray) -> None:
        self._frame = block.conv.windows(*a.shape[2:4])
        self._n, self._N, self._dtype = a.shape[0], a.shape[1], a.dtype
        self._entries, self._outputs = block.fan_in, block.conv.outputs
        self._height, self._width = self._frame.output
        self.windows = (self._frame.size, self._frame.stride, self._frame.output)
        self.pool = (block.pool.kernel, block.pool.stride)
        self.given = (*self.pool, self._width)
        self.pooled = block.pool.windows(*self._frame.output).output
        self.choices = block.pool.kernel[0] * block.pool.kernel[1]
        one = self._height * self._width * self._entries * a.dtype.itemsize
        self.size = max(1, BLOCK_BYTES // one)  # instances of a block

    def framed(self, a: np.ndarray) -> np.ndarray:
        """Images with the zeros around them, contiguous."""
        (top, left), (bottom, right) = self._frame.before, self._frame.after
        if top + left + bottom + right == 0:
            return np.ascontiguousarray(a)
        framed = np.pad(a, ((0, 0), (0, 0), (top, bottom), (left, right), (0, 0)))
        return np.ascontiguousarray(framed)  # np.pad keeps the order of a view that is turned

    def unframed(self, a: np.ndarray) -> np.ndarray:
        """Images without the zeros around them: the adjoint of `framed`."""
        (top, left), (h, w) = self._frame.before, self._frame.image
        return a[:, :, top : top + h, left : left + w]

    def blocks(self) -> Iterator[tuple[int, slice]]:
        """Every client with every block of its instances."""
        N = self._N
        return ((i, slice(k, min(k + self.size, N))) for i in range(self._n) for k in range(0, N, self.size))

    def rows(self, times: int) -> np.ndarray:
        """Windows of a block as rows, `times` beside each other.  # (B, Ho Wo, times K)"""
        return self._buffer(times * self._entries)

    def pixels(self, times: int) -> np.ndarray:
        """Outputs of the convolution for a block, `times` beside each other.  # (B, Ho Wo, times O)"""
        return self._buffer(times * self._outputs)

    def _buffer(self, width: int) -> np.ndarray:
        size = min(self.size, self._N)
        return np.empty((size, self._height * self._width, width), dtype=self._dtype)

    def image(self, pixels: np.ndarray) -> np.ndarray:
        """(B, Ho Wo, O) as (B, Ho, Wo, O)."""
        return pixels.reshape(-1, self._height, self._width, pixels.shape[-1])

    def flat(self, a: np.ndarray) -> np.ndarray:
        """(B, Ho Wo, width) as one matrix."""
        return a.reshape(-1, a.shape[-1])
