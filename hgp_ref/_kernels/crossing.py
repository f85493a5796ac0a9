"""A graph as one of several ranges of clients sees it: what its rows add up, and which of its clients others hear.

Clients begin .. end-1 are here. Of a graph, by sender (lists) or by receiver (CSR), in time of its edges:

    heard    the senders that somebody here hears, in increasing order, each with its receivers here and their weights
    sent     for every other range, those clients here whom somebody there hears, each once, in increasing order

Whoever is heard here from elsewhere finds this range under its own `sent`, because both read the same graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref._kernels import mixing as registers
from hgp_ref._kernels.mixing import LINE, NARROW, WIDE, within
from hgp_ref._numba import njit, over_rows

# senders (k,), where the edges of each begin (k + 1,), receivers from 0 = client `begin` on (e,), weights (e,)
Heard = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Sent = tuple[np.ndarray, np.ndarray]  # where each range begins in, and the clients


def heard_of_lists(indptr: np.ndarray, receivers: np.ndarray, begin: int, end: int) -> Heard:
    """Who is heard where every sender splits equally."""
    edges, senders = _count_heard(indptr, receivers, begin, end)
    heard = np.empty(senders, np.int64), np.zeros(senders + 1, np.int64), np.empty(edges, np.int32), np.empty(edges)
    _fill_heard(indptr, receivers, begin, end, *heard)
    return heard


@njit(cache=True, nogil=True)
def _count_heard(indptr, receivers, begin, end):
    edges, senders = 0, 0
    for j in range(indptr.size - 1):
        before = edges
        for e in range(indptr[j], indptr[j + 1]):
            edges += (receivers[e] >= begin) & (receivers[e] < end)
        senders += edges > before
    return edges, senders


@njit(cache=True, nogil=True)
def _fill_heard(indptr, receivers, begin, end, senders, where, here, weights):
    edges, count = 0, 0
    for j in range(indptr.size - 1):
        first, last = within(receivers, indptr[j], indptr[j + 1], begin, end)
        if first < last:
            share = 1.0 / (indptr[j + 1] - indptr[j])
            for e in range(first, last):
                here[edges] = receivers[e] - begin
                weights[edges] = share
                edges += 1
            senders[count] = j
            count += 1
            where[count] = edges


@dataclass(frozen=True)
class Pulled:
    """Rows begin .. end-1 of a matrix by rows, every sender named by where its row stands: here, or after these."""

    elsewhere: np.ndarray  # senders that are not here, sorted
    cuts: np.ndarray  # (4, m): where the edges of each row begin, those from here, those from above, and their end
    places: np.ndarray  # (e,) int32
    weights: np.ndarray  # (e,)
    early: np.ndarray  # rows that hear nobody below
    late: np.ndarray  # the others
    higher: np.ndarray  # rows that hear somebody above


def pulled(indptr: np.ndarray, senders: np.ndarray, weights: np.ndarray, begin: int, end: int) -> Pulled:
    """The rows of the clients here, from those of all."""
    return Pulled(*_pulled(indptr, senders, weights, begin, end))


@njit(cache=True, nogil=True)
def _pulled(indptr, senders, weights, begin, end):
    m, base = end - begin, indptr[begin]
    size = indptr[end] - base
    place, cuts, places = np.zeros(indptr.size - 1, np.int32), np.empty((4, m), np.int64), np.empty(size, np.int32)
    for e in range(base, base + size):
        place[senders[e]] = 1
    elsewhere, count = np.empty(min(size, place.size), np.int64), 0
    for j in range(place.size):
        if begin <= j < end:
            place[j] = j - begin
        elif place[j]:
            elsewhere[count] = j
            place[j] = m + count
            count += 1
    rows, kinds = np.empty((3, m), np.int64), np.zeros(3, np.int64)
    for i in range(m):
        e, last = indptr[begin + i] - base, indptr[begin + i + 1] - base
        cuts[0, i], cuts[3, i] = e, last
        while e < last and senders[base + e] < begin:  # senders are sorted
            e += 1
        cuts[1, i] = e
        while e < last and senders[base + e] < end:
            e += 1
        cuts[2, i] = e
        for k in range(cuts[0, i], last):
            places[k] = place[senders[base + k]]
        kind = 0 if cuts[0, i] == cuts[1, i] else 1
        rows[kind, kinds[kind]] = i
        kinds[kind] += 1
        if e < last:
            rows[2, kinds[2]] = i
            kinds[2] += 1
    early, late, higher = rows[0, : kinds[0]], rows[1, : kinds[1]], rows[2, : kinds[2]]
    return elsewhere[:count], cuts, places, weights[base : base + size].copy(), early, late, higher


def divided(heard: Heard, late: np.ndarray) -> tuple[Heard, Heard]:
    """The edges to receivers that are not `late` (m,) bool, and those to receivers that are; senders stay in order."""
    senders, where, here, weights = heard
    k, edges = senders.size, here.size
    parts = [(np.zeros(k + 1, np.int64), np.empty(edges, np.int32), np.empty(edges)) for _ in range(2)]
    _divide(where, here, weights, late, *parts[0], *parts[1])
    early, tardy = ((senders, to, i[: to[-1]], w[: to[-1]]) for to, i, w in parts)
    return early, tardy


@njit(cache=True, nogil=True)
def _divide(where, here, weights, late, where_a, here_a, weights_a, where_b, here_b, weights_b):
    a, b = 0, 0
    for k in range(where.size - 1):
        for e in range(where[k], where[k + 1]):
            if late[here[e]]:
                here_b[b], weights_b[b] = here[e], weights[e]
                b += 1
            else:
                here_a[a], weights_a[a] = here[e], weights[e]
                a += 1
        where_a[k + 1], where_b[k + 1] = a, b


def sent_of_lists(indptr: np.ndarray, receivers: np.ndarray, starts: np.ndarray, here: int) -> Sent:
    """Which clients of range `here` each range hears; range q is starts[q] .. starts[q+1]-1."""
    where = np.zeros(starts.size, dtype=np.int64)
    _sent_of_lists(indptr, receivers, starts, here, where, np.empty(0, dtype=np.int64))
    clients = np.empty(where[-1], dtype=np.int64)
    if clients.size:
        _sent_of_lists(indptr, receivers, starts, here, where.copy(), clients)
    return where, clients


@njit(cache=True, nogil=True)
def _sent_of_lists(indptr, receivers, starts, here, where, clients):
    """Without room for clients: where[q] becomes their number before range q. With it: they are filled in."""
    counting = clients.size == 0
    for j in range(starts[here], starts[here + 1]):
        q, last = 0, -1
        for e in range(indptr[j], indptr[j + 1]):
            while receivers[e] >= starts[q + 1]:  # receivers are sorted
                q += 1
            if q != last and q != here:
                if counting:
                    where[q + 1] += 1
                else:
                    clients[where[q]] = j
                    where[q] += 1
            last = q
    if counting:
        for q in range(where.size - 1):
            where[q + 1] += where[q]


def sent_of_rows(indptr: np.ndarray, senders: np.ndarray, starts: np.ndarray, here: int) -> Sent:
    """The same from a matrix by rows."""
    where = np.zeros(starts.size, dtype=np.int64)
    clients = np.empty(int(starts[here + 1] - starts[here]) * (starts.size - 2), dtype=np.int64)
    _sent_of_rows(indptr, senders, starts, here, where, clients)
    return where, clients[: where[-1]]


@njit(cache=True, nogil=True)
def _sent_of_rows(indptr, senders, starts, here, where, clients):
    begin, m = starts[here], starts[here + 1] - starts[here]
    heard = np.full(m, -1, dtype=np.int64)  # by which range last
    count = 0
    for q in range(starts.size - 1):
        if q != here:
            for e in range(indptr[starts[q]], indptr[starts[q + 1]]):
                j = senders[e] - begin
                if 0 <= j < m:
                    heard[j] = q
            for j in range(m):
                if heard[j] == q:
                    clients[count] = begin + j
                    count += 1
        where[q + 1] = count


# ----------------------------------------------------------------------------------------------------
# Sums over the edges that `crossing` finds, in parts that follow the senders' order.
#
# A receiver adds its senders in increasing order, beginning from 0, and every product and sum rounds once: whether they
# are pushed or pulled, in one part or in several, the sums are those of `mixing.pull_step` and `mixing.push_step`.


def add_heard(places: np.ndarray, heard: Heard, z: np.ndarray, out: np.ndarray) -> None:
    """out[i] += weight · z[places[k]] for the edges of the k-th sender, one sender after the other.

    From out = 0 and senders in increasing order these are the sums of `mixing.pull_step`, bit for bit.
    """
    _, where, here, weights = heard
    over_rows(_add_blocks, out.shape[0], here.size * z.shape[1], places, where, here, weights, z, out)


def _add_block(width: int) -> Any:
    """`width` bytes of what stands in row j, from column c on, to the rows of its receivers."""

    @njit(cache=False, nogil=True, forceinline=True)
    def block(receivers, weights, z, out, first, last, j, c):
        sent = registers.load(z, j, c, width)
        for e in range(first, last):
            i = np.uint32(receivers[np.uint64(e)])
            added = registers.times(weights[np.uint64(e)], sent)
            registers.store(registers.plus(registers.load(out, i, c, width), added), out, i, c)

    return block


_add_wide, _add_line, _add_narrow = (_add_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _add_blocks(begin, end, places, where, receivers, weights, z, out):
    """Rows begin .. end-1 of out, in blocks of columns, and what few columns are left one by one."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    for k in range(places.size):
        j, first, last = places[k], where[k], where[k + 1]
        if end - begin < out.shape[0]:
            first, last = within(receivers, first, last, begin, end)
        c = 0
        while c + wide <= d:
            _add_wide(receivers, weights, z, out, first, last, j, c)
            c += wide
        while c + line <= d:
            _add_line(receivers, weights, z, out, first, last, j, c)
            c += line
        while c + narrow <= d:
            _add_narrow(receivers, weights, z, out, first, last, j, c)
            c += narrow
        for b in range(c, d):
            sent = z[j, b]
            for e in range(first, last):
                out[np.uint64(np.uint32(receivers[np.uint64(e)])), b] += z.dtype.type(weights[np.uint64(e)]) * sent


def pull_part(
    rows: np.ndarray, first: np.ndarray, last: np.ndarray, graph: Pulled, z: np.ndarray, out: np.ndarray, fresh: bool
) -> None:
    """out[i] = Σ over the edges first[i] .. last[i]-1 of weight · z[place] for the rows i that are listed.

    From 0 where `fresh`, from what out[i] holds elsewhere: the sums of `mixing.pull_step`, bit for bit, where the parts
    of a row come in order.
    """
    if not rows.size:
        return
    work = int(graph.places.size * z.shape[1] * rows.size / max(1, out.shape[0]))
    over_rows(_pull_part, rows.size, work, rows, first, last, graph.places, graph.weights, z, out, fresh)


def _pull_block(width: int) -> Any:
    """`width` bytes of row i of the result, from column c on."""

    @njit(cache=False, nogil=True, forceinline=True)
    def block(places, weights, z, out, first, last, i, c, fresh):
        total = registers.zeros(z, width) if fresh else registers.load(out, i, c, width)
        for e in range(first, last):
            edge = np.uint64(e)
            sent = registers.load(z, np.uint32(places[edge]), c, width)
            total = registers.plus(total, registers.times(weights[edge], sent))
        registers.store(total, out, i, c)

    return block


_pull_wide, _pull_line, _pull_narrow = (_pull_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _pull_part(begin, end, rows, first, last, places, weights, z, out, fresh):
    """In blocks of columns, and what few columns are left one by one: no block is added to twice."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    for k in range(begin, end):
        i = rows[k]
        a, b = first[i], last[i]
        c = 0
        while c + wide <= d:
            _pull_wide(places, weights, z, out, a, b, i, c, fresh)
            c += wide
        while c + line <= d:
            _pull_line(places, weights, z, out, a, b, i, c, fresh)
            c += line
        while c + narrow <= d:
            _pull_narrow(places, weights, z, out, a, b, i, c, fresh)
            c += narrow
        for column in range(c, d):
            total = z.dtype.type(0) if fresh else out[i, column]
            for e in range(a, b):
                edge = np.uint64(e)
                total += z.dtype.type(weights[edge]) * z[np.uint32(places[edge]), column]
            out[i, column] = total
