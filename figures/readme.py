"""The figure of the README: a network that changes, the error of five runs over what they send, and wrong labels.

Left: three successive graphs. Middle: the error of the hyper-gradient over the vectors sent per link. These are the
floats sent, divided by d_x and by the mean number of links of a graph. Right: the influence of each training instance
after a short run, with the bounds that `hgp.certify` gives. One label in ten is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import hgp_ref as hgp
from figures.options import Data, Options
from hgp_ref import methods
from hgp_ref.mixing import Averaging, TreeAverage
from hgp_ref.networks import Network
from hgp_ref.networks.drawing import circle
from reporting.store import Arrays, Experiment
from reporting.style import COLOURS, DASHES, METHODS, new_figure
from reporting.table import Table

SHOWS = "A network at three steps; error against vectors sent, five runs; certified influence finds wrong labels"
NUMPY = True
CLIENTS, L2, WRONG, GRAPHS = 8, 0.01, 0.1, 3
TARGETS = (1e-2, 1e-4, 1e-6)
SHORT = 0.01  # residual at which the run of the right panel stops: its bounds are large enough to be seen


@dataclass(frozen=True)
class Run:
    """A method with its averaging, how many iterations are drawn, and where its name stands."""

    label: str
    method: methods.Method | None
    averaging: Callable[[Network], Averaging]
    iterations: int
    name: str  # in reporting.style.METHODS
    at: tuple[float, float]


def push_sum(steps: int) -> Callable[[Network], Averaging]:
    """Push-Sum with so many steps over a network."""
    return partial(hgp.PushSum, steps=steps)


SOLVES, CONJUGATE = "Preconditioned tracking", "Conjugate gradients"
RUNS = (
    Run("HGP,\nS = 30", None, push_sum(30), 3000, "HGP", (9e3, 3e-7)),
    Run("HGP (paper),\nS = 60", None, push_sum(60), 3000, "HGP", (1.4e4, 0.6)),
    Run("Chebyshev,\nS = 60", methods.Chebyshev(), push_sum(60), 200, "Chebyshev", (8e3, 1e-9)),
    Run("tracking,\nlocal\nsolves", methods.PreconditionedTracking(), push_sum(1), 240, SOLVES, (330, 1e-8)),
    Run("conjugate\ngradients\nalong\na tree", methods.ConjugateGradient(), TreeAverage, 32, CONJUGATE, (0.6, 1e-7)),
)


def experiments(options: Options) -> dict[str, Experiment]:
    """One part for each run, and one for the scores."""
    settings = {
        "backend": "numpy",
        "dtype": "float64",
        "seed": 0,
        "clients": CLIENTS,
        "l2": L2,
        "wrong": WRONG,
        "tol": SHORT,
        "iterations": [20 if options.quick else run.iterations for run in RUNS],
    }
    parts = ("scores", *(str(k) for k in range(len(RUNS))))
    return {"readme": Experiment("readme", settings, parts, partial(_part, settings), _join)}


@lru_cache(maxsize=1)
def mislabelled() -> tuple[Any, np.ndarray, np.ndarray]:
    """The problem of the README's quickstart, its weights, and which labels are wrong, client by client."""
    data, rng = hgp.data.breast_cancer(CLIENTS, seed=0), np.random.default_rng(0)
    wrong = [rng.random(len(y)) < WRONG for y in data.y]
    y = [np.where(flipped, 1 - y, y) for y, flipped in zip(data.y, wrong, strict=True)]
    problem = hgp.problems.InstanceWeights(data.X, y, data.X_val, data.y_val, l2=L2)
    return problem, np.ones((CLIENTS, problem.dim_lam)), np.concatenate(wrong)


def network() -> Network:
    """Few links at each step, so that no single graph connects all clients."""
    return hgp.networks.RandomDirected(CLIENTS, low=0.1, high=0.3, seed=0)


def _part(settings: Mapping[str, Any], part: str, finished: Mapping[str, Arrays]) -> Arrays:
    problem, ones, wrong = mislabelled()
    net = network()
    x = hgp.exact.inner_solution(problem, ones)
    per_link = problem.dim_x * net.expected_edges
    if part == "scores":
        method = methods.PreconditionedTracking()
        found = hgp.influence(problem, x, ones, hgp.PushSum(net, steps=1), method, tol=settings["tol"])
        bound = hgp.certify(problem, x, ones, found.estimate).bound
        return {
            "wrong": wrong,
            "predicted": found.predicted,
            "bound": np.repeat(bound, found.counts),
            "sent": np.array(found.estimate.traffic.floats / per_link),
        }
    run, count = RUNS[int(part)], settings["iterations"][int(part)]
    truth = hgp.exact.hypergradient(problem, x, ones)
    est = hgp.hypergradient(problem, x, ones, run.averaging(net), run.method, iterations=count, history=True)
    errors = np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    floats = est.traffic.floats * np.arange(1, len(errors) + 1) / len(errors)  # the mean of all iterations
    return {f"{part}/errors": errors, f"{part}/sent": floats / per_link}


def _join(parts: Mapping[str, Arrays]) -> Arrays:
    return {name: array for arrays in parts.values() for name, array in arrays.items()}


def draw(data: Data, options: Options) -> Figure:
    """Three panels of one height; the first has a graph for each step."""
    d = data["readme"]
    figure = new_figure(7.8, 2.9)
    panels: Any = figure.subfigures(1, 3, width_ratios=(0.55, 1.5, 1.5))
    left, middle, right = panels
    for s, axes in enumerate(left.subplots(GRAPHS, 1), 1):
        _graph(axes, network(), s)
    _errors(middle.subplots(), d)
    _scores(right.subplots(), d)
    return figure


def pages(data: Data, options: Options, stamps: dict[str, Any]) -> dict[str, str]:
    """A table of what the runs send until the error stays below each target."""
    d, rows = data["readme"], []
    for k, run in enumerate(RUNS):
        errors, sent = d[f"{k}/errors"], d[f"{k}/sent"]
        above = [np.flatnonzero(errors > target) for target in TARGETS]
        first = [int(a[-1]) + 1 if a.size else 0 for a in above]
        cells = [f"{sent[m]:,.0f}" if m < len(sent) else "—" for m in first]
        rows.append((" ".join(run.label.split()), *cells))
    head = ("run", *(f"vectors per link to {target:g}" for target in TARGETS))
    return {"readme.md": Table("", head, tuple(rows)).markdown() + "\n"}


def _graph(axes: Any, net: Network, step: int) -> None:
    """The links of one step as arrows between clients on a circle."""
    at = circle(net.n)
    for sender, receiver in zip(*net.edges(step), strict=True):
        if sender != receiver:
            arrow = {"arrowstyle": "-|>", "color": "0.35", "linewidth": 0.7, "mutation_scale": 5,
                     "shrinkA": 2, "shrinkB": 3, "connectionstyle": "arc3,rad=0.12"}  # fmt: skip
            axes.annotate("", at[receiver], at[sender], arrowprops=arrow)
    axes.plot(*at.T, "o", markersize=5, color=COLOURS[0], markeredgecolor="white", markeredgewidth=0.5)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axes.set_axis_off()
    axes.text(-1.25, 1.1, f"step {step}", ha="center", va="top")


def _errors(axes: Any, d: Arrays) -> None:
    for k, run in enumerate(RUNS):
        line = DASHES[2] if k == 0 else DASHES[0]
        axes.loglog(d[f"{k}/sent"], d[f"{k}/errors"], color=METHODS[run.name].colour, linestyle=line)
        axes.text(*run.at, run.label, color=METHODS[run.name].colour, fontsize=7, va="top", linespacing=1.1)
    axes.set_title("error of the hyper-gradient", loc="left")
    axes.set(xlabel="vectors sent per link", ylabel="relative error", xlim=(0.4, 8e5), ylim=(1e-14, 5))
    axes.minorticks_off()


def _scores(axes: Any, d: Arrays) -> None:
    order = np.argsort(d["predicted"], kind="stable")
    rank, predicted, bound = np.arange(len(order)), d["predicted"][order], d["bound"][order]
    kinds = (("correct label", ~d["wrong"], COLOURS[0], "o"), ("wrong label", d["wrong"], COLOURS[1], "^"))
    for label, chosen, colour, marker in kinds:
        of = chosen[order]
        axes.errorbar(rank[of], predicted[of], bound[of], linestyle="", marker=marker, markersize=2.6, color=colour,
                      elinewidth=0.5, ecolor=colour, alpha=0.9, label=label)  # fmt: skip
    axes.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    axes.set_title(f"influence, certified, after {float(d['sent']):.0f} vectors per link", loc="left")
    axes.set(
        xlabel="training instances, most harmful first", ylabel="change of the validation cost\nwithout the instance"
    )
    axes.legend(loc="lower right")
