"""`python -m figures.cleaning_fewer`: hyper-cleaning of digits with fewer validation images, with and without HGP.

Where 400 right labels determine a model, filtering by it does as well as HGP (`figures.cleaning_controls`). Here
clients have the first 40, 20, 10 or 5 of their validation images; training and test images stay. Means over the three
seeds of `figures.cleaning`, whose settings are HGP's, unchanged. What was fixed before it was run:

    no cleaning  all data at one place, the L2 rate by validation images, as in `figures.cleaning`
    alone        a model of the validation images, its L2 rate the best of RIDGES in five-fold cross-validation
                 (the stronger of equal ones)
    filtered     throw out the training images whose label that model contradicts; train on the others and on the
                 validation images at the same L2 rate

and added after the others had been seen, because the loss of that model tells wrong labels better than HGP throughout:

    again        the same once more, by the filtered model

AUC: how well the loss of the model of the validation images, and the weights of HGP, tell wrong labels.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

from collections.abc import Mapping, Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from figures.cleaning import RIDGES, auc, experiment, found, given, ridge  # noqa: E402
from figures.cleaning_clients import Noisy  # noqa: E402
from figures.cleaning_controls import filtered, fitted, losses  # noqa: E402
from hgp_ref.backend import to_host  # noqa: E402
from reporting.table import Table  # noqa: E402

SHARES, FEWER, FOLDS = (0.3, 0.6), (40, 20, 10, 5), 5
HEADER = ("wrong labels", "validation images a client", "no cleaning, best L2 rate", "validation images alone",
          "filtered by them", "HGP", "filtered again", "HGP over filtered, points (seeds)", "over filtered again",
          "AUC of their loss", "AUC HGP")  # fmt: skip


def rate(X: np.ndarray, y: np.ndarray, rates: Sequence[float]) -> float:
    """The L2 rate whose models are right most often on the folds that they have not seen."""
    fold = np.arange(len(y)) % FOLDS
    right = [
        sum(Noisy.right(fitted(X[fold != k], y[fold != k], l2), X[fold == k], y[fold == k])[0] for k in range(FOLDS))
        for l2 in rates
    ]
    return rates[int(np.argmax(right))]


def numbers(settings: Mapping[str, Any], share: float, count: int) -> tuple[float, ...]:
    """Accuracies of the five ways and the two AUCs, with `count` validation images a client."""
    all_of_it, net, _, start = given(settings, share)
    data = replace(all_of_it, X_val=all_of_it.X_val[:, :count], y_val=all_of_it.y_val[:, :count])
    X, y = data.X_val.reshape(-1, data.X.shape[-1]), data.y_val.ravel()
    l2 = rate(X, y, RIDGES)
    model = fitted(X, y, l2)
    once = filtered(data, model, l2)
    problem = data.problem(settings["l2"], settings["backend"], settings["dtype"])
    path = found(settings, problem, net, start)
    accuracies = (
        ridge(data)["ridge_accuracy"],
        *(data.accuracy(x)[0] for x in (model, once)),
        data.accuracy(to_host(path.x)).mean(),
        data.accuracy(filtered(data, once, l2))[0],
    )
    return (*map(float, accuracies), auc(losses(data, model), data.wrong), auc(-to_host(path.lam)[-1], data.wrong))


def table(shares: Sequence[float] = SHARES, fewer: Sequence[int] = FEWER, *, quick: bool = False) -> Table:
    """A row for each share of wrong labels and number of validation images."""
    settings = experiment(quick=quick).settings
    seeds, rows = (settings["seed"], *settings["more_seeds"]), []
    for share in shares:
        for count in fewer:
            each = np.array([numbers({**settings, "seed": seed}, share, count) for seed in seeds])
            more = 100 * (each[:, [3]] - each[:, [2, 4]])
            gains = [f"{one.mean():+.1f} ({', '.join(f'{a:+.1f}' for a in one)})" for one in more.T]
            mean = [f"{a:.3f}" for a in each.mean(axis=0)]
            rows.append((f"{100 * share:.0f} %", str(count), *mean[:5], *gains, *mean[5:]))
    return Table("", HEADER, tuple(rows))


if __name__ == "__main__":
    print(table().markdown())
