"""One driver for the bilevel methods of others: λ, x and what approaches the hyper-gradient, moved by talks.

A method is a `Joint`: which rule moves x and λ, a `Hyper`, and in which order they talk. `SingleLoop` moves all of them
in one round, at the same point; `Nested` makes T rounds of x, then N of the hyper-gradient, then moves λ. Where λ is
not shared, λ_i belongs to client i, moves along its own v_i, and is not sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from hgp_ref.averaging import Mean, exchange
from hgp_ref.averaging.talks import Talk, silent
from hgp_ref.backend import Array
from hgp_ref.bilevel.others.filters import PLAIN, Filter
from hgp_ref.bilevel.others.hyper import Hyper
from hgp_ref.bilevel.others.points import Point, Points
from hgp_ref.methods.rules import Gradient, Moving, Rule


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
