"""What approaches the hyper-gradient at a point that may move: a state, one iteration as a talk, and a value.

`hgp_ref.methods` has the same iterations at a point that stays, for the driver of estimates. Here x and λ move between
two iterations, so that a state must make sense at another point, and what is sent travels in one message with x and λ:
hence a form of its own, which tests compare with the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from hgp_ref.averaging.talks import Talk, silent
from hgp_ref.backend import Array, array_namespace
from hgp_ref.bilevel.others.points import Point
from hgp_ref.methods.rules import Moving, Rule


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
