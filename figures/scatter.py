"""Scatter plots of predicted against actual changes of the validation cost, shared by all influence figures."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hgp_ref.attribution import scores
from reporting.store import Arrays
from reporting.style import COLOURS, COLUMN, new_figure

MARKERS = "osD^vP>Xph"


def add_scatter(
    axes: Any,
    actual: np.ndarray,
    predicted: np.ndarray,
    client: np.ndarray,
    unit: str,
    *,
    legend: bool = True,
    std: np.ndarray | None = None,
) -> None:
    """One point per removal, marked by client, with the diagonal and the three scores.

    std : one standard deviation of each prediction, drawn above and below it.
    """
    values = np.concatenate([actual, predicted])
    if std is not None:
        values = np.concatenate([values, predicted - std, predicted + std])
        axes.errorbar(actual, predicted, std, linestyle="", ecolor="#BBBBBB", elinewidth=0.7, zorder=1)
    margin = 0.06 * (np.ptp(values) or 1.0)
    low, high = float(values.min() - margin), float(values.max() + margin)
    axes.axline((low, low), (high, high), color="#999999", linewidth=0.8, zorder=1)
    axes.axhline(0, color="#CCCCCC", linewidth=0.6, zorder=0)
    axes.axvline(0, color="#CCCCCC", linewidth=0.6, zorder=0)
    for i in np.unique(client):
        of = client == i
        axes.plot(
            actual[of],
            predicted[of],
            linestyle="",
            marker=MARKERS[i % len(MARKERS)],
            markersize=4.6 if MARKERS[i % len(MARKERS)] in "PX" else 3.2,
            markerfacecolor=COLOURS[i % len(COLOURS)],
            markeredgecolor="white",
            markeredgewidth=0.3,
            label=f"client {i + 1}" if legend else None,
        )
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.ticklabel_format(style="sci", scilimits=(-3, 3), useMathText=True)
    axes.set_xlabel(f"actual change of {unit}")
    axes.set_ylabel(f"predicted change of {unit}")
    axes.text(0.97, 0.03, score_text(actual, predicted), transform=axes.transAxes, ha="right", va="bottom", fontsize=7)


def score_text(actual: np.ndarray, predicted: np.ndarray) -> str:
    """R², F1 and Spearman's ρ in three lines."""
    score = scores(actual, predicted)
    f1 = "undefined" if np.isnan(score.f1) else f"{score.f1:.2f}"
    return f"$R^2$ = {score.r2:.4f}\n$F_1$ = {f1}\n" + rf"$\rho_S$ = {score.spearman:.3f}"


def draw_instances_and_clients(data: Arrays) -> Figure:
    """Two panels: the most influential instances, and all training data of each client."""
    figure = new_figure(width=2 * COLUMN, height=0.98 * COLUMN)
    instances, clients = figure.subplots(1, 2)
    add_scatter(instances, data["actual"], data["predicted"], data["chosen"][:, 0], "$f$")
    instances.set_title("one training instance removed", loc="left")
    numbers = np.arange(len(data["actual_clients"]))
    add_scatter(clients, data["actual_clients"], data["predicted_clients"], numbers, "$f$")
    clients.set_title("all training data of a client removed", loc="left")
    handles, labels = clients.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", handlelength=1.0)
    return figure
