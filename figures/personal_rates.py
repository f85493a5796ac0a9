"""`python -m figures.personal_rates [METHOD …]`: validation accuracies at rates around the ones that are used.

Seed 100, which is none of the table's; only validation data are looked at. What `figures.personal` has as rates of
`reduced` (and μ of pFedMe) was chosen from this.
"""

from __future__ import annotations

import os
import sys
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

from figures.personal import COMMON, SIZES  # noqa: E402
from figures.personal_parts import run  # noqa: E402

SEED = 100
GRID: dict[tuple[str, str], tuple[float, ...]] = {
    ("RandD", "fedavg"): (0.3, 0.1),
    ("RandD", "local"): (0.3, 0.1),
    ("FC", "fedavg"): (0.1, 0.0316, 0.01),
    ("FC", "local"): (0.1, 0.0316),
    ("FC", "fedprox"): (1.0, 0.316, 0.1),
    ("FC", "fedem"): (0.316, 0.1),
    ("FC", "pfedme_published"): (0.316, 0.1),
    ("FC", "pfedme"): (0.316,),
}
WEIGHTS = {"pfedme": (1.0,)}  # μ


def main(methods: list[str]) -> None:
    """A line for each setting."""
    for (network, method), rates in GRID.items():
        if methods and method not in methods:
            continue
        for rate in rates:
            for mu in WEIGHTS.get(method, (None,)):
                print(_line(network, method, rate, mu), flush=True)


def _line(network: str, method: str, rate: float, mu: float | None) -> str:
    settings: dict[str, Any] = {**COMMON, **SIZES["reduced"], "backend": "numpy"}
    base = method.removesuffix("_published")
    settings["rates"] = {group: {**rates, base: rate, method: rate} for group, rates in settings["rates"].items()}
    if mu is not None:
        settings[method] = {"mu": mu}
    try:
        accuracy = f"{100 * run(settings, network, method, SEED).accuracy('validation'):.1f}"
    except ArithmeticError as error:
        accuracy = f"diverged ({error})"
    return f"{network:6s} {method:18s} lr {rate:<8g} mu {'' if mu is None else mu:<5} validation {accuracy}"


if __name__ == "__main__":
    main(sys.argv[1:])
