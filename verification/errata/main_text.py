"""Errata in the main text before the theorem: 28, 29 and 30."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

import hgp_ref as hgp
from verification.cases import logistic, same_row
from verification.errata.entry import FALSE, SLIP, Erratum, Shown, figure
from verification.errata.inexact import linear_outer_cost
from verification.run import Run


def series_needs_a_step(run: Run) -> Shown:
    """Erratum 28: one client, H = 3, η = 1, J = ∂_x f = 1: strongly convex, and the series for d_λ f diverges."""
    H, eta = 3.0, 1.0
    gaps = {M: abs(eta * sum((1 - eta * H) ** m for m in range(M)) - 1 / H) for M in (10, 40)}
    return Shown(
        "H = 3, η=1, M=40",
        gaps[40],
        0.0,
        gaps[40] > gaps[10] > 1,
        f"H = 3, η = 1 (Assumption 2 holds): the partial sums are off by {figure(gaps[10])} after 10 terms and "
        f"{figure(gaps[40])} after 40",
    )


def every_gradient_vanishes(run: Run) -> Shown:
    """Erratum 29: how small the stacked gradient can be under consensus, where (map_ori) asks for zero."""
    case = logistic(3, 4, seed=run.seed, rate=0.1)

    def stacked(x: np.ndarray) -> np.ndarray:
        return case.problem.inner_grad(same_row(x, case.n), case.lam).ravel()

    smallest = float(np.linalg.norm(least_squares(stacked, case.x[0], xtol=1e-14, ftol=1e-14, gtol=1e-14).fun))
    at_solution = case.problem.inner_grad(case.x, case.lam)
    total = float(np.linalg.norm(at_solution.sum(axis=0)))
    return Shown(
        "logistic n=3 d=4",
        smallest,
        total,
        smallest > 0.01 and total < 1e-12,
        f"under consensus a search brings the stacked gradient down to {figure(smallest)} and no further: clients have "
        f"no common minimiser, so x = x − η∂_x g has no solution; where the sum is least, it is {figure(total)}",
    )


def slips(run: Run) -> Shown:
    """Erratum 30: the hyper-gradient of f_k(·, λ_i) against that of f_k(·, λ_k); shapes; which inequality is used."""
    at, _ = linear_outer_cost(0.0)  # f_i = λ_i x, x = 1, J = 0
    right, printed = float(at.truth[0, 0]), float(at.x[:, 0].sum())  # d/dλ_i of Σ_k λ_k x and of Σ_k λ_i x
    problem = hgp.problems.Quadratic.random(2, 3, 2, seed=run.seed)
    x, lam = np.zeros((2, 3)), np.zeros((2, 2))
    hessian, cross = (a(problem, x, lam)[0].shape for a in (hgp.exact.hessians, hgp.exact.jacobians))
    contraction = 0.1
    limit = 0.5 * contraction / (1 - contraction)
    single, product = 1 + limit, (1 - contraction) * (1 + limit)
    return Shown(
        "f_k = λ_k x, n=3, x = 1",
        printed,
        right,
        printed != right and hessian != cross and abs(product - (1 - contraction / 2)) < 1e-15,
        f"with λ_i in every f_k the derivative of f_k = λ_k x is {figure(printed)} for {figure(right)}; for d_x = 3, "
        "d_λ = 2 "
        f"the subscript xλ makes ⟨∂²_x g⟩_ii {cross[0]} × {cross[1]} for {hessian[0]} × {hessian[1]}, and without "
        "∂_x f "
        f"Section 2.3 adds a {cross[0]} × {cross[1]} matrix to a vector; at ηα = 0.1 (S1) bounds 1 + ε̂ by "
        f"{single:.4f}, what "
        f"is used is (S2), (1 − ηα)(1 + ε̂) ≤ {product:.2f}",
    )


ENTRIES = (
    Erratum(
        28,
        FALSE,
        "Section 3.3, series for d_λ f",
        "Assumption 2 is said to make d_λ f equal to a Neumann series.",
        "It makes I − ∂_x φ′ invertible; the series converges only if ηL̄ < 2, which is nowhere asked for.",
        series_needs_a_step,
    ),
    Erratum(
        29,
        FALSE,
        "Section 3.1, eq. (map_ori)",
        "The solution of (fl) is said to satisfy x = x − η ∂_x g under consensus, with g and x stacked.",
        "That makes every client's gradient vanish; at the solution only their sum does. Lemma 1's map is the right "
        "one.",
        every_gradient_vanishes,
    ),
    Erratum(
        30,
        SLIP,
        "Sections 2.3, 3.3, 4, end of the proof of Theorem 1, Corollary 2",
        "v^(M) without ∂_x f; ⟨∂²_x g⟩_ii with subscript xλ; Σ_k f_k(·, λ_i); “by (S1)”; Corollary 2 without a "
        "probability.",
        "(Σ_m (∂_x φ)^m) ∂_x f; subscript x; Σ_k f_k(·, λ_k); by (S2); “with probability at least 1 − ϵ”.",
        slips,
    ),
)
