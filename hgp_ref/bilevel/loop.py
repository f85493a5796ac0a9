"""Which graph and which mini-batch come next: what one part of the loop has used, the next does not use again."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, detached, host_float64, to_host
from hgp_ref.bilevel.trajectory import OuterStep
from hgp_ref.bilevel.updates import Adam, State, Update
from hgp_ref.errors import DivergenceError
from hgp_ref.methods import Method, Neumann, hypergradient
from hgp_ref.mixing import Averaging, Channel, Traffic, connect, push_sum_for
from hgp_ref.mixing.averaging import check_network
from hgp_ref.networks import Network
from hgp_ref.problems import as_problem
from hgp_ref.problems.base import Normalised, check_argument, optional
from hgp_ref.problems.batches import MiniBatches
from hgp_ref.problems.term_sizes import TermSizes
from hgp_ref.training import SGP
from hgp_ref.training import train as run_training
from hgp_ref.training.gradient_push import check_clients, check_lam


@dataclass
class Clock:
    """What training and estimates together have sent so far, and how many mini-batches they have drawn."""

    seed: int
    traffic: Traffic = field(default_factory=Traffic)
    batches: int = 0

    def net(self, net: Network) -> Network:
        """`net` from the first graph on that was not used yet; a round is a graph."""
        return net.after(int(self.traffic.rounds))

    def pass_on(self, sent: Traffic, batches: int) -> None:
        """After a part that sent so much and drew so many mini-batches."""
        self.traffic += sent
        self.batches += int(batches)


# ----------------------------------------------------------------------------------------------------
# What changes while the outer loop runs; `loop` holds the parts that do not.


@dataclass
class LoopState:
    """Everything that the next step depends on, and what the path will hold."""

    clock: Clock
    state: State  # of the update
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
    shrink: float = 1.0  # of η, by hyper-gradients that diverged
    refused: int = 0  # steps in a row
    kept: dict[str, Any] = field(default_factory=dict)  # what a kind of loop keeps besides
    stopped: str = ""  # why, once it has
    note: str = ""  # the same at length, where there is more to say

    @property
    def k(self) -> int:
        """Outer steps done."""
        return len(self.lam) - 1


# ----------------------------------------------------------------------------------------------------
# The arguments of `optimise`, checked.


def start_of(problem: Normalised, lam: Array, x0: Array | None, log: bool) -> Array:
    """λ_0 in an array of its own, or its logarithm; arrays are looked at."""
    check_lam(problem, lam, x0, run_axes=False)
    data = optional(problem.given, "_like")  # of built-in problems
    if data is not None:
        check_argument("lam", lam, data(), (problem.n_clients, problem.dim_lam), "n_clients, dim_lam")
    if x0 is not None:
        validation.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
        validation.finite("x0", x0)
    xp, lam = array_namespace(lam), detached(lam)
    if not validation.boolean("log", log):
        return xp.asarray(lam, copy=True)
    if not bool(to_host(xp.all(lam > 0))):
        raise ValueError("lam: holds entries that are not positive, needed lam > 0 with log=True")
    return xp.log(lam)


def takes(name: str, function: object, *given: str, **named: str) -> None:
    """TypeError unless `function` can be called with so many arguments, and with those named."""
    validation.function(name, function)
    needed = f"{name}({', '.join([*given, *(f'{key}=' for key in named)])})"
    try:
        inspect.signature(function).bind(*given, **named)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:  # ValueError: a built-in one that does not tell
        raise TypeError(f"{name}={function!r} given, needed a function that takes {needed}: {error}") from error


def returned(
    name: str, answer: object, field: str, shape: tuple[int, ...], meaning: str, lam: Array
) -> tuple[Array, Traffic]:
    """`field` and the traffic of what the caller's function `name` returned; an error unless it is an array like λ."""
    value, sent = getattr(answer, field, None), getattr(answer, "traffic", None)
    if value is None or not isinstance(sent, Traffic):
        raise TypeError(
            f"{name}: returned {type(answer).__name__}, needed an object with {field} {meaning} and a Traffic"
        )
    what = f"what {name} returned: {field}"
    validation.same_kind(**{what: value, "lam": lam})
    validation.shape(what, value, shape, meaning, run_axes=False)
    return value, sent


def check_functions(project: object, measure: object, callback: object) -> None:
    """TypeError unless those that are given can be called as `optimise` calls them."""
    if project is not None:
        takes("project", project, "lam")
    if measure is not None:
        takes("measure", measure, "x", "lam")
    if callback is not None:
        takes("callback", callback, "k", "lam", "x", "outer_cost")


def patience_of(patience: int | None, measure: object) -> int | None:
    if patience is not None and measure is None:
        raise ValueError(f"patience={patience!r} given without measure, needed both")
    return None if patience is None else validation.integer("patience", patience)


def update_of(update: Update | None) -> Update:
    update = Adam(0.1) if update is None else update
    for name in ("start", "step"):
        if isinstance(update, type) or not callable(getattr(update, name, None)):
            raise TypeError(f"update={update!r} given, needed Adam(...), GradientDescent(...) or an object like them")
    return update


def channel_of(net: Network, clients: int) -> Channel:
    channel = connect(check_network(net))
    check_clients(net, channel, clients)
    return channel


def place_of(file: str | os.PathLike[str] | None, channel: Channel) -> FilePath | None:
    if file is None:
        return None
    if channel.clients != slice(0, channel.n):
        raise ValueError(f"file={file!r} given, but clients live in several processes; needed all of them in this one")
    place = validation.path("file", file)
    if place.exists() and not place.is_file():
        raise ValueError(f"file={file!r} given, which is no regular file; needed one, or a new name")
    return place


# ----------------------------------------------------------------------------------------------------
# Training inside the outer loop: keywords of `sgp`, or a function of the caller's own.


OURS = ("problem", "net", "lam", "x0", "batches", "progress")  # what the loop itself says
UNUSED = ("avg", "callback", "history", "w0", "resume")  # of `hypergradient`, what the loop has no use for
Train = Callable[..., Any]


def trainer(train: Mapping[str, Any] | Train) -> Train:
    """train(problem, net, lam, x0=, seed=, first_batch=, outer_step=) → an object with x (n, d_x) and traffic."""
    if callable(train):
        takes("train", train, "problem", "net", "lam", x0="", seed="", first_batch="", outer_step="")
        return train
    settings: dict[str, Any] = {"lr": 2.0, "milestones": (0.6, 0.8)}
    settings |= read_settings("train", train, SGP, ("tol", "batch_size"))
    tol, size = settings.pop("tol", None), settings.pop("batch_size", None)
    if callable(settings["lr"]) and "milestones" not in train:
        settings["milestones"] = ()

    def run(problem: Any, net: Network, lam: Array, outer_step: int, x0: Array | None, seed: int, first_batch: int
            ) -> Any:  # fmt: skip
        batches = None if size is None else MiniBatches(size, seed, offset=first_batch)
        return run_training(problem, lam, net, SGP(**settings, batches=batches), x0=x0, tol=tol)

    return run


def read_settings(name: str, given: object, function: Callable[..., Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """A dictionary of keywords of `function`, or `more`, that the loop does not give itself."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}={given!r} given ({type(given).__name__}), needed a dictionary or a function")
    allowed = [key for key in inspect.signature(function).parameters if key not in OURS and key != "x"] + [*more]
    listed = [key for key in allowed if function is SGP or key not in UNUSED]
    for key in given:
        if key not in allowed:
            raise ValueError(f"{name}: {key!r} given, needed some of {', '.join(listed)}")
    return dict(given)


def trained(train: Train, problem: Normalised, net: Network, lam: Array, x0: Array | None, clock: Clock, step: int
            ) -> Array:  # fmt: skip
    """x at λ; the clock moves on, also where training fails. DivergenceError where it is not finite."""
    given = {"x0": own(x0), "seed": clock.seed, "first_batch": clock.batches, "outer_step": step}
    try:
        fit = train(problem.given, clock.net(net), own(lam), **given)
    except DivergenceError as error:
        if error.traffic is not None:  # what was sent was sent, and other graphs may do better
            clock.pass_on(error.traffic, error.steps)
        raise
    x, sent = returned("train", fit, "x", (problem.n_clients, problem.dim_x), "(n, d_x)", lam)
    clock.pass_on(sent, getattr(fit, "steps", 0))
    if connect(net).any_rank(not all_finite(x)):
        raise DivergenceError("diverged: training returned NaN or infinite parameters")
    return own(detached(x))


def own(a: Array | None) -> Array | None:
    """A copy, for functions of the caller's that may write into it or go on to use what they returned."""
    return None if a is None else array_namespace(a).asarray(a, copy=True)


# ----------------------------------------------------------------------------------------------------
# Hyper-gradients inside the outer loop: keywords of `hypergradient`, or a function of the caller's own.


STEPS = 5  # S, where it is not given


@dataclass(frozen=True)
class Direct:
    """∂_λ f alone: the series with no term at all, M = 0, for which nothing is sent."""

    value: Array
    traffic: Traffic = field(default_factory=Traffic)
    iterations: int = 0


class Estimator:
    """What `optimise` is given as `estimate`, as something that the loop can call.

    A function: estimate(problem, net, x, lam, seed=, first_batch=, outer_step=) → an object with value (n, d_λ) and
    traffic. Or keywords: S = `steps`, M = `iterations`, `average(net, steps)` for the averaging (`PushSum` by default,
    where links lose messages `RobustPushSum`; `Gossip` likewise, or lambda net, steps: ExactAverage(net.n)), and those
    of `hypergradient`.
    """

    def __init__(self, estimate: Mapping[str, Any] | Callable[..., Any]) -> None:
        self.given = estimate if callable(estimate) else None
        if self.given is not None:
            takes("estimate", self.given, "problem", "net", "x", "lam", seed="", first_batch="", outer_step="")
            return
        settings = read_settings(
            "estimate",
            estimate,
            hypergradient,
            ("steps", "average", "batch_size", "shared_batch", "whole_cross", "replace"),
        )
        for name in UNUSED:
            if name in settings:
                raise ValueError(f"estimate: {name!r} given, which the loop does not use; give steps and average")
        self.steps, self.average = settings.pop("steps", STEPS), settings.pop("average", push_sum_for)
        validation.function("estimate['average']", self.average)
        self.iterations = validation.integer(
            "estimate['iterations']", settings.pop("iterations", 200), 0, validation.LONGEST
        )
        self.method: Method | None = settings.pop("method", None)
        self.eta: float | None = settings.pop("eta", None)
        if self.method is None or isinstance(self.method, Neumann):
            self.eta = getattr(self.method, "eta", self.eta) if self.eta is None else self.eta
        names = {"batch_size": "size", "shared_batch": "share", "whole_cross": "full_jacobian", "replace": "replace"}
        self.batches = {names[key]: settings.pop(key) for key in names if key in settings}
        if self.method is None and self.eta is None:
            self.eta = 1.0
        self.settings = settings

    def _batches(self, clock: Clock) -> MiniBatches | None:
        if self.batches.get("size") is None:
            return None
        return MiniBatches(**self.batches, seed=clock.seed, offset=clock.batches)

    @property
    def can_shrink(self) -> bool:
        """Whether a smaller η may help: only in Algorithm 2, and with at least one term."""
        return self.given is None and self.iterations > 0 and (self.method is None or isinstance(self.method, Neumann))

    def __call__(
        self,
        problem: Normalised,
        net: Network,
        x: Array,
        lam: Array,
        clock: Clock,
        step: int,
        shrink: float,
        more: Mapping[str, Any],
    ) -> Any:
        """The estimate at (x, λ), η times `shrink`, `more` in place of keywords given; the clock moves on.

        DivergenceError if there is none.
        """
        if self.given is not None:
            given = {"seed": clock.seed, "first_batch": clock.batches, "outer_step": step}
            est = self.given(problem.given, clock.net(net), own(x), own(lam), **given)
            shape = (problem.n_clients, problem.dim_lam)
            _, sent = returned("estimate", est, "value", shape, "(n, d_lam)", lam)
            clock.pass_on(sent, getattr(est, "iterations", 0))
        elif self.iterations == 0:
            est = Direct(problem.outer_grad(x, lam)[1])
        else:
            est = self._run(problem, clock.net(net), x, lam, clock, shrink, **more)
        if connect(net).any_rank(not all_finite(est.value)):
            raise DivergenceError("diverged: the hyper-gradient holds NaN or infinite values")
        return est

    def averaging(self, net: Network, steps: int) -> Averaging:
        """The averaging of S = `steps` over `net`."""
        avg = self.average(net, steps)
        if not isinstance(avg, Averaging):
            raise TypeError(f"estimate['average']: returned {type(avg).__name__}, needed an averaging such as PushSum")
        return avg

    def _run(
        self,
        problem: Normalised,
        net: Network,
        x: Array,
        lam: Array,
        clock: Clock,
        shrink: float,
        steps: int | None = None,
        iterations: int | None = None,
        w0: Array | None = None,
    ) -> Any:
        """`hypergradient` with the keywords given, over graphs and mini-batches that were not used yet."""
        avg = self.averaging(net, self.steps if steps is None else steps)
        M = self.iterations if iterations is None else iterations
        chosen: dict[str, Any] = {"method": self.method, "eta": self.eta}
        if shrink < 1:
            chosen = {"method": None, "eta": (1.0 if self.eta is None else self.eta) * shrink}
        before, done = avg.traffic, M
        try:
            est = hypergradient(problem, x, lam, avg, iterations=M, w0=w0, batches=self._batches(clock), **chosen,
                                **self.settings)  # fmt: skip
            done = est.iterations
        finally:  # what was sent was sent, and mini-batches that were drawn are used up
            clock.pass_on(avg.traffic - before, done)
        return est


# ----------------------------------------------------------------------------------------------------
# Train, estimate, update, repeat; and what is done when one of them fails.
#
#     x_k = x(λ_k),    v_k ≈ d_λ Σ_i f_i(x_k, λ_k),    λ_{k+1} = Π(update(λ_k, v_k)),    k = 0 .. K−1
#
# A hyper-gradient that diverges, or that is not finite, never reaches the update. It is estimated again with η halved,
# at most RETRIES times; the smaller η stays. If that does not help (or there is no η) the step is refused: λ and the
# state of the update stay as they are. After two refused steps in a row the loop ends.
#
# A λ at which training diverges or the outer cost is not finite is not accepted: the step is halved, λ ← Π((λ_k +
# λ)/2),
# at most HALVINGS times, after which the loop ends at λ_k.
#
# With log=True all this is done to θ = log λ, problem and hyper-gradients being those of θ.


RETRIES = 4  # of an estimate that diverged, each with half the η
NOTHING: Mapping[str, Any] = MappingProxyType({})
HALVINGS = 8  # of a step to a λ at which training fails


@dataclass
class Loop:
    """The parts of the loop, which do not change while it runs."""

    problem: Normalised
    net: Network
    channel: Channel  # for reports: totals over clients
    train: Train
    estimate: Estimator
    update: Update
    project: Callable[[Array], Array] | None
    warm_start: bool
    x0: Array | None
    measure: Callable[[Array, Array], float] | None
    log: bool

    @property
    def rounding_complete(self) -> bool | None:
        """Whether what is certified includes the rounding of the problem's own sums; None where nothing is."""
        return None

    def begin(self, lam: Array, seed: int) -> LoopState:
        """Train at λ_0."""
        state = self.update.start(lam)
        if not isinstance(state, tuple):
            raise TypeError(f"update: start returned {type(state).__name__}, needed a tuple")
        at = LoopState(Clock(seed), state)
        try:
            self.accept(at, lam, *self.evaluate(at, lam))
        except DivergenceError as error:
            raise DivergenceError(f"lam: no training at λ_0, {error}") from error
        return at

    def step(self, at: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, lam, before, trained_for = at.k, at.lam[-1], at.clock.traffic, at.training
        trouble: list[str] = []
        est = self._estimate(at, trouble)
        spent = at.clock.traffic - before
        at.refused = at.refused + 1 if est is None else 0
        proposed = lam if est is None else self._proposed(at, lam, est.value)
        scale = self._move(at, lam, proposed, 0.0 if est is None else 1.0, trouble)
        if at.refused == 2:
            at.stopped = "divergence"
        if trouble:
            warnings.warn(f"outer step {k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=3)
        if at.k > k:
            norm, iterations = None if est is None else self.norm(est.value), int(getattr(est, "iterations", 0))
            at.steps.append(OuterStep(trained_for, spent, norm, iterations, scale, "; ".join(trouble)))

    def _estimate(self, at: LoopState, trouble: list[str], more: Mapping[str, Any] = NOTHING) -> Any:
        """The hyper-gradient at λ_k, with other S, M or w0 if given; None if all attempts diverged."""
        for _ in range(RETRIES + 1):
            try:
                return self.estimate(self.problem, self.net, at.x, at.lam[-1], at.clock, at.k, at.shrink, more)
            except DivergenceError as error:
                trouble.append(f"hyper-gradient refused: {error}")
                if not self.estimate.can_shrink:
                    break
                at.shrink /= 2
        return None

    def _move(self, at: LoopState, lam: Array, proposed: Array, scale: float, trouble: list[str]) -> float:
        """Accept the proposed λ or, where training fails, one on the way to it; the share of the step taken."""
        for _ in range(HALVINGS + 1):
            try:
                x, cost = self.evaluate(at, proposed)
            except DivergenceError as error:
                trouble.append(f"{scale:g} of the step refused: {error}")
                proposed, scale = self.projected((lam + proposed) / 2), scale / 2
            else:
                self.accept(at, proposed, x, cost)
                return scale
        at.stopped = "divergence"
        return 0.0

    def _proposed(self, at: LoopState, lam: Array, v: Array) -> Array:
        """Π(update(λ, v)); the update's state moves on."""
        answer = self.update.step(at.state, own(lam), own(v))
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], tuple):
            raise TypeError(f"update: step returned {type(answer).__name__}, needed (lam, state) with a tuple as state")
        proposed, at.state = answer
        return self.projected(own(_like(lam, "what update returned", proposed)))

    def projected(self, lam: Array) -> Array:
        """Π(λ), or with log=True log Π(exp θ)."""
        if self.project is None:
            return detached(lam)
        xp = array_namespace(lam)
        allowed = _like(lam, "what project returned", self.project(xp.asarray(self.as_lam(lam), copy=True)))
        if not self.log:
            return detached(allowed)
        if not bool(to_host(xp.all(allowed > 0))):
            raise ValueError("project: returned entries that are not positive, needed λ > 0 with log=True")
        return xp.log(detached(allowed))

    def as_lam(self, variable: Array) -> Array:
        """λ of what the loop moves."""
        return array_namespace(variable).exp(variable) if self.log else variable

    def evaluate(self, at: LoopState, lam: Array, x0: Array | None = None) -> tuple[Array, float]:
        """x and Σ f_i at λ, from x0 or where the loop starts; DivergenceError where they are not finite."""
        before = at.clock.traffic
        if x0 is None:
            x0 = at.x if self.warm_start and at.x is not None else self.x0
        x = trained(self.train, self.problem, self.net, lam, x0, at.clock, len(at.lam))
        cost = self.total(self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after training")
        at.training = at.clock.traffic - before
        return x, cost

    def accept(self, at: LoopState, lam: Array, x: Array, cost: float) -> None:
        """λ and x with all that is known of them."""
        at.lam.append(lam)
        at.x = x
        at.outer_cost.append(cost)
        at.floats.append(int(at.clock.traffic.floats))
        at.rounds.append(int(at.clock.traffic.rounds))
        if self.measure is not None:
            self.judge(at)

    def judge(self, at: LoopState) -> None:
        """Measure x at λ_k; is it the best so far?"""
        assert self.measure is not None
        xp = array_namespace(at.x)
        told = self.measure(xp.asarray(at.x, copy=True), xp.asarray(self.as_lam(at.lam[-1]), copy=True))
        at.measure.append(self._everywhere(validation.number("measure(x, lam)", told)))
        if at.measure[-1] < at.measure[at.best] or at.k == 0:
            at.best, at.best_x = at.k, at.x

    def _everywhere(self, told: float) -> float:
        """What the measure says of all clients: where they live in several processes, the mean over clients."""
        held = self.channel.clients.stop - self.channel.clients.start
        return told if held == self.channel.n else self.total(np.full(held, told)) / self.channel.n

    def total(self, values: Array) -> float:
        """The sum over all clients of values (n,)."""
        return float(self.channel.mean_over_clients(host_float64(values)[:, None])[0, 0]) * self.channel.n

    def norm(self, v: Array) -> float:
        """‖v‖ over all clients, of any size."""
        v = host_float64(v)
        size = float(self.channel.max_over_clients(np.abs(v).max(axis=1)))
        return size * self.total(np.sum((v / size) ** 2, axis=1)) ** 0.5 if size else 0.0


def _like(lam: Array, name: str, given: Array) -> Array:
    """`given`, which must be an array like λ."""
    validation.same_kind(lam=lam, **{name: given})
    validation.shape(name, given, tuple(lam.shape), "(n, d_lam)", run_axes=False)
    validation.finite(name, given)
    return given


# ----------------------------------------------------------------------------------------------------
# Corrections of x by Newton's steps over means, for training that is left with a bias.
#
#     x ← Θ̂ (x − p),    p ≈ (Σ_k H_k)⁻¹ Σ_k ∂g_k(x)
#
# p is the w of Algorithm 2 (or whichever method estimates hyper-gradients) for a problem whose outer gradient is ∂_x g.
# If p is right up to a share r, the gradient that is left falls to that share each time; with SGP over changing graphs
# it
# falls as the learning rate, so that half of it costs twice the steps.


class Stationarity:
    """The problem with f = g, of which only ∂_x is used."""

    broadcasts = True

    def __init__(self, problem: Normalised) -> None:
        self.n_clients, self.dim_x, self.dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
        self.clients = problem.clients
        self.inner_cost = self.outer_cost = problem.inner_cost
        self.inner_grad, self.linearize, self.counts = problem.inner_grad, problem.linearize, problem.counts
        self._told = problem.term_sizes
        self.term_sizes = None if self._told is None else self._term_sizes

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x g_i, and 0 along λ."""
        return self.inner_grad(x, lam), array_namespace(lam).zeros_like(lam)

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """Those of g in the place of f, and none along λ."""
        told: Any = self._told
        sizes = told(x, lam)
        along = array_namespace(lam).zeros_like(lam)
        return replace(sizes, outer_cost=sizes.inner_cost, outer_grad=(sizes.inner_grad, along))


def stationarity(problem: Normalised) -> Any:
    """`problem` as one whose w is Newton's step."""
    return as_problem(Stationarity(problem))


# ----------------------------------------------------------------------------------------------------
# What ended a run of certified steps, in words: what stood in the way, and what would help.


LOWER, JUDGED, UNKNOWN = "lower", "judged", "unknown"  # what became of a trial; an error's words where training failed


def too_rough(kept: Mapping[str, Any], bound: float, inner: float, needed: float) -> str:
    """What kept the error of the hyper-gradient above what a step may have; `inner` is what x is to blame for."""
    words = f"the bound on the error of the hyper-gradient is {bound:.2g}, needed {needed:.2g} = θ‖D‖"
    if not np.isfinite(bound):
        return f"{words}: x is too far from x(λ) for a bound; train longer, or with a smaller rate"
    if inner > needed / 2:
        return (
            f"{words}; {inner:.2g} of it is owed to x, which was corrected {kept['care']} times: train longer or with "
            "a smaller rate, give a larger θ, or keep λ from where the inner cost is hardly convex (project=)"
        )
    return (
        f"{words}; x is to blame for {inner:.2g} of it, the rest is the series' with S = {kept['S']} and "
        f"M = {kept['M']}: start from larger ones, or take a faster method"
    )


def not_lower(kept: Mapping[str, Any], norm: float, seen: Sequence[str]) -> str:
    """What kept F from being seen to fall; `seen` is what became of each trial: JUDGED, UNKNOWN or an error."""
    failures = [what for what in seen if what not in (JUDGED, UNKNOWN)]
    if len(failures) == len(seen):
        return (
            f"training failed at all {len(seen)} λ⁺ that were tried, so nothing is known of F there. The last time: "
            f"{failures[-1]}"
        )
    words = (
        f"F(λ) lies between {kept['low']:.10g} and {kept['high']:.10g}, and none of {len(seen)} steps tried (the first "
        f"with γ = {kept['gamma']:.2g}, ‖v‖ = {norm:.2g}) was seen to lower it: "
    )
    if failures:
        words += f"at {len(failures)} of them training failed ({failures[-1]}); "
    unknown = sum(what == UNKNOWN for what in seen)
    if unknown:
        return (
            f"{words}{unknown} of them led to where the problem tells no strong convexity; keep λ away from there, by "
            "log=True or project="
        )
    return (
        f"{words}what is left to gain is less than can be told with x corrected {kept['care']} times; train longer or "
        "with a smaller rate, or start from larger S and M"
    )
