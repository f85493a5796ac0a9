"""Host kernels: products of mixing matrices and one step of a sparse mixing matrix."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def compose(W: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """P_c = W[(c+1)S-1] ... W[cS] for each call c, and the number of edges that are not self-loops in each call.

    W is (calls * S, n, n). Rows are accumulated as in P[i, :] += W[i, k] P[k, :], zeros skipped: n nnz(W) per step.
    """
    n = W.shape[1]
    calls = W.shape[0] // steps
    P = np.empty((calls, n, n))
    messages = np.zeros(calls, dtype=np.int64)
    old = np.empty((n, n))
    for c in range(calls):
        new = P[c]
        for s in range(steps):
            step = W[c * steps + s]
            if s == 0:
                new[:] = step
            else:
                old[:] = new
                new[:] = 0.0
            for i in range(n):
                for k in range(n):
                    weight = step[i, k]
                    if weight != 0.0:
                        if i != k:
                            messages[c] += 1
                        if s > 0:
                            for j in range(n):
                                new[i, j] += weight * old[k, j]
    return P, messages


@njit(cache=True, nogil=True)
def csr_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out[i] = sum over the senders j of row i of weights[i, j] z[j], for z and out of shape (n, d)."""
    n, d = z.shape
    for i in range(n):
        for c in range(d):
            out[i, c] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            weight = z.dtype.type(weights[e])
            for c in range(d):
                out[i, c] += weight * z[j, c]


@njit(cache=True, nogil=True)
def csr_vector_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """W omega for a vector omega, in float64: Push-Sum's weights."""
    out = np.zeros(omega.shape[0])
    for i in range(omega.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            out[i] += weights[e] * omega[indices[e]]
    return out


@njit(cache=True, nogil=True)
def padded_rows(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """A CSR matrix as (n, width) senders and weights, short rows padded by weight 0: for libraries without CSR."""
    n = indptr.shape[0] - 1
    senders = np.zeros((n, width), dtype=np.int64)
    padded = np.zeros((n, width))
    for i in range(n):
        for k in range(indptr[i + 1] - indptr[i]):
            senders[i, k] = indices[indptr[i] + k]
            padded[i, k] = weights[indptr[i] + k]
    return senders, padded
