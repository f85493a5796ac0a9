"""The bilevel methods of others: each of their variables moves by a rule, all of them over one channel."""

from hgp_ref.bilevel.others.federated import fednest
from hgp_ref.bilevel.others.frozen import Frozen, at_point
from hgp_ref.bilevel.others.hessian_means import gbdsbo
from hgp_ref.bilevel.others.jacobian_tracking import dbo
from hgp_ref.bilevel.others.local_series import mdbo, vrdbo
from hgp_ref.bilevel.others.moving_average import ma_dsbo
from hgp_ref.bilevel.others.penalty import fab
from hgp_ref.bilevel.others.single_loop import d_soba, sparkle

__all__ = ["Frozen", "at_point", "d_soba", "dbo", "fab", "fednest", "gbdsbo", "ma_dsbo", "mdbo", "sparkle", "vrdbo"]
