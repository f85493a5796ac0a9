"""Appendix Fig. 1a: the errors of Fig. 1a with the range from 10 to 90 % over the seeds."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.curves import draw_curves
from figures.fig1a import experiments
from figures.options import Data, Options

__all__ = ["BY_VARIANT", "SHOWS", "draw", "experiments"]
SHOWS = "Fig. 1a with 10–90 % bands over seeds"
BY_VARIANT = True


def draw(data: Data, options: Options) -> Figure:
    """Mean error for each S and the range between its 10th and 90th percentile."""
    return draw_curves(data["errors"], options, band=True)
