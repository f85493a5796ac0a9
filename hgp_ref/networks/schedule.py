"""Schedule: given graphs, repeated periodically: step s uses number (s - 1) mod T of the T given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hgp_ref._kernels.lists import rows_from_lists
from hgp_ref.networks import given
from hgp_ref.networks.base import Csr, Edges, Network

SHOWN = 400  # longest schedule that __repr__ writes out, in numbers


class Schedule(Network):
    """P(s) = the given matrix number (s - 1) mod T, or 1 / outdegree on the given edges.

    Each item of `graphs` is

    - a column-stochastic matrix (n, n) with a positive diagonal, [i, j] = weight of j -> i: an array or a scipy.sparse
      matrix. Columns that sum to 1 only to the rounding of the matrix's own dtype (float32, float16) are divided by
      their sums in float64;
    - an edge list: a tuple (senders, receivers) of two integer sequences without repeated edges, to which missing
      self-loops are added;
    - a networkx DiGraph, u sends to v, or a Graph, whose edges go both ways: read as an edge list, or, if `weight`
      names an edge attribute, as a matrix of these weights. Nodes 0 .. n-1 are the clients of that number, other nodes
      are numbered in their order, and `nodes` then tells the node of each client (None otherwise).

    A single networkx graph or scipy.sparse matrix stands for a list of it. `n` is needed only if no item is a matrix
    and the last clients send and receive nothing. Nothing but an array given as such has n x n entries.

    Parameters
    ----------
    graphs : iterable
        Matrices, edge lists or networkx graphs, as above.
    n : int, optional
        Clients, where the graphs do not tell.
    weight : str, optional
        The edge attribute of networkx graphs that holds weights.

    Examples
    --------
    >>> relay = hgp.networks.Schedule([([0], [1]), ([1], [2]), ([2], [0])], n=3)
    >>> relay.mixing_matrix(1)
    array([[0.5, 0. , 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    >>> hgp.networks.smallest_window(relay, 1, 30)
    3
    """

    def __init__(self, graphs: Iterable[Any], n: int | None = None, weight: str | None = None) -> None:
        items, clients, self.nodes = given.numbered(given.listed(graphs), n, weight)
        super().__init__(clients, period=len(items))
        self._graphs = [given.rows(f"graphs[{t}]", self.n, item) for t, item in enumerate(items)]
        self._edge_lists = [item if isinstance(item, tuple) else None for item in items]

    @property
    def expected_edges(self) -> float:
        return sum(indices.size for _, indices, _ in self._graphs) / len(self._graphs)

    def csr(self, s: int) -> Csr:
        return tuple(part.copy() for part in self._at(s))  # type: ignore[return-value]

    def out_lists(self, s: int) -> Edges:
        indptr, senders, _ = self._at(s)
        out_indptr, receivers, _ = rows_from_lists(indptr, senders, np.ones(self.n))
        return out_indptr, receivers

    def _at(self, s: int) -> Csr:
        return self._graphs[(self._step(s) - 1) % len(self._graphs)]

    def _arguments(self) -> dict[str, Any]:
        shown: list[Any] = []
        for t, edges in enumerate(self._edge_lists):
            shown.append(self.mixing_matrix(t + 1).tolist() if edges is None else tuple(p.tolist() for p in edges))
        return {"graphs": shown, "n": self.n}

    def __repr__(self) -> str:
        size = sum(self.n**2 if edges is None else 2 * edges[0].size for edges in self._edge_lists)
        return super().__repr__() if size <= SHOWN else f"<Schedule of {self.period} graphs on {self.n} clients>"
