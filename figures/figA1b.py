"""Appendix Fig. 1b: the errors of Fig. 1b with the range from 10 to 90 % over the seeds, for S = 1, 2, 5.

S = 10 and 100 are left out as in the paper: they lie on S = 5.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.curves import draw_bands
from figures.fig1b import experiments, reference_of
from figures.options import Data, Options

SHOWS = "Fig. 1b with 10–90 % bands over seeds, S = 1, 2, 5"
BY_VARIANT = True

__all__ = ["BY_VARIANT", "SHOWS", "draw", "experiments"]


def draw(data: Data, options: Options) -> Figure:
    """A panel for each S."""
    return draw_bands(data["errors"], options, kind=reference_of(options), steps=(1, 2, 5), columns=3)
