"""What each method would need for a given relative error, by what is known of problem and network.

Series and Chebyshev. They aim at AIM of the target, since certificates are larger than errors. M follows from their
rate q (error about 2q^M), S_0 from the floor: an average over S_0 rounds leaves τ^{S_0} of a disagreement, which ends
up in w about FLOOR times. S falls to 1 (`falling_steps`). With c cycles, each reaches the c-th root of the target;
within a cycle S_0 leaves CORRECTED of that, since the next one makes up for it, and the averages at the k-th restart
leave its (k+1)-th power. Graphs that differ from each other make short calls fail now and then: UNEVEN on what these
methods need. CORRECTED was chosen, after plans for P3 of `python -m verification communication` had needed 1.44 times
the best of the grid, on problems and networks of that kind with other seeds (2000 to 2002, 900000 to 900005).

No candidate takes more than MOST_ITERATIONS iterations: condition numbers that ask for more have no plan.

Gradient tracking. No floor; rate and S by `tracking_model`, two vectors a message.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, host_dtype, host_float64
from hgp_ref.certificates import Certificate, certify
from hgp_ref.certificates.point import NOT_INCLUDED
from hgp_ref.certificates.result import AT_POINT
from hgp_ref.errors import DivergenceError
from hgp_ref.methods import Chebyshev, Estimate, Method, Neumann, Refined, Tracking, hypergradient
from hgp_ref.mixing import PushSum, RobustPushSum, Traffic, connect, falling_steps, push_sum_for
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network
from hgp_ref.planning.probe import ACCURATE, NOT_CONVEX, WAVERING, Found, best_pace, find, pilot, products_worth
from hgp_ref.problems import Problem, as_problem
from hgp_ref.results import Result
from hgp_ref.rounding import norms

AIM = 0.25
FLOOR = 5.0
CORRECTED = 1.0
UNEVEN = 1.3
MOST_CYCLES = 8
MOST_ITERATIONS = 10**6  # of a planned run
SHARE = 0.1  # of its error, which a continuation is expected to leave
SMALLEST, LARGEST = 1e-306, 1e306  # of eigenvalues, whose inverses are step sizes


@dataclass(frozen=True)
class Candidate:
    """A method with its settings, and what it is expected to need."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    rounds: int
    vectors: int  # in a message
    error: float  # relative, expected
    further: int  # rounds of a continuation
    margin: float = 1.0

    def floats(self, d: int) -> float:
        """Numbers per edge that all messages hold, with a margin where graphs may disappoint."""
        return self.margin * self.rounds * (self.vectors * d + 1)


def candidates(known: Found, target: float) -> list[Candidate]:
    """All that can be predicted; none where the spectrum of H̄ has no known positive lower bound."""
    if not SMALLEST < known.low <= known.high < LARGEST or not math.isfinite(known.high / known.low):
        return []
    low, high = known.low, known.high
    kappa = high / low
    root = math.sqrt(kappa)
    neumann = _falling(Neumann(2 / (low + high)), (kappa - 1) / (kappa + 1), known, target, 1)
    chebyshev = [
        _falling(Chebyshev(low, high), (root - 1) / (root + 1), known, target, c) for c in range(1, MOST_CYCLES + 1)
    ]
    offers = [offer for offer in (neumann, *chebyshev) if offer is not None]
    pace = best_pace(known, target)
    if pace is not None and pace.iterations(target) <= MOST_ITERATIONS:
        M = pace.iterations(target)
        further = pace.S * math.ceil(M * math.log(1 / SHARE) / math.log(WAVERING / target))
        offers.append(Candidate(Tracking(pace.step), pace.S, M, pace.S * M, 2, target / 2, further))
    return offers


def _falling(method: Method, q: float, known: Found, target: float, cycles: int) -> Candidate | None:
    """A method with rate q and S that falls, restarted in `cycles` cycles; None where that takes too long."""
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
    further = sum(refinement_cycle(known, method, SHARE, target, 0)[0])
    return Candidate(whole, steps, cycles * M, rounds, 1, AIM * target, further, UNEVEN)


def refinement_cycle(
    known: Found, method: Method, share: float, goal: float, continued: int
) -> tuple[tuple[int, ...], int]:
    """(steps, M) of the cycle by which a run goes on that has done so `continued` times, to `share` of its error.

    First S of the average of w, then S of the M iterations; `goal` is the relative error that is asked for.
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


# ----------------------------------------------------------------------------------------------------
# A plan: a method with its settings, what it is expected to need, and why; and what came of it.


AGAINST = ("solution", "x")
SHOWN = 4  # stages in print
NO_SHARE = 1e-30  # no relative bound is below; an absolute one that stands for it is, see `_in_units`
NOTHING = Traffic()


@dataclass(frozen=True)
class Stage(Result):
    """One run of a method inside a planned run.

    Attributes
    ----------
    method : its repr.
    iterations : how many it made.
    traffic : what clients sent for it.
    diverged : whether it ended by diverging, so that nothing of it was used.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3).run()
    >>> [stage.diverged for stage in out.stages]
    [False]
    """

    method: str
    iterations: int
    traffic: Traffic
    diverged: bool = False


@dataclass(frozen=True)
class Outcome(Estimate):
    """The estimate of a planned run, with its certificate.

    `traffic` and `iterations` count everything: finding constants, every stage, and the clients' certificate if it was
    they who made it. `method`, `averaging`, `growth`, `norms` and `looks` are those of the stage that `value` is from.

    `met` is about `bound`, and `bound` is against what `against` says. Where the problem's Lipschitz constants are
    known, that is the hyper-gradient at the exact inner solution: `bound` then includes what the given x may add, which
    no plan can reduce, and `bound_at_x` is the part that a run can reduce. Elsewhere `against` is the formula at the
    given x, and nothing is said of the error of x. Where the value is 0 and no normal number is left of the bound,
    relative errors are not defined: `bound` is then absolute, and `met` says that the hyper-gradient is 0 to working
    precision.

    Attributes
    ----------
    certificate : the bound on the error, where it was asked for.
    bound : certified, over all clients and in the units of the target; None where nothing was certified.
    met : whether the bound is at most the target.
    continued : how often the run went on after its first end.
    against : which hyper-gradient `bound` and `met` refer to; None where nothing was certified.
    bound_at_x : the bound against the hyper-gradient formula at the given x, in the same units.
    stages : all runs of methods, in order, those that diverged included.
    target : error asked for.
    relative : whether target and bounds are shares of ‖d‖.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3)
    >>> out = plan.run()
    >>> out.met, out.bound <= 1e-3, out.continued, out.against
    (True, True, 0, 'the hyper-gradient at the exact inner solution')
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
        last = f"{self.continued} continuations" if self.continued != 1 else "1 continuation"
        stages = [f"{s.method}: {s.iterations} iterations{', diverged' * s.diverged}" for s in self.stages]
        shown = stages if len(stages) <= SHOWN else [*stages[: SHOWN - 1], f"… {len(stages) - SHOWN} more", stages[-1]]
        lines = [
            f"hyper-gradients of {self.value.shape[-2]} clients after {self.iterations} iterations and {last}",
            *self._accuracy(),
            *(f"  {stage}" for stage in shown),
            f"  {self.traffic.floats:.3g} floats sent in {self.traffic.rounds} rounds",
        ]
        return "\n".join(lines)

    def _accuracy(self) -> list[str]:
        if self.bound is None or self.target is None:
            return ["  not certified"]
        unit, said = "relative" if self.relative else "absolute", "met" if self.met else "NOT met"
        if self.relative and self.bound < NO_SHARE:
            unit = "hyper-gradient 0 to working precision, which has no relative error: absolute"
        lines = [f"  {unit} error <= {self.bound:.2e} against {self.against}", f"  target {self.target:.2e}: {said}"]
        if self.bound_at_x is not None and self.bound_at_x != self.bound:
            lines.insert(1, f"  of which the run accounts for {self.bound_at_x:.2e}, the error of x for the rest")
        return lines if self.rounding_complete else [*lines, f"  {NOT_INCLUDED}"]

    @property
    def rounding_complete(self) -> bool | None:
        """Whether `bound` and `met` include the rounding of the problem's own sums; None where nothing was certified.

        Returns
        -------
        bool or None.
        """
        return None if self.certificate is None else self.certificate.rounding_complete


@dataclass(frozen=True)
class Plan(Result):
    """What `hgp.plan` chose.

    Attributes
    ----------
    method : how w* is approached.
    steps : S, or S_0, S_1, … of the averaging.
    iterations : M.
    traffic : expected, what was already sent to find constants included, and a margin for runs that continue.
    error : what the settings aim at, a fixed share of the target; the run is judged by its certificate.
    target : error asked for.
    relative : whether target and error are shares of ‖d‖.
    found : what the clients found out.
    compared : methods and the floats that each was expected to need, the best first; counted as in `traffic`.
    problem : to which it belongs.
    x : the point.
    lam : λ there.
    net : the network.
    budget : floats that may be sent in all, where that was asked for.
    first : expected if the first run suffices, what was already sent included.
    continuation : expected for each time that the run goes on because its certificate misses the target.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3)
    >>> isinstance(plan.method, hgp.methods.Method), plan.iterations >= 1, plan.error <= 1e-3
    (True, True, True)
    """

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    traffic: Traffic
    error: float
    target: float
    relative: bool
    found: Found
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
        """The averaging of the run, over graphs that come after those that were used to find constants."""
        return push_sum_for(self.net.after(self.found.graphs), self.steps)

    def run(
        self, *, certify: bool = True, by_clients: bool = False, against: str = "solution", **certificate: Any
    ) -> Outcome:
        """Run the plan and certify it; go on where the certificate misses the target.

        Gradient tracking goes on where it stands, another method by a cycle of refinement: w is averaged again and the
        method solves for what is left. A run that diverges is begun again with a smaller step (a wider interval), one
        that has grown for want of agreement between clients with longer calls. Where a budget was given, a run goes on
        only within it; what clients send for a certificate of their own comes on top. Of all that was certified, the
        best is returned.

        Parameters
        ----------
        certify : whether to bound the error; without, the run ends as planned.
        by_clients : whether the clients compute the bound themselves, over the network and counted, and decide by it;
            they do in any case where some live in other processes.
        against : what the target is about. "solution": the hyper-gradient at the exact inner solution, where Lipschitz
            constants of the problem tell how far x may be from it, and the formula at the given x elsewhere. "x": the
            formula at the given x in any case. A run can only reduce its distance from the formula at x: where x alone
            exceeds the target, it stops once that distance is below the target, and `met` is False.
        certificate : options of `hgp.certify`, such as `strong_convexity`.

        Returns
        -------
        Outcome: an Estimate with its certificate, the bound in units of the target, what it is against, and whether it
        is met; one that is not warns, says by how much, and whether the run or x is the cause.

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

        certify, by_clients = validation.boolean("certify", certify), validation.boolean("by_clients", by_clients)
        if not isinstance(self.net, Network):
            raise ValueError("plan: read from a file, which keeps problem and network in words; needed one of hgp.plan")
        at_solution = validation.choice("against", against, AGAINST) == "solution"
        elsewhere = self.net.clients != slice(0, self.net.n)
        return carry_out(self, certify, by_clients or elsewhere, at_solution, certificate)

    def __str__(self) -> str:
        found, unit = self.found, "of the hyper-gradient" if self.relative else "absolute"
        steps = f"S = {self.steps}" if isinstance(self.steps, int) else f"S from {self.steps[0]} to {min(self.steps)}"
        known = f"{found.products} products of the mean Hessian" if found.products else "the clients' own Hessians"
        others = ", ".join(f"{name} {floats:.2g}" for name, floats in self.compared[1:4])
        lines = [
            f"plan for an error of {self.target:.1e} ({unit})" + self._within(),
            f"  {self.method!r}, {steps}, {self.iterations} iterations",
            f"  expected: error {self.error:.1e}, about {self.traffic.floats:.3g} floats, of which"
            f" {found.traffic.floats:.3g} are already sent;",
            f"            {self.first.floats:.3g} if the first run suffices, and {self.continuation.floats:.3g} more"
            " for each continuation",
            f"  because: spectrum [{found.low:.3g}, {found.high:.3g}] from {known}, clients apart by {found.zeta:.2g},",
            f"           a round of Push-Sum leaves {found.tau:.2g} of a disagreement",
        ]
        return "\n".join([*lines, f"  others would need, counted alike: {others} floats"] if others else lines)

    def _within(self) -> str:
        return "" if self.budget is None else f", the least within {self.budget:.3g} floats"


def method_name(method: Method) -> str:
    """The name by which methods are compared."""
    inner = getattr(method, "method", None)
    cycles = getattr(method, "cycles", None)
    return f"{type(inner).__name__} × {cycles}" if inner is not None else type(method).__name__


# ----------------------------------------------------------------------------------------------------
# `hgp.plan`: which method, S and M for a given accuracy.


LOOSEST = 0.5  # relative error of a plan
TIGHTEST = 1e4  # times the dtype's rounding: the smallest error that a budget is spent for
WORTH = 5.0  # a pilot is made where the plan without it would need so many times its floats
NARROW = 4.0  # high/low of the clients' own interval below which a pilot has nothing to gain


def plan(
    problem: Problem,
    x: Array,
    lam: Array,
    net: Network,
    target: float | None = None,
    *,
    budget: float | None = None,
    relative: bool = True,
    use_pilot: bool | None = None,
) -> Plan:
    """Choose method, S and M for a target error, or for a budget of floats, by what clients can find out.

    Every client looks at its own Hessian, one conversation of scalars tells all of them the spectrum's bounds and how
    fast the network averages (`Plan.found`), and in a pilot a few averaged products narrow the spectrum of the mean
    Hessian. Models of the methods (`hgp_ref.planning.planner`, `tracking_model`) then say what each would need; the
    cheapest is the plan. Nothing of it is certain before `plan.run()` certifies.

    Parameters
    ----------
    problem : client costs.
    x, lam : (n, d_x) and (n, d_lam).
    net : the network; its first graphs are used to find constants, the run goes on after them.
    target : error to reach: relative to the norm of the hyper-gradient, or absolute. 1e-4 without a budget.
    budget : floats that may be sent in all, in place of a target: the plan is the most accurate one within it.
    relative : whether the target is relative.
    use_pilot : whether to make a pilot; by default where it promises to pay.

    Returns
    -------
    Plan, with `method`, `steps`, `iterations`, expected `error` and `traffic`; `print(plan)` says why.

    Raises
    ------
    TypeError, ValueError
        x or λ does not fit the problem; target and budget must be positive and not be given together.
    ValueError
        No positive lower bound of the mean Hessian can be known, or the budget is too small for any plan.

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
    validation.same_kind(x=x, lam=lam)
    validation.shape("x", x, (normal.n_clients, normal.dim_x), "(n, d_x)", run_axes=False)
    validation.shape("lam", lam, (normal.n_clients, normal.dim_lam), "(n, d_lam)", run_axes=False)
    validation.finite("x", x)
    validation.finite("lam", lam)
    check_network(net)
    if len(range(net.n)[net.clients]) != normal.n_clients:
        raise ValueError(f"net: {net.n} clients given, needed {normal.n_clients} as in problem")
    relative = validation.boolean("relative", relative)
    if target is not None and budget is not None:
        raise ValueError(f"budget={budget!r} given beside target={target!r}, needed one of them")
    target = None if budget is not None else validation.positive("target", 1e-4 if target is None else target)
    budget = None if budget is None else validation.positive("budget", budget)
    use_pilot = None if use_pilot is None else validation.boolean("use_pilot", use_pilot)
    xp = array_namespace(x)
    x, lam = (xp.asarray(detached(a), copy=True) for a in (x, lam))  # the plan's own: it may be run later
    known, average = find(normal, x, lam, net, with_size=not relative)
    d, eps = normal.dim_x, float(np.finfo(host_dtype(x)).eps)
    goal = _goal(target, relative, known, eps)
    if known.high > 0 and (use_pilot or (use_pilot is None and _pilot_pays(known, goal, d))):
        known = pilot(known, average, normal, x, lam)
        goal = _goal(target, relative, known, eps)
    if not known.high > 0:
        raise ValueError(
            f"{NOT_CONVEX}: clients' largest eigenvalues average to {known.high:.3g}, so that it has no positive one"
        )
    if not known.low > 0:
        seen = (
            f"{known.products} averaged products saw an eigenvalue of {known.low:.3g}"
            if known.products
            else f"clients' smallest eigenvalues average to {known.low:.3g}: needed use_pilot=True"
        )
        raise ValueError(
            f"problem: the mean Hessian has no known positive lower bound ({seen}); needed a mean inner cost that is "
            "strongly convex here"
        )
    edges = max(net.expected_edges - net.n, 1.0) if net.n > 1 else 0.0
    if budget is not None:
        goal = _affordable(known, d, edges, budget, TIGHTEST * eps)
    if not candidates(known, goal):
        raise ValueError(
            f"problem: the spectrum of the mean Hessian must allow a run of at most {MOST_ITERATIONS} iterations, got "
            f"about [{known.low:.3g}, {known.high:.3g}]; rescale or regularize the inner cost, or ask for less"
        )
    chosen = _chosen(candidates(known, goal), goal, target, relative, known, edges, problem, x, lam, net)
    return chosen if budget is None else replace(chosen, budget=budget)


def _goal(target: float | None, relative: bool, known: Found, eps: float) -> float:
    """The relative error to plan for; an absolute target is one of how large the hyper-gradient may be."""
    if target is None:
        return 1e-4
    scale = 1.0 if relative or known.size is None else known.size / max(known.low, 1e-300)
    return float(np.clip(target / scale if scale > 0 else LOOSEST, eps, LOOSEST))


def _pilot_pays(known: Found, goal: float, d: int) -> bool:
    """Whether a pilot is cheap beside what the plan without it needs, and the interval wide enough to be narrowed."""
    if not known.low > 0:
        return True
    if known.high <= NARROW * known.low:
        return False
    rounds = products_worth(known, d) * known.rounds_to(ACCURATE)
    return _floats(known, goal, d) > WORTH * rounds * (d + 1)


def _floats(known: Found, goal: float, d: int) -> float:
    """What the cheapest candidate needs, per edge; infinite where there is none."""
    return min((c.floats(d) for c in candidates(known, goal)), default=math.inf)


def _affordable(known: Found, d: int, edges: float, budget: float, tightest: float) -> float:
    """The smallest relative error that can be had; ValueError if none can."""
    grid = np.geomspace(LOOSEST, tightest, 57)
    allowed = bisect_left(
        grid, True, key=lambda goal: _floats(known, goal, d) * edges > budget - known.traffic.floats
    )  # needs grow as errors shrink
    if allowed > 0:
        return float(grid[allowed - 1])
    if math.isinf(_floats(known, LOOSEST, d)):
        return LOOSEST  # no plan whatever the budget: the caller says why
    needed = known.traffic.floats + _floats(known, LOOSEST, d) * edges
    raise ValueError(
        f"budget={budget:g} given, of which {known.traffic.floats} floats are spent on finding constants; needed about "
        f"{needed:.4g} for an error of {LOOSEST:g}"
    )


def _chosen(
    offers: Sequence[Candidate],
    goal: float,
    target: float | None,
    relative: bool,
    known: Found,
    edges: float,
    problem: Problem,
    x: Array,
    lam: Array,
    net: Network,
) -> Plan:
    """The cheapest of the candidates as a plan."""
    d = x.shape[-1]
    ordered = sorted(offers, key=lambda c: (c.floats(d) * edges, c.iterations))
    best, scale = ordered[0], 1.0 if known.size is None else known.size / known.low

    def expected(rounds: float) -> Traffic:
        return Traffic.of(round(rounds * edges), best.vectors * d + 1, host_dtype(x).itemsize, round(rounds))

    spent = known.traffic.floats
    return Plan(
        method=best.method,
        steps=best.steps,
        iterations=best.iterations,
        traffic=known.traffic + expected(best.margin * best.rounds),
        error=best.error * scale,
        target=goal * scale if target is None else target,
        relative=relative,
        found=known,
        compared=tuple((method_name(c.method), spent + c.floats(d) * edges) for c in ordered),
        problem=problem,
        x=x,
        lam=lam,
        net=net,
        first=known.traffic + expected(best.rounds),
        continuation=expected(best.further),
    )


# ----------------------------------------------------------------------------------------------------
# What a certificate says of a planned run: one number over all clients, in the units of the target.


MARGIN = 0.5  # of the target, which a continuation aims at
ROOM = 0.9  # of the target, up to which what x adds leaves room for the run
ROUNDED = 1e-13  # relative error of norms over all clients, at most


@dataclass(frozen=True)
class Judged:
    """What a certificate says of an estimate, over all clients and in the units of the target."""

    bound: float  # against what `against` names
    at_x: float  # against the formula at the given x, which is what a run can improve
    from_x: float  # of `bound`, what x may add by not being the inner solution; no run can reduce it
    against: str

    def done(self, target: float) -> bool:
        """Whether the target is met, or is out of reach because of x and met by the run."""
        return self.bound <= target or (self.at_x <= target and self.from_x > ROOM * target)

    def left_to_gain(self, target: float) -> float:
        """The share of `at_x` at which the target would be met, by MARGIN."""
        room = target - self.from_x if self.from_x <= ROOM * target else target
        return MARGIN * room / self.at_x if 0 < self.at_x < math.inf else 1.0


def judge(plan: Plan, certificate: Certificate, est: Estimate, by_clients: bool, at_solution: bool) -> Judged:
    """The certificate of an estimate in the units of the target.

    `at_solution`: against the hyper-gradient at the exact inner solution where the certificate knows what x adds. Where
    only someone who sees all clients knows, and the clients judge, the bound is ∞.
    """
    own = certificate.decentralised if by_clients else certificate.centralised
    term = certificate.decentralised_inexact if by_clients else certificate.inexact
    if own is None:
        return Judged(math.inf, math.inf, 0.0, certificate.against if at_solution else AT_POINT)
    at_x = _in_units(plan, own, est)
    if not at_solution or certificate.against == AT_POINT:
        return Judged(at_x, at_x, 0.0, AT_POINT)
    if term is None:
        return Judged(math.inf, at_x, math.inf, certificate.against)
    return Judged(_in_units(plan, own + term, est), at_x, _in_units(plan, term, est), certificate.against)


def _in_units(plan: Plan, per_client: np.ndarray, est: Estimate) -> float:
    """Bounds of clients' errors ‖v_i − d_i‖, (n,), as one over all clients in the units of the target.

    As a share of ‖d‖ ≥ ‖v‖ − bound where the target is relative: ∞ where d is not told from 0. Below the normal
    numbers sizes are known to a few units of the smallest number, which `blur` counts. Relative errors are not defined
    where v = 0 and no normal number is left of the bound: the hyper-gradient is 0 to working precision then, and the
    bound itself is returned.
    """
    kind = np.finfo(host_dtype(plan.x))
    blur = (plan.net.n + 4) * float(np.finfo(np.float64).smallest_subnormal)
    bound = (1 + ROUNDED) * _size(plan, per_client) + blur
    if not plan.relative:
        return bound
    size = _size(plan, est.value)
    if size == 0 and bound <= 4 * plan.net.n * float(kind.smallest_normal):
        return bound
    least = (1 - ROUNDED) * size - blur - bound
    return (1 + ROUNDED) * bound / least if least > 0 else math.inf


def _size(plan: Plan, rows: Array) -> float:
    """‖v‖ over all clients, wherever they live, of the rows (n, ...) of those here; squares stay within range."""
    channel, each = connect(plan.net), norms(host_float64(rows).reshape(rows.shape[0], -1))
    top = float(channel.max_over_clients(each))
    if not 0 < top < math.inf:
        return top
    return top * math.sqrt(plan.net.n * float(channel.mean_over_clients((each / top)[:, None] ** 2)[0, 0]))


# ----------------------------------------------------------------------------------------------------
# Carrying out a plan: run, certify, go on.


ATTEMPTS = 8  # times that a run is begun again or goes on
MOST = 10  # times the iterations that were expected, of a continuation
LONGER = 2.0  # a tracking run may take so many times the iterations that were expected, if its tolerance asks for it
GAIN, PATIENCE = 0.7, 3  # so often in a row may a continuation leave more than this share of the bound
FINEST = 8  # times the steps of their first certificate that clients may take
CERTIFICATE = ("lipschitz", "strong_convexity", "max_rounds", "matrix_free")  # options that are handed on


def carry_out(plan: Plan, certified: bool, by_clients: bool, at_solution: bool, options: dict[str, Any]) -> Outcome:
    """The run of a plan; see `Plan.run`."""
    if certified:
        _check_certificate(plan, by_clients, options)
    stages: list[Stage] = []
    est, sent, method = _first_run(plan, stages)
    best, certificate, judged, continued, stalled = est, None, Judged(math.inf, math.inf, 0.0, ""), 0, 0
    while certified:
        latest, now, cost = _certified(plan, est, sent, by_clients, at_solution, continued, options)
        sent, stalled = sent + cost, stalled + 1 if now.at_x > GAIN * judged.at_x else 0
        if certificate is None or now.at_x <= judged.at_x:
            best, certificate, judged = est, latest, now
        if judged.done(plan.target) or continued == ATTEMPTS or stalled == PATIENCE:
            break
        further = _further(plan, best, sent, method, judged, continued)
        if stalled:  # the interval may have been too narrow
            further = replace(further, method=gentler(further.method))
        if plan.budget is not None and sent.floats + further.floats(plan) > plan.budget:
            break
        est, more, method = _go_on(plan, best, sent, further, stages)
        sent, continued = sent + more, continued + 1
    kept = {field.name: getattr(best, field.name) for field in fields(Estimate)}
    kept |= {"traffic": sent, "iterations": sum(stage.iterations for stage in stages)}
    if not certified:
        return Outcome(**kept, stages=tuple(stages), target=plan.target, relative=plan.relative)
    out = Outcome(
        **kept,
        certificate=certificate,
        bound=judged.bound,
        met=bool(judged.bound <= plan.target),
        continued=continued,
        against=judged.against,
        bound_at_x=judged.at_x,
        stages=tuple(stages),
        target=plan.target,
        relative=plan.relative,
    )
    if not out.met:
        warnings.warn(_shortfall(plan, out), RuntimeWarning, stacklevel=3)
    return out


def _shortfall(plan: Plan, out: Outcome) -> str:
    """What is said of an outcome that misses its target: whether the run or x is to blame."""
    asked = "asked for" if plan.budget is None else "expected within the budget"
    text = (
        f"the certified error is {out.bound:.2e} where {plan.target:.2e} was {asked}; continued {out.continued} times"
    )
    if out.bound_at_x is None or not out.bound_at_x <= plan.target:
        return text
    return (
        f"{text}: the run is certified to {out.bound_at_x:.2e} against {AT_POINT}, the rest is what x may add by not "
        "being the exact inner solution; train x further, or pass against='x' to judge the run alone"
    )


def _check_certificate(plan: Plan, by_clients: bool, options: dict[str, Any]) -> None:
    """What cannot be certified is said before anything is sent for it."""
    unknown = [name for name in options if name not in CERTIFICATE]
    if unknown:
        raise TypeError(f"{unknown[0]}: no option of hgp.certify for plans, needed some of {', '.join(CERTIFICATE)}")
    if by_clients and plan.found.own_low <= 0 and options.get("strong_convexity") is None:
        raise ValueError(
            f"by_clients: clients' smallest Hessian eigenvalues average to {plan.found.own_low:.3g}, so that they "
            "cannot bound that of the mean by themselves; needed strong_convexity=, or by_clients=False"
        )


def _first_run(plan: Plan, stages: list[Stage]) -> tuple[Estimate, Traffic, Method]:
    """The planned run, begun again with gentler settings where it diverges; everything that was sent is counted."""
    sent, method = plan.found.traffic, plan.method
    for attempt in range(ATTEMPTS + 1):
        avg = push_sum_for(plan.net.after(sent.rounds), plan.steps)
        try:
            est = _run(plan, avg, method, *_length(plan, method))
            stages.append(Stage(repr(method), est.iterations, avg.traffic))
            return est, sent + avg.traffic, method
        except DivergenceError as error:
            stages.append(Stage(repr(method), error.steps, avg.traffic, diverged=True))
            if attempt == ATTEMPTS:
                raise
            sent, method = sent + avg.traffic, gentler(method)
    raise AssertionError("unreachable")


def _length(plan: Plan, method: Method) -> tuple[int, float | None]:
    """Iterations and tolerance of the first run: gradient tracking may take longer, and ends when little is left."""
    if not isinstance(method, Tracking):
        return plan.iterations, None
    longer = LONGER if plan.budget is None else 1.0
    return math.ceil(longer * plan.iterations), min(_relative_target(plan) / 2, 0.5)


def _relative_target(plan: Plan) -> float:
    """The target as a share of how large v − ∂_λ f may be, no smaller than rounding."""
    scale = 1.0 if plan.relative else plan.found.low / max(plan.found.size or 0.0, 1e-300)
    return max(plan.target * scale, float(np.finfo(host_dtype(plan.x)).eps))


def _run(plan: Plan, avg: PushSum, method: Method, iterations: int, tol: float | None, **start: Any) -> Estimate:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # the certificate judges
        return hypergradient(
            plan.problem, plan.x, plan.lam, avg, method=method, iterations=iterations, tol=tol, **start
        )


def gentler(method: Method) -> Method:
    """The same method with half the step (the series: two thirds), or an interval wider by half at both ends."""
    if isinstance(method, Refined):
        return Refined(gentler(method.method), method.cycles, method.steps)
    if isinstance(method, Tracking):
        return Tracking(method.given / 2 if method.given else None)
    if isinstance(method, Chebyshev):
        return Chebyshev(method.low / 1.5 if method.low else None, method.high * 1.5 if method.high else None)
    if isinstance(method, Neumann):
        return Neumann(method.eta / 1.5)
    return method


def _certified(
    plan: Plan,
    est: Estimate,
    sent: Traffic,
    by_clients: bool,
    at_solution: bool,
    continued: int,
    options: dict[str, Any],
) -> tuple[Certificate, Judged, Traffic]:
    """The certificate of an estimate, what it says, and what clients sent for it.

    Clients know the inner gradient, and with it what x may add, up to the disagreement of its average. Where that is
    all that is missing they certify again with twice the steps, as long as that pays.
    """
    certificate, cost = _certificate(plan, est, sent, by_clients, continued, options)
    judged, finer = judge(plan, certificate, est, by_clients, at_solution), 2
    while by_clients and judged.at_x <= plan.target < judged.bound and finer <= FINEST:
        again, more = _certificate(plan, est, sent + cost, by_clients, continued, options, finer)
        better, cost, finer = judge(plan, again, est, by_clients, at_solution), cost + more, 2 * finer
        pays = better.from_x <= GAIN * judged.from_x
        if better.bound <= judged.bound:
            certificate, judged = again, better
        if not pays:
            break
    return certificate, judged, cost


def _certificate(
    plan: Plan, est: Estimate, sent: Traffic, by_clients: bool, continued: int, options: dict[str, Any], finer: int = 1
) -> tuple[Certificate, Traffic]:
    """The certificate of an estimate, with `finer` times the steps, and what clients sent for it.

    Over links that delay, averages count from the oldest share under way on: that takes more steps, and none knows how
    many.
    """
    if not by_clients:
        return certify(plan.problem, plan.x, plan.lam, est, **options), Traffic()
    steps = finer * plan.found.rounds_to(min(_relative_target(plan) / FLOOR, 0.5))
    avg = push_sum_for(plan.net.after(sent.rounds), steps)
    if isinstance(avg, RobustPushSum):
        avg = RobustPushSum(avg.net, (2 + continued) * steps)
    certificate = certify(plan.problem, plan.x, plan.lam, est, avg, first_call=0, **options)
    return certificate, certificate.traffic or Traffic()


@dataclass(frozen=True)
class _Further:
    """How a run goes on: a method from a start, over S_0, S_1, … steps."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    tol: float | None
    start: dict[str, Any]

    def floats(self, plan: Plan) -> float:
        """What this is expected to send at most."""
        calls = self.iterations + ("w0" in self.start)
        given = (self.steps,) if isinstance(self.steps, int) else self.steps
        restarts = 0
        if isinstance(self.method, Refined):  # two averages at each restart, one of them in place of a call
            at = np.atleast_1d(self.method.steps).tolist()
            restarts = 2 * sum((at + at[-1:] * self.method.cycles)[: self.method.cycles - 1])
            calls -= self.method.cycles - 1
        rounds = restarts + sum(given[:calls]) + given[-1] * max(0, calls - len(given))
        vectors = 2 if isinstance(self.method, Tracking) else 1
        return rounds * max(plan.net.expected_edges - plan.net.n, 0.0) * (vectors * plan.x.shape[-1] + 1)


def _further(plan: Plan, est: Estimate, sent: Traffic, method: Method, judged: Judged, continued: int) -> _Further:
    """How to gain about what is missing."""
    if math.isinf(judged.at_x) and est.residual_ratio > 1:
        return _again(plan, continued)
    share = min(max(judged.left_to_gain(plan.target), 1e-12), 0.5) if math.isfinite(judged.at_x) else 0.1
    if isinstance(method, Tracking) and est.carried is None and plan.found.low > 0:  # part of it is under way
        method = Chebyshev(plan.found.low, plan.found.high)
    if isinstance(method, Tracking):
        rate = min(max(float(est.residual_ratio), 1e-300) ** (1 / est.iterations), 0.999)
        M = min(math.ceil(LONGER * max(2.0, math.log(share) / math.log(rate))), MOST * plan.iterations)
        start: dict[str, Any] = {"w0": est.w} if est.carried is None else {"resume": est}
        further = _Further(method, plan.steps, M, share, start)
        afford = 1.0 if plan.budget is None else (plan.budget - sent.floats) / max(further.floats(plan), 1.0)
        return further if afford >= 1 else replace(further, iterations=max(1, math.floor(afford * M)))
    inner = method.method if isinstance(method, Refined) else method
    steps, M = refinement_cycle(plan.found, inner, share, _relative_target(plan), continued)
    return _Further(inner, steps, M, None, {"w0": est.w})


def _again(plan: Plan, continued: int) -> _Further:
    """The planned run from the beginning with longer calls, where disagreement between clients has made it grow."""
    longer = 2 ** (continued + 1)
    steps = longer * plan.steps if isinstance(plan.steps, int) else tuple(longer * S for S in plan.steps)
    method = plan.method
    if isinstance(method, Refined):
        method = Refined(method.method, method.cycles, (longer * np.atleast_1d(method.steps)).tolist())
    return _Further(method, steps, plan.iterations, None, {})


def _go_on(
    plan: Plan, est: Estimate, sent: Traffic, further: _Further, stages: list[Stage]
) -> tuple[Estimate, Traffic, Method]:
    """The estimate after the run has gone on, what that sent, and the method of what may follow."""
    avg = push_sum_for(plan.net.after(sent.rounds), further.steps)
    try:
        more = _run(plan, avg, further.method, further.iterations, further.tol, **further.start)
        stages.append(Stage(repr(further.method), more.iterations, avg.traffic))
        return more, avg.traffic, further.method
    except DivergenceError as error:  # what was there before still stands
        stages.append(Stage(repr(further.method), error.steps, avg.traffic, diverged=True))
        return est, avg.traffic, gentler(further.method)
