"""Every client's H_i or J_i from products with unit vectors, and norms of them in chunks of clients.

Nothing of size n × n or nd × nd is formed: d products over all clients at once, in the library of the problem, give
the columns A_i e_k, which are copied to the host (a problem may reuse its output) and meet each other there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.certificates.answers import host_copy

CHUNK_NUMBERS = 2**23  # numbers of a chunk of client matrices on the host


class ClientMatrices:
    """A_i for all clients as columns (d, n, rows) in the problem's dtype on the host."""

    def __init__(self, name: str, product: Callable[[Array], Array], x: Array, rows: int) -> None:
        n, d = x.shape
        self.columns = np.empty((d, n, rows), dtype=host_dtype(x))
        for k in range(d):
            self.columns[k] = host_copy(name, product(unit_vectors(k, x)), (n, rows))

    def mean(self) -> np.ndarray:
        """mean_i A_i, (rows, d)."""
        return np.stack([rigorous.mean(column.astype(np.float64)) for column in self.columns], axis=1)

    def sizes(self) -> np.ndarray:
        """‖A_i‖_F, (n,)."""
        return rigorous.norms(np.stack([rigorous.norms(column.astype(np.float64)) for column in self.columns], axis=1))

    def over_clients(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`function` of (chunk, rows, d) for successive chunks of clients, its answers one after the other."""
        return np.concatenate([function(chunk) for chunk in self._chunks()])

    def _chunks(self) -> Iterator[np.ndarray]:
        d, n, rows = self.columns.shape
        size = max(1, CHUNK_NUMBERS // (rows * d))
        for first in range(0, n, size):
            yield np.moveaxis(self.columns[:, first : first + size], 0, 2).astype(np.float64)


def unit_vectors(k: int, x: Array) -> Array:
    """The k-th unit vector for every client, beside `x` (n, d)."""
    unit = np.zeros(x.shape, dtype=host_dtype(x))
    unit[:, k] = 1.0
    return from_host(unit, like=x)


def symmetric(A: np.ndarray) -> np.ndarray:
    """The symmetric part of A (..., d, d)."""
    return A / 2 + np.swapaxes(A, -1, -2) / 2
