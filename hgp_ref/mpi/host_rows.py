"""A step of mixing between ranks on NumPy arrays: rows that cross go out and come in while those here are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hgp_ref._kernels.crossing import Heard, add_heard
from hgp_ref._kernels.mixing import empty_like
from hgp_ref.mpi.plan import Plan
from hgp_ref.mpi.ranks import Ranks

OVERLAP_FROM = 32  # columns from which on adding is worth sorting edges by whether their receivers wait for others


class HostRows:
    """Two arrays of equal width that take turns: what clients here hold, followed by what comes in."""

    def __init__(self, ranks: Ranks, z: np.ndarray) -> None:
        self.ranks, self.m = ranks, z.shape[0]
        self.held, self.next = (empty_like(z) for _ in range(2))
        self.held[...] = z

    def step(self, plan: Plan, meanwhile: Callable[[], Any]) -> None:
        """held ← W_s held; `meanwhile` is done while messages travel."""
        held, out = self._with_room(plan), self.next[: self.m]
        requests = self._exchange(plan, held)
        lower = [request for rank, request in requests if rank < self.ranks.rank]
        higher = [request for rank, request in requests if rank >= self.ranks.rank]
        out[...] = 0
        early, late = self._own(plan, held.shape[1])
        places = plan.places[plan.own]
        if early is not None:
            add_heard(places, early, held, out)
        meanwhile()
        self.ranks.wait(lower, f"step {plan.step}")
        self._add(plan, slice(0, plan.own.start), held, out)
        if late is not None:
            add_heard(places, late, held, out)
        self.ranks.wait(higher, f"step {plan.step}")
        self._add(plan, slice(plan.own.stop, plan.heard[0].size), held, out)
        self.held, self.next = self.next, held

    @staticmethod
    def _own(plan: Plan, columns: int) -> tuple[Heard | None, Heard | None]:
        """Edges between clients here that may be added at once, and those that wait for lower ranks."""
        if plan.own.start == 0:
            return plan.part(plan.own), None
        return plan.divided if columns >= OVERLAP_FROM else (None, plan.part(plan.own))

    def exchanged(self, plan: Plan) -> np.ndarray:
        """What clients here hold, followed by the rows that come in for this step."""
        held = self._with_room(plan)
        self.ranks.wait([request for _, request in self._exchange(plan, held)], f"step {plan.step}")
        return held[: self.m + plan.elsewhere]

    def _add(self, plan: Plan, which: slice, held: np.ndarray, out: np.ndarray) -> None:
        if which.start < which.stop:
            add_heard(plan.places[which], plan.part(which), held, out)

    def _with_room(self, plan: Plan) -> np.ndarray:
        """held, with rows for what comes in."""
        needed = self.m + plan.elsewhere
        if self.held.shape[0] < needed:
            larger = empty_like(np.broadcast_to(self.held[:1], (needed + needed // 8, self.held.shape[1])))
            larger[: self.m] = self.held[: self.m]
            self.held = larger
        return self.held

    def _exchange(self, plan: Plan, held: np.ndarray) -> list[tuple[int, Any]]:
        """Post all messages; (rank to wait for, request), those sent under this rank."""
        comm, m = self.ranks.comm, self.m
        if not held.shape[1]:
            return []
        requests = [(q, comm.Irecv(held[m + a : m + b].view(np.uint8), q)) for q, a, b in plan.come]
        packed = held[plan.sends]
        requests += [(self.ranks.rank, comm.Isend(packed[a:b].view(np.uint8), q)) for q, a, b in plan.to]
        self.ranks.count(len(plan.to), plan.sends.size, packed.nbytes)
        return requests
