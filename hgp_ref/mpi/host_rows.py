"""A step of mixing between ranks on NumPy arrays: rows that cross go out and come in while those here are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hgp_ref._kernels.mixing import empty_like
from hgp_ref.mpi.rank_step import RankStep
from hgp_ref.mpi.ranks import Ranks
from hgp_ref.mpi.route import Route

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
