"""Figures of the report, as SVG in the style of the paper's figures; one function each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verification.curves import Curve
from verification.plotting import COLOURS, DASHES, GREY, distribution, distributions, panels, picture, reference_line
from verification.run import Picture

LINES = {"error": "error", "A": "A", "B": "B", "C2": "C2", "Corollary 1": "Corollary 1 as printed"}
COLOUR = dict(zip(LINES, ("#000000", COLOURS[1], COLOURS[0], COLOURS[2], COLOURS[3]), strict=True))
DASH = dict(zip(LINES, ("-", DASHES[1], DASHES[2], DASHES[3], DASHES[4]), strict=True))
WEIGHT_LABELS = {
    "reset": "reset (Algorithm 1)",
    "keep": "kept (the paper's modification)",
    "conserve": "mass conserved",
}


def draw_curves(curves: Sequence[Curve]) -> Picture:
    """One row of panels, one for each S, for one problem."""
    case = curves[0].case
    with panels(2, (len(curves) + 1) // 2, 6.2, 4.2, sharex=True, sharey=True) as (figure, grid):
        cells = grid.ravel()
        for k, (axes, curve) in enumerate(zip(cells, curves, strict=False)):
            for name, label in LINES.items():
                values = curve.error if name == "error" else curve.bounds[name]
                values = np.where(values > curve.rounding, values, np.nan)
                axes.plot(curve.m, values, color=COLOUR[name], linestyle=DASH[name], label=None if k else label)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(f"$S = {curve.S}$")
            axes.tick_params(labelbottom=True)
        for axes in cells[len(curves) :]:
            axes.set_axis_off()
        top = np.nanmax([curve.bounds["B"] for curve in curves])
        low = np.nanmin([np.where(curve.error > curve.rounding, curve.error, np.nan) for curve in curves])
        cells[0].set_ylim(low / 3, top * 30)
        figure.supxlabel("iterations $m$", fontsize=8)
        figure.supylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$ and bounds", fontsize=8)
        figure.legend(loc="outside upper center", ncols=5)
        return picture(
            figure,
            f"curves_{case.name.replace(' ', '_').replace('=', '')}",
            f"Error and bounds against m: {case.name}",
            f"Random digraph, η = {curves[0].eta:g}, realised constants. Corollary 1 is drawn where its printed "
            "condition on S holds; A may leave the top of the panel.",
        )


def draw_tightness(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of bound/error, a panel for each problem and a line for each bound."""
    with panels(1, len(ratios), 6.4, 2.6, sharey=True) as (figure, [row]):
        distributions(row, ratios, "bound / error", "settings")
        for axes in row:
            axes.set_xlim(0.9, 1e4)
        figure.legend(loc="outside upper center", ncols=6)
        return picture(
            figure,
            "tightness",
            "Tightness: how often bound/error is below a value",
            "Over network seeds, S ≥ 5 and iterations m; lines further left are tighter. No line may lie left of 1.",
        )


def draw_coverage(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of error/bound D over runs: a panel for each setting, lines for forms and ϵ."""
    with panels(1, len(ratios), 6.4, 2.6, sharey=True) as (figure, [row]):
        distributions(row, ratios, "error / bound D", "runs")
        figure.legend(loc="outside upper center", ncols=2)
        return picture(
            figure,
            "coverage",
            "Coverage of the high-probability bound D",
            "Each line is the distribution of error/bound over the runs of a setting. A share of at most ϵ may lie "
            "right of the vertical line at 1.",
        )


def draw_search(ratios: dict[str, np.ndarray], settings: int) -> Picture:
    """Distribution of bound/error over random settings, a line for each bound."""
    with panels(1, 1, 4.6, 2.8) as (figure, [[axes]]):
        for j, (name, values) in enumerate(ratios.items()):
            distribution(axes, values, color=COLOURS[j % len(COLOURS)], linestyle=DASHES[j % len(DASHES)], label=name)
        axes.set_xscale("log")
        axes.set_xlim(0.9, 1e6)
        axes.axvline(1, color=GREY, linewidth=0.8)
        axes.set_xlabel("bound / error")
        axes.set_ylabel("share of settings")
        axes.legend(ncols=2, loc="lower right")
        return picture(
            figure,
            "search",
            f"Search for violations: {settings} random settings",
            "n from 1 to 12, d from 1 to 10, every kind of network, S from 1 to 100, conditioning up to 1e4. No line "
            "may lie left of 1.",
        )


def draw_cliques(sizes: Sequence[int], ratios: Sequence[tuple[float, float]]) -> Picture:
    """Erratum 2: σ_max/(√n c) and σ_max/(n c) against n."""
    with panels(1, 1, 3.6, 2.5) as (figure, [[axes]]):
        for k, label in enumerate(
            (r"$\sigma_{\max} / (\sqrt{n}\,c)$, as printed", r"$\sigma_{\max} / (n\,c)$, corrected")
        ):
            axes.plot(
                sizes,
                [r[k] for r in ratios],
                color=COLOURS[1 - k],
                linestyle=DASHES[k],
                marker="os"[k],
                ms=3,
                label=label,
            )
        reference_line(axes, 1, "must not exceed 1")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.set_xlabel("clients $n$")
        axes.legend()
        return picture(
            figure,
            "lemma2_cliques",
            "Lemma 2: the factor must be n, not √n (erratum 2)",
            "Two cliques of n/2 clients joined by one edge each way, S = 10, c the largest entry of |Θ − Θ̂|. σ_max "
            "exceeds √n c by a factor close to √n; it never exceeds n c.",
        )


def draw_divergence(errors: np.ndarray, printed: np.ndarray) -> Picture:
    """Erratum 4: relative error and the theorem's right-hand side against m."""
    m = np.arange(1, len(errors) + 1)
    with panels(1, 1, 3.6, 2.5) as (figure, [[axes]]):
        axes.plot(m, errors, color=COLOURS[1], linestyle=DASHES[0], label="relative error")
        axes.plot(m, printed, color=COLOURS[0], linestyle=DASHES[1], label="Theorem 1 as printed")
        axes.set_yscale("log")
        axes.set_xlabel("iterations $m$")
        axes.legend()
        return picture(
            figure,
            "theorem1_divergence",
            "Theorem 1 needs a further step condition (erratum 4)",
            "One client, H = diag(0.5, 3), η = 1, exact averaging and Jacobians: 0 < α < 1/η holds, but ηL = 3 > 2. "
            "The error doubles with every iteration while the theorem's right-hand side halves.",
        )


def draw_nonconvex(errors: dict[int, np.ndarray], bounds: dict[int, tuple[np.ndarray, np.ndarray]]) -> Picture:
    """Erratum 12: ‖v^(m) − d‖ for several S, with bound B at marked iterations."""
    with panels(1, 1, 3.6, 2.7) as (figure, [[axes]]):
        for k, (S, values) in enumerate(errors.items()):
            m = np.arange(1, len(values) + 1)
            axes.plot(m, values, color=COLOURS[k], linestyle=DASHES[k], label=f"$S = {S}$")
            axes.plot(*bounds[S], color=COLOURS[k], linestyle="none", marker="v", ms=2.5)
        axes.plot([], [], color=GREY, linestyle="none", marker="v", ms=2.5, label="bound B")
        axes.set_yscale("log")
        axes.set_xlabel("iterations $m$")
        axes.set_ylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$")
        figure.legend(loc="outside upper center", ncols=4)
        return picture(
            figure,
            "nonconvex_clients",
            "Convexity of the mean is enough (erratum 12)",
            "Quadratics of three clients with eigenvalues down to −0.29 each, whose mean has eigenvalues in [0.3, 1]. "
            "With enough steps per call the error falls to a small floor; triangles are bound B.",
        )


def draw_missing_term(shifts: np.ndarray, sides: np.ndarray) -> Picture:
    """Erratum 15: error, Theorem 2 and 2* against the inner error; `sides` is (shifts, 3)."""
    with panels(1, 1, 3.6, 2.5) as (figure, [[axes]]):
        axes.plot(shifts, sides[:, 2], color=COLOURS[2], linewidth=3.5, alpha=0.5, label="2*, corrected")
        axes.plot(shifts, sides[:, 0], color="#000000", linestyle=DASHES[0], label="error")
        axes.plot(shifts, sides[:, 1], color=COLOURS[1], linestyle=DASHES[1], label="Theorem 2 as printed")
        axes.set_xlabel(r"error of the inner solution, $|\hat{x}_i - x|$")
        axes.legend()
        return picture(
            figure,
            "theorem2_missing_term",
            "Theorem 2 lacks a term (erratum 15)",
            "g = (x − a)²/2, f = λx, three clients, exact averaging. The printed bound is 0 whatever x̂; the error is "
            "‖x̂ − x‖, and so is the corrected bound 2*.",
        )


def draw_floor(curves: dict[str, np.ndarray]) -> Picture:
    """Erratum 22: error, the printed floor and bound B against η."""
    with panels(1, 1, 3.6, 2.7) as (figure, [[axes]]):
        lines = (("printed", r"printed, $2\beta\epsilon/(\eta\alpha^2)$"), ("B", "bound B"), ("error", "error"))
        for k, (name, label) in enumerate(lines):
            axes.plot(curves["eta"], curves[name], color=(*COLOURS[1::-1], "#000000")[k], linestyle=DASHES[k],
                      marker="o", ms=3, label=label)  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(r"step size $\eta$")
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "floor_against_eta",
            "The floor does not grow as η falls (erratum 22)",
            "Logistic regression, n = 3, S = 10, means over networks, iterated until only the floor is left. The "
            "printed floor grows as 1/η; the error and bound B do not.",
        )


def draw_weights(errors: dict[tuple[str, int], np.ndarray]) -> Picture:
    """Erratum 25: ‖v^(m) − d‖ against m for each way, a panel for each S."""
    steps = sorted({S for _, S in errors})
    with panels(1, len(steps), 6.2, 2.7) as (figure, [row]):
        for axes, S in zip(row, steps, strict=True):
            for k, (debias, label) in enumerate(WEIGHT_LABELS.items()):
                values = errors[debias, S]
                m = np.unique(np.geomspace(1, len(values), 250).astype(int))
                axes.plot(
                    m, values[m - 1], color=COLOURS[k], linestyle=DASHES[k], label=label if S == steps[0] else None
                )
            axes.set_yscale("log")
            axes.set_xscale("log")
            axes.set_title(f"$S = {S}$")
            axes.set_xlabel("iterations $m$")
        row[0].set_ylabel(r"$\|v^{(m)} - \mathrm{d}_\lambda f\|$")
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "keep_against_reset",
            "Keeping the Push-Sum weights can diverge (erratum 25)",
            "Logistic regression, n = 3, η = 0.1. Dividing by weights of earlier calls while restarting from debiased "
            "vectors diverges at S = 1 and raises the floor at S = 10.",
        )
