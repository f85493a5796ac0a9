"""Small networks and problems of every kind, for tests that go through all of them."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp

NETWORK_KINDS = {
    "RandomDirected": lambda n: hgp.networks.RandomDirected(n=n, low=0.4, high=0.8, seed=5),
    "RandomUndirected": lambda n: hgp.networks.RandomUndirected(n=n, low=0.4, high=0.8, seed=5),
    "FullyConnected": lambda n: hgp.networks.FullyConnected(n),
    "StaticUndirected": lambda n: hgp.networks.StaticUndirected(n, p=0.9, seed=3, weights="metropolis"),
    "Schedule": lambda n: hgp.networks.Schedule(_schedule(n)),
    "OnePeerExponential": lambda n: hgp.networks.OnePeerExponential(n),
    "RandomOut": lambda n: hgp.networks.RandomOut(n, k=min(2, n - 1), seed=4),
    "SparseErdosRenyi": lambda n: hgp.networks.SparseErdosRenyi(n, mean_degree=min(2.5, n - 1), seed=4),
}
DOUBLY_STOCHASTIC = ("FullyConnected", "StaticUndirected", "OnePeerExponential")


def _schedule(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    matrices = [rng.random((n, n)) * (rng.random((n, n)) < 0.6) + np.eye(n) for _ in range(3)]
    return [W / W.sum(axis=0) for W in matrices]


def logistic(n: int = 3, d: int = 4, N: int = 12, seed: int = 0, **options):
    """A small logistic problem and a point (x, lam) at which its clients disagree."""
    rng = np.random.default_rng(seed)
    X, X_val = rng.uniform(-1, 1, (2, n, N, d))
    y, y_val = rng.integers(0, 2, (2, n, N))
    problem = hgp.problems.LogisticRegression(X, y, X_val, y_val, **options)
    return problem, rng.normal(size=(n, problem.dim_x)), rng.uniform(0.1, 0.3, (n, problem.dim_lam))


def quadratic_data(n: int = 3, d: int = 4, d_lam: int = 2, seed: int = 0) -> tuple[np.ndarray, ...]:
    """A, b, C, target of a strongly convex quadratic problem with λ_max = 1."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, d, d))
    A = B @ np.swapaxes(B, 1, 2)
    A = A / np.linalg.eigvalsh(A).max() + 0.2 * np.eye(d)
    A = A / np.linalg.eigvalsh(A).max()
    return A, rng.normal(size=(n, d)), rng.normal(size=(n, d_lam, d)), rng.normal(size=(n, d))


def quadratic(n: int = 3, d: int = 4, d_lam: int = 2, seed: int = 0):
    """The problem of `quadratic_data` and a point."""
    rng = np.random.default_rng(seed + 1)
    problem = hgp.problems.Quadratic(*quadratic_data(n, d, d_lam, seed))
    return problem, rng.normal(size=(n, d)), rng.normal(size=(n, d_lam))
