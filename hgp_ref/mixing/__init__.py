"""Communication between clients, and averaging over it.

channel      what a channel is, what it counts, max-consensus
simulated    all clients in one process
unreliable   links that lose and delay messages
averaging    Push-Sum and other estimates of a mean
consensus    several averages in one message
"""

from hgp_ref.mixing.averaging import (
    Averaging,
    ExactAverage,
    Gossip,
    Mean,
    PushSum,
    RobustPushSum,
    ServerAverage,
    falling_steps,
    open_mean,
    push_sum_over,
)
from hgp_ref.mixing.channel import BALANCED, CARRIED, FRESH, Channel, Everyone, Server, Traffic, connect
from hgp_ref.mixing.consensus import Pushed, exchange
from hgp_ref.mixing.simulated import Runs, Simulated
from hgp_ref.mixing.unreliable import Lossy

__all__ = [
    "BALANCED",
    "CARRIED",
    "FRESH",
    "Averaging",
    "Channel",
    "Everyone",
    "ExactAverage",
    "Gossip",
    "Lossy",
    "Mean",
    "PushSum",
    "Pushed",
    "RobustPushSum",
    "Runs",
    "Server",
    "ServerAverage",
    "Simulated",
    "Traffic",
    "connect",
    "exchange",
    "falling_steps",
    "open_mean",
    "push_sum_over",
]
