"""A table of text: for the terminal, for a spreadsheet, for a README and for a page."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Table:
    """Cells as text, one header, and a title where the table stands on a page."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Columns aligned with blanks: words to the left, numbers to the right."""
        lines = [self.header, *self.rows]
        widths = [max(width(line[c]) for line in lines) for c in range(len(self.header))]
        right = [c > 0 and any(_is_number(row[c]) for row in self.rows) for c in range(len(self.header))]
        return "\n".join(
            "  ".join(padded(cell, w, r) for cell, w, r in zip(line, widths, right, strict=True)).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        """A table for README files."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def csv(self) -> str:
        """Comma-separated values, quoted where needed."""
        return "\n".join(",".join(_quoted(cell) for cell in line) for line in (self.header, *self.rows))

    def html(self) -> str:
        """A heading and a table; every column but the first holds numbers."""
        head = "".join(f"<th{numeric(k > 0)}>{escape(cell)}</th>" for k, cell in enumerate(self.header))
        body = "".join(
            "<tr>" + "".join(f"<td{numeric(k > 0)}>{escape(cell)}</td>" for k, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        head = f"<thead><tr>{head}</tr></thead>"
        return f"<h3>{escape(self.title)}</h3><table class='small'>{head}<tbody>{body}</tbody></table>"


def width(text: str) -> int:
    """Columns that `words` take in a terminal: marks over a letter, as in x̄, take none."""
    return sum(not unicodedata.combining(character) for character in text)


def padded(text: str, columns: int, right: bool = False) -> str:
    """`words` with blanks up to `columns`, behind them or before."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def numeric(is_number: bool) -> str:
    """The attribute of an HTML cell that holds a number."""
    return " class='number'" if is_number else ""


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\n') else cell
