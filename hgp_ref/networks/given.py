"""Graphs as a user may give them, read into the rows of a column-stochastic matrix: what Schedule accepts.

An item of a schedule is one of

    a matrix        (n, n) array or scipy.sparse matrix, [i, j] = weight of j -> i; columns sum to 1, positive diagonal
    an edge list    tuple (senders, receivers) of integer sequences; j -> i has weight 1 / outdegree of j
    a graph         networkx DiGraph u -> v, or Graph, whose edges go both ways; weights as of an edge list, or an
                    attribute of the edges

Only the first of these, as an array, has n^2 entries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from hgp_ref import arguments
from hgp_ref._kernels.lists import Csr, rows_from_adjacency, rows_from_lists
from hgp_ref.memory import room
from hgp_ref.networks.validity import column_stochastic
from hgp_ref.philox import MAX_CLIENTS

EdgeList = tuple[np.ndarray, np.ndarray]
Item = EdgeList | np.ndarray  # or a csr_array, a type that type checkers do not know


def listed(graphs: Any) -> list[Any]:
    """The items of `graphs`, which may be one networkx graph or scipy.sparse matrix."""
    if issparse(graphs) or _is_networkx(graphs):
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
    graphs = [item for item in items if _is_networkx(item)]
    if n is not None:
        n = arguments.integer("n", n, 1, MAX_CLIENTS)
    else:
        n = next((_order(item) for item in items if not isinstance(item, tuple) and not _is_networkx(item)), None)
    if weight is not None and not (graphs and isinstance(weight, str)):
        raise ValueError(f"weight={weight!r} given, needed None, or the name of an edge attribute of networkx graphs")
    numbers, nodes = _numbers(graphs, n)
    read = [_read(f"graphs[{t}]", item, numbers, n, weight) for t, item in enumerate(items)]
    if n is None:
        clients = (int(part.max()) for item in read if isinstance(item, tuple) for part in item if part.size)
        n = max(len(numbers), 1 + max(clients, default=-1 if graphs else 0))
    return read, n, nodes


def rows(name: str, n: int, item: Item) -> Csr:
    """P by rows, with weights that sum to 1 over each column to the rounding of float64."""
    if isinstance(item, tuple):
        return _from_edges(name, n, *item)
    if item.shape != (n, n):
        needed = f"a matrix of shape ({n}, {n}) or a tuple (senders, receivers)"
        raise ValueError(f"{name} must be {needed}, got shape {item.shape}")
    if item.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be a real matrix, got dtype {item.dtype}")
    if not isinstance(item, np.ndarray):
        return column_stochastic(name, *_sparse_rows(item))
    entries = np.ascontiguousarray(item != 0)
    indptr, senders, _ = rows_from_adjacency(entries, np.ones(n))
    return column_stochastic(name, indptr, senders, item[entries])


def _is_networkx(item: Any) -> bool:
    networkx = sys.modules.get("networkx")  # who has such a graph has imported it
    return networkx is not None and isinstance(item, networkx.Graph)


def _order(matrix: Any) -> int:
    shape = matrix.shape if issparse(matrix) else np.shape(matrix)
    return int(shape[0]) if shape else 1


def _numbers(graphs: list[Any], n: int | None) -> tuple[dict[Any, int], tuple[Any, ...] | None]:
    """The client of every node: its own number if the nodes are 0 .. n-1, else its place in the order of the nodes."""
    nodes = list(dict.fromkeys(node for graph in graphs for node in graph))
    most = len(nodes) if n is None else n
    if len(nodes) > most:
        raise ValueError(f"n={n} given, needed at least {len(nodes)}: so many nodes the networkx graphs have")
    if all(isinstance(node, Integral) and 0 <= int(node) < most for node in nodes):
        return {node: int(node) for node in nodes}, None
    return {node: place for place, node in enumerate(nodes)}, tuple(nodes)


def _read(name: str, item: Any, numbers: dict[Any, int], n: int | None, weight: str | None) -> Item:
    if isinstance(item, tuple):
        return _edge_list(name, item)
    if _is_networkx(item):
        return _from_networkx(name, item, numbers, n, weight)
    return csr_array(item) if issparse(item) and item.ndim == 2 else np.asarray(item)


def _from_networkx(name: str, graph: Any, numbers: dict[Any, int], n: int | None, weight: str | None) -> Item:
    edges = list(graph.edges(data=weight or ""))  # (u, v, None) where an edge lacks the attribute
    if not graph.is_directed():
        edges += [(v, u, w) for u, v, w in edges if u != v]
    senders, receivers = (np.array([numbers[edge[end]] for edge in edges], dtype=np.int64) for end in (0, 1))
    if weight is None:
        return senders, receivers
    weights = [arguments.number(f"{name}, edge {u!r} -> {v!r}: {weight}", w) for u, v, w in edges]
    size = len(numbers) if n is None else n
    return csr_array(coo_array((np.array(weights), (receivers, senders)), shape=(size, size)))


def _edge_list(name: str, item: tuple[Any, ...]) -> EdgeList:
    parts = [np.asarray(part) for part in item]
    parts = [part.astype(np.int64) if part.size == 0 else part for part in parts]
    if len(parts) != 2 or any(p.ndim != 1 or p.dtype.kind not in "iu" for p in parts) or parts[0].size != parts[1].size:
        raise ValueError(
            f"{name}: an edge list is a tuple (senders, receivers) of two integer sequences of equal length"
        )
    return parts[0].astype(np.int64), parts[1].astype(np.int64)


def _from_edges(name: str, n: int, senders: np.ndarray, receivers: np.ndarray) -> Csr:
    room(f"n={n}", 6 * (n + senders.size))
    for part in (senders, receivers):
        if part.size:
            arguments.integer(f"{name}: smallest client", part.min(), 0, n - 1)
            arguments.integer(f"{name}: largest client", part.max(), 0, n - 1)
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
