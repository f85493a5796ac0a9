"""Error over floats sent: nine methods of others and the planner, on static undirected networks."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.comparison import experiments, panels
from figures.experiments.comparison import runs
from figures.options import Data, Options

__all__ = ["draw", "experiments"]

SHOWS = "Error against floats sent on static undirected networks: nine methods of others, and the planner"
NUMPY = True
SIZES = runs.SIZES
EXACT = ("SPARKLE-ED", "SPARKLE-EXTRA", "SPARKLE-GT", "MA-DSBO", "FAB")
BIASED = ("D-SOBA", "DBO", "GBDSBO", "FedNest", "MDBO, VRDBO")


def draw(data: Data, options: Options) -> Figure:
    """Methods that approach the truth by vectors above the others, a column for each problem."""
    rows = [(0, "approach the truth", (*EXACT, "planner")), (0, "biased, or send matrices", (*BIASED, "planner"))]
    return panels(data, options, rows)
