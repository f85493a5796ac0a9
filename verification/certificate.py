"""C: certificates of finished runs. The identity behind them, C1–C4 on all problems, and `hgp.certify`."""

from __future__ import annotations

from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import residual_bounds
from verification.cases import Case, case_at, host64
from verification.curves import STEPS, standard_cases
from verification.inexact import perturbed
from verification.rows import Row, verdict_row, without_number
from verification.run import Result, Run, Table

TITLE = "Certificate C: bounds from a finished run"
NAMES = ("c1", "c2", "c3", "c4")


def verify(run: Run) -> Result:
    """All S on all problems, after few iterations and after many; then `hgp.certify` itself."""
    rows: list[Row] = []
    for case in standard_cases(run):
        for S in STEPS:
            for M in run.pick((1, 20, 300), (20,)):
                rows += certificates(case, S, M, run)
            rows += certified(case, S, run)
    more, facts, table = steps_of_the_certificate(run)
    return Result([*rows, *more], facts=facts, tables=[table])


def steps_of_the_certificate(run: Run) -> tuple[list[Row], dict[str, float], Table]:
    """Bound of the clients over the error for k times the run's S, and the rounds that it costs."""
    rows, facts, lines = [], {}, []
    M = 300
    for case in standard_cases(run):
        for S in (5, 10):
            net = hgp.networks.RandomDirected(case.n, seed=1000 * run.seed + 1)
            est = case.estimate(hgp.PushSum(net, S), eta=1.0, iterations=M)
            errors = np.linalg.norm(est.value - case.truth, axis=1)
            line = [f"{case.name}, S={S}"]
            for k in (1, 2, 4):
                certificate = hgp.certify(case.problem, case.x, case.lam, est, hgp.PushSum(net, k * S))
                ratio = float(np.median(certificate.decentralised / errors))
                rounds = certificate.traffic.rounds / (M * S)
                facts[f"{line[0]}, M={M}: clients' bound/error with {k} S steps"] = ratio
                line.append(f"{ratio:.3g} ({100 * rounds:.1f} %)")
                worst = float(np.max(errors / certificate.decentralised))
                rows.append(verdict_row("certify, decentralised", f"{line[0]}, {k} S steps: error/bound", worst, 1.0))
            lines.append(line)
    head = ("run", *(f"bound/error with {k} S steps (rounds, of the run's)" for k in (1, 2, 4)))
    return rows, facts, Table(f"Steps of the clients' certificate, M = {M}, median over clients", head, lines)


def certified(case: Case, S: int, run: Run) -> list[Row]:
    """hgp.certify at the solution, near it and after mini-batches: for an observer, and by the clients themselves."""
    net = hgp.networks.RandomDirected(case.n, seed=1000 * run.seed + 1)
    avg = hgp.PushSum(net, S)
    rows: list[Row] = []
    near = case_at("x̂", case.problem, perturbed(case, 1e-2, run.rng(5, S)), case.lam)
    runs: dict[str, tuple[Any, dict[str, Any]]] = {"at x(λ)": (case, {}), "at x̂": (near, {})}
    if getattr(case.problem, "counts", None) is not None:
        runs["b=20"] = (case, {"batches": hgp.MiniBatches(20, seed=run.seed)})
    for label, (at, options) in runs.items():
        est = at.estimate(avg, eta=1.0, iterations=100, **options)
        certificate = hgp.certify(at.problem, at.x, at.lam, est, hgp.PushSum(net, max(S, 5)))
        errors = np.linalg.norm(est.value - case.truth, axis=1)
        pairs = (("certify", certificate.bound), ("certify, decentralised", certificate.decentralised_bound))
        for name, bounds in pairs:
            setting = f"{case.name}, S={S}, M=100, {label}"
            if bounds is None:
                rows.append(
                    without_number(name, setting, float(errors.max()), "x is too far off for the clients to tell")
                )
                continue
            k = int(np.argmin(bounds / np.maximum(errors, 1e-300)))
            rows.append(verdict_row(name, f"{setting}, client {k}", errors[k], bounds[k]))
    return rows


def certificates(case: Case, S: int, M: int, run: Run) -> list[Row]:
    """v_i − d_i = J_i H̄⁻¹ r̃_i up to rounding, and each bound at the client where it is tightest."""
    avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=1000 * run.seed + 1), S)
    est = case.estimate(avg, run.backend, eta=1.0, iterations=M)
    bounded = residual_bounds(case.H, case.J, case.f_x, host64(est.w))
    errors = np.linalg.norm(host64(est.value) - case.truth, axis=1)
    rounding = case.constants(1.0, np.full((1, case.n, case.n), 1 / case.n)).rounding
    setting = f"{case.name}, S={S}, M={M}"
    gap = float(np.abs(bounded.identity - errors).max())
    rows = [verdict_row("C, identity", f"{setting}: |‖J H̄⁻¹ r̃‖ − error|", gap, 2 * rounding)]
    for name in NAMES:
        bounds = getattr(bounded, name)
        k = int(np.argmin(bounds / np.maximum(errors, 1e-300)))
        rows.append(verdict_row(name.upper(), f"{setting}, client {k}", errors[k], bounds[k], rounding=rounding))
    return rows
