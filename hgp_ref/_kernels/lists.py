"""Adjacency lists in Numba: from the receivers of every sender to the rows of the mixing matrix, in time of the edges.

Large arrays are made by NumPy and handed over: its allocations use huge pages, which halves the time of a first write.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.compiled import njit

Csr = tuple[np.ndarray, np.ndarray, np.ndarray]


def rows_from_lists(out_indptr: np.ndarray, receivers: np.ndarray, share: np.ndarray | float) -> Csr:
    """CSR by receiver of the matrix with share[j] (or share, if a number) at [i, j] for all receivers i of sender j."""
    indptr = np.zeros(out_indptr.size + 1, dtype=np.int64)
    indices = np.empty(receivers.size, dtype=np.int32)
    _counting_sort(out_indptr, receivers, indptr, indices)
    if isinstance(share, float):
        return indptr[:-1], indices, np.full(receivers.size, share)
    weights = np.empty(receivers.size)
    _gather(share, indices, weights)
    return indptr[:-1], indices, weights


def rows_from_adjacency(adjacency: np.ndarray, share: np.ndarray) -> Csr:
    """CSR of the (n, n) boolean matrix adjacency with share[j] in column j."""
    indptr = np.zeros(adjacency.shape[0] + 1, dtype=np.int64)
    _row_ends(adjacency.view(np.uint8), indptr)
    indices = np.empty(indptr[-1] + 1, dtype=np.int32)  # one place to spare for the loop without branches
    weights = np.empty(indptr[-1])
    _compress(adjacency.view(np.uint8), share, indices, weights)
    return indptr, indices[:-1], weights


def rows_of_equal_shares(adjacency: np.ndarray) -> Csr:
    """The same with 1 / (number of edges of column j) in column j, where each has one: every sender splits equally."""
    share = np.empty(adjacency.shape[1])
    _equal_shares(adjacency.view(np.uint8), share)
    return rows_from_adjacency(adjacency, share)


def pairs_from_lists(out_indptr: np.ndarray, receivers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(senders, receivers), int64."""
    pairs = np.empty((2, receivers.size), dtype=np.int64)
    _expand(out_indptr, receivers, pairs)
    return pairs[0], pairs[1]


@njit(cache=True, nogil=True)
def _counting_sort(out_indptr, receivers, indptr, indices):
    """indptr (n + 2,), zero on entry, is the row pointer followed by one place that served the sort."""
    for e in range(receivers.size):
        indptr[receivers[e] + 2] += 1
    for i in range(2, indptr.size):
        indptr[i] += indptr[i - 1]
    for j in range(out_indptr.size - 1):  # senders in order, so every row comes out sorted
        for e in range(out_indptr[j], out_indptr[j + 1]):
            i = receivers[e] + 1
            indices[indptr[i]] = j
            indptr[i] += 1


@njit(cache=True, nogil=True)
def _gather(share, indices, weights):
    for e in range(weights.size):
        weights[e] = share[indices[e]]


@njit(cache=True, nogil=True)
def _row_ends(adjacency, indptr):
    for i in range(adjacency.shape[0]):
        count = 0
        for j in range(adjacency.shape[1]):
            count += adjacency[i, j]
        indptr[i + 1] = indptr[i] + count


@njit(cache=True, nogil=True)
def _equal_shares(adjacency, share):
    counts = np.zeros(share.size, np.int32)  # as narrow as will do: as many at once as a register holds
    for i in range(adjacency.shape[0]):
        for j in range(counts.size):
            counts[j] += adjacency[i, j]
    for j in range(counts.size):
        share[j] = 1.0 / counts[j]


@njit(cache=True, nogil=True)
def _compress(adjacency, share, indices, weights):
    e = np.uint64(0)  # unsigned: Numba asks of every other index whether it counts from the end
    for i in range(adjacency.shape[0]):
        for j in range(adjacency.shape[1]):
            indices[e] = j
            e += np.uint64(adjacency[i, j])
    for k in range(weights.size):
        weights[k] = share[np.uint32(indices[k])]


@njit(cache=True, nogil=True)
def _expand(out_indptr, receivers, pairs):
    senders, copied = pairs[0], pairs[1]
    for e in range(receivers.size):  # a loop of its own, which LLVM vectorises
        copied[e] = receivers[e]
    for j in range(out_indptr.size - 1):
        senders[out_indptr[j] : out_indptr[j + 1]] = j


@njit(cache=True, nogil=True)
def scatter(indptr, indices, weights, out):
    """Write the rows of a CSR matrix into the zero (n, n) array out."""
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[i, indices[e]] = weights[e]
