"""Fig. 1a: error of HGP against the number of iterations, full batch, for S = 1, 2, 5, 10, 100."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.curves import compare_errors, draw_curves
from figures.experiments.estimation import for_variant
from figures.options import Data, Options, Row
from reporting.store import Experiment

SHOWS = "More steps S lower the floor: error of the hyper-gradient against m, full batch (mean of 10 seeds)"
BY_VARIANT = True


def experiments(options: Options) -> dict[str, Experiment]:
    """Full-batch errors."""
    return {"errors": for_variant(options.variant, **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """Mean error for each S, and what exact averaging reaches."""
    return draw_curves(data["errors"], options, limit=True)


def compare(data: Data, options: Options) -> list[Row]:
    """The table of the published program."""
    return compare_errors(data["errors"], options)
