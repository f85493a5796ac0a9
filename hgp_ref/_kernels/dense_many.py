"""Many small dense Bernoulli graphs in Numba: the words and matrices of dense, with LLVM's vectors along steps.

A tile holds TILE steps, `stride` apart; of each pair (j, i) the words of all its steps lie side by side.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.compiled import njit
from hgp_ref.philox import philox4x32, step_words

TILE = 64
CLIENTS = 12  # at most so many clients, and
STEPS = 16  # at least so many steps, make this faster than dense


@njit(cache=True, nogil=True)
def _words(block, j, first, stride, stream, k0, k1, words):
    """words[r, t] of the pairs (j, 4 block + r) at step first + t stride."""
    for t in range(TILE):
        c2, c3 = step_words(first + t * stride, stream)
        w0, w1, w2, w3 = philox4x32(block, j, c2, c3, k0, k1)
        words[0, t] = w0
        words[1, t] = w1
        words[2, t] = w2
        words[3, t] = w3


@njit(cache=True, nogil=True)
def _compare(words, r, floor, last, out):
    for t in range(TILE):
        out[t] = (words[r, t] | floor) <= last


@njit(cache=True, nogil=True)
def fill(last, floor, symmetric, stream, k0, k1, first, stride, words, out):
    """Adjacency of steps first + t stride, t < TILE, into out (n, n, TILE), [i, j, t] = edge j -> i."""
    n = last.shape[0]
    for j in range(n):
        begin = j if symmetric else 0
        for block in range(begin // 4, (n + 3) // 4):
            _words(block, j, first, stride, stream, k0, k1, words)
            for i in range(max(begin, 4 * block), min(n, 4 * block + 4)):
                _compare(words, i % 4, floor, last[i, j], out[i, j])
                if symmetric:
                    out[j, i] = out[i, j]


@njit(cache=True, nogil=True)
def weigh(adjacency, degree, share, weight):
    """weight[i, j] = 1 / outdegree of j on edges, for every step of a tile; degree and share are scratch."""
    n = adjacency.shape[0]
    for j in range(n):
        degree[:] = 0
        for i in range(n):
            for t in range(TILE):
                degree[t] += adjacency[i, j, t]
        for t in range(TILE):
            share[t] = 1.0 / degree[t]
        for i in range(n):
            for t in range(TILE):
                weight[i, j, t] = share[t] * adjacency[i, j, t]


@njit(cache=True, nogil=True)
def mixing(last, floor, symmetric, stream, k0, k1, first, out):
    """Mixing matrices of steps first, first + 1, ... into out (steps, n, n): 1 / outdegree of the sender on edges."""
    n = last.shape[0]
    words = np.empty((4, TILE), np.uint32)
    adjacency = np.empty((n, n, TILE), np.uint8)
    degree, share = np.empty(TILE, np.int32), np.empty(TILE, np.float64)
    weight = np.empty((n, n, TILE), np.float64)
    by_pair, flat = weight.reshape(n * n, TILE), out.reshape(-1, n * n)
    for begin in range(0, out.shape[0], TILE):
        fill(last, floor, symmetric, stream, k0, k1, first + begin, 1, words, adjacency)
        weigh(adjacency, degree, share, weight)
        for t in range(min(TILE, out.shape[0] - begin)):
            for e in range(n * n):
                flat[begin + t, e] = by_pair[e, t]


@njit(cache=True, nogil=True)
def union(last, floor, symmetric, stream, k0, k1, first, count, out):
    """Add the edges of steps first .. first + count - 1 to out (n, n) uint8."""
    n = last.shape[0]
    words = np.empty((4, TILE), np.uint32)
    adjacency = np.empty((n, n, TILE), np.uint8)
    for begin in range(0, count, TILE):
        fill(last, floor, symmetric, stream, k0, k1, first + begin, 1, words, adjacency)
        for i in range(n):
            for j in range(n):
                for t in range(min(TILE, count - begin)):
                    out[i, j] |= adjacency[i, j, t]
