"""Pictures of the graphs of a network: one step, or a strip of several steps.

Lines without arrows are messages in both directions. In a directed graph the two directions of a pair are curved.
Messages that are lost are dashed. Self-loops are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import validation
from hgp_ref.philox import MAX_STEP

if TYPE_CHECKING:
    from hgp_ref.networks.base import Network

NODE, LINE, LOST = "#0072B2", "#44546A", "#D55E00"
PANEL = 3.4  # inches, one step of a strip
COLUMNS = 4  # of a strip
POINTS = 72  # per inch
LARGEST = 26.0  # diameter of a node in points
CURVE = 0.16  # of the two directions of a pair


def plot(net: Network, step: Any, ax: Any, layout: Any) -> Any:
    """`Network.plot`."""
    plt = validation.pyplot()
    several = isinstance(step, Sequence | np.ndarray) and not isinstance(step, str) and getattr(step, "ndim", 1) > 0
    steps = [validation.integer("step", s) for s in (step if several else [step])]
    for s in steps:
        validation.integer("step", s, 1, MAX_STEP - net._offset)
    if not steps:
        raise ValueError("step must be an integer >= 1 or several of them, got none")
    positions, box = _layout(net, layout)
    graphs = [_edges(net, s) for s in steps]  # before a figure is created, in case of an error
    if ax is None:
        columns = min(len(steps), COLUMNS)
        rows = math.ceil(len(steps) / columns)
        width = PANEL if several else 1.3 * PANEL
        figure = plt.figure(figsize=(width * columns, width * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for unused in panels[len(steps) :]:
            unused.set_axis_off()
        axes = list(panels[: len(steps)])
    else:
        axes = [validation.axes(one) for one in np.ravel(np.array(ax, dtype=object))]
        if len(axes) != len(steps):
            raise ValueError(f"ax must be {len(steps)} axes, one for each step, got {len(axes)}")
    for panel, s, graph in zip(axes, steps, graphs, strict=True):
        _panel(panel, net, positions, box, *graph)
        panel.set_title(f"step {s}", fontsize=11, color=LINE)
    return axes if several else axes[0]


def circle(n: int) -> np.ndarray:
    """n points on the unit circle, (n, 2), clockwise from the top."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _layout(net: Network, layout: Any) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Positions (n, 2), and the size of the box that wraps around, if there is one."""
    if layout is None:
        return net._layout()
    names = range(net.n) if net.nodes is None else net.nodes
    if isinstance(layout, Mapping):
        missing = next((name for name in names if name not in layout), None)
        if missing is not None:
            raise ValueError(f"layout must have a position for every node, got none for {missing!r}")
        layout = [layout[name] for name in names]
    return validation.real_array("layout", layout, (net.n, 2), "(n, 2)"), None


def _edges(net: Network, s: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(senders, receivers, whether the message is lost), without self-loops."""
    senders, receivers = net.edges(s)
    senders, receivers = senders[senders != receivers], receivers[senders != receivers]
    arrived = net.delivered_edges(s, 1)
    return senders, receivers, ~np.isin(senders * net.n + receivers, arrived[0] * net.n + arrived[1])


def _panel(
    ax: Any,
    net: Network,
    position: np.ndarray,
    box: tuple[float, float] | None,
    senders: np.ndarray,
    receivers: np.ndarray,
    lost: np.ndarray,
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import FancyArrowPatch

    names = [str(name) for name in (range(net.n) if net.nodes is None else net.nodes)]
    span = max(float(np.ptp(position, axis=0).max()), 1e-9)
    size = ax.get_window_extent()
    points = 0.84 * min(size.width, size.height) / ax.figure.dpi * POINTS / span  # per unit of `position`
    diameter = float(np.clip(0.58 * _nearest(position) * points, 2.0, LARGEST))
    longest = max(map(len, names))
    font = min(11.0, 1.2 * diameter / max(longest, 2))
    inside = font >= 5.5
    diameter = diameter if inside else min(diameter, 12.0)
    pad = span * ((0.03 if box is None else 0.6 / span) if inside else 0.12) + diameter / points / 2
    low, high = position.min(axis=0) - pad, position.max(axis=0) + pad
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_axis_off()

    links = set(zip(senders.tolist(), receivers.tolist(), lost.tolist(), strict=True))
    undirected = all((i, j, is_lost) in links for j, i, is_lost in links)
    sparse = 1.0 / max(len(links), 1) ** 0.5
    thick, alpha = float(np.clip(12.0 * sparse, 0.3, 1.5)), float(np.clip(11.0 * sparse, 0.35, 1.0))
    segments: dict[bool, list[Any]] = {False: [], True: []}
    for j, i, is_lost in sorted(links):
        wraps = box is not None and bool((np.abs(position[i] - position[j]) > np.array(box) / 2).any())
        if wraps:
            direction = -np.sign(position[i] - position[j]) * (np.abs(position[i] - position[j]) > np.array(box) / 2)
            ends = [(position[j], position[j] + 0.55 * direction), (position[i] - 0.55 * direction, position[i])]
        else:
            ends = [(position[j], position[i])]
        if undirected:
            segments[is_lost] += ends if j < i else []
            continue
        curve = CURVE if not wraps and ((i, j, False) in links or (i, j, True) in links) else 0.0
        for k, (start, end) in enumerate(ends):
            last = k == len(ends) - 1
            ax.add_patch(FancyArrowPatch(
                start, end, arrowstyle="-|>" if last else "-", connectionstyle=f"arc3,rad={curve}",
                mutation_scale=4 + 5 * thick, shrinkA=0, shrinkB=diameter / 2 if last else 0, lw=thick,
                color=LOST if is_lost else LINE, linestyle=(0, (3, 2)) if is_lost else "-", zorder=1 + is_lost,
                alpha=alpha,
            ))  # fmt: skip
    for is_lost, lines in segments.items():
        dashes = (0, (3, 2)) if is_lost else "-"
        colour = LOST if is_lost else LINE
        ax.add_collection(LineCollection(lines, colors=colour, lw=thick, linestyle=dashes, alpha=alpha, zorder=1))
    ax.scatter(position[:, 0], position[:, 1], s=diameter**2, color=NODE, edgecolors="white", linewidths=1.0, zorder=3)
    middle = (position.min(axis=0) + position.max(axis=0)) / 2
    for name, place in zip(names, position, strict=True):
        if inside:
            ax.text(*place, name, ha="center", va="center_baseline", fontsize=font, color="white", zorder=4)
        elif net.n <= 60:
            out = place - middle if box is None else np.array([0.0, -1.0])
            out = out / max(float(np.hypot(*out)), 1e-9)
            ax.annotate(
                name, place, out * (diameter / 2 + 2), textcoords="offset points", fontsize=8, color="black",
                ha="center" if abs(out[0]) < 0.3 else "left" if out[0] > 0 else "right",
                va="center" if abs(out[1]) < 0.3 else "bottom" if out[1] > 0 else "top", zorder=4,
            )  # fmt: skip


def _nearest(position: np.ndarray) -> float:
    """The smallest distance between two positions."""
    from scipy.spatial import cKDTree

    if len(position) == 1:
        return 1.0
    return max(float(cKDTree(position).query(position, k=2)[0][:, 1].min()), 1e-9)
