"""Figures of the gallery: the project's own look, wide enough for a page."""

from __future__ import annotations

import matplotlib as mpl

from reporting.style import COLOURS, RC


def reset(gallery_conf: dict[str, object], fname: str) -> None:
    """Called by the gallery before each example."""
    mpl.rcParams.update(mpl.rcParamsDefault)
    mpl.use("Agg")
    mpl.rcParams.update(RC)
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=COLOURS)
    mpl.rcParams.update({"figure.figsize": (6.0, 3.4), "font.size": 9, "savefig.dpi": 130, "figure.dpi": 130})
