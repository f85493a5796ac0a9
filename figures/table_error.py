"""All errors of the published experiments, and the numbers of the published program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.experiments.estimation import experiment
from figures.options import Data, Options, Row, near
from figures.reference import (
    ERROR_MINI_BATCH,
    ERROR_SCALAR,
    ERROR_VECTOR,
    FLOAT32_FLOOR,
    ITERATIONS,
    STEPS,
)
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "Errors at m = 1 … 1000 and the published program's: λ per client, per coordinate, mini-batches"
CLIENTS = 3
KINDS = {
    "full batch, λ per client": ("client", None),
    "full batch, λ per coordinate": ("coordinate", None),
    "mini-batch of 20, λ per client": ("client", 20),
}


def experiments(options: Options) -> dict[str, Experiment]:
    """The three experiments with known numbers, on the data and graphs of the published program."""
    return {
        kind: experiment("published", regularization, batch, **options.computation)
        for kind, (regularization, batch) in KINDS.items()
    }


def table(data: Data, options: Options) -> Table:
    """One row per kind, S and m: the error here, the published one, their ratio."""
    rows = []
    for kind, S, m, ours, paper in _numbers(data):
        known = (f"{paper:.3g}", f"{ours / paper:.2f}") if paper is not None else ("", "")
        rows.append((kind, str(S), str(m), f"{ours:.3g}", *known))
    return Table("", ("experiment", "S", "m", "error here", "published program", "ratio"), tuple(rows))


def pages(data: Data, options: Options, stamps: Mapping[str, Any]) -> dict[str, str]:
    """Only the last iteration, for the documentation."""
    full = table(data, options)
    m = full.header.index("m")
    last = max((row[m] for row in full.rows), key=int)
    rows = [(*row[:m], *row[m + 1 :]) for row in full.rows if row[m] == last]
    return {"table_error.md": Table("", (*full.header[:m], *full.header[m + 1 :]), rows).markdown() + "\n"}


def compare(data: Data, options: Options) -> list[Row]:
    """The errors with λ per coordinate, which no figure compares."""
    if options.quick:
        return []
    rows = []
    for kind, S, m, ours, paper in _numbers(data):
        if paper is None or not kind.endswith("coordinate"):
            continue
        what = f"λ per coordinate, S={S}, m={m}"
        if paper < FLOAT32_FLOOR:
            rows.append(Row(what, ours, paper, ours <= 3 * paper, "theirs is a float32 floor"))
        else:
            rows.append(near(what, ours, paper))
    return rows


def _numbers(data: Data) -> list[tuple[str, int, int, float, float | None]]:
    """(kind, S, m, mean error with f/n, published or None) for every m within the run."""
    at_end = {"full batch, λ per coordinate": ERROR_VECTOR, "mini-batch of 20, λ per client": ERROR_MINI_BATCH}
    numbers = []
    for kind in KINDS:
        means = data[kind]["errors"].mean(axis=1) / CLIENTS  # (S, M)
        for k, S in enumerate(STEPS):
            for j, m in enumerate(ITERATIONS):
                if m > means.shape[1]:
                    continue
                paper = at_end[kind][S] if kind in at_end and m == ITERATIONS[-1] else None
                if kind not in at_end:
                    paper = ERROR_SCALAR[S][j]
                numbers.append((kind, S, m, float(means[k, m - 1]), paper))
    return numbers
