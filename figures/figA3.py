"""Appendix Fig. 3: validation accuracy after each outer step of HGP-PL and HGP-MTL, with S = 10, S = 1 and M = 0.

One panel per network. Lines are means over seeds, bands go from the lowest seed to the highest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.curves import hidden_lines
from figures.experiments.personalization.page import Accuracies, read_accuracies
from figures.experiments.personalization.settings import CONTROLS, NETWORKS, SINGLE, TABLE, merged
from figures.options import PERSONAL_SIZES, Data, Options
from figures.table_personalization import experiments
from reporting.style import Line, new_figure

__all__ = ["draw", "experiments"]

SHOWS = "Validation accuracy after each outer step, S = 10 and S = 1, over four networks"
SIZES = PERSONAL_SIZES
LINES = {
    "hgp_pl": ("HGP-PL, $S = 10$", Line("#0072B2", "-", "o", 2.2)),
    "hgp_pl_s1": ("HGP-PL, $S = 1$", Line("#F0A030", (0, (3, 2)), "s")),
    "hgp_pl_m0": ("HGP-PL, $M = 0$", Line("#000000", (0, (1.2, 1.2)), "^")),
    "hgp_mtl": ("HGP-MTL, $S = 10$", Line("#CC6677", (0, (5, 1.2, 1.2, 1.2)), "D")),
}


def draw(data: Data, options: Options) -> Figure:
    """From the arrays of the experiment."""
    seeds = experiments(options)["push"].settings["seeds"]
    return drawn(read_accuracies(merged(data), seeds), seeds)


def drawn(accuracies: Accuracies, seeds: Sequence[int]) -> Figure:
    """Four panels with a common scale, from the numbers of all parts."""
    figure = new_figure(height=3.7)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, network in zip(panels.flat, NETWORKS, strict=True):
        _add_lines(axes, accuracies, network, seeds)
        axes.set_title(network, loc="left")
    figure.supxlabel("outer steps", fontsize=8)
    figure.supylabel("validation accuracy (%)", fontsize=8)
    handles, labels = panels[1, 1].get_legend_handles_labels()
    hidden = [f"{NETWORKS[-1]}: {text}" for text in hidden_lines(panels[1, 1], handles)]
    title = "\n".join(["lines: means over seeds; bands: lowest to highest", *hidden])
    figure.legend(handles, labels, loc="outside upper center", ncols=2, title=title)
    return figure


def _add_lines(axes: Axes, accuracies: Accuracies, network: str, seeds: Sequence[int]) -> None:
    rows = {**TABLE, **SINGLE, **CONTROLS}
    for method, (label, line) in LINES.items():
        if network not in rows[method][1]:
            continue
        runs = [accuracies[f"{network}.{method}.{seed}"] for seed in seeds]
        curves = np.array([run["validation_curve"] for run in runs])  # (seeds, K + 1)
        steps = np.arange(curves.shape[1])
        axes.plot(steps, curves.mean(axis=0), label=label, **line.options())
        axes.fill_between(steps, curves.min(axis=0), curves.max(axis=0), color=line.colour, alpha=0.2, linewidth=0)
    axes.set_xticks(steps)
    axes.minorticks_off()
