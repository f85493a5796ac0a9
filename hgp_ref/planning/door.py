"""`hgp.plan`: which method, S and M for a given accuracy."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.base import check_network
from hgp_ref.backend import Array, array_namespace, detached, host_dtype
from hgp_ref.channels import Traffic
from hgp_ref.networks import Network
from hgp_ref.planning.candidates import MOST_ITERATIONS, Candidate, candidates
from hgp_ref.planning.enquiry import ACCURATE, NOT_CONVEX, Found, find, pilot, products_worth
from hgp_ref.planning.result import Plan, method_name
from hgp_ref.problems import Problem, as_problem

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
    Hessian. Models of the methods (`hgp_ref.planning.candidates`, `tracking_model`) then say what each would need; the
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
    arguments.same_kind(x=x, lam=lam)
    arguments.shape("x", x, (normal.n_clients, normal.dim_x), "(n, d_x)", run_axes=False)
    arguments.shape("lam", lam, (normal.n_clients, normal.dim_lam), "(n, d_lam)", run_axes=False)
    arguments.finite("x", x)
    arguments.finite("lam", lam)
    check_network(net)
    if len(range(net.n)[net.clients]) != normal.n_clients:
        raise ValueError(f"net: {net.n} clients given, needed {normal.n_clients} as in problem")
    relative = arguments.boolean("relative", relative)
    if target is not None and budget is not None:
        raise ValueError(f"budget={budget!r} given beside target={target!r}, needed one of them")
    target = None if budget is not None else arguments.positive("target", 1e-4 if target is None else target)
    budget = None if budget is None else arguments.positive("budget", budget)
    use_pilot = None if use_pilot is None else arguments.boolean("use_pilot", use_pilot)
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
