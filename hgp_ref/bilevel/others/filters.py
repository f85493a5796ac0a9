"""Directions with a memory: moving averages and STORM.

    Plain       u = d
    Average     u ← (1 − θ) u + θ d                         u = d at first
    Storm       u ← d + (1 − a) (u − d₋)                    d₋: the direction one iteration ago, on this mini-batch

On full batches Storm is u = d, whatever a: d₋ is what d was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hgp_ref.backend import Array
from hgp_ref.bilevel.others.points import Point


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
