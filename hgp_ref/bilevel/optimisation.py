"""`optimise`: λ follows the hyper-gradients that the clients estimate together."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, detached
from hgp_ref.bilevel.certified import CertifiedLoop
from hgp_ref.bilevel.checkpoint import CheckpointFile, RunFingerprint, describe
from hgp_ref.bilevel.loop import Loop, check_functions, check_start, log_of
from hgp_ref.bilevel.settings import Estimator, FunctionEstimator, Monitor, Trainer, check_training, copied
from hgp_ref.bilevel.trajectory import LoopState, Path
from hgp_ref.bilevel.updates import Adam, CertifiedDescent, Update
from hgp_ref.errors import collect_unmet, warn_unmet
from hgp_ref.mixing import Channel, connect
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network
from hgp_ref.problems import LogRates, Problem, as_problem
from hgp_ref.progress import bar
from hgp_ref.training import SGP, TrainingMethod
from hgp_ref.training.gradient_push import check_clients
from hgp_ref.validation import Boolean, Instance, Integer, Optional, checked

TRAIN = SGP(steps=400, lr=1.0, milestones=(0.6, 0.8))
ESTIMATE = Estimator()
UPDATE = Adam(0.1)


@checked(outer_steps=Integer(0, validation.LONGEST), monitor=Optional(Instance(Monitor)), progress=Boolean())
def optimise(
    problem: Problem,
    lam: Array,
    net: Network,
    *,
    outer_steps: int = 20,
    train: TrainingMethod | Trainer | Callable[..., Any] = TRAIN,
    estimate: Estimator | Callable[..., Any] = ESTIMATE,
    update: Update = UPDATE,
    project: Callable[[Array], Array] | None = None,
    monitor: Monitor | None = None,
    file: str | os.PathLike[str] | None = None,
    callback: Callable[[int, Array, Array, float], object] | None = None,
    progress: bool = False,
) -> Path:
    """Minimise F(λ) = Σ_i f_i(x_i(λ), λ_i), x(λ) = argmin_x Σ_i g_i(x, λ_i), along estimated hyper-gradients.

    For k = 0 .. K−1 the clients train at λ_k, estimate v_k ≈ d_λ F(λ_k) and take λ_{k+1} = Π(update(λ_k, v_k)). At λ_K
    they train once more. No graph and no mini-batch is used twice.

    A hyper-gradient that diverges never reaches the update, and a step to a λ at which training fails is halved. Both
    give a warning and a note in `path.steps`; `hgp_ref.bilevel.loop` has the rules. If the first training diverges,
    DivergenceError is raised.

    Parameters
    ----------
    outer_steps : K.
    train : `hgp.training.SGP(...)`, a `Trainer` (x0, warm start, tolerance), or a function train(problem, lam, net,
        x0=, first_batch=, outer_step=); see `Trainer`.
    estimate : an `Estimator`, or a function estimate(problem, x, lam, net, first_batch=, outer_step=) that returns an
        object with `value` (n, d_λ), `traffic` and, if it draws mini-batches, their number as `iterations`.
    update : `Adam`, `GradientDescent`, `CertifiedDescent`, or an object with `start` and `step`. With log=True the
        update applies to θ = log λ: functions `train` and `estimate` then get `LogRates(problem)` and θ, all others λ.
    project : a function λ → λ that is applied after each update: `Box`, `NonNegative`, `Simplex` or another one.
    monitor : `Monitor(measure, patience)`, for early stopping.
    file : a checkpoint that is written after each step. If it exists, the loop continues from it. Problem, λ_0 and
        settings must be the same (`outer_steps` may grow), and the path is that of an uninterrupted run, byte for byte.
        Data of built-in problems are compared exactly, other problems by their costs and gradients at one point,
        functions and user objects by their repr.
    callback : called as callback(k, lam, x, outer_cost) after training at λ_k; a true result ends the loop.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> net = hgp.networks.RandomDirected(n=3, seed=1)
    >>> path = hgp.bilevel.optimise(problem, np.zeros((3, 2)), net, outer_steps=10, train=hgp.training.SGP(100, lr=0.5))
    >>> path.lam.shape, bool(path.outer_cost[-1] < path.outer_cost[0])
    ((11, 3, 2), True)
    """
    problem = as_problem(problem)
    if not isinstance(train, Trainer):
        check_training("train", train)
        train = Trainer(train)
    log = _read_update(update, estimate)
    variable = check_start(problem, lam, train.x0)  # λ, or with log=True its logarithm
    if log:
        variable = log_of("lam must be positive with log=True", variable)
    check_functions(project, callback)
    channel = connect(check_network(net))
    check_clients(net, problem.n_clients)
    kind: Any = CertifiedLoop if isinstance(update, CertifiedDescent) else Loop
    loop = kind(
        problem=as_problem(LogRates(problem.wrapped)) if log else problem,
        net=net,
        channel=channel,
        train=train,
        estimate=estimate if isinstance(estimate, Estimator) else FunctionEstimator(estimate),
        update=update,
        project=project,
        monitor=monitor,
        log=log,
    )
    settings = describe(
        dict(net=net, outer_steps=outer_steps, train=train, estimate=estimate, update=update, project=project,
             patience=None if monitor is None else monitor.patience)
    )  # fmt: skip
    present = dict(x0=train.x0 is not None, monitor=monitor is not None, callback=callback is not None)
    channel.check_same_on_all_ranks("hgp.bilevel.optimise", **settings, **present)
    fingerprint = RunFingerprint(loop.problem, net, None if train.x0 is None else detached(train.x0), monitor)
    checkpoint = CheckpointFile(_checkpoint_path(file, channel), settings, fingerprint)
    shown = bar(outer_steps, "optimise", progress and channel.clients.start == 0)
    try:
        with collect_unmet() as unmet:
            state = _first_state(loop, variable, outer_steps, checkpoint)
            shown.update(min(state.k, outer_steps))
            while not state.stopped:
                state.stopped = _reason_to_stop(loop, state, outer_steps, callback)
                if not state.stopped:
                    loop.step(state)
                    checkpoint.write(state)
                    shown.update(1)
    finally:
        shown.close()
    if unmet:
        warn_unmet(f"in optimise, {len(unmet)} runs did not meet their tol; the last one: {unmet[-1]}")
    path = state.path(
        state.x,
        state.traffic,
        stopped=state.stopped,
        method="hgp",
        settings=settings,
        steps=tuple(state.steps),
        measure=None if monitor is None else np.array(state.measure),
        best=None if monitor is None else state.best,
        best_x=state.best_x,
        note=state.note,
        rounding_complete=loop.rounding_complete,
    )
    return replace(path, lam=loop.as_lam(path.lam))


def _read_update(update: Update, estimate: Estimator | Callable[..., Any]) -> bool:
    """Whether the update applies to log λ, after checking it together with `estimate`."""
    if isinstance(update, CertifiedDescent) and not (
        isinstance(estimate, Estimator) and estimate.batches is None and estimate.iterations > 0
    ):
        raise ValueError(
            "estimate must be an Estimator with full batches and iterations >= 1 for CertifiedDescent, "
            f"got {estimate!r}"
        )
    if isinstance(update, type) or not all(callable(getattr(update, name, None)) for name in ("start", "step")):
        raise TypeError(f"update must be Adam(...), GradientDescent(...) or an object like them, got {update!r}")
    return validation.boolean("update.log", getattr(update, "log", False))


def _checkpoint_path(file: str | os.PathLike[str] | None, channel: Channel) -> FilePath | None:
    if file is None:
        return None
    if channel.clients != slice(0, channel.n):
        raise ValueError(f"file must be None if the clients are in several processes, got {file!r}")
    path = validation.path("file", file)
    if path.exists() and not path.is_file():
        raise ValueError(f"file must be a regular file or a new name, got {file!r}")
    return path


def _first_state(loop: Loop, variable: Array, K: int, checkpoint: CheckpointFile) -> LoopState:
    """The state of the checkpoint, if there is one, else after training at λ_0."""
    if checkpoint.exists():
        state = checkpoint.read(variable)
        if state.k > K:
            raise ValueError(f"outer_steps must be >= {state.k}, the steps that {checkpoint.path} holds, got {K}")
        return state
    state = loop.begin(variable)
    checkpoint.write(state)
    return state


def _reason_to_stop(loop: Loop, state: LoopState, K: int, callback: Callable[..., object] | None) -> str:
    """Why to stop at λ_k; "" to go on."""
    if callback is not None:
        answer = callback(state.k, copied(loop.as_lam(state.lam[-1])), copied(state.x), state.outer_cost[-1])
        if loop.channel.any_rank(validation.returned_bool("callback", answer)):
            return "callback"
    patience = None if loop.monitor is None else loop.monitor.patience
    if patience is not None and state.k - state.best >= patience:
        return "patience"
    return "steps" if state.k >= K else ""
