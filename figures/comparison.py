"""Error over floats sent, of HGP and of nine other methods, on five problems and two kinds of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from figures.experiments.comparison import runs
from figures.experiments.comparison.runs import METHODS, NETWORKS
from figures.options import Data, Options
from reporting.store import Experiment
from reporting.style import COLOURS, new_figure

SHOWS = "Error against floats sent for HGP and nine other methods, static undirected and time-varying directed networks"
NUMPY = True
SIZES = runs.SIZES
FLOOR, CEILING = 1e-9, 3.0
OURS = ("HGP", "Chebyshev", "Refined", "Tracking")  # thick and solid; the others thin and dashed


def experiments(options: Options) -> dict[str, Experiment]:
    """The runs, which `table1` shares."""
    return {"runs": runs.experiment(options.quick, options.size)}


def draw(data: Data, options: Options) -> Figure:
    """A row for each kind of network, a column for each problem; medians over seeds not used for choosing."""
    problems = [runs.PROBLEMS[0]] if options.quick else runs.PROBLEMS
    figure = new_figure(2.3 * len(problems) + 1.6, 4.6)
    axes = figure.subplots(len(NETWORKS), len(problems), squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for k, kind in enumerate(NETWORKS):
        for p, problem in enumerate(problems):
            handles |= _panel(axes[k, p], data["runs"], f"{p}-{k}")
            axes[k, p].set_title(problem if k == 0 else "")
            axes[k, p].set(xscale="log", yscale="log", ylim=(FLOOR / 3, CEILING))
        axes[k, 0].set_ylabel(f"{kind}\nrelative error")
    figure.supxlabel("floats sent per client, in units of $d_x$", fontsize=8)
    figure.legend(handles.values(), handles.keys(), loc="outside right center", handlelength=2.6)
    return figure


def _panel(ax: Any, arrays: Any, part: str) -> dict[str, Any]:
    """The curves of one problem and network; handles by name."""
    handles = {}
    for j, m in enumerate(METHODS):
        if f"{part}/{m.name}/errors" not in arrays:
            continue
        ours, floats = m.name in OURS, arrays[f"{part}/floats"]
        dashes = (4, 1.3) if j < 2 * len(COLOURS) - 3 else (1.2, 1.2)
        line_style = {"color": COLOURS[j % len(COLOURS)], "linewidth": 1.9 if ours else 1.1,
                "linestyle": "-" if ours else (0, dashes)}  # fmt: skip
        if m.networks == "server":
            points = arrays[f"{part}/{m.name}/trials"]
            (handles[m.name],) = ax.plot(points[:, 0], points[:, 2], "o", markersize=2.5, color=line_style["color"])
            continue
        errors = np.median(np.nan_to_num(arrays[f"{part}/{m.name}/errors"], nan=np.inf), axis=0)
        shown = np.where(errors <= CEILING, np.maximum(errors, FLOOR), np.nan)
        (handles[m.name],) = ax.plot(floats, shown, **line_style)
    return handles
