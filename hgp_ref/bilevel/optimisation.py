"""The outer loop: λ follows the hyper-gradients that clients estimate together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached
from hgp_ref.bilevel.certified import CertifiedLoop, rule_of
from hgp_ref.bilevel.checkpoint import RunFile, Witness, describe
from hgp_ref.bilevel.loop import (
    Estimator,
    Loop,
    LoopState,
    channel_of,
    check_functions,
    own,
    patience_of,
    place_of,
    start_of,
    trainer,
    update_of,
)
from hgp_ref.bilevel.trajectory import Path
from hgp_ref.bilevel.updates import Update
from hgp_ref.errors import collect_unmet, warn_unmet
from hgp_ref.networks import Network
from hgp_ref.philox import check_seed
from hgp_ref.problems import LogRates, Problem, as_problem
from hgp_ref.progress import bar

TRAIN: Mapping[str, Any] = {"steps": 400, "lr": 1.0}
ESTIMATE: Mapping[str, Any] = {"steps": 5, "iterations": 200}


def optimise(
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int = 20,
    train: Mapping[str, Any] | Callable[..., Any] = TRAIN,
    estimate: Mapping[str, Any] | Callable[..., Any] = ESTIMATE,
    update: Update | None = None,
    project: Callable[[Array], Array] | None = None,
    warm_start: bool = True,
    seed: int = 0,
    *,
    log: bool = False,
    x0: Array | None = None,
    measure: Callable[[Array, Array], float] | None = None,
    patience: int | None = None,
    certify: float | Mapping[str, Any] | None = None,
    file: str | os.PathLike[str] | None = None,
    callback: Callable[[int, Array, Array, float], object] | None = None,
    progress: bool = False,
) -> Path:
    """Minimise F(λ) = Σ_i f_i(x_i(λ), λ_i), x(λ) = argmin_x Σ_i g_i(x, λ_i), along estimated hyper-gradients.

    For k = 0 .. K−1 clients train at λ_k, estimate v_k ≈ d_λ F(λ_k) there and take λ_{k+1} = Π(update(λ_k, v_k)); at
    λ_K they train once more. Each part goes on with the graphs and mini-batches that were not used yet.

    Parameters
    ----------
    problem : client costs, any object that meets `hgp_ref.problems.Problem`.
    net : who hears whom at each step.
    lam : (n, d_lam), λ_0.
    outer_steps : K.
    train : keywords of `sgp`, or a function train(problem, net, lam, x0=, seed=, first_batch=, outer_step=) that
        returns an object with `x` (n, d_x), `traffic` and, where it draws mini-batches, their number as `steps`. Its
        `net` is that of the graphs to come, its `x0` where to start from (None: wherever it likes).
    estimate : keywords of `hypergradient` with `steps` for S, `iterations` for M (0: ∂_λ f alone) and `average`, a
        function of (net, steps) such as `PushSum` (default) or `Gossip`; or a function
        estimate(problem, net, x, lam, seed=, first_batch=, outer_step=) that returns an object with `value` (n, d_lam),
        `traffic` and, where it draws mini-batches, their number as `iterations`.
    update : `Adam(0.1)` by default, or `GradientDescent(lr)`, or an object with `start` and `step` like theirs.
    project : a function λ → λ, applied after each update: `Box`, `NonNegative`, `Simplex` or one's own.
    warm_start : start training at λ_{k+1} from x_k; otherwise always from `x0`.
    seed : of the mini-batches.
    log : update θ = log λ instead of λ, for rates: problem, λ and hyper-gradients inside the loop (also those that
        functions `train` and `estimate` meet) are `LogRates(problem)`, θ and d_θ F. `lam`, `project`, `measure`,
        `callback` and the path speak of λ = exp(θ).
    x0 : (n, d_x), where training starts; by default where `train` likes, zeros for `sgp`.
    measure : a function measure(x, lam) → number, the smaller the better, such as an error on data that neither cost
        sees. `path.best` says where it was smallest, `path.best_x` holds x there.
    patience : end the loop once the measure has not fallen below its smallest for so many steps.
    certify : θ in (0, 1), or dict(theta=, lipschitz=): take only steps that are certified to lower F, raising S, M and
        training only when bound ≤ θ‖v‖ fails; by rules and from numbers that clients have, see
        `hgp_ref.bilevel.certified`. Needs `GradientDescent`, full batches, and a problem with `lipschitz(lam)` (such as
        one with positive L2 rates) unless constants are given.
    file : where to keep the loop after each step. If the file is there, the loop goes on from it; settings, problem and
        λ_0 must be the same (`outer_steps` may grow), and the path is, byte for byte, that of a run in one go. Data of
        built-in problems are compared exactly, other problems by their costs and gradients at one point.
        Functions and objects of one's own are compared by their repr alone.
    callback : called as callback(k, lam, x, outer_cost) after training at λ_k; a true result ends the loop.
    progress : show a bar.

    Returns
    -------
    Path, with `lam` (K+1, n, d_lam), `x`, `outer_cost` (K+1,), `traffic` and what each step took.

    A hyper-gradient that diverges never reaches the update, and a λ at which training fails is stepped back from:
    `hgp_ref.bilevel.loop` says by which rule. Both warn and are noted in `path.steps`.

    Raises
    ------
    TypeError, ValueError
        λ or x0 does not fit the problem, settings are out of their range, or `file` holds another run or more steps
        than are asked for.
    DivergenceError
        The first training diverged: without it there is nothing to go on from.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> net = hgp.networks.RandomDirected(n=3, seed=1)
    >>> path = hgp.bilevel.optimise(problem, net, np.zeros((3, 2)), outer_steps=10, train=dict(steps=100, lr=0.5))
    >>> path.lam.shape, bool(path.outer_cost[-1] < path.outer_cost[0])
    ((11, 3, 2), True)
    """
    problem = as_problem(problem)
    K = validation.integer("outer_steps", outer_steps, 0, validation.LONGEST)
    start = start_of(problem, lam, x0, log)
    patience = patience_of(patience, measure)
    check_functions(project, measure, callback)
    warm_start, progress = validation.boolean("warm_start", warm_start), validation.boolean("progress", progress)
    update, seed = update_of(update), check_seed(seed)
    rule = rule_of(certify, estimate, update)
    kind: Any = Loop if rule is None else partial(CertifiedLoop, rule=rule)
    loop = kind(
        problem=as_problem(LogRates(problem.given)) if log else problem,
        net=net,
        channel=channel_of(net, problem.n_clients),
        train=trainer(train),
        estimate=Estimator(estimate),
        update=update,
        project=project,
        warm_start=warm_start,
        x0=None if x0 is None else detached(x0),
        measure=measure,
        log=log,
    )
    settings = _described(net=net, outer_steps=K, train=train, estimate=estimate, update=update, project=project,
                          warm_start=warm_start, seed=seed, log=log, patience=patience, certify=rule)  # fmt: skip
    present = {name: value is not None for name, value in dict(x0=x0, measure=measure, callback=callback).items()}
    loop.channel.check_same_on_all_ranks("hgp.bilevel.optimise", **settings, **present)
    kept = RunFile(place_of(file, loop.channel), settings, Witness(loop.problem, net, loop.x0, measure))
    shown = bar(K, "optimise", progress and loop.channel.clients.start == 0)
    try:
        with collect_unmet() as unmet:
            at = _opened(loop, start, K, kept)
            shown.update(min(at.k, K))
            while not at.stopped:
                at.stopped = _reason(loop, at, K, patience, callback)
                if not at.stopped:
                    loop.step(at)
                    kept.write(at)
                    shown.update(1)
    finally:
        shown.close()
    if unmet:
        warn_unmet(f"in optimise, {len(unmet)} runs did not meet their tol; the last one: {unmet[-1]}")
    return _path(loop, at, settings)


def _described(**settings: object) -> dict[str, Any]:
    """The settings as a path and a file keep them."""
    return {name: describe(value) for name, value in settings.items()}


def _opened(loop: Loop, start: Array, K: int, kept: RunFile) -> LoopState:
    """The loop as its file has it, after at most K steps, or trained at λ_0."""
    if kept.exists():
        at = kept.read(start)
        if at.k > K:
            raise ValueError(
                f"outer_steps={K} given, but {kept.place} holds {at.k} steps already; needed as many or more"
            )
        return at
    at = loop.begin(start, kept.settings["seed"])
    kept.write(at)
    return at


def _reason(loop: Loop, at: LoopState, K: int, patience: int | None, callback: Callable[..., object] | None) -> str:
    """Why to stop at λ_k; "" to go on."""
    if callback is not None:
        told = callback(at.k, own(loop.as_lam(at.lam[-1])), own(at.x), at.outer_cost[-1])
        if loop.channel.any_rank(validation.returned_bool("callback", told)):
            return "callback"
    if patience is not None and at.k - at.best >= patience:
        return "patience"
    return "steps" if at.k >= K else ""


def _path(loop: Loop, at: LoopState, settings: dict[str, Any]) -> Path:
    xp, measured = array_namespace(at.x), loop.measure is not None
    return Path(
        lam=loop.as_lam(xp.stack(at.lam)),
        x=at.x,
        outer_cost=np.array(at.outer_cost),
        traffic=at.clock.traffic,
        floats=np.array(at.floats, dtype=np.int64),
        rounds=np.array(at.rounds, dtype=np.int64),
        stopped=at.stopped,
        method="hgp",
        settings=settings,
        steps=tuple(at.steps),
        measure=np.array(at.measure) if measured else None,
        best=at.best if measured else None,
        best_x=at.best_x,
        note=at.note,
        rounding_complete=loop.rounding_complete,
    )
