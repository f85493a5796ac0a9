"""One step as one rank sees it: which of its rows go where, whose come in, and in which order they are added.

A rank holds the rows of its clients begin .. end-1, and after them what it hears from elsewhere, in the senders' order:

    rows of z here     0 .. m-1        clients begin .. end-1
    rows heard         m .. m+h-1      senders below begin, then those from end on; those of one rank are one block

A receiver's sum runs over its senders in increasing order, as in the simulation. So what comes from lower ranks is
added first, then what is here, then what comes from higher ranks. A receiver who hears nobody below begins with what is
here: these sums are begun while messages travel, the others once the rows of lower ranks are there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hgp_ref._kernels import crossing, crossing_sums
from hgp_ref._kernels.crossing import Heard, Pulled
from hgp_ref._kernels.lists import Csr
from hgp_ref._kernels.mixing import pull_vector_step, push_vector_step
from hgp_ref.channels.messages import messages_of
from hgp_ref.mpi.route import Route, blocks
from hgp_ref.networks import Network
from hgp_ref.networks.base import Edges

OVERLAP_FROM = 32  # columns from which on pushing is worth sorting edges by whether their receivers wait for others


@dataclass(frozen=True)
class RankStep(Route, ABC):
    """Step s for the rank whose clients are begin .. end-1. Sums are made in three parts, into `out` (m, columns)."""

    net: Network
    begin: int
    end: int

    @property
    @abstractmethod
    def messages(self) -> int:
        """Messages of all clients in this step, as everybody counts them."""

    @abstractmethod
    def weigh(self, omega: np.ndarray) -> np.ndarray:
        """W_s ω of all clients: a function of the graphs, which every rank knows."""

    @abstractmethod
    def at_once(self, held: np.ndarray, out: np.ndarray) -> None:
        """What needs no other rank."""

    @abstractmethod
    def with_lower(self, held: np.ndarray, out: np.ndarray) -> None:
        """What waits for the rows of lower ranks."""

    @abstractmethod
    def with_higher(self, held: np.ndarray, out: np.ndarray) -> None:
        """What comes last, from higher ranks."""

    @abstractmethod
    def rows(self) -> Csr:
        """CSR of the rows here over the places of their senders, senders in order: for libraries without kernels."""


@dataclass(frozen=True)
class PushedStep(RankStep):
    """Where every sender splits equally: its lists of receivers are followed as they are drawn."""

    lists: Edges  # of all clients
    heard: Heard

    @cached_property
    def messages(self) -> int:
        return messages_of(self.net, *self.lists)

    def weigh(self, omega: np.ndarray) -> np.ndarray:
        return push_vector_step(*self.lists, omega)

    def at_once(self, held: np.ndarray, out: np.ndarray) -> None:
        out[...] = 0
        early, _ = self._own_edges(held.shape[1])
        if early is not None:
            crossing_sums.add_heard(self._places[self._own], early, held, out)

    def with_lower(self, held: np.ndarray, out: np.ndarray) -> None:
        self._add(slice(0, self._own.start), held, out)
        _, late = self._own_edges(held.shape[1])
        if late is not None:
            crossing_sums.add_heard(self._places[self._own], late, held, out)

    def with_higher(self, held: np.ndarray, out: np.ndarray) -> None:
        self._add(slice(self._own.stop, self.heard[0].size), held, out)

    def rows(self) -> Csr:
        _, where, here, weights = self.heard
        order = np.argsort(here, kind="stable")
        indptr = np.searchsorted(here[order], np.arange(self.end - self.begin + 1))
        return indptr, np.repeat(self._places, np.diff(where))[order], weights[order]

    def _add(self, which: slice, held: np.ndarray, out: np.ndarray) -> None:
        if which.start < which.stop:
            crossing_sums.add_heard(self._places[which], self._part(which), held, out)

    def _own_edges(self, columns: int) -> tuple[Heard | None, Heard | None]:
        """Edges between clients here that may be added at once, and those that wait for lower ranks."""
        if self._own.start == 0:
            return self._part(self._own), None
        return self._divided if columns >= OVERLAP_FROM else (None, self._part(self._own))

    @cached_property
    def _divided(self) -> tuple[Heard, Heard]:
        """Edges between clients here: to those who hear nobody below, and to the others."""
        late = np.zeros(self.end - self.begin, dtype=np.bool_)
        late[self._part(slice(0, self._own.start))[2]] = True
        return crossing.divided(self._part(self._own), late)

    @cached_property
    def _own(self) -> slice:
        """Which of the senders heard are here."""
        low, high = np.searchsorted(self.heard[0], (self.begin, self.end))
        return slice(int(low), int(high))

    @cached_property
    def _places(self) -> np.ndarray:
        """Where the rows of the senders heard stand."""
        senders, own = self.heard[0], self._own
        places = np.arange(senders.size) + (self.end - self.begin)
        places[own.stop :] -= own.stop - own.start
        places[own] = senders[own] - self.begin
        return places

    def _part(self, which: slice) -> Heard:
        """The edges of some of the senders heard, neighbours."""
        senders, where, here, weights = self.heard
        edges = slice(int(where[which.start]), int(where[which.stop]))
        return senders[which], where[which.start : which.stop + 1] - edges.start, here[edges], weights[edges]


@dataclass(frozen=True)
class PulledStep(RankStep):
    """Where weights are given by rows: every receiver collects."""

    graph: Csr  # of all clients
    pulled: Pulled

    @cached_property
    def messages(self) -> int:
        return messages_of(self.net, *self.graph[:2])

    def weigh(self, omega: np.ndarray) -> np.ndarray:
        return pull_vector_step(*self.graph, omega)

    def at_once(self, held: np.ndarray, out: np.ndarray) -> None:
        self._pull(self.pulled.early, 1, 2, held, out, True)

    def with_lower(self, held: np.ndarray, out: np.ndarray) -> None:
        self._pull(self.pulled.late, 0, 2, held, out, True)

    def with_higher(self, held: np.ndarray, out: np.ndarray) -> None:
        self._pull(self.pulled.higher, 2, 3, held, out, False)

    def rows(self) -> Csr:
        cuts = self.pulled.cuts
        return np.append(cuts[0], cuts[3, -1]), self.pulled.places, self.pulled.weights

    def _pull(self, rows: np.ndarray, first: int, last: int, held: np.ndarray, out: np.ndarray, fresh: bool) -> None:
        cuts = self.pulled.cuts
        crossing_sums.pull_part(rows, cuts[first], cuts[last], self.pulled, held, out, fresh)


def rank_step(net: Network, s: int, starts: np.ndarray, rank: int) -> RankStep:
    """Step s of `net` for `rank`; rank q has the clients starts[q] .. starts[q+1]-1."""
    begin, end = int(starts[rank]), int(starts[rank + 1])
    if net.equal_shares:
        lists = net.out_lists(s)
        heard = crossing.heard_of_lists(*lists, begin, end)
        low, high = np.searchsorted(heard[0], (begin, end))
        elsewhere = np.concatenate([heard[0][:low], heard[0][high:]])
        where, clients = crossing.sent_of_lists(*lists, starts, rank)
        ways = blocks(where), blocks(np.searchsorted(elsewhere, starts))
        return PushedStep(s, clients - begin, *ways, net, begin, end, lists, heard)
    graph = net.csr(s)
    pulled = crossing.pulled(*graph, begin, end)
    where, clients = crossing.sent_of_rows(*graph[:2], starts, rank)
    ways = blocks(where), blocks(np.searchsorted(pulled.elsewhere, starts))
    return PulledStep(s, clients - begin, *ways, net, begin, end, graph, pulled)
