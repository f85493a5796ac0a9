"""Bound A: every client contracts; reset weights; any S and M."""

from __future__ import annotations

from verification.curves import STEPS, curve, smallest_ratio, standard_cases
from verification.pictures import draw_curves
from verification.rows import Row
from verification.run import Result, Run

TITLE = "Bound A (corrected Theorem 1, every client contracts)"


def verify(run: Run) -> Result:
    """All S on all problems at the iteration where the bound is closest, with the figures of error and bounds."""
    rows: list[Row] = []
    pictures = []
    for case in standard_cases(run):
        curves = [curve(case, S, run, M=run.pick(400, 200), count=run.pick(24, 10)) for S in STEPS]
        for one in curves:
            rows += smallest_ratio(one, "A")
        pictures.append(draw_curves(curves))
    return Result(rows, pictures)
