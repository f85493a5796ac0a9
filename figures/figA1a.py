"""Appendix Fig. 1a: the errors of Fig. 1a with the range from 10 to 90 % over the seeds."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.curves import draw_bands
from figures.fig1a import experiments
from figures.options import Data, Options
from figures.reference import STEPS

__all__ = ["BY_VARIANT", "SHOWS", "draw", "experiments"]
SHOWS = "Fig. 1a with 10–90 % bands over seeds, a panel for each S"
BY_VARIANT = True


def draw(data: Data, options: Options) -> Figure:
    """A panel for each S, and all means in the last."""
    return draw_bands(data["errors"], options, kind="errors", steps=STEPS, columns=3)
