"""The very graphs of the published program, for comparisons digit by digit.

It draws the rates ρ_ij ~ U[low, high] once and, at each step, one uniform number for each ordered pair i ≠ j, row by
row; the edge j → i is there if the number does not exceed ρ_ij. Both come from NumPy's frozen legacy generator, so they
can be drawn again here. Such graphs can only be drawn in sequence: for everything else use `RandomDirected`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref.networks import Network


class PublishedGraphs(Network):
    """`count` graphs on n clients: rates from `rates_seed`, edges from `seed`."""

    def __init__(self, n: int, low: float, high: float, rates_seed: int, seed: int, count: int) -> None:
        super().__init__(n, seed)
        self.low, self.high, self.rates_seed, self.count = low, high, rates_seed, count
        rates = np.random.RandomState(rates_seed).uniform(low, high, (n, n)).astype(np.float32)
        off = ~np.eye(n, dtype=bool)
        present = np.ones((count, n, n), dtype=bool)
        present[:, off] = np.random.RandomState(seed).random_sample((count, n * n - n)) <= rates[off]
        self._present = present  # [s − 1, i, j]: j → i
        self._rates = np.where(off, rates, 1.0)

    @property
    def expected_edges(self) -> float:
        return float(self._rates.sum())

    def out_adjacency(self, s: int) -> tuple[np.ndarray, np.ndarray]:
        senders, receivers = np.nonzero(self._graphs(s, 1)[0].T)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(senders, minlength=self.n))]).astype(np.int64)
        return indptr, receivers.astype(np.int32)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        present = self._graphs(first, count)
        return present / present.sum(axis=1, keepdims=True)

    def _graphs(self, first: int, count: int) -> np.ndarray:
        if first < 1 or first + count - 1 > self.count:
            raise ValueError(f"graphs {first} … {first + count - 1} asked for, there are graphs 1 … {self.count}")
        return self._present[first - 1 : first - 1 + count]

    def _arguments(self) -> dict[str, Any]:
        names = ("n", "low", "high", "rates_seed", "seed", "count")
        return {name: getattr(self, name) for name in names}
