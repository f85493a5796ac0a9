"""The parts of a certificate drawn, client by client.

One row per client (those with the largest bounds where there are many) on a logarithmic axis: the parts as marks on a
bar that ends at their sum, the bound. The mark nearest to the end is what the bound is made of, and what to improve:
the residual by more iterations or steps, the consistency by larger batches, the inexact x by further training. Beside
it the same for what clients computed themselves. With a run axis, the largest over runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref.certificates.assemble import smaller

if TYPE_CHECKING:
    from hgp_ref.certificates.result import Certificate

SHOWN = 30  # clients drawn at most
DECADES = 6  # a part that is further below the largest bound says nothing and is not drawn
CENTRE, CLIENTS = "seen from the centre (C1, C2)", "computed by the clients (C3, C4)"
MARKS = {
    "residual": ("o", "#0072b2"),
    "consistency": ("s", "#e69f00"),
    "inexact x": ("D", "#009e73"),
    "rounding": ("x", "#888888"),
}

Panel = dict[str, np.ndarray]  # parts by name and "bound", (n,) each


def panels(certificate: Certificate) -> dict[str, Panel]:
    """What `draw` shows, by the panel's title; the rounding of C3 and C4 is inside them."""
    c = certificate
    shown: dict[str, dict[str, np.ndarray | None]] = {}
    if c.c1 is not None:
        shown[CENTRE] = {
            "residual": smaller(c.c1, c.c2),
            "consistency": c.consistency,
            "inexact x": c.inexact,
            "rounding": c.rounding,
            "bound": c.bound,
        }
    if c.c4 is not None and c.decentralised_bound is not None:
        shown[CLIENTS] = {
            "residual": smaller(c.c4, c.c3),
            "consistency": c.consistency,
            "inexact x": c.decentralised_inexact,
            "bound": c.decentralised_bound,
        }
    return {
        title: {name: a if a.ndim == 1 else a.max(axis=0) for name, a in named.items() if a is not None}
        for title, named in shown.items()
    }


def draw(certificate: Certificate) -> Any:
    """A figure of the certificate, pyplot's current one; ImportError with the extra that brings matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'hgp_ref[figures]'") from error
    shown = panels(certificate)
    bound = next(iter(shown.values()))["bound"]
    clients = np.sort(np.argsort(-bound, kind="stable")[:SHOWN])
    figure = plt.figure(figsize=(1.4 + 4.2 * len(shown), 2.0 + 0.24 * len(clients)), layout="constrained")
    axes = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    left = _left(shown, clients)
    for ax, (title, named) in zip(axes, shown.items(), strict=True):
        _draw_panel(ax, named, clients, left)
        ax.set_title(title, fontsize=10)
    axes[0].set_ylabel("client" if len(clients) == len(bound) else f"client ({len(clients)} of {len(bound)})")
    legend = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=3 * len(shown), frameon=False, fontsize=9)
    figure.suptitle(f"Bound on the error against\n{certificate.against}", fontsize=10)
    return figure


def _left(shown: dict[str, Panel], clients: np.ndarray) -> float:
    """Where the axis begins: a little before the smallest part that is drawn."""
    values = np.concatenate([a[clients] for named in shown.values() for a in named.values()])
    near = values[values > values.max() * 10.0**-DECADES]
    return float(near.min()) / 2


def _draw_panel(ax: Any, named: Panel, clients: np.ndarray, left: float) -> None:
    rows = np.arange(len(clients))
    bound = named["bound"][clients]
    ax.hlines(rows, left, bound, color="#dddddd", linewidth=6, zorder=1)
    ax.plot(bound, rows, "|", color="black", markersize=12, markeredgewidth=2, label="bound = sum", zorder=3)
    for name, (marker, colour) in MARKS.items():
        values = named[name][clients] if name in named else np.zeros(len(clients))
        seen = values > left
        if seen.any():
            ax.plot(values[seen], rows[seen], marker, color=colour, markersize=6, label=name, zorder=4)
    ax.set_xscale("log")
    ax.set_xlim(left=left)
    ax.set_yticks(rows, [str(c) for c in clients], fontsize=8)
    ax.set_ylim(len(clients) - 0.5, -0.5)
    ax.set_xlabel("error of the client is at most")
    ax.grid(axis="x", color="#eeeeee", zorder=0)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
