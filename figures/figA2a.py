"""Appendix Fig. 2a: the paper repeats Fig. 1c. Here each instance is retrained twice, by SGP and exactly by Newton.

If circle and cross agree, the actual change does not depend on how the model is trained. The remaining distance from
the diagonal is then of second order, which no first-order prediction contains.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.fig1c import CAPTIONS, experiments, unit
from figures.options import Data, Options
from figures.scatter import add_scatter, score_text
from reporting.style import COLUMN, new_figure

SHOWS = "Fig. 1c with exact retraining (crosses) over retraining by SGP"
BY_VARIANT = True

__all__ = ["BY_VARIANT", "SHOWS", "draw", "experiments"]


def draw(data: Data, options: Options) -> Figure:
    """Fig. 1c with a cross at each exact change."""
    d, (name, divisor) = data["removal"], unit(options)
    figure = new_figure(height=0.95 * COLUMN)
    axes = figure.subplots()
    actual, exact, predicted = (d[key] / divisor for key in ("actual", "actual_exact", "predicted"))
    add_scatter(axes, actual, predicted, d["chosen"][:, 0], name)
    axes.texts[-1].set_text(_both_scores(score_text(actual, predicted), score_text(exact, predicted)))
    axes.plot(exact, predicted, linestyle="", marker="+", markersize=5, markeredgewidth=0.6, color="k", label="exact")
    axes.set_title(CAPTIONS[options.variant], fontsize=6.5, color="#555555", loc="right", pad=3)
    axes.legend(loc="upper left", borderaxespad=0.2)
    return figure


def _both_scores(sgp: str, exact: str) -> str:
    """The scores of both retrainings in one text."""
    values = [line.split(" = ") for line in sgp.split("\n")]
    exact_values = [line.split(" = ")[1] for line in exact.split("\n")]
    lines = [
        f"{name} = {value}, exact {exact_value}"
        for (name, value), exact_value in zip(values, exact_values, strict=True)
    ]
    return "\n".join(lines)
