"""Bilevel methods from the literature, on the same problems, channels and traffic counters.

All have the same form, and the same `RunOptions`:

    path = hgp.baselines.dsoba(problem, lam, net, outer_steps=100, lr=…, inner_lr=…, …, shared=False, x0=None, …)

Each implements the equations of its docstring with one mixing matrix W and constant step sizes, which are arguments.
The papers' schedules are not implemented, and published programs were not followed. Tests compare each method with a
loop over explicit matrices, and its hyper-gradient at a fixed point (`at_point`) with the derivative of its class
(`hgp_ref.exact`).
"""

from hgp_ref.baselines.algorithms import dbo, dsoba, fab, fednest, gbdsbo, ma_dsbo, mdbo, sparkle, vrdbo
from hgp_ref.baselines.driver import RunOptions
from hgp_ref.baselines.estimators import FixedPointEstimate, at_point

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
