"""Docstrings of this package are numpydoc with equations in Unicode: an indented block stands for itself.

In reStructuredText an indented block is a quotation, in which w* would begin emphasis and |x| name a substitution. So
indented blocks that are no part of a list, a section of numpydoc or a directive become literal blocks here, and lines
of an equation stay as they are written beside the code.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

FIELD = re.compile(r"^(Parameters|Returns|Yields|Raises|Attributes|Other Parameters|Warns|See Also|Methods|Receives)$")
RULE = re.compile(r"^-{3,}$")
LISTED = re.compile(r"^\s*([-*•]|\d+\.)\s")


def literal_equations(lines: list[str]) -> list[str]:
    """The lines with `::` before every indented block of prose sections."""
    out: list[str] = []
    prose, k = True, 0
    while k < len(lines):
        line = lines[k]
        if k + 1 < len(lines) and RULE.match(lines[k + 1]):
            prose = not FIELD.match(line)
        if prose and _begins_equation(lines, k):
            out += ["::", ""]
            while k < len(lines) and (not lines[k].strip() or lines[k].startswith(" ")):
                out.append(lines[k])
                k += 1
            if out[-1].strip():
                out.append("")
            continue
        out.append(line)
        k += 1
    return out


def _begins_equation(lines: list[str], k: int) -> bool:
    """Whether line k is indented, after a blank line, and follows neither a list nor what announces it itself."""
    if not lines[k].startswith(" ") or (k and lines[k - 1].strip()):
        return False
    before = [line for line in lines[:k] if line.strip()]
    while before and before[-1].startswith(" "):
        before.pop()
    last = before[-1] if before else ""
    return not (LISTED.match(last) or last.startswith("..") or last.rstrip().endswith("::"))


def escape_mathematics(lines: list[str]) -> list[str]:
    """|x| in prose is a norm here and w* a solution; *words* stay emphasis; literal blocks and examples stay as is."""
    out, literal = [], False
    for line in lines:
        if line.strip() == "::":
            literal = True
        elif literal and line.strip() and not line.startswith(" "):
            literal = False
        plain = literal or line.lstrip().startswith((">>>", "...", ".. "))
        out.append(line if plain else _outside_code(line))
    return out


def _outside_code(line: str) -> str:
    pieces = re.split(r"(`[^`]*`)", line)
    return "".join(p if p.startswith("`") else _escape(p) for p in pieces)


def _escape(prose: str) -> str:
    kept = re.split(r"((?<![\w*])\*{1,2}[^*\s](?:[^*]*[^*\s])?\*{1,2}(?![\w*]))", prose)
    return "".join(p if k % 2 else re.sub(r"(?<!\\)([|*])", r"\\\1", p) for k, p in enumerate(kept))


def process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Before numpydoc sees them."""
    lines[:] = escape_mathematics(literal_equations(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    """Run before numpydoc, whose priority is the usual 500."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
