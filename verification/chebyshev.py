"""`hgp.methods.Chebyshev` in place of the Neumann series: its bounds with exact averages, with Push-Sum (F), and C."""

from __future__ import annotations

import warnings

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import chebyshev, chebyshev_push_sum, residual_bounds
from verification import explicit
from verification.cases import Case, matrices_of, quadratic
from verification.curves import standard_cases
from verification.rows import Row, verdict_row
from verification.run import Result, Run

TITLE = "Chebyshev iteration"
SHORT = 400  # iterations in which it reaches 1 %


def verify(run: Run) -> Result:
    """Exact averaging at several conditionings and lengths; Push-Sum with certificate; iterations needed."""
    rows: list[Row] = []
    for condition in (10.0, 100.0, 1000.0, 1e4):
        case = quadratic(5, 10, seed=run.seed, condition=condition)
        rows += exact_rows(case, condition)
    facts: dict[str, float] = {}
    for case in (standard_cases(run), standard_cases(run)[:1])[run.quick]:
        rows += push_sum_bound(case, run, facts)
    for condition in run.pick((100.0, 1000.0), (100.0,)):
        rows += push_sum_rows(quadratic(10, 10, seed=run.seed, condition=condition, heterogeneity=0.05), condition, run)
    return Result(rows, facts=facts)


def push_sum_bound(case: Case, run: Run, facts: dict[str, float]) -> list[Row]:
    """F for several S and M, with the interval of H̄ and with that of the clients; the M at which it is tightest."""
    eigenvalues, mean = np.linalg.eigvalsh(case.H), np.linalg.eigvalsh(case.H.mean(axis=0))
    intervals = {"H̄": (mean[0], mean[-1]), "the clients": (eigenvalues.min(), eigenvalues.max())}
    rows = []
    for S in (3, 5, 10, 20, hgp.falling_steps(12, 40)):
        avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=run.seed + 5), S)
        c = case.constants(1.0, matrices_of(avg, 40), 20)
        for label, (low, high) in intervals.items():
            method = hgp.methods.Chebyshev(float(low), float(high))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # few steps of a sparse network
                errors = case.errors(case.estimate(avg, method=method, iterations=40, history=True))
            bounds = np.array([chebyshev_push_sum(c, low, high, M).total or np.inf for M in range(1, 41)])
            ratio = np.where(errors > 10 * c.rounding, bounds / errors, np.inf)
            k = int(ratio.argmin())
            shown = S if isinstance(S, int) else "12, falling"
            setting = f"{case.name}, S={shown}, interval of {label}, M={k + 1}"
            rows.append(verdict_row("F", setting, errors[k], bounds[k]))  # its rounding is one of its terms
            if label == "H̄":
                facts[f"F/error: {case.name}, S={shown}, median over M"] = float(np.median(ratio[np.isfinite(ratio)]))
    return rows


def exact_rows(case: Case, condition: float) -> list[Row]:
    """The bound where it is tightest, with the interval of H̄ and with that of the clients' extremes."""
    eigenvalues, mean = np.linalg.eigvalsh(case.H), np.linalg.eigvalsh(case.H.mean(axis=0))
    spectrum = (float(mean[0]), float(mean[-1]))
    c = case.constants(1.0, np.full((1, case.n, case.n), 1 / case.n))
    w_norm = float(np.linalg.norm(np.linalg.solve(case.H.mean(axis=0), case.f_x.mean(axis=0))))
    rows = []
    for label, low, high in (("of H̄", *spectrum), ("of the clients", eigenvalues.min(), eigenvalues.max())):
        method = hgp.methods.Chebyshev(float(low), float(high))
        errors = case.errors(case.estimate(hgp.ExactAverage(case.n), method=method, iterations=120, history=True))
        bounds = np.array([chebyshev(c.beta, w_norm, low, high, M, spectrum).total for M in range(1, 121)])
        ratio = np.where(errors > 10 * c.rounding, bounds / errors, np.inf)
        k = int(ratio.argmin())
        setting = f"{case.name}, condition {condition:g}, interval {label}, M={k + 1}"
        rows.append(verdict_row("Chebyshev", setting, errors[k], bounds[k], rounding=c.rounding))
    return rows


def push_sum_rows(case: Case, condition: float, run: Run) -> list[Row]:
    """C2 of a Chebyshev run over Push-Sum, and how many iterations reach a relative error of 1 %."""
    S, M = 10, 6000
    avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=run.seed + 1), S)
    matrices = matrices_of(avg, M)
    eigenvalues = np.linalg.eigvalsh(case.H)
    method = hgp.methods.Chebyshev(float(eigenvalues.min()), float(eigenvalues.max()))
    errors = case.errors(case.estimate(avg, method=method, iterations=SHORT, history=True))
    rows = []
    for m in (5, 20, 60):
        w = case.estimate(avg, method=method, iterations=m).w
        bound = float(np.linalg.norm(residual_bounds(case.H, case.J, case.f_x, w).c2))
        rows.append(
            verdict_row("C2 of Chebyshev", f"{case.name}, condition {condition:g}, S={S}, M={m}", errors[m - 1], bound)
        )
    mean = np.linalg.eigvalsh(case.H.mean(axis=0))
    step_sizes = {"η = 1/L": 1 / case.L, "the best η": 2 / (eigenvalues.max() + mean[0])}
    goal = 0.01 * float(np.linalg.norm(case.truth - case.f_lam))
    needed = first_below(errors, goal)
    for label, eta in step_sizes.items():
        setting = f"{case.name}, condition {condition:g}, S={S}: iterations to 1 %, against HGP with {label}"
        rows.append(
            verdict_row("Chebyshev, speed", setting, needed, first_below(explicit.errors(case, matrices, eta), goal))
        )
    return rows


def first_below(values: np.ndarray, goal: float) -> int:
    """The first iteration whose error is below `goal`; the number of iterations if there is none."""
    return int(np.argmax(values < goal)) + 1 if (values < goal).any() else len(values)
