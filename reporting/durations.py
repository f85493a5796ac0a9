"""How long figures, statements and benchmarks take: docs/measured/durations.json, for the lists of the three commands.

`python -m reporting --durations` writes it from the folder of results. Times are CPU seconds of one run on one machine,
so lists round them to one digit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hgp_ref.results import write_whole
from reporting.reproduce import FIGURES, VERIFICATION, read
from reporting.table import Table

STORED = Path(__file__).parents[1] / "docs" / "measured" / "durations.json"
BENCHMARKS = Path("benchmarks") / "benchmarks.json"


def record(results: Path, stored: Path = STORED) -> None:
    """Write the durations found in `results`; those of what was not run stay."""
    known: dict[str, dict[str, float]] = read(stored) or {}
    figures: dict[str, float] = {}
    for product in read(results / FIGURES) or ():
        figures[product["name"]] = max(figures.get(product["name"], 0), product["cpu_seconds"])
    statements = (read(results / VERIFICATION) or {"statements": ()})["statements"]
    found = {
        "figures": figures,
        "verification": {one["name"]: one["seconds"] for one in statements},
        "benchmarks": (read(results / BENCHMARKS) or {"seconds": {}})["seconds"],
    }
    merged = {command: {**known.get(command, {}), **times} for command, times in found.items()}
    write_whole(stored, (json.dumps(merged, indent=1, sort_keys=True) + "\n").encode())


def listing(command: str, sentences: Mapping[str, str], extra: Sequence[tuple[str, str]] = ()) -> str:
    """A table of names, durations and a sentence each; `extra` are rows without a duration."""
    stored = read(STORED) or {}
    times = stored.get(command, {})
    rows = [(name, about(times.get(name)), sentence) for name, sentence in sentences.items()]
    rows += [(name, "", sentence) for name, sentence in extra]
    return Table("", ("name", "about", "what"), rows).text()


def about(seconds: float | None) -> str:
    """A duration with one digit; "" if it is not known."""
    if seconds is None:
        return ""
    for size, unit in ((3600, "h"), (60, "min"), (1, "s")):
        if float(f"{seconds / size:.0e}") >= 1:
            return f"{float(f'{seconds / size:.0e}'):.0f} {unit}"
    return "< 1 s"


def first_sentence(docstring: str | None) -> str:
    """The first line of a docstring without its full stop."""
    return (docstring or "").strip().partition("\n")[0].rstrip(".")
