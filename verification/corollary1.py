"""Corollary 1, exact Jacobians: as printed with the realised ε, and repaired (ρ in place of 1 − ηα)."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import corollary1, corollary1_repaired
from verification.cases import matrices_of
from verification.curves import STEPS, standard_cases
from verification.errata.stability import single_client, step_condition_errors
from verification.rows import CORRECTED, PRINTED, Row, against
from verification.run import Result, Run

TITLE = "Corollary 1: exact Jacobians"
M = 400


def verify(run: Run) -> Result:
    """All S on all problems, and the counterexample to the step condition."""
    rows: list[Row] = []
    for case in standard_cases(run):
        for S in STEPS:
            avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=1000 * run.seed + 1), S)
            c = case.constants(1.0, matrices_of(avg, M))
            error = float(case.error(case.estimate(avg, run.backend, eta=1.0, iterations=M)))
            setting = f"{case.name}, S={S}, η=1, M={M}"
            rows.append(against("Corollary 1", setting, error, corollary1(c), form=PRINTED, rounding=c.rounding))
            bound = corollary1_repaired(c)
            rows.append(against("Corollary 1, repaired", setting, error, bound, form=CORRECTED, rounding=c.rounding))
    rows += counterexample()
    return Result(rows)


def counterexample() -> list[Row]:
    """H = diag(½, 3), η = 1: the printed form applies and fails, the repaired one does not apply."""
    case, calls = single_client([0.5, 3.0]), 40
    c = case.constants(1.0, np.ones((calls, 1, 1)))
    error = float(step_condition_errors(calls)[0][-1]) * c.f_norm
    setting = f"H = diag(0.5, 3), η=1, exact averaging, M={calls}"
    return [
        against("Corollary 1", setting, error, corollary1(c), form=PRINTED),
        against("Corollary 1, repaired", setting, error, corollary1_repaired(c)),
    ]
