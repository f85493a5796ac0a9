"""From a Matplotlib figure to SVG text that depends on its data alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from reporting.style import COLOURS, DASHES, new_figure, style
from verification.run import Picture

__all__ = ["COLOURS", "DASHES", "GREY", "distribution", "distributions", "panels", "picture", "reference_line"]

GREY = "#777777"


@contextmanager
def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> Iterator[tuple[Figure, Any]]:
    """A styled figure and its (rows, columns) array of axes."""
    with style():
        figure = new_figure(width, height)
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


def picture(figure: Figure, name: str, title: str, caption: str) -> Picture:
    """The figure as SVG, without date and with identifiers that do not change from run to run."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}), style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(name, title, caption, buffer.getvalue(), figure.get_figwidth())


def reference_line(axes: Any, y: float, text: str) -> None:
    """A thin horizontal line with a word above its right end."""
    axes.axhline(y, color=GREY, linewidth=0.8)
    axes.annotate(text, (1, y), xycoords=("axes fraction", "data"), xytext=(-2, 2), textcoords="offset points",
                  ha="right", va="bottom", fontsize=6.5, color=GREY)  # fmt: skip


def distributions(row: Any, ratios: dict[str, dict[str, np.ndarray]], quantity: str, whole: str) -> None:
    """A panel of `row` for each setting, in it the distribution of `quantity` for each name, and a line at 1."""
    for k, (axes, (setting, by_name)) in enumerate(zip(row, ratios.items(), strict=True)):
        for j, (name, values) in enumerate(by_name.items()):
            distribution(axes, values, color=COLOURS[j], linestyle=DASHES[j % len(DASHES)], label=None if k else name)
        axes.set_xscale("log")
        axes.axvline(1, color=GREY, linewidth=0.8)
        axes.set_title(setting)
        axes.set_xlabel(quantity)
    row[0].set_ylabel(f"share of {whole}")


def distribution(axes: Any, values: np.ndarray, **options: Any) -> None:
    """The share of values up to x, as a step line."""
    x = np.sort(values[np.isfinite(values)])
    axes.step(x, np.arange(1, len(x) + 1) / max(len(x), 1), where="post", **options)
