"""How (Σ H_i)⁻¹ Σ ∂_x f_i is approached with averages: one file per method."""

from hgp_ref.methods.base import Method
from hgp_ref.methods.chebyshev import Chebyshev
from hgp_ref.methods.descent import Descent
from hgp_ref.methods.hessian_gossip import HessianGossip
from hgp_ref.methods.local_neumann import LocalNeumann
from hgp_ref.methods.neumann import Neumann
from hgp_ref.methods.random_term import RandomTerm
from hgp_ref.methods.refined import Refined
from hgp_ref.methods.tracking import Tracking

__all__ = [
    "Chebyshev",
    "Descent",
    "HessianGossip",
    "LocalNeumann",
    "Method",
    "Neumann",
    "RandomTerm",
    "Refined",
    "Tracking",
]
