"""Erratum 15: the term that Theorem 2 drops."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import Lipschitz, inexact_total, theorem2
from verification.cases import Case, case_at
from verification.errata.entry import Erratum, Shown, figure
from verification.run import Run


def linear_outer_cost(shift: float, n: int = 3) -> tuple[Case, Case]:
    """g_i = (x − a_i)²/2, f_i = λ_i x: the case at the solution x = mean a_i, and at x̂ = x + shift."""
    one, zero = np.ones((n, 1, 1)), np.zeros((n, 1, 1))
    a = np.arange(float(n))[:, None]
    problem = hgp.problems.Quadratic(one, a, zero, np.zeros((n, 1)), outer_hessian=zero, coupling=one)
    lam = np.ones((n, 1))
    x = hgp.exact.inner_solution(problem, lam)
    return case_at("g = (x − a)²/2, f = λx", problem, x, lam), case_at("beside it", problem, x + shift, lam)


def inexact_errors(shift: float) -> tuple[float, float, float]:
    """(error of v, Theorem 2's right-hand side, that of 2*) for x̂ = x + shift, exact averaging, M = 20."""
    at, beside = linear_outer_cost(shift)
    est = beside.estimate(hgp.ExactAverage(at.n), eta=0.5, iterations=20)
    distance = float(np.linalg.norm(beside.x - at.x))
    matrices = np.full((20, at.n, at.n), 1 / at.n)
    c = at.constants(0.5, matrices)
    printed = theorem2(c, nu_f=1.0, nu_g=0.0, distance=distance).total
    w_norm = float(np.linalg.norm(beside.f_x.mean(axis=0)))
    corrected = inexact_total(Lipschitz(1.0, 0.0, 0.0, 0.0), distance, w_norm, c.beta_max, c.alpha_bar)
    return float(np.linalg.norm(est.value - at.truth)), float(printed), corrected


def missing_term(run: Run) -> Shown:
    """Erratum 15: with J = 0 and ν_g = 0 the printed bound is 0, the error is ‖x̂ − x‖."""
    error, printed, corrected = inexact_errors(0.1)
    return Shown(
        "g = (x − a)²/2, f = λx, n=3, x̂ = x + 0.1",
        error,
        printed,
        printed == 0 and error > 0.1 and error <= corrected * (1 + 1e-9),
        f"g = (x − a)²/2, f = λx, x̂ off by 0.1 at each of 3 clients: error {error:.4f}, Theorem 2 allows "
        f"{figure(printed)}, 2* allows {corrected:.4f}",
    )


ENTRIES = (
    Erratum(
        15,
        "Theorem 2",
        "The term (C) = ∂_λ f(x̂) − ∂_λ f(x), bounded in the proof by ν_f ‖x̂ − x‖, is missing from the statement.",
        "Add ν_f ‖x̂ − x‖; 2* is a complete bound.",
        missing_term,
    ),
)
