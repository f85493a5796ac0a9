"""Θ̂ as an operator: exact mean, Push-Sum, doubly-stochastic gossip; what they send."""

from hgp_ref.averaging.base import Averaging
from hgp_ref.averaging.exact_average import ExactAverage
from hgp_ref.averaging.gossip import Gossip
from hgp_ref.averaging.push_sum import PushSum
from hgp_ref.averaging.runs import Runs
from hgp_ref.averaging.traffic import Traffic

__all__ = ["Averaging", "ExactAverage", "Gossip", "PushSum", "Runs", "Traffic"]
