"""The outer loop: hyper-gradients at work on λ."""

from hgp_ref.bilevel.optimisation import optimise
from hgp_ref.bilevel.others import (
    Frozen,
    at_point,
    d_soba,
    dbo,
    fab,
    fednest,
    gbdsbo,
    ma_dsbo,
    mdbo,
    sparkle,
    vrdbo,
)
from hgp_ref.bilevel.path import OuterStep, Path
from hgp_ref.bilevel.projections import Box, NonNegative, Simplex
from hgp_ref.bilevel.updates import Adam, GradientDescent, Update

__all__ = [
    "Adam",
    "Box",
    "Frozen",
    "GradientDescent",
    "NonNegative",
    "OuterStep",
    "Path",
    "Simplex",
    "Update",
    "at_point",
    "d_soba",
    "dbo",
    "fab",
    "fednest",
    "gbdsbo",
    "ma_dsbo",
    "mdbo",
    "optimise",
    "sparkle",
    "vrdbo",
]
