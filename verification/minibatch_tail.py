"""Bound D: mini-batches, with probability at least 1 − ϵ, in both forms; coverage over many runs."""

from __future__ import annotations

import numpy as np

from hgp_ref.bounds import minibatch_tail, realised_constants, sample_constants
from verification.minibatch import Batches, batches, simulate
from verification.pictures import draw_coverage
from verification.rows import CORRECTED, Row, verdict_row, without_number
from verification.run import Result, Run

TITLE = "Bound D (corrected, mini-batches with high probability)"
FAILURES = (0.1, 0.01)
FORMS = ("azuma", "bernstein")


def settings(run: Run) -> list[dict[str, object]]:
    """Batch sizes, steps, one sample or two, with and without replacement, and steps η."""
    some: list[dict[str, object]] = [{"size": 20, "S": 10}, {"size": 5, "S": 100, "shared": True}]
    if run.quick:
        return some
    return some + [
        {"size": 20, "S": 1},
        {"size": 1, "S": 10, "replace": True, "M": 60},
        {"size": 20, "S": 10, "eta": 0.25, "M": 200},
        {"size": 50, "S": 5, "n": 10, "M": 60},
        {"size": 10, "S": 10, "replace": True, "shared": True},
    ]


def verify(run: Run) -> Result:
    """Coverage on logistic regression, and on samples constructed to come close to the bound."""
    rows: list[Row] = []
    drawn: dict[str, dict[str, np.ndarray]] = {}
    runs = run.pick(400, 100)
    for options in settings(run):
        sampled = batches(run, runs, **options)  # type: ignore[arg-type]
        setting = sampled.setting + (f", η={sampled.eta:g}" if sampled.eta != 1 else "")
        ratios = {}
        for failure in FAILURES:
            for form in FORMS:
                row, ratio = cover(sampled, setting, failure, form)
                rows.append(row)
                if ratio is not None:
                    ratios[f"{form}, ϵ = {failure:g}"] = ratio
        if len(drawn) < 2:
            drawn["\n".join(setting.split(", ", 1))] = ratios
    close, ratios = close_rows(run)
    rows += close
    drawn["two instances\nn=1 d=1, b=2"] = ratios
    return Result(rows, [draw_coverage(drawn)])


def close_rows(run: Run) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Two instances with opposite deviations and exact averaging: as close to the bound as independent signs come."""
    rows: list[Row] = []
    ratios: dict[str, np.ndarray] = {}
    runs = run.pick(8_000, 1_000)
    for k, (n, kappa_lam, kappa_x) in enumerate(((1, 0.2, 0.0), (1, 0.0, 0.2), (3, 0.2, 0.0), (3, 0.1, 0.1))):
        eta, M, size = 0.1, 200, 2
        H = [np.array([1 - kappa_x, 1 + kappa_x])[:, None, None]] * n
        J = [np.array([1 - kappa_lam, 1 + kappa_lam])[:, None, None]] * n
        f_x, K = np.ones((n, 1)), np.full((M, n, n), 1 / n)
        errors = simulate(np.stack(H), np.stack(J), f_x, eta, K, size, runs, run.rng(4, k))
        c = realised_constants(np.ones((n, 1, 1)), np.ones((n, 1, 1)), f_x, eta, K)
        s = sample_constants(H, J, eta)
        for failure in FAILURES:
            for form in FORMS:
                bound = minibatch_tail(c, s, size, failure, form=form).total
                setting = f"two instances n={n} d=1, κ_λ={kappa_lam:g}, κ_x={kappa_x:g}, b={size}"
                rows.append(covered(f"D ({form})", setting, errors, bound, failure))
                ratios.setdefault(f"{form}, ϵ = {failure:g}", errors / bound)  # of the first, the closest
    return rows, ratios


def cover(sampled: Batches, setting: str, failure: float, form: str) -> tuple[Row, np.ndarray | None]:
    """The row of one setting, and error/bound of its runs.

    The measured number is the error that at most a share ϵ of the runs exceeds: it is below the bound exactly if at
    most that share of runs is beyond the bound.
    """
    name = f"D ({form})"
    bound = minibatch_tail(sampled.constants, sampled.samples, sampled.size, failure, form=form, shared=sampled.shared)
    if bound.total is None:
        return without_number(name, setting, None, bound.why), None
    return covered(name, setting, sampled.errors, bound.total, failure), sampled.errors / bound.total


def covered(name: str, setting: str, errors: np.ndarray, bound: float, failure: float) -> Row:
    """A row from the errors of many runs and a bound that may fail with probability `failure`."""
    runs = len(errors)
    allowed = int(np.floor(failure * runs))
    measured = float(np.sort(errors)[runs - 1 - allowed])
    share = float((errors <= bound).mean())
    return verdict_row(
        name, f"{setting}, ϵ={failure:g}, {runs} runs: coverage {share:.3f}", measured, bound, form=CORRECTED
    )
