"""Networks as users would write them, correct and incorrect."""

from __future__ import annotations

import numpy as np

from hgp_ref.networks import Network


class OwnRing(Network):
    """j sends to itself and the next."""

    period = 1

    @property
    def expected_edges(self):
        return float(2 * self.n if self.n > 1 else 1)

    def out_adjacency(self, s):
        lists = [sorted({j, (j + 1) % self.n}) for j in range(self.n)]
        return np.cumsum([0, *map(len, lists)]), np.concatenate(lists).astype(np.int32)


class Drifting(Network):
    """A ring whose hop is the step, with 3/4 of everything kept; no period, all ways of asking of its own."""

    expected_edges = 10.0

    def hop(self, s):
        return 1 + (s - 1) % (self.n - 1) if self.n > 1 else 0

    def out_adjacency(self, s):
        lists = [sorted({j, (j + self.hop(s)) % self.n}) for j in range(self.n)]
        return np.cumsum([0, *map(len, lists)]), np.concatenate(lists).astype(np.int32)

    def mixing_matrices(self, first, count):
        eye = np.eye(self.n)
        return np.array([0.75 * eye + 0.25 * np.roll(eye, self.hop(first + t), axis=0) for t in range(count)]).reshape(
            count, self.n, self.n
        )

    def csr(self, s):
        W = self.mixing_matrices(s, 1)[0]
        senders = np.nonzero(W)[1]
        return np.cumsum([0, *np.count_nonzero(W, axis=1)]), senders.astype(np.int32), W[W > 0]


class Bare(Network):
    """j sends to the next alone: strongly connected, periodic."""

    self_loops, period, expected_edges = False, 1, 3.0

    def out_adjacency(self, s):
        return np.arange(self.n + 1), ((np.arange(self.n) + 1) % self.n).astype(np.int32)
