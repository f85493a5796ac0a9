"""Fig. 1c: predicted against actual change of f for the 50 most influential training instances, retrained by SGP."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.experiments.influence.removal import experiment
from figures.options import Data, Options, Row
from figures.reference import F1_PAPER, F1_PUBLISHED, R2_PAPER, R2_PUBLISHED
from figures.scatter import add_scatter
from hgp_ref.attribution import scores
from reporting.store import Arrays, Experiment
from reporting.style import COLUMN, new_figure

SHOWS = "Predictions agree with retraining by SGP: the 50 most influential instances, predicted and actual change"
BY_VARIANT = True
CAPTIONS = {
    "paper": "the paper's text: no regulariser",
    "published": "the published program: weight decay 0.01",
}


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and retrainings on the synthetic data."""
    return {"removal": experiment(options.variant, **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """One point per instance."""
    return drawn(data["removal"], options)


def drawn(d: Arrays, options: Options, *, exact: bool = False) -> Figure:
    """The scatter plot, with changes of the f of the variant."""
    f, divisor = ("$f / n$", 3) if options.variant == "published" else ("$f$", 1)
    figure = new_figure(height=0.95 * COLUMN)
    axes = figure.subplots()
    add_scatter(
        axes,
        d["actual"] / divisor,
        d["predicted"] / divisor,
        d["chosen"][:, 0],
        change=f"change of {f}",
        exact=d["actual_exact"] / divisor if exact else None,
    )
    axes.set_title(CAPTIONS[options.variant], fontsize=7, color="#555555", loc="right", pad=3)
    axes.legend(loc="upper left", borderaxespad=0.2)
    return figure


def compare(data: Data, options: Options) -> list[Row]:
    """R² and F1, those of the paper's table and those of its program."""
    if options.quick or options.variant != "published":
        return []
    score = scores(data["removal"]["actual"], data["removal"]["predicted"])
    return [
        Row("influence, R²", score.r2, R2_PUBLISHED, score.r2 >= R2_PAPER, f"the paper prints {R2_PAPER:.2f}"),
        Row("influence, F1", score.f1, F1_PUBLISHED, score.f1 >= F1_PAPER, f"the paper prints {F1_PAPER:.2f}"),
    ]
