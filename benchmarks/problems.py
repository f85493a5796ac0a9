"""The problems of the benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.data import synthetic_mixture

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def mixture(dtype: str = "float64") -> tuple[Any, Data]:
    """The paper's synthetic problem: 3 clients, 100 instances each, d = 6."""
    drawn = synthetic_mixture(seed=1234, n_test=1)
    X, X_val = drawn.X.astype(dtype), drawn.X_val.astype(dtype)
    data = (X, drawn.y.astype(dtype), X_val, drawn.y_val.astype(dtype))
    return hgp.problems.LogisticRegression(*data), data


def logistic(n: int, N: int, d: int, dtype: str, *, rate: float = 0.2, seed: int = 0) -> tuple[Any, Data, Any, Any]:
    """Logistic regression on normal features scaled so that η = 1 converges, a point x and rates λ."""
    rng = np.random.default_rng(seed)
    X, X_val = (rng.standard_normal((n, size, d), dtype=np.float32) for size in (N, max(1, N // 5)))
    for features in (X, X_val):
        features *= 2 / np.sqrt(N + d)  # eigenvalues of X^T X / 4 stay of order one, whichever of N and d is larger
        features *= np.sqrt(min(N, d) / max(N, d)) if N < d else 1.0
    y, y_val = (rng.integers(0, 2, part.shape[:2]) for part in (X, X_val))
    data = (X.astype(dtype), y.astype(dtype), X_val.astype(dtype), y_val.astype(dtype))
    x = (0.1 * rng.standard_normal((n, d))).astype(dtype)
    return hgp.problems.LogisticRegression(*data), data, x, np.full((n, d), rate, dtype=dtype)
