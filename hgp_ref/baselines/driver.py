"""The loop that all baselines share: one outer iteration after another, over a channel that counts messages.

A baseline is a `BilevelMethod`. It consists of a rule that moves x, a rule that moves λ, and a `HypergradientEstimator`
that approaches the hyper-gradient while x and λ move. Two loops combine them:

    SingleLoop    x, estimator and λ move in the same round, with derivatives at the same point
    Nested        T rounds of x, then N rounds of the estimator, then one step of λ

If λ is not shared, λ_i belongs to client i, moves along v_i, and is not sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
from scipy.sparse import csr_array

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, device, host_float64
from hgp_ref.bilevel.trajectory import Path
from hgp_ref.errors import DivergenceError
from hgp_ref.methods.descent import Gradient, Moving, Rule, unit_products
from hgp_ref.mixing import Averaging, Gossip, Mixer, PushSum, ServerAverage, run_round, start_averaging
from hgp_ref.mixing.averaging import check_network
from hgp_ref.mixing.consensus import MixingRoutine, no_communication
from hgp_ref.mixing.simulated import balance_tolerance
from hgp_ref.networks import FullyConnected, Network
from hgp_ref.philox import check_seed
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullLinearization, FullProblem
from hgp_ref.problems.batches import BatchSampler, MiniBatches
from hgp_ref.training.gradient_push import check_lam


class Point:
    """Derivatives at (x, λ), on full batches or on one mini-batch, each computed at its first use."""

    def __init__(self, problem: FullProblem, x: Array, lam: Array, batch: Array | None) -> None:
        self.problem, self.x, self.lam, self.batch = problem, x, lam, batch

    @cached_property
    def outer(self) -> tuple[Array, Array]:
        """∂_x f and ∂_λ f."""
        return self.problem.outer_grad(self.x, self.lam)

    @cached_property
    def lin(self) -> FullLinearization:
        """u ↦ H u and u ↦ J u."""
        return self.problem.linearize(self.x, self.lam, **self._batch)

    def jacobians(self) -> Array:
        """J_i by the problem's closed form, or by products with unit vectors.  # (n, d_lam, d_x)"""
        if self.problem.jacobian is not None:
            return self.problem.jacobian(self.x, self.lam, **self._batch)
        return array_namespace(self.x).moveaxis(unit_products(self.lin.cross, self.x), 0, -1)

    def inner_grad(self, x: Array) -> Array:
        """∂_x g at another x and the same λ."""
        return self.problem.inner_grad(x, self.lam, **self._batch)

    def at(self, x: Array, lam: Array) -> Point:
        """Another point, on the same mini-batch."""
        return Point(self.problem, x, lam, self.batch)

    def lam_gap(self, x: Array, z: Array, nodes: int) -> Array:
        """∂_λ g(x) − ∂_λ g(z) = ∫₀¹ J(z + t (x − z)) (x − z) dt, by Gauss–Legendre quadrature.  # (n, d_lam)

        Problems offer J but not ∂_λ g. The result is exact if ∂_λ g_i is a polynomial in x of degree 2 · nodes.
        """
        t, weight = np.polynomial.legendre.leggauss(nodes)
        parts = [
            float(w) / 2 * self.at(z + (1 + float(s)) / 2 * (x - z), self.lam).lin.cross(x - z)
            for s, w in zip(t, weight, strict=True)
        ]
        return sum(parts[1:], parts[0])

    @property
    def _batch(self) -> dict[str, Array]:
        return {} if self.batch is None else {"batch": self.batch}


class Points:
    """The points of a run. With mini-batches, each call of `next` draws a new one, at most `total` in all."""

    def __init__(
        self, problem: FullProblem, like: Array, batch_size: int | None = None, seed: int = 0, total: int = 1
    ) -> None:
        self.problem, self.drawn = problem, 0
        self.batches = None
        if batch_size is not None:
            self.batches = BatchSampler(problem, MiniBatches(batch_size, seed), total, like)

    def next(self, x: Array, lam: Array) -> Point:
        """The point (x, λ), on a new mini-batch."""
        batch = None if self.batches is None else self.batches.at(self.drawn)[0]
        self.drawn += 1
        return Point(self.problem, x, lam, batch)


# ---- Filters: which direction u is taken when d is computed


class Filter:
    """u = d."""

    def next(self, u: Array | None, d: Array, previous: Callable[[], Array] | None) -> tuple[Array, Array | None]:
        """The direction to take, and the one to remember.

        `u` is what was remembered, None at first. `previous()` is the direction at the last point on this mini-batch.
        """
        return d, None


@dataclass(frozen=True)
class MovingAverage(Filter):
    """u ← (1 − θ) u + θ d, from u = d."""

    theta: float

    def next(self, u: Array | None, d: Array, previous: Callable[[], Array] | None) -> tuple[Array, Array | None]:
        u = d if u is None else (1 - self.theta) * u + self.theta * d
        return u, u


@dataclass(frozen=True)
class Storm(Filter):
    """u ← d + (1 − a) (u − d₋), d₋ the direction at the last point on this mini-batch; on full batches u = d."""

    a: float

    def next(self, u: Array | None, d: Array, previous: Callable[[], Array] | None) -> tuple[Array, Array | None]:
        u = d if u is None or previous is None else d + (1 - self.a) * (u - previous())
        return u, u


IDENTITY = Filter()


# ---- Networks that a method supports


STATIC, DIRECTED, SERVER = "static undirected", "directed", "server"


def one_round(name: str, kind: str, net: Network) -> Averaging:
    """The averaging whose calls are one round of the method `name` over `net`."""
    check_network(net)
    if kind == DIRECTED:
        return PushSum(net, 1)
    if kind == SERVER:
        if not isinstance(net, FullyConnected):
            raise ValueError(
                f"net must be FullyConnected({net.n}), because {name} averages through a server that reaches all "
                f"clients in every round (n messages to the server, n back), got {net!r}"
            )
        return ServerAverage(net.n)
    missing = _not_static_undirected(net)
    if missing:
        raise ValueError(
            f"{name} needs one undirected graph with symmetric doubly stochastic weights, the same in every round, "
            f"such as StaticUndirected, got {net!r}: {missing}. baselines.fab and bilevel.optimise support other "
            "networks"
        )
    return Gossip(net, 1)


def _not_static_undirected(net: Network) -> str:
    """Why `net` is not one graph with symmetric doubly stochastic weights; "" if it is."""
    if net.period != 1:
        return "its graphs change"
    indptr, senders, shares = net.csr(1)
    W = csr_array((shares, senders, indptr), shape=(net.n, net.n))
    if abs(W - W.T).max() > balance_tolerance(net.n, 1):
        return "its weights are not symmetric"
    off = float(np.abs(W.sum(axis=1) - 1).max())
    return "" if off <= balance_tolerance(net.n, 1) else f"a row of its weights differs from 1 by {off:.2g}"


# ---- Estimators of the hyper-gradient at a point that moves


class HypergradientEstimator(ABC):
    """An iteration towards the hyper-gradient at a point that may move between two iterations.

        state = init(point);    state = run_round(mixer, talk(state, point))[0];    v = value(state, point)

    `hgp_ref.methods` has the same iterations at a fixed point. Here a state must make sense at another point, and its
    message travels together with those of x and λ.
    """

    @abstractmethod
    def init(self, point: Point) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def talk(self, state: Any, point: Point) -> MixingRoutine:
        """One iteration at `point`."""

    @abstractmethod
    def value(self, state: Any, point: Point) -> Array:
        """v of every client.  # (n, d_lam)"""

    def restart(self, state: Any, point: Point) -> Any:
        """The state at the start of the N rounds of the next outer iteration of a nested method."""
        return state


@dataclass(frozen=True)
class Auxiliary(HypergradientEstimator):
    """z → w* by a rule with the gradient H_i z_i − ∂_x f_i;  v_i = ∂_λ f_i − J_i z_i."""

    rule: Rule

    def init(self, point: Point) -> Moving:
        return Moving(array_namespace(point.x).zeros_like(point.x))

    def talk(self, state: Moving, point: Point) -> MixingRoutine:
        return self.rule.talk(state, lambda z: point.lin.hvp(z) - point.outer[0])

    def value(self, state: Moving, point: Point) -> Array:
        return point.outer[1] - point.lin.cross(state.s)

    def restart(self, state: Moving, point: Point) -> Moving:
        return Moving(state.s)  # gradient tracking restarts from z


@dataclass(frozen=True)
class LocalSeries(HypergradientEstimator):
    """v_i = ∂_λ f_i − J_i (1/ℓ) Σ_{j<J} (I − H_i/ℓ)^j ∂_x f_i, from each client's own derivatives. Sends nothing."""

    terms: int  # J
    ell: float  # ℓ

    def init(self, point: Point) -> None:
        return None

    def talk(self, state: None, point: Point) -> MixingRoutine:
        return no_communication(None)

    def value(self, state: None, point: Point) -> Array:
        u = point.outer[0]
        w = u / self.ell
        for _ in range(self.terms - 1):
            u = u - point.lin.hvp(u) / self.ell
            w = w + u / self.ell
        return point.outer[1] - point.lin.cross(w)


# ---- Methods


@dataclass(frozen=True)
class State:
    """x, λ and the estimator's state after an outer iteration."""

    x: Moving
    lam: Moving
    estimate: Any
    x_memory: Array | None = None  # of the filters
    lam_memory: Array | None = None
    previous: tuple[Array, Array] | None = None  # x and λ one iteration ago


class LocalGradientStep(Rule):
    """s ← s − α d, by each client alone."""

    directed = True

    def talk(self, moving: Moving, gradient: Gradient) -> MixingRoutine:
        return no_communication(Moving(moving.s - self.step * gradient(moving.s)))


class BilevelMethod(ABC):
    """A bilevel method: the networks it supports, its estimator, and one outer iteration."""

    name: str
    network: str  # STATIC, DIRECTED or SERVER
    estimator: HypergradientEstimator
    lam_rule: Rule
    draws = 1  # mini-batches per outer iteration

    def init(self, point: Point) -> State:
        return State(Moving(point.x), Moving(point.lam), self.estimator.init(point))

    @abstractmethod
    def step(self, state: State, mixer: Mixer, points: Points) -> State:
        """One outer iteration."""


@dataclass(frozen=True)
class SingleLoop(BilevelMethod):
    """x, estimator and λ move in the same round, with derivatives at the same point."""

    name: str
    x_rule: Rule
    estimator: HypergradientEstimator
    lam_rule: Rule
    x_filter: Filter = IDENTITY
    lam_filter: Filter = IDENTITY
    network: str = STATIC

    def step(self, state: State, mixer: Mixer, points: Points) -> State:
        point = points.next(state.x.s, state.lam.s)
        d_x, x_memory = self._filtered(self.x_filter, state.x_memory, state, point, lambda p: p.inner_grad(p.x))
        d_lam, lam_memory = self._filtered(
            self.lam_filter, state.lam_memory, state, point, lambda p: self.estimator.value(state.estimate, p)
        )
        x, estimate, lam = run_round(
            mixer,
            self.x_rule.talk(state.x, lambda _: d_x),
            self.estimator.talk(state.estimate, point),
            self.lam_rule.talk(state.lam, lambda _: d_lam),
        )
        return State(x, lam, estimate, x_memory, lam_memory, (state.x.s, state.lam.s))

    @staticmethod
    def _filtered(
        filtered: Filter, memory: Array | None, state: State, point: Point, direction: Callable[[Point], Array]
    ) -> tuple[Array, Array | None]:
        earlier = None if state.previous is None else point.at(*state.previous)
        return filtered.next(memory, direction(point), None if earlier is None else lambda: direction(earlier))


@dataclass(frozen=True)
class Nested(BilevelMethod):
    """T rounds of x, then N of the estimator, then one step of λ."""

    name: str
    x_rule: Rule
    estimator: HypergradientEstimator
    lam_rule: Rule
    inner_steps: int  # T
    estimator_steps: int  # N
    lam_filter: Filter = IDENTITY
    network: str = STATIC

    @property
    def draws(self) -> int:  # type: ignore[override]
        return self.inner_steps + self.estimator_steps + 1

    def step(self, state: State, mixer: Mixer, points: Points) -> State:
        x, lam = state.x, state.lam.s
        for _ in range(self.inner_steps):
            (x,) = run_round(mixer, self.x_rule.talk(x, points.next(x.s, lam).inner_grad))
        last = points.next(x.s, lam)
        estimate = self.estimator.restart(state.estimate, last)
        for _ in range(self.estimator_steps):
            point = last if points.batches is None else points.next(x.s, lam)
            (estimate,) = run_round(mixer, self.estimator.talk(estimate, point))
        d, memory = self.lam_filter.next(state.lam_memory, self.estimator.value(estimate, last), None)

        def direction(other: Array) -> Array:  # rules with local steps ask for v at other λ
            return d if other is lam else self.estimator.value(estimate, last.at(last.x, other))

        (moved,) = run_round(mixer, self.lam_rule.talk(state.lam, direction))
        return State(x, moved, estimate, lam_memory=memory)


# ---- The run


GROWTH_LIMIT = 1e8  # x, λ or Σ f that grow by more than this factor have diverged


class RunOptions(TypedDict, total=False):
    """Keywords that all baselines take.

    Attributes
    ----------
    shared : all clients share one λ, which is sent. By default λ_i belongs to client i and is not sent.
    x0 : (n, d_x), zeros by default.
    project : λ ← project(λ) after every iteration, applied to each client's own entries.
    batch_size, seed : None for full batches of g, else instances per client, drawn anew for each derivative of g.
    every : the path has one entry per so many iterations. Σ f is evaluated there, at the clients' own x and λ.
    callback : called as callback(k, lam, x, outer_cost) at each entry; a true result stops the run.
    """

    shared: bool
    x0: Array | None
    project: Callable[[Array], Array] | None
    batch_size: int | None
    seed: int
    every: int
    callback: Callable[[int, Array, Array, float], object] | None


def read_shared(options: RunOptions) -> bool:
    """The option `shared`, which methods need before they run."""
    return validation.boolean("shared", options.get("shared", False))


def run(
    method: BilevelMethod,
    problem: Problem,
    lam: Array,
    net: Network,
    outer_steps: int,
    *,
    shared: bool = False,
    x0: Array | None = None,
    project: Callable[[Array], Array] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    every: int = 1,
    callback: Callable[[int, Array, Array, float], object] | None = None,
    **unknown: object,
) -> Path:
    """K outer iterations of `method` from λ and x0, with `RunOptions`."""
    if unknown:
        known = ", ".join(RunOptions.__annotations__)
        raise TypeError(f"{method.name} has no option {', '.join(unknown)}; options of all baselines are {known}")
    problem = as_problem(problem)
    lam, x = _initial(problem, lam, x0)
    K = validation.integer("outer_steps", outer_steps, 0, validation.LONGEST)
    every, seed = validation.integer("every", every, 1, validation.LONGEST), check_seed(seed)
    if batch_size is not None:
        batch_size = validation.integer("batch_size", batch_size, 1, 2**31 - 1)
    for name, function in (("project", project), ("callback", callback)):
        if function is not None:
            validation.function(name, function)
    averaging = one_round(method.name, method.network, net)
    mixer = start_averaging([averaging], problem.n_clients, x, max(K, 1))
    points = Points(problem, x, batch_size, seed, total=K * method.draws + 1)
    state, record = method.init(points.next(x, lam)), _Record(problem, mixer, lam, x)
    points.drawn, stopped = 0, "steps"
    record.add(state, 0)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported as divergence
        for k in range(1, K + 1):
            state = method.step(state, mixer, points)
            if project is not None:
                state = _projected(state, project, method.lam_rule)
            if k % every and k != K:
                continue
            record.add(state, k)
            if callback is not None:
                answer = callback(k, state.lam.s, state.x.s, record.cost[-1])
                if validation.returned_bool("callback", answer):
                    stopped = "callback"
                    break
    settings = dict(net=net, outer_steps=K, shared=shared, project=project, batch_size=batch_size, seed=seed,
                    every=every)  # fmt: skip
    parts = {f.name: repr(getattr(method, f.name)) for f in fields(method)}  # type: ignore[arg-type]
    return Path(
        lam=array_namespace(lam).stack(record.lam),
        x=state.x.s,
        outer_cost=np.array(record.cost),
        traffic=mixer.record_traffic(),
        floats=np.array(record.floats, dtype=np.int64),
        rounds=np.array(record.rounds, dtype=np.int64),
        stopped=stopped,
        method=method.name,
        settings=settings | {name: text for name, text in parts.items() if name not in ("name", "network")},
    )


def _initial(problem: FullProblem, lam: Array, x0: Array | None) -> tuple[Array, Array]:
    check_lam(problem, lam, x0, run_axes=False)
    xp, shape = array_namespace(lam), (problem.n_clients, problem.dim_x)
    lam = xp.asarray(detached(lam), copy=True)
    if x0 is None:
        return lam, xp.zeros(shape, dtype=lam.dtype, device=device(lam))
    validation.shape("x0", x0, shape, "(n, d_x)", run_axes=False)
    validation.finite("x0", x0)
    return lam, xp.asarray(detached(x0), copy=True)


def _projected(state: State, project: Callable[[Array], Array], rule: Rule) -> State:
    projected = project(array_namespace(state.lam.s).asarray(state.lam.s, copy=True))
    validation.same_kind(lam=state.lam.s, **{"project(lam)": projected})
    validation.shape("project(lam)", projected, tuple(state.lam.s.shape), "(n, d_lam)", run_axes=False)
    return replace(state, lam=rule.projected(state.lam, detached(projected)))


class _Record:
    """The entries of the path."""

    def __init__(self, problem: FullProblem, mixer: Mixer, lam: Array, x: Array) -> None:
        self.problem, self.mixer = problem, mixer
        self.lam: list[Array] = []
        self.cost: list[float] = []
        self.floats: list[int] = []
        self.rounds: list[int] = []
        self.cost_scale = 0.0  # 1 + |Σ f| at the first entry
        self.scale = 1.0 + max(self._largest(lam), self._largest(x))

    def add(self, state: State, k: int) -> None:
        """Append the entry after iteration k; DivergenceError if it is not finite or has grown too much."""
        cost = host_float64(self.problem.outer_cost(state.x.s, state.lam.s))[:, None]
        total = float(self.mixer.channel.mean_over_clients(cost)[0, 0]) * self.mixer.channel.n
        size = max(self._largest(state.lam.s), self._largest(state.x.s))
        self.cost_scale = self.cost_scale or 1.0 + abs(total)
        if not (
            np.isfinite(total) and abs(total) <= GROWTH_LIMIT * self.cost_scale and size <= GROWTH_LIMIT * self.scale
        ):
            raise DivergenceError(
                f"diverged: after {k} outer iterations Σ f is {total:.3g} and the largest entry of x and λ {size:.3g}; "
                "take smaller step sizes"
            )
        sent = self.mixer.channel.traffic
        self.lam.append(state.lam.s)
        self.cost.append(total)
        self.floats.append(int(sent.floats))
        self.rounds.append(int(sent.rounds))

    def _largest(self, a: Array) -> float:
        xp = array_namespace(a)
        return float(np.max(self.mixer.channel.max_over_clients(xp.max(xp.abs(a), axis=-1))))
