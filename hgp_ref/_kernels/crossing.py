"""A graph as one of several ranges of clients sees it: what its rows add up, and which of its clients others hear.

Clients begin .. end-1 are here. Of a graph, by sender (lists) or by receiver (CSR), in time of its edges:

    heard    the senders that somebody here hears, in increasing order, each with its receivers here and their weights
    sent     for every other range, those clients here whom somebody there hears, each once, in increasing order

Whoever is heard here from elsewhere finds this range under its own `sent`, because both read the same graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref._kernels import registers
from hgp_ref._kernels.mixing import NARROW, WIDE, within
from hgp_ref._kernels.registers import LINE
from hgp_ref.compiled import njit
from hgp_ref.threads import over_rows

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


def heard_of_rows(indptr: np.ndarray, senders: np.ndarray, weights: np.ndarray, begin: int, end: int) -> Heard:
    """The same from a matrix by rows."""
    own = indptr[begin : end + 1]
    edges = slice(int(own[0]), int(own[-1]))
    where = np.zeros(indptr.size + 1, dtype=np.int64)
    here, sorted_weights = np.empty(edges.stop - edges.start, np.int32), np.empty(edges.stop - edges.start)
    _by_sender(own - own[0], senders[edges], weights[edges], where, here, sorted_weights)
    counts = np.diff(where[:-1])
    each = np.flatnonzero(counts)
    ends = np.cumsum(counts[each], dtype=np.int64)
    return each, np.concatenate([np.zeros(1, np.int64), ends]), here, sorted_weights


@njit(cache=True, nogil=True)
def _by_sender(own, senders, weights, where, here, sorted_weights):
    """A counting sort; where (n + 2,), zero on entry, is where each sender begins, one place further on."""
    for e in range(senders.size):
        where[senders[e] + 2] += 1
    for j in range(2, where.size):
        where[j] += where[j - 1]
    for i in range(own.size - 1):  # receivers in order, so every list comes out sorted
        for e in range(own[i], own[i + 1]):
            j = senders[e] + 1
            here[where[j]] = i
            sorted_weights[where[j]] = weights[e]
            where[j] += 1


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
    marks = np.full(int(starts[here + 1] - starts[here]), -1, dtype=np.int64)
    parts = []
    for q in range(starts.size - 1):
        edges = senders[indptr[starts[q]] : indptr[starts[q + 1]]] if q != here else senders[:0]
        _mark(edges, int(starts[here]), q, marks)
        parts.append(np.flatnonzero(marks == q) + starts[here])
    where = np.concatenate([np.zeros(1, np.int64), np.cumsum([part.size for part in parts], dtype=np.int64)])
    return where, np.concatenate(parts)


@njit(cache=True, nogil=True)
def _mark(clients, begin, mark, marks):
    for e in range(clients.size):
        j = clients[e] - begin
        if 0 <= j < marks.size:
            marks[j] = mark


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
