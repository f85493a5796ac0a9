"""What a relative error of 1e-6 costs in rounds of d-vectors: every method by grid search, and the planner.

Settings are chosen on CHOOSE networks of each problem by the upper quartile (by the median, methods with a floor are
chosen where they fail on half of the networks), and shown on ten others, as is the plan of
`hgp.plan`, whose own messages for finding constants are added (floats per edge, divided by d). A message of two vectors
counts double. The error is looked at by somebody who knows the truth; what `plan.run()` sends until its certificate
says 1e-6 stands beside it.
"""

from __future__ import annotations

import warnings

import numpy as np

import hgp_ref as hgp
from verification.price import TARGET, Trial, grid, prices, vectors
from verification.rows import GOAL, Row, judged
from verification.run import Result, Run, Table
from verification.three_problems import Priced, three_problems

TITLE = "Messages to an error of 1e-6"
FEWER = {"P1": 1.8, "P2": 2.5, "P3": 6.0}  # times, against the best constant S of HGP
PLANNED = 1.3  # times the best of the grid, at most
CHOOSE, QUANTILE = 9, 0.75  # networks on which the grid is searched, and what of them is made small


def verify(run: Run) -> Result:
    """Three problems that no constant of the planner was chosen on; one of them in a quick run."""
    rows: list[Row] = []
    lines: list[list[str]] = []
    facts: dict[str, float] = {}
    for name, priced in three_problems(1000 + run.seed).items():
        if run.quick and name != "P1":
            continue
        more, own = compare(name, priced, run)
        rows += more
        lines += own
        facts |= {f"{name}: {line[1]}": float(line[3]) for line in own}
    head = ("problem", "method", "settings, chosen on other networks", "rounds of d-vectors, median", "largest")
    return Result(
        rows, facts=facts, tables=[Table("Until the relative error is below 1e-6, ten networks", head, lines)]
    )


def compare(name: str, priced: Priced, run: Run) -> tuple[list[Row], list[list[str]]]:
    """The best of each kind of method, the planner, and the goals."""
    case = priced.case
    chosen_on = [priced.network(s) for s in run.seeds(CHOOSE, stream=71)]
    shown_on = [priced.network(s) for s in run.seeds(10, stream=72)]
    best: dict[str, tuple[float, Trial]] = {}
    for trial in grid(name, case):
        price = float(np.quantile(prices(case, trial, chosen_on), QUANTILE, method="higher"))
        if trial.kind not in best or price < best[trial.kind][0]:
            best[trial.kind] = (price, trial)
    tested = {kind: prices(case, trial, shown_on) for kind, (_, trial) in best.items()}
    medians = {kind: float(np.median(p)) for kind, p in tested.items()}
    lines = [[name, kind, best[kind][1].words, *_numbers(tested[kind])] for kind in sorted(medians, key=medians.get)]  # type: ignore[arg-type]
    planned, certified, words = plans(priced, shown_on)
    lines += [[name, "planner, constants included", words, *_numbers(planned)]]
    lines += [[name, "planner, until certified", words, *_numbers(certified)]]
    least = min(medians.values())
    constant = medians["HGP, constant S"]
    rows = [
        judged("messages", f"{name}: {FEWER[name]:g} × the best method's rounds against HGP's",
               FEWER[name] * least, constant, form=GOAL),
        judged("planner", f"{name}: rounds and constants against the best of the grid", float(np.median(planned)),
               PLANNED * least, form=GOAL),
    ]  # fmt: skip
    return rows, lines


def _numbers(values: np.ndarray) -> tuple[str, str]:
    return f"{np.median(values):.0f}" if np.isfinite(np.median(values)) else "inf", f"{np.max(values):.0f}"


def plans(priced: Priced, networks: list[hgp.networks.Network]) -> tuple[np.ndarray, np.ndarray, str]:
    """What plans need until the error is below the target, and until they have certified it."""
    case, d = priced.case, priced.case.x.shape[1]
    planned, certified, kinds = [], [], []
    for net in networks:
        plan = hgp.plan(case.problem, case.x, case.lam, net, target=TARGET)
        sent = plan.found.traffic
        constants = sent.floats / (sent.messages / sent.rounds) / d
        out = plan.run()
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
    words = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in sorted(set(kinds)))
    return np.array(planned), np.array(certified), words
