"""`hgp.plan` chooses a method, S and M for a given relative error; `Plan.run` runs the plan and certifies the result.

The cost of each method is predicted from the measurements of `hgp_ref.planning.probe`: the spectrum [low, high] of H̄,
and τ, the contraction of a round of Push-Sum.

    Neumann, Chebyshev   rate q:  2q^M = goal = AIM target,  FLOOR τ^{S_0} = goal,  S falls to 1 (`falling_steps`)
    Chebyshev, c cycles  goal = (AIM target)^{1/c} for each cycle;  CORRECTED τ^{S_0} = goal within a cycle, and
                         FLOOR τ^S = goal^{k+1} for the two averages at the k-th restart
    Tracking             rate and S from `best_pace`;  two vectors per message

AIM < 1 because certificates are larger than errors. FLOOR estimates how much the disagreement left by an average adds
to w; within a cycle CORRECTED replaces it, because the next cycle corrects that error. UNEVEN is a margin for graphs
that mix worse than average. CORRECTED was chosen on problems and networks like P3 of `python -m verification
communication`, with other seeds (2000 to 2002, 900000 to 900005), after plans for P3 had needed 1.44 times the best of
the grid. No candidate takes more than MOST_ITERATIONS iterations.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype, host_float64
from hgp_ref.certificates import Certificate, certify
from hgp_ref.certificates.point import NOT_INCLUDED
from hgp_ref.certificates.result import AT_POINT
from hgp_ref.errors import DivergenceError
from hgp_ref.methods import Chebyshev, Estimate, Method, Neumann, Refined, Tracking, hypergradient
from hgp_ref.methods.driver import check_point
from hgp_ref.mixing import PushSum, RobustPushSum, Traffic, connect, falling_steps, push_sum_for
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network
from hgp_ref.planning.probe import (
    ACCURATE,
    INITIAL,
    NOT_CONVEX,
    Diagnostics,
    best_pace,
    probe,
    products_worth,
    refine_spectrum,
)
from hgp_ref.problems import Problem, as_problem
from hgp_ref.results import Result
from hgp_ref.rounding import norms
from hgp_ref.validation import Boolean, Choice, Optional, Positive, checked

AIM, FLOOR, CORRECTED, UNEVEN = 0.25, 5.0, 1.0, 1.3  # see above
MOST_CYCLES = 8
MOST_ITERATIONS = 10**6
SHARE = 0.1  # expected factor of a continuation on the error
SMALLEST, LARGEST = 1e-306, 1e306  # eigenvalues; their inverses are step sizes


@dataclass(frozen=True)
class Candidate:
    """A method with its settings and its expected cost."""

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


def candidates(known: Diagnostics, target: float) -> list[Candidate]:
    """All methods whose cost can be predicted; none without a positive lower bound on the spectrum of H̄."""
    if not SMALLEST < known.low <= known.high < LARGEST or not math.isfinite(known.high / known.low):
        return []
    low, high = known.low, known.high
    kappa = high / low
    root = math.sqrt(kappa)
    series = [_series(Neumann(2 / (low + high)), (kappa - 1) / (kappa + 1), known, target, 1)]
    for cycles in range(1, MOST_CYCLES + 1):
        series.append(_series(Chebyshev(low, high), (root - 1) / (root + 1), known, target, cycles))
    predicted = [candidate for candidate in series if candidate is not None]
    pace = best_pace(known, target)
    if pace is not None and pace.iterations(target) <= MOST_ITERATIONS:
        M = pace.iterations(target)
        rounds = pace.S * math.ceil(M * math.log(1 / SHARE) / math.log(INITIAL / target))
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
    continuation_rounds = sum(refinement_cycle(known, method, SHARE, target, 0)[0])
    return Candidate(whole, steps, cycles * M, rounds, 1, AIM * target, continuation_rounds, UNEVEN)


def refinement_cycle(
    known: Diagnostics, method: Method, share: float, goal: float, continued: int
) -> tuple[tuple[int, ...], int]:
    """(steps, M) of one more cycle, which reduces the error to `share` of itself after `continued` earlier ones.

    The first of `steps` is for the average of w, the others for the M iterations; `goal` is the target.
    """
    restart = known.rounds_to(min(goal / FLOOR, 0.5)) * (2 + continued) // 2
    if isinstance(method, Chebyshev) and method.low and method.high:
        root = math.sqrt(method.high / method.low)
        q = (root - 1) / (root + 1)
    else:
        q = max(abs(1 - getattr(method, "eta", 0.0) * edge) for edge in (known.low, known.high))
    M = max(2, math.ceil(math.log(share / 2) / math.log(min(max(q, 1e-6), 0.999))))
    falling = falling_steps(min(known.rounds_to(min(share / FLOOR, 0.5)) * (2 + continued) // 2, restart), M)
    return (restart, restart, *falling[1:]), M


# --------------------------------------------------------------------------------------------------- plans and outcomes

SHOWN = 4  # stages in print
NOT_RELATIVE = 1e-30  # smaller bounds are absolute, because the hyper-gradient is 0; see `_in_units`
NOTHING = Traffic()


@dataclass(frozen=True)
class Stage(Result):
    """One run of a method within `Plan.run`.

    Attributes
    ----------
    method : its repr.
    diverged : whether it diverged; nothing of it is used then.
    """

    method: str
    iterations: int
    traffic: Traffic
    diverged: bool = False


@dataclass(frozen=True)
class Outcome(Estimate):
    """The estimate of a planned run, with its certificate.

    `traffic` and `iterations` count everything: the probe, all stages, and the certificate if the clients computed it.
    Other fields are those of the stage that `value` comes from.

    `met` compares `bound` with the target. If the problem's Lipschitz constants are known, `bound` is against the
    hyper-gradient at the exact inner solution. It then includes the effect of an inexact x, which no run can reduce;
    `bound_at_x` is the part that a run can reduce. Otherwise `bound` is against the formula at the given x. If the
    value is 0 and the bound is subnormal, the hyper-gradient is 0 to working precision: `bound` is then absolute.

    Attributes
    ----------
    certificate : None with `certify=False`, as are `bound`, `met`, `against` and `bound_at_x`.
    bound : the certified error over all clients, in the units of the target.
    met : whether the bound is at most the target.
    continued : how often the run was continued.
    against : which hyper-gradient `bound` and `met` refer to.
    bound_at_x : the bound against the hyper-gradient formula at the given x, in the same units.
    stages : all runs of methods, in order, including those that diverged.
    target : the target of the plan.
    relative : whether target and bounds are shares of ‖d‖.
    """

    certificate: Certificate | None = None
    bound: float | None = None
    met: bool | None = None
    continued: int = 0
    against: str | None = None
    bound_at_x: float | None = None
    stages: tuple[Stage, ...] = ()
    target: float | None = None
    relative: bool = True

    def __str__(self) -> str:
        continuations = f"{self.continued} continuations" if self.continued != 1 else "1 continuation"
        stages = [f"{s.method}: {s.iterations} iterations{', diverged' * s.diverged}" for s in self.stages]
        shown = stages if len(stages) <= SHOWN else [*stages[: SHOWN - 1], f"… {len(stages) - SHOWN} more", stages[-1]]
        lines = [
            f"hyper-gradients of {self.value.shape[-2]} clients after {self.iterations} iterations and {continuations}",
            *self._accuracy(),
            *(f"  {stage}" for stage in shown),
            f"  {self.traffic.floats:.3g} floats sent in {self.traffic.rounds} rounds",
        ]
        return "\n".join(lines)

    def _accuracy(self) -> list[str]:
        if self.bound is None or self.target is None:
            return ["  not certified"]
        unit, verdict = "relative" if self.relative else "absolute", "met" if self.met else "NOT met"
        if self.relative and self.bound < NOT_RELATIVE:
            unit = "hyper-gradient 0 to working precision, which has no relative error: absolute"
        lines = [f"  {unit} error <= {self.bound:.2e} against {self.against}", f"  target {self.target:.2e}: {verdict}"]
        if self.bound_at_x is not None and self.bound_at_x != self.bound:
            lines.insert(1, f"  of which the run accounts for {self.bound_at_x:.2e}, the error of x for the rest")
        return lines if self.rounding_complete else [*lines, f"  {NOT_INCLUDED}"]

    @property
    def rounding_complete(self) -> bool | None:
        """Whether `bound` and `met` include the rounding of the problem's own sums; None without a certificate."""
        return None if self.certificate is None else self.certificate.rounding_complete


@dataclass(frozen=True)
class Plan(Result):
    """The method and settings that `hgp.plan` chose.

    Attributes
    ----------
    steps : S, or S_0, S_1, … of the averaging.
    iterations : M.
    traffic : expected in total, with that of the probe and a margin for continuations.
    error : the expected error, a fixed share of the target.
    target : the error to reach.
    relative : whether target and error are shares of ‖d‖.
    diagnostics : what the clients measured.
    compared : methods and their expected floats, the best first; counted as in `traffic`.
    budget : floats that may be sent in total; None with a target.
    first : expected if the first run suffices, with that of the probe.
    continuation : expected for each continuation.
    """

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    traffic: Traffic
    error: float
    target: float
    relative: bool
    diagnostics: Diagnostics
    compared: tuple[tuple[str, float], ...]
    problem: Any
    x: Array
    lam: Array
    net: Network
    budget: float | None = None
    first: Traffic = NOTHING
    continuation: Traffic = NOTHING

    @property
    def averaging(self) -> PushSum:
        """The averaging of the run, over the graphs after those of the probe."""
        return push_sum_for(self.net.after(self.diagnostics.graphs), self.steps)

    @checked(certify=Boolean(), by_clients=Boolean(), against=Choice("solution", "x"))
    def run(
        self, *, certify: bool = True, by_clients: bool = False, against: str = "solution", **certificate: Any
    ) -> Outcome:
        """Run the plan and certify it; continue while the certificate misses the target.

        Gradient tracking continues from its state. Other methods continue by a cycle of refinement: w is averaged, and
        the method solves for the residual. A run that diverges restarts with a smaller step (a wider interval), or,
        if clients disagreed too much, with longer calls. With a budget, a run continues only within it; the traffic of
        the clients' own certificate is extra. The best certified estimate is returned. If it misses the target, a
        warning says by how much, and whether the run or x is the cause.

        Parameters
        ----------
        certify : whether to bound the error; if False, the run ends as planned.
        by_clients : whether the clients compute the bound themselves over the network; always, if some live in other
            processes.
        against : "solution": the target refers to the hyper-gradient at the exact inner solution if the problem's
            Lipschitz constants are known, and to the formula at the given x otherwise. "x": always to the formula at
            the given x. A run cannot reduce the error due to x. If that alone exceeds the target, the run stops once
            the rest is below the target, and `met` is False.
        certificate : options of `hgp.certify`, such as `strong_convexity`.

        Examples
        --------
        >>> import numpy as np, hgp_ref as hgp
        >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=6, dim_lam=2, seed=1)
        >>> lam = np.zeros((4, 2))
        >>> x = hgp.exact.inner_solution(problem, lam)
        >>> out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=4, seed=1), target=1e-4).run()
        >>> truth = hgp.exact.hypergradient(problem, x, lam)
        >>> out.met, bool(np.linalg.norm(out.value - truth) <= 1e-4 * np.linalg.norm(truth))
        (True, True)
        """
        if not isinstance(self.net, Network):
            raise ValueError(
                "plan was read from a file, which does not hold the problem and the network; call hgp.plan again"
            )
        by_clients = by_clients or self.net.clients != slice(0, self.net.n)
        execution = Execution(self, by_clients, against == "solution", certificate)
        return execution.certified() if certify else execution.outcome(execution.first_run()[0])

    def __str__(self) -> str:
        known, unit = self.diagnostics, "of the hyper-gradient" if self.relative else "absolute"
        steps = f"S = {self.steps}" if isinstance(self.steps, int) else f"S from {self.steps[0]} to {min(self.steps)}"
        source = f"{known.products} products of the mean Hessian" if known.products else "the clients' own Hessians"
        alternatives = ", ".join(f"{name} {floats:.2g}" for name, floats in self.compared[1:4])
        budget = "" if self.budget is None else f", the least within {self.budget:.3g} floats"
        lines = [
            f"plan for an error of {self.target:.1e} ({unit})" + budget,
            f"  {self.method!r}, {steps}, {self.iterations} iterations",
            f"  expected: error {self.error:.1e}, about {self.traffic.floats:.3g} floats, of which"
            f" {known.traffic.floats:.3g} are already sent;",
            f"            {self.first.floats:.3g} if the first run suffices, and {self.continuation.floats:.3g} more"
            " for each continuation",
            f"  because: spectrum [{known.low:.3g}, {known.high:.3g}] from {source}, clients apart by"
            f" {known.zeta:.2g},",
            f"           a round of Push-Sum leaves {known.tau:.2g} of a disagreement",
        ]
        if alternatives:
            lines.append(f"  others would need, counted alike: {alternatives} floats")
        return "\n".join(lines)


def method_name(method: Method) -> str:
    """The name of a method in `Plan.compared`."""
    inner = getattr(method, "method", None)
    cycles = getattr(method, "cycles", None)
    return f"{type(inner).__name__} × {cycles}" if inner is not None else type(method).__name__


# ------------------------------------------------------------------------------------------------------------- hgp.plan

LOOSEST = 0.5  # largest relative error of a plan
TIGHTEST = 1e4  # smallest error for a budget, in multiples of the dtype's eps
WORTH = 5.0  # refine the spectrum if the plan without it needs this many times the floats of refining
NARROW = 4.0  # do not refine an interval with high/low below this


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
) -> Plan:
    """Choose a method, S and M for a target error or for a budget of floats.

    The clients first measure their spectra and how fast the network averages (`Plan.diagnostics`). If it pays, a few
    averaged products then narrow the spectrum of the mean Hessian. Models predict the cost of each method, and the
    cheapest is the plan. The plan is an estimate; `plan.run()` certifies its result. `print(plan)` explains the choice.

    Parameters
    ----------
    net : the network; the measurements use its first graphs, the run those after them.
    target : the error to reach, relative to the norm of the hyper-gradient or absolute. 1e-4 without a budget.
    budget : floats that may be sent in total, instead of a target. The plan is the most accurate one within it.
    refine : whether to average products with the Hessians; by default if it pays.

    Raises
    ------
    ValueError
        If no positive lower bound on the mean Hessian is found, or the budget is too small for any plan.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=5, dim_x=20, dim_lam=3, seed=1, condition=100.0)
    >>> x, lam = np.ones((5, 20)), np.zeros((5, 3))
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=5, seed=1), target=1e-6)
    >>> type(plan.method).__name__, plan.iterations > 20, plan.error <= 1e-6
    ('Refined', True, True)
    """
    normal = as_problem(problem, needs=("outer_grad", "linearize"))
    x, lam = check_point(normal, x, lam)
    check_network(net)
    if len(range(net.n)[net.clients]) != normal.n_clients:
        raise ValueError(f"net must have {normal.n_clients} clients like the problem, got {net.n}")
    if target is not None and budget is not None:
        raise ValueError(f"give either budget or target, got budget={budget!r} and target={target!r}")
    target = 1e-4 if target is None and budget is None else target
    xp = array_namespace(x)
    x, lam = xp.asarray(x, copy=True), xp.asarray(lam, copy=True)  # copies, because the plan may run later
    known, mixer = probe(normal, x, lam, net, with_size=not relative)
    d, eps = normal.dim_x, float(np.finfo(host_dtype(x)).eps)
    goal = _goal(target, relative, known, eps)
    if known.high > 0 and (refine or (refine is None and _refinement_pays(known, goal, d))):
        known = refine_spectrum(known, mixer, normal, x, lam)
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
    edges = max(net.expected_edges - net.n, 1.0) if net.n > 1 else 0.0
    if budget is not None:
        goal = _affordable(known, d, edges, budget, TIGHTEST * eps)
    ordered = sorted(candidates(known, goal), key=lambda c: (c.floats(d) * edges, c.iterations))
    if not ordered:
        raise ValueError(
            f"problem: the spectrum of the mean Hessian must allow a run of at most {MOST_ITERATIONS} iterations, got "
            f"about [{known.low:.3g}, {known.high:.3g}]; rescale or regularize the inner cost, or ask for less"
        )
    best, scale = ordered[0], 1.0 if known.size is None else known.size / known.low

    def expected(rounds: float) -> Traffic:
        return Traffic.of(round(rounds * edges), best.vectors * d + 1, host_dtype(x).itemsize, round(rounds))

    return Plan(
        method=best.method,
        steps=best.steps,
        iterations=best.iterations,
        traffic=known.traffic + expected(best.margin * best.rounds),
        error=best.error * scale,
        target=goal * scale if target is None else target,
        relative=relative,
        diagnostics=known,
        compared=tuple((method_name(c.method), known.traffic.floats + c.floats(d) * edges) for c in ordered),
        problem=problem,
        x=x,
        lam=lam,
        net=net,
        budget=budget,
        first=known.traffic + expected(best.rounds),
        continuation=expected(best.continuation_rounds),
    )


def _goal(target: float | None, relative: bool, known: Diagnostics, eps: float) -> float:
    """The relative error to plan for; an absolute target is divided by a bound on the hyper-gradient."""
    if target is None:
        return 1e-4
    scale = 1.0 if relative or known.size is None else known.size / max(known.low, 1e-300)
    return float(np.clip(target / scale if scale > 0 else LOOSEST, eps, LOOSEST))


def _refinement_pays(known: Diagnostics, goal: float, d: int) -> bool:
    """Whether refining the spectrum is cheap compared with the plan without it, and the interval wide enough."""
    if not known.low > 0:
        return True
    if known.high <= NARROW * known.low:
        return False
    rounds = products_worth(known, d) * known.rounds_to(ACCURATE)
    return _floats(known, goal, d) > WORTH * rounds * (d + 1)


def _floats(known: Diagnostics, goal: float, d: int) -> float:
    """Floats per edge of the cheapest candidate; infinite if there is none."""
    return min((c.floats(d) for c in candidates(known, goal)), default=math.inf)


def _affordable(known: Diagnostics, d: int, edges: float, budget: float, tightest: float) -> float:
    """The smallest relative error within the budget; ValueError if there is none."""
    grid = np.geomspace(LOOSEST, tightest, 57)
    allowed = bisect_left(
        grid, True, key=lambda goal: _floats(known, goal, d) * edges > budget - known.traffic.floats
    )  # costs grow as errors shrink
    if allowed > 0:
        return float(grid[allowed - 1])
    if math.isinf(_floats(known, LOOSEST, d)):
        return LOOSEST  # no plan for any budget: the caller raises
    needed = known.traffic.floats + _floats(known, LOOSEST, d) * edges
    raise ValueError(
        f"budget must be about {needed:.4g} for an error of {LOOSEST:g}, got {budget:g}, of which the probe spent "
        f"{known.traffic.floats} floats"
    )


# ------------------------------------------------------------------ a certificate as one number, in units of the target

MARGIN = 0.5  # share of the target that a continuation aims at
MOST_FROM_X = 0.9  # share of the target that the error due to x may take
ROUNDED = 1e-13  # a bound on the relative error of norms over all clients


@dataclass(frozen=True)
class Assessment:
    """The bounds of a certificate over all clients, in the units of the target."""

    bound: float  # against the hyper-gradient that `against` names
    at_x: float  # against the formula at the given x, which a run can improve
    from_x: float  # the part of `bound` due to an inexact x, which no run can reduce
    against: str

    def done(self, target: float) -> bool:
        """Whether the target is met, or is met by the run but out of reach because of x."""
        return self.bound <= target or (self.at_x <= target and self.from_x > MOST_FROM_X * target)

    def left_to_gain(self, target: float) -> float:
        """The factor on `at_x` that would meet the target, with MARGIN."""
        allowed = target - self.from_x if self.from_x <= MOST_FROM_X * target else target
        return MARGIN * allowed / self.at_x if 0 < self.at_x < math.inf else 1.0


def assess(plan: Plan, certificate: Certificate, est: Estimate, by_clients: bool, at_solution: bool) -> Assessment:
    """The certificate of an estimate in the units of the target.

    `at_solution`: against the hyper-gradient at the exact inner solution if the certificate has a term for x. If only
    the central certificate has one, and the clients decide, the bound is ∞.
    """
    at_point = certificate.decentralised if by_clients else certificate.centralised
    term = certificate.decentralised_inexact if by_clients else certificate.inexact
    if at_point is None:
        return Assessment(math.inf, math.inf, 0.0, certificate.against if at_solution else AT_POINT)
    at_x = _in_units(plan, at_point, est)
    if not at_solution or certificate.against == AT_POINT:
        return Assessment(at_x, at_x, 0.0, AT_POINT)
    if term is None:
        return Assessment(math.inf, at_x, math.inf, certificate.against)
    return Assessment(_in_units(plan, at_point + term, est), at_x, _in_units(plan, term, est), certificate.against)


def _in_units(plan: Plan, per_client: np.ndarray, est: Estimate) -> float:
    """The norm over all clients of bounds on ‖v_i − d_i‖, (n,), in the units of the target.

    A relative bound is divided by ‖d‖ ≥ ‖v‖ − bound, and is ∞ if d may be 0. `tiny` is the absolute error of norms from
    underflow. If v = 0 and the bound is subnormal, the hyper-gradient is 0 to working precision, and the absolute bound
    is returned.
    """
    dtype = np.finfo(host_dtype(plan.x))
    tiny = (plan.net.n + 4) * float(np.finfo(np.float64).smallest_subnormal)
    bound = (1 + ROUNDED) * _size(plan, per_client) + tiny
    if not plan.relative:
        return bound
    size = _size(plan, est.value)
    if size == 0 and bound <= 4 * plan.net.n * float(dtype.smallest_normal):
        return bound
    least = (1 - ROUNDED) * size - tiny - bound
    return (1 + ROUNDED) * bound / least if least > 0 else math.inf


def _size(plan: Plan, rows: Array) -> float:
    """‖v‖ over the clients of all processes, from the rows (n, ...) of those here; scaled against overflow."""
    channel, lengths = connect(plan.net), norms(host_float64(rows).reshape(rows.shape[0], -1))
    top = float(channel.max_over_clients(lengths))
    if not 0 < top < math.inf:
        return top
    return top * math.sqrt(plan.net.n * float(channel.mean_over_clients((lengths / top)[:, None] ** 2)[0, 0]))


# ----------------------------------------------------------------------------------------------- run, certify, continue

ATTEMPTS = 8  # restarts or continuations of a run
MOST = 10  # iterations of a continuation, in multiples of the planned ones
LONGER = 2.0  # iterations of a tracking run until its tolerance, in multiples of the planned ones
GAIN, PATIENCE = 0.7, 3  # stop after PATIENCE continuations in a row that each leave more than GAIN of the bound
FINEST = 8  # steps of the clients' certificates, in multiples of those of the first
CERTIFICATE = ("lipschitz", "strong_convexity", "max_rounds", "matrix_free")  # options of `certify`


@dataclass(frozen=True)
class Segment:
    """A run of a method, or one that continues an estimate: S_0, S_1, … and arguments of `hypergradient`."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    tol: float | None = None
    start: dict[str, Any] = field(default_factory=dict)  # w0 or resume

    def floats(self, plan: Plan) -> float:
        """The most floats that it is expected to send."""
        calls = self.iterations + ("w0" in self.start)
        steps = (self.steps,) if isinstance(self.steps, int) else self.steps
        restarts = 0
        if isinstance(self.method, Refined):  # two averages at each restart, one of them in place of a call
            at = np.atleast_1d(self.method.steps).tolist()
            restarts = 2 * sum((at + at[-1:] * self.method.cycles)[: self.method.cycles - 1])
            calls -= self.method.cycles - 1
        rounds = restarts + sum(steps[:calls]) + steps[-1] * max(0, calls - len(steps))
        vectors = 2 if isinstance(self.method, Tracking) else 1
        return rounds * max(plan.net.expected_edges - plan.net.n, 0.0) * (vectors * plan.x.shape[-1] + 1)


class Execution:
    """`Plan.run`: the planned run, then certificates and continuations until the target is met.

    `traffic` is all that was sent, the probe included; every segment and every certificate of the clients uses the
    graphs after those. `options` are those of `certify`.
    """

    def __init__(self, plan: Plan, by_clients: bool, at_solution: bool, options: dict[str, Any]) -> None:
        self.plan, self.by_clients, self.at_solution, self.options = plan, by_clients, at_solution, options
        self.traffic = plan.diagnostics.traffic
        self.stages: list[Stage] = []
        self.continued = 0
        scale = 1.0 if plan.relative else plan.diagnostics.low / max(plan.diagnostics.size or 0.0, 1e-300)
        # The target relative to a bound on v − ∂_λ f
        self.relative_target = max(plan.target * scale, float(np.finfo(host_dtype(plan.x)).eps))

    def certified(self) -> Outcome:
        """The best certified estimate; a warning if it misses the target."""
        self._check_options()
        plan, stalled = self.plan, 0
        est, method = self.first_run()
        best, (certificate, assessment) = est, self._certify(est)
        while not assessment.done(plan.target) and self.continued < ATTEMPTS and stalled < PATIENCE:
            segment = self.continuation(best, method, assessment)
            if stalled:  # the interval may have been too narrow
                segment = replace(segment, method=gentler(segment.method))
            if plan.budget is not None and self.traffic.floats + segment.floats(plan) > plan.budget:
                break
            est, method = self.continue_run(best, segment)
            self.continued += 1
            latest, now = self._certify(est)
            stalled = stalled + 1 if now.at_x > GAIN * assessment.at_x else 0
            if now.at_x <= assessment.at_x:
                best, certificate, assessment = est, latest, now
        out = self.outcome(
            best,
            certificate=certificate,
            bound=assessment.bound,
            met=bool(assessment.bound <= plan.target),
            continued=self.continued,
            against=assessment.against,
            bound_at_x=assessment.at_x,
        )
        if not out.met:
            warnings.warn(self._shortfall(out), RuntimeWarning, stacklevel=4)  # of the caller of Plan.run
        return out

    def outcome(self, est: Estimate, **certificate: Any) -> Outcome:
        """The outcome with the estimate `est` and everything that was sent."""
        parts = {part.name: getattr(est, part.name) for part in fields(Estimate)}
        parts |= {"traffic": self.traffic, "iterations": sum(stage.iterations for stage in self.stages)}
        settings: Any = {"stages": tuple(self.stages), "target": self.plan.target, "relative": self.plan.relative}
        return Outcome(**parts, **settings, **certificate)

    def first_run(self) -> tuple[Estimate, Method]:
        """The planned run, restarted with gentler settings if it diverges."""
        plan, method = self.plan, self.plan.method
        for attempt in range(ATTEMPTS + 1):
            iterations, tol = plan.iterations, None
            if isinstance(method, Tracking):  # may take longer, and stops at a tolerance
                iterations = math.ceil((LONGER if plan.budget is None else 1.0) * plan.iterations)
                tol = min(self.relative_target / 2, 0.5)
            try:
                return self._run(Segment(method, plan.steps, iterations, tol)), method
            except DivergenceError:
                if attempt == ATTEMPTS:
                    raise
                method = gentler(method)
        raise AssertionError("unreachable")

    def continue_run(self, est: Estimate, segment: Segment) -> tuple[Estimate, Method]:
        """The estimate of the continued run, `est` if it diverges, and the method for the next continuation."""
        try:
            return self._run(segment), segment.method
        except DivergenceError:
            return est, gentler(segment.method)

    def _run(self, segment: Segment) -> Estimate:
        plan, method = self.plan, segment.method
        avg = push_sum_for(plan.net.after(self.traffic.rounds), segment.steps)
        options: Any = {"iterations": segment.iterations, "tol": segment.tol, **segment.start}
        diverged, iterations = True, 0
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # the certificate decides
                est = hypergradient(plan.problem, plan.x, plan.lam, avg, method=method, **options)
            diverged, iterations = False, est.iterations
            return est
        except DivergenceError as error:
            iterations = error.steps
            raise
        finally:
            self.stages.append(Stage(repr(method), iterations, avg.traffic, diverged))
            self.traffic = self.traffic + avg.traffic

    def _certify(self, est: Estimate) -> tuple[Certificate, Assessment]:
        """The certificate of an estimate and its assessment.

        Clients know the inner gradient, and so the error due to x, up to the disagreement of its average. If only that
        exceeds the target, they certify again with twice the steps, as long as that pays.
        """
        target, finer = self.plan.target, 2
        certificate, assessment = self._certify_once(est)
        while self.by_clients and assessment.at_x <= target < assessment.bound and finer <= FINEST:
            again, better = self._certify_once(est, finer)
            finer, pays = 2 * finer, better.from_x <= GAIN * assessment.from_x
            if better.bound <= assessment.bound:
                certificate, assessment = again, better
            if not pays:
                break
        return certificate, assessment

    def _certify_once(self, est: Estimate, finer: int = 1) -> tuple[Certificate, Assessment]:
        """A certificate with `finer` times the steps, and its assessment.

        Over links that delay messages, averages start from the oldest message in flight. That takes more steps, and we
        do not know how many.
        """
        plan, network = self.plan, {}
        if self.by_clients:
            steps = finer * plan.diagnostics.rounds_to(min(self.relative_target / FLOOR, 0.5))
            avg = push_sum_for(plan.net.after(self.traffic.rounds), steps)
            if isinstance(avg, RobustPushSum):
                avg = RobustPushSum(avg.net, (2 + self.continued) * steps)
            network = {"avg": avg, "first_call": 0}
        certificate = certify(plan.problem, plan.x, plan.lam, est, **network, **self.options)  # type: ignore[arg-type]
        self.traffic = self.traffic + (certificate.traffic or Traffic())
        return certificate, assess(plan, certificate, est, self.by_clients, self.at_solution)

    def continuation(self, est: Estimate, method: Method, assessment: Assessment) -> Segment:
        """A segment that gains about what is missing."""
        plan, known = self.plan, self.plan.diagnostics
        if math.isinf(assessment.at_x) and est.residual_ratio > 1:
            return self.longer_calls()
        share = min(max(assessment.left_to_gain(plan.target), 1e-12), 0.5) if math.isfinite(assessment.at_x) else 0.1
        in_flight = est.state is None  # part of a tracking state is lost
        if isinstance(method, Tracking) and in_flight and known.low > 0:
            method = Chebyshev(known.low, known.high)
        if isinstance(method, Tracking):
            rate = min(max(float(est.residual_ratio), 1e-300) ** (1 / est.iterations), 0.999)
            M = min(math.ceil(LONGER * max(2.0, math.log(share) / math.log(rate))), MOST * plan.iterations)
            segment = Segment(method, plan.steps, M, share, {"w0": est.w} if in_flight else {"resume": est})
            if plan.budget is None:
                return segment
            affordable = (plan.budget - self.traffic.floats) / max(segment.floats(plan), 1.0)
            return segment if affordable >= 1 else replace(segment, iterations=max(1, math.floor(affordable * M)))
        inner = method.method if isinstance(method, Refined) else method
        steps, M = refinement_cycle(known, inner, share, self.relative_target, self.continued)
        return Segment(inner, steps, M, None, {"w0": est.w})

    def longer_calls(self) -> Segment:
        """The planned run from the start with longer calls, for a run that grew because clients disagreed."""
        plan, method, longer = self.plan, self.plan.method, 2 ** (self.continued + 1)
        steps = longer * plan.steps if isinstance(plan.steps, int) else tuple(longer * S for S in plan.steps)
        if isinstance(method, Refined):
            method = Refined(method.method, method.cycles, (longer * np.atleast_1d(method.steps)).tolist())
        return Segment(method, steps, plan.iterations)

    def _check_options(self) -> None:
        """Raise before the run if its result could not be certified."""
        unknown = [name for name in self.options if name not in CERTIFICATE]
        if unknown:
            raise TypeError(f"options for hgp.certify must be among {', '.join(CERTIFICATE)}, got {unknown[0]}")
        low = self.plan.diagnostics.client_low
        if self.by_clients and low <= 0 and self.options.get("strong_convexity") is None:
            raise ValueError(
                f"by_clients must be False without strong_convexity=: clients' smallest Hessian eigenvalues average "
                f"to {low:.3g}, so they cannot bound that of the mean themselves"
            )

    def _shortfall(self, out: Outcome) -> str:
        """The warning for an outcome that misses its target, with the cause: the run or x."""
        target = self.plan.target
        expected = "asked for" if self.plan.budget is None else "expected within the budget"
        text = (
            f"the certified error is {out.bound:.2e} where {target:.2e} was {expected}; continued {out.continued} times"
        )
        if out.bound_at_x is None or not out.bound_at_x <= target:
            return text
        return (
            f"{text}: the run is certified to {out.bound_at_x:.2e} against {AT_POINT}, the rest is what x may add by "
            "not being the exact inner solution; train x further, or pass against='x' to bound the run alone"
        )


def gentler(method: Method) -> Method:
    """The method with half the step (Neumann: two thirds), or an interval wider by half at both ends."""
    if isinstance(method, Refined):
        return Refined(gentler(method.method), method.cycles, method.steps)
    if isinstance(method, Tracking):
        return Tracking(method.step_size / 2 if method.step_size else None)
    if isinstance(method, Chebyshev):
        return Chebyshev(method.low / 1.5 if method.low else None, method.high * 1.5 if method.high else None)
    if isinstance(method, Neumann):
        return Neumann(method.eta / 1.5)
    return method
