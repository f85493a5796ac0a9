"""What non-convexity does to influence with a CNN: the spectrum of H̄ at the trained x, and damping.

The series of HGP is Σ_m (I − ηH̄)^m. It needs η λ_max < 2. Along an eigenvector with λ < 0, term m grows as
(1 + η|λ|)^m, so that the series does not converge and is truncated at M. `growth` is that of the last term,
(1 + η|λ_min|)^M. Damping δ > −λ_min makes H̄ + δI positive definite and the series converge. Its limit is the influence
on a problem with the additional term (δ/2)‖· − x‖², which neither retraining has. Single instances are scored.
"""

from __future__ import annotations

from figures.experiments.influence import cnn
from figures.figA2b import KINDS, RETRAININGS, of_kind
from figures.options import INFLUENCE_SIZES, Data, Options
from figures.reference import CNN_PAPER
from hgp_ref.attribution import scores
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "The CNN's mean Hessian at x (η λ_max, λ_min, growth of the series) and what damping does to R²"
SIZES = INFLUENCE_SIZES


def experiments(options: Options) -> dict[str, Experiment]:
    """Those of appendix Fig. 2b and 2c."""
    return {key: cnn.experiment(options.size, mini_batch=key == "mini", **options.computation) for key in CNN_PAPER}


def table(data: Data, options: Options) -> Table:
    """One row per damping: scores of single instances with both retrainings."""
    rows = []
    for key, experiment in experiments(options).items():
        d, eta, M = data[key], experiment.settings["eta"], experiment.settings["iterations"]
        chosen = of_kind(d, KINDS[0])
        for k, damping in enumerate(experiment.settings["damping"]):
            low = float(d["low"]) + damping
            values = [scores(d[retraining][chosen], d["predicted"][k, chosen]) for retraining in RETRAININGS]
            numbers = [f"{number:.3f}" for score in values for number in (score.r2, score.spearman)]
            growth = (1 + eta * max(0.0, -low)) ** M
            spectrum = (f"{eta * (float(d['high']) + damping):.3f}", f"{low:.4f}", f"{growth:.3g}")
            rows.append((f"{key} batch", f"{damping:g}", *spectrum, f"{float(d['gradient']):.1e}", *numbers))
    header = ("training", "δ", "η (λ_max + δ)", "λ_min + δ", "growth", "gradient left at x", "R² from x", "Spearman")
    return Table("", (*header, "R² from scratch", "Spearman"), tuple(rows))
