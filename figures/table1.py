"""Table 1 with numbers: what each method computes, where it works, what it sends, and how that grows."""

from __future__ import annotations

from figures.experiments.comparison import growth, runs
from figures.experiments.comparison.runs import METHODS, NETWORKS
from figures.options import Data, Options, Row
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "HGP and nine other methods: class, networks, floats and rounds to errors 1e-2, 1e-4, 1e-6, exponents of growth"
NUMPY = True
SIZES = runs.SIZES
PROBLEM = 1  # quadratic, κ = 10; with --quick the only one there is


def experiments(options: Options) -> dict[str, Experiment]:
    """The runs of `comparison`, and the traffic over sizes."""
    return {
        "runs": runs.experiment(options.quick, options.size),
        "growth": growth.experiment(options.quick),
    }


def table(data: Data, options: Options) -> Table:
    """Floats per client in units of d_x / rounds, medians over the other seeds; — if not reached.

    `chosen` is the parameter of the method, one of six values, chosen on seed 0.
    """
    problem = 0 if options.quick else PROBLEM
    rows = []
    for m in METHODS:
        for k, kind in enumerate(NETWORKS):
            if not m.works_on(kind):
                continue
            reached = data["runs"][f"{problem}-{k}/{m.name}/reached"]
            cost = [runs.cell(reached[:, t]) for t in range(reached.shape[1])]
            network = "server" if m.networks == "server" else kind
            choice = m.chosen(float(data["runs"][f"{problem}-{k}/{m.name}/chosen"]))
            rows.append((m.name, m.kind, network, choice, *cost, *_exponents(data, m.name)))
    header = ("method", "class", "network", "chosen", *(f"floats/rounds to {t:g}" for t in runs.TARGETS),
              "exponent in d_x", "in d_λ")  # fmt: skip
    return Table("", header, tuple(rows))


def compare(data: Data, options: Options) -> list[Row]:
    """Exponents: HGP sends as d_x, Yang's GBDSBO as d_x², Chen's DBO as d_x d_λ."""
    rows = []
    for name, expected in {"HGP": (1, 0), "GBDSBO": (2, 0), "DBO": (1, 1)}.items():
        for what, ours, power in zip(("d_x", "d_λ"), _fitted(data, name), expected, strict=True):
            if power:
                rows.append(Row(f"{name}: exponent in {what}", ours, power, abs(ours - power) < 0.1))
    return rows


def _fitted(data: Data, name: str) -> tuple[float, float]:
    x, lam = (
        growth.exponent(data["growth"][f"{part}/sizes"], data["growth"][f"{part}/{name}"]) for part in ("x", "lam")
    )
    return x, lam


def _exponents(data: Data, name: str) -> tuple[str, str]:
    if name not in growth.RUNS:
        return ("—", "—") if name.startswith("planner") else ("nothing sent", "nothing sent")
    x, lam = _fitted(data, name)
    return f"{x:.2f}", f"{abs(lam):.2f}"
