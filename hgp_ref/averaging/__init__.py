"""Θ̂ as an operator: exact mean, Push-Sum, robust Push-Sum, doubly-stochastic gossip."""

from hgp_ref.averaging.base import Averaging
from hgp_ref.averaging.exact_average import ExactAverage
from hgp_ref.averaging.falling import falling_steps
from hgp_ref.averaging.gossip import Gossip
from hgp_ref.averaging.mean import Mean, open_mean
from hgp_ref.averaging.push_sum import PushSum
from hgp_ref.averaging.robust_push_sum import RobustPushSum, push_sum_over
from hgp_ref.averaging.server_average import ServerAverage
from hgp_ref.averaging.talks import Pushed, exchange
from hgp_ref.channels import Traffic

__all__ = [
    "Averaging",
    "ExactAverage",
    "Gossip",
    "Mean",
    "PushSum",
    "Pushed",
    "RobustPushSum",
    "ServerAverage",
    "Traffic",
    "exchange",
    "falling_steps",
    "open_mean",
    "push_sum_over",
]
