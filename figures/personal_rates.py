"""`python -m figures.personal_rates [METHOD …]`: validation accuracies on a grid of rates, three for every method.

Seed 100, which is none of the table's; only validation data are looked at. The rule by which rates of `reduced` are
taken from this: the largest validation accuracy, and of rates within CLOSE points of it the smallest one (made after a
rate of FedEM that was better by 0.3 points here had been seen to be unstable on other seeds). HGP-MTL trains at λ = 0
only (no outer step). FedAvg+, Clustered-FL, HGP-PL, class prior and fine-tuning train their common model as FedAvg does
and have its rate. Not compared: μ (the paper's), and the epochs and the rate of fine-tuning.
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
CLOSE = 0.5  # points
GRID: dict[tuple[str, str], tuple[float, ...]] = {
    ("RandD", "fedavg"): (0.1, 0.3, 1.0),
    ("RandD", "local"): (0.1, 0.3, 1.0),
    ("RandD", "hgp_mtl"): (0.3, 1.0, 3.0),
    ("FC", "fedavg"): (0.0316, 0.1, 0.316),
    ("FC", "local"): (0.0316, 0.1, 0.316),
    ("FC", "fedem"): (0.0316, 0.1, 0.316),
    ("FC", "hgp_mtl"): (0.0316, 0.1, 0.316),
    ("FC", "pfedme"): (0.0316, 0.1, 0.316),
    ("FC", "fedprox"): (0.1, 0.316, 1.0),
    ("FC", "pfedme_published"): (0.1, 0.316, 1.0),
}


def main(methods: list[str]) -> None:
    """A line for each method."""
    for (network, method), rates in GRID.items():
        if not methods or method in methods:
            seen = {rate: validation(network, method, rate) for rate in rates}
            each = ", ".join(f"{rate:g}: {accuracy:.1f}" for rate, accuracy in seen.items())
            print(f"{network:6s} {method:18s} {each}; chosen {chosen(seen):g}", flush=True)


def chosen(seen: dict[float, float]) -> float:
    """The rate that the rule takes; one that diverged has accuracy 0."""
    return min(rate for rate, accuracy in seen.items() if accuracy >= max(seen.values()) - CLOSE)


def validation(network: str, method: str, rate: float) -> float:
    """Validation accuracy in per cent at the best look, 0 where training diverges."""
    settings: dict[str, Any] = {**COMMON, **SIZES["reduced"], "backend": "numpy", "outer_steps": 0}
    base = method.removesuffix("_published")
    settings["rates"] = {group: {**rates, base: rate, method: rate} for group, rates in settings["rates"].items()}
    try:
        return 100 * run(settings, network, method, SEED).accuracy("validation")
    except ArithmeticError:
        return 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
