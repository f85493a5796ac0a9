"""Appendix Fig. 2b: influence of training instances on a CNN, full batch. The paper's is from scratch, left.

Left single instances, right groups of one client and label; above M more gradient steps from the trained x, which is
what a hyper-gradient is the derivative of, below training again from scratch, as the paper does. At the reduced size a
third row has more steps with a smooth network, added after the first row had been seen (`figures.cnn` says how it was
chosen).
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures.cnn import experiment, smooth_experiment
from figures.options import Data, Options, Row
from figures.reference import CNN_PAPER
from figures.scatter import add_scatter
from hgp_ref.attribution import scores
from reporting.store import Arrays, Experiment
from reporting.style import COLUMN, new_figure

SHOWS = "Influence with a CNN, full batch: instances and groups removed, M more steps from x and from scratch"
BY_VARIANT = False
BY_SIZE = True
WAYS = {"continued": "more steps from $x$", "scratch": "from scratch"}
KINDS = ("one instance", "a group")


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and both retrainings, full batch; at the reduced size a smooth network beside it, for its numbers."""
    given = {"quick": options.quick, "backend": options.backend}
    beside = {"smooth": smooth_experiment(**given)} if options.size in ("", "reduced") else {}
    return {"cnn": experiment(options.size, mini_batch=False, **given), **beside}


def draw(data: Data, options: Options) -> Figure:
    """A panel for each way of retraining and each kind of removal."""
    return draw_panels(data["cnn"], "removed from a CNN's training data, full batch", data.get("smooth"))


def compare(data: Data, options: Options) -> list[Row]:
    """R² and F1 beside the paper's; what is asked is R² against more steps where the network is smooth."""
    if options.quick:
        return []
    rows = compare_with_paper(data["cnn"], "full", options)
    if "smooth" in data:
        d = data["smooth"]
        chosen, paper = of_kind(d, KINDS[0]), CNN_PAPER["full"][0]
        r2 = scores(d["continued"][chosen], d["predicted"][0, chosen]).r2
        note = "M more steps; chosen after the ReLU network's R² was seen; the paper's is ReLU, from scratch"
        rows.append(Row("smooth CNN, full batch, R² from x", r2, paper, None, note))
    return rows


def of_kind(d: Arrays, kind: str) -> np.ndarray:
    """Which removals are single instances, or groups, (R,) of booleans."""
    single = d["removed"][:, 1, 0] < 0
    return np.asarray(single if kind == KINDS[0] else ~single)


def draw_panels(d: Arrays, title: str, smooth: Arrays | None = None) -> Figure:
    """Ways of retraining by kinds of removal; below them, where given, the smooth network after more steps."""
    rows = [(d, way, words) for way, words in WAYS.items()]
    if smooth is not None:
        rows.append((smooth, "continued", f"{WAYS['continued']}, smooth net"))
    figure = new_figure(width=2 * COLUMN, height=(0.95 * len(rows) + 0.1) * COLUMN)
    panels = figure.subplots(len(rows), 2)
    for row, (of, way, words) in zip(panels, rows, strict=True):
        for axes, kind in zip(row, KINDS, strict=True):
            chosen = of_kind(of, kind)
            add_scatter(axes, of[way][chosen], of["predicted"][0, chosen], of["removed"][chosen, 0, 0], "$f$")
            axes.texts[-1].set(x=0.03, y=0.98, ha="left", va="top")  # predictions fall short: points lie to the right
            axes.set_title(f"{kind}, {words}", loc="left")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, title=title, handlelength=1.0)
    return figure


def compare_with_paper(d: Arrays, batch: str, options: Options) -> list[Row]:
    """Three rows for single instances, of which nothing is asked: the paper's size is another problem."""
    chosen, (r2, f1) = of_kind(d, KINDS[0]), CNN_PAPER[batch]
    more, scratch = (scores(d[way][chosen], d["predicted"][0, chosen]) for way in WAYS)
    note = "from scratch" if options.size == "paper" else "from scratch; other data, network and steps than the paper's"
    return [
        Row(f"CNN, {batch} batch, R² from x", more.r2, r2, None, "M more steps; the paper's is from scratch"),
        Row(f"CNN, {batch} batch, R²", scratch.r2, r2, None, note),
        Row(f"CNN, {batch} batch, F1", scratch.f1, f1, None, note),
    ]
