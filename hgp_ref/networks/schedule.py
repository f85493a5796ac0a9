"""Schedule: given graphs, repeated periodically: step s uses number (s - 1) mod T of the T given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref._kernels.lists import rows_from_adjacency, rows_from_lists
from hgp_ref.networks.base import Csr, Edges, Network

SHOWN = 400  # longest schedule that __repr__ writes out, in numbers


class Schedule(Network):
    """P(s) = the given matrix number (s - 1) mod T, or 1 / outdegree on the given edges.

    Each item of `graphs` is a column-stochastic matrix (n, n) with a positive diagonal, or an edge list: a tuple
    (senders, receivers) of two integer sequences without repeated edges, to which missing self-loops are added.
    `n` is needed only if all items are edge lists and the last clients send and receive nothing. Edge lists never form
    an n x n array.
    """

    def __init__(self, graphs: Iterable[Any], n: int | None = None) -> None:
        items = self._items(graphs)
        super().__init__(_clients(items) if n is None else n, period=len(items))
        self._graphs = [self._read(f"graphs[{t}]", item) for t, item in enumerate(items)]
        size = sum(2 * g[0].size if isinstance(g, tuple) else g.size for g in items)
        self._given = items if size <= SHOWN else None

    @staticmethod
    def _items(graphs: Iterable[Any]) -> list[Any]:
        if not isinstance(graphs, Iterable) or isinstance(graphs, str) or getattr(graphs, "ndim", 3) != 3:
            raise TypeError("graphs must be a list of matrices or (senders, receivers) tuples, or an array (T, n, n)")
        items = [_edge_list(f"graphs[{t}]", g) if isinstance(g, tuple) else np.asarray(g) for t, g in enumerate(graphs)]
        if not items:
            raise ValueError("graphs must hold at least one matrix or edge list, got none")
        return items

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

    def _read(self, name: str, item: Any) -> Csr:
        if isinstance(item, tuple):
            return _from_edges(name, self.n, *item)
        if item.shape != (self.n, self.n):
            needed = f"a matrix of shape ({self.n}, {self.n}) or a tuple (senders, receivers)"
            raise ValueError(f"{name} must be {needed}, got shape {item.shape}")
        return _from_matrix(name, item)

    def _arguments(self) -> dict[str, Any]:
        given = [tuple(p.tolist() for p in g) if isinstance(g, tuple) else g.tolist() for g in self._given or ()]
        return {"graphs": given, "n": self.n}

    def __repr__(self) -> str:
        return super().__repr__() if self._given else f"<Schedule of {self.period} graphs on {self.n} clients>"


def _clients(items: list[Any]) -> int:
    """Number of clients of the first matrix, or one more than the largest client named in the edge lists."""
    for item in items:
        if not isinstance(item, tuple):
            return len(item) if item.ndim else 1
    return 1 + max((int(part.max()) for item in items for part in item if part.size), default=0)


def _edge_list(name: str, item: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    parts = [np.asarray(part) for part in item]
    parts = [part.astype(np.int64) if part.size == 0 else part for part in parts]
    if len(parts) != 2 or any(p.ndim != 1 or p.dtype.kind not in "iu" for p in parts) or parts[0].size != parts[1].size:
        raise ValueError(
            f"{name}: an edge list is a tuple (senders, receivers) of two integer sequences of equal length"
        )
    return parts[0].astype(np.int64), parts[1].astype(np.int64)


def _from_edges(name: str, n: int, senders: np.ndarray, receivers: np.ndarray) -> Csr:
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


def _from_matrix(name: str, item: np.ndarray) -> Csr:
    if item.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be a real matrix, got dtype {item.dtype}")
    matrix = np.ascontiguousarray(item, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    if (matrix < 0).any():
        raise ValueError(f"{name} must be non-negative, got {matrix.min()}")
    sums = matrix.sum(axis=0)
    unit = np.finfo(item.dtype).eps if item.dtype.kind == "f" else np.finfo(np.float64).eps
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > (len(matrix) + 1) * unit:
        raise ValueError(f"{name} must be column-stochastic: column {worst} sums to {float(sums[worst])!r}, not 1")
    if (np.diag(matrix) <= 0).any():
        missing = int(np.flatnonzero(np.diag(matrix) <= 0)[0])
        raise ValueError(f"{name} must have a positive diagonal (every client hears itself): entry {missing} is 0")
    indptr, indices, _ = rows_from_adjacency(matrix > 0, np.ones(len(matrix)))
    return indptr, indices, matrix[matrix > 0]
