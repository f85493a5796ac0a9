"""Whether the terms of the series vanish, and what to say when they grow."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, to_host
from hgp_ref.errors import DivergenceError

GROWTH_LIMIT = 1e8  # no run comes back from here with digits that mean anything


def largest_row(u: Array) -> np.ndarray:
    """max_i ‖u_i‖ for each run, on the host; () or (runs,)."""
    xp = array_namespace(u)
    scale = xp.max(xp.abs(u))  # keeps squares within range
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    norms = xp.sqrt(xp.sum((u / scale) ** 2, axis=-1)) * scale
    return to_host(xp.max(norms, axis=-1)).astype(np.float64)


class GrowthWatch:
    """Follows max_i ‖u_i^(m)‖ over a run.

    With reset weights Θ̂ is row-stochastic, so this norm can grow only where some ‖I − η H_i‖ > 1. A run whose
    terms ended up larger than both the first one and those at half time has diverged; one that still grows has if
    η λ_max ≥ 2, and gets a warning otherwise.
    """

    def __init__(self, problem: Any, x: Array, lam: Array, eta: float, u: Array) -> None:
        self.problem, self.x, self.lam, self.eta = problem, x, lam, eta
        self.norms = [largest_row(u)]
        self.slack = 1.0 + float(np.sqrt(np.finfo(host_dtype(u)).eps))

    def look(self, u: Array, m: int) -> None:
        """Record the norm after iteration m; stop a run that has left the range of sense."""
        norm = largest_row(u)
        self.norms.append(norm)
        if not np.all(np.isfinite(norm)) or np.any(norm > GROWTH_LIMIT * self._first):
            raise DivergenceError(self._message(m))

    def conclude(self, m: int) -> np.ndarray:
        """The growth over the whole run of m iterations."""
        end, half = self.norms[-1], self.norms[len(self.norms) // 2 if len(self.norms) > 2 else 0]
        growing = end > half * self.slack
        if np.any(growing & (end > self._first * self.slack)):
            raise DivergenceError(self._message(m))
        if np.any(growing):
            if self.eta * largest_curvature(self.problem, self.x, self.lam) >= 2.0:
                raise DivergenceError(self._message(m))
            warnings.warn(
                f"the terms of the series still grow after {m} iterations: the estimate has not converged",
                RuntimeWarning,
                stacklevel=4,
            )
        return end / np.where(self.norms[0] > 0, self.norms[0], 1.0)

    @property
    def _first(self) -> np.ndarray:
        return np.where(self.norms[0] > 0, self.norms[0], np.inf)

    def _message(self, m: int) -> str:
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.max(self.norms[-1] / self._first)
        curvature = self.eta * largest_curvature(self.problem, self.x, self.lam)
        cause = "needed < 2: take a smaller eta" if curvature >= 2 else "which is < 2: the averaging makes them grow"
        return (
            f"diverged: after {m} iterations the largest term is {growth:.2g} times the first; "
            f"eta={self.eta:g} gives eta * lambda_max = {curvature:.4g} (estimate over clients), {cause}"
        )


def largest_curvature(problem: Any, x: Array, lam: Array, iterations: int = 60) -> float:
    """max_i λ_max(∂²_x g_i) by power iteration on all clients at once (an estimate from below, in modulus)."""
    linearization = problem.linearize(x, lam)
    n, d = problem.n_clients, problem.dim_x
    start = np.cos(1.0 + np.arange(n * d) ** 2).reshape(n, d)  # no direction is special
    xp = array_namespace(x)
    u = from_host(start.astype(host_dtype(x)), like=x)
    tiny = float(xp.finfo(x.dtype).smallest_normal)
    norm = xp.ones((n, 1), dtype=x.dtype, device=device(x))
    for _ in range(iterations):
        u = linearization.hvp(u / (norm + tiny))
        norm = xp.sqrt(xp.sum(u * u, axis=-1, keepdims=True))
    return float(np.max(to_host(norm)))
