"""After: a network from a later step on, P'(s) = P(t + s); a pure view, made by `net.after(t)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.networks.base import Csr, Edges, Network
from hgp_ref.philox import MAX_STEP


class After(Network):
    """Step s of the view is step t + s of `net`; every question is handed on to `net`, with its fast ways."""

    def __init__(self, net: Network, t: int) -> None:
        self.net, self.t = net, arguments.integer("t", t, 0, MAX_STEP - 1)
        super().__init__(net.n, net.seed, net.period)
        self.equal_shares, self.self_loops = net.equal_shares, net.self_loops

    @property
    def expected_edges(self) -> float:
        return self.net.expected_edges

    def after(self, t: int) -> Network:
        t = arguments.integer("t", t, 0, MAX_STEP - 1 - self.t)
        return self.net.after(self.t + t)

    def out_lists(self, s: int) -> Edges:
        return self.net.out_lists(self.t + self._step(s))

    def edges(self, s: int) -> Edges:
        return self.net.edges(self.t + self._step(s))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        return self.net.out_neighbours(self.t + self._step(s), sender)

    def csr(self, s: int) -> Csr:
        return self.net.csr(self.t + self._step(s))

    def mixing_matrix(self, s: int) -> np.ndarray:
        return self.net.mixing_matrix(self.t + self._step(s))

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._stretch(first, count)
        return self.net.mixing_matrices(self.t + first, count)

    def products(self, first: int, calls: int, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
        first, _ = self._stretch(first, calls * steps)
        return self.net.products(self.t + first, calls, steps)

    def union(self, first: int, count: int) -> Edges:
        first, count = self._stretch(first, count)
        return self.net.union(self.t + first, count)

    def heard(self, first: int, count: int) -> Edges:
        first, count = self._stretch(first, count)
        return self.net.heard(self.t + first, count)

    @property
    def _last_step(self) -> int:
        return MAX_STEP - self.t

    def _arguments(self) -> dict[str, Any]:
        return {"net": self.net, "t": self.t}

    def __repr__(self) -> str:
        return f"{self.net!r}.after({self.t})"
