"""2*: the corrected bound for an inexact inner solution x̂, with ‖x̂ − x‖ known and estimated from the gradient."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import (
    Lipschitz,
    best,
    contracting_clients,
    convex_mean,
    distance_to_solution,
    inexact,
    inexact_total,
)
from verification.cases import Case, case_at, case_of, host64, logistic, matrices_of, same_row
from verification.errata.inexact import inexact_errors
from verification.rows import Row, verdict_row
from verification.run import Result, Run

TITLE = "Theorem 2 corrected (2*): inexact inner solution"
NAME = "2*"


def verify(run: Run) -> Result:
    """Logistic and coupled quadratic problems at perturbed solutions; the counterexample to Theorem 2."""
    rows: list[Row] = []
    lipschitz = logistic(3, 5, seed=run.seed, rate=0.1)
    coupled = coupled_quadratic(run.seed)
    for case, nu in ((lipschitz, logistic_lipschitz(lipschitz)), (coupled, quadratic_lipschitz(coupled))):
        for S in run.pick((2, 10), (10,)):
            for size in (1e-6, 1e-3, 1e-1, 1.0):
                rows += at_perturbed(case, nu, S, size, run)
    for shift in (0.1, 10.0):
        error, _, bound = inexact_errors(shift)
        rows.append(verdict_row(NAME, f"g = (x − a)²/2, f = λx, x̂ = x + {shift:g}", error, bound, rounding=1e-12))
    return Result(rows)


def at_perturbed(case: Case, nu: Lipschitz, S: int, size: float, run: Run) -> list[Row]:
    """Known distance, all clients together and one by one; and the distance from the gradient at the mean of x̂."""
    M, eta = 200, 1.0
    at_hat = case_at("x̂", case.problem, perturbed(case, size, run.rng(3, S)), case.lam)
    avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=run.seed + 1), S)
    value = host64(at_hat.estimate(avg, run.backend, eta=eta, iterations=M).value)
    c = at_hat.constants(eta, matrices_of(avg, M))
    base = best(contracting_clients(c), convex_mean(c))
    w_norm = float(np.linalg.norm(np.linalg.solve(at_hat.H.mean(axis=0), at_hat.f_x.mean(axis=0))))
    at_solution = case.constants(eta, np.full((1, case.n, case.n), 1 / case.n))  # β_i and ᾱ at the solution
    apart = np.linalg.norm(at_hat.x - case.x, axis=1)
    distance = float(np.linalg.norm(apart))
    error = np.linalg.norm(value - case.truth, axis=1)
    total = base.total + inexact_total(nu, distance, w_norm, at_solution.beta_max, at_solution.alpha_bar)
    clients = base.per_client + inexact(nu, apart, w_norm, at_solution.beta, at_solution.alpha_bar)
    setting = f"{case.name}, S={S}, ‖x̂ − x‖={distance:.1e}"
    worst = int(np.argmin(clients / np.maximum(error, 1e-300)))
    rows = [
        verdict_row(NAME, setting, float(np.linalg.norm(error)), total, rounding=c.rounding),
        verdict_row(
            f"{NAME} per client", f"{setting}, client {worst}", error[worst], clients[worst], rounding=c.rounding
        ),
    ]
    mean = at_hat.x.mean(axis=0)
    gradient = case.problem.inner_grad(same_row(mean, case.n), case.lam).mean(axis=0)
    reach, _ = distance_to_solution(nu, float(np.linalg.norm(gradient)), at_solution.alpha_bar)
    estimated = np.linalg.norm(at_hat.x - mean, axis=1) + reach
    setting = f"{case.name}, size {size:g}: ‖x̂_i − x‖ from the gradient"
    k = int(np.argmin(estimated / apart))
    rows.append(verdict_row(f"{NAME} distance", setting, apart[k], estimated[k], rounding=1e-13))
    return rows


def perturbed(case: Case, size: float, rng: np.random.Generator) -> np.ndarray:
    """x̂ at distance `size` from the solution, clients apart from each other."""
    shift = rng.normal(size=case.x.shape)
    return case.x + size * shift / np.linalg.norm(shift)


def logistic_lipschitz(case: Case) -> Lipschitz:
    """Constants of logistic regression, a rate per coordinate: |σ''| ≤ 1/(6√3), σ' ≤ 1/4, J = diag(x), ∂_λ f = 0."""
    X, X_val = case.data.X, case.data.X_val  # (n, N, d)
    nu_H = float((np.linalg.norm(X, axis=2) ** 3).mean(axis=1).max()) / (6 * np.sqrt(3))
    second = np.einsum("nka,nkb->nab", X_val, X_val) / X_val.shape[1]
    nu_fx = float(np.linalg.norm(second, 2, axis=(1, 2)).max()) / 4
    return Lipschitz(0.0, nu_fx, 1.0, nu_H, strong_convexity=float(case.lam.mean(axis=0).min()))


def coupled_quadratic(seed: int) -> Case:
    """A quadratic whose ∂_λ f depends on x."""
    rng = np.random.default_rng([seed, 15])
    n, d = 3, 4
    A = hgp.problems.Quadratic.random(n, d, d, seed=seed).hessian(np.zeros((n, d)), np.zeros((n, d)))
    Q = rng.normal(size=(n, d, d))
    b, C, target, D = (rng.normal(size=size) for size in ((n, d), (n, d, d), (n, d), (n, d, d)))
    problem = hgp.problems.Quadratic(A, b, C, target, outer_hessian=Q @ np.swapaxes(Q, 1, 2) / d, coupling=D)
    return case_of("coupled quadratic n=3 d=4", problem, rng.normal(size=(n, d)))


def quadratic_lipschitz(case: Case) -> Lipschitz:
    """Constants of a quadratic, by differences that are exact because everything is affine in x."""
    d = case.x.shape[1]
    columns = []
    for k in range(d):
        shifted = case.x.copy()
        shifted[:, k] += 1.0
        f_x, f_lam = case.problem.outer_grad(shifted, case.lam)
        columns.append((f_x - case.f_x, f_lam - case.f_lam))
    Q, D = (np.stack([column[i] for column in columns], axis=-1) for i in (0, 1))  # (n, d, d), (n, d_lam, d)
    alpha = float(np.linalg.eigvalsh(case.H.mean(axis=0))[0])
    norms = [float(np.linalg.norm(a, 2, axis=(1, 2)).max()) for a in (D, Q)]
    return Lipschitz(norms[0], norms[1], 0.0, 0.0, strong_convexity=alpha)
