"""Error against the number of iterations m, one line per S, shared by Fig. 1a, 1b and their appendix versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from figures.options import Options, Row, near
from figures.reference import ERROR_SCALAR, FLOAT32_FLOOR, ITERATIONS, STEPS
from reporting.store import Arrays
from reporting.style import COLUMN, HEIGHT, STEP_LINES, new_figure

CLIENTS = 3
CAPTIONS = {
    "paper": r"the paper's text: $\lambda_i \in \mathbb{R}^{6}$, $f = \Sigma_k f_k$",
    "published": r"the published program: $\lambda_i \in \mathbb{R}$, $f / n$",
}
ERROR = "error of the hyper-gradient"
LEGEND = "steps $S$ of each averaging"
ALIKE = 0.025  # of the height of the axes: curves that are closer everywhere lie on each other
EXACT: dict[str, Any] = {
    "color": "#BBBBBB",
    "linewidth": 4.0,
    "zorder": 1,
    "solid_capstyle": "butt",
    "label": "exact averaging",
}


def scaled(errors: np.ndarray, options: Options) -> np.ndarray:
    """Errors for the f of the variant: Σ f_k, or Σ f_k / n."""
    return errors / CLIENTS if options.variant == "published" else errors


def draw_curves(data: Arrays, options: Options, *, kind: str = "errors", limit: bool = False) -> Figure:
    """One panel of column width with the mean over seeds; `limit` adds exact averaging."""
    figure = new_figure(height=HEIGHT + 0.2)
    axes = figure.subplots()
    lines = add_curves(axes, data, options, kind=kind)
    if limit:
        exact = scaled(data["limit"], options)
        lines += axes.plot(np.arange(1, len(exact) + 1), exact, **EXACT)
    set_scale(axes)
    axes.set(xlabel="iterations $m$", ylabel=ERROR)
    axes.set_title(CAPTIONS[options.variant], fontsize=7, color="#555555", loc="right", pad=3)
    title = "\n".join([LEGEND, *hidden_lines(axes, lines)])
    figure.legend(handles=lines, loc="outside upper center", ncols=3, title=title)
    return figure


def draw_bands(data: Arrays, options: Options, *, kind: str, steps: tuple[int, ...], columns: int) -> Figure:
    """A panel for each S with the mean over seeds and the range between its 10th and 90th percentile.

    Where a panel is left over it has all means together.
    """
    rows = -(-len(steps) // columns)
    figure = new_figure(COLUMN, 0.7 + 1.25 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    errors = scaled(data[kind], options)  # (S, seeds, M)
    m = np.arange(1, errors.shape[-1] + 1)
    for axes, S in zip(panels.flat, steps, strict=False):
        low, high = np.percentile(errors[STEPS.index(S)], (10, 90), axis=0)
        axes.fill_between(m, low, high, color=STEP_LINES[S].colour, alpha=0.35, linewidth=0)
        axes.plot(m, errors[STEPS.index(S)].mean(axis=0), color=STEP_LINES[S].colour, linewidth=1.6)
        axes.set_title(f"$S = {S}$")
    for axes in panels.flat[len(steps) :]:
        add_curves(axes, data, options, kind=kind, steps=steps)
        axes.set_title("all means")
    for axes in panels.flat:
        set_scale(axes)
        axes.set_xticks([0, m[-1] // 2, m[-1]], ["0", str(m[-1] // 2), str(m[-1])])
        axes.minorticks_off()
    figure.supxlabel("iterations $m$", fontsize=8)
    figure.supylabel(ERROR if rows > 1 else "error", fontsize=8)
    title = f"mean and 10–90 % of seeds; {CAPTIONS[options.variant]}"
    figure.suptitle(title, fontsize=7, color="#555555")
    return figure


def add_curves(axes: Any, data: Arrays, options: Options, *, kind: str, steps: tuple[int, ...] = STEPS) -> list[Any]:
    """Draw the means over seeds into `axes`; returns the lines for a legend."""
    errors = scaled(data[kind], options)  # (S, seeds, M)
    m = np.arange(1, errors.shape[-1] + 1)
    lines = []
    for k, S in enumerate(steps):
        mean = errors[STEPS.index(S)].mean(axis=0)
        lines += axes.plot(m, mean, label=f"$S = {S}$", zorder=3 + 0.1 * k, **STEP_LINES[S].options())
    axes.set_yscale("log")
    return lines


def set_scale(axes: Any) -> None:
    """All m, at least a decade of errors, so that a plateau looks like one, and plain numbers if there are few."""
    axes.set_yscale("log")
    axes.set_xlim(0, max(float(np.max(line.get_xdata())) for line in axes.lines))
    low, high = axes.get_ylim()
    low = min(low, high / 12)
    axes.set_ylim(low, high)
    axes.yaxis.set_minor_locator(NullLocator())
    if high / low < 200:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 30 else (1, 3)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def hidden_lines(axes: Any, lines: list[Any]) -> list[str]:
    """A sentence for each line on which others lie, as the pictures of the lines cannot show this."""
    scale = axes.yaxis.get_transform().transform
    low, high = scale(np.array(axes.get_ylim()))
    heights = [(scale(np.asarray(line.get_ydata(), float)) - low) / (high - low) for line in lines]
    groups: list[list[int]] = []
    for k in reversed(range(len(lines))):
        for group in groups:
            other = heights[group[0]]
            if len(heights[k]) == len(other) and np.abs(heights[k] - other).max() < ALIKE:
                group.append(k)
                break
        else:
            groups.append([k])
    sentences = []
    for first, *others in groups:
        if others:
            *names, last = (str(lines[k].get_label()) for k in reversed(others))
            names = [", ".join(names), last] if names else [last]
            sentences.append(f"{' and '.join(names)} {'lie' if names[1:] else 'lies'} on {lines[first].get_label()}")
    return sentences


def compare_errors(data: Arrays, options: Options) -> list[Row]:
    """Full-batch errors of the published variant, and those of the published program."""
    if options.quick or options.variant != "published":
        return []
    means = scaled(data["errors"], options).mean(axis=1)  # (S, M)
    rows = []
    for k, S in enumerate(STEPS):
        for m, paper in zip(ITERATIONS, ERROR_SCALAR[S], strict=True):
            what, ours = f"error, S={S}, m={m}", float(means[k, m - 1])
            if paper < FLOAT32_FLOOR:
                rows.append(Row(what, ours, paper, ours <= 3 * paper, "theirs is a float32 floor"))
            else:
                rows.append(near(what, ours, paper))
    return rows
