"""Graphs without randomness, and one random graph that never changes.

FullyConnected        W_s = 11ᵀ/n
SelfLoops             W_s = I
OnePeerExponential    client i sends to i + 2^((s−1) mod L): exact after L steps if n is a power of two
Schedule              graphs of the user, repeated periodically
StaticUndirected      a connected Erdős–Rényi graph with symmetric doubly stochastic weights
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cached_property
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse
from scipy.sparse.csgraph import connected_components

from hgp_ref import philox, validation
from hgp_ref._kernels import graphs
from hgp_ref._kernels.graphs import Csr, rows_from_adjacency, rows_from_lists
from hgp_ref.networks.base import CLIENTS, Edges, Network
from hgp_ref.networks.validation import allocate, column_stochastic
from hgp_ref.validation import Choice, Probability, Seed, check_memory, checked


@checked(n=CLIENTS)
class FullyConnected(Network):
    """The complete graph: every client sends to every client, W_s = 11ᵀ/n, and one step is the exact mean.

    Examples
    --------
    >>> hgp.networks.FullyConnected(2).mixing_matrix(1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    def __init__(self, n: int) -> None:
        super().__init__(n, period=1)

    @property
    def expected_edges(self) -> float:
        return float(self.n) ** 2

    def out_adjacency(self, s: int) -> Edges:
        self._step(s)
        receivers = allocate(self, (1, self.n, self.n), np.int32)
        receivers[:] = np.arange(self.n, dtype=np.int32)
        return np.arange(self.n + 1, dtype=np.int64) * self.n, receivers.reshape(-1)

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        self._step(s), self._client("sender", sender)
        return np.arange(self.n, dtype=np.int64)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        _, count = self._steps(first, count)
        matrices = allocate(self, (count, self.n, self.n))
        matrices[:] = 1.0 / self.n
        return matrices


@checked(n=CLIENTS)
class SelfLoops(Network):
    """No communication: W_s = I.

    Examples
    --------
    >>> hgp.networks.SelfLoops(2).mixing_matrix(1)
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, n: int) -> None:
        super().__init__(n, period=1)

    @property
    def expected_edges(self) -> float:
        return float(self.n)

    def out_adjacency(self, s: int) -> Edges:
        self._step(s)
        return np.arange(self.n + 1, dtype=np.int64), np.arange(self.n, dtype=np.int32)

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        self._step(s)
        return np.array([self._client("sender", sender)], dtype=np.int64)


@checked(n=CLIENTS)
class OnePeerExponential(Network):
    """At step s client i sends half to itself and half to (i + 2^((s - 1) mod L)) mod n, L = ceil(log2 n).

    If n is a power of two, L steps give the exact mean. For n = 1 there is only the self-loop.

    Examples
    --------
    >>> hgp.networks.OnePeerExponential(4).mixing_matrix(2)
    array([[0.5, 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0.5],
           [0.5, 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0.5]])
    """

    equal_shares = True

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.hops = max(1, (self.n - 1).bit_length())  # bit_length of n - 1 is ceil(log2 n)
        self.period = self.hops

    @property
    def expected_edges(self) -> float:
        return float(self.n if self.n == 1 else 2 * self.n)

    def hop(self, s: int) -> int:
        """2^((s − 1) mod L), how far messages go at step s."""
        return 1 << (self._step(s) - 1) % self.hops

    def out_adjacency(self, s: int) -> Edges:
        hop, clients = self.hop(s), np.arange(self.n, dtype=np.int64)
        if self.n == 1:
            return np.arange(2, dtype=np.int64), np.zeros(1, dtype=np.int32)
        peer = (clients + hop) % self.n
        both = np.stack([np.minimum(clients, peer), np.maximum(clients, peer)], axis=1)  # (n, 2)
        return np.arange(self.n + 1, dtype=np.int64) * 2, both.astype(np.int32).ravel()

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        j = self._client("sender", sender)
        return np.unique(np.array([j, (j + self.hop(s)) % self.n], dtype=np.int64))


# Reading the graphs of a Schedule into CSR. Only an array given as a matrix has n² entries.


EdgeList = tuple[np.ndarray, np.ndarray]
Item = EdgeList | np.ndarray  # or a csr_array, a type that type checkers do not know


def listed(graphs: Any) -> list[Any]:
    """The items of `graphs`, which may be one networkx graph or scipy.sparse matrix."""
    if issparse(graphs) or is_networkx(graphs):
        return [graphs]
    if not isinstance(graphs, Iterable) or isinstance(graphs, str) or getattr(graphs, "ndim", 3) != 3:
        raise TypeError(
            "graphs must be a list of matrices, (senders, receivers) tuples or networkx graphs, an array (T, n, n), or "
            f"a single networkx graph or scipy.sparse matrix, got {type(graphs).__name__}"
        )
    items = list(graphs)
    if not items:
        raise ValueError("graphs must hold at least one matrix or edge list, got none")
    return items


def numbered(items: list[Any], n: int | None, weight: str | None) -> tuple[list[Item], int, tuple[Any, ...] | None]:
    """The items as arrays, the number of clients, and which node each client is, if networkx nodes had to be numbered.

    Clients are counted by `n`, else by the first matrix, else by the nodes of networkx graphs and the largest client
    named in an edge list.
    """
    graphs = [item for item in items if is_networkx(item)]
    if n is not None:
        n = CLIENTS.check("n", n)
    else:
        n = next((_order(item) for item in items if not isinstance(item, tuple) and not is_networkx(item)), None)
    if weight is not None and not (graphs and isinstance(weight, str)):
        raise ValueError(f"weight must be None or the name of an edge attribute of networkx graphs, got {weight!r}")
    numbers, nodes = _numbers(graphs, n)
    read = [_read(f"graphs[{t}]", item, numbers, n, weight) for t, item in enumerate(items)]
    if n is None:
        clients = (int(part.max()) for item in read if isinstance(item, tuple) for part in item if part.size)
        n = max(len(numbers), 1 + max(clients, default=-1 if graphs else 0))
    return read, n, nodes


def rows(name: str, n: int, item: Item) -> Csr:
    """W by rows; columns sum to 1 up to the rounding of float64."""
    if isinstance(item, tuple):
        return _from_edges(name, n, *item)
    if item.shape != (n, n):
        expected = f"a matrix of shape ({n}, {n}) or a tuple (senders, receivers)"
        raise ValueError(f"{name} must be {expected}, got shape {item.shape}")
    if item.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be a real matrix, got dtype {item.dtype}")
    if not isinstance(item, np.ndarray):
        return column_stochastic(name, *_sparse_rows(item))
    entries = np.ascontiguousarray(item != 0)
    indptr, senders, _ = rows_from_adjacency(entries, np.ones(n))
    return column_stochastic(name, indptr, senders, item[entries])


def is_networkx(item: Any) -> bool:
    """Whether `item` is a graph of networkx."""
    networkx = sys.modules.get("networkx")  # imported, if there is such a graph
    return networkx is not None and isinstance(item, networkx.Graph)


def _order(matrix: Any) -> int:
    shape = matrix.shape if issparse(matrix) else np.shape(matrix)
    return int(shape[0]) if shape else 1


def _numbers(graphs: list[Any], n: int | None) -> tuple[dict[Any, int], tuple[Any, ...] | None]:
    """The client of every node: its own number if the nodes are 0 .. n-1, else its place in the order of the nodes."""
    nodes = list(dict.fromkeys(node for graph in graphs for node in graph))
    most = len(nodes) if n is None else n
    if len(nodes) > most:
        raise ValueError(f"n must be at least {len(nodes)}, the number of nodes of the networkx graphs, got {n}")
    if all(isinstance(node, Integral) and 0 <= int(node) < most for node in nodes):
        return {node: int(node) for node in nodes}, None
    return {node: place for place, node in enumerate(nodes)}, tuple(nodes)


def _read(name: str, item: Any, numbers: dict[Any, int], n: int | None, weight: str | None) -> Item:
    if isinstance(item, tuple):
        return _edge_list(name, item)
    if is_networkx(item):
        return _from_networkx(name, item, numbers, n, weight)
    return csr_array(item) if issparse(item) and item.ndim == 2 else np.asarray(item)


def _from_networkx(name: str, graph: Any, numbers: dict[Any, int], n: int | None, weight: str | None) -> Item:
    edges = list(graph.edges(data=weight or ""))  # (u, v, None) where an edge lacks the attribute
    if not graph.is_directed():
        edges += [(v, u, w) for u, v, w in edges if u != v]
    senders, receivers = (np.array([numbers[edge[end]] for edge in edges], dtype=np.int64) for end in (0, 1))
    if weight is None:
        return senders, receivers
    weights = [validation.number(f"{name}, edge {u!r} -> {v!r}: {weight}", w) for u, v, w in edges]
    size = len(numbers) if n is None else n
    return csr_array(coo_array((np.array(weights), (receivers, senders)), shape=(size, size)))


def _edge_list(name: str, item: tuple[Any, ...]) -> EdgeList:
    parts = [np.asarray(part) for part in item]
    parts = [part.astype(np.int64) if part.size == 0 else part for part in parts]
    if len(parts) != 2 or any(p.ndim != 1 or p.dtype.kind not in "iu" for p in parts) or parts[0].size != parts[1].size:
        raise ValueError(
            f"{name}: an edge list must be a tuple (senders, receivers) of two integer sequences of equal length"
        )
    return parts[0].astype(np.int64), parts[1].astype(np.int64)


def _from_edges(name: str, n: int, senders: np.ndarray, receivers: np.ndarray) -> Csr:
    check_memory(f"n={n}", 6 * (n + senders.size))
    for part in (senders, receivers):
        if part.size:
            validation.integer(f"{name}: smallest client", part.min(), 0, n - 1)
            validation.integer(f"{name}: largest client", part.max(), 0, n - 1)
    alone = np.ones(n, dtype=bool)
    alone[senders[senders == receivers]] = False
    pairs = np.sort(np.concatenate([senders * n + receivers, np.flatnonzero(alone) * (n + 1)]))
    if (np.diff(pairs) == 0).any():
        raise ValueError(f"{name}: an edge list must not repeat an edge")
    out_indptr = np.searchsorted(pairs, np.arange(n + 1, dtype=np.int64) * n)
    return rows_from_lists(out_indptr, (pairs % n).astype(np.int32), 1.0 / np.diff(out_indptr))


def _sparse_rows(matrix: csr_array) -> Csr:
    """Sorted rows without zeros; entries given twice are added up, as scipy does."""
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


SHOWN = 400  # longest schedule that __repr__ writes out, in numbers


class Schedule(Network):
    """A periodic sequence of T graphs: step s uses number (s − 1) mod T.

    Each item of `graphs` is

    - a column-stochastic matrix (n, n) with a positive diagonal, [i, j] = weight of j -> i: an array or a scipy.sparse
      matrix. Columns that sum to 1 only to the rounding of the matrix's own dtype (float32, float16) are divided by
      their sums in float64;
    - an edge list: a tuple (senders, receivers) of two integer sequences without repeated edges, to which missing
      self-loops are added;
    - a networkx DiGraph, u sends to v, or a Graph, whose edges go both ways: an edge list, or, if `weight` names an
      edge attribute, a matrix of these weights. If the nodes are 0 .. n-1, they are the clients of that number. Other
      nodes are numbered in their order, and `nodes` is the node of each client (None otherwise). `from_networkx` also
      has Metropolis weights.

    A single networkx graph or scipy.sparse matrix is a schedule of one. `n` is needed only if no item is a matrix and
    the last clients neither send nor receive.

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
        items, clients, self.nodes = numbered(listed(graphs), n, weight)
        super().__init__(clients, period=len(items))
        self._graphs = [rows(f"graphs[{t}]", self.n, item) for t, item in enumerate(items)]
        self._edge_lists = [item if isinstance(item, tuple) else None for item in items]

    @property
    def expected_edges(self) -> float:
        return sum(indices.size for _, indices, _ in self._graphs) / len(self._graphs)

    def csr(self, s: int) -> Csr:
        return tuple(part.copy() for part in self._at(s))  # type: ignore[return-value]

    def out_adjacency(self, s: int) -> Edges:
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


# Fastest-mixing symmetric weights on a graph [1], by a semidefinite program:
#
#     minimise  ‖W − 11ᵀ/n‖₂   over  W = Wᵀ ≥ 0,  W 1 = 1,  W_ij = 0 where there is no edge.
#
# With edge weights w_e ≥ 0 and the Laplacian L = Σ_e w_e (e_i − e_j)(e_i − e_j)ᵀ this is W = I − L:
# minimise t subject to −t I ≤ I − L − 11ᵀ/n ≤ t I and diag(L) ≤ 1.
#
# [1] S. Boyd, P. Diaconis, L. Xiao. Fastest mixing Markov chain on a graph. SIAM Review 46 (4), 2004.


ACCURACY = 1e-8  # of the solver, a first-order one: the weights depend on its version beyond this
NEGLIGIBLE = 1e-6  # weights the solver leaves this small are none


def require_cvxpy() -> ModuleType:
    """cvxpy, or an ImportError that names the extra."""
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("weights=\"fastest\" needs cvxpy: pip install 'hgp_ref[fastmixing]'") from error
    return cvxpy


def fastest_mixing_weights(graph: np.ndarray) -> np.ndarray:
    """(n, n) weights on a symmetric boolean graph: exactly symmetric, non-negative, rows sum to 1 up to rounding."""
    cp, n = require_cvxpy(), len(graph)
    i, j = np.nonzero(np.triu(graph, 1))
    return weights_from_edges(n, i, j, _solve(cp, n, i, j)) if i.size else np.eye(n)


def weights_from_edges(n: int, i: np.ndarray, j: np.ndarray, w: np.ndarray) -> np.ndarray:
    """W = I - L of edge weights w, made feasible exactly: w >= 0 and no row of W off the diagonal above 1."""
    w = np.where(w > NEGLIGIBLE, w, 0.0)
    weights = np.zeros((n, n))
    weights[i, j] = weights[j, i] = w
    weights /= max(1.0, weights.sum(axis=1).max())
    np.fill_diagonal(weights, np.maximum(0.0, 1.0 - weights.sum(axis=1)))
    return weights


def _solve(cp: ModuleType, n: int, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    m, e = i.size, np.arange(i.size)
    rows = np.concatenate([i * n + j, j * n + i, i * n + i, j * n + j])
    signs = np.repeat([-1.0, -1.0, 1.0, 1.0], m)
    laplacian = coo_array((signs, (rows, np.tile(e, 4))), shape=(n * n, m)).tocsr()
    incidence = coo_array((np.ones(2 * m), (np.concatenate([i, j]), np.tile(e, 2))), shape=(n, m)).tocsr()
    w, t = cp.Variable(m, nonneg=True), cp.Variable()
    gap = np.eye(n) - np.full((n, n), 1.0 / n) - cp.reshape(laplacian @ w, (n, n), order="C")
    problem = cp.Problem(cp.Minimize(t), [gap << t * np.eye(n), gap >> -t * np.eye(n), incidence @ w <= 1])
    problem.solve(solver="SCS", eps_abs=ACCURACY, eps_rel=ACCURACY, max_iters=200_000)
    if problem.status != "optimal":
        raise RuntimeError(
            f"the semidefinite program for the fastest-mixing weights ended with status {problem.status!r}"
        )
    return np.asarray(w.value)


ATTEMPTS = 1000


@checked(n=CLIENTS, p=Probability(), seed=Seed(), weights=Choice("metropolis", "fastest"))
class StaticUndirected(Network):
    """W_s = W, symmetric and doubly stochastic on a connected Erdős–Rényi graph with edge probability p.

    The graph is drawn again until it is connected.

    - weights="metropolis": W_ij = 1 / (1 + max(d_i, d_j)) on edges, d the degrees without self-loops, W_ii the rest.
    - weights="fastest": W minimises ‖W − 11ᵀ/n‖₂ among symmetric stochastic matrices on the graph, by a semidefinite
      program on first use. Edges without weight are dropped. Needs cvxpy (``pip install 'hgp_ref[fastmixing]'``).

    Examples
    --------
    >>> net = hgp.networks.StaticUndirected(n=6, p=0.5, seed=0)
    >>> W = net.mixing_matrix(1)
    >>> bool(np.allclose(W, W.T) and np.allclose(W.sum(axis=0), 1))
    True
    """

    def __init__(self, n: int, p: float = 0.5, seed: int = 0, weights: str = "metropolis") -> None:
        super().__init__(n, seed, period=1)
        self.p = p
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
        _, count = self._steps(first, count)
        matrices = allocate(self, (count, self.n, self.n))
        matrices[:] = self._matrix
        return matrices

    def csr(self, s: int) -> Csr:
        self._step(s)
        indptr, indices, _ = rows_from_adjacency(self._support, np.ones(self.n))
        return indptr, indices, self._matrix[self._support]

    def out_adjacency(self, s: int) -> Edges:
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
        graphs.adjacencies(*rule, attempt, graph.view(np.uint8)[np.newaxis])
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
