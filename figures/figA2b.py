"""Appendix Fig. 2b: influence of training instances on a CNN, full batch. The paper shows the panel at the lower left.

Left: single instances. Right: groups of one client and label. Above: M more gradient steps from the trained x, whose
derivative the hyper-gradient is. Below: training again from scratch, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from figures.experiments.influence.cnn import experiment
from figures.options import INFLUENCE_SIZES, Data, Options, Row
from figures.reference import CNN_PAPER
from figures.scatter import add_scatter
from hgp_ref.attribution import scores
from reporting.store import Arrays, Experiment
from reporting.style import new_figure

SHOWS = "A CNN is predicted well for M more steps from x, less well for training from scratch; full batch"
SIZES = INFLUENCE_SIZES
RETRAININGS = {"continued": "more steps from $x$", "scratch": "from scratch"}
KINDS = ("one instance", "a group")
LEAST_R2 = 0.8  # of predictions against M more steps


def experiments(options: Options) -> dict[str, Experiment]:
    """Predictions and both retrainings, full batch."""
    return {"cnn": experiment(options.size, mini_batch=False, **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """One panel per retraining and kind of removal."""
    d = data["cnn"]
    rows = [Panels(label, d[retraining], d["predicted"][0]) for retraining, label in RETRAININGS.items()]
    return draw_panels(d, rows, "removed from a CNN's training data, full batch")


def compare(data: Data, options: Options) -> list[Row]:
    """R² and F1, and the paper's."""
    return [] if options.quick else compare_with_paper(data["cnn"], "full", options)


def of_kind(d: Arrays, kind: str) -> np.ndarray:
    """A mask (R,) of the removals that are single instances, or groups."""
    single = d["removed"][:, 1, 0] < 0
    return np.asarray(single if kind == KINDS[0] else ~single)


@dataclass(frozen=True)
class Panels:
    """A row of panels: a retraining with its actual and predicted changes, (R,) each."""

    label: str
    actual: np.ndarray
    predicted: np.ndarray
    std: np.ndarray | None = None  # (R,), of predictions over batches, if these are random


def draw_panels(d: Arrays, rows: Sequence[Panels], title: str) -> Figure:
    """Retrainings by kinds of removal."""
    figure = new_figure(height=2.25 * len(rows) + 0.4)
    panels = figure.subplots(len(rows), 2)
    for across, row in zip(panels, rows, strict=True):
        for axes, kind in zip(across, KINDS, strict=True):
            chosen = of_kind(d, kind)
            std = None if row.std is None else row.std[chosen]
            client = d["removed"][chosen, 0, 0]
            add_scatter(axes, row.actual[chosen], row.predicted[chosen], client, std=std,
                        title=f"{kind},\n{row.label}")  # fmt: skip
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, title=title, handlelength=1.0)
    return figure


def compare_with_paper(d: Arrays, batch: str, options: Options) -> list[Row]:
    """Three rows for single instances.

    R² from x is required with full batches at the small sizes, where the theory holds and the change is small.
    """
    chosen, (r2, f1) = of_kind(d, KINDS[0]), CNN_PAPER[batch]
    more, scratch = (scores(d[retraining][chosen], d["predicted"][0, chosen]) for retraining in RETRAININGS)
    note = "from scratch" if options.size == "paper" else "from scratch; other data, network and steps than the paper's"
    required = batch == "full" and options.size != "paper"
    label = "M more steps; the paper's is from scratch" + (f"; goal: {LEAST_R2} at least" if required else "")
    return [
        Row(f"CNN, {batch} batch, R² from x", more.r2, r2, more.r2 >= LEAST_R2 if required else None, label),
        Row(f"CNN, {batch} batch, R²", scratch.r2, r2, None, note),
        Row(f"CNN, {batch} batch, F1", scratch.f1, f1, None, note),
    ]
