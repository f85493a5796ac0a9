"""The rows as a table in the terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hgp_ref as hgp
from reporting.provenance import versions
from reporting.table import padded
from verification.jobs import Done
from verification.rows import NOT_APPLICABLE, Row
from verification.run import Run

HEAD = ("statement", "setting", "measured", "bound", "ratio", "verdict")
WIDTHS = (24, 62, 9, 9, 9)


def number(x: float | None) -> str:
    """Three digits, or a dash."""
    return "–" if x is None or not math.isfinite(x) else f"{x:.3g}"


def ratio(x: float | None) -> str:
    """A ratio, with three decimals where it is close to 1."""
    return f"{x:.3f}" if x is not None and 0.1 <= x < 10 else number(x)


def cells(row: Row) -> tuple[str, ...]:
    """The six columns as text."""
    return (row.statement, row.setting, number(row.measured), number(row.bound), ratio(row.ratio), row.verdict)


def text(done: Sequence[Done]) -> str:
    """All rows, grouped by statement; errata with their text below the row."""
    lines = [_line(HEAD), _line(tuple("─" * w for w in (*WIDTHS, 20)))]
    for one in done:
        lines.append(f"\n{one.title}  ({one.seconds:.1f} CPU s)")
        for row in one.result.rows:
            lines.append(_line(cells(row)))
            if row.note:
                lines.append(f"{'':{WIDTHS[0]}}  {row.note}")
        lines += [f"  {name}: {number(value)}" for name, value in one.result.facts.items()]
    return "\n".join(lines)


def _line(parts: tuple[str, ...]) -> str:
    columns = [padded(p, w, right=k >= 2) for k, (p, w) in enumerate(zip(parts, WIDTHS, strict=False))]
    return "  ".join([*columns, parts[-1]])


def counts(done: Sequence[Done]) -> dict[str, int]:
    """How many rows have each verdict."""
    return dict(Counter(short(row.verdict) for one in done for row in one.result.rows))


def short(verdict: str) -> str:
    """The verdict without its reason."""
    return NOT_APPLICABLE if verdict.startswith(NOT_APPLICABLE) else verdict


def document(done: Sequence[Done], run: Run, seconds: float, failed: bool) -> dict[str, Any]:
    """The contents of the JSON file."""
    return {
        "passed": not failed,
        "settings": {"seed": run.seed, "quick": run.quick, "backend": run.backend},
        "versions": {"hgp_ref": hgp.__version__} | versions(("numpy", "scipy")),
        "seconds": round(seconds, 2),
        "verdicts": counts(done),
        "statements": [
            {
                "name": one.name,
                "title": one.title,
                "seconds": round(one.seconds, 2),
                "rows": [row.as_json() for row in one.result.rows],
                "facts": {k: float(v) if math.isfinite(v) else None for k, v in one.result.facts.items()},
                "figures": [picture.name for picture in one.result.pictures],
            }
            for one in done
        ],
    }


def to_json(document: dict[str, Any]) -> str:
    """JSON text; NaN would be an error."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
