"""Links that lose and delay messages, and clients that sleep.

For `networks.unreliable` (loss, delay, sleep) and `mixing.unreliable` (arrival of shares, matrices of calls).

The message j → i of step s has one Philox counter (block i, client j, step s): its number 0 decides whether the message
is lost, numbers 1 and 2 by how many steps it is delayed. Each share W_ij(s) z_j(s) arrives at some step, or NEVER. If
messages carry running sums, a share arrives with the first message along its edge that was sent at step s or later
(`earliest_arrivals`).

What must not change: the counters, and that a receiver adds the shares that arrive at one step in the order in which
they were sent, by sender within a step. Because of it, stepping and composed calls have the same rounding errors.
"""

from __future__ import annotations

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.philox import below, philox4x32, step_counter

NEVER = np.iinfo(np.int64).max
LOST = -1


@njit(cache=True, nogil=True, inline="always")
def message_delay(i, j, c2, c3, k0, k1, loss_threshold, delays):
    """The delay of the message j → i, uniform on 0 .. delays − 1, or LOST; 0 for a self-loop."""
    if i == j:
        return np.int64(0)
    w0, w1, w2, _ = philox4x32(i, j, c2, c3, k0, k1)
    if np.uint64(w0) < loss_threshold:
        return np.int64(LOST)
    return np.int64(below(w1, w2, delays))


@njit(cache=True, nogil=True)
def message_delays(indptr, senders, step, stream, k0, k1, loss_threshold, delays, out):
    """`message_delay` of every edge of a CSR graph."""
    c2, c3 = step_counter(step, stream)
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = message_delay(i, senders[e], c2, c3, k0, k1, loss_threshold, delays)


@njit(cache=True, nogil=True)
def asleep_at(step, stretch, stream, k0, k1, threshold, out):
    """Whether client j sleeps at `step`: its time is divided into intervals of `stretch` steps at a random offset."""
    p2, p3 = step_counter(0, stream)
    for j in range(out.size):
        w0, w1, _, _ = philox4x32(0, j, p2, p3, k0, k1)
        block = (np.int64(step) - 1 + np.int64(below(w0, w1, stretch))) // stretch
        c2, c3 = step_counter(block + 1, stream)
        number, _, _, _ = philox4x32(0, j, c2, c3, k0, k1)
        out[j] = np.uint64(number) < threshold


@njit(cache=True, nogil=True)
def keep_from_sleepers(indptr, senders, weights, asleep):
    """The CSR matrix without edges of sleeping clients; a sender retains what would go to them, W_jj += Σ_i W_ij."""
    n = indptr.size - 1
    retained = asleep.astype(np.float64)  # in addition to W_jj; a sleeper retains everything
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if asleep[i] and not asleep[senders[e]]:
                retained[senders[e]] += weights[e]
    begin = np.zeros(n + 1, dtype=np.int64)
    neighbours = np.empty(senders.size + n, dtype=senders.dtype)
    shares = np.empty(senders.size + n)
    filled = 0
    for i in range(n):
        self_loop_missing = retained[i] > 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = senders[e]
            if self_loop_missing and j >= i:
                neighbours[filled] = i
                shares[filled] = weights[e] + retained[i] if j == i and not asleep[i] else retained[i]
                filled, self_loop_missing = filled + 1, False
                if j == i:
                    continue
            if not asleep[i] and not asleep[j]:
                neighbours[filled], shares[filled] = j, weights[e]
                filled += 1
        if self_loop_missing:
            neighbours[filled], shares[filled] = i, retained[i]
            filled += 1
        begin[i + 1] = filled
    return begin, neighbours[:filled], shares[:filled]


@njit(cache=True, nogil=True)
def keep_from_sleepers_dense(W, asleep):
    """`keep_from_sleepers` for a dense matrix W (n, n), in place, bit for bit."""
    for j in range(W.shape[0]):
        retained = 0.0
        for i in range(W.shape[0]):
            if asleep[j] or asleep[i]:
                retained += 0.0 if asleep[j] else W[i, j]
                W[i, j] = 0.0
        W[j, j] = 1.0 if asleep[j] else W[j, j] + retained


@njit(cache=True, nogil=True)
def earliest_arrivals(pair, arrival, earliest):
    """arrival[e] ← min of arrival[e], arrival[e + 1], … over the same pair; earliest (pairs,) is NEVER on entry."""
    for e in range(pair.size - 1, -1, -1):
        if arrival[e] < earliest[pair[e]]:
            earliest[pair[e]] = arrival[e]
        arrival[e] = earliest[pair[e]]


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
def products(W, steps, first, stream, k0, k1, loss_threshold, delays, robust, out, messages):
    """The matrices P of calls of `steps` steps, out (calls, n, n), with nothing in flight before each call.

    W (calls · steps, n, n) holds the mixing matrices from step `first` on; with `robust`, messages carry running sums.
    """
    n = W.shape[1]
    arrival = np.empty((steps, n, n), dtype=np.int64)
    held = np.empty((steps + 1, n, n))
    for c in range(messages.size):
        sent = W[c * steps : (c + 1) * steps]
        messages[c] = 0
        for t in range(steps):
            c2, c3 = step_counter(first + c * steps + t, stream)
            for i in range(n):
                for j in range(n):
                    delay = np.int64(LOST)
                    if sent[t, i, j] != 0.0:
                        delay = message_delay(i, j, c2, c3, k0, k1, loss_threshold, delays)
                        messages[c] += i != j
                    arrival[t, i, j] = NEVER if delay == LOST else t + delay
        if robust:
            for t in range(steps - 2, -1, -1):  # with what is sent later along the same edge
                for i in range(n):
                    for j in range(n):
                        arrival[t, i, j] = min(arrival[t, i, j], arrival[t + 1, i, j])
        _deliver(sent, arrival, held)
        out[c] = held[steps]


@njit(cache=True, nogil=True)
def _deliver(sent, arrival, held):
    """held[t] (n, n), the product of the steps before t: held[0] = I, and shares are added to held[arrival + 1]."""
    held[:] = 0.0
    for i in range(sent.shape[1]):
        held[0, i, i] = 1.0
    for t in range(sent.shape[0]):
        for i in range(sent.shape[1]):
            for j in range(sent.shape[1]):
                if sent[t, i, j] != 0.0 and arrival[t, i, j] < sent.shape[0]:
                    row = held[arrival[t, i, j] + 1, i]
                    for k in range(row.size):
                        row[k] += sent[t, i, j] * held[t, j, k]
