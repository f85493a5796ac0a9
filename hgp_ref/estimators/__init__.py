"""Hyper-Gradient Push and its relatives."""

from hgp_ref.estimators.estimate import Estimate
from hgp_ref.estimators.hypergradient import hypergradient

__all__ = ["Estimate", "hypergradient"]
