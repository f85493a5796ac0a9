"""Exact inner solutions of many weightings at once, on a leading axis of runs.

Run r minimises c_r(x) = mean_i g_i(x, λ_ri) over one x common to all clients, starting from the solution of the
weighting that all runs are small changes of. Two phases, with G the gradient and H̄ the Hessian of c_r:

    chord     p = −H̄₀⁻¹ G with the one Hessian H̄₀ at the start, factorised once: every run whose ‖G‖ at least halves
              at each step goes on until its step is a short one, which is then also its error;
    Newton    the others (large removals) continue with their own H̄, p = −H̄⁻¹ G, shortened to t p, t = 1, ½, ¼ …,
              until ‖G(x + tp)‖ ≤ (1 − t/4) ‖G(x)‖, and finish with a full step shorter than √eps ‖x‖, after which
              quadratic convergence leaves rounding only.

A chord step is short below max(1e-12, 50 eps) ‖x‖, with eps of the dtype of λ and for ‖x‖ the larger of its own and of
that at the start, so that units do not matter. What no step improves goes to `exact.inner_solution`, which tells
rounding from failure.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hgp_ref.backend import Array, from_host, host_dtype, to_host
from hgp_ref.exact import inner_solution
from hgp_ref.problems.normalised import Normalised, as_problem
from hgp_ref.problems.protocol import Problem

BLOCK_BYTES = 2**28  # of Hessian blocks held at once


def inner_solutions(problem: Problem, lam: Array, lam0: Array, x0: np.ndarray) -> np.ndarray:
    """x(λ_r) for each run of `lam` (R, n, d_λ), host array (R, d_x), starting from `x0` (d_x,) = x(`lam0`).

    Runs go together if the problem has a closed-form Hessian, else one after the other.
    """
    problem = as_problem(problem)
    if int(lam.shape[0]) == 0:
        return np.zeros((0, problem.dim_x))
    if problem.hessian is None:
        return _one_by_one(problem, lam, np.repeat(x0[None], lam.shape[0], axis=0))
    size = float(np.linalg.norm(x0))
    x, done = _chord(problem, lam, lam0, x0)
    left = np.flatnonzero(~done)
    block = max(1, BLOCK_BYTES // (8 * problem.n_clients * problem.dim_x**2))
    for start in range(0, left.size, block):
        few = left[start : start + block]
        x[few] = _newton(problem, _take(lam, few), x[few], size)
    return x


def _chord(
    problem: Normalised, lam: Array, lam0: Array, x0: np.ndarray, max_iterations: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Points (R, d) after chord steps with the Hessian at (x0, lam0), and which of them are solutions (R,)."""
    x = np.repeat(x0[None].astype(np.float64), lam.shape[0], axis=0)  # (R, d)
    H0 = _hessian(problem, _spread(problem, x0[None], lam)[0, ...], lam0)  # (d, d)
    factor, eps, size = cho_factor(H0), _eps(lam), float(np.linalg.norm(x0))
    done = np.zeros(len(x), dtype=bool)
    active = np.arange(len(x))
    weights, G = lam, _gradient(problem, x, lam)
    for _ in range(max_iterations):
        p = -cho_solve(factor, G.T).T
        G_next = _gradient(problem, x[active] + p, weights)
        short = _short(p, x[active], size, max(1e-12, 50 * eps))
        good = short | (np.linalg.norm(G_next, axis=1) <= 0.5 * np.linalg.norm(G, axis=1))
        x[active[good]] += p[good]
        done[active[short]] = True
        stay = good & ~short
        if not np.any(stay):
            break
        active, G, weights = active[stay], G_next[stay], _take(weights, np.flatnonzero(stay))
    return x, done


def _one_by_one(problem: Normalised, lam: Array, x: np.ndarray) -> np.ndarray:
    """Solutions (R, d) from the points x (R, d), by the stricter rules of `exact.inner_solution`."""
    rows = [to_host(inner_solution(problem.given, lam[r, ...], x0=start))[0] for r, start in enumerate(x)]
    return np.array(rows, dtype=np.float64)


def _newton(problem: Normalised, lam: Array, x: np.ndarray, size: float = 0.0, max_iterations: int = 60) -> np.ndarray:
    G = _gradient(problem, x, lam)
    for _ in range(max_iterations):
        H = _hessian(problem, _spread(problem, x, lam), lam)  # (R, d, d)
        p = -np.linalg.solve(H, G[..., None])[..., 0]
        short = _short(p, x, size, np.sqrt(_eps(lam)))
        shrunk = _search(problem, x, G, p, lam, free=short)
        if shrunk is None:
            break
        x, G = shrunk
        if np.all(short):
            return x
    return _one_by_one(problem, lam, x)


def _search(
    problem: Normalised, x: np.ndarray, G: np.ndarray, p: np.ndarray, lam: Array, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """x + t p and its gradient, t halved in every run that is not `free` until the gradient has shrunk enough.

    None if in some run no t shrinks it: its gradient is all rounding, or not that of a convex cost.
    """
    size = np.linalg.norm(G, axis=1)
    t = np.ones(len(x))
    for _ in range(50):
        tried = x + t[:, None] * p
        G_tried = _gradient(problem, tried, lam)
        good = free | (np.linalg.norm(G_tried, axis=1) <= (1 - t / 4) * size)
        if np.all(good):
            return tried, G_tried
        t = np.where(good, t, t / 2)
    return None


def _short(p: np.ndarray, x: np.ndarray, size: float, relative: float) -> np.ndarray:
    """Steps that are `relative` to x or to the solution of size `size` that all runs are small changes of."""
    return np.linalg.norm(p, axis=1) <= relative * np.maximum(np.linalg.norm(x, axis=1), size)


def _hessian(problem: Normalised, x: Array, lam: Array) -> np.ndarray:
    """Mean Hessians over the clients.  # (..., d, d)"""
    if problem.hessian is None:
        raise TypeError("problem: hessian(x, lam) is missing, needed here")
    return _mean(problem.hessian(x, lam), axis=-3)


def _eps(lam: Array) -> float:
    return float(np.finfo(host_dtype(lam)).eps)


def _gradient(problem: Normalised, x: np.ndarray, lam: Array) -> np.ndarray:
    return _mean(problem.inner_grad(_spread(problem, x, lam), lam), axis=1)  # (R, d)


def _mean(array: Array, axis: int) -> np.ndarray:
    return np.asarray(np.mean(to_host(array), axis=axis, dtype=np.float64))


def _take(lam: Array, rows: np.ndarray) -> Array:
    return from_host(to_host(lam)[rows], like=lam)


def _spread(problem: Normalised, x: np.ndarray, lam: Array) -> Array:
    """x (R, d) on every client, (R, n, d), in the library and dtype of `lam`."""
    rows = np.repeat(x[:, None, :], problem.n_clients, axis=1)
    return from_host(rows.astype(host_dtype(lam)), like=lam)
