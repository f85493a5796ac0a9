"""Public names of the package, each once: read from `__all__`, so that a new module appears by itself.

A name belongs to the module of `hgp_ref.__all__` nearest to where it is defined; the others have it as an alias.
Modules without `__all__` show the public functions and classes they define.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType

import hgp_ref


@dataclass(frozen=True)
class Name:
    """A public object, where it is shown, and by what other names it goes."""

    module: str
    name: str
    value: object
    aliases: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


def modules() -> list[str]:
    """Public modules of the package, in the order of its `__all__`."""
    members = (getattr(hgp_ref, name) for name in hgp_ref.__all__)
    return [member.__name__ for member in members if inspect.ismodule(member)]


def listed(module: ModuleType) -> list[str]:
    """Public names of a module."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = (n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__)
    return [name for name in own if not name.startswith("_")]


def public_names() -> list[Name]:
    """Every public object once, with its other names."""
    seen: dict[object, tuple[str, str]] = {}
    aliases: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str], object] = {}
    places = [*modules(), "hgp_ref"]
    for place in places:
        module = importlib.import_module(place)
        for name in listed(module):
            value = getattr(module, name)
            if inspect.ismodule(value) or name.startswith("__"):
                continue
            key = id(value) if callable(value) else (place, name)
            home = seen.setdefault(key, (place, name))
            values.setdefault(home, value)
            aliases.setdefault(home, [])
            if home != (place, name):
                aliases[home].append(f"{place}.{name}")
    homes = {home: _preferred(home, aliases[home], value) for home, value in values.items()}
    return [
        Name(*homes[home], value, tuple(a for a in [*aliases[home], ".".join(home)] if a != ".".join(homes[home])))
        for home, value in values.items()
    ]


def _preferred(home: tuple[str, str], aliases: list[str], value: object) -> tuple[str, str]:
    """The place whose name is the object's own and which is nearest to where it is defined."""
    own, defined = getattr(value, "__name__", home[1]), getattr(value, "__module__", home[0])
    places = [home, *((a.rpartition(".")[0], a.rpartition(".")[2]) for a in aliases)]
    right = [place for place in places if place[1] == own] or places
    return max(right, key=lambda place: len(place[0]) if defined.startswith(place[0]) else -1)
