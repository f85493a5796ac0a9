"""Right-hand sides of the theorems: as printed and as corrected.

Certificates of finished runs are built on them and live in `hgp_ref.certificates`; `certify` and `Certificate` are
still found here, where they used to be.
"""

from __future__ import annotations

import importlib
from typing import Any

from .bound_a import bound_a
from .bound_b import bound_b
from .bound_d import bound_d
from .bound_e import MeanSquareError, mean_square_error
from .chebyshev import chebyshev
from .constants import Constants, realised_constants
from .inexact import Lipschitz, distance_to_solution, inexact, inexact_total
from .lemma2 import lemma2, lemma2_realised, lemma2_worst_case
from .lipschitz import known_lipschitz
from .nedic_olshevsky import WorstCase, worst_case
from .residual import ResidualBounds, residual_bounds
from .result import Bound, best
from .samples import SampleConstants, sample_constants, sample_derivatives
from .theorem1 import corollary1, corollary1_repaired, corollary2, theorem1
from .theorem2 import theorem2

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
    "certify",
    "chebyshev",
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
