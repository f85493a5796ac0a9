"""What the user asked for, and what figures hand back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures.reference import FACTOR
from figures.store import Arrays

Data = Mapping[str, Arrays]  # arrays of each experiment that a figure asked for
VARIANTS = ("paper", "published")


@dataclass(frozen=True)
class Options:
    """Variant, short runs or full ones, and the array library that computes."""

    variant: str = "paper"
    quick: bool = False
    backend: str = "numpy"


@dataclass(frozen=True)
class Row:
    """One number beside the paper's; `met` says whether it is as near as can be asked, None where nothing is asked."""

    what: str
    ours: float
    paper: float
    met: bool | None
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of text that can be printed, read by a spreadsheet and pasted into a page."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """Columns aligned with blanks: words to the left, numbers to the right."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[c]) for line in lines) for c in range(len(self.header))]
        right = [c > 0 and any(_is_number(row[c]) for row in self.rows) for c in range(len(self.header))]
        return "\n".join(
            "  ".join(
                cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        """A table for README files."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def csv(self) -> str:
        """Comma-separated values, quoted where needed."""
        return "\n".join(",".join(_quoted(cell) for cell in line) for line in (self.header, *self.rows))


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


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\n') else cell
