"""Theorem 1 as printed: where its conditions hold, where they fail, and where they hold but the theorem is false."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import lemma2_worst_case, theorem1, worst_case
from hgp_ref.bounds.constants import SampleConstants
from verification.cases import matrices_of, quadratic
from verification.errata.stability import single_client, step_condition_errors
from verification.minibatch import batches
from verification.pictures import draw_divergence
from verification.rows import PRINTED, Row, against
from verification.run import Result, Run

TITLE = "Theorem 1: error of HGP with high probability"
NAME = "Theorem 1"
FAILURE = 0.1


def verify(run: Run) -> Result:
    """Mini-batches on logistic regression; worst-case constants; the counterexample to the step condition."""
    rows = minibatch_rows(run) + worst_case_rows(run) + counterexample()
    return Result(rows, [draw_divergence(*step_condition_errors(40))])


def minibatch_rows(run: Run) -> list[Row]:
    """The 90 % quantile of the error over runs against the bound at ϵ = 0.1 with realised ε."""
    rows = []
    for S in (1, 2, 10, 100):
        sampled = batches(run, run.pick(400, 60), S=S)
        quantile = float(np.quantile(sampled.errors, 1 - FAILURE))
        for text in ("main", "appendix"):
            bound = theorem1(sampled.constants, sampled.samples, FAILURE, text=text)
            rows.append(against(f"{NAME} ({text})", f"{sampled.setting}, 90 % quantile", quantile, bound, form=PRINTED))
    return rows


def worst_case_rows(run: Run) -> list[Row]:
    """A directed ring of three clients (B = 1) with the constants of Nedić and Olshevsky, exact Jacobians."""
    case, M = quadratic(3, 5, seed=run.seed), 60
    ring = hgp.networks.Schedule([([0, 1, 2], [1, 2, 0])])
    rows = []
    for S in (10, 100, 300):
        avg = hgp.PushSum(ring, S)
        c = case.constants(1.0, matrices_of(avg, M))
        exact = SampleConstants(0.0, 0.0, 0.0, 0.0, c.rho, c.sigma_min, c.beta_max)
        consensus = lemma2_worst_case(worst_case(3, 1), S, "printed")
        bound = theorem1(c, exact, FAILURE, consensus=consensus)
        error = float(case.error(case.estimate(avg, run.backend, eta=1.0, iterations=M)))
        rows.append(against(f"{NAME}, worst case", f"quadratic n=3 d=5, ring, S={S}", error, bound, form=PRINTED))
    return rows


def counterexample() -> list[Row]:
    """H = diag(½, 3), η = 1, exact averaging: every printed condition holds."""
    case = single_client([0.5, 3.0])
    errors, _ = step_condition_errors(40)
    c = case.constants(1.0, np.ones((40, 1, 1)))
    exact = SampleConstants(0.0, 0.0, 0.0, 0.0, c.rho, c.sigma_min, c.beta_max)
    return [
        against(
            NAME,
            f"H = diag(0.5, 3), η=1, exact averaging, M={M}",
            errors[M - 1] * c.f_norm,
            theorem1(c, exact, FAILURE, M),
            form=PRINTED,
        )
        for M in (10, 40)
    ]
