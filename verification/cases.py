"""Problems to verify on, with their explicit derivatives and their true hyper-gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.backend import get_backend, to_host
from hgp_ref.bounds import Constants, realised_constants
from hgp_ref.data import synthetic_mixture
from hgp_ref.rounding import norms


@dataclass(frozen=True)
class Case:
    """A problem at a point: by default the inner solution, where the hyper-gradient formula is the truth."""

    name: str
    problem: Any
    x: np.ndarray  # (n, d_x)
    lam: np.ndarray  # (n, d_lam)
    H: np.ndarray  # (n, d_x, d_x)
    J: np.ndarray  # (n, d_lam, d_x)
    f_x: np.ndarray  # (n, d_x)
    f_lam: np.ndarray  # (n, d_lam)
    truth: np.ndarray  # (n, d_lam), the formula at x
    data: Any = None  # what the problem was made from, where a constant is read off it

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def L(self) -> float:
        """The largest eigenvalue over clients."""
        return float(np.linalg.eigvalsh(self.H).max())

    def estimate(self, avg: Any, backend: str = "numpy", **options: Any) -> Any:
        """hgp.hypergradient on the chosen array library."""
        problem, x, lam = self.problem, self.x, self.lam
        if backend != "numpy":
            library = get_backend(backend)
            x, lam = library.asarray(x), library.asarray(lam)
            problem = problem.to(x)
        if "method" not in options:
            options.setdefault("eta", 1.0)
        return hgp.hypergradient(problem, x, lam, avg, **options)

    def errors(self, est: Any) -> np.ndarray:
        """‖v^(m) − d‖ for m = 1 … M from a run with history, (M,) or (runs, M)."""
        return np.linalg.norm(to_host(est.history) - self.truth, axis=(-2, -1))

    def error(self, est: Any) -> float | np.ndarray:
        """‖v^(M) − d‖, a number or one for each run."""
        return np.linalg.norm(to_host(est.value) - self.truth, axis=(-2, -1))

    def client_errors(self, est: Any) -> np.ndarray:
        """‖v_i^(M) − d_i‖ of one run, (n,)."""
        return norms(host64(est.value) - self.truth)

    def constants(self, eta: float, matrices: Sequence[np.ndarray], steps: int = 1) -> Constants:
        """Realised constants for the averaging matrices K_0 … K_{M−1}, of `steps` steps each."""
        return realised_constants(self.H, self.J, self.f_x, eta, matrices, f_lam=self.f_lam, steps=steps)


def same_row(row: np.ndarray, n: int) -> np.ndarray:
    """One row (d,) for all of n clients, (n, d)."""
    return np.tile(row, (n, 1))


def host64(a: Any) -> np.ndarray:
    """An array of any library as a float64 NumPy array."""
    return to_host(a).astype(np.float64)


def case_at(name: str, problem: Any, x: np.ndarray, lam: np.ndarray) -> Case:
    """The case at a given point."""
    f_x, f_lam = hgp.exact.outer_gradients(problem, x, lam)
    H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    return Case(name, problem, x, lam, H, J, f_x, f_lam, hgp.exact.hypergradient(problem, x, lam))


def case_of(name: str, problem: Any, lam: np.ndarray) -> Case:
    """The case at the inner solution of λ."""
    return case_at(name, problem, hgp.exact.inner_solution(problem, lam), lam)


def logistic(
    n: int = 3, dim: int = 5, *, seed: int = 0, rate: float = 0.1, instances: int = 100, name: str | None = None
) -> Case:
    """Logistic regression on the synthetic mixture of the paper, L2 rates around `rate`, one per coordinate."""
    data = synthetic_mixture(n, instances, instances, 1, dim=dim, seed=seed % 2**32, bias=False)
    problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    lam = rate * np.random.default_rng([seed, 7]).uniform(0.5, 1.5, (n, dim))
    return replace(case_of(name or f"logistic n={n} d={dim}", problem, lam), data=data)


def quadratic(
    n: int = 3,
    dim: int = 5,
    dim_lam: int | None = None,
    *,
    seed: int = 0,
    condition: float = 10.0,
    heterogeneity: float = 0.5,
    name: str | None = None,
) -> Case:
    """A random strongly convex quadratic, eigenvalues of every client in [1/condition, 1]."""
    problem = hgp.problems.Quadratic.random(
        n, dim, dim_lam or dim, seed=seed, condition=condition, heterogeneity=heterogeneity
    )
    lam = np.random.default_rng([seed, 8]).normal(size=(n, dim_lam or dim))
    return case_of(name or f"quadratic n={n} d={dim}", problem, lam)


def mixing_products(net: Any, steps: int | Sequence[int], calls: int) -> np.ndarray:
    """P_0 … P_{M−1}, (M, n, n): explicit products of the network's matrices; `steps` may differ from call to call."""
    if not isinstance(steps, int):
        each = [*steps[:calls], *[steps[-1]] * (calls - len(steps))]
        W, P = iter(net.mixing_matrices(1, sum(each))), np.tile(np.eye(net.n), (calls, 1, 1))
        for m, S in enumerate(each):
            for _ in range(S):
                P[m] = next(W) @ P[m]
        return P
    if net.period == 1:
        calls, repeat = 1, calls
    else:
        repeat = 1
    W = net.mixing_matrices(1, steps * calls).reshape(calls, steps, net.n, net.n)
    P = W[:, 0]
    for s in range(1, steps):
        P = W[:, s] @ P
    return np.repeat(P, repeat, axis=0)


def push_sum_matrices(
    net: Any, steps: int | Sequence[int], calls: int, debias: str = "reset"
) -> tuple[np.ndarray, np.ndarray]:
    """K_0 … K_{M−1} (M, n, n) and ω_1 … ω_M (M, n), as `hgp_ref.exact.push_sum_matrices` gives them, but faster."""
    P = mixing_products(net, steps, calls)
    after, omega = np.empty(P.shape[:2]), np.ones(net.n)
    for m in range(calls):
        omega = after[m] = P[m] @ omega
    return P / (P.sum(axis=2) if debias == "reset" else after)[:, :, None], after


def matrices_of(avg: Any, calls: int) -> np.ndarray:
    """K_0 … K_{M−1} of an averaging, (M, n, n)."""
    if avg.net is None:
        return np.full((calls, avg.n, avg.n), 1.0 / avg.n)
    if isinstance(avg, hgp.Gossip):
        return mixing_products(avg.net, avg.steps, calls)
    return push_sum_matrices(avg.net, avg.steps, calls, avg.debias)[0]
