"""Distinct random receivers for every sender in Numba, never an n x n array.

Floyd's algorithm draws k distinct numbers out of N = n - 1: for d = 0 .. k-1 take r uniform on 0 .. N-k+d; if r was taken
before, take N-k+d instead. Draw d of sender j at step s uses half d mod 2 of the Philox counter (block d div 2, j, s) as one
64-bit word. The others of sender j are numbered without j: r stands for r if r < j, else r + 1.
Counters run over lanes, the pairs (sender, block) of a tile of senders, so that LLVM vectorises Philox.

[1] J. Bentley, B. Floyd. Programming pearls: a sample of brilliance. Communications of the ACM 30 (9), 1987.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hgp_ref.philox import below, philox4x32, step_words

LANES = 512


@njit(cache=True, nogil=True)
def _words(block, client, c2, c3, k0, k1, lanes, out):
    for a in range(lanes):
        w0, w1, w2, w3 = philox4x32(block[a], client[a], c2, c3, k0, k1)
        out[0, a] = w0
        out[1, a] = w1
        out[2, a] = w2
        out[3, a] = w3


@njit(cache=True, nogil=True)
def _insert(chosen, size, value):
    """Put value into chosen[:size], which is sorted, unless it is there; whether it was put."""
    e = size
    while e > 0 and chosen[e - 1] > value:
        e -= 1
    if e > 0 and chosen[e - 1] == value:
        return False
    for f in range(size, e, -1):
        chosen[f] = chosen[f - 1]
    chosen[e] = value
    return True


@njit(cache=True, nogil=True)
def _floyd(n, sender, k, words, lane, out):
    """Sorted receivers of one sender, itself included, into out[: k + 1], from the words of its lanes."""
    for d in range(k):
        a, h = lane + d // 2, 2 * (d % 2)
        top = n - 1 - k + d
        if not _insert(out, d, np.int32(below(words[h, a], words[h + 1, a], top + 1))):
            out[d] = top  # larger than all before
    e = k
    while e > 0 and out[e - 1] >= sender:
        out[e] = out[e - 1] + 1
        e -= 1
    out[e] = sender


@njit(cache=True, nogil=True)
def receivers(n, indptr, senders, step, stream, k0, k1):
    """Receivers of `senders`; sender number a gets indptr[a+1] - indptr[a] of them, itself included, sorted."""
    c2, c3 = step_words(step, stream)
    most = 0
    for a in range(senders.size):
        most = max(most, (indptr[a + 1] - indptr[a]) // 2)  # k = degree - 1 others take (k + 1) div 2 blocks
    lanes = max(LANES, most)
    block, client = np.empty((2, lanes), np.uint32)
    words = np.empty((4, lanes), np.uint32)
    out = np.empty(indptr[senders.size], np.int32)
    begin = 0
    while begin < senders.size:
        end, used = begin, 0
        while end < senders.size and used + (indptr[end + 1] - indptr[end]) // 2 <= lanes:
            for b in range((indptr[end + 1] - indptr[end]) // 2):
                block[used] = b
                client[used] = senders[end]
                used += 1
            end += 1
        _words(block, client, c2, c3, k0, k1, used, words)
        used = 0
        for a in range(begin, end):
            k = indptr[a + 1] - indptr[a] - 1
            _floyd(n, senders[a], k, words, used, out[indptr[a] :])
            used += (k + 1) // 2
        begin = end
    return out


@njit(cache=True, nogil=True)
def binomial_degrees(smallest, table, guide, senders, step, stream, k0, k1):
    """indptr of out-degrees 1 + smallest + #{table entries <= w}, self-loops included, for a 64-bit word w of each sender."""
    c2, c3 = step_words(step, stream)
    indptr = np.empty(senders.size + 1, np.int64)
    indptr[0] = 0
    for a in range(senders.size):
        hi, lo, _, _ = philox4x32(0, senders[a], c2, c3, k0, k1)
        word = (np.uint64(hi) << np.uint64(32)) | np.uint64(lo)
        e = guide[hi >> np.uint32(24)]  # entries below the leading byte are passed over
        while e < table.size and table[e] <= word:
            e += 1
        indptr[a + 1] = indptr[a] + 1 + smallest + e
    return indptr
