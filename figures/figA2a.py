"""Appendix Fig. 2a: the paper repeats Fig. 1c. Here each instance is retrained twice, by SGP and exactly by Newton.

If circle and cross agree, the actual change does not depend on how the model is trained. The remaining distance from
the diagonal is then of second order, which no first-order prediction contains.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.fig1c import drawn, experiments
from figures.options import Data, Options

SHOWS = "Exact retraining agrees with retraining by SGP: Fig. 1c with a cross at each exact change"
BY_VARIANT = True

__all__ = ["BY_VARIANT", "SHOWS", "draw", "experiments"]


def draw(data: Data, options: Options) -> Figure:
    """Fig. 1c with a cross at each exact change."""
    return drawn(data["removal"], options, exact=True)
