"""Error over floats sent: the planner against other methods, on five problems and two kinds of networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from figures.experiments.comparison import runs
from figures.experiments.comparison.runs import METHODS, NETWORKS
from figures.options import Data, Options, Row
from reporting.store import Experiment
from reporting.style import CUT, method_line, new_figure, plot_cut

SHOWS = (
    "Error against floats sent: the planner, two methods of this package and two others, static and directed networks"
)
NUMPY = True
SIZES = runs.SIZES
ADDS_METHODS = True
FLOOR, CEILING = 1e-8, 3.0
SHOWN = ("planner", "planner, no tree", "Tracking", "HGP", "SPARKLE-ED", "FAB")


def experiments(options: Options) -> dict[str, Experiment]:
    """The runs, which other figures and tables share, and those that --with adds."""
    return runs.experiments(options)


def exports(data: Data, options: Options) -> dict[str, str]:
    """The results as JSON."""
    return {".json": runs.as_json(data, options)}


def draw(data: Data, options: Options) -> Figure:
    """A row for each kind of network, a column for each problem."""
    added = tuple(m.name for m in runs.methods_of(options)[len(METHODS) :])
    return panels(data, options, [(k, kind, SHOWN + added) for k, kind in enumerate(NETWORKS)])


def compare(data: Data, options: Options) -> list[Row]:
    """The planner against the best method that it did not choose, where one reaches the target."""
    arrays, rows = runs.results_of(data), []
    for p, problem in enumerate(runs.problems_of(options)):
        for k, kind in enumerate(NETWORKS):
            for t, target in enumerate(runs.TARGETS):
                ours, (_, best) = runs.cost(arrays, f"{p}-{k}", "planner", t), runs.best_other(arrays, p, k, t)
                if np.isfinite(best):
                    name = f"{problem}, {kind}, {target:g}: floats of the planner and the least of others"
                    rows.append(Row(name, ours, best, ours <= best, "goal: no more floats than the best other method"))
    return rows


def panels(data: Data, options: Options, rows: Sequence[tuple[int, str, Sequence[str]]]) -> Figure:
    """Rows of panels, each given by the number of a kind of network, a label, and names of methods."""
    problems = runs.problems_of(options)
    figure = new_figure(1.55 * len(problems) + 0.6, 1.75 * len(rows) + 0.9)
    axes = figure.subplots(len(rows), len(problems), squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for row, (k, label, names) in enumerate(rows):
        for p, problem in enumerate(problems):
            ax = axes[row, p]
            ax.set(xscale="log", yscale="log", ylim=(FLOOR, CEILING), title=problem if row == 0 else "")
            ax.set_yticks(10.0 ** np.arange(-8, 1, 2))
            ax.minorticks_off()
            handles |= _panel(ax, runs.results_of(data), f"{p}-{k}", names)
        axes[row, 0].set_ylabel(f"{label}\nrelative error")
    figure.supxlabel(f"floats sent per client, in units of $d_x$ ({CUT})", fontsize=8)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", handlelength=2.8,
                  ncols=min(len(handles), 1 + len(problems)))  # fmt: skip
    return figure


def _panel(ax: Any, arrays: Any, part: str, names: Sequence[str]) -> dict[str, Any]:
    """Medians over the seeds of one problem and network; handles by name."""
    handles = {}
    for j, name in enumerate(names):
        if f"{part}/{name}/errors" not in arrays:
            continue
        line = method_line(name)
        if f"{part}/{name}/points" in arrays:  # a point for each target
            floats, errors = np.median(arrays[f"{part}/{name}/points"], axis=0)[:, [0, 2]].T
            (handles[name],) = ax.plot(floats, np.maximum(errors, FLOOR), clip_on=False, zorder=4, **line)
        elif f"{part}/{name}/trials" in arrays:  # a point for each value of the parameter
            points = arrays[f"{part}/{name}/trials"]
            (handles[name],) = ax.plot(points[:, 0], points[:, 2], **line | {"linestyle": ""})
        else:
            errors = np.median(np.nan_to_num(arrays[f"{part}/{name}/errors"], nan=np.inf), axis=0)
            every = {"markevery": (3 * j, 18)}
            handles[name] = plot_cut(ax, arrays[f"{part}/floats"], errors, FLOOR, CEILING, **line, **every)
    return handles
