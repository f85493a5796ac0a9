"""The experiment behind `comparison`, `comparison_package`, `comparison_others` and their tables:
every method on every problem and network that it supports.

For each method one of six values of its parameter is chosen on seed 0 (data and network): the one that reaches 1e-6
with the fewest floats; if none does, the one that so reaches 1e-4, else 1e-2, else the one with the smallest error. The
method is then run on the other seeds, which the figures show.

`python -m figures comparison --with FILE` adds the methods of a file: its `METHODS`, a list of `Method`. They are an
experiment of their own, so that stored results of the others are used as they are.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import hgp_ref as hgp
from figures.options import Data, Options
from hgp_ref import methods
from hgp_ref.mixing import Channel
from hgp_ref.networks import Network
from reporting.counting import Counting
from reporting.store import Arrays, Experiment

SIZES = ("reduced", "paper")  # three seeds are shown, or ten
TARGETS = (1e-2, 1e-4, 1e-6)
GRID = 80  # points of a stored curve, over floats


def experiments(options: Options) -> dict[str, Experiment]:
    """The runs of METHODS, and those of the methods that --with adds."""
    made = {"runs": experiment(options.quick, options.size)}
    if options.added:
        sources = {"sources": [hashlib.sha256(path.read_bytes()).hexdigest() for path in options.added]}
        made["added"] = experiment(options.quick, options.size, added_methods(options.added), **sources)
    return made


def methods_of(options: Options) -> tuple[Method, ...]:
    """METHODS and what --with adds."""
    return METHODS + added_methods(options.added)


def results_of(data: Data) -> Arrays:
    """The arrays of all methods."""
    return {**data["runs"], **data.get("added", {})}


@lru_cache(maxsize=8)
def added_methods(paths: tuple[Path, ...]) -> tuple[Method, ...]:
    """The METHODS of these files."""
    added: list[Method] = []
    for path in paths:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"--with must name a Python file, got {str(path)!r}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, "METHODS", None)
        if not isinstance(found, list | tuple) or not found or not all(isinstance(m, Method) for m in found):
            raise ValueError(f"{path} must define METHODS, a list of figures.experiments.comparison.runs.Method")
        added += found
    for m in added:
        if m.networks not in NETWORKS:
            raise ValueError(f"networks of {m.name} must be {STATIC!r} or {DIRECTED!r}, got {m.networks!r}")
        if [other.name for other in (*METHODS, *added)].count(m.name) > 1:
            raise ValueError(f"names of methods must be unique, got {m.name!r} twice")
    return tuple(added)


def experiment(quick: bool, size: str, methods: Sequence[Method] | None = None, **more: Any) -> Experiment:
    """Curves of error over floats, and the floats, rounds and local work to reach the targets."""
    methods = METHODS if methods is None else methods
    shown = 1 if quick else 10 if size == "paper" else 3
    settings: dict[str, Any] = {
        "revision": 3,
        "problems": [PROBLEMS[0]] if quick else list(PROBLEMS),
        "methods": [m.name for m in methods],
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
        **more,
    }
    parts = tuple(f"{p}-{k}" for p in range(len(settings["problems"])) for k in range(len(NETWORKS)))

    def compute(part: str, finished: Mapping[str, Arrays]) -> Arrays:
        p, k = map(int, part.split("-"))
        return _part(settings, methods, settings["problems"][p], NETWORKS[k])

    return Experiment("comparison", settings, parts, compute, _join)


def _part(settings: Mapping[str, Any], methods: Sequence[Method], problem: str, kind: str) -> Arrays:
    """For each method: its parameter, curves (seeds, GRID), the columns of `Curve` at the targets (seeds, targets)."""
    budget = BUDGET[problem] * settings["share"]
    out: Arrays = {"floats": grid(budget)}
    for m in methods:
        if not m.works_on(kind):
            continue
        chosen, trials = choose(m, problem, kind, settings["seed"], budget)
        curves = [quiet(m.run, case(problem, s), network(problem, kind, s), chosen, budget) for s in settings["seeds"]]
        out |= {
            f"{m.name}/chosen": np.array(chosen),
            f"{m.name}/errors": np.stack([_on_grid(c, out["floats"]) for c in curves]),
        }
        at = np.stack([m.reached(c) for c in curves])  # (seeds, targets, columns)
        out |= {f"{m.name}/reached": at[..., :2], f"{m.name}/work": at[..., 3:]}
        if m.networks == "server":
            out[f"{m.name}/trials"] = np.concatenate(trials)
        if m.run_per_target:
            out[f"{m.name}/points"] = np.stack([padded(c) for c in curves])
    return out


def grid(budget: float) -> np.ndarray:
    """Floats at which curves are stored."""
    return np.geomspace(2.0, budget, GRID)


def choose(m: Method, problem: str, kind: str, seed: int, budget: float) -> tuple[float, list[Curve]]:
    """The parameter that does best on this seed, and all curves."""
    curves = [quiet(m.run, case(problem, seed), network(problem, kind, seed), value, budget) for value in m.grid]
    return m.grid[min(range(len(m.grid)), key=lambda k: _rank(curves[k]))], curves


def reached(curve: Curve) -> np.ndarray:
    """The row from which on the error stays below each target, (targets, COLUMNS); NaN if it does not."""
    out = np.full((len(TARGETS), COLUMNS), np.nan)
    for t, target in enumerate(TARGETS):
        above = np.flatnonzero(~(curve[:, 2] <= target))
        first = above[-1] + 1 if above.size else 0
        if first < len(curve):
            out[t, : curve.shape[1]] = curve[first]
    return out


def padded(curve: Curve) -> np.ndarray:
    """A curve with a row for each target, (targets, COLUMNS); NaN for those that took more than the budget."""
    return np.concatenate([curve, np.full((len(TARGETS) - len(curve), COLUMNS), np.nan)])


def reached_in_own_run(curve: Curve) -> np.ndarray:
    """The rows that met the target that they were a run for, (targets, COLUMNS); NaN for others."""
    rows = padded(curve)
    return np.where(rows[:, 2:3] <= np.array(TARGETS)[:, None], rows, np.nan)


def _rank(curve: Curve) -> tuple[float, float]:
    """Smaller is better: which target was reached and for how much, else the error at the end."""
    floats = reached(curve)[:, 0]
    for t in reversed(range(len(TARGETS))):
        if np.isfinite(floats[t]):
            return float(-1 - t), float(floats[t])
    return 0.0, float(curve[-1, 2]) if len(curve) and np.isfinite(curve[-1, 2]) else np.inf


def _on_grid(curve: Curve, floats: np.ndarray) -> np.ndarray:
    """The error after at most so many floats; NaN before the first entry."""
    if not len(curve):
        return np.full(len(floats), np.nan)
    at = np.searchsorted(curve[:, 0], floats, side="right") - 1
    return np.where(at >= 0, curve[np.maximum(at, 0), 2], np.nan)


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    return {f"{part}/{name}": a for part, arrays in parts.items() for name, a in arrays.items()}


def problems_of(options: Options) -> tuple[str, ...]:
    """The problems, one of them in a quick run."""
    return PROBLEMS[:1] if options.quick else PROBLEMS


def cost(arrays: Arrays, part: str, name: str, target: int) -> float:
    """The median of floats to a target over the seeds that are shown; ∞ unless more than half of them reach it."""
    floats = arrays[f"{part}/{name}/reached"][:, target, 0]
    return float(np.median(np.where(np.isfinite(floats), floats, np.inf)))


def best_other(arrays: Arrays, p: int, k: int, target: int) -> tuple[str, float]:
    """The method with the least floats to a target, and these; without the planner and what it chooses."""
    names = [m.name for m in METHODS if m.works_on(NETWORKS[k]) and m.name not in CHOSEN and not m.run_per_target]
    return min(((name, cost(arrays, f"{p}-{k}", name, target)) for name in names), key=lambda pair: pair[1])


def cell(reached_by_seed: np.ndarray) -> str:
    """floats/rounds as text: medians of (seeds, 2); — unless more than half of the seeds reach the target."""
    floats, rounds = np.median(np.where(np.isfinite(reached_by_seed), reached_by_seed, np.inf), axis=0)
    return f"{floats:.0f}/{rounds:.0f}" if np.isfinite(floats) else "—"


def as_json(data: Data, options: Options) -> str:
    """All results in the form of schema.json."""
    arrays, entries = results_of(data), []
    for p, problem in enumerate(problems_of(options)):
        for k, kind in enumerate(NETWORKS):
            for m in methods_of(options):
                part = f"{p}-{k}/{m.name}"
                if f"{part}/errors" not in arrays:
                    continue
                entries.append({
                    "problem": problem,
                    "network": "server" if m.networks == "server" else kind,
                    "method": m.name,
                    "class": m.kind,
                    "parameter": float(arrays[f"{part}/chosen"]),
                    "chosen": m.chosen(float(arrays[f"{part}/chosen"])),
                    "floats": arrays[f"{p}-{k}/floats"].tolist(),
                    "errors": [[_finite(e) for e in curve] for curve in arrays[f"{part}/errors"]],
                    "reached": [
                        [{"floats": _finite(f), "rounds": _finite(r)} for f, r in seed]
                        for seed in arrays[f"{part}/reached"]
                    ],
                })  # fmt: skip
    head = {"version": 1, "unit": "floats sent per client, divided by d_x", "targets": list(TARGETS)}
    return json.dumps(head | {"results": entries}, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# Problems at their exact inner solution, and networks with equally many edges ----------------------------------------
#
#     logistic        the paper's mixture, n = 3, an L2 rate per coordinate, λ ~ U[.05, .2]
#     quadratic κ     n = 10, d_x = 20, d_λ = 2, mean Hessian with eigenvalues from 1/κ to 1, heterogeneous clients
#     softmax         n = 100 clients of a mixture of Gaussians, 4 classes, 6 features: d_x = 24, an L2 rate per client
#
# Static graphs are undirected with Metropolis weights. Time-varying graphs are directed; every edge is drawn
# independently at every step with the edge rate of the static graph, so the expected number of messages is the same.

QUADRATIC = {"quadratic, κ = 10": 10.0, "quadratic, κ = 100": 100.0, "quadratic, κ = 1000": 1000.0}
PROBLEMS = ("logistic, n = 3", *QUADRATIC, "softmax, n = 100")
BUDGET = {  # floats sent per client, in units of d_x
    "logistic, n = 3": 1000,
    "quadratic, κ = 10": 10000,
    "quadratic, κ = 100": 15000,
    "quadratic, κ = 1000": 25000,
    "softmax, n = 100": 3000,
}
RATE = {"logistic, n = 3": 0.1, "softmax, n = 100": 0.08}  # of edges before they connect; the others have 0.4
REACHED, LOST = 1e-9, 1e12  # errors at which a run ends; FAB begins with errors of the order of its penalty
NETWORKS = ("static undirected", "time-varying directed")


@dataclass(frozen=True)
class Case:
    """A problem, the point at which it is differentiated, the derivative there, and extreme eigenvalues."""

    problem: Any
    x: np.ndarray
    lam: np.ndarray
    truth: np.ndarray
    low: float  # smallest and largest eigenvalue of any client's Hessian
    high: float

    def error(self, v: np.ndarray) -> float:
        """‖v − d_λ f‖ / ‖d_λ f‖ over all clients."""
        return float(np.linalg.norm(v - self.truth) / np.linalg.norm(self.truth))

    def settled(self, v: np.ndarray) -> bool:
        """Whether a run may end, because it has converged or diverged."""
        return not REACHED < self.error(v) < LOST


@lru_cache(maxsize=8)
def case(name: str, seed: int) -> Case:
    """The problem of that name with data of that seed."""
    problem, lam = _problem(name, seed)
    x = hgp.exact.inner_solution(problem, lam)
    eigenvalues = np.linalg.eigvalsh(hgp.exact.hessians(problem, x, lam))
    truth = hgp.exact.hypergradient(problem, x, lam)
    return Case(problem, x, lam, truth, float(eigenvalues.min()), float(eigenvalues.max()))


def network(name: str, kind: str, seed: int) -> Network:
    """A network for the problem `name`."""
    n = {"logistic, n = 3": 3, "softmax, n = 100": 100}.get(name, 10)
    static = hgp.networks.StaticUndirected(n, p=RATE.get(name, 0.4), seed=seed)
    if kind == NETWORKS[0]:
        return static
    rate = (static.expected_edges - n) / (n * (n - 1))
    return hgp.networks.RandomDirected(n, low=rate, high=rate, seed=seed)


def _problem(name: str, seed: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng([1, seed])
    if name in QUADRATIC:
        return quadratic(10, 20, 2, QUADRATIC[name], seed), rng.standard_normal((10, 2))
    if name.startswith("logistic"):
        data = hgp.data.synthetic_mixture(seed=seed)
        problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
        return problem, rng.uniform(0.05, 0.2, (3, problem.dim_lam))
    X, y, X_val, y_val = gaussians(100, 20, seed)
    softmax = hgp.problems.SoftmaxRegression(X, y, X_val, y_val, n_classes=4, regularization="client")
    return softmax, rng.uniform(0.05, 0.2, (100, softmax.dim_lam))


def quadratic(n: int, d: int, d_lam: int, kappa: float, seed: int) -> hgp.problems.Quadratic:
    """A_i = H̄^½ (I + Δ_i) H̄^½ with Σ_i Δ_i = 0 and ‖Δ_i‖ ≤ .9: the mean is H̄, with eigenvalues from 1/κ to 1."""
    rng = np.random.default_rng([2, seed])
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    root = basis * np.geomspace(1 / kappa, 1, d) ** 0.5 @ basis.T
    delta = rng.standard_normal((n, d, d))
    delta = delta + delta.swapaxes(1, 2)
    delta = delta - delta.mean(axis=0)
    delta *= 0.9 / np.abs(np.linalg.eigvalsh(delta)).max()
    A = root @ (np.eye(d) + delta) @ root
    C = rng.standard_normal((n, d_lam, d))
    b, target = rng.standard_normal((2, n, d))
    return hgp.problems.Quadratic((A + A.swapaxes(1, 2)) / 2, b, C, target)


def gaussians(n: int, size: int, seed: int, features: int = 6, classes: int = 4) -> tuple[np.ndarray, ...]:
    """X, y, X_val, y_val of n clients with `size` instances each: classes are Gaussians whose means clients shift."""
    rng = np.random.default_rng([3, seed])
    means = rng.standard_normal((classes, features))
    shift = 0.5 * rng.standard_normal((n, 1, features))
    y, y_val = rng.integers(0, classes, (2, n, size))
    X, X_val = (means[labels] + shift + rng.standard_normal((n, size, features)) for labels in (y, y_val))
    return X, y, X_val, y_val


# Every method, with one parameter from a grid of six; the rest follows from the problem by rule -----------------------
#
# With L the largest and α the smallest eigenvalue of any client's Hessian, which all may know:
#
#     HGP           Algorithm 2, η = 1/L                           S from STEPS
#     Chebyshev     the spectrum found by the clients              S from STEPS
#     Refined       Chebyshev in four cycles, 40 steps between     S from STEPS
#     Tracking      Push-DIGing, S = 1                             η = r/L, r from RATIOS
#     MA-DSBO, D-SOBA, SPARKLE, DBO                                the step r/L
#     GBDSBO        ℓ = L, a polynomial of degree 4L/α (at most 400)      β = r/4
#     FAB           c = 1e5 (x is exact here)                    r/(cL)
#     FedNest       ℓ = L                                          N from TERMS: each N is a point, not a curve
#     MDBO, VRDBO   ℓ = L, nothing to choose: nothing is sent
#     Preconditioned tracking    shifts and steps found by the clients    S from STEPS
#     Conjugate gradients        along a spanning tree, which is found first: nothing to choose
#
# The planner has no parameter and gets no information. Each target is a run of its own, until it is certified, and its
# measurements are included. `planner` chooses among all methods that send vectors, `planner, no tree` among those
# without a client of a special role, and `planner, Hessians` among those along a tree, one of which sends Hessians.

STEPS = (1, 2, 4, 8, 16, 32)
RATIOS = (1.6, 0.8, 0.4, 0.2, 0.1, 0.05)
TERMS = (4, 8, 16, 32, 64, 128)
PENALTY = 1e5
POINTS = 100  # of a curve
DRAWS = 16  # of FedNest's N'
COLUMNS = 6

# (points, COLUMNS): floats per client in units of d_x, rounds, error; and what a client computes until then, which
# methods that --with adds may leave out: products with its Hessian, solves, CPU seconds of the simulation over n
Curve = np.ndarray


@dataclass(frozen=True)
class Method:
    """Its name, what it computes, where it works, its grid, and a run: (case, net, parameter, budget) → Curve."""

    name: str
    kind: str  # Global, Client or Local
    networks: str
    grid: tuple[float, ...]
    run: Callable[[Case, Network, float, float], Curve]
    parameter: str = "{}"  # what a value of the grid means
    run_per_target: bool = False  # a curve then has one row for each of TARGETS

    def reached(self, curve: Curve) -> np.ndarray:
        """The rows of `curve` at the targets, (targets, COLUMNS)."""
        return reached_in_own_run(curve) if self.run_per_target else reached(curve)

    def chosen(self, value: float) -> str:
        """A value of the grid as text."""
        return self.parameter.format(f"{value:g}") if len(self.grid) > 1 else "nothing to choose"

    def works_on(self, network: str) -> bool:
        return self.networks == NETWORKS[1] or (network == NETWORKS[0])


class Watched:
    """An averaging that exposes its channel during a run."""

    channel: Channel

    def connect(self) -> Channel:
        self.channel = super().connect()  # type: ignore[misc]
        return self.channel


class WatchedPushSum(Watched, hgp.PushSum):
    """Push-Sum."""


class WatchedTree(Watched, hgp.mixing.TreeAverage):  # type: ignore[misc]
    """Exact means along a spanning tree."""


def unit(case: Case) -> int:
    """Floats of one vector of d_x from every client."""
    return case.problem.n_clients * case.problem.dim_x


def over_push_sum(make: Callable[[Case, float], methods.Method], steps: Callable[[float], int]) -> Callable[..., Curve]:
    """A run of `hypergradient` over Push-Sum with S = steps(parameter)."""

    def run(case: Case, net: Network, parameter: float, budget: float) -> Curve:
        avg, method = WatchedPushSum(net, steps(parameter)), make(case, parameter)
        a_call = (net.expected_edges - net.n) * avg.steps * (case.problem.dim_x + 1) / unit(case)
        two = isinstance(method, methods.Tracking | methods.PreconditionedTracking)
        return watched(case, avg, method, max(2, int(budget / (a_call * (2 if two else 1)))))

    return run


def watched(case: Case, avg: WatchedPushSum | WatchedTree, method: methods.Method, M: int) -> Curve:
    """The curve of at most M iterations."""
    points, marks, counting, work = [], checkpoints(M), Counting(case.problem), Work(case)
    each = 2 if isinstance(method, methods.PreconditionedTracking) else 0  # solves; one of them adapts the shift
    once = int(isinstance(method, methods.ConjugateGradient))  # the root factorises

    def record(m: int, v: np.ndarray) -> bool:
        if m in marks:
            sent = avg.channel.traffic
            points.append((sent.floats / unit(case), sent.rounds, case.error(v), *work.done(counting, once + each * m)))
        return m in marks and case.settled(v)

    try:
        hgp.hypergradient(counting, case.x, case.lam, avg, method=method, iterations=M, callback=record)
    except (hgp.DivergenceError, ValueError) as error:
        if isinstance(error, ValueError) and "diverged" not in str(error):
            raise
    return np.array(points).reshape(-1, COLUMNS)


def conjugate_gradients(case: Case, net: Network, parameter: float, budget: float) -> Curve:
    """A run of `ConjugateGradient` along a spanning tree."""
    iterations = min(2 * case.problem.dim_x, int(budget * net.n / (2 * (net.n - 1))))
    return watched(case, WatchedTree(net), methods.ConjugateGradient(), iterations)


def planned(names: Sequence[str] | None) -> Callable[..., Curve]:
    """A run of the planner for each target, among the methods of these names."""

    def run(case: Case, net: Network, parameter: float, budget: float) -> Curve:
        points: list[tuple[float, ...]] = []
        for target in TARGETS:
            counting, work = Counting(case.problem), Work(case)
            plan = hgp.plan(counting, case.x, case.lam, net, target=target, methods=names)
            out = plan.run(against="x")
            floats = out.traffic.floats / unit(case)
            if floats > budget:
                break
            local = sum(2 * stage.iterations for stage in out.stages if "Preconditioned" in stage.method)
            done = work.done(counting, local + (plan.tree is not None))  # the root solves, or factorises, once
            points.append((floats, out.traffic.rounds, case.error(out.value), *done))
        return np.array(points).reshape(-1, COLUMNS)

    return run


class Work:
    """What a client has computed since this was made."""

    def __init__(self, case: Case) -> None:
        self.n, self.start = case.problem.n_clients, time.process_time()

    def done(self, counting: Counting, solves: int = 0) -> tuple[float, float, float]:
        """Products, solves and CPU seconds."""
        return counting.products, solves, (time.process_time() - self.start) / self.n


def frozen(name: str, settings: Callable[[Case, float], dict[str, object]], sent: Callable[[Case], float]
           ) -> Callable[..., Curve]:  # fmt: skip
    """A run of `baselines.at_point`; `sent` says how many units of d_x one message carries."""

    def run(case: Case, net: Network, parameter: float, budget: float) -> Curve:
        edges = (net.expected_edges - net.n) / net.n
        M = int(max(2, budget / max(edges * sent(case), 1e-3))) if sent(case) else 1
        every, counting, work, local = max(1, M // POINTS), Counting(case.problem), Work(case), []

        def end(m: int, v: np.ndarray) -> bool:
            local.append(work.done(counting))
            return case.settled(v)

        try:
            est = hgp.baselines.at_point(counting, case.x, case.lam, net, name, iterations=M, every=every,
                                         callback=end, **settings(case, parameter))  # fmt: skip
        except hgp.DivergenceError:
            return np.empty((0, COLUMNS))
        errors = [case.error(v) for v in est.history]
        return np.column_stack([est.floats / unit(case), est.rounds, errors, local])

    return run


def checkpoints(M: int) -> set[int]:
    """About POINTS iterations from 1 to M, evenly in the logarithm."""
    return set(np.unique(np.geomspace(1, M, POINTS).round().astype(int)).tolist())


def fednest(case: Case, net: Network, terms: float, budget: float) -> Curve:
    """Root mean square error over N', and the mean of everything else: one point."""
    N, points = int(terms), []
    server = hgp.networks.FullyConnected(case.problem.n_clients)
    for draw in range(DRAWS):
        counting, work = Counting(case.problem), Work(case)
        est = hgp.baselines.at_point(counting, case.x, case.lam, server, "fednest", iterations=N, every=N,
                                     terms=N, ell=case.high, draw=draw)  # fmt: skip
        square = case.error(est.value) ** 2
        points.append((est.traffic.floats / unit(case), est.traffic.rounds, square, *work.done(counting)))
    floats, rounds, square, *local = np.mean(points, axis=0)
    return np.array([(floats, rounds, square**0.5, *local)])


def _columns(case: Case) -> float:
    """Columns of DBO's matrices: those of λ of all clients."""
    return float(case.problem.n_clients * case.problem.dim_lam)


def _polynomial(case: Case) -> int:
    return int(min(400, np.ceil(4 * case.high / case.low)))


def _step(case: Case, r: float) -> dict[str, object]:
    return {"step": r / case.high}


def _rule(rule: str) -> Callable[[Case, float], dict[str, object]]:
    return lambda case, r: {"rule": rule, "step": r / case.high}


STATIC, DIRECTED = NETWORKS
NO_TREE = ("Neumann", "Chebyshev", "Tracking", "PreconditionedTracking")
TREE = ("DirectSolve", "ConjugateGradient")
CHOSEN = ("Conjugate gradients",)  # by the planner
METHODS = (
    Method("HGP", "Global", DIRECTED, STEPS, over_push_sum(lambda c, S: methods.Neumann(1 / c.high), int), "S = {}"),
    Method("Chebyshev", "Global", DIRECTED, STEPS, over_push_sum(lambda c, S: methods.Chebyshev(), int), "S = {}"),
    Method("Refined", "Global", DIRECTED, STEPS,
           over_push_sum(lambda c, S: methods.Refined(methods.Chebyshev(), cycles=4, steps=40), int), "S = {}"),
    Method("Tracking", "Global", DIRECTED, RATIOS,
           over_push_sum(lambda c, r: methods.Tracking(r / c.high), lambda r: 1), "η = {}/L"),
    Method("Preconditioned tracking", "Global", DIRECTED, STEPS,
           over_push_sum(lambda c, S: methods.PreconditionedTracking(), int), "S = {}"),
    Method("Conjugate gradients", "Global", DIRECTED, (1.0,), conjugate_gradients),
    Method("planner", "Global", DIRECTED, (1.0,), planned(None), run_per_target=True),
    Method("planner, no tree", "Global", DIRECTED, (1.0,), planned(NO_TREE), run_per_target=True),
    Method("planner, Hessians", "Global", DIRECTED, (1.0,), planned(TREE), run_per_target=True),
    Method("FAB", "Global", DIRECTED, RATIOS,
           frozen("fab", lambda c, r: {"step": r / (PENALTY * c.high), "penalty": PENALTY}, lambda c: 2.0),
           "η = {}/(cL)"),
    Method("SPARKLE-ED", "Global", STATIC, RATIOS, frozen("sparkle", _rule("ED"), lambda c: 1.0), "step {}/L"),
    Method("SPARKLE-EXTRA", "Global", STATIC, RATIOS, frozen("sparkle", _rule("EXTRA"), lambda c: 1.0),
           "step {}/L"),
    Method("SPARKLE-GT", "Global", STATIC, RATIOS, frozen("sparkle", _rule("GT"), lambda c: 2.0), "step {}/L"),
    Method("MA-DSBO", "Global", STATIC, RATIOS, frozen("ma_dsbo", _step, lambda c: 2.0), "step {}/L"),
    Method("D-SOBA", "Global", STATIC, RATIOS, frozen("dsoba", _step, lambda c: 1.0), "step {}/L"),
    Method("DBO", "Client, Global", STATIC, RATIOS,
           frozen("dbo", _step, lambda c: (2 + 1 / c.problem.dim_x) * _columns(c)), "step {}/L"),
    Method("GBDSBO", "Global", STATIC, RATIOS,
           frozen("gbdsbo", lambda c, r: {"step": r / 4, "ell": c.high, "terms": _polynomial(c)},
                  lambda c: c.problem.dim_x + 1.0), "β = {}/4"),
    Method("FedNest", "Global", "server", TERMS, fednest, "N = {}"),
    Method("MDBO, VRDBO", "Local", STATIC, (1.0,),
           frozen("mdbo", lambda c, _: {"terms": _polynomial(c), "ell": c.high}, lambda c: 0.0)),
)  # fmt: skip


def quiet(run: Callable[..., Curve], *arguments: object) -> Curve:
    """A run without warnings of what has not converged: the curve says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return run(*arguments)
