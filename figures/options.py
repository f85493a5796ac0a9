"""Options of the command line, and what a figure module returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures.reference import FACTOR
from reporting.store import Arrays

Data = Mapping[str, Arrays]  # arrays of each experiment of a figure
VARIANTS = ("paper", "published")
INFLUENCE_SIZES = ("reduced", "emnist", "paper")  # see `experiments.influence.cnn`
PERSONAL_SIZES = ("small", "reduced", "paper")  # see `experiments.personalization.settings`


@dataclass(frozen=True)
class Options:
    """Variant, short or full runs, array library, and size; "" is a figure's first size. Files of other methods."""

    variant: str = "paper"
    quick: bool = False
    backend: str = "numpy"
    size: str = ""
    added: tuple[Path, ...] = ()  # files whose methods `comparison` adds

    @property
    def computation(self) -> dict[str, Any]:
        """The options that most experiments take."""
        return {"quick": self.quick, "backend": self.backend}


@dataclass(frozen=True)
class Row:
    """A number and the paper's. `met` says whether they agree as required; None if nothing is required."""

    what: str
    ours: float
    paper: float
    met: bool | None
    note: str = ""


@dataclass(frozen=True)
class Product:
    """The files of one figure and variant, its comparison with the paper, and its cost."""

    name: str
    variant: str
    shows: str
    paths: Sequence[Path]
    rows: Sequence[Row]
    cpu_seconds: float  # of its experiments
    fresh: bool  # whether an experiment was run now, not read from a file


def near(what: str, ours: float, paper: float, note: str = "") -> Row:
    """A row that requires agreement within FACTOR, which allows for other random numbers."""
    return Row(what, ours, paper, paper / FACTOR <= ours <= paper * FACTOR, note)
