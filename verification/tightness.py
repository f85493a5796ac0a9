"""Tightness: bound / error over network seeds, steps S and iterations m."""

from __future__ import annotations

import numpy as np

from verification.cases import Case, logistic, quadratic
from verification.curves import BOUNDS, Curve, curve
from verification.pictures import tightness as picture
from verification.rows import Row, judged
from verification.run import Result, Run, Table

TITLE = "Tightness of the bounds"
STEPS = (5, 10, 100)
LIMITS = {"min(A, B)": 10.0, "C2": 3.0}  # medians on logistic regression, n = 3, S ≥ 5


def verify(run: Run) -> Result:
    """Medians against their limits, and the distribution."""
    rows: list[Row] = []
    seed = run.seed
    cases = [logistic(3, 5, seed=seed, rate=0.05), quadratic(3, 5, seed=seed), quadratic(10, 8, seed=seed)]
    found_curves = {case.name: sample(case, run) for case in run.pick(cases, cases[:1])}
    ratios = {case: every_iteration(curves) for case, curves in found_curves.items()}
    facts: dict[str, float] = {}
    cells: dict[str, list[str]] = {name: [name] for name in BOUNDS}
    for case, by_bound in ratios.items():
        for name, values in by_bound.items():
            found = values[np.isfinite(values)]
            if not len(found):
                continue
            setting = f"{case}, S ≥ 5, {len(found)} of {len(values)} points: largest error/bound"
            rows.append(judged(f"{name}, sharpest", setting, 1 / found.min(), 1.0, rounding=1e-9,
                               form="printed" if name == "Corollary 1" else "corrected"))  # fmt: skip
            facts[f"{case}: {name}, median bound/error"] = float(np.median(found))
            facts[f"{case}: {name}, largest bound/error"] = float(found.max())
            cells[name].append(f"{np.median(found):.3g} ({found.max():.2g})")
    rows += medians(cases[0].name, ratios[cases[0].name], found_curves[cases[0].name])
    shown = {case: {name: values for name, values in by.items() if name != "A"} for case, by in ratios.items()}
    title = "bound/error for S ≥ 5, median (largest) over network seeds and iterations"
    table = Table(title, ["bound", *ratios], [row for row in cells.values() if len(row) == 1 + len(ratios)])
    return Result(rows, [picture.draw(shown)], facts, [table])


def medians(case: str, ratios: dict[str, np.ndarray], curves: list[Curve]) -> list[Row]:
    """Medians against their limits, over all iterations and at the last one, where only the floor is left."""
    rows = []
    for name, limit in LIMITS.items():
        last = [one.ratio(name)[-1] for one in curves]
        for words, values in (("all m", ratios[name]), (f"m = {curves[0].m[-1]}", np.array(last))):
            setting = f"{case}, S ≥ 5, {words}: median of bound/error"
            rows.append(judged(f"{name}, median", setting, float(np.nanmedian(values)), limit))
    return rows


def sample(case: Case, run: Run) -> list[Curve]:
    """Runs over network seeds and S."""
    return [curve(case, S, run, net_seed=100 + k, count=run.pick(16, 8)) for S in STEPS for k in range(run.pick(10, 3))]


def every_iteration(curves: list[Curve]) -> dict[str, np.ndarray]:
    """bound/error of every bound over all runs and m; NaN where there is no bound or the error is rounding."""
    return {name: np.concatenate([one.ratio(name) for one in curves]) for name in BOUNDS}
