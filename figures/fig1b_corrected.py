"""Fig. 1b as printed, against a reference from one mini-batch, and the same errors against the truth."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from figures.curves import CAPTIONS, CLIENTS, add_curves
from figures.fig1b import experiments
from figures.options import Data, Options, Row
from figures.reference import REFERENCE_STD
from reporting.style import COLUMN, new_figure

SHOWS = "Fig. 1b against the printed reference and against the full-batch truth: most of the plateau is the reference"
BY_VARIANT = True

__all__ = ["BY_VARIANT", "SHOWS", "compare", "draw", "experiments"]


def draw(data: Data, options: Options) -> Figure:
    """Two panels with one scale: the printed kind of reference, the true hyper-gradient."""
    figure = new_figure(width=2 * COLUMN)
    panels = figure.subplots(1, 2, sharey=True)
    titles = ("reference from one mini-batch (as printed)", "full-batch truth (corrected)")
    for axes, kind, title in zip(panels, ("errors_printed", "errors"), titles, strict=True):
        lines = add_curves(axes, data["errors"], options, kind=kind)
        axes.set_title(title, loc="left")
    panels[0].set_ylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$")
    figure.legend(handles=lines, loc="outside upper left", ncols=5)
    figure.text(0.995, 0.985, CAPTIONS[options.variant], fontsize=6.5, color="#555555", ha="right", va="top")
    return figure


def compare(data: Data, options: Options) -> list[Row]:
    """The standard deviation of the printed reference over seeds. It depends on the batches, so nothing is required."""
    if options.quick or options.variant != "published":
        return []
    printed = data["errors"]["printed_truth"] / CLIENTS  # (seeds, n, d_λ)
    std = float(np.sqrt(np.mean(printed.var(axis=0, ddof=1))))
    return [Row("sd of the printed reference over seeds", std, REFERENCE_STD, None, "of a client's value")]
