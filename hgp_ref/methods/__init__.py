"""Iterations towards w* = (Σ H_i)⁻¹ Σ ∂_x f_i with averages over clients, and the driver that runs them."""

from hgp_ref.methods.base import Method, Start
from hgp_ref.methods.curvature import PreconditionedTracking
from hgp_ref.methods.driver import Estimate, hypergradient
from hgp_ref.methods.exact_means import ConjugateGradient, DirectSolve
from hgp_ref.methods.series import Chebyshev, Neumann
from hgp_ref.methods.tracking import Refined, Tracking

__all__ = [
    "Chebyshev",
    "ConjugateGradient",
    "DirectSolve",
    "Estimate",
    "Method",
    "Neumann",
    "PreconditionedTracking",
    "Refined",
    "Start",
    "Tracking",
    "hypergradient",
]
