"""Dense random graphs with a rate for every pair: RandomDirected and RandomUndirected.

    rho_ij ~ U[low, high], fixed by the seed;   at each step the edge is there with probability rho_ij, independently.

Rates are integer multiples of 2^-32, so that rates and edges are exact on every machine.
"""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from hgp_ref import arguments, philox
from hgp_ref._kernels import dense, dense_many, dense_products
from hgp_ref._kernels.lists import rows_from_adjacency, rows_of_equal_shares
from hgp_ref.networks.base import Csr, Edges, Network
from hgp_ref.networks.room import allocate

SCALE = 2**32


class BernoulliNetwork(Network):
    """What the two have in common; `_symmetric` and the two streams tell them apart."""

    _symmetric: bool
    _rate_stream: int
    _edge_stream: int

    def __init__(self, n: int, low: float = 0.4, high: float = 0.8, seed: int = 0) -> None:
        super().__init__(n, seed)
        self.low, self.high = arguments.probability("low", low), arguments.probability("high", high)
        if self.low > self.high:
            raise ValueError(f"low must not exceed high, got low={self.low}, high={self.high}")
        self._key = philox.key(seed)

    @cached_property
    def _last(self) -> np.ndarray:
        """(n, n) uint32, rate * 2^32 - 1; the diagonal is rate 1."""
        low, high = (round(p * SCALE) for p in (self.low, self.high))
        low = max(low, 1)  # a rate of 0 among positive ones becomes 2^-32
        span = max(high, 1) - low
        rule = (self._symmetric, self._rate_stream, *self._key)
        last = allocate(self, (1, self.n, self.n), np.uint32)[0]
        dense.rates(*(np.uint64(low), np.uint64(span), *rule, last))
        return last

    @cached_property
    def _rule(self) -> tuple[Any, ...]:
        """Leading arguments of the kernels."""
        floor = np.uint32(round(self.high * SCALE) == 0)  # every rate is 0: no word may pass
        return self._last, floor, self._symmetric, self._edge_stream, *self._key

    @property
    def rates(self) -> np.ndarray:
        """(n, n) float64: probability of the edge j -> i at [i, j]; 1 on the diagonal."""
        if round(self.high * SCALE) == 0:
            return np.eye(self.n)
        return (self._last.astype(np.float64) + 1.0) / SCALE

    @property
    def expected_edges(self) -> float:
        return self._expected_edges

    @cached_property
    def _expected_edges(self) -> float:
        return float(self.rates.sum())

    def adjacency(self, s: int) -> np.ndarray:
        """(n, n) booleans, [i, j] = is there an edge j -> i at step s."""
        return self.adjacencies(self._step(s), 1)[0]

    def adjacencies(self, first: int, count: int) -> np.ndarray:
        """(count, n, n) booleans of steps first .. first + count - 1."""
        first, count = self._stretch(first, count)
        out = allocate(self, (count, self.n, self.n), np.bool_)
        dense.adjacencies(*(*self._rule, first, out.view(np.uint8)))
        return out

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._stretch(first, count)
        out = allocate(self, (count, self.n, self.n))
        self._kernels(count).mixing(*self._rule, first, out)
        return out

    def products(self, first: int, calls: int, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
        calls = arguments.integer("calls", calls, 0, arguments.LONGEST)
        steps = arguments.integer("steps", steps, 1, arguments.LONGEST // max(calls, 1))
        first, _ = self._stretch(first, calls * steps)
        if self.n > dense_products.CLIENTS or calls < dense_products.CALLS:
            return None
        out, messages = allocate(self, (calls, self.n, self.n)), np.empty(calls, dtype=np.int64)
        dense_products.products(*(*self._rule, first, steps, out, messages))
        return out, messages

    def _kernels(self, steps: int) -> ModuleType:
        return dense_many if self.n <= dense_many.CLIENTS and steps >= dense_many.STEPS else dense

    def out_lists(self, s: int) -> Edges:
        indptr, receivers, _ = rows_from_adjacency(np.ascontiguousarray(self.adjacency(s).T), np.ones(self.n))
        return indptr, receivers

    def csr(self, s: int) -> Csr:
        return rows_of_equal_shares(self.adjacency(s))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        s, j = self._step(s), self._client("sender", sender)
        return np.flatnonzero(dense.neighbours(*(*self._rule, s, j)))

    def union(self, first: int, count: int) -> Edges:
        first, count = self._stretch(first, arguments.integer("count", count, 0, arguments.LONGEST))
        present = allocate(self, (1, self.n, self.n), np.bool_, zero=True)[0]
        self._kernels(count).union(*self._rule, first, count, present.view(np.uint8))
        receivers, senders = np.nonzero(present)
        return senders, receivers

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "low": self.low, "high": self.high, "seed": self.seed}


class RandomDirected(BernoulliNetwork):
    """Directed edges j -> i with probability rho_ij ~ U[low, high], drawn anew at each step; self-loops always.

    P(s)[i, j] = 1 / outdegree of j: column-stochastic.

    Parameters
    ----------
    n : int
        Clients.
    low, high : float
        Range of the rates ρ_ij.
    seed : int
        Another network: other rates, other graphs.

    Examples
    --------
    >>> net = hgp.networks.RandomDirected(n=3, low=0.4, high=0.8, seed=0)
    >>> net.mixing_matrix(1).sum(axis=0)
    array([1., 1., 1.])
    """

    _symmetric = False
    _rate_stream = philox.EDGE_RATES
    _edge_stream = philox.EDGES


class RandomUndirected(BernoulliNetwork):
    """Edges {i, j} in both directions with probability rho_ij = rho_ji ~ U[low, high], drawn anew at each step.

    Self-loops always. P(s)[i, j] = 1 / degree of j: column-stochastic, not doubly stochastic.

    Parameters
    ----------
    n : int
        Clients.
    low, high : float
        Range of the rates ρ_ij = ρ_ji.
    seed : int
        Another network: other rates, other graphs.

    Examples
    --------
    >>> present = hgp.networks.RandomUndirected(n=4, seed=0).mixing_matrix(1) > 0
    >>> bool(np.all(present == present.T))
    True
    """

    _symmetric = True
    _rate_stream = philox.UNDIRECTED_RATES
    _edge_stream = philox.UNDIRECTED_EDGES
