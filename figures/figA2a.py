"""Appendix Fig. 2a: the paper repeats Fig. 1c; here each instance is retrained twice, by SGP and exactly by Newton.

Where circle and cross agree, the actual change is that of the problem and not of the training; what then remains off
the diagonal is the second-order part that no first-order prediction has.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.fig1c import CAPTIONS, experiments, unit
from figures.options import Data, Options, Row
from figures.scatter import add_scatter, score_text
from reporting.style import COLUMN, new_figure

SHOWS = "Fig. 1c with exact retraining (crosses) over retraining by SGP"
BY_VARIANT = True

__all__ = ["BY_VARIANT", "SHOWS", "compare", "draw", "experiments"]


def draw(data: Data, options: Options) -> Figure:
    """Fig. 1c, and a cross at each exact change."""
    d, (name, divisor) = data["removal"], unit(options)
    figure = new_figure(height=0.95 * COLUMN)
    axes = figure.subplots()
    actual, exact, predicted = (d[key] / divisor for key in ("actual", "actual_exact", "predicted"))
    add_scatter(axes, actual, predicted, d["chosen"][:, 0], name)
    axes.texts[-1].set_text(_beside(score_text(actual, predicted), score_text(exact, predicted)))
    axes.plot(exact, predicted, linestyle="", marker="+", markersize=5, markeredgewidth=0.6, color="k", label="exact")
    axes.set_title(CAPTIONS[options.variant], fontsize=6.5, color="#555555", loc="right", pad=3)
    axes.legend(loc="upper left", borderaxespad=0.2)
    return figure


def _beside(sgp: str, exact: str) -> str:
    """The scores of both retrainings in one text."""
    values = [line.split(" = ") for line in sgp.split("\n")]
    others = [line.split(" = ")[1] for line in exact.split("\n")]
    lines = [f"{name} = {value}, exact {other}" for (name, value), other in zip(values, others, strict=True)]
    return "\n".join(lines)


def compare(data: Data, options: Options) -> list[Row]:
    """Nothing beyond Fig. 1c, whose numbers these are."""
    return []
