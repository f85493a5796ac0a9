"""What non-convexity does to influence with a CNN: the spectrum of H̄ at the trained x, and damping.

The series of HGP is Σ_m (I − ηH̄)^m. It needs η λ_max < 2; along an eigenvector with λ < 0 term m grows as
(1 + η|λ|)^m, so that M ends the series instead of convergence: `growth` is that of the last term, (1 + η|λ_min|)^M.
Damping δ > −λ_min makes H̄ + δI positive definite and the series converge, to the influence on a problem that is held to
x by (δ/2)‖· − x‖², as neither M more steps nor training from scratch are. Single instances are scored.
"""

from __future__ import annotations

from typing import Any

from figures.experiments.influence import cnn
from figures.figA2b import KINDS, WAYS, of_kind
from figures.options import Data, Options, Row
from figures.reference import CNN_PAPER
from hgp_ref.attribution import scores
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "The CNN's mean Hessian at x (η λ_max, λ_min, growth of the series) and what damping does to R²"
BY_VARIANT = False
BY_SIZE = True


def experiments(options: Options) -> dict[str, Experiment]:
    """Those of appendix Fig. 2b and 2c."""
    given: dict[str, Any] = {"quick": options.quick, "backend": options.backend}
    return {key: cnn.experiment(options.size, mini_batch=key == "mini", **given) for key in CNN_PAPER}


def table(data: Data, options: Options) -> Table:
    """A line for each damping: scores of single instances in both ways of retraining."""
    rows = []
    for key, experiment in experiments(options).items():
        d, eta, M = data[key], experiment.settings["eta"], experiment.settings["iterations"]
        chosen = of_kind(d, KINDS[0])
        for k, damping in enumerate(experiment.settings["damping"]):
            low = float(d["low"]) + damping
            values = [scores(d[way][chosen], d["predicted"][k, chosen]) for way in WAYS]
            numbers = [f"{number:.3f}" for one in values for number in (one.r2, one.spearman)]
            growth = (1 + eta * max(0.0, -low)) ** M
            spectrum = (f"{eta * (float(d['high']) + damping):.3f}", f"{low:.4f}", f"{growth:.3g}")
            rows.append((f"{key} batch", f"{damping:g}", *spectrum, f"{float(d['gradient']):.1e}", *numbers))
    header = ("training", "δ", "η (λ_max + δ)", "λ_min + δ", "growth", "gradient left at x", "R² from x", "Spearman")
    return Table("", (*header, "R² from scratch", "Spearman"), tuple(rows))


def compare(data: Data, options: Options) -> list[Row]:
    """The paper prints nothing of this."""
    return []
