"""Dense Bernoulli graphs in Numba: the edge j -> i is there at step s when its word does not exceed last[i, j].

The word of (j, i) is word i mod 4 of the Philox counter (block i div 4, client j, step s). Counters run over lanes, the pairs
(step, sender) of a tile, so that LLVM vectorises Philox for one large graph and for many small ones alike.
A rate t / 2^32 with 1 <= t <= 2^32 is held as last = t - 1 in 32 bits, and rate 1 is exact. Rate 0, which has no such form, is
held as last = 0 with floor = 1: the words are or-ed with floor, so that none of them is 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hgp_ref.philox import philox4x32, step_words

LANES = 512


@njit(cache=True, nogil=True)
def _words(block, client, c2, c3, k0, k1, lanes, out):
    for a in range(lanes):
        w0, w1, w2, w3 = philox4x32(block, client[a], c2[a], c3[a], k0, k1)
        out[0, a] = w0
        out[1, a] = w1
        out[2, a] = w2
        out[3, a] = w3


@njit(cache=True, nogil=True)
def _lanes(n, first, steps, stream, client, c2, c3):
    """Lane t n + j is sender j at step first + t."""
    for t in range(steps):
        low, high = step_words(first + t, stream)
        for j in range(n):
            client[t * n + j] = j
            c2[t * n + j] = low
            c3[t * n + j] = high


@njit(cache=True, nogil=True)
def _tile(last, floor, symmetric, steps, client, c2, c3, k0, k1, words, out):
    """Adjacency of the lanes' steps into out (steps, n, n), [t, i, j] = edge j -> i."""
    n = last.shape[0]
    for block in range((n + 3) // 4):
        lanes = steps * n
        if symmetric and steps == 1:
            lanes = min(n, 4 * block + 4)  # only j <= i is used
        _words(block, client, c2, c3, k0, k1, lanes, words)
        for r in range(min(4, n - 4 * block)):
            i = 4 * block + r
            width = i + 1 if symmetric else n
            for t in range(steps):
                for j in range(width):
                    out[t, i, j] = (words[r, t * n + j] | floor) <= last[i, j]
    if symmetric:
        for t in range(steps):
            for i in range(n):
                for j in range(i):
                    out[t, j, i] = out[t, i, j]


@njit(cache=True, nogil=True)
def _weights(adjacency, degree, out):
    """out[i, j] = adjacency[i, j] / (column sum j)."""
    n = adjacency.shape[0]
    degree[:] = 0
    for i in range(n):
        for j in range(n):
            degree[j] += adjacency[i, j]
    for i in range(n):
        for j in range(n):
            out[i, j] = adjacency[i, j] / degree[j]


@njit(cache=True, nogil=True)
def adjacencies(last, floor, symmetric, stream, k0, k1, first, count):
    """(count, n, n) booleans, [t, i, j] = is there an edge j -> i at step first + t."""
    n = last.shape[0]
    tile = max(1, min(count, LANES // n))
    client, c2, c3 = np.empty((3, tile * n), np.uint32)
    words = np.empty((4, tile * n), np.uint32)
    out = np.empty((count, n, n), np.bool_)
    for t in range(0, count, tile):
        steps = min(tile, count - t)
        _lanes(n, first + t, steps, stream, client, c2, c3)
        _tile(last, floor, symmetric, steps, client, c2, c3, k0, k1, words, out[t:])
    return out


@njit(cache=True, nogil=True)
def mixing(last, floor, symmetric, stream, k0, k1, first, count):
    """(count, n, n) mixing matrices: the adjacency divided by the out-degree of each sender."""
    n = last.shape[0]
    tile = max(1, min(count, LANES // n))
    client, c2, c3 = np.empty((3, tile * n), np.uint32)
    words = np.empty((4, tile * n), np.uint32)
    adjacency = np.empty((tile, n, n), np.bool_)
    degree = np.empty(n, np.float64)
    out = np.empty((count, n, n), np.float64)
    for t in range(0, count, tile):
        steps = min(tile, count - t)
        _lanes(n, first + t, steps, stream, client, c2, c3)
        _tile(last, floor, symmetric, steps, client, c2, c3, k0, k1, words, adjacency)
        for a in range(steps):
            _weights(adjacency[a], degree, out[t + a])
    return out


@njit(cache=True, nogil=True)
def union(last, floor, symmetric, stream, k0, k1, first, count):
    """(n, n) booleans: the edges that occur in at least one of the steps first .. first + count - 1."""
    n = last.shape[0]
    tile = max(1, min(count, LANES // n))
    client, c2, c3 = np.empty((3, tile * n), np.uint32)
    words = np.empty((4, tile * n), np.uint32)
    adjacency = np.empty((tile, n, n), np.bool_)
    out = np.zeros((n, n), np.bool_)
    for t in range(0, count, tile):
        steps = min(tile, count - t)
        _lanes(n, first + t, steps, stream, client, c2, c3)
        _tile(last, floor, symmetric, steps, client, c2, c3, k0, k1, words, adjacency)
        for a in range(steps):
            out |= adjacency[a]
    return out


@njit(cache=True, nogil=True)
def neighbours(last, floor, symmetric, stream, k0, k1, step, sender):
    """(n,) booleans: the receivers of one sender, from that sender's words alone (and, if symmetric, the smaller clients')."""
    n = last.shape[0]
    out = np.empty(n, np.bool_)
    c2, c3 = step_words(step, stream)
    for i in range(n):
        a, b = (min(i, sender), max(i, sender)) if symmetric else (sender, i)
        words = philox4x32(b // 4, a, c2, c3, k0, k1)
        word = words[0]
        for r in range(1, 4):
            if b % 4 == r:
                word = words[r]
        out[i] = (word | floor) <= last[i, sender]
    return out


@njit(cache=True, nogil=True)
def rates(n, low, span, symmetric, stream, k0, k1):
    """last (n, n) uint32 = t - 1 with t uniform on low .. low + span, 1 <= low; all ones (rate 1) on the diagonal."""
    client, c2, c3 = np.empty((3, n), np.uint32)
    words = np.empty((4, n), np.uint32)
    last = np.empty((n, n), np.uint32)
    _lanes(n, 0, 1, stream, client, c2, c3)
    for block in range((n + 3) // 4):
        _words(block, client, c2, c3, k0, k1, n, words)
        for r in range(min(4, n - 4 * block)):
            i = 4 * block + r
            for j in range(n):  # word (span + 1) < 2^64 because span <= 2^32 - 1
                offset = (np.uint64(words[r, j]) * (span + np.uint64(1))) >> np.uint64(32)
                last[i, j] = np.uint32(low - np.uint64(1) + offset)
            last[i, i] = np.uint32(0xFFFFFFFF)
    if symmetric:
        for i in range(n):
            for j in range(i):
                last[j, i] = last[i, j]
    return last
