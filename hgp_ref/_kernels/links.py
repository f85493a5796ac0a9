"""What becomes of messages on links that lose and delay, in Numba: fates, delivery times, products.

The fate of the message j -> i at step s is one Philox counter (block i, client j, step s): word 0 says whether it is
lost, words 1 and 2 how late it is. A share that is sent is *due* at some step; `cover` finds out when, if messages
carry running sums: with the first message to arrive among those sent along the same edge at that step or later.
"""

from __future__ import annotations

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.philox import below, philox4x32, step_words

NEVER = np.iinfo(np.int64).max
LOST = -1


@njit(cache=True, nogil=True, inline="always")
def fate(i, j, c2, c3, k0, k1, lost_below, lateness):
    """LOST, or by how many of 0 .. lateness - 1 steps the message j -> i is late; what stays at home is in time."""
    if i == j:
        return np.int64(0)
    w0, w1, w2, _ = philox4x32(i, j, c2, c3, k0, k1)
    if np.uint64(w0) < lost_below:
        return np.int64(LOST)
    return np.int64(below(w1, w2, lateness))


@njit(cache=True, nogil=True)
def fates(indptr, senders, step, stream, k0, k1, lost_below, lateness, out):
    """`fate` of every edge of a graph by rows."""
    c2, c3 = step_words(step, stream)
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = fate(i, senders[e], c2, c3, k0, k1, lost_below, lateness)


@njit(cache=True, nogil=True)
def sleepers(step, stretch, stream, k0, k1, below_this, out):
    """Whether client j sleeps at `step`: time is cut into stretches, elsewhere for each client, each slept or not."""
    p2, p3 = step_words(0, stream)
    for j in range(out.size):
        w0, w1, _, _ = philox4x32(0, j, p2, p3, k0, k1)
        block = (np.int64(step) - 1 + np.int64(below(w0, w1, stretch))) // stretch
        c2, c3 = step_words(block + 1, stream)
        word, _, _, _ = philox4x32(0, j, c2, c3, k0, k1)
        out[j] = np.uint64(word) < below_this


@njit(cache=True, nogil=True)
def silence(indptr, senders, weights, asleep):
    """The rows of a mixing matrix without the edges of those asleep: what would go to them, senders keep."""
    n = indptr.size - 1
    kept = asleep.astype(np.float64)  # beside what a client keeps anyway
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if asleep[i] and not asleep[senders[e]]:
                kept[senders[e]] += weights[e]
    begin = np.zeros(n + 1, dtype=np.int64)
    others = np.empty(senders.size + n, dtype=senders.dtype)
    shares = np.empty(senders.size + n)
    filled = 0
    for i in range(n):
        own = kept[i] > 0.0  # its own entry is still to be written
        for e in range(indptr[i], indptr[i + 1]):
            j = senders[e]
            if own and j >= i:
                others[filled] = i
                shares[filled] = weights[e] + kept[i] if j == i and not asleep[i] else kept[i]
                filled, own = filled + 1, False
                if j == i:
                    continue
            if not asleep[i] and not asleep[j]:
                others[filled], shares[filled] = j, weights[e]
                filled += 1
        if own:
            others[filled], shares[filled] = i, kept[i]
            filled += 1
        begin[i + 1] = filled
    return begin, others[:filled], shares[:filled]


@njit(cache=True, nogil=True)
def silence_dense(W, asleep):
    """The same for a matrix (n, n), in place, bit for bit."""
    for j in range(W.shape[0]):
        kept = 0.0
        for i in range(W.shape[0]):
            if asleep[j] or asleep[i]:
                kept += 0.0 if asleep[j] else W[i, j]
                W[i, j] = 0.0
        W[j, j] = 1.0 if asleep[j] else W[j, j] + kept


@njit(cache=True, nogil=True)
def cover(pair, due, earliest):
    """due[e] <- the earliest of due[e], due[e + 1], ... on the same pair; earliest (pairs,) begins as NEVER."""
    for e in range(pair.size - 1, -1, -1):
        if due[e] < earliest[pair[e]]:
            earliest[pair[e]] = due[e]
        due[e] = earliest[pair[e]]


@njit(cache=True, nogil=True)
def group(bucket, buckets):
    """(indptr (buckets + 1,), order): order[indptr[b] : indptr[b + 1]] are the places with bucket b, increasing."""
    indptr = np.zeros(buckets + 2, dtype=np.int64)
    for e in range(bucket.size):
        indptr[bucket[e] + 2] += 1
    for b in range(2, buckets + 2):
        indptr[b] += indptr[b - 1]
    order = np.empty(bucket.size, dtype=np.int64)
    for e in range(bucket.size):
        order[indptr[bucket[e] + 1]] = e
        indptr[bucket[e] + 1] += 1
    return indptr[:-1], order


@njit(cache=True, nogil=True)
def products(W, steps, first, stream, k0, k1, lost_below, lateness, robust, out, messages):
    """What calls of `steps` steps make of n clients' sums, out (calls, n, n), with nothing under way before each.

    W (calls · steps, n, n) is what is sent; the first of its steps is number `first`.
    """
    n = W.shape[1]
    due = np.empty((steps, n, n), dtype=np.int64)
    held = np.empty((steps + 1, n, n))
    for c in range(messages.size):
        sent = W[c * steps : (c + 1) * steps]
        messages[c] = 0
        for t in range(steps):
            c2, c3 = step_words(first + c * steps + t, stream)
            for i in range(n):
                for j in range(n):
                    late = np.int64(LOST)
                    if sent[t, i, j] != 0.0:
                        late = fate(i, j, c2, c3, k0, k1, lost_below, lateness)
                        messages[c] += i != j
                    due[t, i, j] = NEVER if late == LOST else t + late
        if robust:
            for t in range(steps - 2, -1, -1):  # with what is sent later along the same edge
                for i in range(n):
                    for j in range(n):
                        due[t, i, j] = min(due[t, i, j], due[t + 1, i, j])
        _carry(sent, due, held)
        out[c] = held[steps]


@njit(cache=True, nogil=True)
def _carry(sent, due, held):
    """held[t], what clients hold before step t, (n, n) from I on.

    A receiver adds what is due at one step in the order in which it was sent, by sender within a step.
    """
    held[:] = 0.0
    for i in range(sent.shape[1]):
        held[0, i, i] = 1.0
    for t in range(sent.shape[0]):
        for i in range(sent.shape[1]):
            for j in range(sent.shape[1]):
                if sent[t, i, j] != 0.0 and due[t, i, j] < sent.shape[0]:
                    row = held[due[t, i, j] + 1, i]
                    for k in range(row.size):
                        row[k] += sent[t, i, j] * held[t, j, k]
