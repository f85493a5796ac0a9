"""Right-hand sides of the theorems: as printed and as corrected.

Bounds are named by what they need; `bound_a`, `bound_b`, `bound_d`, `bound_e` and `bound_f` are the same functions by
the letters of NOTATION.md. Certificates of finished runs are built on them and live in `hgp_ref.certificates`;
`certify` and `Certificate` are still found here, where they used to be.
"""

from __future__ import annotations

import importlib
from typing import Any

from hgp_ref.bounds.chebyshev_averaged import chebyshev_push_sum
from hgp_ref.bounds.chebyshev_bound import chebyshev
from hgp_ref.bounds.constants import Constants, realised_constants
from hgp_ref.bounds.contraction import contracting_clients
from hgp_ref.bounds.convexity import convex_mean
from hgp_ref.bounds.inexact_solution import distance_to_solution, inexact, inexact_total
from hgp_ref.bounds.lemma_2 import lemma2, lemma2_realised, lemma2_worst_case
from hgp_ref.bounds.lipschitz import known_lipschitz
from hgp_ref.bounds.mean_square import MeanSquareError, mean_square_error
from hgp_ref.bounds.minibatches import minibatch_tail
from hgp_ref.bounds.nedic_olshevsky import WorstCase, worst_case
from hgp_ref.bounds.residual import ResidualBounds, residual_bounds
from hgp_ref.bounds.result import Bound, best
from hgp_ref.bounds.samples import SampleConstants, sample_constants, sample_derivatives
from hgp_ref.bounds.theorem_1 import corollary1, corollary1_repaired, corollary2, theorem1
from hgp_ref.bounds.theorem_2 import theorem2
from hgp_ref.problems.constants import Lipschitz

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
