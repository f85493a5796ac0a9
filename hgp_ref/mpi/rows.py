"""Which rows go where: what one exchange between ranks carries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref._kernels import crossing
from hgp_ref._kernels import crossing as crossing_sums
from hgp_ref._kernels.crossing import Heard, Pulled
from hgp_ref._kernels.graphs import Csr
from hgp_ref._kernels.mixing import empty_like, padded_rows, pull_vector_step, push_vector_step
from hgp_ref.backend import Array, addressable, array_namespace, device, from_host, host_dtype, synchronize, to_host
from hgp_ref.mixing.channel import messages_of
from hgp_ref.mpi.communicator import Ranks
from hgp_ref.networks import Network
from hgp_ref.networks.base import Edges

Block = tuple[int, int, int]  # rank, first row, end


@dataclass(frozen=True)
class Route:
    """Rows that leave this rank, and rows that come in: those of one rank are one block, and one message."""

    step: int  # of the network, for messages
    sends: np.ndarray  # rows of z to be sent, those for one rank after those for the rank before
    to: tuple[Block, ...]  # which of them go to which rank
    come: tuple[Block, ...]  # which of the rows that come in are from which rank, counted from 0

    @property
    def elsewhere(self) -> int:
        """How many rows come in."""
        return self.come[-1][2] if self.come else 0


def blocks(where: np.ndarray) -> tuple[Block, ...]:
    """Ranks with at least one row, and which; rank q has rows where[q] .. where[q+1]-1."""
    return tuple((q, int(where[q]), int(where[q + 1])) for q in np.flatnonzero(np.diff(where)).tolist())


def everything(starts: np.ndarray, rank: int, step: int) -> Route:
    """All rows to all ranks; rank q has clients starts[q] .. starts[q+1]-1."""
    m, others = int(starts[rank + 1] - starts[rank]), [q for q in range(starts.size - 1) if q != rank]
    ends = np.cumsum([starts[q + 1] - starts[q] for q in others], dtype=np.int64)
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    come = tuple((q, int(begins[k]), int(ends[k])) for k, q in enumerate(others))
    to = tuple((q, k * m, (k + 1) * m) for k, q in enumerate(others))
    return Route(step, np.tile(np.arange(m), len(others)), to, come)


# ----------------------------------------------------------------------------------------------------
# One step as one rank sees it: which of its rows go where, whose come in, and in which order they are added.
#
# A rank holds the rows of its clients begin .. end-1, and after them what it hears from elsewhere, in the senders'
# order:
#
#     rows of z here     0 .. m-1        clients begin .. end-1
#     rows heard         m .. m+h-1      senders below begin, then those from end on; those of one rank are one block
#
# A receiver's sum runs over its senders in increasing order, as in the simulation. So what comes from lower ranks is
# added first, then what is here, then what comes from higher ranks. A receiver who hears nobody below begins with what
# is
# here: these sums are begun while messages travel, the others once the rows of lower ranks are there.


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
        lists = net.out_adjacency(s)
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


# ----------------------------------------------------------------------------------------------------
# A step of mixing between ranks on NumPy arrays: rows that cross go out and come in while those here are added.


Request = tuple[int, Any]  # the other rank, and what MPI knows it by


class HostRows:
    """Two arrays of equal width that take turns: what clients here hold, followed by what comes in."""

    next: np.ndarray | None = None  # from the first step on

    def __init__(self, ranks: Ranks, z: np.ndarray, room: int = 0) -> None:
        """`room`: rows that come in, as far as that is known."""
        self.ranks, self.m = ranks, z.shape[0]
        self.held = empty_like(np.broadcast_to(z[:1], (self.m + room, z.shape[1])))
        self.held[: self.m] = z

    def step(self, route: RankStep, meanwhile: Callable[[], Any]) -> None:
        """held ← W_s held; `meanwhile` is done while messages travel."""
        held = self._with_room(route)
        if self.next is None:
            self.next = empty_like(held)
        out = self.next[: self.m]
        coming, going = self._exchange(route, held)
        lower = [one for one in coming if one[0] < self.ranks.rank]
        higher = coming[len(lower) :]
        route.at_once(held, out)
        meanwhile()
        self._wait(lower, route)
        route.with_lower(held, out)
        self._wait(higher + going, route)
        route.with_higher(held, out)
        self.held, self.next = self.next, held

    def exchanged(self, route: Route) -> np.ndarray:
        """What clients here hold, followed by the rows that come in."""
        held = self._with_room(route)
        coming, going = self._exchange(route, held)
        self._wait(coming + going, route)
        return held[: self.m + route.elsewhere]

    def _with_room(self, route: Route) -> np.ndarray:
        """held, with rows for what comes in."""
        needed = self.m + route.elsewhere
        if self.held.shape[0] < needed:
            larger = empty_like(np.broadcast_to(self.held[:1], (needed + needed // 8, self.held.shape[1])))
            larger[: self.m] = self.held[: self.m]
            self.held = larger
        return self.held

    def _wait(self, requests: list[Request], route: Route) -> None:
        self.ranks.wait([request for _, request in requests], f"step {route.step}", [q for q, _ in requests])

    def _exchange(self, route: Route, held: np.ndarray) -> tuple[list[Request], list[Request]]:
        """Post all messages: those that come in, from the lowest rank on, and those that go out."""
        comm, m = self.ranks.comm, self.m
        if not held.shape[1]:
            return [], []
        coming = [(q, comm.Irecv(held[m + a : m + b].view(np.uint8), q)) for q, a, b in route.come]
        going = []
        for q, a, b in route.to:
            first, last = int(route.sends[a]), int(route.sends[b - 1])
            neighbours = last - first == b - a - 1  # sorted, so these are all in between: nothing to be packed
            rows = held[first : last + 1] if neighbours else held[route.sends[a:b]]
            going.append((q, comm.Isend(rows.view(np.uint8), q)))
        self.ranks.count(len(route.to), route.sends.size, route.sends.size * held[:1].nbytes)
        return coming, going


# ----------------------------------------------------------------------------------------------------
# A step of mixing between ranks on arrays of any library: take and add, as the simulation does there.
#
# Rows that cross go to MPI as they lie on the device where it can read them (`direct`), else by the host door.


class DeviceRows:
    """What clients here hold, (..., m, d)."""

    def __init__(self, ranks: Ranks, z: Array, direct: bool) -> None:
        if direct and not addressable(z):
            raise TypeError(
                f"direct=True given, but MPI cannot write into arrays of {array_namespace(z).__name__}; needed "
                "hgp.mpi.spread(..., direct=False), the host door"
            )
        self.ranks, self.held = ranks, z
        self.exchange = self._direct if direct else self._by_host

    def step(self, route: RankStep, meanwhile: Callable[[], Any]) -> None:
        """held ← W_s held; `meanwhile` is done while messages travel."""
        z, xp = self.held, array_namespace(self.held)
        come = self.exchange(route, meanwhile)
        known = z if come is None else xp.concat([z, come], axis=-2)
        senders, shares = self._padded(route)
        total = xp.zeros_like(z)
        for k in range(senders.shape[1]):
            total = total + shares[:, k][:, None] * xp.take(known, senders[:, k], axis=-2)
        self.held = total

    def _padded(self, route: RankStep) -> tuple[Array, Array]:
        """(m, width) places of the senders and their shares, on the device."""
        rows = route.rows()
        senders, shares = padded_rows(*rows, int(np.diff(rows[0]).max()))
        to_device = (senders, shares.astype(host_dtype(self.held)))
        return from_host(to_device[0], like=self.held), from_host(to_device[1], like=self.held)

    def _sent(self, route: Route) -> Array:
        """The rows that go out, (..., rows, d)."""
        return array_namespace(self.held).take(self.held, from_host(route.sends, like=self.held), axis=-2)

    def _by_host(self, route: Route, meanwhile: Callable[[], Any]) -> Array | None:
        lead, d = self.held.shape[:-2], self.held.shape[-1]
        out = to_host(self._sent(route)) if route.to else np.empty((*lead, 0, d), host_dtype(self.held))
        packed = np.ascontiguousarray(np.moveaxis(out, -2, 0))
        come = np.empty((route.elsewhere, *lead, d), packed.dtype)
        self._post(route, lambda a, b: come[a:b].reshape(-1).view(np.uint8),
                   lambda a, b: packed[a:b].reshape(-1).view(np.uint8), packed.nbytes, meanwhile)  # fmt: skip
        return from_host(np.ascontiguousarray(np.moveaxis(come, 0, -2)), like=self.held) if route.come else None

    def _direct(self, route: Route, meanwhile: Callable[[], Any]) -> Array | None:
        xp, lead, d = array_namespace(self.held), self.held.shape[:-2], self.held.shape[-1]
        options = {"dtype": self.held.dtype, "device": device(self.held)}
        parts = {a: xp.empty((*lead, b - a, d), **options) for _, a, b in route.come}
        out = self._sent(route) if route.to else self.held[..., :0, :]
        packed = {a: xp.asarray(out[..., a:b, :], copy=True) for _, a, b in route.to}  # contiguous, each for itself
        synchronize(self.held)
        nbytes = int(np.prod(out.shape, dtype=np.int64)) * host_dtype(self.held).itemsize
        self._post(route, lambda a, b: parts[a], lambda a, b: packed[a], nbytes, meanwhile)
        return xp.concat([parts[a] for _, a, _ in route.come], axis=-2) if parts else None

    def _post(self, route: Route, into: Callable[[int, int], Any], out: Callable[[int, int], Any], nbytes: int,
              meanwhile: Callable[[], Any]) -> None:  # fmt: skip
        comm = self.ranks.comm
        requests = [comm.Irecv(into(a, b), q) for q, a, b in route.come]
        requests += [comm.Isend(out(a, b), q) for q, a, b in route.to]
        self.ranks.count(len(route.to), route.sends.size, nbytes)
        meanwhile()
        self.ranks.wait(requests, f"step {route.step}", [q for q, _, _ in (*route.come, *route.to)])
