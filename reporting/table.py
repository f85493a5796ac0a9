"""A table of text: for the terminal, for a spreadsheet, for a README and for a page."""

from __future__ import annotations

import re
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
        numbers = range(1, len(self.header))
        return f"<h3>{escape(self.title)}</h3>{html_table(self.header, self.rows, numbers)}"


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table whose columns `numbers` hold numbers. One with many columns is a card per row on a narrow screen."""
    breaks = [re.sub(r"(?<=[a-z])(?=[A-Z(])", "<wbr>", escape(name)) for name in header]  # within names of classes
    heads = "".join(f"<th{numeric(k in numbers)}>{name}</th>" for k, name in enumerate(breaks))
    body = "".join(
        f"<tr>{''.join(_cell(k, header[k], cell, numbers) for k, cell in enumerate(row))}</tr>" for row in rows
    )
    kind = " class='cards'" if len(header) > 3 else ""
    return f"<table{kind}><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _cell(k: int, name: str, content: str, numbers: Sequence[int]) -> str:
    if k == 0:
        return f"<td class='first'>{escape(content)}</td>"
    return f"<td{numeric(k in numbers)} data-label='{escape(name, quote=True)}'>{escape(content)}</td>"


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
