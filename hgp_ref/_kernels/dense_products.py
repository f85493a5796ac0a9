"""Products of the mixing matrices of many small dense Bernoulli graphs, drawn and multiplied in one sweep.

    P_c = P(first + (c + 1) S - 1) ... P(first + c S),   c = 0, 1, ...

LLVM's vectors run along the calls c: the matrices of step s of TILE calls are S steps apart, are drawn together and
multiply the products of those calls together. No single matrix is ever written to memory.
"""

from __future__ import annotations

import numpy as np

from hgp_ref._kernels.dense_many import TILE, fill, weigh
from hgp_ref.compiled import njit

CLIENTS = 8  # at most so many clients, and
CALLS = 32  # at least so many calls, make this faster than matrices one by one


@njit(cache=True, nogil=True)
def products(last, floor, symmetric, stream, k0, k1, first, steps, out, messages):
    """P_c into out (calls, n, n), and into messages (calls,) how many edges other than self-loops their graphs have."""
    n, calls = last.shape[0], out.shape[0]
    words = np.empty((4, TILE), np.uint32)
    adjacency = np.empty((n, n, TILE), np.uint8)
    degree, share = np.empty(TILE, np.int32), np.empty(TILE, np.float64)
    weight, product = np.empty((n, n, TILE), np.float64), np.empty((2, n, n, TILE), np.float64)
    edges = np.empty(TILE, np.int64)
    for begin in range(0, calls, TILE):
        edges[:] = -n * steps
        for s in range(steps):
            fill(last, floor, symmetric, stream, k0, k1, first + begin * steps + s, steps, words, adjacency)
            if s == 0:
                weigh(adjacency, degree, share, product[0])
            else:
                weigh(adjacency, degree, share, weight)
                _multiply(weight, product[(s - 1) % 2], product[s % 2])
            _count(adjacency, edges)
        last_product = product[(steps - 1) % 2]
        for t in range(min(TILE, calls - begin)):
            messages[begin + t] = edges[t]
            for i in range(n):
                for j in range(n):
                    out[begin + t, i, j] = last_product[i, j, t]


@njit(cache=True, nogil=True)
def _multiply(a, b, out):
    """out = a b, for every call of a tile."""
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            for t in range(TILE):
                out[i, j, t] = a[i, 0, t] * b[0, j, t]
            for k in range(1, n):
                for t in range(TILE):
                    out[i, j, t] += a[i, k, t] * b[k, j, t]


@njit(cache=True, nogil=True)
def _count(adjacency, edges):
    n = adjacency.shape[0]
    for i in range(n):
        for j in range(n):
            for t in range(TILE):
                edges[t] += adjacency[i, j, t]
