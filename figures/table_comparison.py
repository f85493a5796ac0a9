"""The chosen parameter of every curve of `comparison`, and the cost of errors 1e-2, 1e-4 and 1e-6."""

from __future__ import annotations

from figures.experiments.comparison import runs
from figures.experiments.comparison.runs import NETWORKS
from figures.options import Data, Options
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "For every method, problem and network: the parameter chosen on seed 0, floats and rounds on other seeds"
NUMPY = True
SIZES = runs.SIZES
ADDS_METHODS = True


def experiments(options: Options) -> dict[str, Experiment]:
    """The runs of `comparison`."""
    return runs.experiments(options)


def table(data: Data, options: Options) -> Table:
    """Floats per client in units of d_x / rounds, medians over the other seeds; — if not reached."""
    data_of, rows = runs.results_of(data), []
    problems = runs.PROBLEMS[:1] if options.quick else runs.PROBLEMS
    for p, problem in enumerate(problems):
        for k, kind in enumerate(NETWORKS):
            for m in runs.methods_of(options):
                if m.works_on(kind):
                    part = f"{p}-{k}/{m.name}"
                    costs = [runs.cell(data_of[f"{part}/reached"][:, t]) for t in range(3)]
                    network = "server" if m.networks == "server" else kind
                    rows.append((problem, network, m.name, m.chosen(float(data_of[f"{part}/chosen"])), *costs))
    header = ("problem", "network", "method", "chosen", *(f"floats/rounds to {t:g}" for t in runs.TARGETS))
    return Table("", header, tuple(rows))
