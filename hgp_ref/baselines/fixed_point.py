"""The hyper-gradient of a bilevel method at a point that stays: what it finds, and what it sends for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace
from hgp_ref.baselines.driver import DIRECTED, SERVER, STATIC, Auxiliary, Hyper, LocalSeries, Points, one_round
from hgp_ref.baselines.nested import JacobianTracking, MeanHessian, RandomTermMean
from hgp_ref.baselines.single_loop import Penalty
from hgp_ref.errors import DivergenceError
from hgp_ref.methods.driver import check_point
from hgp_ref.methods.spectrum import Diffusion, Tracked, read_rule
from hgp_ref.mixing import Traffic, exchange, open_mean
from hgp_ref.networks import Network
from hgp_ref.problems import Problem, as_problem
from hgp_ref.results import Result

HYPERS: dict[str, tuple[str, Callable[..., Hyper]]] = {
    "fednest": (SERVER, RandomTermMean),
    "dbo": (STATIC, JacobianTracking),
    "gbdsbo": (STATIC, MeanHessian),
    "mdbo": (STATIC, LocalSeries),
    "vrdbo": (STATIC, LocalSeries),
    "ma_dsbo": (STATIC, lambda step: Auxiliary(Tracked(step))),
    "dsoba": (STATIC, lambda step: Auxiliary(Diffusion(step))),
    "sparkle": (STATIC, lambda rule, step: Auxiliary(read_rule("rule", rule, step))),
    "fab": (DIRECTED, Penalty),
}


@dataclass(frozen=True)
class Frozen(Result):
    """v after the last iteration and after every `every`-th, with what was sent until then.

    Attributes
    ----------
    value : (n, d_lam), the estimate at the end.
    history : (entries, n, d_lam), at the iterations looked at.
    iterations : (entries,), these.
    floats : (entries,), cumulative.
    rounds : (entries,), cumulative.
    traffic : in all.
    method : its name.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam, net = np.ones((4, 3)), np.zeros((4, 2)), hgp.networks.StaticUndirected(n=4, seed=1)
    >>> frozen = hgp.baselines.at_point("dbo", problem, x, lam, net, iterations=4, every=2, step=0.5)
    >>> frozen.iterations.tolist(), frozen.history.shape
    ([2, 4], (2, 4, 2))
    """

    value: Array
    history: Array
    iterations: np.ndarray
    floats: np.ndarray
    rounds: np.ndarray
    traffic: Traffic
    method: str


def at_point(
    method: str,
    problem: Problem,
    x: Array,
    lam: Array,
    net: Network,
    iterations: int = 100,
    every: int = 1,
    callback: Callable[[int, Array], object] | None = None,
    **settings: Any,
) -> Frozen:
    """The hyper-gradient that a bilevel method of others forms, with x and λ frozen: only what approaches it moves.

    Full batches. The methods whose iteration takes vectors and means alone are also `hgp.methods`; here are all of
    them, those that send matrices included, which travel as columns of one message.

    Parameters
    ----------
    method : its name, with the settings it takes:
        "fednest" (terms, ell, seed, draw), "dbo" (step, shared, tracked), "gbdsbo" (step, ell, terms, shared),
        "mdbo" and "vrdbo" (terms, ell), "ma_dsbo" (step), "dsoba" (step), "sparkle" (rule, step),
        "fab" (step, penalty, nodes).
    problem, x, lam : as for `hgp.hypergradient`; "fab" needs x to be the inner solution.
    net : as the method needs it.
    iterations, every : how many, and how often v is kept.
    callback : called as callback(m, v) wherever v is kept; a true result stops.

    Returns
    -------
    Frozen. What does not stay finite raises DivergenceError.

    Raises
    ------
    TypeError, ValueError
        The method is not known or does not take such settings; x and λ must fit the problem.
    DivergenceError
        What the method holds is not finite any more.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam, net = np.ones((4, 3)), np.zeros((4, 2)), hgp.networks.StaticUndirected(n=4, seed=1)
    >>> est = hgp.baselines.at_point("dbo", problem, x, lam, net, iterations=400, step=0.5)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-10)
    True
    >>> edges = len(net.edges(1)[0]) - 4
    >>> est.traffic.floats == 400 * edges * (2 * 3 * 8 + 8)  # two matrices of 3 × (4·2), and the tracked products
    True
    """
    network, make = HYPERS[validation.choice("method", method, HYPERS)]
    hyper = _hyper(method, make, settings)
    problem = as_problem(problem, needs=("outer_grad", "linearize", "inner_grad"))
    x, lam = check_point(problem, x, lam)
    M = validation.integer("iterations", iterations, 1, validation.LONGEST)
    every = validation.integer("every", every, 1, validation.LONGEST)
    if callback is not None:
        validation.function("callback", callback)
    mean = open_mean([one_round(method, network, net)], problem.n_clients, x, M)
    point = Points(problem, x).next(x, lam)
    state, values, marks, floats, rounds = hyper.begin(point), [], [], [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for m in range(1, M + 1):
            (state,) = exchange(mean, hyper.talk(state, point))
            if m % every and m != M:
                continue
            values.append(hyper.value(state, point))
            if not all_finite(values[-1]):
                raise DivergenceError(f"diverged: {method} holds NaN or infinite values after {m} iterations")
            marks.append(m)
            floats.append(int(mean.channel.traffic.floats))
            rounds.append(int(mean.channel.traffic.rounds))
            if callback is not None:
                told = callback(m, array_namespace(x).asarray(values[-1], copy=True))
                if validation.returned_bool("callback", told):
                    break
    return Frozen(
        value=values[-1],
        history=array_namespace(x).stack(values),
        iterations=np.array(marks),
        floats=np.array(floats, dtype=np.int64),
        rounds=np.array(rounds, dtype=np.int64),
        traffic=mean.charge(),
        method=method,
    )


def _hyper(method: str, make: Callable[..., Hyper], settings: dict[str, Any]) -> Hyper:
    """What `make` makes of the settings; TypeError with the names it takes where one is missing or too many."""
    known = signature(make).parameters.values()
    needed = [p.name for p in known if p.default is Parameter.empty]
    may = [p.name for p in known if p.default is not Parameter.empty]
    if not set(needed) <= set(settings) <= {*needed, *may}:
        given = ", ".join(settings) or "nothing"
        raise TypeError(
            f"method={method!r}: {given} given, needed {', '.join(needed)}"
            + (f"; may be: {', '.join(may)}" if may else "")
        )
    return make(**settings)
