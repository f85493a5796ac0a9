"""Compiled layers for NumPy: a Conv2d or Linear layer with the ReLU and MaxPool2d behind it, in one step.

`layers` defines what is computed; here is the same with less memory traffic. A convolution goes through the instances
of a client in blocks whose windows fit a cache. Neither windows nor anything before the pooling is stored for all
instances. The size of a block depends on the layer alone, so that the sums of a client are made in the same order
whichever clients share its array.

Images are (B, H, W, C) with B instances of a block. Every loop treats instances one by one, so nothing depends on B.
The innermost loops run over consecutive memory: kw C numbers of a row of an image, or the channels of a pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.backend import Namespace
from hgp_ref.neural.layers import Conv2d, Layer, Linear, MaxPool2d, Parameters, ReLU, Shape, times_transposed

Gradients = tuple[list[np.ndarray], np.ndarray | None]  # d_p and δ'


def fuse(layers: Sequence[Layer]) -> list[Layer]:
    """Combine Linear [ReLU] and Conv2d [ReLU] [MaxPool2d] into one layer each; other layers are unchanged.

    A subclass of these is not fused, since it may compute something else.
    """
    rest: list[Layer] = list(layers)
    fused: list[Layer] = []
    while rest:
        layer = rest.pop(0)
        if type(layer) not in (Linear, Conv2d):
            fused.append(layer)
            continue
        relu = bool(rest) and type(rest[0]) is ReLU
        if relu:
            rest.pop(0)
        if isinstance(layer, Conv2d):
            pool = rest.pop(0) if rest and type(rest[0]) is MaxPool2d else MaxPool2d(1)
            fused.append(ConvBlock(layer, relu, cast(MaxPool2d, pool)))
        else:
            fused.append(LinearBlock(cast(Linear, layer), relu))
    return fused


# ------------------------------------------------------------------------------------------------------- Linear, ReLU
#
# The two products of ḋ_W = δ̇ᵀ a + δᵀ ȧ are one, [δ̇; δ]ᵀ [a; ȧ], with the instances of both below each other.


class LinearBlock(Layer):
    """z = a Wᵀ + b, or its positive part if `relu`. Saves a, and where ReLU is inactive."""

    def __init__(self, linear: Linear, relu: bool) -> None:
        self.linear, self.relu = linear, relu
        self.shapes, self.fan_in = linear.shapes, linear.fan_in

    def output_shape(self, shape: Shape) -> Shape:
        return self.linear.output_shape(shape)

    def forward(self, p: Parameters, a: np.ndarray, xp: Namespace) -> tuple[np.ndarray, LinearSaved]:
        z = times_transposed(a, p[0], xp)
        z += p[1][:, None, :]
        inactive = z <= 0 if self.relu else None
        return _set_zero(z, inactive), (a, inactive)

    def backward(self, p: Parameters, saved: LinearSaved, delta: np.ndarray, onward: bool, xp: Namespace,
                 into: list[np.ndarray] | None = None) -> Gradients:  # fmt: skip
        a, inactive = saved
        delta = delta if inactive is None else _set_zero(delta.copy(), inactive)
        grads = into if into is not None else [np.empty_like(part) for part in p]
        np.matmul(delta.swapaxes(1, 2), a, out=grads[0])
        np.sum(delta, axis=1, out=grads[1])
        return grads, np.matmul(delta, p[0]) if onward else None

    def pull(self, p: Parameters, saved: LinearSaved, delta: np.ndarray, xp: Namespace) -> np.ndarray:
        inactive = saved[1]
        return np.matmul(delta if inactive is None else _set_zero(delta.copy(), inactive), p[0])

    def tangent(self, p: Parameters, saved: LinearSaved, p_dot: Parameters, a_dot: np.ndarray | None,
                xp: Namespace) -> np.ndarray:  # fmt: skip
        a, inactive = saved
        z_dot = times_transposed(a, p_dot[0], xp)
        z_dot += p_dot[1][:, None, :]
        if a_dot is not None:
            z_dot += times_transposed(a_dot, p[0], xp)
        return _set_zero(z_dot, inactive)

    def backward_tangent(self, p: Parameters, saved: LinearSaved, p_dot: Parameters, a_dot: np.ndarray | None,
                         delta: np.ndarray, delta_dot: np.ndarray, onward: bool, xp: Namespace,
                         into: list[np.ndarray] | None = None) -> Gradients:  # fmt: skip
        a, inactive = saved
        N = a.shape[1]
        both = np.concatenate([delta_dot, delta], axis=1)  # (n, 2N, out)
        _set_zero(both[:, :N], inactive)
        _set_zero(both[:, N:], inactive)
        grads = into if into is not None else [np.empty_like(part) for part in p]
        if a_dot is None:
            np.matmul(both[:, :N].swapaxes(1, 2), a, out=grads[0])
        else:
            np.matmul(both.swapaxes(1, 2), np.concatenate([a, a_dot], axis=1), out=grads[0])
        np.sum(both[:, :N], axis=1, out=grads[1])
        if not onward:
            return grads, None
        back = np.matmul(both[:, :N], p[0])
        back += np.matmul(both[:, N:], p_dot[0])
        return grads, back


LinearSaved = tuple[np.ndarray, np.ndarray | None]


def _set_zero(z: np.ndarray, inactive: np.ndarray | None) -> np.ndarray:
    """z with zeros where `inactive`, in place."""
    if inactive is not None:
        np.copyto(z, 0, where=inactive)
    return z


# --------------------------------------------------------------------------------------------- Conv2d, ReLU, MaxPool2d
#
# With the windows of a block as rows A, their derivative Ȧ, and δ at the pixels that the pooling has chosen:
#
#     z = A Wᵀ + b → max               ż = [A | Ȧ] [Ẇ | W]ᵀ + ḃ → at the same pixels
#     d_W = δᵀ A,  δ' = δ W            ḋ_W = δ̇ᵀ A + δᵀ Ȧ,    δ̇' = [δ̇ | δ] [W; Ẇ]
#
# so that each step is one or two products of matrices that fit a cache.

BLOCK_BYTES = 2**20  # windows of one block: they stay in a cache between being copied and being multiplied


class ConvBlock(Layer):
    """`conv`, then ReLU if `relu`, then `pool`.

    Saves the sizes of blocks, the padded input, and the position of each output in its pooling window (-1: inactive).
    """

    def __init__(self, conv: Conv2d, relu: bool, pool: MaxPool2d) -> None:
        self.conv, self.relu, self.pool = conv, relu, pool
        self.shapes, self.fan_in = conv.shapes, conv.fan_in

    def output_shape(self, shape: Shape) -> Shape:
        return self.pool.output_shape(self.conv.output_shape(shape))

    def forward(self, p: Parameters, a: np.ndarray, xp: Namespace) -> tuple[np.ndarray, ConvSaved]:
        blocks, weight = _Blocks(self, a), self.conv.matrix(p[0], xp)
        a = blocks.pad(a)
        out = np.empty((*a.shape[:2], *blocks.pooled, self.conv.outputs), dtype=a.dtype)
        argmax = np.empty(out.shape, dtype=np.int8 if self.pool.kernel[0] * self.pool.kernel[1] < 128 else np.int32)
        rows, z = blocks.rows(1), blocks.pixels(1)
        for i, part in blocks:
            B = part.stop - part.start
            take_windows(a[i, part], blocks.windows, rows[:B], 0)
            np.matmul(_flat(rows[:B]), weight[i].T, out=_flat(z[:B]))
            max_pool(blocks.image(z[:B]), p[1][i], self.relu, blocks.pool, out[i, part], argmax[i, part])
        return out, (blocks, a, argmax)

    def backward(self, p: Parameters, saved: ConvSaved, delta: np.ndarray, onward: bool, xp: Namespace,
                 into: list[np.ndarray] | None = None) -> Gradients:  # fmt: skip
        return self._backward(p, saved, delta, onward, True, xp)

    def pull(self, p: Parameters, saved: ConvSaved, delta: np.ndarray, xp: Namespace) -> np.ndarray:
        return cast(np.ndarray, self._backward(p, saved, delta, True, False, xp)[1])

    def _backward(self, p: Parameters, saved: ConvSaved, delta: np.ndarray, onward: bool, gradient: bool,
                  xp: Namespace) -> Gradients:  # fmt: skip
        """d_p if `gradient`, and δ' if `onward`."""
        blocks, a, argmax = saved
        delta, weight = np.ascontiguousarray(delta), self.conv.matrix(p[0], xp)
        matrix, bias = np.zeros_like(weight), np.zeros_like(p[1])
        back = np.empty_like(a) if onward else None
        rows, pixels, sums = blocks.rows(1), blocks.pixels(1), np.empty((blocks.size, self.conv.outputs), dtype=a.dtype)
        for i, part in blocks:
            B = part.stop - part.start
            scatter_argmax(delta[i, part], argmax[i, part], blocks.pool_and_width, pixels[:B], 0, sums[:B])
            if gradient:
                bias[i] += np.sum(sums[:B], axis=0)
                take_windows(a[i, part], blocks.windows, rows[:B], 0)
                matrix[i] += _flat(pixels[:B]).T @ _flat(rows[:B])
            if back is not None:
                np.matmul(_flat(pixels[:B]), weight[i], out=_flat(rows[:B]))
                add_windows(rows[:B], blocks.windows, back[i, part])
        return [self.conv.unmatrix(matrix, xp), bias], None if back is None else blocks.unpad(back)

    def tangent(self, p: Parameters, saved: ConvSaved, p_dot: Parameters, a_dot: np.ndarray | None,
                xp: Namespace) -> np.ndarray:  # fmt: skip
        blocks, a, argmax = saved
        terms = [(a, p_dot[0])] if a_dot is None else [(a, p_dot[0]), (blocks.pad(a_dot), p[0])]
        weight = np.concatenate([self.conv.matrix(w, xp) for _, w in terms], axis=2)  # (n, O, K or 2K)
        out = np.empty(argmax.shape, dtype=a.dtype)
        rows, z = blocks.rows(len(terms)), blocks.pixels(1)
        for i, part in blocks:
            B = part.stop - part.start
            for k, (images, _) in enumerate(terms):
                take_windows(images[i, part], blocks.windows, rows[:B], k * self.fan_in)
            np.matmul(_flat(rows[:B]), weight[i].T, out=_flat(z[:B]))
            gather_argmax(blocks.image(z[:B]), p_dot[1][i], argmax[i, part], blocks.pool, out[i, part])
        return out

    def backward_tangent(self, p: Parameters, saved: ConvSaved, p_dot: Parameters, a_dot: np.ndarray | None,
                         delta: np.ndarray, delta_dot: np.ndarray, onward: bool, xp: Namespace,
                         into: list[np.ndarray] | None = None) -> Gradients:  # fmt: skip
        blocks, a, argmax = saved
        width = self.conv.outputs
        delta, delta_dot = np.ascontiguousarray(delta), np.ascontiguousarray(delta_dot)
        inputs = [a] if a_dot is None else [a, blocks.pad(a_dot)]
        weight = np.concatenate([self.conv.matrix(w, xp) for w in (p[0], p_dot[0])], axis=1)  # (n, 2O, K)
        matrix, bias = np.zeros_like(weight[:, :width]), np.zeros_like(p[1])
        back = np.empty_like(a) if onward else None
        rows, pixels, sums = blocks.rows(1), blocks.pixels(2), np.empty((blocks.size, width), dtype=a.dtype)
        for i, part in blocks:
            B = part.stop - part.start
            for k, images in ((1, delta), (0, delta_dot)):
                column = k * width
                scatter_argmax(images[i, part], argmax[i, part], blocks.pool_and_width, pixels[:B], column, sums[:B])
            bias[i] += np.sum(sums[:B], axis=0)  # of δ̇, which came last
            for k, images in enumerate(inputs):
                take_windows(images[i, part], blocks.windows, rows[:B], 0)
                matrix[i] += _flat(pixels[:B])[:, k * width : (k + 1) * width].T @ _flat(rows[:B])
            if back is not None:
                np.matmul(_flat(pixels[:B]), weight[i], out=_flat(rows[:B]))
                add_windows(rows[:B], blocks.windows, back[i, part])
        return [self.conv.unmatrix(matrix, xp), bias], None if back is None else blocks.unpad(back)


class _Blocks:
    """Blocks of instances: iteration over (client, slice), sizes of arrays, positions of windows.

    The zeros around images (padding="same") are part of the images here.
    """

    def __init__(self, block: ConvBlock, a: np.ndarray) -> None:
        self._convolution = convolution = block.conv.windows(*a.shape[2:4])
        self._n, self._N, self._dtype = a.shape[0], a.shape[1], a.dtype
        self._entries, self._outputs = block.fan_in, block.conv.outputs
        self._height, self._width = convolution.output
        self.windows = (convolution.size, convolution.stride, convolution.output)
        self.pool = (block.pool.kernel, block.pool.stride)
        self.pool_and_width = (*self.pool, self._width)
        self.pooled = block.pool.windows(*convolution.output).output
        instance = self._height * self._width * self._entries * a.dtype.itemsize
        self.size = max(1, BLOCK_BYTES // instance)  # instances of a block

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        """Every client with every block of its instances."""
        N = self._N
        return ((i, slice(k, min(k + self.size, N))) for i in range(self._n) for k in range(0, N, self.size))

    def pad(self, a: np.ndarray) -> np.ndarray:
        """Images with the zeros around them, contiguous."""
        (top, left), (bottom, right) = self._convolution.before, self._convolution.after
        if top + left + bottom + right:
            a = np.pad(a, ((0, 0), (0, 0), (top, bottom), (left, right), (0, 0)))
        return np.ascontiguousarray(a)  # np.pad keeps the memory order of a transposed view

    def unpad(self, a: np.ndarray) -> np.ndarray:
        """The adjoint of `pad`: images without the zeros around them."""
        (top, left), (h, w) = self._convolution.before, self._convolution.image
        return a[:, :, top : top + h, left : left + w]

    def rows(self, times: int) -> np.ndarray:
        """A buffer for the windows of a block, `times` per row.  # (B, Ho Wo, times K)"""
        return self._buffer(times * self._entries)

    def pixels(self, times: int) -> np.ndarray:
        """A buffer for outputs of the convolution, `times` per pixel.  # (B, Ho Wo, times O)"""
        return self._buffer(times * self._outputs)

    def _buffer(self, width: int) -> np.ndarray:
        return np.empty((min(self.size, self._N), self._height * self._width, width), dtype=self._dtype)

    def image(self, pixels: np.ndarray) -> np.ndarray:
        """(B, Ho Wo, O) as (B, Ho, Wo, O)."""
        return pixels.reshape(-1, self._height, self._width, pixels.shape[-1])


ConvSaved = tuple[_Blocks, np.ndarray, np.ndarray]


def _flat(a: np.ndarray) -> np.ndarray:
    """(B, Ho Wo, width) as one matrix."""
    return a.reshape(-1, a.shape[-1])


# ------------------------------------------------------------------------------------------------------ compiled loops
#
# `place` is a kernel (kh, kw), its stride (sh, sw) and the number of windows (ho, wo) of an image. Offsets are
# unsigned: Numba then omits the test for negative indices, and the copies are ten times faster.


@njit(cache=True, nogil=True)
def take_windows(a, place, rows, column):
    """rows[b, window, column : column + kh kw C] <- the window."""
    (kh, kw), (sh, sw), (ho, wo) = place
    B, H, W, C = a.shape
    images, flat = a.reshape(-1), rows.reshape(-1)
    width, length = np.uint64(rows.shape[2]), np.uint64(kw * C)
    for b in range(B):
        for p in range(ho):
            for q in range(wo):
                to = np.uint64((b * ho + p) * wo + q) * width + np.uint64(column)
                for i in range(kh):
                    begin = np.uint64(((b * H + p * sh + i) * W + q * sw) * C)
                    for c in range(length):
                        flat[to + c] = images[begin + c]
                    to += length


@njit(cache=True, nogil=True)
def add_windows(rows, place, a):
    """The adjoint of `take_windows`: a <- the sum of all windows where they lie on the image."""
    (kh, kw), (sh, sw), (ho, wo) = place
    B, H, W, C = a.shape
    images, flat = a.reshape(-1), rows.reshape(-1)
    width, length = np.uint64(rows.shape[2]), np.uint64(kw * C)
    images[:] = 0
    for b in range(B):
        for p in range(ho):
            for q in range(wo):
                start = np.uint64((b * ho + p) * wo + q) * width
                for i in range(kh):
                    begin = np.uint64(((b * H + p * sh + i) * W + q * sw) * C)
                    for c in range(length):
                        images[begin + c] += flat[start + c]
                    start += length


@njit(cache=True, nogil=True)
def max_pool(z, bias, relu, pool, out, argmax):
    """out <- max over each window of z + bias (of its positive part if relu); argmax <- its first position in the
    window, -1 if ReLU is inactive."""
    (kh, kw), (sh, sw) = pool
    B, P, Q, outputs = out.shape
    H, W = z.shape[1:3]
    pixels, best, place, length = z.reshape(-1), out.reshape(-1), argmax.reshape(-1), np.uint64(outputs)
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                to = np.uint64((b * P + p) * Q + q) * length
                begin = np.uint64((b * H + p * sh) * W + q * sw) * length
                for o in range(length):
                    best[to + o] = pixels[begin + o] + bias[o]
                    place[to + o] = 0
                for k in range(1, kh * kw):
                    other = begin + np.uint64(k // kw * W + k % kw) * length
                    for o in range(length):
                        v = pixels[other + o] + bias[o]
                        wins = (v > best[to + o]) | (v != v)
                        best[to + o] = v if wins else best[to + o]
                        place[to + o] = k if wins else place[to + o]
                if relu:
                    for o in range(length):
                        inactive = best[to + o] <= 0
                        best[to + o] = 0 if inactive else best[to + o]
                        place[to + o] = -1 if inactive else place[to + o]


@njit(cache=True, nogil=True)
def gather_argmax(z_dot, bias_dot, argmax, pool, out):
    """out <- z_dot + bias_dot at the positions `argmax`, 0 where that is -1."""
    (kh, kw), (sh, sw) = pool
    B, P, Q, outputs = out.shape
    H, W = z_dot.shape[1:3]
    pixels, chosen, place, length = z_dot.reshape(-1), out.reshape(-1), argmax.reshape(-1), np.uint64(outputs)
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                to = np.uint64((b * P + p) * Q + q) * length
                begin = np.uint64((b * H + p * sh) * W + q * sw) * length
                for o in range(length):
                    chosen[to + o] = 0
                for k in range(kh * kw):
                    other = begin + np.uint64(k // kw * W + k % kw) * length
                    for o in range(length):
                        chosen[to + o] = pixels[other + o] + bias_dot[o] if place[to + o] == k else chosen[to + o]


@njit(cache=True, nogil=True)
def scatter_argmax(delta, argmax, pool, out, column, sums):
    """The adjoint of `gather_argmax`: out[b, pixel, column : column + outputs] <- delta at the positions `argmax`, 0
    elsewhere; sums[b] <- the sum over pixels, for the bias."""
    (kh, kw), (sh, sw), W = pool
    B, P, Q, outputs = delta.shape
    disjoint = sh >= kh and sw >= kw
    if not disjoint or P * kh * Q * kw < out.shape[1]:
        out[:, :, column : column + outputs] = 0
    sums[...] = 0
    back, place, pixels, total = delta.reshape(-1), argmax.reshape(-1), out.reshape(-1), sums.reshape(-1)
    length, width = np.uint64(outputs), np.uint64(out.shape[2])
    for b in range(B):
        sum_to = np.uint64(b) * length
        for p in range(P):
            for q in range(Q):
                begin = np.uint64((b * P + p) * Q + q) * length
                for o in range(length):
                    total[sum_to + o] += back[begin + o] if place[begin + o] >= 0 else 0
                for k in range(kh * kw):
                    pixel = b * out.shape[1] + (p * sh + k // kw) * W + q * sw + k % kw
                    to = np.uint64(pixel) * width + np.uint64(column)
                    if disjoint:
                        for o in range(length):
                            pixels[to + o] = back[begin + o] if place[begin + o] == k else 0
                    else:
                        for o in range(length):
                            pixels[to + o] += back[begin + o] if place[begin + o] == k else 0
