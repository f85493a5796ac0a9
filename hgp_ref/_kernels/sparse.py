"""Distinct random receivers for every sender in Numba, never an n x n array.

Floyd's algorithm draws k distinct numbers out of n - 1: for d = 0 .. k-1 take r uniform on 0 .. n-1-k+d; if r was taken
before, take n-1-k+d instead. Draw d of sender j at step s uses half d mod 2 of the Philox counter (block d div 2, j, s)
as one 64-bit word. The others of sender j are numbered without j: r stands for r if r < j, else for r + 1.

Senders with the same k are drawn side by side in LANES lanes: chosen[d, a] is number d of the sender in lane a, and
LLVM vectorises every loop over a, membership and sorting included. That costs k^2 / 16 or so per sender; where k is so
large that a scan over all n clients is cheaper, membership is a table of n flags instead, with the same result.

[1] J. Bentley, B. Floyd. Programming pearls: a sample of brilliance. Communications of the ACM 30 (9), 1987.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.compiled import njit
from hgp_ref.philox import below, philox4x32, step_words

LANES = 128
TILE = 16384  # senders among which equal degrees are gathered


@njit(cache=True, nogil=True)
def _draw(n, k, client, c2, c3, k0, k1, chosen):
    """chosen[d, a] = draw d, uniform on 0 .. n-1-k+d."""
    for b in range((k + 1) // 2):
        m = np.uint64(n - k + 2 * b)
        for a in range(LANES):
            w0, w1, w2, w3 = philox4x32(b, client[a], c2, c3, k0, k1)
            chosen[2 * b, a] = below(w0, w1, m)
            chosen[2 * b + 1, a] = below(w2, w3, m + np.uint64(1))


@njit(cache=True, nogil=True)
def _replace(chosen, d, e, top):
    for a in range(LANES):
        chosen[d, a] = top if chosen[d, a] == chosen[e, a] else chosen[d, a]


@njit(cache=True, nogil=True)
def _exchange(chosen, e, d):
    """Smaller of rows e and d to row e, larger to row d."""
    for a in range(LANES):
        x, y = chosen[e, a], chosen[d, a]
        chosen[e, a] = min(x, y)
        chosen[d, a] = max(x, y)


@njit(cache=True, nogil=True)
def _skip(chosen, e, client):
    for a in range(LANES):
        chosen[e, a] += np.int32(chosen[e, a] >= client[a])


@njit(cache=True, nogil=True)
def _distinct(n, k, chosen):
    """Floyd's rule and sorting by comparisons, all lanes at once."""
    for d in range(1, k):
        top = np.int32(n - 1 - k + d)  # above all chosen before
        for e in range(d):
            _replace(chosen, d, e, top)
        for e in range(d):
            _exchange(chosen, e, d)


@njit(cache=True, nogil=True)
def _distinct_by_flags(n, k, chosen):
    """Floyd's rule and sorting by a table of flags, lane by lane."""
    taken = np.zeros(n, np.bool_)
    for a in range(LANES):
        for d in range(k):
            taken[n - 1 - k + d if taken[chosen[d, a]] else chosen[d, a]] = True
        e = 0
        for r in range(n - 1):
            if taken[r]:
                chosen[e, a] = r
                taken[r] = False
                e += 1


@njit(cache=True, nogil=True)
def _receivers(n, k, client, c2, c3, k0, k1, chosen):
    """chosen[: k + 1, a] = receivers of client[a], itself included, sorted."""
    _draw(n, k, client, c2, c3, k0, k1, chosen)
    if k * k > 16 * n:
        _distinct_by_flags(n, k, chosen)
    else:
        _distinct(n, k, chosen)
    for e in range(k):
        _skip(chosen, e, client)
    for a in range(LANES):
        chosen[k, a] = client[a]
    for e in range(k):
        _exchange(chosen, e, k)


@njit(cache=True, nogil=True)
def constant_receivers(n, k, first, step, stream, k0, k1, out):
    """Receivers of senders first, first + 1, ... into out (senders, k + 1), each row sorted."""
    c2, c3 = step_words(step, stream)
    client = np.empty(LANES, np.int32)
    chosen = np.empty((k + 2, LANES), np.int32)
    for begin in range(0, out.shape[0], LANES):
        for a in range(LANES):
            client[a] = min(first + begin + a, n - 1)
        _receivers(n, k, client, c2, c3, k0, k1, chosen)
        for e in range(k + 1):
            for a in range(min(LANES, out.shape[0] - begin)):
                out[begin + a, e] = chosen[e, a]


@njit(cache=True, nogil=True)
def constant_matrices(n, k, stream, k0, k1, first, out):
    """Mixing matrices of steps first, first + 1, ... into the zero array out (steps, n, n)."""
    receivers = np.empty((n, k + 1), np.int32)
    for t in range(out.shape[0]):
        constant_receivers(n, k, 0, first + t, stream, k0, k1, receivers)
        for j in range(n):
            for e in range(k + 1):
                out[t, receivers[j, e], j] = 1.0 / (k + 1)


@njit(cache=True, nogil=True)
def _by_degree(indptr, begin, end, first, order):
    """order = places begin .. end - 1 sorted by degree; first is scratch."""
    first[:] = 0
    for a in range(begin, end):
        first[indptr[a + 1] - indptr[a] + 1] += 1
    for d in range(1, first.size):
        first[d] += first[d - 1]
    for a in range(begin, end):
        degree = indptr[a + 1] - indptr[a]
        order[first[degree]] = a
        first[degree] += 1


@njit(cache=True, nogil=True)
def varied_receivers(n, first, indptr, step, stream, k0, k1, out):
    """Receivers of sender first + a into out[indptr[a] : indptr[a + 1]], itself included, sorted."""
    c2, c3 = step_words(step, stream)
    senders = indptr.size - 1
    most = 0
    for a in range(senders):
        most = max(most, indptr[a + 1] - indptr[a])
    client = np.empty(LANES, np.int32)
    chosen = np.empty((most + 1, LANES), np.int32)
    order, scratch = np.empty(TILE, np.int64), np.empty(most + 2, np.int64)
    for begin in range(0, senders, TILE):
        size = min(TILE, senders - begin)
        _by_degree(indptr, begin, begin + size, scratch, order)
        p = 0
        while p < size:
            degree = indptr[order[p] + 1] - indptr[order[p]]
            q = p
            while q < min(size, p + LANES) and indptr[order[q] + 1] - indptr[order[q]] == degree:
                client[q - p] = first + order[q]
                q += 1
            client[q - p :] = first + order[p]
            _receivers(n, degree - 1, client, c2, c3, k0, k1, chosen)
            for a in range(q - p):
                place = indptr[order[p + a]]
                for e in range(degree):
                    out[place + e] = chosen[e, a]
            p = q


@njit(cache=True, nogil=True)
def binomial_degrees(smallest, table, guide, first, step, stream, k0, k1, indptr):
    """indptr of degrees 1 + smallest + #{table entries <= w}, w a 64-bit word of each sender first, first + 1, ..."""
    c2, c3 = step_words(step, stream)
    indptr[0] = 0
    for a in range(indptr.size - 1):
        hi, lo, _, _ = philox4x32(0, first + a, c2, c3, k0, k1)
        word = (np.uint64(hi) << np.uint64(32)) | np.uint64(lo)
        e = guide[hi >> np.uint32(24)]  # passes over the entries below the leading byte
        while e < table.size and table[e] <= word:
            e += 1
        indptr[a + 1] = indptr[a] + 1 + smallest + e


@njit(cache=True, nogil=True)
def varied_matrices(n, smallest, table, guide, degree_stream, stream, k0, k1, first, out):
    """Mixing matrices of steps first, first + 1, ... into the zero array out (steps, n, n)."""
    indptr = np.empty(n + 1, np.int64)
    for t in range(out.shape[0]):
        binomial_degrees(smallest, table, guide, 0, first + t, degree_stream, k0, k1, indptr)
        receivers = np.empty(indptr[n], np.int32)
        varied_receivers(n, 0, indptr, first + t, stream, k0, k1, receivers)
        for j in range(n):
            for e in range(indptr[j], indptr[j + 1]):
                out[t, receivers[e], j] = 1.0 / (indptr[j + 1] - indptr[j])
