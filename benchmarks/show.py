"""Reports as a table for the terminal and as a plot."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from benchmarks.results import Report


def table(reports: list[Report], judge: bool = True) -> str:
    """Timings with quartiles and ratios to the first line of each report, then goals and other figures.

    With `judge=False`, as for small sizes, goals are shown but not evaluated.
    """
    lines = []
    for report in reports:
        settings = ", ".join(f"{k}={_plain(v)}" for k, v in report.settings.items())
        lines += ["", report.title, f"  {settings}; {report.threads} thread"]
        reference = next((t.median for t in report.timings.values()), 1.0)
        for label, timing in report.timings.items():
            low, high = timing.spread
            ratio = f"{timing.median / reference:9.2f} ×" if reference > 0 else ""
            lines.append(
                f"  {label:44.44} {seconds(timing.median):>10} CPU  [{seconds(low)} .. {seconds(high)}] {ratio}"
                f"  {seconds(timing.wall_median):>10} wall"
            )
        for bar in report.bars:
            mark = ("reached" if bar.reached else "MISSED") if judge else "small"
            lines.append(f"  {mark:8} {bar.value:10.3g}  {bar.needed:8} {bar.what}")
        lines += [f"  {what}: {value}" for what, value in report.figures.items()]
    return "\n".join(lines)


def summary(reports: list[Report]) -> str:
    """How many goals were reached, and which were not."""
    bars = [(report, bar) for report in reports for bar in report.bars]
    missed = [f"  {r.name}: {b.what} {b.value:.3g}, needed {b.needed}" for r, b in bars if not b.reached]
    return "\n".join([f"{len(bars) - len(missed)} of {len(bars)} bars reached", *missed])


def seconds(value: float) -> str:
    """A time with three digits and its unit."""
    if value <= 0:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def _plain(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def plot(reports: list[Report], path: Path) -> None:
    """A panel for each report: median CPU seconds as points on a logarithmic axis, quartiles as whiskers."""
    from reporting.style import COLUMN, new_figure, style

    shown = [report for report in reports if report.timings]
    columns = 2 if len(shown) > 1 else 1
    rows = [shown[k : k + columns] for k in range(0, len(shown), columns)]
    heights = [0.9 + 0.3 * max(len(report.timings) for report in row) for row in rows]
    with style():
        figure = new_figure(columns * COLUMN, sum(heights))
        axes = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for axis in axes.flat[len(shown) :]:
            axis.set_axis_off()
        for axis, report in zip(axes.flat, shown, strict=False):
            _panel(axis, report)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=200)


def _panel(axis: Any, report: Report) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from reporting.style import METHODS

    for y, (label, timing) in enumerate(report.timings.items()):
        ours = label.startswith("hgp_ref")
        look = {"fmt": "o" if ours else "s", "color": METHODS["HGP"].colour if ours else "#777777", "capsize": 3}
        (low, high), median = timing.spread, max(timing.median, 1e-9)
        axis.errorbar([median], [y], xerr=[[max(0.0, median - low)], [max(0.0, high - median)]], markersize=4, **look)
        text = f"{label}: {seconds(median)}"
        axis.annotate(text, (0.01, y - 0.42), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    axis.set_yticks([])
    axis.set_ylim(len(report.timings) - 0.5, -0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=6))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.margins(x=0.15)
    axis.set_xlabel("CPU time, one thread")
    axis.set_title(textwrap.fill(report.title, 50), loc="left")
