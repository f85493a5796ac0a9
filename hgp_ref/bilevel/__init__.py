"""The outer loop: hyper-gradients at work on λ."""

from hgp_ref.bilevel.optimisation import optimise
from hgp_ref.bilevel.path import OuterStep, Path
from hgp_ref.bilevel.projections import Box, NonNegative, Simplex
from hgp_ref.bilevel.updates import Adam, GradientDescent, Update

__all__ = ["Adam", "Box", "GradientDescent", "NonNegative", "OuterStep", "Path", "Simplex", "Update", "optimise"]
