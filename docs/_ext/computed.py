"""What the package computes while the site is built: the numbers of the explorer, bars of benchmarks."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from reference import write_if_new
from sphinx.application import Sphinx

import hgp_ref as hgp
from reporting.style import COLOURS, new_figure, style

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30)
LONGEST = 1000
SPEEDUP = re.compile(r"([\d.,]+) × faster than ([^;|]+)")


def explorer() -> dict[str, Any]:
    """Relative errors of HGP for each S over M, with exact averaging (truncation) and after many terms (floor)."""
    data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
    problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    lam = np.full((3, problem.dim_x), 0.03)
    x = hgp.exact.inner_solution(problem, lam)
    truth = hgp.exact.hypergradient(problem, x, lam)
    net = hgp.networks.RandomDirected(n=3, seed=1)
    runs = [*(hgp.PushSum(net, steps=S) for S in STEPS), hgp.ExactAverage(3)]
    errors = []
    for avg in runs:
        est = hgp.hypergradient(problem, x, lam, avg, iterations=LONGEST, history=True)
        errors.append(np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth))
    M = np.unique(np.geomspace(1, LONGEST, 48).astype(int))
    curves = np.array(errors)[:, M - 1]
    rounded = [[float(f"{e:.3g}") for e in curve] for curve in curves]
    floors = [float(f"{error[-1]:.3g}") for error in errors[:-1]]
    return {"S": STEPS, "M": M.tolist(), "error": rounded[:-1], "truncation": rounded[-1], "floor": floors}


def bars(table: str) -> str:
    """Every "N × faster than" of the page's table as a bar, SVG."""
    found = []
    for line in table.splitlines():
        if line.startswith("| ") and "× faster than" in line:
            workload = line.split("|")[1].strip().split(",")[0].split(" (")[0]
            found += [(f"{workload}: {peer.strip()}", float(n.replace(",", ""))) for n, peer in SPEEDUP.findall(line)]
    with style():
        figure = new_figure(7.2, 0.42 * len(found) + 0.8)
        axes = figure.subplots()
        labels, values = zip(*found[::-1], strict=True)
        axes.barh(range(len(values)), values, color=COLOURS[0], height=0.6)
        axes.set_yticks(range(len(values)), [_folded(label) for label in labels], fontsize=7)
        axes.set(xscale="log", xlim=(1, 6 * max(values)), xlabel="times faster (CPU time)")
        axes.minorticks_off()
        for k, value in enumerate(values):
            axes.text(value * 1.1, k, f"{value:,g} ×", va="center", fontsize=7)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


def _folded(label: str, width: int = 44) -> str:
    words, line, lines = label.split(), "", []
    for word in words:
        if len(line) + len(word) > width:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def write(app: Sphinx) -> None:
    """All of it, into docs/generated."""
    docs = Path(app.srcdir)
    text = f"window.EXPLORER = {json.dumps(explorer())};\n"
    write_if_new(docs / "generated" / "static" / "explorer-data.js", text)
    page = docs / "benchmarks.md"
    write_if_new(docs / "generated" / "benchmarks.svg", bars(page.read_text(encoding="utf-8")))


def setup(app: Sphinx) -> dict[str, Any]:
    """Before files are looked for."""
    (Path(app.srcdir) / "generated" / "static").mkdir(parents=True, exist_ok=True)
    app.connect("builder-inited", write, priority=150)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
