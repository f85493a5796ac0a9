"""Appendix Fig. 3: validation accuracy after each outer step of HGP-PL and HGP-MTL, S = 10 beside S = 1 and M = 0.

A panel for each network; lines are means over seeds, bands go from the lowest seed to the highest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.experiments.personalization.page import Numbers, numbers
from figures.experiments.personalization.settings import CONTROLS, NETWORKS, SINGLE, TABLE, merged
from figures.options import PERSONAL_SIZES, Data, Options, Row
from figures.table_personalization import experiments
from reporting.style import COLOURS, COLUMN, DASHES, new_figure

__all__ = ["compare", "draw", "experiments"]

SHOWS = "Validation accuracy after each outer step, S = 10 and S = 1, over four networks"
BY_VARIANT = False
BY_SIZE = True
SIZES = PERSONAL_SIZES
LINES = {
    "hgp_pl": "HGP-PL, $S = 10$",
    "hgp_pl_s1": "HGP-PL, $S = 1$",
    "hgp_pl_m0": "HGP-PL, $M = 0$",
    "hgp_mtl": "HGP-MTL, $S = 10$",
}


def draw(data: Data, options: Options) -> Figure:
    """From what was computed."""
    seeds = experiments(options)["push"].settings["seeds"]
    return drawn(numbers(merged(data), seeds), seeds)


def drawn(kept: Numbers, seeds: Sequence[int]) -> Figure:
    """Four panels with a common scale, from the numbers of all parts."""
    figure = new_figure(width=2 * COLUMN, height=1.3 * COLUMN)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, network in zip(panels.flat, NETWORKS, strict=True):
        _add_lines(axes, kept, network, seeds)
        axes.set_title(network, loc="left")
    for axes in panels[-1]:
        axes.set_xlabel("outer steps")
    for axes in panels[:, 0]:
        axes.set_ylabel("validation accuracy (%)")
    handles, labels = panels[1, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


def _add_lines(axes: Axes, kept: Numbers, network: str, seeds: Sequence[int]) -> None:
    rows = {**TABLE, **SINGLE, **CONTROLS}
    for k, (method, words) in enumerate(LINES.items()):
        if network not in rows[method][1]:
            continue
        each = np.array([kept[f"{network}.{method}.{seed}"]["validation_curve"] for seed in seeds])  # (seeds, K + 1)
        steps = np.arange(each.shape[1])
        axes.plot(
            steps, each.mean(axis=0), color=COLOURS[k], linestyle=DASHES[k], marker="o", markersize=2.5, label=words
        )
        axes.fill_between(steps, each.min(axis=0), each.max(axis=0), color=COLOURS[k], alpha=0.25, linewidth=0)
    axes.set_xticks(steps)
    axes.minorticks_off()


def compare(data: Data, options: Options) -> list[Row]:
    """The paper's curves are a picture without numbers."""
    return []
