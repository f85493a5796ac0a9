"""Communication between clients, and averaging over it.

channel      what a channel is, what it counts, max-consensus
simulated    all clients in one process
unreliable   links that lose and delay messages
averaging    Push-Sum and other estimates of a mean
consensus    several averages in one message
trees        exact means along a spanning tree
"""

from hgp_ref.mixing.averaging import (
    Averaging,
    ExactAverage,
    Gossip,
    Mixer,
    PushSum,
    RobustPushSum,
    ServerAverage,
    falling_steps,
    push_sum_for,
    start_averaging,
)
from hgp_ref.mixing.channel import AllToAll, Channel, ParameterServer, Traffic, WeightRule, connect
from hgp_ref.mixing.consensus import SumPreserving, run_round
from hgp_ref.mixing.simulated import Runs, Simulated
from hgp_ref.mixing.trees import SpanningTree, TreeAverage, TreeChannel, find_tree
from hgp_ref.mixing.unreliable import Lossy

__all__ = [
    "AllToAll",
    "Averaging",
    "Channel",
    "ExactAverage",
    "Gossip",
    "Lossy",
    "Mixer",
    "ParameterServer",
    "PushSum",
    "RobustPushSum",
    "Runs",
    "ServerAverage",
    "Simulated",
    "SpanningTree",
    "SumPreserving",
    "Traffic",
    "TreeAverage",
    "TreeChannel",
    "WeightRule",
    "connect",
    "falling_steps",
    "find_tree",
    "push_sum_for",
    "run_round",
    "start_averaging",
]
