"""How numbers travel between clients, and what that costs."""

from hgp_ref.channels.base import BALANCED, CARRIED, FRESH, Channel, connect
from hgp_ref.channels.everyone import Everyone
from hgp_ref.channels.lossy import Lossy
from hgp_ref.channels.runs import Runs
from hgp_ref.channels.server import Server
from hgp_ref.channels.simulated import Simulated
from hgp_ref.channels.traffic import Traffic

__all__ = [
    "BALANCED",
    "CARRIED",
    "FRESH",
    "Channel",
    "Everyone",
    "Lossy",
    "Runs",
    "Server",
    "Simulated",
    "Traffic",
    "connect",
]
