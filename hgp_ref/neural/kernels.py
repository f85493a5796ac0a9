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
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                best, place = out[b, p, q], which[b, p, q]
                first = z[b, p * sh, q * sw]
                for o in range(outputs):
                    best[o] = first[o] + bias[o]
                    place[o] = 0
                for k in range(1, kh * kw):
                    other = z[b, p * sh + k // kw, q * sw + k % kw]
                    for o in range(outputs):
                        v = other[o] + bias[o]
                        wins = (v > best[o]) | (v != v)
                        best[o] = v if wins else best[o]
                        place[o] = k if wins else place[o]
                if relu:
                    for o in range(outputs):
                        dead = best[o] <= 0
                        best[o] = 0 if dead else best[o]
                        place[o] = -1 if dead else place[o]


@njit(cache=True, nogil=True)
def follow(z_dot, bias_dot, which, pool, out):
    """out <- z_dot + bias_dot at the chosen places, 0 where there is none."""
    (kh, kw), (sh, sw) = pool
    B, P, Q, outputs = out.shape
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                moved, place = out[b, p, q], which[b, p, q]
                for o in range(outputs):
                    moved[o] = 0
                for k in range(kh * kw):
                    other = z_dot[b, p * sh + k // kw, q * sw + k % kw]
                    for o in range(outputs):
                        moved[o] = other[o] + bias_dot[o] if place[o] == k else moved[o]


@njit(cache=True, nogil=True)
def give_back(delta, which, pool, out, column, sums):
    """out[b, pixel, column : column + outputs] <- delta at the chosen places, 0 elsewhere: the adjoint of `follow`
    in z; sums[b] <- that in bias."""
    (kh, kw), (sh, sw), width = pool
    B, P, Q, outputs = delta.shape
    disjoint = sh >= kh and sw >= kw
    if not disjoint or P * kh * Q * kw < out.shape[1]:
        out[:, :, column : column + outputs] = 0
    sums[...] = 0
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                back, place = delta[b, p, q], which[b, p, q]
                for o in range(outputs):
                    sums[b, o] += back[o] if place[o] >= 0 else 0
                for k in range(kh * kw):
                    pixel = out[b, (p * sh + k // kw) * width + q * sw + k % kw, column : column + outputs]
                    if disjoint:
                        for o in range(outputs):
                            pixel[o] = back[o] if place[o] == k else 0
                    else:
                        for o in range(outputs):
                            pixel[o] += back[o] if place[o] == k else 0
