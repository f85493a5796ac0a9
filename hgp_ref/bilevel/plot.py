"""A path as a picture: the outer cost over what was sent, and where λ went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import to_host

if TYPE_CHECKING:
    from hgp_ref.bilevel.path import Path

OVER = ("step", "floats", "rounds")
MOST_LINES = 40  # entries of λ that are drawn one by one


def plot_path(path: Path, over: str) -> Any:
    """A figure with two panels; matplotlib's."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hgp_ref[figures]'") from error
    arguments.choice("over", over, OVER)
    steps = np.arange(len(path.outer_cost))
    along = {"step": steps, "floats": path.floats, "rounds": path.rounds}[over]
    name = {"step": "outer step", "floats": "numbers sent", "rounds": "rounds"}[over]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    left.plot(along, path.outer_cost, "o-", ms=3, lw=1.4, color="C0", label="outer cost, all clients together")
    if path.measure is not None:
        twin = left.twinx()
        twin.plot(along, path.measure, "s--", ms=2.5, lw=1.0, color="C1")
        twin.set_ylabel("measure", color="C1")
        left.axvline(along[path.best], color="C1", lw=0.8, ls=":")
    shrunk = [k for k, step in enumerate(path.steps) if step.note]
    if shrunk:
        left.plot(along[shrunk], path.outer_cost[shrunk], "x", color="C3", ms=7, label="shrunk or refused step after")
    left.set(xlabel=name, title=f"{path.method}: {path.outer_cost[0]:.4g} to {path.outer_cost[-1]:.4g}")
    left.legend(frameon=False, fontsize="small")
    entries = to_host(path.lam).reshape(len(steps), -1)
    if entries.shape[1] > MOST_LINES:
        for share, alpha in ((0, 0.12), (10, 0.2), (25, 0.35)):
            low, high = np.percentile(entries, [share, 100 - share], axis=1)
            right.fill_between(along, low, high, color="C0", alpha=alpha, lw=0,
                               label=f"{share}–{100 - share} % of entries")  # fmt: skip
        right.plot(along, np.median(entries, axis=1), color="C0", lw=1.4, label="median")
        right.legend(frameon=False, fontsize="small")
    else:
        right.plot(along, entries, lw=0.9)
    if entries.min() > 0 and entries.max() > 20 * entries.min():
        right.set_yscale("log")
    right.set(xlabel=name, title=r"entries of $\lambda$")
    for ax in (left, right):
        ax.grid(alpha=0.3)
    return figure
