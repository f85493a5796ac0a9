"""Errata about Theorem 2's statement: 15, the term it lacks, and 11, the α it needs."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import Lipschitz, inexact_total, realised_constants, theorem2
from verification.cases import Case, case_at, logistic
from verification.errata.entry import FALSE, SHARPER, Erratum, Shown, figure
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


def which_alpha(run: Run) -> Shown:
    """Erratum 11: the minimum over λ against the value at the current λ, for Theorem 1 and for Theorem 2.

    For the latter g(x, λ) = h(x) − λx with h″ = 1 − 0.9 min(|x|, 1), f = x, λ = 0: x = 0, H = 1, d = 1; at x̂ = 1 H =
    0.1.
    """
    curved = logistic(3, 5, seed=run.seed, rate=0.1)
    smallest = float(np.linalg.eigvalsh(curved.H).min())
    H = curved.H[0] - np.diag(curved.lam[0])  # at λ = 0
    singular = np.linalg.eigvalsh(H)[0]  # with the rates −λ_min(H) the Hessian of client 0 is singular
    elsewhere = float(np.abs(np.linalg.eigvalsh(H - singular * np.eye(len(H)))).min())
    eta, M, alpha_hat = 0.5, 400, 0.1
    v = eta * sum((1 - eta * alpha_hat) ** m for m in range(M))  # −η Σ J (1 − ηh″(x̂))^m ∂f with J = −1
    error = abs(v - 1)
    c = realised_constants(np.ones((1, 1, 1)), -np.ones((1, 1, 1)), np.ones((1, 1)), eta, np.ones((M, 1, 1)))
    here, printed = (theorem2(c, 0.0, 0.9, 1.0, alpha=alpha, beta=1.0).total for alpha in (1.0, alpha_hat))
    return Shown(
        "h″ = 1 − 0.9 min(|x|, 1), f = x, λ = 0, x̂ = 1",
        error,
        here,
        bool(smallest > 0.01 and elsewhere < 1e-12 and here < error < printed),
        f"Theorem 1, logistic: σ_min = {figure(smallest)} at the current λ, {figure(elsewhere)} at a λ with negative "
        f"rates; Theorem 2, x̂ = 1: error {error:.2f}, allowed {here:.2f} with α at the current λ and {printed:.1f} "
        "with the printed α = 0.1",
    )


ENTRIES = (
    Erratum(
        11,
        SHARPER,
        "Theorems 1 and 2, definition of α",
        "α is the smallest singular value over all λ and samples. Over all of R^d this can be 0 for a cost that "
        "is well conditioned at the λ in use.",
        "In Theorem 1 the smallest eigenvalue over samples at the λ in use suffices (under Assumption 2 singular "
        "values are eigenvalues). In Theorem 2 it does not: its products are evaluated at x̂, and α must cover x̂ "
        "too.",
        which_alpha,
    ),
    Erratum(
        15,
        FALSE,
        "Theorem 2",
        "The proof bounds the term (C) = ∂_λ f(x̂) − ∂_λ f(x) by ν_f ‖x̂ − x‖, but the statement does not contain it.",
        "Add ν_f ‖x̂ − x‖ (divided by ‖∂_x f‖, as the other terms are). Bound 2* is complete.",
        missing_term,
    ),
)
