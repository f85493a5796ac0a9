"""ERRATA.md from a run: the entries and the numbers that were measured."""

from __future__ import annotations

from pathlib import Path

from hgp_ref.files import write_whole
from verification.errata import ERRATA
from verification.run import Result
from verification.table import number

HEAD = """# Errata of the paper

For readers of *Hyper-Gradient Push* who meet a step that does not follow. Each entry says where, what is printed, what
is right, and what a computation gives. `python -m verification errata N` repeats entry N, and
`python -m verification errata` all of them; with `--write ERRATA.md` it writes this file with the numbers of its run.
The corrected statements (A, B, C1–C4, D, E, 2*) are in `hgp_ref/bounds`; `python -m verification` tests them.

Errata 2, 4, 12, 15, 22 and 25 are also figures of the report that `python -m verification` writes.

Kinds: **false as printed** (a statement or equation fails under the paper's own assumptions), **gap in the proof** (it
may stand, but not by the argument given, or what is done is not covered by it), **slip** (an index, a sign, a factor, a
symbol) and **sharper** (nothing is wrong, more can be said).

Three entries change what a user may rely on: **4** (Theorem 1 needs a condition on the largest eigenvalue), **15**
(Theorem 2 lacks a term) and **25** (do not keep Push-Sum weights between calls of a long run). **2** enlarges a
constant.
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


def _cell(words: str) -> str:
    """Text for a table cell: a vertical bar would end it."""
    return words.replace("|", "\\|")
