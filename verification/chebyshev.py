"""Chebyshev iteration in place of the Neumann series: its bound with exact averaging, certificate C with Push-Sum.

    r̂ = K_m r,  p = a_k r̂ + b_k p,  w += p,  r = r̂ − H_i p,

the coefficients those of the Chebyshev semi-iteration on an interval that holds the spectrum of H̄.
"""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import chebyshev, residual_bounds
from verification import explicit
from verification.cases import Case, matrices_of, quadratic
from verification.rows import Row, judged
from verification.run import Result, Run

TITLE = "Chebyshev iteration"


def verify(run: Run) -> Result:
    """Exact averaging at several conditionings and lengths; Push-Sum with certificate; iterations needed."""
    rows: list[Row] = []
    for condition in (10.0, 100.0, 1000.0, 1e4):
        case = quadratic(5, 10, seed=run.seed, condition=condition)
        rows += exact_rows(case, condition)
    for condition in run.pick((100.0, 1000.0), (100.0,)):
        rows += push_sum_rows(quadratic(10, 10, seed=run.seed, condition=condition, heterogeneity=0.05), condition, run)
    return Result(rows)


def iterate(case: Case, matrices: np.ndarray, low: float, high: float) -> np.ndarray:
    """w after each of the M steps, (M, n, d_x), for 0 < low < high."""
    centre, half = (high + low) / 2, (high - low) / 2
    r, w, p, kept = case.f_x, np.zeros_like(case.f_x), np.zeros_like(case.f_x), []
    rho = 0.0
    for k, K in enumerate(matrices):
        mean = K @ r  # r̂
        before, rho = rho, half / centre if k == 0 else 1 / (2 * centre / half - rho)
        p = mean / centre if k == 0 else 2 * rho / half * mean + rho * before * p
        w = w + p
        r = mean - np.einsum("nij,nj->ni", case.H, p)
        kept.append(w)
    return np.stack(kept)


def errors(case: Case, w: np.ndarray) -> np.ndarray:
    """‖v − d‖ with v = ∂_λ f − J w, (M,)."""
    v = case.f_lam - np.einsum("nij,mnj->mni", case.J, w)
    return np.linalg.norm(v - case.truth, axis=(1, 2))


def exact_rows(case: Case, condition: float) -> list[Row]:
    """The bound where it is closest, with the interval of H̄ and with that of the clients' extremes."""
    eigenvalues, mean = np.linalg.eigvalsh(case.H), np.linalg.eigvalsh(case.H.mean(axis=0))
    spectrum = (float(mean[0]), float(mean[-1]))
    c = case.constants(1.0, np.full((1, case.n, case.n), 1 / case.n))
    w_norm = float(np.linalg.norm(np.linalg.solve(case.H.mean(axis=0), case.f_x.mean(axis=0))))
    rows = []
    for words, low, high in (("of H̄", *spectrum), ("of the clients", eigenvalues.min(), eigenvalues.max())):
        found = errors(case, iterate(case, np.full((120, case.n, case.n), 1 / case.n), float(low), float(high)))
        bounds = np.array([chebyshev(c.beta, w_norm, low, high, M, spectrum).total for M in range(1, 121)])
        ratio = np.where(found > 10 * c.rounding, bounds / found, np.inf)
        k = int(ratio.argmin())
        setting = f"{case.name}, condition {condition:g}, interval {words}, M={k + 1}"
        rows.append(judged("Chebyshev", setting, found[k], bounds[k], rounding=c.rounding))
    return rows


def push_sum_rows(case: Case, condition: float, run: Run) -> list[Row]:
    """C2 of a Chebyshev run over Push-Sum, and how many iterations reach a relative error of 1 %."""
    S, M = 10, 6000
    matrices = matrices_of(hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=run.seed + 1), S), M)
    eigenvalues = np.linalg.eigvalsh(case.H)
    w = iterate(case, matrices, float(eigenvalues.min()), float(eigenvalues.max()))
    found = errors(case, w)
    rows = []
    for m in (5, 20, 60):
        bound = float(np.linalg.norm(residual_bounds(case.H, case.J, case.f_x, w[m - 1]).c2))
        rows.append(
            judged("C2 of Chebyshev", f"{case.name}, condition {condition:g}, S={S}, M={m}", found[m - 1], bound)
        )
    mean = np.linalg.eigvalsh(case.H.mean(axis=0))
    others = {"η = 1/L": 1 / case.L, "the best η": 2 / (eigenvalues.max() + mean[0])}
    goal = 0.01 * float(np.linalg.norm(case.truth - case.f_lam))
    needed = first_below(found, goal)
    for words, eta in others.items():
        setting = f"{case.name}, condition {condition:g}, S={S}: iterations to 1 %, against HGP with {words}"
        rows.append(
            judged("Chebyshev, speed", setting, needed, first_below(explicit.errors(case, matrices, eta), goal))
        )
    return rows


def first_below(values: np.ndarray, goal: float) -> int:
    """The first iteration whose error is below `goal`; the number of iterations if there is none."""
    return int(np.argmax(values < goal)) + 1 if (values < goal).any() else len(values)
