"""Exact inner solutions of many weightings at once, on a leading axis of runs.

Run r minimises c_r(x) = mean_i g_i(x, λ_ri) over one x common to all clients, starting from the solution of the
weighting that all runs are small changes of. Two phases, with G the gradient and H̄ the Hessian of c_r:

    chord     p = −H̄₀⁻¹ G with the one Hessian H̄₀ at the start, factorised once: every run whose ‖G‖ at least halves
              at each step goes on until its step is a short one, which is then also its error;
    Newton    the others (large removals) continue with their own H̄, p = −H̄⁻¹ G, shortened to t p, t = 1, ½, ¼ …,
              until ‖G(x + tp)‖ ≤ (1 − t/4) ‖G(x)‖, and finish with a full step shorter than √eps (1 + ‖x‖), after
              which quadratic convergence leaves rounding only.

A chord step is short below max(1e-12, 50 eps) (1 + ‖x‖), with eps of the dtype of λ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hgp_ref.backend import from_host, host_dtype, to_host
from hgp_ref.exact import inner_solution

BLOCK_BYTES = 2**28  # of Hessian blocks held at once


def inner_solutions(problem: Any, lam: Any, lam0: Any, x0: np.ndarray) -> np.ndarray:
    """x(λ_r) for each run of `lam` (R, n, d_λ), host array (R, d_x), starting from `x0` (d_x,) = x(`lam0`).

    Runs go together if the problem takes run axes and has a closed-form Hessian, else one after the other.
    """
    runs = int(lam.shape[0])
    if not (getattr(problem, "broadcasts", False) and hasattr(problem, "hessian")):
        rows = [to_host(inner_solution(problem, lam[r, ...], x0=x0))[0] for r in range(runs)]
        return np.array(rows, dtype=np.float64).reshape(runs, problem.dim_x)
    x, done = _chord(problem, lam, lam0, x0)
    left = np.flatnonzero(~done)
    block = max(1, BLOCK_BYTES // (8 * problem.n_clients * problem.dim_x**2))
    for start in range(0, left.size, block):
        few = left[start : start + block]
        x[few] = _newton(problem, _take(lam, few), x[few])
    return x


def _chord(
    problem: Any, lam: Any, lam0: Any, x0: np.ndarray, max_iterations: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Points (R, d) after chord steps with the Hessian at (x0, lam0), and which of them are solutions (R,)."""
    x = np.repeat(x0[None].astype(np.float64), lam.shape[0], axis=0)  # (R, d)
    H0 = _mean(problem.hessian(_spread(problem, x0[None], lam)[0, ...], lam0), axis=0)  # (d, d)
    factor, eps = cho_factor(H0), _eps(lam)
    done = np.zeros(len(x), dtype=bool)
    active = np.arange(len(x))
    weights, G = lam, _gradient(problem, x, lam)
    for _ in range(max_iterations):
        p = -cho_solve(factor, G.T).T
        G_next = _gradient(problem, x[active] + p, weights)
        short = _short(p, x[active], max(1e-12, 50 * eps))
        good = short | (np.linalg.norm(G_next, axis=1) <= 0.5 * np.linalg.norm(G, axis=1))
        x[active[good]] += p[good]
        done[active[short]] = True
        stay = good & ~short
        if not np.any(stay):
            break
        active, G, weights = active[stay], G_next[stay], _take(weights, np.flatnonzero(stay))
    return x, done


def _newton(problem: Any, lam: Any, x: np.ndarray, max_iterations: int = 60) -> np.ndarray:
    G = _gradient(problem, x, lam)
    for _ in range(max_iterations):
        H = _mean(problem.hessian(_spread(problem, x, lam), lam), axis=1)  # (R, d, d)
        p = -np.linalg.solve(H, G[..., None])[..., 0]
        short = _short(p, x, np.sqrt(_eps(lam)))
        x, G = _search(problem, x, G, p, lam, free=short)
        if np.all(short):
            return x
    worst = float(np.max(np.linalg.norm(G, axis=1)))
    raise RuntimeError(f"Newton's method left a gradient of norm {worst:.1e} after {max_iterations} iterations")


def _search(
    problem: Any, x: np.ndarray, G: np.ndarray, p: np.ndarray, lam: Any, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """x + t p and its gradient, t halved in every run that is not `free` until the gradient has shrunk enough."""
    size = np.linalg.norm(G, axis=1)
    t = np.ones(len(x))
    for _ in range(50):
        tried = x + t[:, None] * p
        G_tried = _gradient(problem, tried, lam)
        good = free | (np.linalg.norm(G_tried, axis=1) <= (1 - t / 4) * size)
        if np.all(good):
            return tried, G_tried
        t = np.where(good, t, t / 2)
    raise RuntimeError("Newton's method found no decrease of the gradient: is the mean Hessian positive definite?")


def _short(p: np.ndarray, x: np.ndarray, relative: float) -> np.ndarray:
    return np.linalg.norm(p, axis=1) <= relative * (1 + np.linalg.norm(x, axis=1))


def _eps(lam: Any) -> float:
    return float(np.finfo(host_dtype(lam)).eps)


def _gradient(problem: Any, x: np.ndarray, lam: Any) -> np.ndarray:
    return _mean(problem.inner_grad(_spread(problem, x, lam), lam), axis=1)  # (R, d)


def _mean(array: Any, axis: int) -> np.ndarray:
    return np.asarray(np.mean(to_host(array), axis=axis, dtype=np.float64))


def _take(lam: Any, rows: np.ndarray) -> Any:
    return from_host(to_host(lam)[rows], like=lam)


def _spread(problem: Any, x: np.ndarray, lam: Any) -> Any:
    """x (R, d) on every client, (R, n, d), in the library and dtype of `lam`."""
    rows = np.repeat(x[:, None, :], problem.n_clients, axis=1)
    return from_host(rows.astype(host_dtype(lam)), like=lam)
