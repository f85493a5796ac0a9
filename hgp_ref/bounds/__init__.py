"""Right-hand sides of the theorems: as printed and as corrected.

Bounds are named by what they need; `bound_a`, `bound_b`, `bound_d`, `bound_e` and `bound_f` are the same functions by
the letters of NOTATION.md. Certificates of finished runs are built on them and live in `hgp_ref.certificates`;
`certify` and `Certificate` are still found here, where they used to be.
"""

from __future__ import annotations

import importlib
from typing import Any

from hgp_ref.bounds.constants import (
    Constants,
    SampleConstants,
    known_lipschitz,
    realised_constants,
    sample_constants,
    sample_derivatives,
)
from hgp_ref.bounds.noise import MeanSquareError, mean_square_error, minibatch_tail
from hgp_ref.bounds.residual import ResidualBounds, distance_to_solution, inexact, inexact_total, residual_bounds
from hgp_ref.bounds.result import Bound, best
from hgp_ref.bounds.series import chebyshev, chebyshev_push_sum, contracting_clients, convex_mean
from hgp_ref.bounds.theorems import (
    WorstCase,
    corollary1,
    corollary1_repaired,
    corollary2,
    lemma2,
    lemma2_realised,
    lemma2_worst_case,
    theorem1,
    theorem2,
    worst_case,
)
from hgp_ref.problems.lipschitz import Lipschitz

bound_a, bound_b, bound_d, bound_e = contracting_clients, convex_mean, minibatch_tail, mean_square_error
bound_f = chebyshev_push_sum

__all__ = [
    "Bound",
    "Certificate",
    "Constants",
    "Lipschitz",
    "MeanSquareError",
    "ResidualBounds",
    "SampleConstants",
    "WorstCase",
    "best",
    "bound_a",
    "bound_b",
    "bound_d",
    "bound_e",
    "bound_f",
    "certify",
    "chebyshev",
    "chebyshev_push_sum",
    "contracting_clients",
    "convex_mean",
    "corollary1",
    "corollary1_repaired",
    "corollary2",
    "distance_to_solution",
    "inexact",
    "inexact_total",
    "known_lipschitz",
    "lemma2",
    "lemma2_realised",
    "lemma2_worst_case",
    "mean_square_error",
    "minibatch_tail",
    "realised_constants",
    "residual_bounds",
    "sample_constants",
    "sample_derivatives",
    "theorem1",
    "theorem2",
    "worst_case",
]


def __getattr__(name: str) -> Any:
    if name in ("Certificate", "certify"):
        return getattr(importlib.import_module("hgp_ref.certificates"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
