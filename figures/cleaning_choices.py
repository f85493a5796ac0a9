"""`python -m figures.cleaning_choices`: how the settings of hyper-cleaning were chosen, at 30 % on seeds not shown.

A line for each choice: accuracy with M = 0, with HGP and with perfect knowledge of the wrong labels (their weights 0,
the others 1), all after the same number of steps of SGP; the gain of the worst seed; AUC, mean and worst.
"""

from __future__ import annotations

import os
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

import numpy as np  # noqa: E402

import hgp_ref as hgp  # noqa: E402
from figures.cleaning import PLAIN, SHOWN, auc, experiment, given  # noqa: E402
from hgp_ref.bilevel import Adam, GradientDescent  # noqa: E402

SEEDS = (100, 101, 102, 103)
CHOICES: tuple[tuple[float, int, int, int, Any], ...] = (  # L2 rate, steps, M, K, update
    (1e-3, 100, 100, 10, Adam(1.0)),
    (1e-3, 100, 100, 10, GradientDescent(300.0)),
    (1e-3, 100, 100, 10, GradientDescent(1000.0)),
    (1e-2, 100, 100, 10, GradientDescent(300.0)),
    (1e-4, 200, 100, 10, GradientDescent(1000.0)),
    (1e-4, 400, 100, 8, GradientDescent(1000.0)),
    (1e-4, 400, 200, 15, GradientDescent(1000.0)),
)


def judged(seed: int, l2: float, steps: int, M: int, K: int, update: Any) -> tuple[float, ...]:
    """Accuracies with M = 0, HGP and perfect knowledge, in per cent, and the AUC of HGP."""
    settings = {**experiment(seed=seed).settings, "l2": l2}
    data, net, problem, start = given(settings, SHOWN)
    train = {"steps": steps, "lr": settings["lr"]}
    estimate = {"steps": settings["steps"], "iterations": M, "eta": settings["eta"]}
    path = hgp.bilevel.optimise(problem, net, start, K, train, estimate, update)
    long = {"steps": (K + 1) * steps, "lr": settings["lr"]}
    known = np.where(data.wrong, -PLAIN, PLAIN)
    models = (hgp.sgp(problem, net, start, **long).x, path.x, hgp.sgp(problem, net, known, **long).x)
    return (*(100 * float(data.accuracy(x).mean()) for x in models), auc(-path.lam[-1], data.wrong))


def main() -> None:
    """A line for each choice."""
    for choice in CHOICES:
        l2, steps, M, K, update = choice
        each = np.array([judged(seed, *choice) for seed in SEEDS])
        zero, cleaned, perfect, area = each.mean(axis=0)
        words = f"L2 {l2:g}, {steps} steps, M = {M}, K = {K}, {type(update).__name__}({update.lr:g})"
        gains = f"{cleaned - zero:+.1f}, worst {np.min(each[:, 1] - each[:, 0]):+.1f}"
        print(f"{words}: M = 0 {zero:.1f}, HGP {cleaned:.1f} ({gains}), perfect {perfect:.1f}; AUC {area:.3f}, worst "
              f"{each[:, 3].min():.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
