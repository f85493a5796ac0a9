"""Bilevel methods from the literature, on the same channels and traffic counters.

What is implemented are the equations in each docstring, and nothing else of a paper: steps are given, not scheduled.
The equations were derived again here, in the form that the papers' descriptions have in common with each other (one
mixing matrix W, one step a variable); published programs were not followed. What holds them is tested: each is the loop
over explicit matrices that tests/baselines writes out, and with x and λ frozen it tends to the derivative of its class
(`exact.classes`) and to no other.
"""

from hgp_ref.baselines.fixed_point import Frozen, at_point
from hgp_ref.baselines.nested import dbo, fednest, gbdsbo, mdbo, vrdbo
from hgp_ref.baselines.single_loop import dsoba, fab, ma_dsbo, sparkle

__all__ = ["Frozen", "at_point", "dbo", "dsoba", "fab", "fednest", "gbdsbo", "ma_dsbo", "mdbo", "sparkle", "vrdbo"]
