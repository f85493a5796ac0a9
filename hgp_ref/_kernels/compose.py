"""Products of the mixing matrices of a call, and how many messages they stand for."""

from __future__ import annotations

import numpy as np
from numba import njit

DENSE_SPEEDUP = 8  # a multiply-add of a dense product takes about 1/8 of one in a sparse step


def compose(W: np.ndarray, steps: int, edges: float) -> np.ndarray:
    """P_c = W[(c+1)S-1] ... W[cS] for each call c; W is (calls * S, n, n), the result (calls, n, n).

    Dense matrices are multiplied by BLAS, all calls at once; where fewer than one entry in DENSE_SPEEDUP is an edge
    (`edges` expected in each), skipping the others is cheaper.
    """
    n = W.shape[-1]
    W = W.reshape(-1, steps, n, n)
    if DENSE_SPEEDUP * edges < n * n:
        return compose_edges(W)
    P = W[:, 0]
    for s in range(1, steps):
        P = W[:, s] @ P
    return P


@njit(cache=True, nogil=True)
def compose_edges(W: np.ndarray) -> np.ndarray:
    """The same products for W of shape (calls, S, n, n), P[i, :] += W[i, k] P[k, :] on edges: n nnz(W) per step."""
    calls, steps, n, _ = W.shape
    P = W[:, 0].copy()
    old = np.empty((n, n))
    for c in range(calls):
        new = P[c]
        for s in range(1, steps):
            old[:] = new
            new[:] = 0.0
            for i in range(n):
                for k in range(n):
                    weight = W[c, s, i, k]
                    if weight != 0.0:
                        for j in range(n):
                            new[i, j] += weight * old[k, j]
    return P


@njit(cache=True, nogil=True)
def count_messages(W: np.ndarray, steps: int) -> np.ndarray:
    """The number of edges that are not self-loops in each call, for W of shape (calls * S, n, n)."""
    n = W.shape[1]
    messages = np.empty(W.shape[0] // steps, dtype=np.int64)
    flat = W.reshape(W.size)
    for c in range(messages.size):
        edges = 0
        for e in range(c * steps * n * n, (c + 1) * steps * n * n):
            edges += flat[e] != 0.0
        for t in range(c * steps, (c + 1) * steps):
            for i in range(n):
                edges -= W[t, i, i] != 0.0
        messages[c] = edges
    return messages
