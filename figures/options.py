"""What the user asked for, and what figures hand back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures.reference import FACTOR
from reporting.store import Arrays

Data = Mapping[str, Arrays]  # arrays of each experiment that a figure asked for
VARIANTS = ("paper", "published")
SIZES = ("reduced", "emnist", "paper")  # unless a figure names its own; see `cnn_clients`
PERSONAL_SIZES = ("small", "reduced", "paper")  # of personalization; see `personal`


@dataclass(frozen=True)
class Options:
    """Variant, short runs or full ones, the array library that computes, and the size of what exists in several.

    A size of "" is a figure's first one.
    """

    variant: str = "paper"
    quick: bool = False
    backend: str = "numpy"
    size: str = ""


@dataclass(frozen=True)
class Row:
    """One number beside the paper's; `met` says whether it is as near as can be asked, None where nothing is asked."""

    what: str
    ours: float
    paper: float
    met: bool | None
    note: str = ""


@dataclass(frozen=True)
class Product:
    """What was made for one figure and variant, where it is, how it compares and what it cost."""

    name: str
    variant: str
    shows: str
    paths: Sequence[Path]
    rows: Sequence[Row]
    cpu_seconds: float  # of its experiments, when they were computed
    fresh: bool  # whether anything was computed now


def near(what: str, ours: float, paper: float, note: str = "") -> Row:
    """A row that asks for agreement within the factor that other random numbers allow."""
    return Row(what, ours, paper, paper / FACTOR <= ours <= paper * FACTOR, note)
