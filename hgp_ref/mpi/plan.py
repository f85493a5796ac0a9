"""One step as one rank sees it: which of its rows go where, whose come in, and in which order they are added.

A rank holds the rows of its clients begin .. end-1, and after them what it hears from elsewhere, in the senders' order:

    rows of z here     0 .. m-1        clients begin .. end-1
    rows heard         m .. m+h-1      senders below begin, then those from end on; those of one rank are one block

A receiver's sum runs over its senders in increasing order, as in the simulation. So what comes from lower ranks is
added first, then what is here, then what comes from higher ranks. A receiver who hears nobody below begins with what is
here: these sums are made while messages travel, the others once the rows of lower ranks are there (`divided`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hgp_ref._kernels import crossing
from hgp_ref._kernels.crossing import Heard
from hgp_ref._kernels.mixing import pull_vector_step, push_vector_step
from hgp_ref.channels.messages import messages_of
from hgp_ref.networks import Network

Block = tuple[int, int, int]  # rank, first row, end


@dataclass(frozen=True)
class Plan:
    """Step s for the rank whose clients are begin .. end-1."""

    net: Network
    step: int
    graph: tuple[
        np.ndarray, ...
    ]  # of all clients: lists by sender where they split equally, rows by receiver elsewhere
    begin: int
    end: int
    sends: np.ndarray  # rows of z to be sent, those for one rank after those for the rank before
    to: tuple[Block, ...]  # which of them go to which rank
    heard: Heard
    come: tuple[Block, ...]  # which of the rows heard come from which rank, counted from 0 = row m

    @property
    def elsewhere(self) -> int:
        """How many rows come in."""
        return self.come[-1][2] if self.come else 0

    @cached_property
    def messages(self) -> int:
        """Messages of all clients in this step, as everybody counts them."""
        return messages_of(self.net, *self.graph[:2])

    @cached_property
    def places(self) -> np.ndarray:
        """Where the rows of the senders heard stand."""
        senders, m = self.heard[0], self.end - self.begin
        here = (senders >= self.begin) & (senders < self.end)
        places = np.where(here, senders - self.begin, 0)
        places[~here] = m + np.arange(np.count_nonzero(~here))
        return places

    @cached_property
    def own(self) -> slice:
        """Which of the senders heard are here."""
        low, high = np.searchsorted(self.heard[0], (self.begin, self.end))
        return slice(int(low), int(high))

    @cached_property
    def divided(self) -> tuple[Heard, Heard]:
        """Edges between clients here: to those who hear nobody below, and to the others."""
        late = np.zeros(self.end - self.begin, dtype=np.bool_)
        late[self.part(slice(0, self.own.start))[2]] = True
        return crossing.divided(self.part(self.own), late)

    def part(self, which: slice) -> Heard:
        """The edges of some of the senders heard, neighbours."""
        senders, where, here, weights = self.heard
        edges = slice(int(where[which.start]), int(where[which.stop]))
        return senders[which], where[which.start : which.stop + 1] - edges.start, here[edges], weights[edges]

    def weigh(self, omega: np.ndarray) -> np.ndarray:
        """W_s ω of all clients: a function of the graphs, which every rank knows."""
        if self.net.equal_shares:
            return push_vector_step(self.graph[0], self.graph[1], omega)
        return pull_vector_step(self.graph[0], self.graph[1], self.graph[2], omega)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """CSR of the rows here over the places of their senders, senders in order: for libraries without kernels."""
        _, where, here, weights = self.heard
        order = np.argsort(here, kind="stable")
        indptr = np.searchsorted(here[order], np.arange(self.end - self.begin + 1))
        return indptr, np.repeat(self.places, np.diff(where))[order], weights[order]


def plan(net: Network, s: int, starts: np.ndarray, rank: int) -> Plan:
    """Step s of `net` for `rank`; rank q has the clients starts[q] .. starts[q+1]-1."""
    begin, end = int(starts[rank]), int(starts[rank + 1])
    graph: tuple[np.ndarray, ...]
    if net.equal_shares:
        lists = graph = net.out_lists(s)
        heard = crossing.heard_of_lists(*lists, begin, end)
        where, clients = crossing.sent_of_lists(*lists, starts, rank)
    else:
        rows = graph = net.csr(s)
        heard = crossing.heard_of_rows(*rows, begin, end)
        where, clients = crossing.sent_of_rows(*rows[:2], starts, rank)
    low, high = np.searchsorted(heard[0], (begin, end))
    elsewhere = np.concatenate([heard[0][:low], heard[0][high:]])
    return Plan(
        net=net,
        step=s,
        graph=graph,
        begin=begin,
        end=end,
        sends=clients - begin,
        to=_blocks(where),
        heard=heard,
        come=_blocks(np.searchsorted(elsewhere, starts)),
    )


def _blocks(where: np.ndarray) -> tuple[Block, ...]:
    """Ranks with at least one row, and which."""
    return tuple((q, int(where[q]), int(where[q + 1])) for q in np.flatnonzero(np.diff(where)).tolist())
