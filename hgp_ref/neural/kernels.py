"""Compiled steps of convolutions on NumPy arrays: windows as rows and back, and the choice that ReLU and pooling make.

Images are (B, H, W, C), B instances at a time; every loop runs over instances by itself, so nothing depends on B. The
innermost loops run over memory in order: kw C numbers of an image's row, or the channels of a pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.backend import Namespace
from hgp_ref.neural.layers import Conv2d, Into, Layer, Linear, MaxPool2d, Parameters, ReLU, Shape, apply

# A window: kernel (kh, kw), stride (sh, sw), windows (ho, wo) per image.
# Offsets are unsigned, for which Numba leaves out the test for negative ones: the copies are ten times faster.


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
def choose(z, bias, relu, pool, out, which):
    """out <- max over each window of z + bias (of its positive part if relu); which <- the first place of it, -1 for
    none: a window that ReLU sets to zero."""
    (kh, kw), (sh, sw) = pool
    B, P, Q, outputs = out.shape
    H, W = z.shape[1:3]
    pixels, best, place, length = z.reshape(-1), out.reshape(-1), which.reshape(-1), np.uint64(outputs)
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
                        dead = best[to + o] <= 0
                        best[to + o] = 0 if dead else best[to + o]
                        place[to + o] = -1 if dead else place[to + o]


@njit(cache=True, nogil=True)
def follow(z_dot, bias_dot, which, pool, out):
    """out <- z_dot + bias_dot at the chosen places, 0 where there is none."""
    (kh, kw), (sh, sw) = pool
    B, P, Q, outputs = out.shape
    H, W = z_dot.shape[1:3]
    pixels, moved, place, length = z_dot.reshape(-1), out.reshape(-1), which.reshape(-1), np.uint64(outputs)
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                to = np.uint64((b * P + p) * Q + q) * length
                begin = np.uint64((b * H + p * sh) * W + q * sw) * length
                for o in range(length):
                    moved[to + o] = 0
                for k in range(kh * kw):
                    other = begin + np.uint64(k // kw * W + k % kw) * length
                    for o in range(length):
                        moved[to + o] = pixels[other + o] + bias_dot[o] if place[to + o] == k else moved[to + o]


@njit(cache=True, nogil=True)
def give_back(delta, which, pool, out, column, sums):
    """out[b, pixel, column : column + outputs] <- delta at the chosen places, 0 elsewhere: the adjoint of `follow`
    in z; sums[b] <- that in bias."""
    (kh, kw), (sh, sw), W = pool
    B, P, Q, outputs = delta.shape
    disjoint = sh >= kh and sw >= kw
    if not disjoint or P * kh * Q * kw < out.shape[1]:
        out[:, :, column : column + outputs] = 0
    sums[...] = 0
    back, place, pixels, total = delta.reshape(-1), which.reshape(-1), out.reshape(-1), sums.reshape(-1)
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


# ----------------------------------------------------------------------------------------------------
# Conv2d, ReLU and MaxPool2d in one step on NumPy arrays, a block of instances at a time.
#
# With the windows of a block as rows A, their movement Ȧ, and δ given back to the pixels that were chosen:
#
#     z = A W^T + b -> choose          ż = [A | Ȧ] [Ẇ | W]^T + ḃ -> at the same places
#     d_W = δ^T A,  δ' = δ W           ḋ_W = δ̇^T A + δ^T Ȧ,    δ̇' = [δ̇ | δ] [W; Ẇ]
#
# so that each step is one or two products of matrices that lie in a cache.


BLOCK_BYTES = 2**20  # windows of one block: they stay in a cache between being taken and being multiplied

# sizes, a with the zeros around it, and which entry of its pooling window each output is (-1: none)
ConvTape = tuple["_Place", np.ndarray, np.ndarray]


class ConvBlock(Layer):
    """`conv`, ReLU if `relu`, and `pool`."""

    def __init__(self, conv: Conv2d, relu: bool, pool: MaxPool2d) -> None:
        self.conv, self.relu, self.pool = conv, relu, pool
        self.shapes, self.fan_in = conv.shapes, conv.fan_in

    def output_shape(self, shape: Shape) -> Shape:
        return self.pool.output_shape(self.conv.output_shape(shape))

    def forward(self, p: Parameters, a: np.ndarray, xp: Namespace) -> tuple[np.ndarray, ConvTape]:
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

    def backward(self, p: Parameters, kept: ConvTape, delta: np.ndarray, onward: bool, xp: Namespace,
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

    def pull(self, p: Parameters, kept: ConvTape, delta: np.ndarray, xp: Namespace) -> np.ndarray:
        at, a, which = kept
        delta, weight, back = np.ascontiguousarray(delta), self.conv.matrix(p[0], xp), np.empty_like(a)
        rows, pixels, sums = at.rows(1), at.pixels(1), np.empty((at.size, self.conv.outputs), dtype=a.dtype)
        for i, part in at.blocks():
            B = part.stop - part.start
            give_back(delta[i, part], which[i, part], at.given, pixels[:B], 0, sums[:B])
            np.matmul(at.flat(pixels[:B]), weight[i], out=at.flat(rows[:B]))
            add_windows(rows[:B], at.windows, back[i, part])
        return at.unframed(back)

    def tangent(self, p: Parameters, kept: ConvTape, p_dot: Parameters, a_dot: np.ndarray | None,
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

    def backward_tangent(self, p: Parameters, kept: ConvTape, p_dot: Parameters, a_dot: np.ndarray | None,
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


# ----------------------------------------------------------------------------------------------------
# Linear and ReLU in one step on NumPy arrays: z = max(a W^T + b, 0), and the passes of `linear` behind it.
#
# The two products of ḋ_W = δ̇^T a + δ^T ȧ are one: [δ̇; δ]^T [a; ȧ], instances one above the other.


LinearTape = tuple[np.ndarray, np.ndarray | None]  # a, and where ReLU sets to zero


class LinearBlock(Layer):
    """`linear`, and ReLU behind it if `relu`."""

    def __init__(self, linear: Linear, relu: bool) -> None:
        self.linear, self.relu = linear, relu
        self.shapes, self.fan_in = linear.shapes, linear.fan_in

    def output_shape(self, shape: Shape) -> Shape:
        return self.linear.output_shape(shape)

    def forward(self, p: Parameters, a: np.ndarray, xp: Namespace) -> tuple[np.ndarray, LinearTape]:
        z = apply(a, p[0], xp)
        z += p[1][:, None, :]
        dead = z <= 0 if self.relu else None
        return _without(z, dead), (a, dead)

    def backward(self, p: Parameters, kept: LinearTape, delta: np.ndarray, onward: bool, xp: Namespace,
                 into: Into = None) -> tuple[list[np.ndarray], np.ndarray | None]:  # fmt: skip
        a, dead = kept
        delta = _alive(delta, dead)
        grads = into if into is not None else [np.empty_like(part) for part in p]
        np.matmul(delta.swapaxes(1, 2), a, out=grads[0])
        np.sum(delta, axis=1, out=grads[1])
        return grads, np.matmul(delta, p[0]) if onward else None

    def pull(self, p: Parameters, kept: LinearTape, delta: np.ndarray, xp: Namespace) -> np.ndarray:
        return np.matmul(_alive(delta, kept[1]), p[0])

    def tangent(self, p: Parameters, kept: LinearTape, p_dot: Parameters, a_dot: np.ndarray | None,
                xp: Namespace) -> np.ndarray:  # fmt: skip
        a, dead = kept
        z_dot = apply(a, p_dot[0], xp)
        z_dot += p_dot[1][:, None, :]
        if a_dot is not None:
            z_dot += apply(a_dot, p[0], xp)
        return _without(z_dot, dead)

    def backward_tangent(self, p: Parameters, kept: LinearTape, p_dot: Parameters, a_dot: np.ndarray | None,
                         delta: np.ndarray, delta_dot: np.ndarray, onward: bool, xp: Namespace,
                         into: Into = None) -> tuple[list[np.ndarray], np.ndarray | None]:  # fmt: skip
        a, dead = kept
        N = a.shape[1]
        both = np.concatenate([delta_dot, delta], axis=1)  # (n, 2N, out)
        _without(both[:, :N], dead)
        _without(both[:, N:], dead)
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


def _without(z: np.ndarray, dead: np.ndarray | None) -> np.ndarray:
    """z with zeros where `dead`, in place."""
    if dead is not None:
        np.copyto(z, 0, where=dead)
    return z


def _alive(delta: np.ndarray, dead: np.ndarray | None) -> np.ndarray:
    """The same of `delta`, which stays as it is."""
    return delta if dead is None else _without(delta.copy(), dead)


# ----------------------------------------------------------------------------------------------------
# Layers for NumPy that do the work of several: parameters, ReLU and pooling in one step, per-client BLAS products.
#
# The text of `linear`, `conv`, `activations` and `pooling` says what is computed; here is the same with less memory
# traffic. A convolution goes through a client's instances in blocks whose windows fit a cache, and neither windows nor
# anything before the pooling is ever stored for all instances. Blocks depend on the layer alone, so that a client's
# sums are made in the same order whoever shares its array.


def fuse(layers: Sequence[Layer]) -> list[Layer]:
    """The same map with Linear [ReLU] and Conv2d [ReLU] [MaxPool2d] as one layer each; other layers as they are.

    A subclass is another layer: what it computes is its own.
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
