"""A run as a picture: what is left of the series, and how far the estimate was from the truth or from its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, to_host

if TYPE_CHECKING:
    from hgp_ref.estimators.estimate import Estimate


def plot_estimate(est: Estimate, truth: Array | None = None, ax: Any = None) -> Any:
    """Draw on `ax`, or on new axes, and return them."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hgp_ref[figures]'") from error
    drawn = _distances(est, truth)  # before there is a figure: an error leaves none behind
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    elif not isinstance(ax, Axes):
        raise TypeError(f"ax: {type(ax).__name__} given, needed axes of matplotlib or None")
    share = est.norms / np.where(est.norms[0] > 0, est.norms[0], 1.0)
    for r, line in enumerate(_lines(share)):
        ax.plot(est.looks, line, "o--", ms=3, lw=0.8, color=f"C{r}", alpha=0.6,
                label="largest term left, relative to the first" if r == 0 else None)  # fmt: skip
    for r, line in enumerate(drawn):
        m = np.arange(1, len(line) + 1)
        shown = line > 0  # v^(M) is no distance from itself
        ax.plot(m[shown], line[shown], "-", lw=1.6, color=f"C{r}",
                label=f"distance of $v^{{(m)}}$ from {'the last one' if truth is None else 'the truth'}, relative"
                if r == 0 else None)  # fmt: skip
    ax.set(yscale="log", xlabel="iteration m", title=f"{est.method!r}, {est.iterations} iterations")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _distances(est: Estimate, truth: Array | None) -> np.ndarray:
    """How far v^(m) is from `truth`, or from v^(M), relative: (runs, M); (0, 0) without a history."""
    if truth is not None:
        arguments.same_kind(truth=truth)
    if est.history is None:
        if truth is not None:
            raise ValueError("truth: given, but the run kept no history; needed hypergradient(..., history=True)")
        return np.zeros((0, 0))
    history, end = to_host(est.history), to_host(est.value if truth is None else truth)
    if end.shape[-2:] != history.shape[-2:]:
        raise ValueError(f"truth: shape {end.shape} given, needed {history.shape[-2:]} = (n, d_lam)")
    apart = np.linalg.norm(history - end[..., None, :, :], axis=(-2, -1))  # (..., M)
    scale = np.linalg.norm(end, axis=(-2, -1))[..., None]
    return _lines(np.moveaxis(apart / np.where(scale > 0, scale, 1.0), -1, 0))


def _lines(values: np.ndarray) -> np.ndarray:
    """One line for each run, (runs, points), of values (points, [runs])."""
    return np.atleast_2d(values.T)
