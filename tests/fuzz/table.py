"""The table of public functions with good arguments, into which bad values are inserted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A function, how to make good arguments for it (anew for each call), and what may be special about it."""

    name: str  # as in hgp_ref, without the package: "networks.RandomOut.csr"
    function: Callable[[Arguments], Any]  # called with the arguments by name
    good: Callable[[], Arguments]
    passes_nan: bool = False  # a formula at a point: NaN, infinity or overflow in its numbers comes out again
    speaks_of: tuple[str, ...] = ()  # names beside the arguments' that a message may use
    raises: type[Exception] | None = None  # a documented error beside TypeError and ValueError
    owner: Callable[[], Any] | None = None  # of a method

    def in_library(self, move: Callable[[Any], Any], given: Arguments) -> Any:
        """A call in which `move` was applied to the arguments and to the owner of a method."""
        given = {name: move(value) for name, value in given.items()}
        if self.owner is None:
            return self.function(given)
        return getattr(move(self.owner()), self.name.rsplit(".", 1)[1])(**given)


TARGETS: dict[str, Target] = {}


def function(name: str, call: Callable[..., Any], good: Callable[[], Arguments], **special: Any) -> None:
    """Adds a function or a class by its name in the package."""
    assert name not in TARGETS, name
    TARGETS[name] = Target(name, lambda given: call(**given), good, **special)


def method(name: str, owner: Callable[[], Any], good: Callable[[], Arguments] = dict, **special: Any) -> None:
    """Adds a method (the last part of `name`) of what `owner()` makes."""
    member = name.rsplit(".", 1)[1]
    assert name not in TARGETS, name
    TARGETS[name] = Target(name, lambda given: getattr(owner(), member)(**given), good, owner=owner, **special)


def full() -> dict[str, Target]:
    """The whole table."""
    from fuzz import (  # noqa: F401 - each adds its area
        areas_bilevel,
        areas_core,
        areas_data,
        areas_personalization,
        areas_problems,
        areas_theory,
    )

    return TARGETS
