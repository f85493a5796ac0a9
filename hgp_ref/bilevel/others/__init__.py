"""The bilevel methods of others: each of their variables moves by a rule, all of them over one channel.

What is implemented are the equations in each docstring, and nothing else of a paper: steps are given, not scheduled.
The equations were derived again here, in the form that the papers' descriptions have in common with each other (one
mixing matrix W, one step a variable); published programs were not followed. What holds them is tested: each is the loop
over explicit matrices that tests/others writes out, and with x and λ frozen it tends to the derivative of its class
(`exact.classes`) and to no other.
"""

from hgp_ref.bilevel.others.federated import fednest
from hgp_ref.bilevel.others.frozen import Frozen, at_point
from hgp_ref.bilevel.others.hessian_means import gbdsbo
from hgp_ref.bilevel.others.jacobian_tracking import dbo
from hgp_ref.bilevel.others.local_series import mdbo, vrdbo
from hgp_ref.bilevel.others.moving_average import ma_dsbo
from hgp_ref.bilevel.others.penalty import fab
from hgp_ref.bilevel.others.single_loop import d_soba, sparkle

__all__ = ["Frozen", "at_point", "d_soba", "dbo", "fab", "fednest", "gbdsbo", "ma_dsbo", "mdbo", "sparkle", "vrdbo"]
