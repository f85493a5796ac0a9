"""Hyper-gradients: one door, one driver for every method."""

from hgp_ref.estimators.estimate import Estimate
from hgp_ref.estimators.estimation import hypergradient

__all__ = ["Estimate", "hypergradient"]
