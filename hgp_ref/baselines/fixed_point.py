"""The hyper-gradient of a baseline at a fixed point, and the traffic it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace
from hgp_ref.baselines.driver import (
    DIRECTED,
    SERVER,
    STATIC,
    Auxiliary,
    HypergradientEstimator,
    LocalSeries,
    Points,
    one_round,
)
from hgp_ref.baselines.nested import JacobianTracking, MeanHessian, RandomTermMean
from hgp_ref.baselines.single_loop import Penalty
from hgp_ref.errors import DivergenceError
from hgp_ref.methods.descent import Diffusion, Tracked, read_rule
from hgp_ref.methods.driver import check_point
from hgp_ref.mixing import Traffic, run_round, start_averaging
from hgp_ref.networks import Network
from hgp_ref.problems import Problem, as_problem
from hgp_ref.results import Result

ESTIMATORS: dict[str, tuple[str, Callable[..., HypergradientEstimator]]] = {
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
class FixedPointEstimate(Result):
    """The hyper-gradient of a baseline at a fixed point, after the last iteration and along the way.

    Attributes
    ----------
    history : (entries, n, d_lam), v after each of `iterations`.
    floats, rounds : (entries,), cumulative.
    """

    value: Array
    history: Array
    iterations: np.ndarray
    floats: np.ndarray
    rounds: np.ndarray
    traffic: Traffic
    method: str


def at_point(
    problem: Problem,
    x: Array,
    lam: Array,
    net: Network,
    method: str,
    *,
    iterations: int = 100,
    every: int = 1,
    callback: Callable[[int, Array], object] | None = None,
    **settings: Any,
) -> FixedPointEstimate:
    """The hyper-gradient that a baseline computes, with x and λ fixed and on full batches: only its estimator moves.

    Parameters
    ----------
    x : "fab" needs the inner solution.
    method : the name of a baseline. Each has its own `settings`:
        "fednest" (terms, ell, seed, draw), "dbo" (step, shared, tracked), "gbdsbo" (step, ell, terms, shared),
        "mdbo" and "vrdbo" (terms, ell), "ma_dsbo" (step), "dsoba" (step), "sparkle" (rule, step),
        "fab" (step, penalty, nodes).
    every : how often v is recorded.
    callback : called as callback(m, v) whenever v is recorded; a true result stops.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam, net = np.ones((4, 3)), np.zeros((4, 2)), hgp.networks.StaticUndirected(n=4, seed=1)
    >>> est = hgp.baselines.at_point(problem, x, lam, net, "dbo", iterations=400, step=0.5)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-10)
    True
    >>> edges = len(net.edges(1)[0]) - 4
    >>> est.traffic.floats == 400 * edges * (2 * 3 * 8 + 8)  # two matrices of 3 × (4·2), and the tracked products
    True
    """
    network, make = ESTIMATORS[validation.choice("method", method, ESTIMATORS)]
    estimator = _configured(method, make, settings)
    problem = as_problem(problem, needs=("outer_grad", "linearize", "inner_grad"))
    x, lam = check_point(problem, x, lam)
    M = validation.integer("iterations", iterations, 1, validation.LONGEST)
    every = validation.integer("every", every, 1, validation.LONGEST)
    if callback is not None:
        validation.function("callback", callback)
    mixer = start_averaging([one_round(method, network, net)], problem.n_clients, x, M)
    point = Points(problem, x).next(x, lam)
    state, values, marks, floats, rounds = estimator.init(point), [], [], [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for m in range(1, M + 1):
            (state,) = run_round(mixer, estimator.talk(state, point))
            if m % every and m != M:
                continue
            values.append(estimator.value(state, point))
            if not all_finite(values[-1]):
                raise DivergenceError(f"diverged: the hyper-gradient of {method} is not finite after {m} iterations")
            marks.append(m)
            floats.append(int(mixer.channel.traffic.floats))
            rounds.append(int(mixer.channel.traffic.rounds))
            if callback is not None:
                answer = callback(m, array_namespace(x).asarray(values[-1], copy=True))
                if validation.returned_bool("callback", answer):
                    break
    return FixedPointEstimate(
        value=values[-1],
        history=array_namespace(x).stack(values),
        iterations=np.array(marks),
        floats=np.array(floats, dtype=np.int64),
        rounds=np.array(rounds, dtype=np.int64),
        traffic=mixer.record_traffic(),
        method=method,
    )


def _configured(
    method: str, make: Callable[..., HypergradientEstimator], settings: dict[str, Any]
) -> HypergradientEstimator:
    """make(**settings); TypeError if a setting is missing or unknown."""
    known = signature(make).parameters.values()
    required = [p.name for p in known if p.default is Parameter.empty]
    optional = [p.name for p in known if p.default is not Parameter.empty]
    if not set(required) <= set(settings) <= {*required, *optional}:
        raise TypeError(
            f"method={method!r} takes the settings {', '.join(required)}"
            + (f" and optionally {', '.join(optional)}" if optional else "")
            + f", got {', '.join(settings) or 'none'}"
        )
    return make(**settings)
