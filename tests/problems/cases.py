"""Every built-in problem at a random point, on NumPy, with clients of unequal size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hgp_ref.problems import (
    HyperCleaning,
    InstanceWeights,
    LeastSquares,
    LogisticRegression,
    LogRates,
    Quadratic,
    SoftmaxRegression,
)

COUNTS = (5, 8, 6)
VAL_COUNTS = (4, 1, 3)
LINEAR = [
    "squares", "squares-client", "logistic", "logistic-client", "softmax", "softmax-client",
    "weights", "weights-softmax", "weights-squares",
]  # fmt: skip
SPARSE = ["sparse-squares", "sparse-logistic-client", "sparse-softmax", "sparse-weights", "sparse-weights-softmax"]
DENSE, LINEAR = LINEAR, LINEAR + SPARSE
MAPPED = ["log-logistic", "log-softmax-client", "cleaning-softmax", "log-sparse-logistic"]  # λ = φ(θ)
KINDS = ["quadratic", *LINEAR, *MAPPED]


@dataclass(frozen=True)
class Case:
    problem: Any
    x: np.ndarray  # (n, d_x)
    lam: np.ndarray  # (n, d_lam)
    u: np.ndarray  # (n, d_x)
    batch: np.ndarray | None  # (n, 3): repeated entries and padding


def data(rng, counts, d, classes, dtype):
    X = [rng.standard_normal((k, d)).astype(dtype) for k in counts]
    if classes is None:  # regression
        return X, [rng.standard_normal(k).astype(dtype) for k in counts]
    return X, [rng.integers(0, classes, k) for k in counts]


def make(kind, d=2, *, counts=COUNTS, val_counts=VAL_COUNTS, classes=3, seed=0, dtype="float64"):
    """A problem of `kind`; d=2 lets the linearization keep Hessians, d=9 (more than the instances) forbids it."""
    rng = np.random.default_rng(seed)
    n = len(counts)
    if kind == "quadratic":
        problem = full_quadratic(rng, n, d, 3, dtype)
    else:
        many = labels(kind, classes)
        arrays = (*data(rng, counts, d, many, dtype), *data(rng, val_counts, d, many, dtype))
        problem = linear(kind, arrays, many)
    x, u = rng.standard_normal((2, n, problem.dim_x)).astype(dtype)
    lam = rng.uniform(0.2, 1.5, (n, problem.dim_lam)).astype(dtype)
    batch = np.array([[0, 0, counts[i] - 1] if i != 1 else [counts[i] // 2, -1, -1] for i in range(n)])
    return Case(problem, x, lam, u, None if kind == "quadratic" else batch)


def labels(kind, classes):
    """The number of classes of a linear model, None for a regression."""
    return None if "squares" in kind else classes if "softmax" in kind else 2


def linear(kind, arrays, classes):
    """The linear model called `kind` of (X, y, X_val, y_val); a sparse one has entries below 0.4 set to zero."""
    if kind.startswith("sparse-"):
        X, y, X_val, y_val = arrays
        return linear(kind.removeprefix("sparse-"), (sparse(X), y, sparse(X_val), y_val), classes)
    if kind.startswith("log-"):
        return LogRates(linear(kind.removeprefix("log-"), arrays, classes))
    if kind.startswith("cleaning"):
        return HyperCleaning(*arrays, 0.3, n_classes=classes)
    style = "client" if kind.endswith("client") else "coordinate"
    if kind.startswith("squares"):
        return LeastSquares(*arrays, regularization=style)
    if kind.startswith("logistic"):
        return LogisticRegression(*arrays, regularization=style)
    if kind.startswith("softmax"):
        return SoftmaxRegression(*arrays, classes, regularization=style)
    if kind == "weights":
        return InstanceWeights(*arrays, l2=0.3)
    return InstanceWeights(*arrays, loss="squared" if "squares" in kind else "softmax", n_classes=classes)


def thinned(parts):
    return [np.where(np.abs(part) < 0.4, 0, part).astype(part.dtype) for part in parts]


def sparse(parts):
    """Matrices of several formats."""
    formats = (sp.csr_array, sp.coo_matrix, sp.csc_array)
    return [formats[i % 3](part) for i, part in enumerate(thinned(parts))]


def full_quadratic(rng, n, d, d_lam, dtype):
    A, Q = rng.standard_normal((2, n, d, d))
    A, Q = (((M + M.swapaxes(1, 2)) / 2).astype(dtype) for M in (A, Q))
    b, t = rng.standard_normal((2, n, d)).astype(dtype)
    C, D = rng.standard_normal((2, n, d_lam, d)).astype(dtype)
    return Quadratic(A, b, C, t, outer_hessian=Q, coupling=D, outer_reg=0.7)


def settings():
    """(kind, d, use a mini-batch) for all kinds, both ways of applying the Hessian, full and mini-batch."""
    quadratic = [("quadratic", d, False) for d in (2, 9)]
    return quadratic + [(kind, d, mini) for kind in LINEAR + MAPPED for d in (2, 9) for mini in (False, True)]
