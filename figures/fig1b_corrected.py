"""Fig. 1b as printed, against a reference from one mini-batch, and the same errors against the truth."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures.curves import CAPTIONS, CLIENTS, ERROR, LEGEND, add_curves, hidden_lines, set_scale
from figures.fig1b import experiments
from figures.options import Data, Options, Row
from figures.reference import REFERENCE_STD
from reporting.style import HEIGHT, new_figure

SHOWS = "The plateau is mostly noise of the reference: Fig. 1b against the printed one and against all data"
BY_VARIANT = True

__all__ = ["BY_VARIANT", "SHOWS", "compare", "draw", "experiments"]


def draw(data: Data, options: Options) -> Figure:
    """Two panels with one scale: the printed kind of reference, the true hyper-gradient."""
    figure = new_figure(height=HEIGHT + 0.4)
    panels = figure.subplots(1, 2, sharey=True)
    titles = ("against one mini-batch\n(as printed)", "against all data\n(corrected)")
    for axes, kind, title in zip(panels, ("errors_printed", "errors"), titles, strict=True):
        lines = add_curves(axes, data["errors"], options, kind=kind)
        axes.set_title(title, loc="left")
    for axes in panels:
        set_scale(axes)
        axes.set_xlabel("iterations $m$")
        axes.xaxis.set_major_locator(MaxNLocator(2))
    panels[0].set_ylabel(ERROR)
    title = "\n".join([CAPTIONS[options.variant], LEGEND, *hidden_lines(panels[1], lines)])
    figure.legend(handles=lines, loc="outside upper center", ncols=3, title=title)
    return figure


def compare(data: Data, options: Options) -> list[Row]:
    """The standard deviation of the printed reference over seeds. It depends on the batches, so nothing is required."""
    if options.quick or options.variant != "published":
        return []
    printed = data["errors"]["printed_truth"] / CLIENTS  # (seeds, n, d_λ)
    std = float(np.sqrt(np.mean(printed.var(axis=0, ddof=1))))
    return [Row("sd of the printed reference over seeds", std, REFERENCE_STD, None, "of a client's value")]
