"""Bilevel methods from the literature, on the same problems, channels and traffic counters.

All have the same form, and the same `RunOptions`:

    path = hgp.baselines.dsoba(problem, lam, net, outer_steps=100, lr=…, inner_lr=…, …, shared=False, x0=None, …)

Each implements the equations of its docstring with one mixing matrix W and constant step sizes, which are arguments.
The papers' schedules are not implemented, and published programs were not followed. Tests compare each method with a
loop over explicit matrices, and its hyper-gradient at a fixed point (`at_point`) with the derivative of its class
(`exact.classes`).
"""

from hgp_ref.baselines.driver import RunOptions
from hgp_ref.baselines.fixed_point import FixedPointEstimate, at_point
from hgp_ref.baselines.nested import dbo, fednest, gbdsbo, mdbo, vrdbo
from hgp_ref.baselines.single_loop import dsoba, fab, ma_dsbo, sparkle

__all__ = [
    "FixedPointEstimate",
    "RunOptions",
    "at_point",
    "dbo",
    "dsoba",
    "fab",
    "fednest",
    "gbdsbo",
    "ma_dsbo",
    "mdbo",
    "sparkle",
    "vrdbo",
]
