"""Errata in the main text before the theorem: 28, 29 and 30."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

import hgp_ref as hgp
from verification.cases import logistic, same_row
from verification.errata.entry import SLIP, Erratum, Shown, figure
from verification.errata.inexact import linear_outer_cost
from verification.run import Run


def series_needs_a_step(run: Run) -> Shown:
    """Erratum 28: one client, H = 3, J = ∂_x f = 1: the series for d_λ f diverges for η = 1, converges for η = 0.3."""
    H, M = 3.0, 10

    def gap(eta: float, terms: int) -> float:
        return abs(eta * sum((1 - eta * H) ** m for m in range(terms)) - 1 / H)

    large, small = gap(1.0, M), gap(0.3, M)
    return Shown(
        "H = 3, η=1, 10 terms",
        large,
        small,
        gap(1.0, 40) > large > 1 and small < 1e-9,
        f"H = 3, so that Assumption 2 holds: with η = 1 the partial sums are off by {figure(large)} after {M} terms "
        f"and by {figure(gap(1.0, 40))} after 40; with η = 0.3, where ∂_x φ = 0.1 is as Section 2.3 asks, by "
        f"{figure(small)} after {M}",
    )


def every_gradient_vanishes(run: Run) -> Shown:
    """Erratum 29: under consensus the gradient in the shared x vanishes at the solution, the stacked one nowhere."""
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
        f"at the solution the gradient in the shared x, Σ ∂g_k, has norm {figure(total)}; over all x under consensus "
        f"the smallest norm of the stacked gradient is {figure(smallest)}, as the clients have no common minimiser",
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
        f"with λ_i in every f_k the derivative of f_k = λ_k x is {figure(printed)} instead of {figure(right)}; for "
        f"d_x = 3, d_λ = 2 the subscript xλ makes ⟨∂²_x g⟩_ii {cross[0]} × {cross[1]} instead of {hessian[0]} × "
        f"{hessian[1]}, and without ∂_x f the formula of Section 2.3 adds a {cross[0]} × {cross[1]} matrix to a "
        f"vector; at ηα = 0.1 (S1) bounds 1 + ε̂ by {single:.4f}, the step uses (S2), "
        f"(1 − ηα)(1 + ε̂) ≤ {product:.2f}",
    )


ENTRIES = (
    Erratum(
        28,
        SLIP,
        "Section 3.3, series for d_λ f",
        "Since Assumption 2 makes I − ∂_x φ′ invertible, d_λ f is written as a Neumann series.",
        "Invertibility gives the hyper-gradient; for the series the eigenvalues of I − ηH̄ must lie in (−1, 1), "
        "that is ηL̄ < 2. Section 2.3 asks for this and slightly more (∂_x φ positive semidefinite with "
        "eigenvalues below one, here ηL̄ ≤ 1); the condition is not carried over to Section 3.3 and Theorem 1 "
        "(erratum 4).",
        series_needs_a_step,
    ),
    Erratum(
        29,
        SLIP,
        "Section 3.1, eq. (map_ori)",
        "The optimality condition of (fl) is written x = x − η ∂_x g under consensus, with g and x stacked.",
        "The equation is right with x read as the one vector that all clients share, the reading of erratum 20: "
        "then ∂_x g = Σ_k ∂g_k, which vanishes at the solution. With the stacked x defined above the equation, "
        "every client's own gradient would have to vanish. Lemma 1 gives the condition for the stacked x.",
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
