"""A call of mixing between ranks by columns: two exchanges, however many steps it takes.

A step mixes every column of z (n, C) by itself. So rank q takes the columns cuts[q] .. cuts[q+1]-1 of all clients, goes
through all steps of the call as the simulation does, bit for bit, and gives the rows back to whose they are:

    z (m, C)  clients here, all columns  →  (n, c)  all clients, columns of this rank  →  S steps  →  (m, C)

By rows (`host_rows`) each step sends those that cross, X of them over all R ranks: S X rows a call. By columns a call
sends 2 n (R − 1)/R: less on graphs that join everybody, more where few edges cross.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from hgp_ref._kernels.mixing import empty_like
from hgp_ref._kernels.registers import LINE
from hgp_ref.channels.stepping import drawn, mix_along
from hgp_ref.mpi.ranks import Ranks
from hgp_ref.networks import Network
from hgp_ref.networks.base import Csr, Edges

AHEAD = 2**19  # edges of graphs that are drawn beforehand


def columns_pay(net: Network, first: int, steps: int, columns: int, starts: np.ndarray) -> bool:
    """Whether a call of `steps` steps goes by columns, judged by its first graph: the same answer on every rank."""
    n, ranks = net.n, starts.size - 1
    if not 1 < ranks <= columns:  # everybody must have one
        return False
    return steps * rows_that_cross(net.out_lists(first), starts) >= 2 * n * (ranks - 1) / ranks


def rows_that_cross(lists: Edges, starts: np.ndarray) -> int:
    """Pairs of a client and a rank that is not its own where somebody hears it; lists of receivers, sorted."""
    indptr, receivers = lists
    clients = np.arange(indptr.size - 1)
    senders = np.repeat(clients, np.diff(indptr))
    home, there = (np.searchsorted(starts, who, side="right") for who in (clients, receivers))
    again = np.zeros(senders.size, dtype=np.bool_)
    again[1:] = (senders[1:] == senders[:-1]) & (there[1:] == there[:-1])
    return int(np.count_nonzero((there != home[senders]) & ~again))


class Strips:
    """Calls on arrays like z (m, C), in buffers that stay; rank q has the clients starts[q] .. starts[q+1]-1."""

    def __init__(self, ranks: Ranks, starts: np.ndarray, z: np.ndarray) -> None:
        self.ranks, (m, columns), self.dtype = ranks, z.shape, z.dtype
        line = LINE // z.itemsize if columns * z.itemsize >= LINE * ranks.size else 1
        ends = [*(columns * q // ranks.size // line * line for q in range(1, ranks.size)), columns]
        self.rows = [slice(int(a), int(b)) for a, b in pairwise(starts)]
        self.cuts = [slice(a, b) for a, b in pairwise([0, *ends])]
        self.here, self.own = self.rows[ranks.rank], self.cuts[ranks.rank]
        strip = np.broadcast_to(z[:1, self.own], (int(starts[-1]), self.own.stop - self.own.start))
        self.held, self.free = empty_like(strip), empty_like(strip)  # (n, c)
        others = [q for q in range(ranks.size) if q != ranks.rank]
        self.parts = {q: np.empty((m, self.cuts[q].stop - self.cuts[q].start), z.dtype) for q in others}

    def fit(self, z: np.ndarray) -> bool:
        """Whether the buffers are those for z."""
        return z.shape[1] == self.cuts[-1].stop and z.dtype == self.dtype

    def mix(
        self, z: np.ndarray, net: Network, first: int, steps: int, omega: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """(P z, P ω, messages) over graphs first, first + 1, ..., of which some are drawn while rows travel."""
        some = min(steps, max(1, int(AHEAD // net.expected_edges)))
        graphs: list[Edges | Csr] = []
        messages = 0
        self.take(z, f"step {first}", lambda: graphs.extend(drawn(net, s) for s in range(first, first + some)))
        for k in range(steps):
            graph = graphs[k] if k < some else drawn(net, first + k)
            sent, omega = mix_along(net, graph, self.held, self.free, omega)
            self.held, self.free = self.free, self.held
            messages += sent
        return self.give(self.held, f"step {first + steps - 1}"), omega, messages

    def take(self, z: np.ndarray, what: str, meanwhile: Callable[[], Any] = lambda: None) -> np.ndarray:
        """From rows (m, C) to columns `held` (n, c): they come in where they belong."""
        arriving = {q: self.held[self.rows[q]] for q in self.parts}
        for q, part in self.parts.items():
            part[...] = z[:, self.cuts[q]]
        requests = self._post(arriving, self.parts)
        self.held[self.here] = z[:, self.own]
        meanwhile()
        self.ranks.wait(requests, what, [*self.parts, *self.parts])
        return self.held

    def give(self, held: np.ndarray, what: str) -> np.ndarray:
        """From columns (n, c) to rows (m, C): they go out as they lie."""
        requests = self._post(self.parts, {q: held[self.rows[q]] for q in self.parts})
        out = np.empty((self.here.stop - self.here.start, self.cuts[-1].stop), self.dtype)
        out[:, self.own] = held[self.here]
        self.ranks.wait(requests, what, [*self.parts, *self.parts])
        for q, part in self.parts.items():
            out[:, self.cuts[q]] = part
        return out

    def _post(self, arriving: dict[int, np.ndarray], leaving: dict[int, np.ndarray]) -> list[Any]:
        comm = self.ranks.comm
        requests = [comm.Irecv(a.view(np.uint8), q) for q, a in arriving.items()]
        requests += [comm.Isend(a.view(np.uint8), q) for q, a in leaving.items()]
        sent = leaving.values()
        self.ranks.count(len(sent), sum(len(a) for a in sent), sum(a.nbytes for a in sent))
        return requests
