"""The loop that all baselines share: one outer iteration after another, over a channel that counts messages.

A baseline combines a rule that moves x, a rule that moves λ, and an estimator that approaches the hyper-gradient while
x and λ move:

    SingleLoop    x, estimator and λ move in the same round, with derivatives at the same point
    Nested        T rounds of x, then N rounds of the estimator, then one step of λ

If λ is not shared, λ_i belongs to client i, moves along v_i, and is not sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Protocol

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, device
from hgp_ref.baselines.estimators import STATIC, BilevelPoint, HypergradientEstimator, one_round
from hgp_ref.baselines.rules import DescentRule, Variable
from hgp_ref.bilevel.checkpoint import describe
from hgp_ref.bilevel.loop import apply_projection, check_functions, check_start, sum_over_clients
from hgp_ref.bilevel.settings import copied
from hgp_ref.bilevel.trajectory import Path, Record
from hgp_ref.errors import DivergenceError
from hgp_ref.methods.divergence import GROWTH_LIMIT, largest_entry
from hgp_ref.mixing import Channel, Mixer, run_round, start_averaging
from hgp_ref.networks import Network
from hgp_ref.problems import MiniBatches, Problem, as_problem
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.batches import BatchSampler, read_batches
from hgp_ref.validation import Boolean, Integer, Positive, checked


class Points:
    """The points of a run. With mini-batches, each call of `next` uses a new one, at most `total` in all."""

    def __init__(self, problem: FullProblem, batches: MiniBatches | None, total: int, like: Array) -> None:
        self.problem, self.used = problem, 0
        self.sampler = None if batches is None else BatchSampler(problem, batches, total, like)

    def next(self, x: Array, lam: Array) -> BilevelPoint:
        """The point (x, λ), on a new mini-batch."""
        batch = None if self.sampler is None else self.sampler.at(self.used)[0]
        self.used += 1
        return BilevelPoint(self.problem, x, lam, batch)


class Filter:
    """Turns a computed direction d into the direction u of a variable's step. This one changes nothing: u = d."""

    def apply(self, u: Array | None, d: Array, previous: Callable[[], Array] | None) -> Array:
        """The next u, from the last one (None at first); previous() is d at the last point, on this mini-batch."""
        return d


@dataclass(frozen=True)
class MovingAverage(Filter):
    """u ← (1 − θ) u + θ d, from u = d."""

    theta: float

    def apply(self, u: Array | None, d: Array, previous: Callable[[], Array] | None) -> Array:
        return d if u is None else (1 - self.theta) * u + self.theta * d


@dataclass(frozen=True)
class Storm(Filter):
    """u ← d + (1 − θ) (u − d₋), with d₋ at the last point on this mini-batch; on full batches u = d."""

    theta: float

    def apply(self, u: Array | None, d: Array, previous: Callable[[], Array] | None) -> Array:
        return d if u is None or previous is None else d + (1 - self.theta) * (u - previous())


NO_FILTER = Filter()


@dataclass(frozen=True)
class State:
    """x, λ and the estimator's state after an outer iteration."""

    x: Variable
    lam: Variable
    estimate: Any
    x_direction: Array | None = None  # u of the filters
    lam_direction: Array | None = None
    previous: tuple[Array, Array] | None = None  # x and λ one iteration ago


@dataclass(frozen=True)
class BilevelMethod(ABC):
    """A bilevel method: its rules, its estimator, the networks it supports, and one outer iteration."""

    name: str
    x_rule: DescentRule
    estimator: HypergradientEstimator
    lam_rule: DescentRule
    lam_filter: Filter = NO_FILTER
    network: str = STATIC

    @property
    def batches_per_step(self) -> int:
        """Mini-batches that an outer iteration takes."""
        return 1

    @abstractmethod
    def step(self, state: State, mixer: Mixer, points: Points) -> State:
        """One outer iteration."""


@dataclass(frozen=True)
class SingleLoop(BilevelMethod):
    """x, estimator and λ move in the same round, with derivatives at the same point."""

    x_filter: Filter = NO_FILTER

    def step(self, state: State, mixer: Mixer, points: Points) -> State:
        point = points.next(state.x.s, state.lam.s)
        previous = None if state.previous is None else point.at(*state.previous)

        def direction(rule: Filter, u: Array | None, d: Callable[[BilevelPoint], Array]) -> Array:
            return rule.apply(u, d(point), None if previous is None else lambda: d(previous))

        x_direction = direction(self.x_filter, state.x_direction, lambda p: p.inner_grad(p.x))
        lam_direction = direction(
            self.lam_filter, state.lam_direction, lambda p: self.estimator.value(state.estimate, p)
        )
        x, estimate, lam = run_round(
            mixer,
            self.x_rule.move(state.x, lambda _: x_direction),
            self.estimator.iterate(state.estimate, point),
            self.lam_rule.move(state.lam, lambda _: lam_direction),
        )
        return State(x, lam, estimate, x_direction, lam_direction, (state.x.s, state.lam.s))


@dataclass(frozen=True)
class Nested(BilevelMethod):
    """T rounds of x, then N of the estimator, then one step of λ."""

    inner_steps: int = 1  # T
    estimator_steps: int = 1  # N

    @property
    def batches_per_step(self) -> int:
        return self.inner_steps + self.estimator_steps + 1

    def step(self, state: State, mixer: Mixer, points: Points) -> State:
        x, lam = state.x, state.lam.s
        for _ in range(self.inner_steps):
            (x,) = run_round(mixer, self.x_rule.move(x, points.next(x.s, lam).inner_grad))
        last = points.next(x.s, lam)
        estimate = self.estimator.restart(state.estimate, last)
        for _ in range(self.estimator_steps):
            point = last if points.sampler is None else points.next(x.s, lam)
            (estimate,) = run_round(mixer, self.estimator.iterate(estimate, point))
        u = self.lam_filter.apply(state.lam_direction, self.estimator.value(estimate, last), None)

        def direction(s: Array) -> Array:  # a rule with local steps evaluates v at other λ
            return u if s is lam else self.estimator.value(estimate, last.at(last.x, s))

        (lam_next,) = run_round(mixer, self.lam_rule.move(state.lam, direction))
        return State(x, lam_next, estimate, lam_direction=u)


@checked(shared=Boolean(), every=Integer(1, validation.LONGEST))
@dataclass(frozen=True)
class RunOptions:
    """Keywords that all baselines take.

    Attributes
    ----------
    shared : all clients share one λ, which is sent. By default λ_i belongs to client i and is not sent.
    x0 : (n, d_x), zeros by default.
    project : λ ← project(λ) after every iteration, applied to each client's own entries.
    batches : mini-batches of g, one for each of its derivatives: None for full batches, a size, or `hgp.MiniBatches`.
    every : the path has one entry per so many iterations. Σ f is evaluated there, at the clients' own x and λ.
    callback : called as callback(k, lam, x, outer_cost) at each entry; a true result stops the run.
    """

    shared: bool = False
    x0: Array | None = None
    project: Callable[[Array], Array] | None = None
    batches: MiniBatches | int | None = None
    every: int = 1
    callback: Callable[[int, Array, Array, float], object] | None = None

    def __post_init__(self) -> None:
        check_functions(self.project, self.callback)
        batches = read_batches(self.batches)
        if batches is not None and len(batches.seeds) > 1:
            raise ValueError(f"batches must have one seed, got {batches!r}")
        object.__setattr__(self, "batches", batches)


class Baseline(Protocol):
    """A public function of `hgp_ref.baselines`. `settings` are those of the method and `RunOptions`."""

    def __call__(self, problem: Problem, lam: Array, net: Network, outer_steps: int = 100, **settings: Any) -> Path: ...


def baseline(**rules: validation.Rule) -> Callable[[Callable[..., BilevelMethod]], Baseline]:
    """Make a baseline of a function that builds the method from its settings.

        dsoba(*, lr, …)    becomes    dsoba(problem, lam, net, outer_steps=100, *, lr, …, **options)

    All settings are keywords. `rules` check them, as in `hgp_ref.validation.checked`. A method whose estimator depends
    on whether λ is shared has `shared` among its settings.
    """
    known = [field.name for field in fields(RunOptions)]

    def decorate(build: Callable[..., BilevelMethod]) -> Any:
        accepted = signature(build).parameters

        @wraps(build)
        def solve(problem: Problem, lam: Array, net: Network, outer_steps: int = 100, **settings: Any) -> Path:
            method = build(**{name: value for name, value in settings.items() if name in accepted})
            unknown = [name for name in settings if name not in (*accepted, *known)]
            if unknown:
                raise TypeError(
                    f"{method.name} has no option {', '.join(unknown)}; options of all baselines are {', '.join(known)}"
                )
            options = RunOptions(**{name: value for name, value in settings.items() if name in known})
            return run(method, problem, lam, net, outer_steps, options)

        common = list(signature(solve, follow_wrapped=False).parameters.values())[:4]
        options = Parameter("options", Parameter.VAR_KEYWORD, annotation="RunOptions")
        public: Any = solve
        public.__signature__ = Signature([*common, *accepted.values(), options], return_annotation="Path")
        return checked(outer_steps=Integer(0, validation.LONGEST), lr=Positive(), inner_lr=Positive(), **rules)(public)

    return decorate


def run(method: BilevelMethod, problem: Problem, lam: Array, net: Network, K: int, options: RunOptions) -> Path:
    """K outer iterations of `method` from λ and x0."""
    problem = as_problem(problem)
    lam, project = check_start(problem, lam, options.x0), options.project
    batches: Any = options.batches
    x = array_namespace(lam).zeros((problem.n_clients, problem.dim_x), dtype=lam.dtype, device=device(lam))
    if options.x0 is not None:
        x = copied(detached(options.x0))
    if not options.shared:
        method = replace(method, lam_rule=method.lam_rule.without_communication())

    averaging = one_round(method.name, method.network, net, problem.n_clients)
    mixer = start_averaging([averaging], problem.n_clients, x, max(K, 1))
    points = Points(problem, batches, K * method.batches_per_step + 1, x)
    state = State(Variable(x), Variable(lam), method.estimator.init(points.next(x, lam)))
    points.used, stopped = 0, "steps"  # the first iteration uses the first mini-batch again
    record, limits = Record(), GrowthLimits(mixer.channel, lam, x)

    def add_entry(k: int) -> None:
        cost = sum_over_clients(mixer.channel, problem.outer_cost(state.x.s, state.lam.s))
        limits.check(k, cost, state.lam.s, state.x.s)
        record.append(state.lam.s, cost, mixer.channel.traffic)

    add_entry(0)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported as divergence
        for k in range(1, K + 1):
            state = method.step(state, mixer, points)
            if project is not None:
                projected = apply_projection(project, state.lam.s)
                state = replace(state, lam=method.lam_rule.projected(state.lam, projected))
            if k % options.every and k != K:
                continue
            add_entry(k)
            if options.callback is not None:
                answer = options.callback(k, copied(state.lam.s), copied(state.x.s), record.outer_cost[-1])
                if validation.returned_bool("callback", answer):
                    stopped = "callback"
                    break

    settings = dict(net=net, outer_steps=K, shared=options.shared, project=project, batches=batches,
                    every=options.every)  # fmt: skip
    settings |= {field.name: getattr(method, field.name) for field in fields(method) if field.name != "name"}
    traffic = mixer.record_traffic()
    return record.path(state.x.s, traffic, stopped=stopped, method=method.name, settings=describe(settings))


class GrowthLimits:
    """DivergenceError once x, λ or Σ f is not finite or has grown by more than GROWTH_LIMIT."""

    def __init__(self, channel: Channel, lam: Array, x: Array) -> None:
        self.channel = channel
        self.scale = 1.0 + self._size(lam, x)
        self.cost_scale = 0.0  # 1 + |Σ f| at the first entry

    def check(self, k: int, cost: float, lam: Array, x: Array) -> None:
        """Check the entry after k outer iterations."""
        size = self._size(lam, x)
        self.cost_scale = self.cost_scale or 1.0 + abs(cost)
        bounded = abs(cost) <= GROWTH_LIMIT * self.cost_scale and size <= GROWTH_LIMIT * self.scale
        if not (bounded and np.isfinite(cost)):
            raise DivergenceError(
                f"diverged: after {k} outer iterations Σ f is {cost:.3g} and the largest entry of x and λ {size:.3g}; "
                "take smaller step sizes"
            )

    def _size(self, lam: Array, x: Array) -> float:
        return max(float(largest_entry(self.channel, a)) for a in (lam, x))
