"""The outer loop: λ follows the hyper-gradients that clients estimate together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.base import check_network
from hgp_ref.backend import Array, array_namespace, detached
from hgp_ref.bilevel.inner import trainer
from hgp_ref.bilevel.loop import Loop
from hgp_ref.bilevel.outer import Estimator
from hgp_ref.bilevel.path import Path
from hgp_ref.bilevel.updates import Adam, Update
from hgp_ref.channels import connect
from hgp_ref.networks import Network
from hgp_ref.philox import check_seed
from hgp_ref.problems import Problem, as_problem
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
    x0: Array | None = None,
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
    project : a function λ → λ, applied after each update.
    warm_start : start training at λ_{k+1} from x_k; otherwise always from `x0`.
    seed : of the mini-batches.
    x0 : (n, d_x), where training starts; by default where `train` likes, zeros for `sgp`.
    callback : called as callback(k, lam, x, outer_cost) after training at λ_k; a true result ends the loop.
    progress : show a bar.

    Returns
    -------
    Path, with `lam` (K+1, n, d_lam), `x`, `outer_cost` (K+1,), `traffic` and what each step took.

    A hyper-gradient that diverges never reaches the update, and a λ at which training fails is stepped back from:
    `hgp_ref.bilevel.loop` says by which rule. Both warn and are noted in `path.steps`.

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
    arguments.same_kind(lam=lam, **({} if x0 is None else {"x0": x0}))
    arguments.shape("lam", lam, (problem.n_clients, problem.dim_lam), "(n, d_lam)", run_axes=False)
    arguments.finite("lam", lam)
    if x0 is not None:
        arguments.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
        arguments.finite("x0", x0)
    K = arguments.integer("outer_steps", outer_steps, 0, arguments.LONGEST)
    update = Adam(0.1) if update is None else update
    for name in ("start", "step"):
        if not callable(getattr(update, name, None)):
            raise TypeError(f"update={update!r} given, needed Adam(...), GradientDescent(...) or an object like them")
    for name, given in (("project", project), ("callback", callback)):
        if given is not None:
            arguments.function(name, given)
    flags = {"warm_start": warm_start, "progress": progress}
    warm_start, progress = (arguments.boolean(name, flag) for name, flag in flags.items())
    channel = connect(check_network(net))
    held = channel.clients.stop - channel.clients.start
    if held != problem.n_clients:
        raise ValueError(f"net: {net!r} has {held} clients, but the problem has {problem.n_clients}")
    settings = dict(net=net, outer_steps=K, train=_plain(train), estimate=_plain(estimate), update=update,
                    project=project, warm_start=warm_start, seed=check_seed(seed))  # fmt: skip
    channel.agree("hgp.bilevel.optimise", **{**settings, "project": project is not None}, x0=x0 is not None,
                  callback=callback is not None)  # fmt: skip
    loop = Loop(problem, net, channel, trainer(train), Estimator(estimate), update, project, warm_start, x0)
    shown = bar(K, "optimise", progress and channel.clients.start == 0)
    xp = array_namespace(lam)
    try:
        at = loop.begin(xp.asarray(detached(lam), copy=True), settings["seed"])
        while not at.stopped:
            k = len(at.lam) - 1
            if callback is not None and channel.anyone(
                bool(callback(k, xp.asarray(at.lam[-1], copy=True), xp.asarray(at.x, copy=True), at.outer_cost[-1]))
            ):
                at.stopped = "callback"
            elif k == K:
                at.stopped = "steps"
            else:
                loop.step(at)
                shown.update(1)
    finally:
        shown.close()
    return Path(
        lam=xp.stack(at.lam),
        x=at.x,
        outer_cost=np.array(at.outer_cost),
        traffic=at.clock.traffic,
        floats=np.array(at.floats, dtype=np.int64),
        rounds=np.array(at.rounds, dtype=np.int64),
        stopped=at.stopped,
        method="hgp",
        settings=settings,
        steps=tuple(at.steps),
    )


def _plain(settings: Mapping[str, Any] | Callable[..., Any]) -> Any:
    return dict(settings) if isinstance(settings, Mapping) else settings
