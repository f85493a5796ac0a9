"""Error against the number of iterations m, one line per S, shared by Fig. 1a, 1b and their appendix versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from figures.options import Options, Row, near
from figures.reference import ERROR_SCALAR, FLOAT32_FLOOR, ITERATIONS, STEPS
from reporting.store import Arrays
from reporting.style import COLOURS, DASHES, new_figure

CLIENTS = 3
CAPTIONS = {
    "paper": r"as the text has it: $\lambda_i \in \mathbb{R}^{6}$, $f = \Sigma_k f_k$",
    "published": r"as published: $\lambda_i \in \mathbb{R}$, $f/n$, rows overwritten",
}


def scaled(errors: np.ndarray, options: Options) -> np.ndarray:
    """Errors for the f of the variant: Σ f_k, or Σ f_k / n."""
    return errors / CLIENTS if options.variant == "published" else errors


def draw_curves(
    data: Arrays,
    options: Options,
    *,
    kind: str = "errors",
    steps: tuple[int, ...] = STEPS,
    band: bool = False,
    limit: bool = False,
) -> Figure:
    """One panel of column width with the mean over seeds; `band` adds the 10–90 % range, `limit` exact averaging."""
    figure = new_figure()
    axes = figure.subplots()
    lines = add_curves(axes, data, options, kind=kind, steps=steps, band=band, limit=limit)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, high / 12), high)  # at least a decade, so that a plateau looks like one
    axes.set_ylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$")
    axes.set_title(CAPTIONS[options.variant], fontsize=6.5, color="#555555", loc="right", pad=3)
    figure.legend(handles=lines, loc="outside upper center", ncols=3)
    return figure


def add_curves(
    axes: Any,
    data: Arrays,
    options: Options,
    *,
    kind: str,
    steps: tuple[int, ...] = STEPS,
    band: bool = False,
    limit: bool = False,
) -> list[Any]:
    """Draw the lines into `axes`; returns them for a legend."""
    errors = scaled(data[kind], options)  # (S, seeds, M)
    m = np.arange(1, errors.shape[-1] + 1)
    lines = []
    for S in steps:
        k = STEPS.index(S)
        if band:
            low, high = np.percentile(errors[k], (10, 90), axis=0)
            axes.fill_between(m, low, high, color=COLOURS[k], alpha=0.18, linewidth=0)
        lines += axes.plot(
            m, errors[k].mean(axis=0), color=COLOURS[k], linestyle=DASHES[k], label=f"$S = {S}$", zorder=4 - 0.1 * k
        )
    if limit:
        exact = scaled(data["limit"], options)
        lines += axes.plot(
            m, exact, color="#BBBBBB", linewidth=3.2, zorder=1, solid_capstyle="butt", label="exact averaging"
        )
    axes.set_yscale("log")
    axes.set_xlim(0, m[-1])
    axes.set_xlabel("iterations $m$")
    axes.tick_params(axis="y", which="minor", length=0)
    return lines


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
