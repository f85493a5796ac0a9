"""Scatter plots of predicted against actual changes of the validation cost, shared by all influence figures."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hgp_ref.attribution import scores
from reporting.store import Arrays
from reporting.style import COLOURS, new_figure

# Clients by marker and by lightness. With more clients than these, all have the first marker.
CLIENTS = (("o", "#000000"), ("s", "#D55E00"), ("D", "#56B4E9"))


def add_scatter(
    axes: Any,
    actual: np.ndarray,
    predicted: np.ndarray,
    client: np.ndarray,
    *,
    change: str = "change",
    std: np.ndarray | None = None,
    exact: np.ndarray | None = None,
    title: str = "",
) -> None:
    """One point per removal, marked by client, with the diagonal and the three scores.

    change : what the axes show, in words. std : one standard deviation of each prediction, drawn above and below it.
    exact : the actual changes once more, after exact retraining, as crosses. title : of a small panel, in which the
    scores follow the title; without it they stand in the lower right corner.
    """
    text = score_text(actual, predicted)
    values = np.concatenate([actual, predicted] if exact is None else [actual, predicted, exact])
    if std is not None:
        values = np.concatenate([values, predicted - std, predicted + std])
    power = int(np.floor(np.log10(np.abs(values).max() or 1.0)))
    unit = 10.0**power
    points, values = (actual / unit, predicted / unit), values / unit
    if std is not None:
        axes.errorbar(*points, std / unit, linestyle="", ecolor="#999999", elinewidth=0.8, zorder=1)
    margin = 0.07 * (np.ptp(values) or 1.0)
    low, high = float(values.min() - margin), float(values.max() + margin)
    axes.axline((low, low), (high, high), color="#999999", linewidth=0.8, zorder=1)
    axes.axhline(0, color="#BBBBBB", linewidth=0.6, zorder=0)
    axes.axvline(0, color="#BBBBBB", linewidth=0.6, zorder=0)
    clients = np.unique(client)
    for i in clients:
        of = client == i
        marker, colour = CLIENTS[i] if clients.max() < len(CLIENTS) else ("o", COLOURS[0])
        axes.plot(points[0][of], points[1][of], linestyle="", marker=marker, markersize=3.8 if exact is None else 5.5,
                  markerfacecolor=colour, markeredgecolor="white", markeredgewidth=0.4,
                  alpha=None if exact is None else 0.45, label=f"client {i + 1}")  # fmt: skip
    if exact is not None:
        axes.plot(exact / unit, points[1], linestyle="", marker="+", markersize=5, markeredgewidth=0.7, color="k",
                  label="exact retraining")  # fmt: skip
        text = _side_by_side(text, score_text(exact, predicted))
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.minorticks_off()
    of_unit = f" ($10^{{{power}}}$)" if power else ""
    axes.set_xlabel(f"actual {change}{of_unit}")
    axes.set_ylabel(f"predicted {change}{of_unit}")
    if title:
        scores_text = score_text(actual, predicted, digits=2).replace(" =", "").replace("\n", ", ", 1)
        axes.set_title(f"{title}\n{scores_text}")
        for label in (axes.title, axes.xaxis.label, axes.yaxis.label):
            label.set_fontsize(7)
    else:
        axes.text(0.97, 0.03, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=7)


def score_text(actual: np.ndarray, predicted: np.ndarray, digits: int = 3) -> str:
    """R², F1 and Spearman's ρ in three lines; – where F1 is undefined."""
    score = scores(actual, predicted)
    values = {"$R^2$": score.r2, "$F_1$": score.f1, r"$\rho$": score.spearman}
    texts = ("–" if np.isnan(value) else f"{value:.{digits}f}".replace("-", "−") for value in values.values())
    return "\n".join(f"{name} = {text}" for name, text in zip(values, texts, strict=True))


def _side_by_side(sgp: str, exact: str) -> str:
    """The scores of both retrainings in one text."""
    pairs = zip(sgp.split("\n"), exact.split("\n"), strict=True)
    return "\n".join(f"{line} (exact {other.split(' = ')[1]})" for line, other in pairs)


def draw_instances_and_clients(data: Arrays) -> Figure:
    """Two panels: the most influential instances, and all training data of each client."""
    figure = new_figure(height=2.3)
    instances, clients = figure.subplots(1, 2)
    add_scatter(instances, data["actual"], data["predicted"], data["chosen"][:, 0],
                title="one training instance\nremoved")  # fmt: skip
    numbers = np.arange(len(data["actual_clients"]))
    add_scatter(clients, data["actual_clients"], data["predicted_clients"], numbers,
                title="all training data of\na client removed")  # fmt: skip
    return figure
