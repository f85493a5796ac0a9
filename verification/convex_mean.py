"""Bound B: no client needs to be convex; only the mean Hessian must be positive definite."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from verification.cases import host64, matrices_of
from verification.curves import STEPS, Curve, curve, evaluate, marks, smallest_ratio, standard_cases
from verification.errata.floor import floor_against_eta
from verification.errata.stability import non_convex_clients, non_convex_errors
from verification.pictures import draw_floor, draw_nonconvex
from verification.rows import Row
from verification.run import Result, Run

TITLE = "Bound B (corrected Theorem 1, only the mean is convex)"


def verify(run: Run) -> Result:
    """All S on all problems, and clients that are not convex."""
    rows: list[Row] = []
    for case in standard_cases(run):
        for S in STEPS:
            rows += smallest_ratio(curve(case, S, run, M=run.pick(400, 200), count=run.pick(24, 10)), "B")
    M = run.pick(200, 100)
    curves = {S: non_convex_curve(run, S, M) for S in (5, 10, 20, 40)}
    for one in curves.values():
        rows += smallest_ratio(one, "B")
    errors = {S: non_convex_errors(run, S, M) for S in curves}
    shown = draw_nonconvex(errors, {S: (one.m, above_rounding(one)) for S, one in curves.items()})
    return Result(rows, [shown, draw_floor(floor_against_eta(run))])


def above_rounding(one: Curve) -> np.ndarray:
    """Bound B where the error is above rounding, which no bound counts; else NaN."""
    return np.where(np.isnan(one.ratio("B")), np.nan, one.bounds["B"])


def non_convex_curve(run: Run, S: int, M: int) -> Curve:
    """Bounds on `non_convex_clients`."""
    case = non_convex_clients(run.seed)
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, seed=run.seed + 1), S)
    est = case.estimate(avg, run.backend, eta=1.0, iterations=M, history=True)
    clients = np.linalg.norm(host64(est.history) - case.truth, axis=-1)
    return evaluate(case, S, 1.0, matrices_of(avg, M), case.errors(est), clients, marks(M, 30))
