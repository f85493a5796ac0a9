"""`python -m figures.cleaning_controls`: what the right labels of hyper-cleaning are worth without hyper-gradients
(digits; `… cleaning_controls emnist` for EMNIST).

Validation labels are right, and every way of cleaning that uses them is to be compared with using them plainly. All
data at one place, softmax regression solved by L-BFGS to 1e-5 at the L2 rate RATE, the middle of three of which the
first way shows all (they were looked at before; none was chosen on validation data):

    validation   train on the validation images alone
    filtered     throw out the training images whose label that model contradicts; train on the others and on the
                 validation images

AUC: how well the loss of the model of the validation images tells wrong labels of training images from right ones.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

import sys  # noqa: E402

import numpy as np  # noqa: E402

import hgp_ref as hgp  # noqa: E402
from figures.cleaning import PLAIN, auc, experiment, solved  # noqa: E402
from figures.cleaning_clients import Noisy, noisy_clients  # noqa: E402
from reporting.table import Table  # noqa: E402

RATE = 1e-3
RATES = (1e-4, RATE, 1e-2)
HEADER = ("wrong labels", "seed", *(f"validation images alone, L2 {rate:g}" for rate in RATES), "filtered by them",
          "AUC of their loss")  # fmt: skip


def fitted(X: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    """Softmax regression of all rows with weight 1.  # (1, d_x)"""
    one = X[None], y[None].astype(float)
    return solved(hgp.problems.HyperCleaning(*one, *one, l2, n_classes=10), np.full((1, len(y)), PLAIN), None)


def losses(data: Noisy, x: np.ndarray) -> np.ndarray:
    """The loss of x (1, d_x) on every training image with its label as given.  # (n N,)"""
    logits, y = data.X.reshape(-1, data.X.shape[-1]) @ x.reshape(data.X.shape[-1], -1), data.y.ravel().astype(int)
    return np.asarray(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(y)), y])


def filtered(data: Noisy, x: np.ndarray, l2: float) -> np.ndarray:
    """A model of the validation images and of those training images whose label x does not contradict.  # (1, d_x)"""
    X, X_val = (a.reshape(-1, data.X.shape[-1]) for a in (data.X, data.X_val))
    y, y_val = data.y.ravel(), data.y_val.ravel()
    kept = (X @ x.reshape(X.shape[1], -1)).argmax(axis=1) == y
    return fitted(np.concatenate([X[kept], X_val]), np.concatenate([y[kept], y_val]), l2)


def row(size: str, share: float, seed: int) -> tuple[str, ...]:
    """Test accuracies and the AUC, at one share of wrong labels."""
    data = noisy_clients(experiment(size, seed=seed).settings, share)
    models = {rate: fitted(data.X_val.reshape(-1, data.X.shape[-1]), data.y_val.ravel(), rate) for rate in RATES}
    numbers = [data.accuracy(x)[0] for x in (*models.values(), filtered(data, models[RATE], RATE))]
    area = auc(losses(data, models[RATE]), data.wrong)
    return (f"{100 * share:.0f} %", str(seed), *(f"{a:.3f}" for a in (*numbers, area)))


def table(size: str = "reduced") -> Table:
    """The shares and seeds of `figures.cleaning`."""
    settings = experiment(size).settings
    cells = [(share, settings["seed"]) for share in settings["shares"]]
    cells += [(0.3, seed) for seed in settings["more_seeds"]]
    return Table("", HEADER, tuple(row(size, *cell) for cell in cells))


if __name__ == "__main__":
    print(table(*sys.argv[1:]).markdown())
