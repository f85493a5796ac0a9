"""The inner solution x(λ) = argmin_x Σ_i g_i(x, λ_i) under consensus, to machine precision.

Newton on the mean cost c(x) = mean_i g_i(x, λ_i) with gradient G and Hessian H̄: p = −H̄⁻¹ G, and

    a full step x + p is taken when it at least halves ‖G‖;
    otherwise x + t p with the first t = 1, ½, ¼, … for which c(x + t p) ≤ c(x) + 1e-4 t Gᵀp.

Stopping rule: the iteration ends when the full step does not halve ‖G‖ and the promised decrease −Gᵀp is lost in the
rounding of the cost (below 1e3 · eps · mean|g_i|), and returns the better of x and x + p; what is left of G is its own
rounding. That this is convergence and not a stall is checked: the last step must be shorter than √eps (1 + ‖x‖), which
by quadratic convergence leaves an error of order eps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref.backend import from_host, host_dtype
from hgp_ref.exact.derivatives import hessians, host


def inner_solution(problem: Any, lam: Any, *, x0: Any = None, max_iterations: int = 100) -> Any:
    """x(λ), (n, d_x) with equal rows, in the library, on the device and with the dtype of `lam`.

    `x0` (d_x,) is a host array to start from, zeros by default. ValueError if the mean Hessian is not positive
    definite on the way, RuntimeError if `max_iterations` steps do not reach the stopping rule.
    """
    eps = float(np.finfo(host_dtype(lam)).eps)
    mean = _Mean(problem, lam)
    x = np.zeros(problem.dim_x) if x0 is None else np.array(x0, dtype=np.float64)
    G = mean.gradient(x)
    for _ in range(max_iterations):
        p = -np.linalg.solve(mean.hessian(x), G)
        G_full = mean.gradient(x + p)
        if np.linalg.norm(G_full) <= 0.5 * np.linalg.norm(G) and np.any(G):
            x, G = x + p, G_full
            continue
        t = _backtrack(mean, x, p, float(G @ p), eps)
        if t == 0:
            if np.linalg.norm(p) > np.sqrt(eps) * (1 + np.linalg.norm(x)):
                raise RuntimeError(f"inner_solution stalled with ‖mean gradient‖={np.linalg.norm(G):.3e}")
            return mean.spread(x + p if np.linalg.norm(G_full) < np.linalg.norm(G) else x)
        x = x + t * p
        G = mean.gradient(x)
    raise RuntimeError(f"inner_solution: ‖mean gradient‖={np.linalg.norm(G):.3e} after {max_iterations} Newton steps")


def _backtrack(mean: _Mean, x: np.ndarray, p: np.ndarray, slope: float, eps: float) -> float:
    """The first of t = 1, ½, ¼, … with enough decrease of the mean cost; 0 if rounding hides every decrease."""
    cost, scale = mean.cost(x)
    t = 1.0
    while -t * slope > 1e3 * eps * scale:
        if mean.cost(x + t * p)[0] <= cost + 1e-4 * t * slope:
            return t
        t /= 2
    return 0.0


class _Mean:
    """Mean cost, gradient and Hessian over the clients at a common point x (d_x,), in the problem's library."""

    def __init__(self, problem: Any, lam: Any) -> None:
        self.problem, self.lam, self.dtype = problem, lam, host_dtype(lam)

    def spread(self, x: np.ndarray) -> Any:
        rows = np.tile(x.astype(self.dtype), (self.problem.n_clients, 1))  # (n, d_x)
        return from_host(rows, like=self.lam)

    def cost(self, x: np.ndarray) -> tuple[float, float]:
        """mean g_i, and mean |g_i| as the scale of its rounding."""
        g = host(self.problem.inner_cost(self.spread(x), self.lam))
        return float(np.mean(g)), float(np.mean(np.abs(g)))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        G = host(self.problem.inner_grad(self.spread(x), self.lam)).mean(axis=0)
        if not np.all(np.isfinite(G)):
            raise ValueError("the problem's inner_grad returned NaN or infinity: check its data and lam")
        return G

    def hessian(self, x: np.ndarray) -> np.ndarray:
        return require_positive_definite(hessians(self.problem, self.spread(x), self.lam).mean(axis=0))


def require_positive_definite(H: np.ndarray) -> np.ndarray:
    """The symmetric part of the mean Hessian `H` (d, d); ValueError if its smallest eigenvalue is not positive."""
    H = (H + H.T) / 2
    eigenvalues = np.linalg.eigvalsh(H)
    if not eigenvalues[0] > len(H) * np.finfo(np.float64).eps * abs(eigenvalues[-1]):
        raise ValueError(
            "the mean Hessian over the clients is not positive definite "
            f"(smallest eigenvalue {eigenvalues[0]:.3e}): the inner problem has no unique smooth minimiser here"
        )
    return H
