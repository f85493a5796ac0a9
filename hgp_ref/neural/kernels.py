"""Compiled steps of convolutions on NumPy arrays: windows as rows and back, and the choice that ReLU and pooling make.

Images are (B, H, W, C), B instances at a time; every loop runs over instances by itself, so nothing depends on B. The
innermost loops run over memory in order: kw C numbers of an image's row, or the channels of a pixel.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.compiled import njit

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
