"""Hyper-cleaning in numbers: the accuracy of every method, and how well wrong labels are found."""

from __future__ import annotations

import numpy as np

from figures.experiments.cleaning.runs import ARMS, SHOWN
from figures.hyper_cleaning import SIZES, experiments
from figures.options import Data, Options
from reporting.table import Table

__all__ = ["SHOWS", "SIZES", "experiments", "table"]
SHOWS = "Hyper-cleaning: test accuracy and AUC of six methods at each share of wrong labels"
HEADER = ("wrong labels", "no cleaning", "the same, best L2 rate", "M = 0", "alone", "HGP", "all data at one place",
          "AUC alone", "AUC HGP", "AUC of its first hyper-gradient", "validation cost, first", "last")  # fmt: skip


def table(data: Data, options: Options) -> Table:
    """One row per share of wrong labels."""
    d, rows = data["cleaning"], []
    for k, share in enumerate(d["shares"]):
        accuracy, area = (dict(zip(ARMS, d[name][k], strict=True)) for name in ("accuracy", "auc"))
        centre = f"{d['centre_accuracy']:.3f} (AUC {d['centre_auc']:.3f})" if share == SHOWN else ""
        ridge = f"{d['ridge_accuracy']:.3f}" if share == SHOWN else ""
        none, *accuracies = (f"{accuracy[arm]:.3f}" for arm in ("none", "zero", "alone", "hgp"))
        areas = (f"{area['alone']:.3f}", f"{area['hgp']:.3f}", f"{d['auc_first'][k]:.3f}")
        rows.append(
            (
                f"{100 * share:.0f} %",
                none,
                ridge,
                *accuracies,
                centre,
                *areas,
                f"{d['cost'][k][0]:.2f}",
                f"{d['cost'][k][-1]:.2f}",
            )
        )
    if np.any(d["moved"] > 0):
        raise AssertionError("M = 0 moved λ, though ∂_λ f = 0")
    return Table("", HEADER, tuple(rows))
