"""The outer loop: hyper-gradients at work on λ."""

from hgp_ref.bilevel.optimisation import optimise
from hgp_ref.bilevel.trajectory import OuterStep, Path
from hgp_ref.bilevel.updates import Adam, Box, GradientDescent, NonNegative, Simplex, Update

__all__ = [
    "Adam",
    "Box",
    "GradientDescent",
    "NonNegative",
    "OuterStep",
    "Path",
    "Simplex",
    "Update",
    "optimise",
]
