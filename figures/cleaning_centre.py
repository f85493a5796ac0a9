"""`python -m figures.cleaning_centre`: HGP beside all data at one place, on digits with 30 % wrong labels.

With the L2 rate before that of `figures.cleaning` (BEFORE; which was chosen on digits) HGP was above all data at one
place on seed 0. Why, and is it so with the one there is now?

All data at one place in four ways: training solved to the end by L-BFGS or stopped after as many gradient steps as
clients take, each from the model before; hyper-gradients with w* solved to the end or with the M terms of the series.
The last of the four does what HGP does over the network, with exact averages. Each learns its own λ; of its last one
there are three models:

    its own   where the loop ended
    solved    trained to the end
    stopped   trained from zero by (K + 1) times the steps of one training

Means over the three seeds of `figures.cleaning`, with either rate. What differs between rows in one of the last two
columns is due to λ, what differs between the last two columns of a row is due to stopping training early.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

from collections.abc import Mapping  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

import hgp_ref as hgp  # noqa: E402
from figures.cleaning import SHOWN, auc, centre, experiment, found, given, solved  # noqa: E402
from reporting.table import Table  # noqa: E402

WAYS: dict[tuple[str, str], dict[str, bool]] = {
    ("solved", "w* solved"): {},
    ("stopped", "w* solved"): {"stopped": True},
    ("solved", "M terms"): {"cut": True},
    ("stopped", "M terms"): {"stopped": True, "cut": True},
}
BEFORE = 1e-4
HEADER = ("L2 rate", "training", "hyper-gradient", "AUC", "its own model", "λ's model, solved", "λ's model, stopped")


def numbers(settings: Mapping[str, Any]) -> np.ndarray:
    """AUC and three accuracies of each way, HGP over the network last.  # (5, 4)"""
    data, net, problem, start = given(settings, SHOWN)
    pooled, one = data.pooled(settings["l2"]), hgp.networks.FullyConnected(1)
    total = {"steps": (settings["outer_steps"] + 1) * settings["train_steps"], "lr": settings["lr"]}
    total["milestones"] = (0.6, 0.8)
    rows = []
    for path in (*(centre(settings, data, **way) for way in WAYS.values()), found(settings, problem, net, start)):
        lam = np.asarray(path.lam[-1]).reshape(1, -1)
        models = (np.asarray(path.x), solved(pooled, lam, None), np.asarray(hgp.sgp(pooled, lam, one, **total).x))
        rows.append([auc(-lam, data.wrong), *(data.accuracy(x).mean() for x in models)])
    return np.array(rows)


def table(*, quick: bool = False) -> Table:
    """A row for each way, with the L2 rate before and the one there is."""
    present, words, rows = experiment(quick=quick).settings, (*WAYS, ("stopped", "HGP over the network")), []
    for settings in ({**present, "l2": BEFORE}, present):
        each = [numbers({**settings, "seed": seed}) for seed in (settings["seed"], *settings["more_seeds"])]
        for way, row in zip(words, np.mean(each, axis=0), strict=True):
            rows.append((f"{settings['l2']:g}", *way, *(f"{a:.3f}" for a in row)))
    return Table("", HEADER, tuple(rows))


if __name__ == "__main__":
    print(table().markdown())
