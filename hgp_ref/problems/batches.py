"""Mini-batches as a pure function of (seed, step, client, stream): Philox counters, sampled by Numba.

Without replacement a batch is the first b entries of a Fisher-Yates shuffle of 0 .. N_i - 1, so every ordered choice
of b instances is equally likely (up to N_i / 2^64); with replacement the b entries are independent.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from hgp_ref.compiled import njit
from hgp_ref.philox import BATCHES, MAX_STEP, below, key, philox4x32, step_words


def sample_batches(counts: Any, size: int, seed: int, first: int, count: int, stream: int = 0,
                   replace: bool = False) -> np.ndarray:  # fmt: skip
    """Instance indices of `count` consecutive mini-batches, steps first .. first + count - 1 (steps count from 0).

    counts (n,): instances of each client. Without replacement b = min(size, max counts); a client with no more than
    `size` instances uses all of them, in order, padded with -1. With replacement b = size. The batch of a step does not
    depend on how many are asked for at once, and streams are independent of each other.  # (count, n, b) int64
    """
    counts = _check_counts(counts)
    size, first, count = operator.index(size), operator.index(first), operator.index(count)
    stream = operator.index(stream)
    if not 1 <= size < 2**31:
        raise ValueError(f"size: {size} given, needed a batch size of at least 1 (and below 2**31)")
    if first < 0 or count < 0 or first + count > MAX_STEP:
        raise ValueError(f"first, count: {first}, {count} given, needed steps from 0 to {MAX_STEP}")
    if not 0 <= stream < 128:
        raise ValueError(f"stream: {stream} given, needed an integer from 0 to 127")
    width = size if replace else min(size, int(counts.max()))
    out = np.full((count, len(counts), width), -1, dtype=np.int64)
    k0, k1 = key(seed)
    (_draw if replace else _shuffle)(out, counts, first, BATCHES + stream, k0, k1)
    return out


def _check_counts(counts: Any) -> np.ndarray:
    counts = np.asarray(counts)
    if counts.ndim != 1 or len(counts) < 1 or not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(f"counts: shape {counts.shape}, dtype {counts.dtype} given, needed (n,) integers")
    for i in np.flatnonzero((counts < 1) | (counts >= 2**32))[:1]:
        raise ValueError(f"counts: client {i} has {counts[i]} instances, needed at least 1 (and below 2**32)")
    return np.ascontiguousarray(counts, dtype=np.int64)


@njit(cache=True, nogil=True, inline="always")
def _word(draw, client, c2, c3, k0, k1):
    """The 64-bit word number `draw` of a client at a step, as (high, low): two to a Philox block."""
    w0, w1, w2, w3 = philox4x32(draw // 2, client, c2, c3, k0, k1)
    if draw % 2 == 0:
        return w0, w1
    return w2, w3


@njit(cache=True, nogil=True)
def _draw(out, counts, first, stream, k0, k1):
    for m in range(out.shape[0]):
        c2, c3 = step_words(first + m, stream)
        for i in range(out.shape[1]):
            for k in range(out.shape[2]):
                hi, lo = _word(k, i, c2, c3, k0, k1)
                out[m, i, k] = below(hi, lo, counts[i])


@njit(cache=True, nogil=True)
def _shuffle(out, counts, first, stream, k0, k1):
    b = out.shape[2]
    deck = np.arange(counts.max())  # 0, 1, 2, ... between batches: swaps are undone, so a batch costs O(b), not O(N)
    swaps = np.empty(b, dtype=np.int64)
    for m in range(out.shape[0]):
        c2, c3 = step_words(first + m, stream)
        for i in range(out.shape[1]):
            if counts[i] <= b:
                for k in range(counts[i]):
                    out[m, i, k] = k
                continue
            for k in range(b):
                hi, lo = _word(k, i, c2, c3, k0, k1)
                j = k + np.int64(below(hi, lo, counts[i] - k))
                deck[k], deck[j] = deck[j], deck[k]
                swaps[k] = j
                out[m, i, k] = deck[k]
            for k in range(b - 1, -1, -1):
                j = swaps[k]
                deck[k], deck[j] = deck[j], deck[k]
