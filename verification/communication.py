"""What a relative error of 1e-6 costs in rounds of d-vectors: the best of every kind of method, and the planner.

Settings are those that `python -m verification.choices` has chosen on networks of its own; here they are shown on ten
others, as is the plan of `hgp.plan`, whose own messages for finding constants are added (floats per edge, divided by
d). A message of two vectors counts double. The error is looked at by somebody who knows the truth; what `plan.run()`
sends until its certificate says 1e-6 stands beside it.
"""

from __future__ import annotations

import warnings

import numpy as np

import hgp_ref as hgp
from verification.choices import PROBLEM_SEED, chosen, stored
from verification.price import TARGET, Trial, prices, vectors
from verification.rows import GOAL, Row, verdict_row
from verification.run import Result, Run, Table
from verification.three_problems import Priced, three_problems

TITLE = "Messages to an error of 1e-6"
FEWER = {"P1": 1.8, "P2": 2.5, "P3": 6.0}  # times, against the best constant S of HGP
PLANNED = 1.3  # times the best of the grid, at most
CONSTANT = "HGP, constant S"
STREAM = 72  # of networks on which nothing was chosen


def verify(run: Run) -> Result:
    """Three problems that no constant of the planner was chosen on; one of them in a quick run."""
    rows: list[Row] = []
    lines: list[list[str]] = []
    facts: dict[str, float] = {}
    seeds = run.seeds(10, stream=STREAM)
    for name, priced in three_problems(PROBLEM_SEED).items():
        if run.quick and name != "P1":
            continue
        more, table_rows, numbers = compare(name, priced, seeds)
        rows += more
        lines += table_rows
        facts |= numbers
    by = stored()["chosen by"]
    chosen_on, shown_on = by["network seeds"], seeds
    title = (
        f"Until the relative error is below {TARGET:g}: medians over networks with seeds {shown_on[0]} to "
        f"{shown_on[-1]}, settings chosen on those with seeds {chosen_on[0]} to {chosen_on[-1]}"
    )
    head = ("problem", "method", "settings", "chosen among", "rounds of d-vectors, median", "largest", "HGP's over it")
    return Result(rows, facts=facts, tables=[Table(title, head, lines)])


def compare(name: str, priced: Priced, seeds: list[int]) -> tuple[list[Row], list[list[str]], dict[str, float]]:
    """The chosen trial of each kind of method, the planner, and the goals."""
    networks = [priced.network(seed) for seed in seeds]
    trials, counted = chosen(name, priced), stored()["problems"][name]
    rounds = {kind: prices(priced.case, trial, networks) for kind, trial in trials.items()}
    medians = {kind: float(np.median(p)) for kind, p in rounds.items()}
    planned, certified, description = plans(priced, networks)
    settings = {kind: (trial.description, str(counted[kind]["trials"])) for kind, trial in trials.items()}
    ordered = sorted(rounds, key=lambda kind: medians[kind])
    rounds |= {"planner, constants included": planned, "planner, until certified": certified}
    settings |= dict.fromkeys(("planner, constants included", "planner, until certified"), (description, "–"))
    constant, least = medians[CONSTANT], min(medians.values())
    lines = [
        [name, kind, *settings[kind], *(_number(f(rounds[kind])) for f in (np.median, np.max)),
         f"{constant / np.median(rounds[kind]):.2f}"]
        for kind in [*ordered, "planner, constants included", "planner, until certified"]
    ]  # fmt: skip
    rows = [
        verdict_row("messages", f"{name}: {FEWER[name]:g} × the best method's rounds against HGP's",
               FEWER[name] * least, constant, form=GOAL),
        verdict_row("planner", f"{name}: rounds and constants against the best of the grid", float(np.median(planned)),
               PLANNED * least, form=GOAL),
    ]  # fmt: skip
    facts = {
        f"{name}: best constant-S HGP": constant,
        f"{name}: best of the grid": least,
        f"{name}: times fewer": constant / least,
        f"{name}: planner": float(np.median(planned)),
        f"{name}: planner over the best of the grid": float(np.median(planned)) / least,
        f"{name}: planner, until certified": float(np.median(certified)),
    }
    return rows, lines, facts


def _number(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "∞"


def plans(priced: Priced, networks: list[hgp.networks.Network]) -> tuple[np.ndarray, np.ndarray, str]:
    """What plans need until the error is below the target, and until they have certified it."""
    case, d = priced.case, priced.case.x.shape[1]
    planned, certified, kinds = [], [], []
    for net in networks:
        plan = hgp.plan(case.problem, case.x, case.lam, net, target=TARGET)
        sent = plan.diagnostics.traffic
        constants = sent.floats / (sent.messages / sent.rounds) / d
        out = plan.run(against="x")
        rounds = vectors(plan.method) * (out.traffic.rounds - sent.rounds)
        trial = Trial("plan", plan.method, plan.steps, plan.iterations * (2 if vectors(plan.method) == 2 else 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            first = float(prices(case, trial, [net.after(sent.rounds)])[0])
        planned.append(constants + min(first, rounds))
        certified.append(constants + rounds)
        kinds.append(type(plan.method).__name__)
        if not out.met or float(case.error(out)) > TARGET * np.linalg.norm(case.truth):
            certified[-1] = np.inf
    description = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in sorted(set(kinds)))
    return np.array(planned), np.array(certified), description
