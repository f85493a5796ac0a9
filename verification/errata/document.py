"""ERRATA.md from a run: the entries and the numbers that were measured."""

from __future__ import annotations

from pathlib import Path

from hgp_ref.results import write_whole
from verification.errata import ERRATA
from verification.run import Result
from verification.table import number

HEAD = """# Errata of the paper

Corrections and remarks for readers of *Hyper-Gradient Push*. Each entry gives the place, the printed text, the
correction, and a number that supports it. `python -m verification errata N` recomputes entry N, and
`python -m verification errata` all of them; with `--write ERRATA.md` it writes this file with the numbers of its run.
The corrected statements (A, B, C1–C4, D, E, 2*) are in `hgp_ref/bounds`; `python -m verification` tests them.

Kinds:

- **false as printed**: a theorem fails under its own conditions. There are two: Theorem 1 needs a further condition on
  the step size (**4**), and Theorem 2 lacks a term (**15**). Both corollaries are stated under the conditions of
  Theorem 1 and hold once that condition is added.
- **gap in the proof**: the statement holds, or holds with another constant, but the argument given does not prove it;
  or what is computed is not covered by a statement.
- **slip**: an index, a sign, a factor, a symbol, or a condition that is stated elsewhere in the paper.
- **sharper**: the printed text is right, and more can be said.

Three entries matter in practice: **4** (choose η with η(α + L) ≤ 2), **15** (an inexact inner solution adds a further
term) and **25** (reset the Push-Sum weights between calls in long runs).

Figures for errata 2, 4, 12, 15, 22 and 25 are in the report that `python -m verification` writes.
"""


def write_errata(path: Path, result: Result) -> None:
    """Write the document, whole or not at all."""
    write_whole(path, text(result).encode())


def text(result: Result) -> str:
    """The document for the rows of a run of all errata."""
    entries = [(ERRATA[int(row.statement.split()[1])], row) for row in result.rows]
    lines = [HEAD, "| | kind | where | shown by | what the command gives |", "|---|---|---|---|---|"]
    for entry, row in entries:
        command = f"`python -m verification errata {entry.number}`"
        link = f"[{entry.number}](#{entry.number})"
        lines.append(f"| {link} | {entry.kind} | {entry.where} | {command} | {_cell(row.note)} |")
    for entry, row in entries:
        lines += [
            f'\n## <a id="{entry.number}"></a>{entry.number}. {entry.where}\n',
            f"**Kind.** {entry.kind}.\n",
            f"**Printed.** {entry.wrong}\n",
            f"**Correct.** {entry.right}\n",
            f"**Setting.** {row.setting}: measured {number(row.measured)}, set against {number(row.bound)}.",
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text for a table cell: a vertical bar would end it."""
    return text.replace("|", "\\|")
