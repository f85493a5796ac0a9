"""Random graphs: RandomDirected, RandomUndirected, RandomOut, SparseErdosRenyi.

    RandomDirected      edge j → i at step s with probability ρ_ij, where ρ_ij ~ U[low, high] is fixed by the seed
    RandomUndirected    the same for pairs {i, j}
    RandomOut           k distinct receivers for each client, in time of the edges
    SparseErdosRenyi    edges of equal probability, in time of the edges

Edges of different steps are independent, and every client has a self-loop. Probabilities are integer multiples of 2⁻³²,
so that graphs are equal on every machine.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import philox, validation
from hgp_ref._kernels import graphs
from hgp_ref._kernels import mixing as kernels
from hgp_ref._kernels.cuda import BernoulliEdges, OutNeighbours
from hgp_ref._kernels.graphs import Csr, rows_from_adjacency, rows_from_lists, rows_of_equal_shares
from hgp_ref.networks.base import CLIENTS, Edges, Network
from hgp_ref.networks.validation import allocate
from hgp_ref.validation import Integer, Nonnegative, Probability, Seed, checked

SCALE = 2**32


class BernoulliNetwork(Network):
    """RandomDirected and RandomUndirected, which differ in `_symmetric` and in their Philox streams."""

    _symmetric: bool
    _rate_stream: int
    _edge_stream: int

    @checked(n=CLIENTS, low=Probability(), high=Probability(), seed=Seed())
    def __init__(self, n: int, low: float = 0.4, high: float = 0.8, seed: int = 0) -> None:
        super().__init__(n, seed)
        self.low, self.high = low, high
        if low > high:
            raise ValueError(f"low must not exceed high, got low={low}, high={high}")
        self._key = philox.key(seed)

    @cached_property
    def _last(self) -> np.ndarray:
        """(n, n) uint32, rate · 2³² − 1 (`_kernels.graphs`); rate 1 on the diagonal."""
        low, span = self._low_and_span
        rule = (self._symmetric, self._rate_stream, *self._key)
        last = allocate(self, (1, self.n, self.n), np.uint32)[0]
        graphs.rates(np.uint64(low), np.uint64(span), *rule, last)
        return last

    @property
    def _low_and_span(self) -> tuple[int, int]:
        """Rates are t / 2³² with t uniform on low .. low + span."""
        low, high = (max(round(p * SCALE), 1) for p in (self.low, self.high))  # 0 among positive rates becomes 2⁻³²
        return low, high - low

    @property
    def _floor(self) -> int:
        return int(round(self.high * SCALE) == 0)  # every rate is 0

    @cached_property
    def _rule(self) -> tuple[Any, ...]:
        """Leading arguments of the kernels."""
        return self._last, np.uint32(self._floor), self._symmetric, self._edge_stream, *self._key

    @property
    def rates(self) -> np.ndarray:
        """(n, n) float64: probability of the edge j -> i at [i, j]; 1 on the diagonal."""
        if self._floor:
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
        return self.adjacencies(validation.integer("s", s, 1, philox.MAX_STEP), 1)[0]

    def adjacencies(self, first: int, count: int) -> np.ndarray:
        """(count, n, n) booleans of steps first .. first + count - 1."""
        first, count = self._steps(first, count)
        out = allocate(self, (count, self.n, self.n), np.bool_)
        graphs.adjacencies(*self._rule, first, out.view(np.uint8))
        return out

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._steps(first, count)
        out = allocate(self, (count, self.n, self.n))
        many = self.n <= graphs.CLIENTS and count >= graphs.STEPS
        (graphs.mixing_of_small_graphs if many else graphs.mixing)(*self._rule, first, out)
        return out

    def products(self, first: int, calls: int, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
        calls = validation.integer("calls", calls, 0, validation.LONGEST)
        steps = validation.integer("steps", steps, 1, validation.LONGEST // max(calls, 1))
        first, _ = self._steps(first, calls * steps)
        if self.n > kernels.CLIENTS:
            return None
        out, messages = allocate(self, (calls, self.n, self.n)), np.empty(calls, dtype=np.int64)
        kernels.products(*self._rule, first, steps, out, messages)
        return out, messages

    def device_sampler(self) -> BernoulliEdges | None:
        if type(self).__module__ != __name__:  # a subclass may define other graphs
            return None
        streams = (self._rate_stream, self._edge_stream)
        return BernoulliEdges(self.n, self._symmetric, *self._low_and_span, self._floor, *streams, self._key)

    def out_adjacency(self, s: int) -> Edges:
        indptr, receivers, _ = rows_from_adjacency(np.ascontiguousarray(self.adjacency(s).T), np.ones(self.n))
        return indptr, receivers

    def csr(self, s: int) -> Csr:
        return rows_of_equal_shares(self.adjacency(s))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        s, j = self._step(s), self._client("sender", sender)
        return np.flatnonzero(graphs.neighbours(*self._rule, s, j))

    def union(self, first: int, count: int) -> Edges:
        first, count = self._steps(first, validation.integer("count", count, 0, validation.LONGEST))
        present = allocate(self, (1, self.n, self.n), np.bool_, zero=True)[0]
        many = self.n <= graphs.CLIENTS and count >= graphs.STEPS
        (graphs.union_of_small_graphs if many else graphs.union)(*self._rule, first, count, present.view(np.uint8))
        receivers, senders = np.nonzero(present)
        return senders, receivers

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "low": self.low, "high": self.high, "seed": self.seed}


class RandomDirected(BernoulliNetwork):
    """Directed edges j → i with probability ρ_ij ~ U[low, high], independent at each step, and self-loops.

    W_s[i, j] = 1 / out-degree of j, which is column-stochastic. The seed determines the rates ρ_ij and the graphs.

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
    """Edges {i, j} in both directions with probability ρ_ij = ρ_ji ~ U[low, high], independent at each step.

    W_s[i, j] = 1 / degree of j, self-loops included: column-stochastic, not doubly stochastic.

    Examples
    --------
    >>> present = hgp.networks.RandomUndirected(n=4, seed=0).mixing_matrix(1) > 0
    >>> bool(np.all(present == present.T))
    True
    """

    _symmetric = True
    _rate_stream = philox.UNDIRECTED_RATES
    _edge_stream = philox.UNDIRECTED_EDGES


@checked(n=CLIENTS, k=Integer(0), seed=Seed())
class RandomOut(Network):
    """Each client sends to itself and to k distinct clients, a uniform random set that is independent over j and s.

    W_s[i, j] = 1 / (k + 1) on edges.

    Examples
    --------
    >>> net = hgp.networks.RandomOut(n=1000, k=2, seed=0)
    >>> net.out_neighbours(1, 5).size
    3
    """

    equal_shares = True

    def __init__(self, n: int, k: int, seed: int = 0) -> None:
        super().__init__(n, seed)
        self.k = validation.integer("k", k, 0, self.n - 1)
        self._key = philox.key(seed)

    @property
    def expected_edges(self) -> float:
        return float(self.n * (self.k + 1))

    def out_adjacency(self, s: int) -> Edges:
        receivers = np.empty((self.n, self.k + 1), dtype=np.int32)
        self._sample(s, 0, receivers)
        return self._indptr, receivers.reshape(-1)

    @cached_property
    def _indptr(self) -> np.ndarray:
        """Where the receivers of each sender begin: the same at every step, hence read-only."""
        indptr = np.arange(0, (self.n + 1) * (self.k + 1), self.k + 1, dtype=np.int64)
        indptr.flags.writeable = False
        return indptr

    def csr(self, s: int) -> Csr:
        return rows_from_lists(*self.out_adjacency(s), 1.0 / (self.k + 1))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        receivers = np.empty((1, self.k + 1), dtype=np.int32)
        self._sample(s, self._client("sender", sender), receivers)
        return receivers[0].astype(np.int64)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._steps(first, count)
        out = allocate(self, (count, self.n, self.n), zero=True)
        graphs.constant_matrices(self.n, self.k, philox.OUT_NEIGHBOURS, *self._key, first, out)
        return out

    def device_sampler(self) -> OutNeighbours | None:
        if type(self).__module__ != __name__:
            return None
        return OutNeighbours(self.n, self.k, np.empty(0, np.uint64), 0, philox.OUT_NEIGHBOURS, self._key)

    def _sample(self, s: int, sender: int, out: np.ndarray) -> None:
        counter = (self._step(s), philox.OUT_NEIGHBOURS, *self._key)
        graphs.constant_receivers(self.n, self.k, sender, *counter, out)

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "k": self.k, "seed": self.seed}


PRECISION = 192  # bits of the most probable degree's weight


@checked(n=CLIENTS, mean_degree=Nonnegative(), seed=Seed())
class SparseErdosRenyi(Network):
    """Independent edges j → i, i ≠ j, of probability p = mean_degree / (n − 1), and self-loops.

    Each client has `mean_degree` receivers besides itself on average; W_s[i, j] = 1 / out-degree of j. The out-degree
    of j is drawn from Binomial(n − 1, p), then its receivers as a uniform set of that size. The degree inverts the
    distribution function, which is stored as 64-bit integers.

    Examples
    --------
    >>> hgp.networks.SparseErdosRenyi(n=1000, mean_degree=3.0, seed=0).expected_edges
    4000.0
    """

    equal_shares = True

    def __init__(self, n: int, mean_degree: float, seed: int = 0) -> None:
        super().__init__(n, seed)
        self.mean_degree = validation.between("mean_degree", mean_degree, 0, self.n - 1)
        self._key = philox.key(seed)

    @property
    def expected_edges(self) -> float:
        return self.n * (1.0 + self.mean_degree)

    @cached_property
    def _degrees(self) -> tuple[int, np.ndarray, np.ndarray]:
        """(smallest degree, its distribution function as uint64, where the search starts for each leading byte)."""
        smallest, table = binomial_table(self.n - 1, Fraction(self.mean_degree))
        guide = np.searchsorted(table, np.arange(256, dtype=np.uint64) << np.uint64(56), side="right")
        return smallest, table, guide

    def out_adjacency(self, s: int) -> Edges:
        return self._sample(self._step(s), 0, self.n)

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        return self._sample(self._step(s), self._client("sender", sender), 1)[1].astype(np.int64)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._steps(first, count)
        out = allocate(self, (count, self.n, self.n), zero=True)
        streams = (philox.SPARSE_DEGREES, philox.SPARSE_NEIGHBOURS)
        graphs.varied_matrices(self.n, *self._degrees, *streams, *self._key, first, out)
        return out

    def device_sampler(self) -> OutNeighbours | None:
        if type(self).__module__ != __name__:
            return None
        smallest, table, _ = self._degrees
        streams = (philox.SPARSE_DEGREES, philox.SPARSE_NEIGHBOURS)
        return OutNeighbours(self.n, smallest, table, *streams, self._key)

    def _sample(self, s: int, sender: int, senders: int) -> Edges:
        indptr = np.empty(senders + 1, dtype=np.int64)
        graphs.binomial_degrees(*self._degrees, sender, s, philox.SPARSE_DEGREES, *self._key, indptr)
        receivers = np.empty(indptr[-1], dtype=np.int32)
        graphs.varied_receivers(self.n, sender, indptr, s, philox.SPARSE_NEIGHBOURS, *self._key, receivers)
        return indptr, receivers

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "mean_degree": self.mean_degree, "seed": self.seed}


def binomial_table(trials: int, mean: Fraction) -> tuple[int, np.ndarray]:
    """(smallest degree of positive weight, distribution function of Binomial(trials, mean / trials) in units of 2⁻⁶⁴).

    Weights relative to the mode follow w(k+1) / w(k) = (trials - k) p / ((k + 1) (1 - p)), in integers of PRECISION
    bits, until they vanish; table[e] = floor(2^64 P(degree <= smallest + e)), without the last, which is 1.
    """
    up, down = mean.numerator, mean.denominator * trials - mean.numerator  # p : 1 - p
    if up == 0 or down == 0:
        return (0 if up == 0 else trials), np.empty(0, np.uint64)
    mode = min(trials, (trials + 1) * up // (up + down))
    above, below = [1 << PRECISION], []
    for k in range(mode, trials):
        above.append(above[-1] * (trials - k) * up // ((k + 1) * down))
        if above[-1] == 0:
            break
    weight = above[0]
    for k in range(mode, 0, -1):
        weight = weight * k * down // ((trials - k + 1) * up)
        if weight == 0:
            break
        below.append(weight)
    weights = below[::-1] + above
    total, running, table = sum(weights), 0, []
    for w in weights[:-1]:
        running += w
        table.append((running << 64) // total)
    return mode - len(below), np.array([t for t in table if t < 2**64], dtype=np.uint64)
