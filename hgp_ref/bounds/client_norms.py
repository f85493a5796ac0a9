"""Norms and extreme eigenvalues of every client's H_i and J_i, from products with unit vectors, in chunks of clients.

Nothing of size n × n or nd × nd is formed. The columns H_i e_k and J_i e_k of all clients are computed at once,
in the library of the problem, and meet each other on the host in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hgp_ref.backend import from_host, host_dtype, to_host

CHUNK_NUMBERS = 2**23  # numbers of a chunk of client matrices on the host


def columns(product: Callable[[Any], Any], x: Any) -> list[Any]:
    """A_i e_k for k = 0 … d−1, each (n, rows) in the library of `x` (n, d)."""
    n, d = x.shape
    found = []
    for k in range(d):
        unit = np.zeros((n, d), dtype=host_dtype(x))
        unit[:, k] = 1.0
        found.append(product(from_host(unit, like=x)))
    return found


def mean_matrix(parts: list[Any]) -> np.ndarray:
    """mean_i A_i on the host, (rows, d), from its columns."""
    return np.stack([to_host(c).astype(np.float64).mean(axis=0) for c in parts], axis=1)


def mean_square(parts: list[Any]) -> float:
    """mean_i ‖A_i‖_F²."""
    return float(sum(np.mean(np.sum(to_host(c).astype(np.float64) ** 2, axis=1)) for c in parts))


def chunks(parts: list[Any]) -> Iterator[np.ndarray]:
    """A_i for successive clients, (chunk, rows, d) on the host."""
    n, rows = parts[0].shape
    size = max(1, CHUNK_NUMBERS // (rows * len(parts)))
    for first in range(0, n, size):
        yield np.stack([to_host(c[first : min(first + size, n), ...]).astype(np.float64) for c in parts], axis=2)


def eigenvalue_ranges(parts: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """λ_min(H_i) and λ_max(H_i), (n,) each."""
    extremes = [np.linalg.eigvalsh((H + np.swapaxes(H, 1, 2)) / 2)[:, [0, -1]] for H in chunks(parts)]
    low, high = np.concatenate(extremes).T
    return low, high


def spectral_norms(parts: list[Any], right: np.ndarray | None = None) -> np.ndarray:
    """‖J_i‖, or ‖J_i `right`‖ for a common matrix (d, d), (n,)."""
    return np.concatenate([_norms(J if right is None else J @ right) for J in chunks(parts)])


def _norms(A: np.ndarray) -> np.ndarray:
    """Largest singular values through the smaller of AAᵀ and AᵀA, (chunk,)."""
    B = A if A.shape[1] <= A.shape[2] else np.swapaxes(A, 1, 2)
    square = np.linalg.eigvalsh(B @ np.swapaxes(B, 1, 2))[:, -1]
    return np.sqrt(np.maximum(square, 0.0))


def row_norms(a: Any) -> np.ndarray:
    """‖a_i‖ of the rows, (n,) on the host."""
    return np.linalg.norm(to_host(a).astype(np.float64), axis=1)
