"""Philox4x32-10 [1]: random numbers as a pure function of (seed, stream, step, client, block).

    (c0, c1, c2, c3) -> 4 numbers of 32 bits under the key (k0, k1),
    ten rounds of  (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)).

Counter layout, so that no two uses in the library share a counter:

    c0 = block          numbers 4 block .. 4 block + 3 of one client at one step
    c1 = client         the sender of the edges, or the owner of the mini-batch
    c2 = step mod 2^32
    c3 = stream * 2^24 + step div 2^32          hence steps below 2^56 and streams below 256

The key is the 64-bit seed. All arithmetic is in integers: results are equal on every machine, for any number of threads
and in any order.

[1] J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw. Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import validation
from hgp_ref._numba import njit

# Streams: one number for each use of random numbers.
EDGE_RATES = 1  # rates of RandomDirected
EDGES = 2  # edges of RandomDirected
UNDIRECTED_RATES = 3  # rates of RandomUndirected
UNDIRECTED_EDGES = 4  # edges of RandomUndirected
STATIC_EDGES = 5  # the graph of StaticUndirected; step = attempt
OUT_NEIGHBOURS = 6  # receivers of RandomOut
SPARSE_NEIGHBOURS = 7  # receivers of SparseErdosRenyi
SPARSE_DEGREES = 8  # out-degrees of SparseErdosRenyi
LINKS = 9  # loss and delay of a message of Unreliable: block = receiver, client = sender
SLEEP = 10  # which clients of Unreliable sleep; step = 1 + number of the interval, step 0 = offsets of the intervals
INITIAL_PARAMETERS = 64  # initial parameters of neural networks
EPOCHS = 72  # the order of a client's instances in an epoch; step = epoch
TERMS = 80  # the last term of randomly truncated series; step = which of them
BATCHES = 128  # mini-batches: BATCHES + stream of the mini-batch, 0 <= stream < 128

MAX_STEP = 2**56 - 1
MAX_CLIENTS = 2**31

_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_24 = np.uint64(24)


@njit(cache=True, nogil=True, forceinline=True)  # inlined so that LLVM vectorises loops over counters
def philox4x32(c0, c1, c2, c3, k0, k1):
    """The four 32-bit numbers of counter (c0, c1, c2, c3) under key (k0, k1); ten rounds."""
    # 32 bits each, and LLVM must know it to multiply 32 x 32 -> 64 in vectors
    x0, x1 = np.uint64(np.uint32(c0)), np.uint64(np.uint32(c1))
    x2, x3 = np.uint64(np.uint32(c2)), np.uint64(np.uint32(c3))
    a, b = np.uint64(np.uint32(k0)), np.uint64(np.uint32(k1))
    for _ in range(10):
        p0 = _M0 * x0
        p1 = _M1 * x2
        x0 = (p1 >> _32) ^ x1 ^ a
        x1 = p1 & _LOW
        x2 = (p0 >> _32) ^ x3 ^ b
        x3 = p0 & _LOW
        a = (a + _W0) & _LOW
        b = (b + _W1) & _LOW
    return np.uint32(x0), np.uint32(x1), np.uint32(x2), np.uint32(x3)


@njit(cache=True, nogil=True, forceinline=True)
def step_counter(step, stream):
    """(c2, c3) of a step and a stream."""
    s = np.uint64(step)
    return s & _LOW, (np.uint64(stream) << _24) | (s >> _32)


@njit(cache=True, nogil=True, forceinline=True)
def below(high, low, m):
    """floor(w m / 2^64) for w = high 2^32 + low and m < 2^32: uniform on 0 .. m-1 but for m / 2^64."""
    m64 = np.uint64(m)
    return (np.uint64(high) * m64 + ((np.uint64(low) * m64) >> _32)) >> _32


def key(seed: int) -> tuple[np.uint64, np.uint64]:
    """(k0, k1) = (low, high) 32 bits of a seed, 0 <= seed < 2^64, each in a 64-bit integer."""
    seed = check_seed(seed)
    return np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)


def check_seed(seed: int) -> int:
    """The seed as a Python integer from 0 to 2⁶⁴ − 1."""
    return validation.integer("seed", seed, 0, 2**64 - 1)


def check_seeds(seed: int | Sequence[int] | np.ndarray) -> tuple[list[int], bool]:
    """The seeds as Python integers, and whether they came as a list, even of one."""
    if isinstance(seed, str) or not (isinstance(seed, Sequence) or (isinstance(seed, np.ndarray) and seed.ndim)):
        return [check_seed(seed)], False  # type: ignore[arg-type]  # raises the error
    seeds = [check_seed(s) for s in seed]
    if not seeds:
        raise ValueError("seed must be an integer or a list of at least one, got an empty list")
    return seeds, True
