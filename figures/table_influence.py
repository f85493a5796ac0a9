"""The paper's table of R² and F1: its convex row in both variants and with exact retraining, real data, the CNN."""

from __future__ import annotations

import numpy as np

from figures import cnn, real_data, removal
from figures.figA2b import KINDS, WAYS, of_kind
from figures.options import VARIANTS, Data, Options, Row
from figures.reference import CNN_PAPER, F1_PAPER, R2_PAPER
from hgp_ref.attribution import r2_score, scores
from reporting.store import Arrays, Experiment
from reporting.table import Table

SHOWS = "R², F1, rank correlation of predicted influence: synthetic data in both variants, breast cancer, digits, CNN"
BY_VARIANT = False
BY_SIZE = True
REAL = {"breast_cancer": "breast cancer", "digits": "digits"}


def experiments(options: Options) -> dict[str, Experiment]:
    """Both synthetic variants, both real data sets, the CNN with full batches and with mini-batches."""
    given = {"quick": options.quick, "backend": options.backend}
    synthetic = {variant: removal.experiment(variant, **given) for variant in VARIANTS}
    networks = {key: cnn.experiment(options.size, mini_batch=key == "mini", **given) for key in CNN_PAPER}
    return {**synthetic, **{key: real_data.experiment(key, **given) for key in REAL}, **networks}


def table(data: Data, options: Options) -> Table:
    """Scores of HGP's predictions, and R² of the exact first-order change and of one Newton step beside them."""
    rows = []
    for variant in reversed(VARIANTS):
        d = data[variant]
        name, others = f"synthetic, {variant}", (d["predicted_true"], d["newton_step"])
        printed = (f"{R2_PAPER:.2f}", f"{F1_PAPER:.2f}")
        rows.append((name, "instances, SGP", *_row(d["actual"], d["predicted"], *others), *printed))
        rows.append((name, "instances, exact", *_row(d["actual_exact"], d["predicted"], *others), "", ""))
    for key, name in REAL.items():
        d = data[key]
        others = (d["predicted_true"], d["newton_step"])
        rows.append((name, "instances, exact", *_row(d["actual"], d["predicted"], *others), "", ""))
        clients = (d["actual_clients"], d["predicted_clients"], d["predicted_clients_true"])
        rows.append((name, "clients, exact", *_row(*clients, None), "", ""))
    for key, printed in CNN_PAPER.items():
        rows += _network_rows(data[key], f"CNN ({options.size}), {key} batch", tuple(f"{v:.2f}" for v in printed))
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


def _network_rows(d: Arrays, name: str, printed: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Both kinds of removal in both ways; the paper's numbers are those of instances retrained from scratch."""
    rows = []
    for kind, word in zip(KINDS, ("instances", "groups"), strict=True):
        chosen = of_kind(d, kind)
        for way, end in zip(WAYS, ("more steps from x", "SGP"), strict=True):
            beside = printed if (word, end) == ("instances", "SGP") else ("", "")
            rows.append((name, f"{word}, {end}", *_row(d[way][chosen], d["predicted"][0, chosen]), *beside))
        if "held" in d:  # mini-batches: what this one sequence of them is right about
            row = _row(d["held"][chosen], d["shared"][chosen])
            rows.append((name, f"{word}, more steps on HGP's batches", *row, "", ""))
    return rows


def _row(
    actual: np.ndarray,
    predicted: np.ndarray,
    first_order: np.ndarray | None = None,
    newton_step: np.ndarray | None = None,
) -> tuple[str, ...]:
    found = scores(actual, predicted)
    first = "" if first_order is None else f"{r2_score(actual, first_order):.4f}"
    step = "" if newton_step is None else f"{r2_score(actual, newton_step):.4f}"
    values = (f"{found.r2:.4f}", _number(found.f1), _number(found.spearman), first)
    return (str(len(actual)), *values, step)


def _number(value: float) -> str:
    return "none negative" if np.isnan(value) else f"{value:.3f}"


def compare(data: Data, options: Options) -> list[Row]:
    """Nothing beyond Fig. 1c and appendix Fig. 2b and 2c, which compare R² and F1."""
    return []
