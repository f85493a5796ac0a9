"""SparseErdosRenyi: independent directed edges of equal probability, in time and memory of the edges alone.

    P(j -> i at step s) = p = mean_degree / (n - 1) for i != j, independently, and j -> j always.

Equivalently the out-degree of j is Binomial(n - 1, p) and its receivers are a uniform set of that size: that is how it
is sampled. The degree inverts the distribution function held as integers of 64 bits, made with Python integers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import philox
from hgp_ref._kernels import sparse
from hgp_ref.networks.base import Edges, Network
from hgp_ref.networks.room import allocate

PRECISION = 192  # bits of the most probable degree's weight


class SparseErdosRenyi(Network):
    """P(s)[i, j] = 1 / outdegree of j; each client has mean_degree receivers besides itself on average.

    Parameters
    ----------
    n : int
        Clients.
    mean_degree : float
        Receivers besides itself, on average.
    seed : int
        Another network.

    Raises
    ------
    TypeError, ValueError
        `mean_degree` must be a number in [0, n − 1].

    Examples
    --------
    >>> hgp.networks.SparseErdosRenyi(n=1000, mean_degree=3.0, seed=0).expected_edges
    4000.0
    """

    equal_shares = True

    def __init__(self, n: int, mean_degree: float, seed: int = 0) -> None:
        super().__init__(n, seed)
        if isinstance(mean_degree, bool) or not isinstance(mean_degree, int | float | np.integer | np.floating):
            raise TypeError(f"mean_degree must be a number, got {type(mean_degree).__name__}: {mean_degree!r}")
        if not 0 <= mean_degree <= self.n - 1:
            raise ValueError(f"mean_degree must lie in [0, n - 1] = [0, {self.n - 1}], got {mean_degree}")
        self.mean_degree = float(mean_degree)
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

    def out_lists(self, s: int) -> Edges:
        return self._sample(self._step(s), 0, self.n)

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        return self._sample(self._step(s), self._client("sender", sender), 1)[1].astype(np.int64)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._stretch(first, count)
        out = allocate(self, (count, self.n, self.n), zero=True)
        streams = (philox.SPARSE_DEGREES, philox.SPARSE_NEIGHBOURS)
        sparse.varied_matrices(self.n, *self._degrees, *streams, *self._key, first, out)
        return out

    def _sample(self, s: int, sender: int, senders: int) -> Edges:
        indptr = np.empty(senders + 1, dtype=np.int64)
        sparse.binomial_degrees(*self._degrees, sender, s, philox.SPARSE_DEGREES, *self._key, indptr)
        receivers = np.empty(indptr[-1], dtype=np.int32)
        sparse.varied_receivers(self.n, sender, indptr, s, philox.SPARSE_NEIGHBOURS, *self._key, receivers)
        return indptr, receivers

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "mean_degree": self.mean_degree, "seed": self.seed}


def binomial_table(trials: int, mean: Fraction) -> tuple[int, np.ndarray]:
    """Distribution function of Binomial(trials, mean / trials) in units of 2^-64, from the smallest degree with weight.

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
