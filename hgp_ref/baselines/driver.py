"""Derivatives where a bilevel method stands, on full batches or on the next mini-batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, device, host_float64
from hgp_ref.bilevel.trajectory import Path
from hgp_ref.errors import DivergenceError
from hgp_ref.methods.series import unit_products
from hgp_ref.methods.spectrum import Gradient, Moving, Rule
from hgp_ref.mixing import Averaging, Gossip, Mean, PushSum, ServerAverage, exchange, open_mean
from hgp_ref.mixing.averaging import check_network
from hgp_ref.mixing.consensus import Talk, silent
from hgp_ref.mixing.simulated import balance_tolerance
from hgp_ref.networks import FullyConnected, Network
from hgp_ref.philox import check_seed
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import FullLinearization, Normalised
from hgp_ref.problems.batches import MiniBatches
from hgp_ref.training.gradient_push import check_lam


class Point:
    """∂_x f, ∂_λ f, u ↦ H u and u ↦ J u at (x, λ), each computed when it is first asked for."""

    def __init__(self, problem: Normalised, x: Array, lam: Array, batch: Array | None) -> None:
        self.problem, self.x, self.lam, self.batch = problem, x, lam, batch

    @cached_property
    def outer(self) -> tuple[Array, Array]:
        """∂_x f and ∂_λ f.  # (n, d_x), (n, d_lam)"""
        return self.problem.outer_grad(self.x, self.lam)

    @cached_property
    def lin(self) -> FullLinearization:
        """Second derivatives of g."""
        return self.problem.linearize(self.x, self.lam, **self._batch)

    def jacobians(self) -> Array:
        """J_i: the problem's closed form, or products with unit vectors.  # (n, d_lam, d_x)"""
        if self.problem.jacobian is not None:
            return self.problem.jacobian(self.x, self.lam, **self._batch)
        return array_namespace(self.x).moveaxis(unit_products(self.lin.cross, self.x), 0, -1)

    def inner_grad(self, x: Array) -> Array:
        """∂_x g at another x.  # (n, d_x)"""
        return self.problem.inner_grad(x, self.lam, **self._batch)

    def at(self, x: Array, lam: Array) -> Point:
        """Another point, on the same mini-batch."""
        return Point(self.problem, x, lam, self.batch)

    def lam_gap(self, x: Array, z: Array, nodes: int) -> Array:
        """∂_λ g(x) − ∂_λ g(z) = ∫₀¹ J(z + t (x − z)) (x − z) dt, by Gauss–Legendre quadrature.  # (n, d_lam)

        Exact where ∂_λ g_i is a polynomial in x of degree 2 · nodes: a problem offers J, not ∂_λ g.
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
    """The points of a run; with mini-batches `next` draws one after the other, at most `total` of them."""

    def __init__(
        self, problem: Normalised, like: Array, batch_size: int | None = None, seed: int = 0, total: int = 1
    ) -> None:
        self.problem, self.drawn = problem, 0
        self.batches = None if batch_size is None else MiniBatches(problem, batch_size, [seed], total, like)

    def next(self, x: Array, lam: Array) -> Point:
        """The point (x, λ), on a mini-batch that was not used yet."""
        batch = None if self.batches is None else self.batches.at(self.drawn)[0]
        self.drawn += 1
        return Point(self.problem, x, lam, batch)


# ----------------------------------------------------------------------------------------------------
# Directions with a memory: moving averages and STORM.
#
#     Plain       u = d
#     Average     u ← (1 − θ) u + θ d                         u = d at first
#     Storm       u ← d + (1 − a) (u − d₋)                    d₋: the direction one iteration ago, on this mini-batch
#
# On full batches Storm is u = d, whatever a: d₋ is what d was.


class Filter(ABC):
    """From the direction at a point to the one that is taken."""

    @abstractmethod
    def next(
        self, memory: Any, direction: Callable[[Point], Array], point: Point, earlier: Point | None
    ) -> tuple[Array, Any]:
        """The direction to take at `point`, and what to remember; `earlier` is the last point on this mini-batch."""


@dataclass(frozen=True)
class Plain(Filter):
    """u = d."""

    def next(
        self, memory: Any, direction: Callable[[Point], Array], point: Point, earlier: Point | None
    ) -> tuple[Array, Any]:
        return direction(point), None


PLAIN = Plain()


@dataclass(frozen=True)
class Average(Filter):
    """u ← (1 − θ) u + θ d."""

    theta: float

    def next(
        self, memory: Any, direction: Callable[[Point], Array], point: Point, earlier: Point | None
    ) -> tuple[Array, Any]:
        d = direction(point)
        u = d if memory is None else (1 - self.theta) * memory + self.theta * d
        return u, u


@dataclass(frozen=True)
class Storm(Filter):
    """u ← d + (1 − a) (u − d₋)."""

    a: float

    def next(
        self, memory: Any, direction: Callable[[Point], Array], point: Point, earlier: Point | None
    ) -> tuple[Array, Any]:
        d = direction(point)
        u = d if memory is None or earlier is None else d + (1 - self.a) * (memory - direction(earlier))
        return u, u


# ----------------------------------------------------------------------------------------------------
# Which networks a method can use, and the averaging of one round over them; others are refused in words.


STATIC, DIRECTED, SERVER = "static undirected", "directed", "server"


def one_round(name: str, kind: str, net: Network) -> Averaging:
    """The averaging whose calls are one round of the method `name` over `net`."""
    check_network(net)
    if kind == DIRECTED:
        return PushSum(net, 1)
    if kind == SERVER:
        if not isinstance(net, FullyConnected):
            raise ValueError(
                f"net: {net!r} given, but {name} averages through a server that reaches everybody in every round; "
                f"needed FullyConnected({net.n}), which is counted as n messages to the server and n back"
            )
        return ServerAverage(net.n)
    missing = _no_static_undirected(net)
    if missing:
        raise ValueError(
            f"net: {net!r} given, but {name} needs one undirected graph with symmetric doubly stochastic weights, the "
            f"same in every round, such as StaticUndirected; {missing}. Over other networks there are "
            "baselines.fab and bilevel.optimise"
        )
    return Gossip(net, 1)


def _no_static_undirected(net: Network) -> str:
    """What is missing, "" if nothing is."""
    if net.period != 1:
        return "its graphs change"
    indptr, senders, shares = net.csr(1)
    W = csr_array((shares, senders, indptr), shape=(net.n, net.n))
    if abs(W - W.T).max() > balance_tolerance(net.n, 1):
        return "its weights are not symmetric"
    off = float(np.abs(W.sum(axis=1) - 1).max())
    return "" if off <= balance_tolerance(net.n, 1) else f"a row of its weights misses 1 by {off:.2g}"


# ----------------------------------------------------------------------------------------------------
# What approaches the hyper-gradient at a point that may move: a state, one iteration as a talk, and a value.
#
# `hgp_ref.methods` has the same iterations at a point that stays, for the driver of estimates. Here x and λ move
# between
# two iterations, so that a state must make sense at another point, and what is sent travels in one message with x and
# λ:
# hence a form of its own, which tests compare with the other.


class Hyper(ABC):
    """state = begin(point);  state = (what exchange(mean, talk(state, point)) returns);  v = value(state, point)."""

    @abstractmethod
    def begin(self, point: Point) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def talk(self, state: Any, point: Point) -> Talk:
        """One iteration at `point`."""

    @abstractmethod
    def value(self, state: Any, point: Point) -> Array:
        """v of every client.  # (n, d_lam)"""

    def again(self, state: Any, point: Point) -> Any:
        """The state from which a new inner loop starts: it goes on unless a method says otherwise."""
        return state


@dataclass(frozen=True)
class Auxiliary(Hyper):
    """z → w* by a rule with the gradient H_i z_i − ∂_x f_i;  v_i = ∂_λ f_i − J_i z_i."""

    rule: Rule

    def begin(self, point: Point) -> Moving:
        return Moving(array_namespace(point.x).zeros_like(point.x))

    def talk(self, state: Moving, point: Point) -> Talk:
        return self.rule.talk(state, lambda z: point.lin.hvp(z) - point.outer[0])

    def value(self, state: Moving, point: Point) -> Array:
        return point.outer[1] - point.lin.cross(state.s)

    def again(self, state: Moving, point: Point) -> Moving:
        return Moving(state.s)  # a tracker starts anew


@dataclass(frozen=True)
class LocalSeries(Hyper):
    """v_i = ∂_λ f_i − J_i (1/ℓ) Σ_{j<J} (I − H_i/ℓ)^j ∂_x f_i, of each client alone; nothing is sent."""

    terms: int  # J
    ell: float  # ℓ

    def begin(self, point: Point) -> None:
        return None

    def talk(self, state: None, point: Point) -> Talk:
        return silent(None)

    def value(self, state: None, point: Point) -> Array:
        u = point.outer[0]
        w = u / self.ell
        for _ in range(self.terms - 1):
            u = u - point.lin.hvp(u) / self.ell
            w = w + u / self.ell
        return point.outer[1] - point.lin.cross(w)


# ----------------------------------------------------------------------------------------------------
# One driver for the bilevel methods of others: λ, x and what approaches the hyper-gradient, moved by talks.
#
# A method is a `Joint`: which rule moves x and λ, a `Hyper`, and in which order they talk. `SingleLoop` moves all of
# them
# in one round, at the same point; `Nested` makes T rounds of x, then N of the hyper-gradient, then moves λ. Where λ is
# not shared, λ_i belongs to client i, moves along its own v_i, and is not sent.


@dataclass(frozen=True)
class Place:
    """Where a method stands."""

    x: Moving
    lam: Moving
    hyper: Any
    filters: tuple[Any, Any] = (None, None)  # what is remembered of the directions of x and of λ
    before: tuple[Array, Array] | None = None  # x and λ one iteration ago

    @property
    def inner(self) -> Array:
        """The inner parameters, (n, d_x)."""
        return self.x.s


class Own(Rule):
    """s ← s − α d, of each client alone."""

    directed = True

    def talk(self, moving: Moving, gradient: Gradient) -> Talk:
        return silent(Moving(moving.s - self.step * gradient(moving.s)))


class Joint(ABC):
    """A bilevel method: its name, the networks it needs, its hyper-gradient, and one outer iteration."""

    name: str
    network: str  # one of those of `others.networks`
    hyper: Hyper
    lam_rule: Rule
    draws = 1  # mini-batches an outer iteration

    def start(self, point: Point) -> Place:
        return Place(Moving(point.x), Moving(point.lam), self.hyper.begin(point))

    @abstractmethod
    def step(self, at: Place, mean: Mean, points: Points) -> Place:
        """One outer iteration."""


@dataclass(frozen=True)
class SingleLoop(Joint):
    """x, what approaches the hyper-gradient, and λ talk in one round, with directions of the same point (x, ·, λ)."""

    name: str
    x_rule: Rule
    hyper: Hyper
    lam_rule: Rule
    x_filter: Filter = PLAIN
    lam_filter: Filter = PLAIN
    network: str = "static undirected"

    def step(self, at: Place, mean: Mean, points: Points) -> Place:
        point = points.next(at.x.s, at.lam.s)
        earlier = None if at.before is None else point.at(*at.before)
        d_x, kept_x = self.x_filter.next(at.filters[0], lambda p: p.inner_grad(p.x), point, earlier)
        d_lam, kept_lam = self.lam_filter.next(at.filters[1], lambda p: self.hyper.value(at.hyper, p), point, earlier)
        x, hyper, lam = exchange(
            mean,
            self.x_rule.talk(at.x, lambda _: d_x),
            self.hyper.talk(at.hyper, point),
            self.lam_rule.talk(at.lam, lambda _: d_lam),
        )
        return Place(x, lam, hyper, (kept_x, kept_lam), (at.x.s, at.lam.s))


@dataclass(frozen=True)
class Nested(Joint):
    """T rounds of x, then N of the hyper-gradient, then one step of λ."""

    name: str
    x_rule: Rule
    hyper: Hyper
    lam_rule: Rule
    inner_steps: int  # T
    hyper_steps: int  # N
    lam_filter: Filter = PLAIN
    network: str = "static undirected"

    @property
    def draws(self) -> int:  # type: ignore[override]
        return self.inner_steps + self.hyper_steps + 1

    def step(self, at: Place, mean: Mean, points: Points) -> Place:
        x = at.x
        for _ in range(self.inner_steps):
            (x,) = exchange(mean, self.x_rule.talk(x, points.next(x.s, at.lam.s).inner_grad))
        whole = points.next(x.s, at.lam.s)
        hyper = self.hyper.again(at.hyper, whole)
        for _ in range(self.hyper_steps):
            point = whole if points.batches is None else points.next(x.s, at.lam.s)
            (hyper,) = exchange(mean, self.hyper.talk(hyper, point))
        d, kept = self.lam_filter.next(at.filters[1], lambda p: self.hyper.value(hyper, p), whole, None)
        (lam,) = exchange(mean, self.lam_rule.talk(at.lam, self._direction(hyper, whole, at.lam.s, d)))
        return Place(x, lam, hyper, (None, kept))

    def _direction(self, hyper: Any, whole: Point, here: Array, d: Array) -> Gradient:
        """d at the λ where all of it was computed; v at another λ for rules that make steps of their own."""
        return lambda lam: d if lam is here else self.hyper.value(hyper, whole.at(whole.x, lam))


# ----------------------------------------------------------------------------------------------------
# Running a bilevel method: outer iterations, what is recorded, what is refused.


GROWTH_LIMIT = 1e8  # beyond this times what they started with, λ and x are not coming back


def run(
    method: Joint,
    problem: Problem,
    net: Network,
    lam: Array,
    outer_steps: int,
    *,
    x0: Array | None = None,
    project: Callable[[Array], Array] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    every: int = 1,
    callback: Callable[[int, Array, Array, float], object] | None = None,
    **unknown: object,
) -> Path:
    """K outer iterations of `method` from λ and x0, as a Path; the keywords are those of every method of others.

    x0 : (n, d_x), zeros by default.
    project : λ ← project(λ) after every iteration, of each client's own entries.
    batch_size, seed : None for full batches of g, else b instances a client, drawn anew whenever g is differentiated.
    every : an entry of the path for so many iterations; Σ f is evaluated there, at the clients' own x and λ.
    callback : callback(k, lam, x, outer_cost) at each entry; a true result stops.

    What grows beyond GROWTH_LIMIT or is not finite raises DivergenceError.
    """
    if unknown:
        known = "x0, project, batch_size, seed, every, callback"
        raise TypeError(f"{', '.join(unknown)}: no option of {method.name}, needed some of its own or of {known}")
    problem = as_problem(problem)
    lam, x = _start(problem, lam, x0)
    K = validation.integer("outer_steps", outer_steps, 0, validation.LONGEST)
    every, seed = validation.integer("every", every, 1, validation.LONGEST), check_seed(seed)
    for name, function in (("project", project), ("callback", callback)):
        if function is not None:
            validation.function(name, function)
    averaging = one_round(method.name, method.network, net)
    mean = open_mean([averaging], problem.n_clients, x, max(K, 1))
    points = Points(problem, x, batch_size, seed, total=K * method.draws + 1)
    at, kept = method.start(points.next(x, lam)), _Kept(problem, mean, lam, x)
    points.drawn, stopped = 0, "steps"
    kept.add(at, 0)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported as divergence
        for k in range(1, K + 1):
            at = method.step(at, mean, points)
            if project is not None:
                at = _projected(at, project, method.lam_rule)
            if k % every and k != K:
                continue
            kept.add(at, k)
            if callback is not None:
                told = callback(k, at.lam.s, at.inner, kept.cost[-1])
                if validation.returned_bool("callback", told):
                    stopped = "callback"
                    break
    xp = array_namespace(lam)
    settings = dict(net=net, outer_steps=K, project=project, batch_size=batch_size, seed=seed, every=every)
    return Path(
        lam=xp.stack(kept.lam),
        x=at.inner,
        outer_cost=np.array(kept.cost),
        traffic=mean.charge(),
        floats=np.array(kept.floats, dtype=np.int64),
        rounds=np.array(kept.rounds, dtype=np.int64),
        stopped=stopped,
        method=method.name,
        settings=settings | described(method),
    )


def described(method: Joint) -> dict[str, Any]:
    """The settings of a method as plain numbers and words."""
    return {f.name: repr(getattr(method, f.name)) for f in fields(method) if f.name not in ("name", "network")}  # type: ignore[arg-type]


def _start(problem: Normalised, lam: Array, x0: Array | None) -> tuple[Array, Array]:
    check_lam(problem, lam, x0, run_axes=False)
    xp, shape = array_namespace(lam), (problem.n_clients, problem.dim_x)
    lam = xp.asarray(detached(lam), copy=True)
    if x0 is None:
        return lam, xp.zeros(shape, dtype=lam.dtype, device=device(lam))
    validation.shape("x0", x0, shape, "(n, d_x)", run_axes=False)
    validation.finite("x0", x0)
    return lam, xp.asarray(detached(x0), copy=True)


def _projected(at: Place, project: Callable[[Array], Array], rule: Rule) -> Place:
    projected = project(array_namespace(at.lam.s).asarray(at.lam.s, copy=True))
    validation.same_kind(lam=at.lam.s, **{"project(lam)": projected})
    validation.shape("project(lam)", projected, tuple(at.lam.s.shape), "(n, d_lam)", run_axes=False)
    return replace(at, lam=rule.projected(at.lam, detached(projected)))


class _Kept:
    """What the path will hold."""

    def __init__(self, problem: Normalised, mean: Mean, lam: Array, x: Array) -> None:
        self.problem, self.mean = problem, mean
        self.lam: list[Array] = []
        self.cost: list[float] = []
        self.floats: list[int] = []
        self.rounds: list[int] = []
        self.worth = 0.0  # 1 + |Σ f| at first
        self.reach = 1.0 + max(self._largest(lam), self._largest(x))

    def add(self, at: Place, k: int) -> None:
        """The entry after iteration k; DivergenceError where it makes no sense."""
        cost = host_float64(self.problem.outer_cost(at.inner, at.lam.s))[:, None]
        total = float(self.mean.channel.mean_over_clients(cost)[0, 0]) * self.mean.channel.n
        size = max(self._largest(at.lam.s), self._largest(at.inner))
        self.worth = self.worth or 1.0 + abs(total)
        if not (np.isfinite(total) and abs(total) <= GROWTH_LIMIT * self.worth and size <= GROWTH_LIMIT * self.reach):
            raise DivergenceError(
                f"diverged: after {k} outer iterations Σ f is {total:.3g} and the largest entry of x and λ {size:.3g}; "
                "take smaller step sizes"
            )
        sent = self.mean.channel.traffic
        self.lam.append(at.lam.s)
        self.cost.append(total)
        self.floats.append(int(sent.floats))
        self.rounds.append(int(sent.rounds))

    def _largest(self, a: Array) -> float:
        xp = array_namespace(a)
        return float(np.max(self.mean.channel.max_over_clients(xp.max(xp.abs(a), axis=-1))))
