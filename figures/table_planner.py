"""What the planner sends and computes to reach a target, against the best of the methods that it did not choose."""

from __future__ import annotations

import numpy as np

from figures.comparison import experiments
from figures.experiments.comparison import runs
from figures.experiments.comparison.runs import NETWORKS
from figures.options import Data, Options
from reporting.table import Table

__all__ = ["experiments", "table"]

SHOWS = "Floats and local work of the planner to errors 1e-2, 1e-4, 1e-6, and of the best method that it did not choose"
NUMPY = True
SIZES = runs.SIZES
PLANS = ("planner", "planner, Hessians", "planner, no tree")


def table(data: Data, options: Options) -> Table:
    """Medians over seeds that were not used for choosing; work is products/solves/CPU ms of a client."""
    arrays, rows = runs.results_of(data), []
    for p, problem in enumerate(runs.problems_of(options)):
        for k, kind in enumerate(NETWORKS):
            for t, target in enumerate(runs.TARGETS):
                part, (name, least) = f"{p}-{k}", runs.best_other(arrays, p, k, t)
                plans = [runs.cost(arrays, part, plan, t) for plan in PLANS]
                times = f"{least / plans[0]:.1f}" if np.isfinite(least) else "∞"
                work = [_work(arrays[f"{part}/{m}/work"][:, t]) for m in ("planner", "planner, no tree", name)]
                found = (f"{name}: {least:.0f}", times) if np.isfinite(least) else ("—", times)
                rows.append((problem, kind, f"{target:g}", *map(_number, plans), *found, *work))
    header = ("problem", "network", "target", *(f"floats, {plan}" for plan in PLANS), "best other: floats",
              "over the planner's", "work, planner", "work, no tree", "work, best other")  # fmt: skip
    return Table("", header, tuple(rows))


def _number(floats: float) -> str:
    return f"{floats:.0f}" if np.isfinite(floats) else "—"


def _work(by_seed: np.ndarray) -> str:
    """products/solves/milliseconds: medians of (seeds, 3)."""
    if not np.isfinite(by_seed).any():
        return "—"
    products, solves, seconds = np.nanmedian(by_seed, axis=0)
    return f"{products:.0f}/{solves:.0f}/{1000 * seconds:.1f}"
