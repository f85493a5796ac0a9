"""Random graphs as functions of (seed, step), and their formats.

For `networks.random` (all kinds), `networks.fixed` and `networks.base`. Four parts:

    dense graphs       edge j → i at step s with probability p_ij: n² random numbers per step
    small graphs       the same graphs for n ≤ 12 and many steps, vectorised over steps
    formats            receivers of each sender ↔ CSR by receiver ↔ dense matrix, in time of the edges
    sparse graphs      k distinct receivers for each sender, never an n × n array

Edge j → i exists at step s if u ≤ last[i, j], where u is 32 random bits: number i mod 4 of the Philox counter
(block i div 4, client j, step s); for an undirected pair that of (min, max). A probability t / 2³² with 1 ≤ t ≤ 2³² is
stored as last = t − 1 in 32 bits, so probability 1 is exact. Probability 0 has no such form. It is stored as last = 0
and floor = 1: u is or-ed with floor, and is then never 0.

Do not change the counters: they define the graphs of a seed. Loops over the innermost index have no branches, so that
LLVM vectorises them.
"""

from __future__ import annotations

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.philox import below, philox4x32, step_counter

# Dense graphs

LANES = 16  # senders are padded to a multiple of this, so that no scalar remainder is left


@njit(cache=True, nogil=True)
def _draw_bits(block, c2, c3, k0, k1, width, bits):
    """bits[r, j] of the pairs (j, 4 block + r), r = 0 .. 3, for the senders j < width."""
    for j in range(width):
        w0, w1, w2, w3 = philox4x32(block, j, c2, c3, k0, k1)
        bits[0, j] = w0
        bits[1, j] = w1
        bits[2, j] = w2
        bits[3, j] = w3


@njit(cache=True, nogil=True)
def _compare(bits, floor, last, i, width, out):
    r = i % 4
    for j in range(width):
        out[i, j] = (bits[r, j] | floor) <= last[i, j]


@njit(cache=True, nogil=True)
def _pad(width):
    return (width + LANES - 1) // LANES * LANES


@njit(cache=True, nogil=True)
def _fill(last, floor, symmetric, c2, c3, k0, k1, bits, out):
    """Adjacency of one step into out (n, n) uint8, [i, j] = edge j -> i; bits is scratch (4, _pad(n))."""
    n = last.shape[0]
    for block in range((n + 3) // 4):
        top = min(n, 4 * block + 4)
        width = top if symmetric else n  # only j <= i is drawn of undirected pairs
        _draw_bits(block, c2, c3, k0, k1, _pad(width), bits)
        for i in range(4 * block, top):
            _compare(bits, floor, last, i, width, out)
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[j, i] = out[i, j]


@njit(cache=True, nogil=True)
def adjacencies(last, floor, symmetric, stream, k0, k1, first, out):
    """Adjacency of steps first, first + 1, ... into out (steps, n, n) uint8, [t, i, j] = edge j -> i."""
    n = last.shape[0]
    bits = np.empty((4, _pad(n)), np.uint32)
    for t in range(out.shape[0]):
        c2, c3 = step_counter(first + t, stream)
        _fill(last, floor, symmetric, c2, c3, k0, k1, bits, out[t])


@njit(cache=True, nogil=True)
def _share(adjacency, degree, share, out):
    """out[i, j] = 1 / (column sum j) where adjacency[i, j], else 0."""
    n = adjacency.shape[0]
    for j in range(n):
        degree[j] = 0
    for i in range(n):
        for j in range(n):
            degree[j] += adjacency[i, j]
    for j in range(n):
        share[j] = 1.0 / degree[j]
    for i in range(n):
        for j in range(n):
            out[i, j] = share[j] if adjacency[i, j] else 0.0


@njit(cache=True, nogil=True)
def mixing(last, floor, symmetric, stream, k0, k1, first, out):
    """Mixing matrices of steps first, first + 1, ... into out (steps, n, n): 1 / outdegree of the sender on edges."""
    n = last.shape[0]
    bits = np.empty((4, _pad(n)), np.uint32)
    adjacency = np.empty((n, n), np.uint8)
    degree, share = np.empty(n, np.int32), np.empty(n, np.float64)
    for t in range(out.shape[0]):
        c2, c3 = step_counter(first + t, stream)
        _fill(last, floor, symmetric, c2, c3, k0, k1, bits, adjacency)
        _share(adjacency, degree, share, out[t])


@njit(cache=True, nogil=True)
def union(last, floor, symmetric, stream, k0, k1, first, count, out):
    """Add the edges of steps first .. first + count - 1 to out (n, n) uint8."""
    n = last.shape[0]
    bits = np.empty((4, _pad(n)), np.uint32)
    adjacency = np.empty((n, n), np.uint8)
    for t in range(count):
        c2, c3 = step_counter(first + t, stream)
        _fill(last, floor, symmetric, c2, c3, k0, k1, bits, adjacency)
        for i in range(n):
            for j in range(n):
                out[i, j] |= adjacency[i, j]


@njit(cache=True, nogil=True)
def neighbours(last, floor, symmetric, stream, k0, k1, step, sender):
    """(n,) booleans: the receivers of one sender."""
    n = last.shape[0]
    out = np.empty(n, np.bool_)
    c2, c3 = step_counter(step, stream)
    for i in range(n):
        a, b = (min(i, sender), max(i, sender)) if symmetric else (sender, i)
        bits = philox4x32(b // 4, a, c2, c3, k0, k1)
        number = bits[0]
        for r in range(1, 4):
            if b % 4 == r:
                number = bits[r]
        out[i] = (number | floor) <= last[i, sender]
    return out


@njit(cache=True, nogil=True)
def rates(low, span, symmetric, stream, k0, k1, last):
    """last (n, n) uint32 = t - 1 with t uniform on low .. low + span, 1 <= low; rate 1 on the diagonal."""
    n = last.shape[0]
    bits = np.empty((4, _pad(n)), np.uint32)
    c2, c3 = step_counter(0, stream)
    for block in range((n + 3) // 4):
        _draw_bits(block, c2, c3, k0, k1, _pad(n), bits)
        for i in range(4 * block, min(n, 4 * block + 4)):
            for j in range(n):  # number (span + 1) < 2^64 because span < 2^32
                offset = (np.uint64(bits[i % 4, j]) * (span + np.uint64(1))) >> np.uint64(32)
                last[i, j] = np.uint32(low - np.uint64(1) + offset)
            last[i, i] = np.uint32(0xFFFFFFFF)
    if symmetric:
        for i in range(n):
            for j in range(i):
                last[j, i] = last[i, j]


# Small graphs: the graphs and matrices of the kernels above, vectorised over steps. A tile holds TILE steps that are
# `stride` apart, of which `lanes` are in use; the numbers of one pair (j, i) at these steps are contiguous.


TILE = 64
CLIENTS = 12  # with at most so many clients and
STEPS = 16  # at least so many steps these kernels are faster than `mixing` and `union`


@njit(cache=True, nogil=True)
def _draw_bits_of_steps(block, j, first, stride, stream, k0, k1, lanes, bits):
    """bits[r, t] of the pairs (j, 4 block + r) at step first + t stride, t < lanes."""
    for t in range(lanes):
        c2, c3 = step_counter(first + t * stride, stream)
        w0, w1, w2, w3 = philox4x32(block, j, c2, c3, k0, k1)
        bits[0, t] = w0
        bits[1, t] = w1
        bits[2, t] = w2
        bits[3, t] = w3


@njit(cache=True, nogil=True)
def _compare_steps(bits, r, floor, last, lanes, out):
    for t in range(lanes):
        out[t] = (bits[r, t] | floor) <= last


@njit(cache=True, nogil=True)
def fill(last, floor, symmetric, stream, k0, k1, first, stride, lanes, bits, out):
    """Adjacency of steps first + t stride, t < lanes, into out (n, n, TILE), [i, j, t] = edge j -> i."""
    n = last.shape[0]
    for j in range(n):
        begin = j if symmetric else 0
        for block in range(begin // 4, (n + 3) // 4):
            _draw_bits_of_steps(block, j, first, stride, stream, k0, k1, lanes, bits)
            for i in range(max(begin, 4 * block), min(n, 4 * block + 4)):
                _compare_steps(bits, i % 4, floor, last[i, j], lanes, out[i, j])
                if symmetric:
                    out[j, i] = out[i, j]


@njit(cache=True, nogil=True)
def weigh(adjacency, lanes, degree, share, weight):
    """weight[i, j, t] = adjacency[i, j, t] / (out-degree of j), t < lanes; degree and share are scratch."""
    n = adjacency.shape[0]
    for j in range(n):
        degree[:] = 0
        for i in range(n):
            for t in range(lanes):
                degree[t] += adjacency[i, j, t]
        for t in range(lanes):
            share[t] = 1.0 / degree[t]
        for i in range(n):
            for t in range(lanes):
                weight[i, j, t] = share[t] * adjacency[i, j, t]


@njit(cache=True, nogil=True)
def mixing_of_small_graphs(last, floor, symmetric, stream, k0, k1, first, out):
    """Mixing matrices of steps first, first + 1, ... into out (steps, n, n): 1 / outdegree of the sender on edges."""
    n = last.shape[0]
    bits = np.empty((4, TILE), np.uint32)
    adjacency = np.empty((n, n, TILE), np.uint8)
    degree, share = np.empty(TILE, np.int32), np.empty(TILE, np.float64)
    weight = np.empty((n, n, TILE), np.float64)
    by_pair, flat = weight.reshape(n * n, TILE), out.reshape(-1, n * n)
    for begin in range(0, out.shape[0], TILE):
        lanes = min(TILE, out.shape[0] - begin)
        fill(last, floor, symmetric, stream, k0, k1, first + begin, 1, lanes, bits, adjacency)
        weigh(adjacency, lanes, degree, share, weight)
        for t in range(lanes):
            for e in range(n * n):
                flat[begin + t, e] = by_pair[e, t]


@njit(cache=True, nogil=True)
def union_of_small_graphs(last, floor, symmetric, stream, k0, k1, first, count, out):
    """Add the edges of steps first .. first + count - 1 to out (n, n) uint8."""
    n = last.shape[0]
    bits = np.empty((4, TILE), np.uint32)
    adjacency = np.empty((n, n, TILE), np.uint8)
    for begin in range(0, count, TILE):
        lanes = min(TILE, count - begin)
        fill(last, floor, symmetric, stream, k0, k1, first + begin, 1, lanes, bits, adjacency)
        for i in range(n):
            for j in range(n):
                for t in range(lanes):
                    out[i, j] |= adjacency[i, j, t]


# Formats. Large arrays are allocated by NumPy and passed to the kernels: its allocations use huge pages, which halves
# the time of the first write.

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
    """CSR of an (n, n) boolean adjacency matrix with equal shares: 1 / (number of edges of column j) in column j."""
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
    counts = np.zeros(share.size, np.int32)  # narrow, so that a register holds many
    for i in range(adjacency.shape[0]):
        for j in range(counts.size):
            counts[j] += adjacency[i, j]
    for j in range(counts.size):
        share[j] = 1.0 / counts[j]


@njit(cache=True, nogil=True)
def _compress(adjacency, share, indices, weights):
    e = np.uint64(0)  # unsigned: a signed index is tested for being negative
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


# Sparse graphs: k distinct receivers for each sender.
#
# Floyd's algorithm [1] draws k distinct numbers out of n − 1: for d = 0 .. k−1 draw r uniform on 0 .. n−1−k+d; if r was
# drawn before, take n−1−k+d instead. Draw d of sender j at step s uses 64 random bits, half d mod 2 of the Philox
# counter (block d div 2, client j, step s). The numbers skip the sender: r stands for client r if r < j, else r + 1.
#
# Senders with the same k are processed side by side: chosen[d, a] is draw d of the sender in lane a, and LLVM
# vectorises every loop over a, including the test for repetition and sorting. That costs about k²/16 per sender. Where
# a scan over all n clients is cheaper, a table of n flags replaces it, with the same result.
#
# [1] J. Bentley, B. Floyd. Programming pearls: a sample of brilliance. Communications of the ACM 30 (9), 1987.


RECEIVER_LANES = 128
RECEIVER_TILE = 16384  # senders among which equal degrees are gathered


@njit(cache=True, nogil=True)
def _draw(n, k, client, c2, c3, k0, k1, chosen):
    """chosen[d, a] = draw d, uniform on 0 .. n-1-k+d."""
    for b in range((k + 1) // 2):
        m = np.uint64(n - k + 2 * b)
        for a in range(RECEIVER_LANES):
            w0, w1, w2, w3 = philox4x32(b, client[a], c2, c3, k0, k1)
            chosen[2 * b, a] = below(w0, w1, m)
            chosen[2 * b + 1, a] = below(w2, w3, m + np.uint64(1))


@njit(cache=True, nogil=True)
def _replace(chosen, d, e, top):
    for a in range(RECEIVER_LANES):
        chosen[d, a] = top if chosen[d, a] == chosen[e, a] else chosen[d, a]


@njit(cache=True, nogil=True)
def _exchange(chosen, e, d):
    """Smaller of rows e and d to row e, larger to row d."""
    for a in range(RECEIVER_LANES):
        x, y = chosen[e, a], chosen[d, a]
        chosen[e, a] = min(x, y)
        chosen[d, a] = max(x, y)


@njit(cache=True, nogil=True)
def _skip(chosen, e, client):
    for a in range(RECEIVER_LANES):
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
    for a in range(RECEIVER_LANES):
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
    for a in range(RECEIVER_LANES):
        chosen[k, a] = client[a]
    for e in range(k):
        _exchange(chosen, e, k)


@njit(cache=True, nogil=True)
def constant_receivers(n, k, first, step, stream, k0, k1, out):
    """Receivers of senders first, first + 1, ... into out (senders, k + 1), each row sorted."""
    c2, c3 = step_counter(step, stream)
    client = np.empty(RECEIVER_LANES, np.int32)
    chosen = np.empty((k + 2, RECEIVER_LANES), np.int32)
    for begin in range(0, out.shape[0], RECEIVER_LANES):
        for a in range(RECEIVER_LANES):
            client[a] = min(first + begin + a, n - 1)
        _receivers(n, k, client, c2, c3, k0, k1, chosen)
        for e in range(k + 1):
            for a in range(min(RECEIVER_LANES, out.shape[0] - begin)):
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
    c2, c3 = step_counter(step, stream)
    senders = indptr.size - 1
    most = 0
    for a in range(senders):
        most = max(most, indptr[a + 1] - indptr[a])
    client = np.empty(RECEIVER_LANES, np.int32)
    chosen = np.empty((most + 1, RECEIVER_LANES), np.int32)
    order, scratch = np.empty(RECEIVER_TILE, np.int64), np.empty(most + 2, np.int64)
    for begin in range(0, senders, RECEIVER_TILE):
        size = min(RECEIVER_TILE, senders - begin)
        _by_degree(indptr, begin, begin + size, scratch, order)
        p = 0
        while p < size:
            degree = indptr[order[p] + 1] - indptr[order[p]]
            q = p
            while q < min(size, p + RECEIVER_LANES) and indptr[order[q] + 1] - indptr[order[q]] == degree:
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
    """indptr of degrees 1 + smallest + #{table entries <= w}, w a 64-bit number of each sender first, first + 1, ..."""
    c2, c3 = step_counter(step, stream)
    indptr[0] = 0
    for a in range(indptr.size - 1):
        hi, lo, _, _ = philox4x32(0, first + a, c2, c3, k0, k1)
        number = (np.uint64(hi) << np.uint64(32)) | np.uint64(lo)
        e = guide[hi >> np.uint32(24)]  # passes over the entries below the leading byte
        while e < table.size and table[e] <= number:
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
