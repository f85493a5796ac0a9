"""Reports as a table for the terminal and as a plot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.results import Report


def table(reports: list[Report], judge: bool = True) -> str:
    """Timings with quartiles and ratios to the first line of each report, then bars and other figures.

    Small sizes say nothing about the bars: without `judge` their values stand alone.
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
    """How many bars were reached, and which were not."""
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
    import matplotlib.pyplot as plt

    shown = [report for report in reports if report.timings]
    columns = 2 if len(shown) > 1 else 1
    rows = math.ceil(len(shown) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(7 * columns, 2.1 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, report in zip(axes.flat, shown, strict=False):
        _panel(axis, report)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panel(axis: Any, report: Report) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for y, (label, timing) in enumerate(report.timings.items()):
        colour = "tab:blue" if label.startswith("hgp_ref") else "tab:gray"
        (low, high), median = timing.spread, max(timing.median, 1e-9)
        whiskers = [[max(0.0, median - low)], [max(0.0, high - median)]]
        axis.errorbar([median], [y], xerr=whiskers, fmt="o", color=colour, capsize=3)
        axis.annotate(seconds(median), (median, y), xytext=(0, 5), textcoords="offset points", fontsize=7, ha="center")
    axis.set_yticks(range(len(report.timings)), list(report.timings), fontsize=7)
    axis.set_ylim(len(report.timings) - 0.5, -0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(axis="x", alpha=0.3)
    axis.margins(x=0.15)
    axis.set_title(f"{report.title} (CPU time, one thread)", fontsize=8)
