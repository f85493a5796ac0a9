"""`hgp.plan` in random settings: `plan.run()` reaches its target, or warns that it did not.

n from 1 to 20, d from 1 to 50, condition numbers to 1e4, clients from similar to different, some of them not convex,
networks from sparse to complete, targets from 1e-2 to 1e-9 of the hyper-gradient, absolute ones, and budgets of floats.
If a plan reports `met`, its error must be at most its bound, and the bound at most the target. Otherwise it must warn.
A plan with a budget must not make a false claim either.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

import hgp_ref as hgp
from verification.cases import Case
from verification.random_settings import random_quadratic
from verification.rows import GOAL, Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Plans in random settings"
REACHED = 0.9  # of plans with a target, at least
ROUNDING = 1e-9  # relative, on the comparison of the error with its bound


@dataclass(frozen=True)
class Attempt:
    """A setting and its result."""

    description: str
    kind: str  # "relative", "absolute" or "budget"
    met: bool | None  # None: the plan was refused with a reason
    error: float  # in the units of the target
    bound: float
    target: float
    said: str  # the warning or the error


def verify(run: Run) -> Result:
    """Rows for every kind of target: no false claim, no missed target without a warning, most targets reached."""
    count = run.sized(200, 30, 12)
    attempts = [random_plan(run.rng(400, k), k) for k in range(count)]
    rows: list[Row] = []
    for kind in ("relative", "absolute", "budget"):
        of_kind = [a for a in attempts if a.kind == kind]
        false = [
            a for a in of_kind if a.met and not a.error <= a.bound * (1 + ROUNDING) <= a.target * (1 + 2 * ROUNDING)
        ]
        silent = [a for a in of_kind if not a.met and not a.said]
        rows.append(verdict_row("plans", f"{kind}: claims that are false, of {len(of_kind)}", float(len(false)), 0.0))
        rows.append(
            verdict_row("plans", f"{kind}: missed without a warning, of {len(of_kind)}", float(len(silent)), 0.0)
        )
        rows += [verdict_row("plans", f"false: {a.description}", a.error, a.target) for a in false]
    aimed = [a for a in attempts if a.kind != "budget"]
    reached = sum(bool(a.met) for a in aimed) / len(aimed)
    rows.append(
        verdict_row("plans", f"share of {len(aimed)} targets that are reached, at least", REACHED, reached, form=GOAL)
    )
    lines = [(a.description, f"{a.target:.1e}", f"{a.bound:.1e}", a.said[:90]) for a in aimed if not a.met]
    table = Table("Targets that were not reached, and what was said", ("setting", "target", "certified", "said"), lines)
    return Result(rows, facts={"plans": count, "targets reached": reached}, tables=[table] if lines else [])


def random_plan(rng: np.random.Generator, index: int) -> Attempt:
    """Make and run plan number `index`."""
    n = int(rng.integers(2, 21)) if index % 10 else 1
    d = int(rng.integers(1, 51))
    condition = float(10 ** rng.uniform(0, 4))
    kind = "non-convex" if index % 4 == 1 else "quadratic"
    case = random_quadratic(kind, n, d, condition, rng, (0, 0, 0))
    net, network = drawn_network(n, rng)
    aim = ("relative", "relative", "absolute", "budget")[(index // 2) % 4]
    target = float(10 ** rng.uniform(-9, -2))
    description = f"{kind} κ={condition:.2g}, n={n}, d={d}, {network}, {aim} {target:.1e}"
    return run_plan(case, net, aim, target, description)


def drawn_network(n: int, rng: np.random.Generator) -> tuple[hgp.networks.Network, str]:
    """A network from sparse to complete, periodic or not."""
    seed, choice = int(rng.integers(2**31)), int(rng.integers(5))
    if n == 1:
        return hgp.networks.SelfLoops(1), "alone"
    if choice == 0:
        return hgp.networks.FullyConnected(n), "complete"
    if choice == 1:
        return hgp.networks.Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n), "ring"
    if choice == 2:
        return hgp.networks.StaticUndirected(n, p=0.5, seed=seed), "undirected"
    low = float(rng.uniform(0.05, 0.5))
    return hgp.networks.RandomDirected(n, low=low, high=min(1.0, low + 0.3), seed=seed), f"directed from {low:.2f}"


def run_plan(case: Case, net: hgp.networks.Network, aim: str, target: float, description: str) -> Attempt:
    """Plan, run, and compare with the truth."""
    scale = float(np.linalg.norm(case.truth))
    goal = {"relative": {"target": target}, "absolute": {"target": target * scale, "relative": False}}.get(aim)
    if goal is None:
        goal = {"budget": float(1e4 * case.n * (case.x.shape[1] + 1))}
    unit = 1.0 if aim == "absolute" else scale
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            plan = hgp.plan(case.problem, case.x, case.lam, net, **goal)
            out = plan.run(against="x")
        except (ValueError, hgp.DivergenceError) as refusal:
            return Attempt(description, aim, None, np.inf, np.inf, target, f"{type(refusal).__name__}: {refusal}")
    said = "; ".join(str(w.message) for w in caught if "certified error" in str(w.message))
    return Attempt(description, aim, out.met, float(case.error(out)) / unit, float(out.bound or 0.0), plan.target, said)
