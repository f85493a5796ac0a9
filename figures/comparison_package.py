"""Error over floats sent: the methods of this package on five problems and two kinds of networks."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.comparison import experiments, panels
from figures.experiments.comparison import runs
from figures.options import Data, Options

__all__ = ["draw", "experiments"]

SHOWS = "Error against floats sent: six methods of this package, static undirected and time-varying directed networks"
NUMPY = True
SIZES = runs.SIZES
SHOWN = ("HGP", "Chebyshev", "Refined", "Tracking", "Preconditioned tracking", "Conjugate gradients")


def draw(data: Data, options: Options) -> Figure:
    """A row for each kind of network, a column for each problem."""
    return panels(data, options, [(k, kind, SHOWN) for k, kind in enumerate(runs.NETWORKS)])
