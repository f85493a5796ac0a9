"""The paper's table of R² and F1: its convex row in both variants and with exact retraining, real data, the CNN."""

from __future__ import annotations

import numpy as np

from figures import table_cnn
from figures.experiments.influence import real_data, removal
from figures.options import INFLUENCE_SIZES, VARIANTS, Data, Options
from figures.reference import F1_PAPER, R2_PAPER
from hgp_ref.attribution import r2_score
from reporting.store import Experiment
from reporting.table import Table

SHOWS = "R², F1, rank correlation of predicted influence: synthetic data in both variants, breast cancer, digits, CNN"
SIZES = INFLUENCE_SIZES
REAL = {"breast_cancer": "breast cancer", "digits": "digits"}


def experiments(options: Options) -> dict[str, Experiment]:
    """Both synthetic variants, both real data sets, the CNN with full batches and with mini-batches."""
    synthetic = {variant: removal.experiment(variant, **options.computation) for variant in VARIANTS}
    real = {key: real_data.experiment(key, **options.computation) for key in REAL}
    return {**synthetic, **real, **table_cnn.experiments(options)}


def table(data: Data, options: Options) -> Table:
    """Scores of HGP's predictions, and R² of the exact first-order change and of one Newton step."""
    rows = []
    for variant in reversed(VARIANTS):
        d = data[variant]
        name, references = f"synthetic, {variant}", (d["predicted_true"], d["newton_step"])
        printed = (f"{R2_PAPER:.2f}", f"{F1_PAPER:.2f}")
        rows.append((name, "instances, SGP", *_row(d["actual"], d["predicted"], *references), *printed))
        rows.append((name, "instances, exact", *_row(d["actual_exact"], d["predicted"], *references), "", ""))
    for key, name in REAL.items():
        d = data[key]
        references = (d["predicted_true"], d["newton_step"])
        rows.append((name, "instances, exact", *_row(d["actual"], d["predicted"], *references), "", ""))
        clients = (d["actual_clients"], d["predicted_clients"], d["predicted_clients_true"])
        rows.append((name, "clients, exact", *_row(*clients, None), "", ""))
    rows += [(*row[:6], "", "", *row[6:]) for row in table_cnn.table(data, options).rows]
    header = (
        "data",
        "removed, retrained",
        "number",
        "R²",
        "F1",
        "Spearman",
        "R², exact first order",
        "R², Newton step",
    )
    return Table("", (*header, "paper's R²", "paper's F1"), tuple(rows))


def _row(
    actual: np.ndarray,
    predicted: np.ndarray,
    first_order: np.ndarray | None = None,
    newton_step: np.ndarray | None = None,
) -> tuple[str, ...]:
    first = "" if first_order is None else f"{r2_score(actual, first_order):.4f}"
    step = "" if newton_step is None else f"{r2_score(actual, newton_step):.4f}"
    return (*table_cnn.scored(actual, predicted), first, step)
