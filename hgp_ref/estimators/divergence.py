"""Whether the terms of the series vanish, and what to say when they grow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, to_host
from hgp_ref.errors import DivergenceError

GROWTH_LIMIT = 1e8  # no run comes back from here with digits that mean anything
CLEAR_GROWTH = 1e3  # at the end of a run: no transient of a series that converges


def largest_row(u: Array) -> np.ndarray:
    """max_i ‖u_i‖ for each run, on the host; () or (runs,)."""
    xp = array_namespace(u)
    scale = xp.max(xp.abs(u))  # keeps squares within range
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    norms = xp.sqrt(xp.sum((u / scale) ** 2, axis=-1)) * scale
    return to_host(xp.max(norms, axis=-1)).astype(np.float64)


class GrowthWatch:
    """Follows max_i ‖u_i^(m)‖ over a run.

    With reset weights Θ̂ is row-stochastic, so this norm can grow only where some ‖I − η H_i‖ > 1. A run whose terms are
    larger at its end than at half time has diverged if η λ_max ≥ 2 or if they are 1000 times the first one. Otherwise
    it may be a transient (negative curvature at some client, single mini-batches) and gets a warning, as does a run
    whose terms do not shrink at all.
    """

    def __init__(
        self,
        problem: Any,
        x: Array,
        lam: Array,
        eta: float,
        u: Array,
        averagings: Sequence[Averaging],
        mini_batches: bool,
    ) -> None:
        self.problem, self.x, self.lam, self.eta = problem, x, lam, eta
        self.averagings, self.mini_batches = averagings, mini_batches
        self.norms = [largest_row(u)]
        self.slack = 1.0 + float(np.sqrt(np.finfo(host_dtype(u)).eps))

    def look(self, u: Array, m: int) -> None:
        """Record the norm after iteration m; stop a run that has left the range of sense."""
        norm = largest_row(u)
        self.norms.append(norm)
        lost = ~np.isfinite(norm) | (norm > GROWTH_LIMIT * self._first)
        if np.any(lost):
            raise DivergenceError(self._message(m, lost, self._curvature()))

    def conclude(self, m: int) -> np.ndarray:
        """The growth over the whole run of m iterations."""
        end, half = self.norms[-1], self.norms[len(self.norms) // 2 if len(self.norms) > 2 else 0]
        growing = end > half * self.slack
        if np.any(growing):
            curvature = self._curvature()
            lost = growing & ((self.eta * curvature >= 2.0) | (end > CLEAR_GROWTH * self._first))
            if np.any(lost):
                raise DivergenceError(self._message(m, lost, curvature))
            warnings.warn("not converged: " + self._message(m, growing, curvature), RuntimeWarning, stacklevel=4)
        elif np.any((end > 0) & (end * self.slack > half)) and m > 1:
            warnings.warn(
                f"not converged: the terms of the series do not shrink over the last half of {m} iterations; the mean "
                "Hessian may be singular, or eta * lambda_max = 2",
                RuntimeWarning,
                stacklevel=4,
            )
        return end / np.where(self.norms[0] > 0, self.norms[0], 1.0)

    @property
    def _first(self) -> np.ndarray:
        return np.where(self.norms[0] > 0, self.norms[0], np.inf)

    def _curvature(self) -> float:
        return largest_curvature(self.problem, self.x, self.lam)

    def _message(self, m: int, which: np.ndarray, curvature: float) -> str:
        with np.errstate(over="ignore", invalid="ignore"):
            ratios = np.atleast_1d(self.norms[-1] / self._first)
        run = int(np.flatnonzero(np.atleast_1d(which))[0])
        named = f" in run {run}, {self.averagings[run]!r}," if np.ndim(which) else ""
        return (
            f"diverged: after {m} iterations{named} the largest term is {ratios[run]:.2g} times the first; "
            f"eta={self.eta:g} gives eta * lambda_max = {self.eta * curvature:.4g} (estimate over clients), "
            + self._cause(curvature, run)
        )

    def _cause(self, curvature: float, run: int) -> str:
        if self.eta * curvature >= 2:
            return "needed < 2: take a smaller eta"
        if curvature < 0:
            return "the curvature largest in modulus: the inner cost of some client is not convex"
        debias = getattr(self.averagings[run], "debias", "reset")
        if debias != "reset":
            return f"which is < 2: the averaging makes them grow, debias={debias!r}"
        if self.mini_batches:
            return "which is < 2, but single mini-batches may exceed it: take larger ones, or a smaller eta"
        return "which is < 2: some client's inner cost may not be convex"


def largest_curvature(problem: Any, x: Array, lam: Array, iterations: int = 60) -> float:
    """The eigenvalue of largest modulus of any ∂²_x g_i, with its sign: power iteration on all clients at once."""
    linearization = problem.linearize(x, lam)
    n, d = problem.n_clients, problem.dim_x
    start = np.cos(1.0 + np.arange(n * d) ** 2).reshape(n, d)  # no direction is special
    xp = array_namespace(x)
    u = from_host(start.astype(host_dtype(x)), like=x)
    tiny = float(xp.finfo(x.dtype).smallest_normal)
    norm = xp.ones((n, 1), dtype=x.dtype, device=device(x))
    sign = norm
    for _ in range(iterations):
        before = u / (norm + tiny)
        u = linearization.hvp(before)
        norm = xp.sqrt(xp.sum(u * u, axis=-1, keepdims=True))
        sign = xp.sign(xp.sum(before * u, axis=-1, keepdims=True))
    values = to_host(sign * norm).ravel()
    return float(values[np.argmax(np.abs(values))])
