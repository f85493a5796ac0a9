"""Host kernels: products of mixing matrices and one step of a sparse mixing matrix."""

from __future__ import annotations

import numpy as np
from numba import njit

from hgp_ref.averaging.vectors import NARROW, WIDE, row_sum_narrow, row_sum_wide
from hgp_ref.threads import over_rows

DENSE_SPEEDUP = 8  # a multiply-add of a dense product takes about 1/8 of one in a sparse step


def compose(W: np.ndarray, steps: int) -> np.ndarray:
    """P_c = W[(c+1)S-1] ... W[cS] for each call c; W is (calls * S, n, n), the result (calls, n, n).

    Dense matrices are multiplied by BLAS, all calls at once; where fewer than one entry in 1/DENSE_SPEEDUP is an edge,
    skipping the others is cheaper.
    """
    n = W.shape[-1]
    W = W.reshape(-1, steps, n, n)
    if W.size and DENSE_SPEEDUP * np.count_nonzero(W[0]) < W[0].size:
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
    messages = np.zeros(W.shape[0] // steps, dtype=np.int64)
    for t in range(messages.size * steps):
        flat = W[t].reshape(n * n)
        edges = 0
        for e in range(n * n):
            edges += flat[e] != 0.0
        for i in range(n):
            edges -= W[t, i, i] != 0.0
        messages[t // steps] += edges
    return messages


def csr_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out[i] = sum over the senders j of row i of weights[i, j] z[j], for contiguous z and out of shape (n, d)."""
    fits = z.shape[1] * z.itemsize >= NARROW
    kernel = csr_rows if fits else csr_rows_plain
    over_rows(kernel, z.shape[0], indices.size * z.shape[1], indptr, indices, weights, z, out)


@njit(cache=True, nogil=True)
def csr_rows_plain(begin, end, indptr, indices, weights, z, out):
    """Rows begin .. end-1 of a step: the definition, and the way for few columns."""
    for i in range(begin, end):
        for c in range(z.shape[1]):
            total = z.dtype.type(0)
            for e in range(indptr[i], indptr[i + 1]):
                total += z.dtype.type(weights[e]) * z[np.uint32(indices[e]), c]
            out[i, c] = total


@njit(cache=True, nogil=True)
def csr_rows(begin, end, indptr, indices, weights, z, out):
    """The same in blocks of columns that stay in registers; the last block may overlap the one before."""
    d = z.shape[1]
    wide, narrow = WIDE // z.itemsize, NARROW // z.itemsize
    for i in range(begin, end):
        c = 0
        while c + wide <= d:
            row_sum_wide(indices, weights, z, out, indptr[i], indptr[i + 1], i, c)
            c += wide
        while c < d:
            row_sum_narrow(indices, weights, z, out, indptr[i], indptr[i + 1], i, min(c, d - narrow))
            c += narrow


def csr_vector_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """W omega for a vector omega, in float64: Push-Sum's weights."""
    out = np.empty_like(omega)
    over_rows(_csr_vector_rows, omega.size, indices.size, indptr, indices, weights, omega, out)
    return out


@njit(cache=True, nogil=True)
def _csr_vector_rows(begin, end, indptr, indices, weights, omega, out):
    for i in range(begin, end):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weights[e] * omega[np.uint32(indices[e])]
        out[i] = total


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
