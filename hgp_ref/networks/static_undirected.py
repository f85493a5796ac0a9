"""StaticUndirected: one connected Erdős–Rényi graph with symmetric doubly stochastic weights, at every step.

    Each pair {i, j} is an edge with probability p, independently; the graph is drawn anew until it is connected.

Attempt a = 1, 2, ... uses the words of step a in a stream of its own, so the graph is a pure function of (n, p, seed).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from hgp_ref import arguments, philox
from hgp_ref._kernels import dense
from hgp_ref._kernels.lists import rows_from_adjacency
from hgp_ref.networks.base import Csr, Edges, Network
from hgp_ref.networks.fastest_mixing import fastest_mixing_weights, require_cvxpy
from hgp_ref.networks.room import allocate

ATTEMPTS = 1000


class StaticUndirected(Network):
    """P(s) = W, symmetric and doubly stochastic on a connected Erdős–Rényi graph.

    - weights="metropolis": W_ij = 1 / (1 + max(d_i, d_j)) on edges, d the degrees without self-loops, W_ii the rest.
    - weights="fastest": W minimises ‖W − 11ᵀ/n‖₂ among symmetric stochastic matrices on the graph, by a semidefinite
      program on first use; edges without weight are dropped, self-loops kept.

    Parameters
    ----------
    n : int
        Clients.
    p : float
        Probability of each edge. The graph is drawn anew until it is connected.
    seed : int
        Another graph.
    weights : {"metropolis", "fastest"}
        The rule above; "fastest" needs cvxpy (``pip install 'hgp_ref[fastmixing]'``).

    Raises
    ------
    TypeError, ValueError
        `p` must be a probability, `weights` one of the two.
    ImportError
        `weights="fastest"` without cvxpy: `pip install 'hgp_ref[fastmixing]'`.

    Examples
    --------
    >>> net = hgp.networks.StaticUndirected(n=6, p=0.5, seed=0)
    >>> W = net.mixing_matrix(1)
    >>> bool(np.allclose(W, W.T) and np.allclose(W.sum(axis=0), 1))
    True
    """

    def __init__(self, n: int, p: float = 0.5, seed: int = 0, weights: str = "metropolis") -> None:
        super().__init__(n, seed, period=1)
        self.p = arguments.probability("p", p)
        if not isinstance(weights, str) or weights not in ("fastest", "metropolis"):
            raise ValueError(f'weights must be "fastest" or "metropolis", got {weights!r}')
        if weights == "fastest":
            require_cvxpy()
        self.weights = weights
        self.graph = connected_graph(self.n, self.p, seed)  # (n, n) booleans, True on the diagonal

    @cached_property
    def _matrix(self) -> np.ndarray:
        rule = metropolis_weights if self.weights == "metropolis" else fastest_mixing_weights
        return rule(self.graph)

    @property
    def expected_edges(self) -> float:
        return float(np.count_nonzero(self._support))

    @property
    def _support(self) -> np.ndarray:
        return (self._matrix > 0) | np.eye(self.n, dtype=bool)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        _, count = self._stretch(first, count)
        matrices = allocate(self, (count, self.n, self.n))
        matrices[:] = self._matrix
        return matrices

    def csr(self, s: int) -> Csr:
        self._step(s)
        indptr, indices, _ = rows_from_adjacency(self._support, np.ones(self.n))
        return indptr, indices, self._matrix[self._support]

    def out_lists(self, s: int) -> Edges:
        return self.csr(s)[:2]  # symmetric

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "p": self.p, "seed": self.seed, "weights": self.weights}


def connected_graph(n: int, p: float, seed: int) -> np.ndarray:
    """(n, n) symmetric booleans with self-loops: the first connected Erdős–Rényi graph among at most ATTEMPTS."""
    threshold = round(p * 2**32)
    if n > 1 and threshold == 0:
        raise ValueError(f"p must be positive for a connected graph on n = {n} clients, got {p}")
    last = allocate(f"StaticUndirected(n={n})", (n, n), np.uint32)
    last[:] = max(threshold, 1) - 1
    np.fill_diagonal(last, 2**32 - 1)
    rule = (last, np.uint32(0), True, philox.STATIC_EDGES, *philox.key(seed))
    graph = np.empty((n, n), dtype=np.bool_)
    for attempt in range(1, ATTEMPTS + 1):
        dense.adjacencies(*rule, attempt, graph.view(np.uint8)[np.newaxis])
        if connected_components(graph, directed=False, return_labels=False) == 1:
            return graph
    raise ValueError(
        f"no connected graph on n = {n} clients in {ATTEMPTS} attempts with p = {p}: take a larger p (log(n)/n or more)"
    )


def metropolis_weights(graph: np.ndarray) -> np.ndarray:
    """Metropolis–Hastings weights of a symmetric graph."""
    degree = graph.sum(axis=1) - 1
    weights = np.where(graph, 1.0 / (1.0 + np.maximum.outer(degree, degree)), 0.0)
    np.fill_diagonal(weights, 0.0)
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return weights
