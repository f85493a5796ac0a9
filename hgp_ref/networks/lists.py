"""Adjacency lists in Numba: from the receivers of every sender to the rows of the mixing matrix, without an n x n array."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def counting_sort(out_indptr, receivers, weight):
    """CSR by receiver of the matrix that has weight[j] at [i, j] for every receiver i of sender j."""
    n = out_indptr.size - 1
    edges = receivers.size
    indptr = np.zeros(n + 2, np.int64)
    for e in range(edges):
        indptr[receivers[e] + 2] += 1
    for i in range(2, n + 2):
        indptr[i] += indptr[i - 1]
    indices = np.empty(edges, np.int32)
    weights = np.empty(edges, np.float64)
    for j in range(n):  # senders in order, so every row comes out sorted
        for e in range(out_indptr[j], out_indptr[j + 1]):
            i = receivers[e] + 1
            indices[indptr[i]] = j
            weights[indptr[i]] = weight[j]
            indptr[i] += 1
    return indptr[: n + 1], indices, weights


@njit(cache=True, nogil=True)
def scatter_matrix(indptr, indices, weights, out):
    """Write the rows of a CSR matrix into the zero (n, n) array out."""
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[i, indices[e]] = weights[e]


@njit(cache=True, nogil=True)
def rows_of(adjacency, weight):
    """CSR of the (n, n) boolean matrix adjacency with weight[j] in column j."""
    n = adjacency.shape[0]
    indptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        row = 0
        for j in range(n):
            row += adjacency[i, j]
        indptr[i + 1] = indptr[i] + row
    indices = np.empty(indptr[n], np.int32)
    weights = np.empty(indptr[n], np.float64)
    for i in range(n):
        e = indptr[i]
        for j in range(n):
            if adjacency[i, j]:
                indices[e] = j
                weights[e] = weight[j]
                e += 1
    return indptr, indices, weights
