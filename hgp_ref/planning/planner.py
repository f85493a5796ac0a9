"""`hgp.plan` chooses a method, S and M for a given relative error, or for a budget of floats.

The cost of each method is predicted from the measurements of `hgp_ref.planning.probe`: the spectrum [low, high] of H̄,
and τ, the contraction of a round of Push-Sum.

    Neumann, Chebyshev       rate q:  2q^M = goal = AIM target,  FLOOR τ^{S_0} = goal,  S falls to 1 (`falling_steps`)
    Chebyshev, c cycles      goal = (AIM target)^{1/c} for each cycle;  CORRECTED τ^{S_0} = goal within a cycle, and
                             FLOOR τ^S = goal^{k+1} for the two averages at the k-th restart
    Tracking                 rate and S from `best_pace`;  two vectors per message
    PreconditionedTracking   PT_SIMILAR or PT_DIFFERENT iterations for a factor e;  two vectors per message, to one
                             receiver per step
    DirectSolve              (n − 1)(d(d + 1)/2 + 2d) floats along a spanning tree, whatever the spectrum
    ConjugateGradient        CG_SHARE times M with 2q^M = target/2, or M = d + 1;  2(n − 1)(M + 1) vectors along a tree

Over unreliable links preconditioned tracking is compared only if it is named: it needs from a fifth to nine times the
floats of the others there, and the model does not tell which. If links are reliable and all clients are in this
process, only the last two are compared, because no other method was found to need fewer floats. Then τ is not measured.
`methods` changes the choice. DirectSolve, which sends matrices, must be named there.

AIM < 1 because certificates are larger than errors. FLOOR estimates how much the disagreement left by an average adds
to w; within a cycle CORRECTED replaces it, because the next cycle corrects that error. UNEVEN_MARGIN is for graphs that
mix worse than average. How much clients differ decides about preconditioned tracking, and the probe hardly shows it, so
its cost is a rough guess. No candidate takes more than MOST_ITERATIONS iterations.

The constants were chosen on problems like those of `python -m verification communication`, with other seeds: CORRECTED
on P3 (seeds 2000 to 2002, 900000 to 900005), after plans for P3 had needed 1.44 times the best of the grid; CG_SHARE
and LOSSY_FACTOR on P1 to P3 and breast cancer with seeds 0 and 1; PT_SIMILAR and PT_DIFFERENT with seeds 2 to 4;
LOSSY_MARGIN on quadratics and classifiers over nine kinds of networks, with seeds 940000 to 940079.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype
from hgp_ref.methods import (
    Chebyshev,
    ConjugateGradient,
    DirectSolve,
    Method,
    Neumann,
    PreconditionedTracking,
    Refined,
    Tracking,
)
from hgp_ref.methods.curvature import FACTORISED
from hgp_ref.methods.exact_means import DENSE
from hgp_ref.methods.tracking import innermost
from hgp_ref.mixing import SpanningTree, Traffic, falling_steps
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network, Thinned
from hgp_ref.planning.execution import FLOOR, Plan, refinement_cycle
from hgp_ref.planning.probe import (
    ACCURATE,
    NOT_CONVEX,
    Diagnostics,
    probe,
    probe_tree,
    products_worth,
    refine_spectrum,
)
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullProblem, check_point
from hgp_ref.validation import Boolean, Optional, Positive, checked

LOOSEST = 0.5  # largest relative error of a plan
TIGHTEST = 1e4  # smallest error for a budget, in multiples of the dtype's eps
WORTH = 5.0  # refine the spectrum if the plan without it needs this many times the floats of refining
NARROW = 4.0  # do not refine an interval with high/low below this
ALONG_TREES = ("DirectSolve", "ConjugateGradient")
PUSH_SUM = ("Neumann", "Chebyshev", "Tracking")
VECTORS = ("ConjugateGradient", *PUSH_SUM, "PreconditionedTracking")  # which send vectors only
METHODS = ("DirectSolve", *VECTORS)


@checked(target=Optional(Positive()), budget=Optional(Positive()), relative=Boolean(), refine=Optional(Boolean()))
def plan(
    problem: Problem,
    x: Array,
    lam: Array,
    net: Network,
    target: float | None = None,
    *,
    budget: float | None = None,
    relative: bool = True,
    refine: bool | None = None,
    methods: Sequence[str] | None = None,
) -> Plan:
    """Choose a method, S and M for a target error or for a budget of floats.

    Over reliable links the clients first find a spanning tree, along which means are exact, and the plan is
    `ConjugateGradient`. Over unreliable links, between processes, or if `methods` has no method along trees, clients
    measure their spectra and how fast the network averages (`Plan.diagnostics`). If it pays, a few averaged products
    then narrow the spectrum of the mean Hessian. Models predict the cost of each method, and the cheapest is the plan.
    The plan is an estimate; `plan.run()` certifies its result. `print(plan)` explains the choice.

    Parameters
    ----------
    net : the network; the measurements use its first graphs, the run those after them.
    target : the error to reach, relative to the norm of the hyper-gradient or absolute. 1e-4 without a budget.
    budget : floats that may be sent in total, instead of a target. The plan is the most accurate one within it.
    refine : whether to average products with the Hessians; by default if it pays.
    methods : names of the methods to choose from. By default "ConjugateGradient", "Neumann", "Chebyshev", "Tracking"
        and "PreconditionedTracking", of which the middle three over unreliable links. Without "ConjugateGradient" no
        client has a special role. "DirectSolve" may be added. It sends Hessians, which is cheapest if d_x is small.
        "PreconditionedTracking" is left out for d_x > 512 and "DirectSolve" for d_x > 1000.

    Raises
    ------
    ValueError
        If no positive lower bound on the mean Hessian is found, or the budget is too small for any plan.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=5, dim_x=20, dim_lam=3, seed=1, condition=100.0)
    >>> x, lam = np.ones((5, 20)), np.zeros((5, 3))
    >>> net = hgp.networks.RandomDirected(n=5, seed=1)
    >>> hgp.plan(problem, x, lam, net, target=1e-6).method
    ConjugateGradient()
    >>> plan = hgp.plan(problem, x, lam, net, target=1e-6, methods=["Neumann", "Chebyshev", "Tracking"])
    >>> type(plan.method).__name__, plan.iterations > 20, plan.error <= 1e-6
    ('Refined', True, True)
    """
    normal = as_problem(problem, needs=("outer_grad", "linearize"))
    x, lam = check_point(normal, x, lam)
    check_network(net)
    if len(range(net.n)[net.clients]) != normal.n_clients:
        raise ValueError(f"net must have {normal.n_clients} clients like the problem, got {net.n}")
    if target is not None and budget is not None:
        raise ValueError(f"budget and target cannot both be given, got budget={budget!r} and target={target!r}")
    allowed = _read_methods(methods, net, normal.dim_x)
    target = 1e-4 if target is None and budget is None else target
    xp = array_namespace(x)
    x, lam = xp.asarray(x, copy=True), xp.asarray(lam, copy=True)  # copies, because the plan may run later
    known, goal, tree = _measure(normal, x, lam, net, target, relative, refine, allowed)
    d, dtype, edges = normal.dim_x, host_dtype(x), 0.0
    if net.n > 1 and tree is None:
        edges = max(net.expected_edges - net.n, 1.0)

    def options(goal: float) -> list[Option]:
        if tree is not None:
            return _tree_options(known, goal, d, dtype.itemsize, tree, allowed)
        options_over_push_sum = _push_sum_options(known, goal, d, dtype.itemsize, edges, allowed)
        if "PreconditionedTracking" in allowed:
            options_over_push_sum.append(_preconditioned_option(known, goal, d, dtype.itemsize, net))
        if not net.is_reliable:
            return [option.with_margin(LOSSY_MARGIN) for option in options_over_push_sum]
        return options_over_push_sum

    if budget is not None:
        goal = _affordable(options, known.traffic.floats, budget, TIGHTEST * float(np.finfo(dtype).eps))
    ordered = sorted(options(goal), key=lambda option: (option.floats, option.iterations))
    if not ordered:
        raise ValueError(
            f"problem: the spectrum of the mean Hessian must allow a run of at most {MOST_ITERATIONS} iterations, got "
            f"about [{known.low:.3g}, {known.high:.3g}]; rescale or regularize the inner cost, or set a larger target"
        )
    best, scale = ordered[0], 1.0 if known.size is None else known.size / known.low
    return Plan(
        method=best.method,
        steps=best.steps,
        iterations=best.iterations,
        traffic=known.traffic + best.traffic,
        error=best.error * scale,
        target=goal * scale if target is None else target,
        relative=relative,
        diagnostics=known,
        compared=tuple((_name(option.method), known.traffic.floats + option.floats) for option in ordered),
        problem=problem,
        x=x,
        lam=lam,
        net=net,
        budget=budget,
        first=known.traffic + best.first,
        continuation=best.continuation,
        tree=tree,
        receivers=best.receivers,
    )


def _read_methods(methods: Sequence[str] | None, net: Network, d: int) -> tuple[str, ...]:
    """The names of the methods to choose from, without those that need a smaller d_x."""
    largest = {"DirectSolve": DENSE, "PreconditionedTracking": FACTORISED}
    if methods is None:
        methods = VECTORS if net.is_reliable else PUSH_SUM
    if isinstance(methods, str) or not isinstance(methods, Sequence):
        raise TypeError(f"methods must be a sequence of names, got {methods!r}")
    if not methods or not set(methods) <= set(METHODS):
        raise ValueError(f"methods must be some of {', '.join(METHODS)}, got {methods!r}")
    allowed = tuple(name for name in methods if d <= largest.get(name, d))
    if not allowed:
        most = max(largest[name] for name in methods)
        raise ValueError(f"methods must include others than {', '.join(methods)} for d_x > {most}, got d_x = {d}")
    return allowed


def _name(method: Method) -> str:
    """The name of a method in `Plan.compared`."""
    return f"{_name(method.method)} × {method.cycles}" if isinstance(method, Refined) else type(method).__name__


def _measure(
    problem: FullProblem,
    x: Array,
    lam: Array,
    net: Network,
    target: float | None,
    relative: bool,
    refine: bool | None,
    allowed: Sequence[str],
) -> tuple[Diagnostics, float, SpanningTree | None]:
    """The measurements, refined if that pays, the relative error to plan for, and the tree if methods may use one.

    ValueError without convexity.
    """
    tree = None
    if net.is_reliable and net.clients == slice(0, net.n) and set(allowed) & set(ALONG_TREES):
        known, mixer, tree = probe_tree(problem, x, lam, net, with_size=not relative)
        pays = not known.low > 0
    else:
        if not set(allowed) - set(ALONG_TREES):
            raise ValueError(f"methods must include others than {', '.join(allowed)}, which need reliable links and "
                             f"all clients in one process, got net={net!r}")  # fmt: skip
        known, mixer = probe(problem, x, lam, net, with_size=not relative)
    eps = float(np.finfo(host_dtype(x)).eps)
    goal = _goal(target, relative, known, eps)
    if tree is None:
        pays = known.high > 0 and refine is None and _refinement_pays(known, goal, problem.dim_x, net, allowed)
    if known.high > 0 and (refine or (refine is None and pays)):
        known = refine_spectrum(known, mixer, problem, x, lam)
        goal = _goal(target, relative, known, eps)
    if not known.high > 0:
        raise ValueError(
            f"{NOT_CONVEX}: clients' largest eigenvalues average to {known.high:.3g}, so it has no positive one"
        )
    if not known.low > 0:
        reason = (
            f"{known.products} averaged products show an eigenvalue of {known.low:.3g}"
            if known.products
            else f"clients' smallest eigenvalues average to {known.low:.3g}; try refine=True"
        )
        raise ValueError(
            "problem: the mean inner cost must be strongly convex at x, got no positive lower bound on its Hessian "
            f"({reason})"
        )
    return known, goal, tree


def _goal(target: float | None, relative: bool, known: Diagnostics, eps: float) -> float:
    """The relative error to plan for; an absolute target is divided by a bound on the hyper-gradient."""
    if target is None:
        return 1e-4
    scale = 1.0 if relative or known.size is None else known.size / max(known.low, 1e-300)
    return float(np.clip(target / scale if scale > 0 else LOOSEST, eps, LOOSEST))


def _refinement_pays(known: Diagnostics, goal: float, d: int, net: Network, allowed: Sequence[str]) -> bool:
    """Whether refining the spectrum is cheap compared with the plan without it, and the interval wide enough."""
    if not known.low > 0:
        return True
    if known.high <= NARROW * known.low:
        return False
    rounds = products_worth(known, d) * known.rounds_to(ACCURATE)
    per_edge = min((c.floats(d) for c in candidates(known, goal, allowed)), default=math.inf)
    if "PreconditionedTracking" in allowed and net.n > 1:
        floats = _preconditioned_option(known, goal, d, 8, net).floats
        per_edge = min(per_edge, floats / max(net.expected_edges - net.n, 1.0))
    return per_edge > WORTH * rounds * (d + 1)


def _affordable(options: Callable[[float], list[Option]], spent: float, budget: float, tightest: float) -> float:
    """The smallest relative error within the budget; ValueError if there is none."""

    def floats(goal: float) -> float:
        return min((option.floats for option in options(goal)), default=math.inf)

    grid = np.geomspace(LOOSEST, tightest, 57)
    allowed = bisect_left(grid, True, key=lambda goal: floats(goal) > budget - spent)  # costs grow as errors shrink
    if allowed > 0:
        return float(grid[allowed - 1])
    least = floats(LOOSEST)
    if math.isinf(least):
        return LOOSEST  # no plan for any budget: the caller raises
    raise ValueError(
        f"budget must be at least about {spent + least:.4g} for an error of {LOOSEST:g}, got {budget:g}; the probe "
        f"alone used {spent} floats"
    )


@dataclass(frozen=True)
class Option:
    """A method that a plan may choose, with its settings and its expected traffic, without that of the probe."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    error: float  # expected, relative
    floats: float  # with a margin for continuations
    traffic: Traffic  # the same
    first: Traffic  # if the first run suffices
    continuation: Traffic
    receivers: int | None = None  # per client and step, if fewer than the network has

    def with_margin(self, factor: float) -> Option:
        """The same, expected to send `factor` times as much in total."""
        t = self.traffic
        sent = Traffic(*(round(factor * part) for part in (t.messages, t.floats, t.bytes, t.rounds)))
        return replace(self, floats=factor * self.floats, traffic=sent)


def _preconditioned_option(known: Diagnostics, goal: float, d: int, itemsize: int, net: Network) -> Option:
    """Preconditioned tracking, where links are reliable over a network in which clients serve one receiver per step."""
    receivers = 1 if net.is_reliable and net.clients == slice(0, net.n) else None
    used = net if receivers is None else Thinned(net, receivers)
    edges = max(used.expected_edges - net.n, 1.0) if net.n > 1 else 0.0
    S = known.rounds_to(REMAINING) if known.tau > SLOW_TAU else 1
    M = math.ceil((PT_SIMILAR if known.zeta <= known.low else PT_DIFFERENT) * math.log(INITIAL / goal))

    def expected(iterations: int) -> Traffic:
        return Traffic.of(round(S * iterations * edges), 2 * d + 1, itemsize, S * iterations)

    first, more = expected(M), expected(math.ceil(M * math.log(1 / CONTINUATION_FACTOR) / math.log(INITIAL / goal)))
    whole = first if net.is_reliable else expected(LOSSY_FACTOR * M)
    return Option(PreconditionedTracking(), S, M, goal / 2, whole.floats, whole, first, more, receivers)


def _push_sum_options(
    known: Diagnostics, goal: float, d: int, itemsize: int, edges: float, allowed: Sequence[str]
) -> list[Option]:
    """All candidates, with what they send over `edges` edges per round."""

    def option(c: Candidate) -> Option:
        def expected(rounds: float) -> Traffic:
            return Traffic.of(round(rounds * edges), c.vectors * d + 1, itemsize, round(rounds))

        return Option(
            c.method,
            c.steps,
            c.iterations,
            c.error,
            floats=c.floats(d) * edges,
            traffic=expected(c.margin * c.rounds),
            first=expected(c.rounds),
            continuation=expected(c.continuation_rounds),
        )

    return [option(c) for c in candidates(known, goal, allowed)]


def _tree_options(
    known: Diagnostics, goal: float, d: int, itemsize: int, tree: SpanningTree, allowed: Sequence[str]
) -> list[Option]:
    """Direct solve and conjugate gradients along the tree; a pass takes as many rounds as one of the probe."""
    links = len(tree.up) - 1
    rounds = max(known.graphs - int(tree.traffic.rounds), 0) / PROBE_PASSES

    def sent(passes: int, floats: int) -> Traffic:
        return Traffic(passes * links, floats * links, floats * links * itemsize, round(passes * rounds))

    options = []
    if "DirectSolve" in allowed:
        whole = sent(2, d * (d + 1) // 2 + 2 * d)
        options.append(Option(DirectSolve(), 1, 1, AIM * goal, whole.floats, whole, whole, sent(2, 2 * d)))
    M = cg_iterations(known, goal, d)
    if "ConjugateGradient" in allowed and M <= MOST_ITERATIONS:
        whole, more = (sent(2 * (m + k), (2 * d + 1) * m + 2 * d * k) for m, k in ((M, 1), (2, 0)))
        options.append(Option(ConjugateGradient(), 1, M, goal / 2, whole.floats, whole, whole, more))
    return options


def cg_iterations(known: Diagnostics, target: float, d: int) -> int:
    """Iterations of conjugate gradients to a relative error of `target`, CG_SHARE times those that suffice."""
    root = math.sqrt(known.high / known.low) if known.low > 0 else math.inf
    q = (root - 1) / (root + 1) if math.isfinite(root) else 1.0
    bound = math.log(4 / target) / -math.log(max(q, 1e-6)) if q < 1 else math.inf
    return max(1, math.ceil(CG_SHARE * min(bound, d + 1)))


# -------------------------------------------------------------------------------------------- the cost of every method

AIM, CORRECTED, UNEVEN_MARGIN = 0.25, 1.0, 1.3  # see the head of this module
MOST_CYCLES = 8
MOST_ITERATIONS = 10**6
CG_SHARE = 0.7  # iterations of conjugate gradients, in multiples of what is certain
PT_SIMILAR, PT_DIFFERENT = 2.5, 5.5  # iterations of preconditioned tracking for a factor e
LOSSY_FACTOR = 3  # times as many over unreliable links, where a run cannot continue from its state
LOSSY_MARGIN = 1.8  # of all methods over unreliable links, where most runs continue
SLOW_TAU, REMAINING = 0.8, 0.5  # from this τ a call of it takes several steps, which leave this much disagreement
PROBE_PASSES = 4  # over the tree: a mean and a maximum
CONTINUATION_FACTOR = 0.1  # factor by which a continuation is expected to reduce the error
SMALLEST, LARGEST = 1e-306, 1e306  # eigenvalues; their inverses are step sizes


@dataclass(frozen=True)
class Candidate:
    """A method over Push-Sum with its settings and its expected cost per edge."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    rounds: int
    vectors: int  # per message
    error: float  # expected, relative
    continuation_rounds: int
    margin: float = 1.0  # for unequal graphs

    def floats(self, d: int) -> float:
        """Expected floats per edge, with the margin."""
        return self.margin * self.rounds * (self.vectors * d + 1)


def candidates(known: Diagnostics, target: float, allowed: Sequence[str] = METHODS) -> list[Candidate]:
    """All `allowed` methods over Push-Sum whose cost can be predicted.

    None without a positive lower bound on the spectrum of H̄.
    """
    if not SMALLEST < known.low <= known.high < LARGEST or not math.isfinite(known.high / known.low):
        return []
    low, high = known.low, known.high
    kappa = high / low
    root = math.sqrt(kappa)
    series = [_series(Neumann(2 / (low + high)), (kappa - 1) / (kappa + 1), known, target, 1)]
    for cycles in range(1, MOST_CYCLES + 1):
        series.append(_series(Chebyshev(low, high), (root - 1) / (root + 1), known, target, cycles))
    predicted = [c for c in series if c is not None and type(innermost(c.method)).__name__ in allowed]
    pace = best_pace(known, target) if "Tracking" in allowed else None
    if pace is not None and pace.iterations(target) <= MOST_ITERATIONS:
        M = pace.iterations(target)
        rounds = pace.S * math.ceil(M * math.log(1 / CONTINUATION_FACTOR) / math.log(INITIAL / target))
        predicted.append(Candidate(Tracking(pace.step), pace.S, M, pace.S * M, 2, target / 2, rounds))
    return predicted


def _series(method: Method, q: float, known: Diagnostics, target: float, cycles: int) -> Candidate | None:
    """Neumann or Chebyshev with rate q in `cycles` cycles; None if it takes more than MOST_ITERATIONS."""
    goal = (AIM * target) ** (1 / cycles)
    if q >= 1 or math.log(2 / goal) / -math.log(max(q, 1e-6)) > MOST_ITERATIONS / cycles:
        return None
    M = max(1, math.ceil(math.log(2 / goal) / -math.log(max(q, 1e-6))))
    floor = FLOOR if cycles == 1 else CORRECTED
    one = falling_steps(known.rounds_to(min(goal / floor, 0.5)), M)
    restarts = tuple(known.rounds_to(min(goal**c / FLOOR, 0.5)) for c in range(2, cycles + 1))
    steps = one + one[1:] * (cycles - 1)
    rounds = sum(steps) + 2 * sum(restarts)
    whole = method if cycles == 1 else Refined(method, cycles, restarts)
    continuation_rounds = sum(refinement_cycle(known, method, CONTINUATION_FACTOR, target, 0)[0])
    return Candidate(whole, steps, cycles * M, rounds, 1, AIM * target, continuation_rounds, UNEVEN_MARGIN)


# --------------------------------------------------------------------------------- how fast gradient tracking converges
#
# A model with two groups of clients. A call shrinks disagreement by τ^S with a phase e^{iφ} (directed graphs rotate
# it), and the groups' Hessians are λ ± ζ. The mean a of w, half the difference Δ of w between the groups and half the
# difference δ of y then follow
#
#     a⁺ = a − η(λa + ζΔ),     Δ⁺ = τ^S e^{iφ} (Δ − ηδ),     δ⁺ = τ^S e^{iφ} δ + λ(Δ⁺ − Δ) + ζ(a⁺ − a),
#
# because the mean of y is always λa + ζΔ. The largest |eigenvalue| over λ in [low, high], ζ and φ is the rate. For
# graphs that repeat, `exact.tracking_rate` is exact, and the model agrees with it where they mix evenly
# (`python -m verification tracking`).

PHASES = (0.0, 0.5)
STEPS = (1, 2, 3, 4)  # S that are compared
SAFE = 2.5  # the model must be stable at this multiple of a step, because real graphs differ from it
INITIAL = 2.0  # factor for the initial error over ‖w*‖ and for unequal graphs


@dataclass(frozen=True)
class Pace:
    """A step size, its S, and the model's factor per call."""

    step: float
    S: int
    rate: float

    def iterations(self, target: float) -> int:
        """Calls to a relative error of `target`."""
        return max(1, math.ceil(math.log(INITIAL / target) / -math.log(max(self.rate, 1e-6))))


def rates(
    steps: np.ndarray, low: float, high: float, zeta: float, tau: float, phases: Sequence[float] = PHASES
) -> np.ndarray:
    """The model's rate for each step size, (len(steps),)."""
    lam = np.geomspace(low, high, 5) if high > low else np.array([high])
    rotated = tau * np.exp(1j * np.array(phases))
    e, L, z, t = (a.ravel() for a in np.meshgrid(steps, lam, np.array([0.0, zeta]), rotated, indexing="ij"))
    zero, one = np.zeros_like(t), np.ones_like(t)
    a = np.stack([one - e * L, -e * z, zero], axis=-1)
    apart = np.stack([zero, t, -t * e], axis=-1)
    tracked = np.stack([zero, zero, t], axis=-1) + L[:, None] * (apart - np.array([0, 1, 0]))
    tracked = tracked + z[:, None] * (a - np.array([1, 0, 0]))
    radius = np.abs(np.linalg.eigvals(np.stack([a, apart, tracked], axis=1))).max(axis=1)
    return radius.reshape(len(steps), -1).max(axis=1)


def best_pace(known: Diagnostics, target: float) -> Pace | None:
    """The step size and S with the fewest rounds; None if the model is stable for none."""
    grid = np.geomspace(1e-3, 2.0, 40) / known.high
    paces = []
    for S in STEPS:
        rate = rates(grid, known.low, known.high, known.zeta, known.tau**S)
        safe = rates(SAFE * grid, known.low, known.high, known.zeta, known.tau**S) < 1
        if not safe.any():
            continue
        k = int(np.argmin(np.where(safe, rate, np.inf)))
        if rate[k] < 1:
            paces.append(Pace(float(grid[k]), S, float(rate[k])))
    return min(paces, key=lambda pace: pace.S * pace.iterations(target), default=None)
