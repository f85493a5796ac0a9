"""Fewer messages in random settings, and on breast cancer: the hyper-gradient, the inner problem, the outer loop.

The planner is compared with a planner without trees and local solves, called "today's planner" below, in combinations
of problem, network and target on which none of its constants was chosen. Breast cancer is split over 8 clients with an
L2 rate of 0.01 per coordinate. A message of two vectors counts double, and the measurements of plans are included.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

import hgp_ref as hgp
from verification.cases import Case, case_of
from verification.communication import PUSH_SUM
from verification.plans import drawn_network
from verification.random_settings import random_quadratic
from verification.rows import GOAL, NOT_APPLICABLE, Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Fewer messages in random settings and on breast cancer"
NO_TREE = (*PUSH_SUM, "PreconditionedTracking")
PLANS = {"today's planner": PUSH_SUM, "no tree": NO_TREE, "default": None}
MORE = 1.1  # times the floats of today's planner, at most
CLIENTS, RATE, TARGET = 8, 0.01, 1e-6
VECTORS, ITERATIONS = 260, 150  # per link to TARGET, and of training to TARGET, at most
SHARE = 0.2  # of the floats of the outer loop with SGP and the Neumann series, at most
STREAM = 73


def verify(run: Run) -> Result:
    """The goals, with tables of what was measured."""
    rows, tables = random_combinations(run)
    if find_spec("sklearn") is None:
        missing = Row("breast cancer", "needs scikit-learn", None, None, NOT_APPLICABLE, GOAL)
        return Result([*rows, missing], tables=tables)
    case = breast_cancer()
    for more, table in (one_point(run, case), outer_loop(run, case)):
        rows, tables = [*rows, *more], [*tables, table]
    return Result(rows, tables=tables)


def random_combinations(run: Run) -> tuple[list[Row], list[Table]]:
    """Floats of plans over those of today's planner."""
    count = run.sized(100, 12, 4)
    ratios: dict[str, list[float]] = {name: [] for name in PLANS}
    chosen: dict[str, list[str]] = {name: [] for name in PLANS}
    missed = dict.fromkeys(PLANS, 0)
    for k in range(count):
        case, net, target = combination(run, k)
        today = np.nan
        for name, methods in PLANS.items():
            floats, method = sent(case, net, target, methods)
            today = floats if name == "today's planner" else today
            ratios[name].append(1.0 if floats == today else floats / today)
            missed[name] += not np.isfinite(floats)
            chosen[name].append(method)
    most = float(np.max(ratios["default"]))
    rows = [verdict_row("planner", f"{count} random combinations: the most floats over today's", most, MORE, form=GOAL)]
    lines = [
        (name, *(f"{value:.3f}" for value in extent(ratios[name])),
         str(missed[name]), ", ".join(f"{chosen[name].count(m)} × {m}" for m in sorted(set(chosen[name]))))
        for name in PLANS
    ]  # fmt: skip
    title = f"Floats until certified over those of today's planner, {count} random combinations"
    return rows, [Table(title, ("may choose", "least", "median", "most", "missed", "chosen"), lines)]


def combination(run: Run, k: int) -> tuple[Case, hgp.networks.Network, float]:
    """Problem, network and target number k."""
    rng = run.rng(STREAM, k)
    n, d, condition = int(rng.integers(2, 21)), int(rng.integers(1, 51)), float(10 ** rng.uniform(0, 3))
    case = random_quadratic("non-convex" if k % 4 == 1 else "quadratic", n, d, condition, rng, (0, 0, 0))
    return case, drawn_network(n, rng)[0], float(10 ** rng.uniform(-8, -2))


def extent(values: Sequence[float]) -> tuple[float, float, float]:
    """Minimum, median and maximum of numbers that may be ∞ (NumPy's quantiles would give NaN)."""
    return float(np.min(values)), float(np.median(values)), float(np.max(values))


def sent(case: Case, net: hgp.networks.Network, target: float, methods: Sequence[str] | None) -> tuple[float, str]:
    """Floats until the plan has certified the target, ∞ if it does not; and its method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        plan = hgp.plan(case.problem, case.x, case.lam, net, target=target, methods=methods)
        out = plan.run(against="x")
    reached = out.met and float(case.error(out)) <= target * np.linalg.norm(case.truth)
    return float(out.traffic.floats) if reached else np.inf, type(plan.method).__name__


def breast_cancer() -> Case:
    """Logistic regression over CLIENTS clients at its inner solution."""
    data = hgp.data.breast_cancer(n_clients=CLIENTS)
    problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    return case_of("breast cancer", problem, np.full((CLIENTS, problem.dim_lam), RATE))


def one_point(run: Run, case: Case) -> tuple[list[Row], Table]:
    """Vectors per link for a hyper-gradient, and iterations of training, over RandomDirected."""
    d, lines = case.x.shape[1], []
    found: dict[str, list[float]] = {}
    for seed in run.seeds(run.pick(10, 2), stream=STREAM):
        net = hgp.networks.RandomDirected(n=CLIENTS, seed=seed)
        links = net.expected_edges - CLIENTS
        for name, methods in PLANS.items():
            floats, _ = sent(case, net, TARGET, methods)
            found.setdefault(f"vectors per link, {name}", []).append(floats / links / d)
        found.setdefault("vectors per link, PreconditionedTracking(), S = 1", []).append(2.0 * calls(case, net))
        found.setdefault("iterations, NewtonTracking", []).append(trained(case, net))
    lines = [(name, *(f"{value:.0f}" for value in extent(values))) for name, values in found.items()]
    rows = [
        verdict_row("breast cancer", f"{name}, the most of {len(values)} networks", max(values), bound, form=GOAL)
        for (name, values), bound in zip(found.items(), (np.inf, VECTORS, VECTORS, VECTORS, ITERATIONS), strict=True)
        if np.isfinite(bound)
    ]
    title = (
        f"Breast cancer, {CLIENTS} clients, RandomDirected, L2 rate {RATE:g}: until the relative error is {TARGET:g}"
    )
    return rows, Table(title, ("what", "least", "median", "most"), lines)


def calls(case: Case, net: hgp.networks.Network) -> float:
    """Calls of preconditioned tracking until the error stays below TARGET."""
    errors: list[float] = []

    def record(m: int, v: np.ndarray) -> bool:
        errors.append(float(np.linalg.norm(v - case.truth) / np.linalg.norm(case.truth)))
        return False

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        hgp.hypergradient(case.problem, case.x, case.lam, hgp.PushSum(net, 1), iterations=2 * VECTORS,
                          method=hgp.methods.PreconditionedTracking(), callback=record)  # fmt: skip
    return _first_below(errors)


def trained(case: Case, net: hgp.networks.Network) -> float:
    """Iterations of Newton tracking until x stays within TARGET of the solution."""
    errors: list[float] = []

    def record(k: int, x: np.ndarray) -> bool:
        errors.append(float(np.linalg.norm(x - case.x) / np.linalg.norm(case.x)))
        return False

    method = hgp.training.NewtonTracking(2 * ITERATIONS)
    hgp.train(case.problem, case.lam, net, method, callback=record)
    return _first_below(errors)


def _first_below(errors: Sequence[float]) -> float:
    """The number of the first entry from which all are at most TARGET; ∞ if there is none."""
    above = np.flatnonzero(~(np.array(errors) <= TARGET))
    first = int(above[-1]) + 1 if above.size else 0
    return first + 1.0 if first < len(errors) else np.inf


def outer_loop(run: Run, case: Case) -> tuple[list[Row], Table]:
    """The README's outer loop: with SGP and the Neumann series, and with local curvature for both."""
    steps, bilevel = run.pick(40, 4), hgp.bilevel
    pairs = {
        "SGP, Neumann": (hgp.training.SGP(400, 0.3, (0.6, 0.8)), bilevel.Estimator(5, 200, eta=0.3)),
        "NewtonTracking, PreconditionedTracking": (
            hgp.training.NewtonTracking(20),
            bilevel.Estimator(1, 20, method=hgp.methods.PreconditionedTracking()),
        ),
    }
    paths = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for name, (train, estimate) in pairs.items():
            paths[name] = bilevel.optimise(
                case.problem, np.full(case.lam.shape, 0.1), hgp.networks.RandomDirected(n=CLIENTS, seed=0),
                outer_steps=steps, train=train, estimate=estimate, update=bilevel.Adam(0.1, log=True),
            )  # fmt: skip
    before, after = paths.values()
    rows = [
        verdict_row("outer loop", f"share of the floats after {steps} steps",
                    float(after.floats[-1] / before.floats[-1]), SHARE, form=GOAL),
        verdict_row("outer loop", f"the cost after {steps} steps against that with SGP", float(after.outer_cost[-1]),
                    float(before.outer_cost[-1]), form=GOAL),
    ]  # fmt: skip
    lines = [
        (name, *(f"{path.outer_cost[k]:.3f}" for k in (0, steps // 2, steps)), f"{path.floats[-1]:.3g}")
        for name, path in paths.items()
    ]
    head = ("training, estimate", "cost at first", f"after {steps // 2} steps", f"after {steps}", "floats")
    return rows, Table("The README's outer loop on breast cancer", head, lines)
