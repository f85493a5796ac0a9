"""Right-hand sides of the theorems: as printed and as corrected.

Bounds are named by what they assume; NOTATION.md lists their letters. Certificates of finished runs build on them and
are in `hgp_ref.certificates`. Arguments that many of them share:

    c              `Constants` of the problem and of the averaging calls, from `realised_constants`
    s              `SampleConstants` of single instances, from `sample_constants`
    iterations     M; by default all averaging calls in c
    consensus      ε̂; by default the realised max_m ε_m
    size, failure  instances in a batch, and the probability ϵ with which a bound may fail
    H, J, f_x      derivatives at a point, from `hgp.exact`: (n, d_x, d_x), (n, d_lam, d_x), (n, d_x)
    matrices       K_0 … K_{M−1}, (n, n) each
    nu             `Lipschitz` constants of the clients' derivatives

A bound whose conditions fail is not applicable and says why (`Bound.why`).

`realised_constants` and `contracting_clients` show the way from a problem and a network to a bound. The other examples
use two clients with H_i = J_i = 1/2, ∂_x f_i = 1 and exact averages; where there are instances, each client has one
with H = J = 0.4 and one with 0.6.
"""

from __future__ import annotations

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

__all__ = [
    "Bound",
    "Constants",
    "Lipschitz",
    "MeanSquareError",
    "ResidualBounds",
    "SampleConstants",
    "WorstCase",
    "best",
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
