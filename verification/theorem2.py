"""Theorem 2 as printed: an inexact inner solution, and the term it lacks."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import theorem2
from verification.cases import case_at, logistic, matrices_of
from verification.errata.inexact import inexact_errors
from verification.inexact import logistic_lipschitz, perturbed
from verification.pictures import draw_missing_term
from verification.rows import PRINTED, Row, against, verdict_row
from verification.run import Result, Run

TITLE = "Theorem 2: inexact inner solution"
NAME = "Theorem 2"


def verify(run: Run) -> Result:
    """Logistic regression at perturbed solutions, and the counterexample where ∂_λ f depends on x."""
    rows = logistic_rows(run)
    shifts = np.linspace(0, 0.2, 5)
    sides = np.array([inexact_errors(float(s)) for s in shifts])
    for shift, (error, printed, _) in zip(shifts, sides, strict=True):
        setting = f"g = (x − a)²/2, f = λx, x̂ = x + {shift:.2f}"
        rows.append(verdict_row(NAME, setting, error, printed, form=PRINTED, rounding=1e-14))
    return Result(rows, [draw_missing_term(shifts, sides)])


def logistic_rows(run: Run) -> list[Row]:
    """∂_λ f = 0 here, so nothing is missing; the smallest rate is below H and the largest |x| above J = diag(x)."""
    case, M = logistic(3, 5, seed=run.seed, rate=0.1), 200
    nu = logistic_lipschitz(case)
    rows = []
    for S in (2, 10):
        avg = hgp.PushSum(hgp.networks.RandomDirected(3, seed=run.seed + 1), S)
        c = case.constants(1.0, matrices_of(avg, M))
        for size in (1e-3, 1e-1):
            at_hat = case_at("x̂", case.problem, perturbed(case, size, run.rng(2, S)), case.lam)
            error = float(case.error(at_hat.estimate(avg, run.backend, eta=1.0, iterations=M)))
            distance = float(np.linalg.norm(at_hat.x - case.x))
            lipschitz = {"nu_f": max(nu.nu_fx, nu.nu_flam), "nu_g": max(nu.nu_H, nu.nu_J), "distance": distance}
            largest = float(np.abs([case.x, at_hat.x]).max())
            bound = theorem2(c, **lipschitz, alpha=float(case.lam.min()), beta=largest)
            rows.append(against(NAME, f"{case.name}, S={S}, ‖x̂ − x‖={distance:.1e}", error, bound, form=PRINTED))
    return rows
