"""The outer loop: hyper-gradients optimise λ."""

from hgp_ref.bilevel.optimisation import optimise
from hgp_ref.bilevel.settings import Estimator, Monitor, Trainer
from hgp_ref.bilevel.trajectory import OuterStep, Path
from hgp_ref.bilevel.updates import Adam, Box, CertifiedDescent, GradientDescent, NonNegative, Simplex, Update

__all__ = [
    "Adam",
    "Box",
    "CertifiedDescent",
    "Estimator",
    "GradientDescent",
    "Monitor",
    "NonNegative",
    "OuterStep",
    "Path",
    "Simplex",
    "Trainer",
    "Update",
    "optimise",
]
