"""A sparse mixing matrix times (n, d) vectors in SciPy and in PyTorch, and a dense one step by step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch

Csr = tuple[np.ndarray, np.ndarray, np.ndarray]


def scipy_product(graph: Csr, z: np.ndarray) -> Callable[[], Any]:
    """W @ z with scipy.sparse, indices of 32 bits."""
    indptr, indices, weights = graph
    n = len(indptr) - 1
    W = scipy.sparse.csr_array((weights.astype(z.dtype), indices, indptr.astype(np.int32)), shape=(n, n))
    return lambda: W @ z


def torch_product(graph: Csr, z: np.ndarray) -> Callable[[], Any]:
    """W @ z with a torch CSR tensor."""
    indptr, indices, weights = graph
    n = len(indptr) - 1
    parts = (torch.from_numpy(a) for a in (indptr, indices.astype(np.int64), weights.astype(z.dtype)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "CSR tensor support is in beta state"
        W = torch.sparse_csr_tensor(*parts, size=(n, n), check_invariants=True)
    vectors = torch.from_numpy(z)
    return lambda: W @ vectors


def successive(matrices: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Push-Sum with one dense product per step, for vectors and weights."""
    omega = np.ones(len(u), dtype=u.dtype)
    for W in matrices.astype(u.dtype):
        u, omega = W @ u, W @ omega
    u /= omega[:, None]
    return u
