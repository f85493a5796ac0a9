"""Iterations towards w* = (Σ H_i)⁻¹ Σ ∂_x f_i with averages over clients, and the driver that runs them."""

from hgp_ref.methods.base import Method, Start
from hgp_ref.methods.descent import Descent, HessianGossip
from hgp_ref.methods.driver import Estimate, hypergradient
from hgp_ref.methods.series import Chebyshev, LocalNeumann, Neumann, RandomTerm
from hgp_ref.methods.tracking import Refined, Tracking

__all__ = [
    "Chebyshev",
    "Descent",
    "Estimate",
    "HessianGossip",
    "LocalNeumann",
    "Method",
    "Neumann",
    "RandomTerm",
    "Refined",
    "Start",
    "Tracking",
    "hypergradient",
]
