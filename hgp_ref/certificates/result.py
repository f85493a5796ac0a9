"""The result of `certify`: a bound on each client's error, its parts, and its assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.mixing import Traffic
from hgp_ref.results import Result

AT_SOLUTION = "the hyper-gradient at the exact inner solution"
AT_POINT = "the hyper-gradient formula at the given x"


@dataclass(frozen=True)
class Certificate(Result):
    """Bounds on ‖v_i − d_i‖, (n,) each; (runs, n) if the estimate has a run axis.

    `bound` is the one to use: `centralised`, plus `inexact` if that is known. `against` says which hyper-gradient d is.
    In matrix-free form (large d_x) there are no C2, C3 and identity. If clients live in several processes, only what
    they compute themselves is known, and `bound` is `decentralised_bound`.

    Attributes
    ----------
    consistency : ‖v_i − (∂_λ f_i − J_i w_i)‖.
    alpha_bar : a lower bound on λ_min(H̄) at x.
    against : which hyper-gradient the bounds refer to.
    assumptions : the assumptions of the bounds, in words.
    centralised : consistency + min(C1, C2) + rounding.
    c1, c2 : β_i ‖ḡ − H̄ w_i‖ / ᾱ and ‖J_i H̄⁻¹‖ ‖ḡ − H̄ w_i‖.
    identity : ‖J_i (w* − w_i)‖, the error of ∂_λ f_i − J_i w_i up to rounding.
    rounding : an allowance for arithmetic on gradients and products, and inside them if `rounding_complete`.
    residual : ‖ḡ − H̄ w_i‖.
    inexact : what an inexact inner solution may add; None if Lipschitz constants are not known.
    inner_gradient : ‖mean ∂_x g‖ at the mean of x: 0 at the inner solution.
    consensus_gap : max_i ‖x_i − mean of x‖.
    decentralised : consistency + min(C3, C4) + the rounding of the consistency.
    c3, c4 : bounds on the same error that the clients compute, see `hgp_ref.certificates.residuals`.
    decentralised_inexact : like `inexact`, computed by the clients.
    traffic : of the decentralised computation.
    matrix_free : whether only products were used.
    rounding_complete : whether the rounding of the problem's own sums is included; needs `term_sizes`.
    damping : μ of a problem that is `Damped`, for which ᾱ and all bounds refer to H̄ + μI; 0 without.
    curvature : "hessian", or "gauss-newton" if the problem's H_i are Gauss–Newton matrices.
    smallest_eigenvalue : an upper bound on the smallest eigenvalue of H̄ without damping, equal to it up to rounding
        unless `matrix_free`. None if no process sees all clients.
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
    damping: float = 0.0
    curvature: str = "hessian"
    smallest_eigenvalue: float | None = None

    @property
    def bound(self) -> np.ndarray:
        """Bounds on the error with respect to `against`; centralised if one process holds all clients."""
        if self.centralised is None:
            assert self.decentralised_bound is not None, "one of the two is always computed"
            return self.decentralised_bound
        return self.centralised if self.inexact is None else self.centralised + self.inexact

    @property
    def decentralised_bound(self) -> np.ndarray | None:
        """`bound` as the clients compute it; None without `avg`, or if x is too far from the inner solution."""
        if self.decentralised is None or self.against != AT_SOLUTION:
            return self.decentralised
        return None if self.decentralised_inexact is None else self.decentralised + self.decentralised_inexact

    def plot(self) -> Any:
        """A matplotlib figure of the bound's parts for every client; needs `pip install 'hgp_ref[figures]'`.

        It is pyplot's current figure: `plt.savefig` writes it, `plt.close(figure)` frees it.
        """
        return draw(self)

    def __str__(self) -> str:
        lines = [f"certificate against {self.against}"]
        lines.append(f"  largest bound over clients   {np.max(self.bound):.3e}")
        if self.decentralised_bound is not None:
            lines.append(f"  the same, decentralised      {np.max(self.decentralised_bound):.3e}")
        if self.damping and self.smallest_eigenvalue is not None:
            lines.append(f"  smallest eigenvalue of H̄     {self.smallest_eigenvalue:.3e}, damped by {self.damping:.3e}")
        if self.inner_gradient is not None:
            lines.append(f"  inner gradient, gap of x     {self.inner_gradient:.3e}, {self.consensus_gap:.3e}")
        for assumption in self.assumptions:
            lines += wrap(f"assumes: {assumption}", 100, initial_indent="  ", subsequent_indent=" " * 11)
        return "\n".join(lines)


def smaller(a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """min(a, b), or a if b is None."""
    return a if b is None else np.minimum(a, b)


# ---------------------------------------------------------------------------------------------------------- the figure
#
# One row per client (at most `SHOWN`, those with the largest bounds) on a logarithmic axis: the parts as marks on a bar
# that ends at their sum, the bound. The mark nearest to the end dominates the bound: reduce the residual by more
# iterations or steps, the consistency by larger batches, the inexact x by further training. A second panel shows the
# bound that clients computed themselves. With a run axis, the largest value over runs is drawn.

SHOWN = 30
DECADES = 6  # parts further below the largest bound are not drawn
OBSERVER, CLIENTS = "by an observer of all clients (C1, C2)", "computed by the clients (C3, C4)"
MARKS = {
    "residual": ("o", "#0072b2"),
    "consistency": ("s", "#e69f00"),
    "inexact x": ("D", "#009e73"),
    "rounding": ("x", "#888888"),
}

Panel = dict[str, np.ndarray]  # parts by name and "bound", (n,) each


def panels(certificate: Certificate) -> dict[str, Panel]:
    """The numbers of each panel by its title; C3 and C4 include their rounding."""
    c = certificate
    shown: dict[str, dict[str, np.ndarray | None]] = {}
    if c.c1 is not None:
        shown[OBSERVER] = {
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
    """The figure of a certificate; ImportError with the name of the extra if matplotlib is missing."""
    plt = validation.pyplot()
    shown = panels(certificate)
    bound = next(iter(shown.values()))["bound"]
    clients = np.sort(np.argsort(-bound, kind="stable")[:SHOWN])
    figure = plt.figure(figsize=(1.4 + 4.2 * len(shown), 2.0 + 0.24 * len(clients)), layout="constrained")
    axes = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    values = np.concatenate([a[clients] for named in shown.values() for a in named.values()])
    left = float(values[values > values.max() * 10.0**-DECADES].min()) / 2  # just below the smallest part that is drawn
    for ax, (title, named) in zip(axes, shown.items(), strict=True):
        _draw_panel(ax, named, clients, left)
        ax.set_title(title, fontsize=10)
    axes[0].set_ylabel("client" if len(clients) == len(bound) else f"client ({len(clients)} of {len(bound)})")
    legend = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=3 * len(shown), frameon=False, fontsize=9)
    figure.suptitle(f"Bound on the error against\n{certificate.against}", fontsize=10)
    return figure


def _draw_panel(ax: Any, named: Panel, clients: np.ndarray, left: float) -> None:
    rows = np.arange(len(clients))
    bound = named["bound"][clients]
    ax.hlines(rows, left, bound, color="#dddddd", linewidth=6, zorder=1)
    ax.plot(bound, rows, "|", color="black", markersize=12, markeredgewidth=2, label="bound = sum", zorder=3)
    for name, (marker, colour) in MARKS.items():
        values = named[name][clients] if name in named else np.zeros(len(clients))
        visible = values > left
        if visible.any():
            ax.plot(values[visible], rows[visible], marker, color=colour, markersize=6, label=name, zorder=4)
    ax.set_xscale("log")
    ax.set_xlim(left=left)
    ax.set_yticks(rows, [str(c) for c in clients], fontsize=8)
    ax.set_ylim(len(clients) - 0.5, -0.5)
    ax.set_xlabel("error of the client is at most")
    ax.grid(axis="x", color="#eeeeee", zorder=0)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
