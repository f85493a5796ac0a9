"""The result of `certify`: a bound on each client's error, its parts, and its assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.mixing import Traffic
from hgp_ref.results import Result

AT_SOLUTION = "the hyper-gradient at the exact inner solution"
AT_POINT = "the hyper-gradient formula at the given x"


@dataclass(frozen=True)
class Certificate(Result):
    """Bounds on ‖v_i − d_i‖, (n,) each; with a run axis in the estimate, (runs, n).

    `bound` is the one to use: `centralised` plus `inexact` where that is known. `against` says what d is. In
    matrix-free form (large d_x) there are no C2, C3 and identity. Where clients are spread over several processes there
    is only what they computed themselves, and `bound` is `decentralised_bound`.

    Attributes
    ----------
    centralised : consistency + min(C1, C2) + rounding.
    c1 : (n,), C1.
    c2 : (n,), C2.
    identity : ‖J_i (w* − w_i)‖: the error of ∂_λ f_i − J_i w_i itself, up to rounding.
    consistency : ‖v_i − (∂_λ f_i − J_i w_i)‖.
    rounding : allowance for arithmetic on gradients and products, and inside them where `rounding_complete`.
    residual : ‖ḡ − H̄ w_i‖.
    alpha_bar : a lower bound on λ_min(H̄) at x.
    inexact : (n,), what an inexact inner solution may add; None if constants are not known.
    inner_gradient : ‖mean ∂_x g‖ at the mean of x: 0 at the inner solution.
    consensus_gap : max_i ‖x_i − mean of x‖.
    decentralised : consistency + min(C3, C4) + the client's own rounding.
    c3 : (n,), C3.
    c4 : (n,), C4.
    decentralised_inexact : (n,), the same as `inexact` from what clients know.
    traffic : of the decentralised computation.
    matrix_free : whether products alone were used.
    against : which hyper-gradient it compares with.
    assumptions : what it rests on.
    rounding_complete : whether the rounding of the problem's own sums is included, as where it offers `term_sizes`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> certificate = hgp.certify(problem, x, lam, est)
    >>> certificate.bound.shape, certificate.against
    ((3,), 'the hyper-gradient at the exact inner solution')
    """

    consistency: np.ndarray
    alpha_bar: float
    against: str
    assumptions: tuple[str, ...]
    centralised: np.ndarray | None = None
    c1: np.ndarray | None = None
    c2: np.ndarray | None = None
    identity: np.ndarray | None = None
    rounding: np.ndarray | None = None
    residual: np.ndarray | None = None
    inexact: np.ndarray | None = None
    inner_gradient: float | None = None
    consensus_gap: float | None = None
    decentralised: np.ndarray | None = None
    c3: np.ndarray | None = None
    c4: np.ndarray | None = None
    decentralised_inexact: np.ndarray | None = None
    traffic: Traffic | None = None
    matrix_free: bool = False
    rounding_complete: bool = False

    @property
    def bound(self) -> np.ndarray:
        """Bounds on the error against what `against` names, centralised where someone saw all clients."""
        if self.centralised is None:
            by_clients = self.decentralised_bound
            assert by_clients is not None, "one of the two is always there"
            return by_clients
        return self.centralised if self.inexact is None else self.centralised + self.inexact

    @property
    def decentralised_bound(self) -> np.ndarray | None:
        """The same from the decentralised computation; None without an averaging, or where x is too far off for it."""
        if self.decentralised is None or self.against == AT_POINT:
            return self.decentralised
        return None if self.decentralised_inexact is None else self.decentralised + self.decentralised_inexact

    def plot(self) -> Any:
        """A matplotlib figure of the bound's parts for every client; needs `pip install 'hgp_ref[figures]'`.

        Returns
        -------
        matplotlib Figure, pyplot's current one: `plt.savefig` writes it, `plt.close(figure)` frees it.
        """

        return draw(self)

    def __str__(self) -> str:
        lines = [f"certificate against {self.against}"]
        lines.append(f"  largest bound over clients   {np.max(self.bound):.3e}")
        if self.decentralised_bound is not None:
            lines.append(f"  the same, decentralised      {np.max(self.decentralised_bound):.3e}")
        if self.inner_gradient is not None:
            lines.append(f"  inner gradient, gap of x     {self.inner_gradient:.3e}, {self.consensus_gap:.3e}")
        return "\n".join([*lines, *(f"  assumes: {a}" for a in self.assumptions)])


def smaller(a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """min(a, b) where there is a b."""
    return a if b is None else np.minimum(a, b)


# ----------------------------------------------------------------------------------------------------
# The parts of a certificate drawn, client by client.
#
# One row per client (those with the largest bounds where there are many) on a logarithmic axis: the parts as marks on a
# bar that ends at their sum, the bound. The mark nearest to the end is what the bound is made of, and what to improve:
# the residual by more iterations or steps, the consistency by larger batches, the inexact x by further training. Beside
# it the same for what clients computed themselves. With a run axis, the largest over runs.


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
