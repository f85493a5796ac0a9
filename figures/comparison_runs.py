"""The experiment behind `comparison` and `table1`: every method on every problem and network that it supports.

Each method chooses one of the six values of its parameter on seed 0 (data and network): the one that is at 1e-6 with
the fewest floats; where none gets there at 1e-4, else at 1e-2, else that with the smallest error. It is then run on
the other seeds, which are what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from figures.comparison_cases import BUDGET, NETWORKS, PROBLEMS, case, network
from figures.comparison_methods import METHODS, PENALTY, RATIOS, STEPS, TERMS, Curve, Method, quiet
from reporting.store import Arrays, Experiment

SIZES = ("reduced", "paper")  # three seeds are shown, or ten
TARGETS = (1e-2, 1e-4, 1e-6)
GRID = 80  # points of a curve that is kept, over floats


def experiment(quick: bool, size: str) -> Experiment:
    """Curves of error over floats, and what it took to reach the targets."""
    shown = 1 if quick else 10 if size == "paper" else 3
    settings: dict[str, Any] = {
        "revision": 2,
        "problems": [PROBLEMS[0]] if quick else list(PROBLEMS),
        "methods": [m.name for m in METHODS],
        "budget": BUDGET,
        "share": 0.2 if quick else 1.0,
        "steps": STEPS,
        "ratios": RATIOS,
        "terms": TERMS,
        "penalty": PENALTY,
        "seeds": list(range(1, shown + 1)),
        "seed": 0,
        "backend": "numpy",
        "dtype": "float64",
    }
    parts = tuple(f"{p}-{k}" for p in range(len(settings["problems"])) for k in range(len(NETWORKS)))

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        p, k = map(int, part.split("-"))
        return _part(settings, settings["problems"][p], NETWORKS[k])

    return Experiment("comparison", settings, parts, compute, _join)


def _part(settings: Mapping[str, Any], problem: str, kind: str) -> Arrays:
    """Of each method: its parameter, curves (seeds, GRID), floats and rounds at the targets (seeds, targets)."""
    budget = BUDGET[problem] * settings["share"]
    out: Arrays = {"floats": grid(budget)}
    for m in METHODS:
        if not m.works_on(kind):
            continue
        chosen, trials = choose(m, problem, kind, settings["seed"], budget)
        curves = [quiet(m.run, case(problem, s), network(problem, kind, s), chosen, budget) for s in settings["seeds"]]
        out |= {
            f"{m.name}/chosen": np.array(chosen),
            f"{m.name}/errors": np.stack([_on_grid(c, out["floats"]) for c in curves]),
            f"{m.name}/reached": np.stack([reached(c) for c in curves]),  # (seeds, targets, 2)
        }
        if m.networks == "server":
            out[f"{m.name}/trials"] = np.concatenate(trials)
    return out


def grid(budget: float) -> np.ndarray:
    """Floats at which curves are kept."""
    return np.geomspace(2.0, budget, GRID)


def choose(m: Method, problem: str, kind: str, seed: int, budget: float) -> tuple[float, list[Curve]]:
    """The parameter that does best on this seed, and all curves."""
    curves = [quiet(m.run, case(problem, seed), network(problem, kind, seed), value, budget) for value in m.grid]
    return m.grid[min(range(len(m.grid)), key=lambda k: _rank(curves[k]))], curves


def reached(curve: Curve) -> np.ndarray:
    """Floats and rounds from which on the error stays below each target; NaN where it does not.  # (targets, 2)"""
    out = np.full((len(TARGETS), 2), np.nan)
    for t, target in enumerate(TARGETS):
        above = np.flatnonzero(~(curve[:, 2] <= target))
        first = above[-1] + 1 if above.size else 0
        if first < len(curve):
            out[t] = curve[first, :2]
    return out


def _rank(curve: Curve) -> tuple[float, float]:
    """Smaller is better: which target was reached and for how much, else the error at the end."""
    floats = reached(curve)[:, 0]
    for t in reversed(range(len(TARGETS))):
        if np.isfinite(floats[t]):
            return float(-1 - t), float(floats[t])
    return 0.0, float(curve[-1, 2]) if len(curve) and np.isfinite(curve[-1, 2]) else np.inf


def _on_grid(curve: Curve, floats: np.ndarray) -> np.ndarray:
    """The error after at most so many floats; NaN before the first entry and after a run that left."""
    if not len(curve):
        return np.full(len(floats), np.nan)
    at = np.searchsorted(curve[:, 0], floats, side="right") - 1
    return np.where(at >= 0, curve[np.maximum(at, 0), 2], np.nan)


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    return {f"{part}/{name}": a for part, arrays in parts.items() for name, a in arrays.items()}


def cell(kept: np.ndarray) -> str:
    """floats/rounds of (seeds, 2): medians, — unless more than half of the seeds got there."""
    floats, rounds = np.median(np.where(np.isfinite(kept), kept, np.inf), axis=0)
    return f"{floats:.0f}/{rounds:.0f}" if np.isfinite(floats) else "—"
