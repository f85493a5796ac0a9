"""When what is sent over unreliable links is received, and from whom: a call of S steps as sums over past rows.

Client j holds z_j(t) before step t = 1, 2, ... and sends the share W_ij(t) z_j(t) to client i. Each share is *due* at
one step, at whose end the receiver adds it:

    z_i(t + 1) = Σ of all shares W_ij(s) z_j(s), s ≤ t, that are due at t.

Plain messages carry one share each, due when the message arrives, and never if it is lost. With running sums the
message j → i of step s carries σ_ij(s) = Σ_{r ≤ s} W_ij(r) z_j(r), the total of what j has sent to i so far, and the
receiver adds σ − ρ with ρ the last total it had from j; totals older than that are ignored. Shares that were lost are
made up for by the next message of the same edge: a share of step s is due at

    min { arrival of the message j → i of step r : r ≥ s, not lost }.

The total of the weights grows with every message and tells an old total from a new one, so that d + 1 numbers travel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref._kernels.links import LOST, NEVER, cover, group
from hgp_ref._kernels.lists import Csr
from hgp_ref.networks import Unreliable

TABLE = 2**22  # pairs of clients, up to which a table with an entry for every pair is kept


@dataclass(frozen=True)
class Underway:
    """What was sent and is not received yet: entry k goes from sender to receiver and is due at step due[k]."""

    senders: np.ndarray
    receivers: np.ndarray
    due: np.ndarray  # NEVER where no message that was sent carries it
    since: np.ndarray  # the first step whose share it holds

    @staticmethod
    def nothing() -> Underway:
        return Underway(*(np.empty(0, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Deliveries:
    """`steps` steps after step `first - 1`: which rows each step adds up, and what is under way at the end.

    Rows are numbered: those under way before, then the n clients before the first step, before the second, ...
    """

    rows: list[Csr]  # what clients hold after each of the steps, (n, rows so far)
    left: Underway
    left_rows: Csr  # of each entry of `left`
    messages: int


def deliveries(net: Unreliable, first: int, steps: int, robust: bool, before: Underway) -> Deliveries:
    """The deliveries of steps first .. first + steps - 1, with `before` under way."""
    n, waiting = net.n, before.due.size
    senders, receivers, shares = [before.senders], [before.receivers], [np.ones(waiting)]
    due, since, source = [np.maximum(before.due, first)], [before.since], [np.arange(waiting)]
    for k in range(steps):
        indptr, froms, weights, late = net.links(first + k)
        senders.append(froms)
        receivers.append(np.repeat(np.arange(n), np.diff(indptr)))
        shares.append(weights)
        due.append(np.where(late == LOST, NEVER, first + k + late))
        since.append(np.full(late.size, first + k))
        source.append(waiting + k * n + froms.astype(np.int64))
    j, i, share, at, sent, row = (np.concatenate(parts) for parts in (senders, receivers, shares, due, since, source))
    if robust:
        _cover(i * n + j, at, n)
    received = at < first + steps
    bucket = (at[received] - first) * n + i[received]
    indptr, order = group(bucket, steps * n)
    columns, weights = row[received][order].astype(np.int32), share[received][order]
    rows = []
    for k in range(steps):
        begin = indptr[k * n : (k + 1) * n + 1]
        part = slice(begin[0], begin[-1])
        rows.append((begin - begin[0], columns[part], weights[part]))
    waits = ~received if robust else ~received & (at < NEVER)
    left, left_rows = _merged(*(part[waits] for part in (j, i, at, sent, row, share)))
    return Deliveries(rows, left, left_rows, int(np.count_nonzero(j[waiting:] != i[waiting:])))


def _cover(pair: np.ndarray, due: np.ndarray, n: int) -> None:
    """Running sums: everything on a pair is due with the first message sent no earlier than it."""
    pairs = n * n
    if pairs > TABLE:
        distinct, pair = np.unique(pair, return_inverse=True)
        pairs = distinct.size
    cover(pair, due, np.full(pairs, NEVER))


def _merged(
    j: np.ndarray, i: np.ndarray, due: np.ndarray, since: np.ndarray, row: np.ndarray, share: np.ndarray
) -> tuple[Underway, Csr]:
    """One entry for each (receiver, sender, due): what waits for the same message is added up."""
    if not j.size:
        return Underway.nothing(), (np.zeros(1, dtype=np.int64), row.astype(np.int32), share)
    order = np.lexsort((due, j, i))
    j, i, due = j[order], i[order], due[order]
    new = np.ones(order.size, dtype=bool)
    new[1:] = (np.diff(i) != 0) | (np.diff(j) != 0) | (due[1:] != due[:-1])
    starts = np.flatnonzero(new)
    indptr = np.append(starts, order.size).astype(np.int64)
    earliest = np.minimum.reduceat(since[order], starts)
    left = Underway(j[starts].astype(np.int64), i[starts].astype(np.int64), due[starts], earliest)
    return left, (indptr, row[order].astype(np.int32), share[order])
