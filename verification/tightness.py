"""Tightness: bound / error over problems, network seeds, steps S and iterations m.

The tightness of a bound depends on the problem. Medians are taken over several problems, and shown with the range of
the medians of single problems. Bounds are loosest at the last iteration, where only the floor is left.
"""

from __future__ import annotations

import numpy as np

from verification.cases import Case, logistic, quadratic
from verification.curves import BOUNDS, Curve, curve
from verification.pictures import draw_tightness
from verification.rows import CORRECTED, GOAL, PRINTED, Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Tightness of the bounds"
STEPS = (5, 10, 100)
GOALS = {"min(A, B)": 10.0, "C2": 3.0}  # medians on logistic regression, n = 3, S ≥ 5


def verify(run: Run) -> Result:
    """The sharpest ratio of every bound, medians against their goals, and the distribution."""
    curves = {name: [sample(case, run) for case in cases] for name, cases in families(run).items()}
    pooled = {name: every_iteration([one for group in groups for one in group]) for name, groups in curves.items()}
    rows: list[Row] = []
    for name, ratios in pooled.items():
        rows += sharpest(name, ratios)
    first = next(iter(pooled))
    for bound, goal in GOALS.items():
        setting = f"{first}, S ≥ 5, {len(curves[first])} problems: median of bound/error"
        rows.append(
            verdict_row(f"{bound}, median", setting, float(np.nanmedian(pooled[first][bound])), goal, form=GOAL)
        )
    shown = {name: {b: v for b, v in ratios.items() if b != "A"} for name, ratios in pooled.items()}
    return Result(rows, [draw_tightness(shown)], facts(pooled), [all_m(pooled), by_problem(curves)])


def families(run: Run) -> dict[str, list[Case]]:
    """Problems of the same kind with different data."""
    seeds = [100 * run.seed + k for k in range(run.pick(10, 3))]
    cases = {"logistic n=3 d=5": [logistic(3, 5, seed=s, rate=0.05) for s in seeds]}
    if not run.quick:
        cases["quadratic n=3 d=5"] = [quadratic(3, 5, seed=s) for s in seeds[:4]]
        cases["quadratic n=10 d=8"] = [quadratic(10, 8, seed=s) for s in seeds[:4]]
    return cases


def sample(case: Case, run: Run) -> list[Curve]:
    """Runs over network seeds and S."""
    seeds = range(100, 100 + run.pick(4, 2))
    return [curve(case, S, run, net_seed=seed, count=run.pick(12, 6)) for S in STEPS for seed in seeds]


def every_iteration(curves: list[Curve]) -> dict[str, np.ndarray]:
    """bound/error of every bound over all runs and m; NaN where there is no bound or the error is rounding."""
    return {name: np.concatenate([one.ratio(name) for one in curves]) for name in BOUNDS}


def sharpest(case: str, ratios: dict[str, np.ndarray]) -> list[Row]:
    """The largest error/bound of every bound."""
    rows = []
    for name, values in ratios.items():
        finite = values[np.isfinite(values)]
        if len(finite):
            setting = f"{case}, S ≥ 5, {len(finite)} points: largest error/bound"
            form = PRINTED if name == "Corollary 1" else CORRECTED
            rows.append(verdict_row(f"{name}, sharpest", setting, 1 / finite.min(), 1.0, rounding=1e-9, form=form))
    return rows


def facts(pooled: dict[str, dict[str, np.ndarray]]) -> dict[str, float]:
    """Median and largest ratio of every bound on every family."""
    numbers = {}
    for case, ratios in pooled.items():
        for name, values in ratios.items():
            if np.isfinite(values).any():
                numbers[f"{case}: {name}, median bound/error"] = float(np.nanmedian(values))
                numbers[f"{case}: {name}, largest bound/error"] = float(np.nanmax(values))
    return numbers


def all_m(pooled: dict[str, dict[str, np.ndarray]]) -> Table:
    """Median (largest) ratio over all problems, runs and m."""
    rows = []
    for name in BOUNDS:
        values = [ratios[name] for ratios in pooled.values()]
        rows.append(
            [name, *(f"{np.nanmedian(v):.3g} ({np.nanmax(v):.2g})" if np.isfinite(v).any() else "–" for v in values)]
        )
    return Table(
        "bound/error for S ≥ 5: median (largest) over problems, networks and iterations", ["bound", *pooled], rows
    )


def by_problem(curves: dict[str, list[list[Curve]]]) -> Table:
    """The smallest and the largest median of a single problem, over all m and at the last m."""
    rows = []
    for case, groups in curves.items():
        for name in ("min(A, B)", "C2"):
            every = [float(np.nanmedian(np.concatenate([one.ratio(name) for one in group]))) for group in groups]
            last = [float(np.nanmedian([one.ratio(name)[-1] for one in group])) for group in groups]
            ranges = [f"{min(v):.2g} … {max(v):.2g}" for v in (every, last)]
            rows.append([f"{case}: {name}", ranges[0], f"{np.median(last):.2g}", ranges[1]])
    last_m = next(iter(curves.values()))[0][0].m[-1]
    head = ["", "medians of single problems, all m", f"median at m = {last_m}", f"of single problems at m = {last_m}"]
    return Table("How much it depends on the problem", head, rows)
