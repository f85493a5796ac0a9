"""From a Matplotlib figure to SVG text that depends on its data alone."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from reporting.style import COLUMN, Line, new_figure, style
from verification.run import Picture

__all__ = ["BOUNDS", "ERROR", "GREY", "distribution", "distributions", "panels", "picture", "reference_line"]

GREY = "#777777"
ERROR = Line("#000000", width=1.8)
# One line for each bound in all figures of the report: distinct in colour, dashes and marker.
BOUNDS = {
    "A": Line("#D55E00", (0, (5, 1.2)), "^"),
    "B": Line("#0072B2", (0, (5, 1.2, 1.2, 1.2)), "v"),
    "min(A, B)": Line("#882255", "-", "D"),
    "C1": Line("#E69F00", (0, (3, 1.5)), "P"),
    "C2": Line("#009E73", (0, (1.2, 1.2)), "s"),
    "C3": Line("#332288", (0, (2.5, 0.8)), "X"),
    "Corollary 1": Line("#CC79A7", "-", "o"),
    "2*": Line("#AA4499", (0, (5, 1.2, 1.2, 1.2)), "d"),
    "D (bernstein)": Line("#999933", "-", "h"),
}


@contextmanager
def panels(rows: int, columns: int, height: float, **options: Any) -> Iterator[tuple[Figure, Any]]:
    """A styled figure of column width and its (rows, columns) array of axes."""
    with style():
        figure = new_figure(COLUMN, height)
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


def picture(figure: Figure, name: str, title: str, caption: str) -> Picture:
    """The figure as SVG, without date and with identifiers that do not change from run to run."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}), style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(name, title, caption, buffer.getvalue(), figure.get_figwidth())


def reference_line(axes: Any, y: float, text: str) -> None:
    """A thin horizontal line with a label above its right end."""
    axes.axhline(y, color=GREY, linewidth=0.8)
    axes.annotate(text, (1, y), xycoords=("axes fraction", "data"), xytext=(-2, 2), textcoords="offset points",
                  ha="right", va="bottom", fontsize=7, color=GREY)  # fmt: skip


def distributions(
    cells: Sequence[Any], ratios: dict[str, dict[str, np.ndarray]], lines: dict[str, Line], quantity: str
) -> None:
    """A cell for each setting with the distribution of `quantity` for each name, and a line at 1."""
    for k, (axes, (setting, by_name)) in enumerate(zip(cells, ratios.items(), strict=True)):
        for name, values in by_name.items():
            distribution(axes, values, label=None if k else name, **lines[name].options())
        axes.axvline(1, color=GREY, linewidth=0.8)
        axes.set(xscale="log", xlabel=quantity)
        axes.set_title(setting)


def distribution(axes: Any, values: np.ndarray, **options: Any) -> None:
    """The share of values up to x, as a step line; markers at some steps."""
    x = np.sort(values[np.isfinite(values)])
    every = max(1, len(x) // 6)
    axes.step(x, np.arange(1, len(x) + 1) / max(len(x), 1), where="post", markevery=every, **options)
