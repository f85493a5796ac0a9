"""Figures of the report, as SVG in the style of the paper's figures; one function each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reporting.style import STEP_LINES, Line
from verification.curves import Curve
from verification.plotting import BOUNDS, ERROR, GREY, distribution, distributions, panels, picture, reference_line
from verification.run import Picture

SHOWN = ("A", "B", "C2", "Corollary 1")  # bounds of `draw_curves`
PRINTED, CORRECTED = Line("#D55E00", (0, (5, 1.2)), "s"), Line("#0072B2", "-", "o")
NONCONVEX_LINES = STEP_LINES | {20: Line("#3F0498"), 40: Line("#000000", (0, (1.2, 1.5)), width=1.8)}
COVERAGE = {
    "azuma, ϵ = 0.1": Line("#E69F00", "-", "o"),
    "bernstein, ϵ = 0.1": Line("#0072B2", "-", "s"),
    "azuma, ϵ = 0.01": Line("#E69F00", (0, (1.2, 1.2)), "^"),
    "bernstein, ϵ = 0.01": Line("#0072B2", (0, (1.2, 1.2)), "D"),
}
WEIGHT_LINES = {
    "reset": Line("#0072B2", "-", width=1.8),
    "keep": Line("#D55E00", (0, (5, 1.2))),
    "conserve": Line("#000000", (0, (1.2, 1.2))),
}
WEIGHT_LABELS = {
    "reset": "reset (Algorithm 1)",
    "keep": "kept (the paper's modification)",
    "conserve": "mass conserved",
}


def draw_curves(curves: Sequence[Curve]) -> Picture:
    """A panel for each S, for one problem."""
    case = curves[0].case
    with panels((len(curves) + 2) // 2, 2, 5.0, sharex=True, sharey=True) as (figure, grid):
        cells = grid.ravel()
        for axes, curve in zip(cells, curves, strict=False):
            for name in ("error", *SHOWN):
                values = curve.error if name == "error" else curve.bounds[name]
                values = np.where(values > curve.rounding, values, np.nan)
                line = ERROR if name == "error" else BOUNDS[name]
                label = "Corollary 1\nas printed" if name == "Corollary 1" else name
                axes.plot(curve.m, values, label=label, markevery=6, **line.options())
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"$S = {curve.S}$")
            axes.tick_params(labelbottom=True)
        for axes in cells[len(curves) :]:
            axes.set_axis_off()
        cells[len(curves)].legend(*cells[0].get_legend_handles_labels(), loc="center left", fontsize=8)
        top = np.nanmax([curve.bounds["B"] for curve in curves])
        low = np.nanmin([np.where(curve.error > curve.rounding, curve.error, np.nan) for curve in curves])
        cells[0].set_ylim(low / 3, top * 30)
        figure.supxlabel("iterations $m$", fontsize=8)
        figure.supylabel("error of the hyper-gradient, and its bounds", fontsize=8)
        return picture(
            figure,
            f"curves_{case.name.replace(' ', '_').replace('=', '')}",
            f"Error and bounds against m: {case.name}",
            f"The error (black) stays below every bound. Random digraph, η = {curves[0].eta:g}, realised constants. "
            "Corollary 1 is drawn where its printed condition on S holds; A may leave the top of the panel. Values "
            "below rounding are left out.",
        )


def draw_tightness(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of bound/error, a panel for each problem and a line for each bound."""
    with panels(len(ratios), 1, 0.6 + 1.5 * len(ratios), sharex=True) as (figure, grid):
        cells = grid.ravel()
        distributions(cells, ratios, BOUNDS, "")
        cells[-1].set(xlabel="bound / error", xlim=(0.9, 1e4))
        figure.supylabel("share of settings", fontsize=8)
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "tightness",
            "Tightness: how often bound/error is below a value",
            "No line lies left of 1, where a bound would be violated; the further left, the tighter. B lies nearly "
            "everywhere on min(A, B). Distributions "
            "over network seeds, S ≥ 5 and iterations m.",
        )


def draw_coverage(ratios: dict[str, dict[str, np.ndarray]]) -> Picture:
    """Distribution of error/bound D over runs: a panel for each setting, lines for forms and ϵ."""
    with panels(len(ratios), 1, 0.6 + 1.6 * len(ratios)) as (figure, grid):
        distributions(grid.ravel(), ratios, COVERAGE, "")
        grid[-1, 0].set_xlabel("error / bound D")
        figure.supylabel("share of runs", fontsize=8)
        figure.legend(loc="outside upper center", ncols=2)
        return picture(
            figure,
            "coverage",
            "Coverage of the high-probability bound D",
            "Nearly all of each line lies left of 1; a share of at most ϵ may lie right of it. Each line is the "
            "distribution of error/bound over the runs of a setting.",
        )


def draw_search(ratios: dict[str, np.ndarray], settings: int) -> Picture:
    """Distribution of bound/error over random settings, a line for each bound."""
    with panels(1, 1, 2.6) as (figure, [[axes]]):
        for name, values in ratios.items():
            distribution(axes, values, label=name, **BOUNDS[name].options())
        axes.set_xscale("log")
        axes.set_xlim(0.9, 1e6)
        axes.axvline(1, color=GREY, linewidth=0.8)
        axes.set_xlabel("bound / error")
        axes.set_ylabel("share of settings")
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "search",
            f"Search for violations: {settings} random settings",
            "No line lies left of 1, where a bound would be violated. Distributions over problems with n from 1 to 12, "
            "d from 1 to 10, every kind of network, S from 1 to 100 and conditioning up to 1e4.",
        )


def draw_cliques(sizes: Sequence[int], ratios: Sequence[tuple[float, float]]) -> Picture:
    """Erratum 2: σ_max/(√n c) and σ_max/(n c) against n."""
    with panels(1, 1, 2.5) as (figure, [[axes]]):
        lines = (
            (r"as printed, $\sigma_{\max} / (\sqrt{n}\,c)$", PRINTED),
            (r"corrected, $\sigma_{\max} / (n\,c)$", CORRECTED),
        )
        for k, (label, line) in enumerate(lines):
            axes.plot(sizes, [r[k] for r in ratios], label=label, **line.options())
        reference_line(axes, 1, "must not exceed 1")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.set_xlabel("clients $n$")
        axes.set_ylabel("singular value / its bound")
        axes.legend()
        return picture(
            figure,
            "lemma2_cliques",
            "Lemma 2: the factor must be n, not √n (erratum 2)",
            "σ_max exceeds √n c by a factor close to √n; it never exceeds n c. Two cliques of n/2 clients joined by "
            "one edge each way, S = 10, c the largest entry of |Θ − Θ̂|.",
        )


def draw_divergence(errors: np.ndarray, printed: np.ndarray) -> Picture:
    """Erratum 4: relative error and the theorem's right-hand side against m."""
    m = np.arange(1, len(errors) + 1)
    with panels(1, 1, 2.5) as (figure, [[axes]]):
        axes.plot(m, errors, label="error", **ERROR.options())
        axes.plot(m, printed, label="Theorem 1 as printed", markevery=5, **PRINTED.options())
        axes.set_yscale("log")
        axes.set_xlabel("iterations $m$")
        axes.set_ylabel("relative error, and its bound")
        axes.legend()
        return picture(
            figure,
            "theorem1_divergence",
            "Theorem 1 needs a further step condition (erratum 4)",
            "The error doubles with every iteration while the theorem's right-hand side halves. One client, H = "
            "diag(0.5, 3), η = 1, exact averaging and Jacobians: 0 < α < 1/η holds, but ηL = 3 > 2.",
        )


def draw_nonconvex(errors: dict[int, np.ndarray], bounds: dict[int, tuple[np.ndarray, np.ndarray]]) -> Picture:
    """Erratum 12: ‖v^(m) − d‖ for several S, with bound B at marked iterations."""
    with panels(1, 1, 2.7) as (figure, [[axes]]):
        for S, values in errors.items():
            m = np.arange(1, len(values) + 1)
            line = NONCONVEX_LINES[S]
            axes.plot(m, values, label=f"$S = {S}$", **line.options())
            axes.plot(*bounds[S], color=line.colour, linestyle="none", marker="v", markersize=3.5)
        axes.plot([], [], color=GREY, linestyle="none", marker="v", markersize=3.5, label="bound B")
        axes.set_yscale("log")
        axes.set_xlabel("iterations $m$")
        axes.set_ylabel("error of the hyper-gradient")
        figure.legend(loc="outside upper center", ncols=4)
        return picture(
            figure,
            "nonconvex_clients",
            "Convexity of the mean is enough (erratum 12)",
            "With enough steps per averaging the error falls to a small floor, below bound B (triangles; "
            "left out where the error is rounding). "
            "Quadratics of three clients with eigenvalues down to −0.29 each, whose mean has eigenvalues in [0.3, 1].",
        )


def draw_missing_term(shifts: np.ndarray, sides: np.ndarray) -> Picture:
    """Erratum 15: error, Theorem 2 and 2* against the inner error; `sides` is (shifts, 3)."""
    with panels(1, 1, 2.5) as (figure, [[axes]]):
        wide = {"color": "#9CC7E8", "linewidth": 4.5, "linestyle": "-", "marker": ""}
        axes.plot(shifts, sides[:, 2], label="2*, corrected: equals the error", **wide)
        axes.plot(shifts, sides[:, 0], label="error", **ERROR.options())
        axes.plot(shifts, sides[:, 1], label="Theorem 2 as printed: 0", **PRINTED.options(clip_on=False))
        axes.set_xlabel("error of the inner solution")
        axes.locator_params(nbins=5)
        axes.set_ylabel("error of the hyper-gradient")
        axes.legend()
        return picture(
            figure,
            "theorem2_missing_term",
            "Theorem 2 lacks a term (erratum 15)",
            "The printed bound is 0 whatever x̂; the error is ‖x̂ − x‖, and so is the corrected bound 2*. "
            "g = (x − a)²/2, f = λx, three clients, exact averaging.",
        )


def draw_floor(curves: dict[str, np.ndarray]) -> Picture:
    """Erratum 22: error, the printed floor and bound B against η."""
    with panels(1, 1, 2.7) as (figure, [[axes]]):
        lines = (
            ("printed", r"printed, $2\beta\epsilon/(\eta\alpha^2)$", PRINTED),
            ("B", "bound B", BOUNDS["B"]),
            ("error", "error", ERROR),
        )
        for name, label, line in lines:
            axes.plot(curves["eta"], curves[name], label=label, **line.options())
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(r"step size $\eta$")
        axes.set_ylabel("floor of the error, and bounds")
        figure.legend(loc="outside upper center", ncols=3)
        return picture(
            figure,
            "floor_against_eta",
            "The floor does not grow as η falls (erratum 22)",
            "The printed floor grows as 1/η; the error and bound B do not. Logistic regression, n = 3, S = 10, means "
            "over networks, iterated until only the floor is left.",
        )


def draw_weights(errors: dict[tuple[str, int], np.ndarray]) -> Picture:
    """Erratum 25: ‖v^(m) − d‖ against m for each way, a panel for each S."""
    steps = sorted({S for _, S in errors})
    with panels(len(steps), 1, 0.9 + 1.5 * len(steps), sharex=True) as (figure, grid):
        for axes, S in zip(grid.ravel(), steps, strict=True):
            for debias, label in WEIGHT_LABELS.items():
                values = errors[debias, S]
                m = np.unique(np.geomspace(1, len(values), 250).astype(int))
                shown = label if S == steps[0] else None
                axes.plot(m, values[m - 1], label=shown, **WEIGHT_LINES[debias].options())
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"$S = {S}$")
        grid[-1, 0].set_xlabel("iterations $m$")
        figure.supylabel("error of the hyper-gradient", fontsize=8)
        figure.legend(loc="outside upper center", ncols=1)
        return picture(
            figure,
            "keep_against_reset",
            "Keeping the Push-Sum weights can diverge (erratum 25)",
            "Dividing by weights of earlier calls while restarting from debiased vectors diverges at S = 1 and raises "
            "the floor at S = 10. Logistic regression, n = 3, η = 0.1.",
        )
