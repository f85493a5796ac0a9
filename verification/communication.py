"""The cost of a relative error of 1e-6 in rounds of d-vectors: the best of every kind of method, and the planner.

The settings of methods were chosen by `python -m verification.choices` on other networks; here they run on ten new
ones. The cost of `hgp.plan` includes the messages of its measurements (floats per edge, divided by d). A message of two
vectors counts double. The error is measured against the true hyper-gradient. A second number for plans counts what
`plan.run()` sends until its certificate is 1e-6. These plans choose among Neumann, Chebyshev and Tracking.

A second table lets the planner choose among more methods, and counts what clients compute: products with Hessians and
solves per client, and seconds of the simulation.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import hgp_ref as hgp
from reporting.counting import Counting
from verification.choices import PROBLEM_SEED, chosen, stored
from verification.price import TARGET, Trial, prices, vectors
from verification.rows import GOAL, Row, verdict_row
from verification.run import Result, Run, Table
from verification.three_problems import Priced, ill_conditioned, three_problems

TITLE = "Messages to an error of 1e-6"
FEWER = {"P1": 1.8, "P2": 2.5, "P3": 6.0}  # times, against the best constant S of HGP
PLANNED = 1.3  # times the best of the grid, at most
CONSTANT = "HGP, constant S"
STREAM = 72  # of networks on which nothing was chosen
PUSH_SUM = ("Neumann", "Chebyshev", "Tracking")
CHOICES: dict[str, Sequence[str] | None] = {
    "all methods": ("DirectSolve", "ConjugateGradient"),
    "vectors along a tree": None,  # the default
    "no tree": (*PUSH_SUM, "PreconditionedTracking"),
    "no tree, no local solves": PUSH_SUM,
}
FEWER_FLOATS = {"P1": 1.3, "P2": 2.0, "P3": 5.0, "P3, κ = 1000": 5.0}  # times, against the last choice


def verify(run: Run) -> Result:
    """Three problems, one in a quick run. No constant of the planner was chosen on them."""
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
    chosen_lines: list[list[str]] = []
    problems = {**three_problems(PROBLEM_SEED), "P3, κ = 1000": ill_conditioned(PROBLEM_SEED)}
    for name, priced in problems.items():
        if run.quick and name != "P1":
            continue
        more, table_rows, numbers = compare_choices(name, priced, seeds)
        rows += more
        chosen_lines += table_rows
        facts |= numbers
    by = stored()["chosen by"]
    chosen_on, shown_on = by["network seeds"], seeds
    title = (
        f"Until the relative error is below {TARGET:g}: medians over networks with seeds {shown_on[0]} to "
        f"{shown_on[-1]}, settings chosen on those with seeds {chosen_on[0]} to {chosen_on[-1]}"
    )
    head = ("problem", "method", "settings", "chosen among", "rounds of d-vectors, median", "largest", "HGP's over it")
    choices_title = (
        f"What the planner sends and computes until it has certified {TARGET:g}: medians over these networks"
    )
    choices_head = ("problem", "may choose", "chosen", "vectors per link", "fewer", "expected over actual", "rounds",
                    "products", "solves", "seconds")  # fmt: skip
    tables = [Table(title, head, lines), Table(choices_title, choices_head, chosen_lines)]
    return Result(rows, facts=facts, tables=tables)


def planned(
    problem: Any, x: np.ndarray, lam: np.ndarray, net: hgp.networks.Network, methods: Sequence[str] | None
) -> tuple[hgp.planning.Plan, hgp.planning.Outcome]:
    """A plan for TARGET with these methods, and its outcome."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        plan = hgp.plan(problem, x, lam, net, target=TARGET, methods=methods)
        return plan, plan.run(against="x")


def compare_choices(name: str, priced: Priced, seeds: list[int]) -> tuple[list[Row], list[list[str]], dict[str, float]]:
    """What plans need with each of CHOICES."""
    case, d = priced.case, priced.case.x.shape[1]
    medians: dict[str, np.ndarray] = {}
    kinds: dict[str, str] = {}
    for choice, methods in CHOICES.items():
        found, chosen_methods = [], []
        for seed in seeds:
            net, counting = priced.network(seed), Counting(case.problem)
            plan = hgp.plan(counting, case.x, case.lam, net, target=TARGET, methods=methods)
            first = plan.run(against="x", certify=False)  # its products, without those of certificates
            products, began = counting.products, time.perf_counter()
            _, out = planned(case.problem, case.x, case.lam, net, methods)
            seconds = time.perf_counter() - began
            solves = 2 * first.iterations if "Preconditioned" in repr(plan.method) else int(plan.tree is not None)
            met = out.met and float(case.error(out)) <= TARGET * np.linalg.norm(case.truth)
            sent = out.traffic.floats / (net.expected_edges - net.n) / d
            found.append((sent if met else np.inf, plan.traffic.floats / out.traffic.floats, out.traffic.rounds,
                          products, solves, seconds))  # fmt: skip
            chosen_methods.append(type(plan.method).__name__)
        medians[choice] = np.median(found, axis=0)
        kinds[choice] = ", ".join(f"{chosen_methods.count(k)} × {k}" for k in sorted(set(chosen_methods)))
    least = medians["no tree, no local solves"][0]
    lines = [
        [name, choice, kinds[choice], f"{m[0]:.1f}", f"{least / m[0]:.1f}", f"{m[1]:.2f}",
         *(f"{value:.0f}" for value in m[2:5]), f"{m[5]:.2f}"]
        for choice, m in medians.items()
    ]  # fmt: skip
    rows = [verdict_row("planner", f"{name}: {FEWER_FLOATS[name]:g} × the floats of the default against no tree",
                        FEWER_FLOATS[name] * medians["vectors along a tree"][0], least, form=GOAL)]  # fmt: skip
    return rows, lines, {f"{name}: vectors per link, {choice}": float(m[0]) for choice, m in medians.items()}


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
        plan = hgp.plan(case.problem, case.x, case.lam, net, target=TARGET, methods=PUSH_SUM)
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
