"""The outer loop: train, estimate, update, repeat.

    x_k = x(λ_k),    v_k ≈ d_λ Σ_i f_i(x_k, λ_k),    λ_{k+1} = Π(update(λ_k, v_k)),    k = 0 .. K−1

A hyper-gradient that diverges or is not finite never reaches the update. It is estimated again with half the η, at most
RETRIES times; the smaller η is kept for later steps. If that does not help (or the method has no η), the step is
refused: λ and the state of the update do not change. After two refused steps in a row the loop ends.

If training diverges at the new λ, or the outer cost is not finite there, the step is halved, λ ← Π((λ_k + λ)/2), at
most HALVINGS times, after which the loop ends at λ_k.

With `log=True` in the update, all this applies to θ = log λ and to the hyper-gradient with respect to θ.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, detached, host_float64, to_host
from hgp_ref.bilevel.trajectory import OuterStep
from hgp_ref.bilevel.updates import Update, UpdateState
from hgp_ref.errors import DivergenceError
from hgp_ref.methods import Method, Neumann, hypergradient
from hgp_ref.methods.spectrum import safe_step_size
from hgp_ref.mixing import Averaging, Channel, Traffic, connect, push_sum_for, start_averaging
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network
from hgp_ref.problems import MiniBatches
from hgp_ref.problems.base import FullProblem, check_argument, optional
from hgp_ref.problems.batches import read_batches
from hgp_ref.training import TrainingMethod
from hgp_ref.training import train as run_training
from hgp_ref.training.gradient_push import check_clients, check_lam


@dataclass
class Budget:
    """The traffic and the mini-batches used so far; no part of the loop uses a graph or a mini-batch again."""

    traffic: Traffic = field(default_factory=Traffic)
    batches: int = 0

    def remaining(self, net: Network) -> Network:
        """`net` from its first unused graph on; a round uses one graph."""
        return net.after(int(self.traffic.rounds))

    def consume(self, sent: Traffic, batches: int) -> None:
        self.traffic += sent
        self.batches += int(batches)


@dataclass
class LoopState:
    """What changes while the loop runs: all that the next step depends on, and the entries of the path."""

    budget: Budget
    update_state: UpdateState
    lam: list[Array] = field(default_factory=list)  # λ_0 .. λ_k, or their logarithms
    x: Array = None  # at λ_k
    outer_cost: list[float] = field(default_factory=list)
    floats: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    steps: list[OuterStep] = field(default_factory=list)
    training: Traffic = field(default_factory=Traffic)  # of the last training
    measure: list[float] = field(default_factory=list)
    best: int = 0  # where the measure was lowest, and x there
    best_x: Array = None
    shrink: float = 1.0  # factor of η, after hyper-gradients that diverged
    refused: int = 0  # steps in a row
    extra: dict[str, Any] = field(default_factory=dict)  # of loops with certified steps
    stopped: str = ""  # why the loop has ended
    note: str = ""  # an explanation of `stopped`

    @property
    def k(self) -> int:
        """Outer steps made."""
        return len(self.lam) - 1


# ---- Settings


def check_signature(name: str, function: object, *arguments: str, **keywords: str) -> None:
    """TypeError unless `function` can be called with these arguments and keywords."""
    validation.function(name, function)
    call = f"{name}({', '.join([*arguments, *(f'{key}=' for key in keywords)])})"
    try:
        inspect.signature(function).bind(*arguments, **keywords)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:  # ValueError: a built-in function without a signature
        raise TypeError(f"{name} must be a function that can be called as {call}, got {function!r}: {error}") from error


def check_training(name: str, method: object) -> None:
    """TypeError unless `method` is a `TrainingMethod` or a function that can be called as one."""
    if not isinstance(method, TrainingMethod):
        check_signature(name, method, "problem", "lam", "net", x0="", first_batch="", outer_step="")


def copied(a: Array | None) -> Array | None:
    """A copy, for user functions that may write into it or reuse what they returned."""
    return None if a is None else array_namespace(a).asarray(a, copy=True)


def _checked_result(
    name: str, answer: object, field: str, shape: tuple[int, ...], meaning: str, lam: Array
) -> tuple[Array, Traffic]:
    """`answer.field` and `answer.traffic` of what the user's function `name` returned."""
    value, sent = getattr(answer, field, None), getattr(answer, "traffic", None)
    if value is None or not isinstance(sent, Traffic):
        raise TypeError(
            f"{name} must return an object with {field} {meaning} and traffic (a Traffic), got {type(answer).__name__}"
        )
    what = f"what {name} returned: {field}"
    validation.same_kind(**{what: value, "lam": lam})
    validation.shape(what, value, shape, meaning, run_axes=False)
    return value, sent


@dataclass(frozen=True)
class Trainer:
    """How the outer loop trains at each λ.

    Parameters
    ----------
    method : `hgp.training.SGP(...)`, or a function method(problem, lam, net, x0=, first_batch=, outer_step=) that
        returns an object with `x` (n, d_x), `traffic` and, if it draws mini-batches, their number as `steps`. Its `net`
        holds the graphs that are not used yet.
    x0 : (n, d_x), where the first training starts; by default zeros for `SGP`.
    warm_start : start training at λ_{k+1} from x_k; otherwise from `x0` each time.
    tol : as in `hgp.train`.

    Examples
    --------
    >>> hgp.bilevel.Trainer(hgp.training.SGP(200, lr=0.5), warm_start=False).warm_start
    False
    """

    method: TrainingMethod | Callable[..., Any]
    x0: Array | None = field(default=None, repr=False)
    warm_start: bool = True
    tol: float | None = None

    def __post_init__(self) -> None:
        validation.boolean("warm_start", self.warm_start)
        check_training("method", self.method)

    def run(
        self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, budget: Budget, outer_step: int
    ) -> Array:
        """x at λ. DivergenceError if it is not finite; the budget is charged in any case."""
        try:
            fit = self._fit(problem, lam, budget.remaining(net), x0, budget.batches, outer_step)
        except DivergenceError as error:
            if error.traffic is not None:
                budget.consume(error.traffic, error.steps)
            raise
        x, sent = _checked_result("train", fit, "x", (problem.n_clients, problem.dim_x), "(n, d_x)", lam)
        budget.consume(sent, getattr(fit, "steps", 0))
        if connect(net).any_rank(not all_finite(x)):
            raise DivergenceError("diverged: training returned NaN or infinite parameters")
        return copied(detached(x))

    def _fit(
        self, problem: FullProblem, lam: Array, net: Network, x0: Array | None, first_batch: int, outer_step: int
    ) -> Any:
        method: Any = self.method
        if not isinstance(method, TrainingMethod):
            return method(
                problem.wrapped, copied(lam), net, x0=copied(x0), first_batch=first_batch, outer_step=outer_step
            )
        batches = read_batches(getattr(method, "batches", None))
        if batches is not None:
            changed: Any = method
            method = replace(changed, batches=replace(batches, offset=batches.offset + first_batch))
        return run_training(problem.wrapped, copied(lam), net, method, x0=copied(x0), tol=self.tol)


@dataclass(frozen=True)
class DirectGradient:
    """∂_λ f: the hyper-gradient with M = 0 terms, for which nothing is sent."""

    value: Array
    traffic: Traffic = field(default_factory=Traffic)
    iterations: int = 0


@dataclass(frozen=True)
class Estimator:
    """How the outer loop estimates hyper-gradients: `hgp.hypergradient` over the graphs that are not used yet.

    Parameters
    ----------
    averaging_steps : S, graphs per averaging.
    iterations : M; 0 takes ∂_λ f alone.
    method, eta, tol, batches : as in `hgp.hypergradient`. Mini-batches continue where the last estimate ended.
    average : the averaging as a function of (net, steps): `PushSum` by default (`RobustPushSum` over unreliable links),
        or e.g. `hgp.Gossip`, or `lambda net, steps: hgp.ExactAverage(net.n)`.

    Examples
    --------
    >>> hgp.bilevel.Estimator(averaging_steps=10, iterations=100).iterations
    100
    """

    averaging_steps: int = 5
    iterations: int = 200
    method: Method | None = None
    eta: float | None = None
    tol: float | None = None
    batches: MiniBatches | int | None = None
    average: Callable[[Network, int], Averaging] = field(default=push_sum_for, repr=False)

    def __post_init__(self) -> None:
        validation.integer("averaging_steps", self.averaging_steps, 1, validation.LONGEST)
        validation.integer("iterations", self.iterations, 0, validation.LONGEST)
        validation.function("average", self.average)
        if self.eta is not None:
            validation.positive("eta", self.eta)
        object.__setattr__(self, "batches", read_batches(self.batches))

    @property
    def can_shrink(self) -> bool:
        """Whether a smaller η may help: only in Algorithm 2 with at least one term."""
        return self.iterations > 0 and (self.method is None or isinstance(self.method, Neumann))

    def averaging(self, net: Network, steps: int) -> Averaging:
        avg = self.average(net, steps)
        if not isinstance(avg, Averaging):
            raise TypeError(f"average must return an averaging such as PushSum, got {type(avg).__name__}")
        return avg

    def run(
        self,
        problem: FullProblem,
        x: Array,
        lam: Array,
        net: Network,
        budget: Budget,
        shrink: float = 1.0,
        *,
        averaging_steps: int | None = None,
        iterations: int | None = None,
        w0: Array | None = None,
    ) -> Any:
        """The estimate at (x, λ), with η times `shrink`, and with other S, M and w0 if given."""
        if self.iterations == 0:
            return DirectGradient(problem.outer_grad(x, lam)[1])
        avg = self.averaging(
            budget.remaining(net), self.averaging_steps if averaging_steps is None else averaging_steps
        )
        M = self.iterations if iterations is None else iterations
        batches: Any = self.batches
        if batches is not None:
            batches = replace(batches, offset=batches.offset + budget.batches)
        before, made = avg.traffic, M
        try:
            method, eta = self.method, self.eta
            if shrink < 1:
                method, eta = None, shrink * self._step_size(problem, x, lam, avg)
            est = hypergradient(
                problem, x, lam, avg, method, eta=eta, iterations=M, tol=self.tol, batches=batches, w0=w0
            )
            made = est.iterations
        finally:  # also a run that diverges has sent messages and drawn mini-batches
            budget.consume(avg.traffic - before, made)
        return est

    def _step_size(self, problem: FullProblem, x: Array, lam: Array, avg: Averaging) -> float:
        """η, as given or as the clients find it."""
        if isinstance(self.method, Neumann):
            return float(self.method.eta)
        if self.eta is not None:
            return self.eta
        mixer = start_averaging([avg], problem.n_clients, x, 1)
        eta = safe_step_size("eta", mixer.channel, problem.linearize(x, lam), x)
        mixer.record_traffic()
        return eta


@dataclass(frozen=True)
class FunctionEstimator:
    """A user's function estimate(problem, x, lam, net, first_batch=, outer_step=)."""

    function: Callable[..., Any]
    can_shrink = False

    def __post_init__(self) -> None:
        check_signature("estimate", self.function, "problem", "x", "lam", "net", first_batch="", outer_step="")


@dataclass(frozen=True)
class Monitor:
    """A measure of x and λ, the smaller the better, such as an error on data that neither cost uses.

    Parameters
    ----------
    measure : measure(x, lam) → number. `path.best` is the step at which it was smallest, `path.best_x` is x there.
    patience : end the loop once the measure has not reached a new minimum for so many steps.

    Examples
    --------
    >>> hgp.bilevel.Monitor(lambda x, lam: float((x**2).sum()), patience=5).patience
    5
    """

    measure: Callable[[Array, Array], float]
    patience: int | None = None

    def __post_init__(self) -> None:
        check_signature("measure", self.measure, "x", "lam")
        if self.patience is not None:
            validation.integer("patience", self.patience)


# ---- Arguments of `optimise`


def check_start(problem: FullProblem, lam: Array, x0: Array | None) -> Array:
    """A copy of λ_0, after checking λ_0 and x0."""
    check_lam(problem, lam, x0, run_axes=False)
    data = optional(problem.wrapped, "_like")  # of built-in problems
    if data is not None:
        check_argument("lam", lam, data(), (problem.n_clients, problem.dim_lam), "n_clients, dim_lam")
    if x0 is not None:
        validation.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
        validation.finite("x0", x0)
    return array_namespace(lam).asarray(detached(lam), copy=True)


def read_trainer(train: Any) -> Trainer:
    if isinstance(train, Trainer):
        return train
    check_training("train", train)
    return Trainer(train)


def read_estimator(estimate: Any) -> Estimator | FunctionEstimator:
    return estimate if isinstance(estimate, Estimator) else FunctionEstimator(estimate)


def check_update(update: Any) -> None:
    for name in ("start", "step"):
        if isinstance(update, type) or not callable(getattr(update, name, None)):
            raise TypeError(f"update must be Adam(...), GradientDescent(...) or an object like them, got {update!r}")


def check_functions(project: object, callback: object) -> None:
    if project is not None:
        check_signature("project", project, "lam")
    if callback is not None:
        check_signature("callback", callback, "k", "lam", "x", "outer_cost")


def channel_of(net: Network, clients: int) -> Channel:
    channel = connect(check_network(net))
    check_clients(net, channel, clients)
    return channel


def checkpoint_path(file: str | os.PathLike[str] | None, channel: Channel) -> FilePath | None:
    if file is None:
        return None
    if channel.clients != slice(0, channel.n):
        raise ValueError(f"file must be None if the clients are in several processes, got {file!r}")
    path = validation.path("file", file)
    if path.exists() and not path.is_file():
        raise ValueError(f"file must be a regular file or a new name, got {file!r}")
    return path


# ---- The loop


RETRIES = 4  # of an estimate that diverged, each with half the η
HALVINGS = 8  # of a step to a λ at which training fails
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Loop:
    """The settings of a loop, which do not change while it runs."""

    problem: FullProblem
    net: Network
    channel: Channel  # for sums over clients in reports
    train: Trainer
    estimate: Estimator | FunctionEstimator
    update: Update
    project: Callable[[Array], Array] | None
    monitor: Monitor | None
    log: bool

    @property
    def rounding_complete(self) -> bool | None:
        """Whether certificates include the rounding of the problem's own sums; None without certificates."""
        return None

    def begin(self, lam: Array) -> LoopState:
        """Train at λ_0."""
        update_state = self.update.start(lam)
        if not isinstance(update_state, tuple):
            raise TypeError(f"update.start must return a tuple, got {type(update_state).__name__}")
        state = LoopState(Budget(), update_state)
        try:
            self.accept(state, lam, *self.evaluate(state, lam))
        except DivergenceError as error:
            raise DivergenceError(f"training failed at the first lam: {error}") from error
        return state

    def step(self, state: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, lam, before, training = state.k, state.lam[-1], state.budget.traffic, state.training
        trouble: list[str] = []
        est = self._estimate(state, trouble)
        sent = state.budget.traffic - before
        state.refused = state.refused + 1 if est is None else 0
        proposed = lam if est is None else self._proposed(state, lam, est.value)
        scale = self._move(state, lam, proposed, 0.0 if est is None else 1.0, trouble)
        if state.refused == 2:
            state.stopped = "divergence"
        if trouble:
            warnings.warn(f"outer step {k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=3)
        if state.k > k:
            norm, iterations = None if est is None else self.norm(est.value), int(getattr(est, "iterations", 0))
            state.steps.append(OuterStep(training, sent, norm, iterations, scale, "; ".join(trouble)))

    def _estimate(self, state: LoopState, trouble: list[str], changes: Mapping[str, Any] = NO_CHANGES) -> Any:
        """The hyper-gradient at λ_k, with other S, M or w0 if given; None if all attempts diverged."""
        for _ in range(RETRIES + 1):
            try:
                return self.estimated(state, self.problem, state.x, state.lam[-1], changes)
            except DivergenceError as error:
                trouble.append(f"hyper-gradient refused: {error}")
                if not self.estimate.can_shrink:
                    break
                state.shrink /= 2
        return None

    def estimated(
        self, state: LoopState, problem: FullProblem, x: Array, lam: Array, changes: Mapping[str, Any]
    ) -> Any:
        """One attempt at (x, λ); DivergenceError if the estimate is not finite."""
        estimate, budget = self.estimate, state.budget
        if isinstance(estimate, Estimator):
            est = estimate.run(problem, x, lam, self.net, budget, state.shrink, **changes)
        else:
            est = estimate.function(problem.wrapped, copied(x), copied(lam), budget.remaining(self.net),
                                    first_batch=budget.batches, outer_step=state.k)  # fmt: skip
            shape = (problem.n_clients, problem.dim_lam)
            _, sent = _checked_result("estimate", est, "value", shape, "(n, d_lam)", lam)
            budget.consume(sent, getattr(est, "iterations", 0))
        if self.channel.any_rank(not all_finite(est.value)):
            raise DivergenceError("diverged: the hyper-gradient holds NaN or infinite values")
        return est

    def _move(self, state: LoopState, lam: Array, proposed: Array, scale: float, trouble: list[str]) -> float:
        """Accept the proposed λ or, if training fails there, one on the way to it; the fraction of the step taken."""
        for _ in range(HALVINGS + 1):
            try:
                x, cost = self.evaluate(state, proposed)
            except DivergenceError as error:
                trouble.append(f"{scale:g} of the step refused: {error}")
                proposed, scale = self.projected((lam + proposed) / 2), scale / 2
            else:
                self.accept(state, proposed, x, cost)
                return scale
        state.stopped = "divergence"
        return 0.0

    def _proposed(self, state: LoopState, lam: Array, v: Array) -> Array:
        """Π(update(λ, v)), with the next state of the update."""
        answer = self.update.step(state.update_state, copied(lam), copied(v))
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], tuple):
            raise TypeError(f"update.step must return (lam, state) with a tuple as state, got {type(answer).__name__}")
        proposed, state.update_state = answer
        return self.projected(copied(_like(lam, "what update returned", proposed)))

    def projected(self, lam: Array) -> Array:
        """Π(λ), or with log=True log Π(exp θ)."""
        if self.project is None:
            return detached(lam)
        allowed = apply_projection(self.project, self.as_lam(lam))
        if not self.log:
            return allowed
        xp = array_namespace(allowed)
        if not bool(to_host(xp.all(allowed > 0))):
            raise ValueError("project must return positive entries with log=True")
        return xp.log(allowed)

    def as_lam(self, variable: Array) -> Array:
        """λ, or with log=True exp θ."""
        return array_namespace(variable).exp(variable) if self.log else variable

    def evaluate(self, state: LoopState, lam: Array, x0: Array | None = None) -> tuple[Array, float]:
        """x and Σ f_i at λ; DivergenceError if they are not finite."""
        before = state.budget.traffic
        if x0 is None:
            x0 = state.x if self.train.warm_start and state.x is not None else self.train.x0
        x = self.train.run(self.problem, lam, self.net, x0, state.budget, len(state.lam))
        cost = self.total(self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after training")
        state.training = state.budget.traffic - before
        return x, cost

    def accept(self, state: LoopState, lam: Array, x: Array, cost: float) -> None:
        """Append λ, x and the outer cost there to the path."""
        state.lam.append(lam)
        state.x = x
        state.outer_cost.append(cost)
        state.floats.append(int(state.budget.traffic.floats))
        state.rounds.append(int(state.budget.traffic.rounds))
        if self.monitor is not None:
            self.evaluate_metric(state)

    def evaluate_metric(self, state: LoopState) -> None:
        """Measure x at λ_k, and keep x if it is the best so far."""
        assert self.monitor is not None
        xp = array_namespace(state.x)
        answer = self.monitor.measure(xp.asarray(state.x, copy=True), xp.asarray(self.as_lam(state.lam[-1]), copy=True))
        value = validation.number("measure(x, lam)", answer)
        local = self.channel.clients.stop - self.channel.clients.start
        if local != self.channel.n:  # clients in several processes: the mean over clients
            value = self.total(np.full(local, value)) / self.channel.n
        state.measure.append(value)
        if state.measure[-1] < state.measure[state.best] or state.k == 0:
            state.best, state.best_x = state.k, state.x

    def total(self, values: Array) -> float:
        """The sum over all clients of values (n,)."""
        return sum_over_clients(self.channel, values)

    def norm(self, v: Array) -> float:
        """‖v‖ over all clients, without overflow."""
        v = host_float64(v)
        size = float(self.channel.max_over_clients(np.abs(v).max(axis=1)))
        return size * self.total(np.sum((v / size) ** 2, axis=1)) ** 0.5 if size else 0.0


def apply_projection(project: Callable[[Array], Array], lam: Array) -> Array:
    """Π(λ), after checking what the user's function returned."""
    return detached(_like(lam, "what project returned", project(copied(lam))))


def sum_over_clients(channel: Channel, values: Array) -> float:
    """The sum over all clients of values (n,)."""
    return float(channel.mean_over_clients(host_float64(values)[:, None])[0, 0]) * channel.n


def _like(lam: Array, name: str, array: Array) -> Array:
    """`array`, which must be finite and of the kind and shape of λ."""
    validation.same_kind(lam=lam, **{name: array})
    validation.shape(name, array, tuple(lam.shape), "(n, d_lam)", run_axes=False)
    validation.finite(name, array)
    return array
