"""What was chosen for every curve of `comparison`, and what it took to reach errors of 1e-2, 1e-4 and 1e-6."""

from __future__ import annotations

from figures import comparison_runs
from figures.comparison_cases import NETWORKS
from figures.comparison_methods import METHODS
from figures.options import Data, Options, Row
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "Of every method, problem and network: the parameter chosen on seed 0, floats and rounds on other seeds"
BY_VARIANT = False
BY_SIZE = True
NUMPY = True
SIZES = comparison_runs.SIZES


def experiments(options: Options) -> dict[str, Experiment]:
    """The runs of `comparison`."""
    return {"runs": comparison_runs.experiment(options.quick, options.size)}


def table(data: Data, options: Options) -> Table:
    """Floats per client in units of d_x / rounds, medians over seeds not used for choosing; — where not reached."""
    runs, rows = data["runs"], []
    problems = comparison_runs.PROBLEMS[:1] if options.quick else comparison_runs.PROBLEMS
    for p, problem in enumerate(problems):
        for k, kind in enumerate(NETWORKS):
            for m in METHODS:
                if m.works_on(kind):
                    part = f"{p}-{k}/{m.name}"
                    costs = [comparison_runs.cell(runs[f"{part}/reached"][:, t]) for t in range(3)]
                    network = "server" if m.networks == "server" else kind
                    rows.append((problem, network, m.name, m.chosen(float(runs[f"{part}/chosen"])), *costs))
    header = ("problem", "network", "method", "chosen", *(f"floats/rounds to {t:g}" for t in comparison_runs.TARGETS))
    return Table("", header, tuple(rows))


def compare(data: Data, options: Options) -> list[Row]:
    """The paper prints no numbers for this."""
    return []
