"""The first fault of a graph that somebody else has made, in one pass over it: nothing is read that is out of range.

A fault is (kind, place), kind 0 for none; what it means is said where the message is written (networks/validity.py).
"""

from __future__ import annotations

import numpy as np

from hgp_ref._numba import njit

NONE, START, FALLING, END, RANGE, ORDER, EMPTY, LOOP, NUMBER, SUM = range(10)


@njit(cache=True, nogil=True)
def of_lists(indptr, clients, loops, whole):
    """Of lists of clients: clients[indptr[j] : indptr[j + 1]] belongs to j = 0 .. n-1.

    Each is to be sorted without repetition, to hold j itself if `loops`, and somebody if `whole`.
    """
    n = indptr.size - 1
    if indptr[0] != 0:
        return START, 0
    for j in range(n):
        if indptr[j + 1] < indptr[j]:
            return FALLING, j
    if indptr[n] != clients.size:
        return END, n
    for j in range(n):
        own = False
        for e in range(indptr[j], indptr[j + 1]):
            if clients[e] < 0 or clients[e] >= n:
                return RANGE, e
            if e > indptr[j] and clients[e] <= clients[e - 1]:
                return ORDER, e
            own |= clients[e] == j
        if whole and indptr[j] == indptr[j + 1]:
            return EMPTY, j
        if loops and not own:
            return LOOP, j
    return NONE, 0


@njit(cache=True, nogil=True)
def of_weights(indptr, senders, weights, loops, unit, sums, entries):
    """Of the weights of a matrix by rows, whose lists have none; its column sums and entries go to zero arrays (n,).

    Weights are to be finite and >= 0, > 0 on the diagonal if `loops`, and a column of k entries is to sum to 1 within
    (k + 1) unit: so well do k numbers that were divided by their sum in that precision.
    """
    n = indptr.size - 1
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if not (weights[e] >= 0.0 and weights[e] < np.inf):
                return NUMBER, e
            sums[senders[e]] += weights[e]
            entries[senders[e]] += weights[e] > 0.0
    for j in range(n):
        if abs(sums[j] - 1.0) > (entries[j] + 1) * unit:
            return SUM, j
    if loops:
        for i in range(n):
            own = False
            for e in range(indptr[i], indptr[i + 1]):
                own |= senders[e] == i and weights[e] > 0.0
            if not own:
                return LOOP, i
    return NONE, 0


@njit(cache=True, nogil=True)
def of_matrices(W, loops, unit):
    """The same of full matrices W (count, n, n): (kind, which matrix, entry or column)."""
    count, n, _ = W.shape
    sums, entries = np.empty(n, np.float64), np.empty(n, np.int64)
    for t in range(count):
        sums[:] = 0.0
        entries[:] = 0
        for i in range(n):
            for j in range(n):
                if not (W[t, i, j] >= 0.0 and W[t, i, j] < np.inf):
                    return NUMBER, t, i * n + j
                sums[j] += W[t, i, j]
                entries[j] += W[t, i, j] > 0.0
        for j in range(n):
            if abs(sums[j] - 1.0) > (entries[j] + 1) * unit:
                return SUM, t, j
            if loops and not W[t, j, j] > 0.0:
                return LOOP, t, j
    return NONE, 0, 0
