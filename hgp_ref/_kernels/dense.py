"""Dense Bernoulli graphs in Numba: the edge j -> i is there at step s when its word does not exceed last[i, j].

The word of (j, i) is word i mod 4 of the Philox counter (block i div 4, client j, step s); of an undirected pair, that
of (min, max). A rate t / 2^32 with 1 <= t <= 2^32 is held as last = t - 1 in 32 bits, so that rate 1 is exact. Rate 0,
which has no such form, is held as last = 0 with floor = 1: words are or-ed with floor, and none of them is 0.

LLVM vectorises the loops over senders. Many small graphs are sampled by dense_many, over steps, with the same words.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.compiled import njit
from hgp_ref.philox import philox4x32, step_words

LANES = 16  # senders are padded to a multiple of this, so that no scalar remainder is left


@njit(cache=True, nogil=True)
def _words(block, c2, c3, k0, k1, width, words):
    """words[r, j] of the pairs (j, 4 block + r), r = 0 .. 3, for the senders j < width."""
    for j in range(width):
        w0, w1, w2, w3 = philox4x32(block, j, c2, c3, k0, k1)
        words[0, j] = w0
        words[1, j] = w1
        words[2, j] = w2
        words[3, j] = w3


@njit(cache=True, nogil=True)
def _compare(words, floor, last, i, width, out):
    r = i % 4
    for j in range(width):
        out[i, j] = (words[r, j] | floor) <= last[i, j]


@njit(cache=True, nogil=True)
def _pad(width):
    return (width + LANES - 1) // LANES * LANES


@njit(cache=True, nogil=True)
def _fill(last, floor, symmetric, c2, c3, k0, k1, words, out):
    """Adjacency of one step into out (n, n) uint8, [i, j] = edge j -> i; words is scratch (4, _pad(n))."""
    n = last.shape[0]
    for block in range((n + 3) // 4):
        top = min(n, 4 * block + 4)
        width = top if symmetric else n  # only j <= i is drawn of undirected pairs
        _words(block, c2, c3, k0, k1, _pad(width), words)
        for i in range(4 * block, top):
            _compare(words, floor, last, i, width, out)
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[j, i] = out[i, j]


@njit(cache=True, nogil=True)
def adjacencies(last, floor, symmetric, stream, k0, k1, first, out):
    """Adjacency of steps first, first + 1, ... into out (steps, n, n) uint8, [t, i, j] = edge j -> i."""
    n = last.shape[0]
    words = np.empty((4, _pad(n)), np.uint32)
    for t in range(out.shape[0]):
        c2, c3 = step_words(first + t, stream)
        _fill(last, floor, symmetric, c2, c3, k0, k1, words, out[t])


@njit(cache=True, nogil=True)
def _share(adjacency, degree, share, out):
    """out[i, j] = 1 / (column sum j) where adjacency[i, j], else 0."""
    n = adjacency.shape[0]
    for j in range(n):
        degree[j] = 0
    for i in range(n):
        for j in range(n):
            degree[j] += adjacency[i, j]
    for j in range(n):
        share[j] = 1.0 / degree[j]
    for i in range(n):
        for j in range(n):
            out[i, j] = share[j] if adjacency[i, j] else 0.0


@njit(cache=True, nogil=True)
def mixing(last, floor, symmetric, stream, k0, k1, first, out):
    """Mixing matrices of steps first, first + 1, ... into out (steps, n, n): 1 / outdegree of the sender on edges."""
    n = last.shape[0]
    words = np.empty((4, _pad(n)), np.uint32)
    adjacency = np.empty((n, n), np.uint8)
    degree, share = np.empty(n, np.int32), np.empty(n, np.float64)
    for t in range(out.shape[0]):
        c2, c3 = step_words(first + t, stream)
        _fill(last, floor, symmetric, c2, c3, k0, k1, words, adjacency)
        _share(adjacency, degree, share, out[t])


@njit(cache=True, nogil=True)
def union(last, floor, symmetric, stream, k0, k1, first, count, out):
    """Add the edges of steps first .. first + count - 1 to out (n, n) uint8."""
    n = last.shape[0]
    words = np.empty((4, _pad(n)), np.uint32)
    adjacency = np.empty((n, n), np.uint8)
    for t in range(count):
        c2, c3 = step_words(first + t, stream)
        _fill(last, floor, symmetric, c2, c3, k0, k1, words, adjacency)
        for i in range(n):
            for j in range(n):
                out[i, j] |= adjacency[i, j]


@njit(cache=True, nogil=True)
def neighbours(last, floor, symmetric, stream, k0, k1, step, sender):
    """(n,) booleans: the receivers of one sender, from its own words (and, of undirected pairs, smaller clients')."""
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
def rates(low, span, symmetric, stream, k0, k1, last):
    """last (n, n) uint32 = t - 1 with t uniform on low .. low + span, 1 <= low; rate 1 on the diagonal."""
    n = last.shape[0]
    words = np.empty((4, _pad(n)), np.uint32)
    c2, c3 = step_words(0, stream)
    for block in range((n + 3) // 4):
        _words(block, c2, c3, k0, k1, _pad(n), words)
        for i in range(4 * block, min(n, 4 * block + 4)):
            for j in range(n):  # word (span + 1) < 2^64 because span < 2^32
                offset = (np.uint64(words[i % 4, j]) * (span + np.uint64(1))) >> np.uint64(32)
                last[i, j] = np.uint32(low - np.uint64(1) + offset)
            last[i, i] = np.uint32(0xFFFFFFFF)
    if symmetric:
        for i in range(n):
            for j in range(i):
                last[j, i] = last[i, j]
