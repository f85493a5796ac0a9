"""`python -m figures.cleaning_seeds`: what HGP gains over M = 0 on twenty draws of digits, at 30 % wrong labels.

The figure shows seeds 0 to 2, and a gain varies by a point from draw to draw. Seeds 0 to 19, with the settings of
`figures.cleaning`; the first six had been looked at, with other settings, when the number was fixed.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

import numpy as np  # noqa: E402

from figures.cleaning import experiment  # noqa: E402
from figures.hyper_cleaning import AREA, GAIN  # noqa: E402
from reporting.table import Table  # noqa: E402

SEEDS = 20
HEADER = ("seeds", "M = 0", "HGP", "points gained: mean", "standard deviation", "smallest", "largest",
          f"seeds with {GAIN:g}", "AUC", "smallest", f"seeds with {AREA:g}")  # fmt: skip


def table(seeds: int = SEEDS, *, quick: bool = False) -> Table:
    """One row: accuracies and AUC over seeds."""
    runs = [experiment(quick=quick, seed=seed).compute(f"seed {seed}", {}) for seed in range(seeds)]
    (cleaned, zero), area = np.array([run["accuracy"] for run in runs]).T, np.array([run["auc"][0] for run in runs])
    gains = 100 * (cleaned - zero)
    row = (
        *(str(seeds), f"{zero.mean():.3f}", f"{cleaned.mean():.3f}", f"{gains.mean():.1f}", f"{gains.std(ddof=1):.1f}"),
        *(f"{gains.min():.1f}", f"{gains.max():.1f}", str(int(np.sum(gains >= GAIN)))),
        *(f"{area.mean():.3f}", f"{area.min():.3f}", str(int(np.sum(area >= AREA)))),
    )
    return Table("", HEADER, (row,))


if __name__ == "__main__":
    print(table().markdown())
