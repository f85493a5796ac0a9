"""Hyper-cleaning: accuracy against the share of wrong labels, the learnt weights, the images with the smallest ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.experiments.cleaning.runs import AREA, ARMS, GAIN, SHOWN, experiment
from figures.options import Data, Options, Row
from reporting.store import Arrays, Experiment
from reporting.style import METHODS, Line, new_figure

SHOWS = "Hyper-cleaning of digits over 10 clients: accuracy, learnt weights, images with the smallest ones"
SIZES = ("reduced", "emnist")
LABELS = {
    "hgp": "cleaned together (HGP)",
    "alone": "each client cleans alone",
    "zero": "$M = 0$: nothing to follow",
    "none": "no cleaning",
}
LINES = {
    "hgp": METHODS["HGP"],
    "alone": Line("#009E73", (0, (5, 1.2)), "s"),
    "zero": Line("#000000", (0, (1.2, 1.2)), "^"),
    "none": Line("#999999", "-", "D", 2.2),
}
RIGHT: dict[str, Any] = {"color": "#9CC7E8"}
WRONG: dict[str, Any] = {"facecolor": "none", "edgecolor": "#A33B00", "hatch": "//////", "linewidth": 1.0}
STRIP, COLUMNS = 8, 4  # images shown, in two rows


def experiments(options: Options) -> dict[str, Experiment]:
    """All methods at all shares of wrong labels."""
    return {"cleaning": experiment(options.size, **options.computation)}


def draw(data: Data, options: Options) -> Figure:
    """Accuracy, below it the weights, then the images with the smallest weights."""
    d = data["cleaning"]
    figure = new_figure(height=5.4)
    panels = figure.subplot_mosaic([["accuracy"], ["weights"], ["strip"]], height_ratios=[5, 3, 1.5])
    _accuracy(panels["accuracy"], d)
    _weights(panels["weights"], d)
    _smallest_weights(panels["strip"], d)
    return figure


def compare(data: Data, options: Options) -> list[Row]:
    """The goals at 30 % wrong labels: the gain over M = 0, and how well wrong labels are found."""
    if options.quick:
        return []
    d = data["cleaning"]
    gains, areas = 100 * (d["seeds_accuracy"][:, 0] - d["seeds_accuracy"][:, 1]), d["seeds_auc"][:, 0]
    gain, area = float(gains.mean()), float(areas.min())
    over = 100 * (d["seeds_accuracy"][0, 0] - d["ridge_accuracy"])
    note = (
        f"goal; seeds: {', '.join(f'{points:.1f}' for points in gains)}; before: M = 0, for which λ does not move; "
        f"HGP: {', '.join(f'{accuracy:.3f}' for accuracy in d['seeds_accuracy'][:, 0])}"
    )
    return [
        Row("30 % wrong labels, points gained, mean of the seeds", gain, GAIN, gain >= GAIN, note),
        Row("30 % wrong labels, AUC of finding them, worst seed", area, AREA, area >= AREA,
            f"goal; seeds: {', '.join(f'{auc:.3f}' for auc in areas)}"),
        Row("30 % wrong labels, points over the best L2 rate without cleaning", float(over), GAIN, None,
            f"L2 rate {d['ridge']:.2g}; no goal"),
    ]  # fmt: skip


def _accuracy(axes: Axes, d: Arrays) -> None:
    for arm, label in LABELS.items():
        line = 100 * d["accuracy"][:, ARMS.index(arm)]
        axes.plot(100 * d["shares"], line, label=label, **LINES[arm].options())
    points: dict[str, Any] = {
        "markersize": 7,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "linestyle": "",
        "zorder": 5,
    }
    axes.plot(100 * SHOWN, 100 * d["centre_accuracy"], "*", label="all data in one place", **points)
    axes.plot(100 * SHOWN, 100 * d["ridge_accuracy"], "P", label="no cleaning, best L2 rate", **points)
    axes.set(xlabel="wrong training labels (%)", ylabel="test accuracy (%)")
    axes.legend(loc="lower left")


def _weights(axes: Axes, d: Arrays) -> None:
    weights, wrong = 1 / (1 + np.exp(-d["lam"])), d["wrong"]
    bins = np.linspace(0, 1, 21)
    for chosen, label, look in ((~wrong, "right label", RIGHT), (wrong, "wrong label", WRONG)):
        heights, _ = np.histogram(weights[chosen], bins)
        axes.stairs(100 * heights / chosen.sum(), bins, fill=True, label=label, **look)
    area = d["auc"][np.flatnonzero(d["shares"] == SHOWN)[0]][ARMS.index("hgp")]
    axes.set(
        xlabel="weight learnt for a training image",
        ylabel="images (%)",
        title=f"{100 * SHOWN:.0f} % wrong labels: AUC {area:.3f}",
    )
    axes.legend(loc="upper center")


def _smallest_weights(axes: Axes, d: Arrays) -> None:
    """The images with the smallest weights, each with its label."""
    lowest = np.argsort(d["lam"], axis=None, kind="stable")[:STRIP]
    side = d["pixels"].shape[-1]
    images = d["pixels"].reshape(-1, side, side)[lowest]
    gap = side // 4
    strip = np.ones((2 * side + gap, COLUMNS * 3 * side))
    places = [(k // COLUMNS * (side + gap), k % COLUMNS * 3 * side) for k in range(STRIP)]  # upper left corners
    for image, (y, x) in zip(images, places, strict=False):
        strip[y : y + side, x : x + side] = 1 - image
    axes.imshow(strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    for index, (y, x) in zip(lowest, places, strict=False):
        mark = "✗" if d["wrong"].ravel()[index] else "✓"
        axes.text(x + side + gap, y + side / 2, f"“{d['given'].ravel()[index]}” {mark}", va="center", fontsize=8)
    axes.set_title("smallest weights and given labels (✗ wrong, ✓ right)")
    axes.axis("off")
