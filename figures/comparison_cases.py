"""Where other methods meet HGP: problems at their exact inner solution, and networks with equally many edges.

    logistic        the paper's mixture, n = 3, an L2 rate per coordinate, λ ~ U[.05, .2]
    quadratic κ     n = 10, d_x = 20, d_λ = 2, mean Hessian with eigenvalues from 1/κ to 1, clients that differ
    softmax         n = 100 clients of a mixture of Gaussians, 4 classes, 6 features: d_x = 24, an L2 rate per client

Static graphs are undirected with Metropolis weights; those that change are directed, every edge drawn anew in every
step with the rate that the static graph has, so that as many messages go out on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.networks import Network

QUADRATIC = {"quadratic, κ = 10": 10.0, "quadratic, κ = 100": 100.0, "quadratic, κ = 1000": 1000.0}
PROBLEMS = ("logistic, n = 3", *QUADRATIC, "softmax, n = 100")
BUDGET = {  # floats sent per client, in units of d_x
    "logistic, n = 3": 1000,
    "quadratic, κ = 10": 10000,
    "quadratic, κ = 100": 15000,
    "quadratic, κ = 1000": 25000,
    "softmax, n = 100": 3000,
}
RATE = {"logistic, n = 3": 0.1, "softmax, n = 100": 0.08}  # of edges before they connect; the others have 0.4
REACHED, LOST = 1e-9, 1e12  # errors at which a run ends; FAB begins with errors of the order of its penalty
NETWORKS = ("static undirected", "time-varying directed")


@dataclass(frozen=True)
class Case:
    """A problem, the point at which it is differentiated, the derivative there, and what step sizes are made of."""

    problem: Any
    x: np.ndarray
    lam: np.ndarray
    truth: np.ndarray
    low: float  # smallest and largest eigenvalue of any client's Hessian
    high: float

    def error(self, v: np.ndarray) -> float:
        """‖v − d_λ f‖ / ‖d_λ f‖ over all clients."""
        return float(np.linalg.norm(v - self.truth) / np.linalg.norm(self.truth))

    def settled(self, v: np.ndarray) -> bool:
        """Whether a run may end: it has arrived, or left for good."""
        return not REACHED < self.error(v) < LOST


@lru_cache(maxsize=8)
def case(name: str, seed: int) -> Case:
    """The problem of that name with data of that seed."""
    problem, lam = _problem(name, seed)
    x = hgp.exact.inner_solution(problem, lam)
    eigenvalues = np.linalg.eigvalsh(hgp.exact.hessians(problem, x, lam))
    truth = hgp.exact.hypergradient(problem, x, lam)
    return Case(problem, x, lam, truth, float(eigenvalues.min()), float(eigenvalues.max()))


def network(name: str, kind: str, seed: int) -> Network:
    """A network for the problem `name`."""
    n = {"logistic, n = 3": 3, "softmax, n = 100": 100}.get(name, 10)
    static = hgp.networks.StaticUndirected(n, p=RATE.get(name, 0.4), seed=seed)
    if kind == NETWORKS[0]:
        return static
    rate = (static.expected_edges - n) / (n * (n - 1))
    return hgp.networks.RandomDirected(n, low=rate, high=rate, seed=seed)


def _problem(name: str, seed: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng([1, seed])
    if name in QUADRATIC:
        return quadratic(10, 20, 2, QUADRATIC[name], seed), rng.standard_normal((10, 2))
    if name.startswith("logistic"):
        data = hgp.data.synthetic_mixture(seed=seed)
        problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
        return problem, rng.uniform(0.05, 0.2, (3, problem.dim_lam))
    problem = hgp.problems.SoftmaxRegression(*gaussians(100, 20, seed), n_classes=4, regularization="client")
    return problem, rng.uniform(0.05, 0.2, (100, problem.dim_lam))


def quadratic(n: int, d: int, d_lam: int, kappa: float, seed: int) -> hgp.problems.Quadratic:
    """A_i = H̄^½ (I + Δ_i) H̄^½ with Σ_i Δ_i = 0 and ‖Δ_i‖ ≤ .9: the mean is H̄, with eigenvalues from 1/κ to 1."""
    rng = np.random.default_rng([2, seed])
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    root = basis * np.geomspace(1 / kappa, 1, d) ** 0.5 @ basis.T
    delta = rng.standard_normal((n, d, d))
    delta = delta + delta.swapaxes(1, 2)
    delta = delta - delta.mean(axis=0)
    delta *= 0.9 / np.abs(np.linalg.eigvalsh(delta)).max()
    A = root @ (np.eye(d) + delta) @ root
    C = rng.standard_normal((n, d_lam, d))
    b, target = rng.standard_normal((2, n, d))
    return hgp.problems.Quadratic((A + A.swapaxes(1, 2)) / 2, b, C, target)


def gaussians(n: int, size: int, seed: int, features: int = 6, classes: int = 4) -> tuple[np.ndarray, ...]:
    """X, y, X_val, y_val of n clients with `size` instances each: classes are Gaussians whose means clients shift."""
    rng = np.random.default_rng([3, seed])
    means = rng.standard_normal((classes, features))
    shift = 0.5 * rng.standard_normal((n, 1, features))
    y, y_val = rng.integers(0, classes, (2, n, size))
    X, X_val = (means[labels] + shift + rng.standard_normal((n, size, features)) for labels in (y, y_val))
    return X, y, X_val, y_val
