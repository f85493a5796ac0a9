"""Networks: which clients send to which at step s, a pure function of (seed, step)."""

from hgp_ref.networks.base import Network
from hgp_ref.networks.connectivity import (
    Disconnected,
    Periodic,
    diagnose_connectivity,
    smallest_window,
    strongly_connected,
    unreachable,
)
from hgp_ref.networks.fixed import FullyConnected, OnePeerExponential, Schedule, SelfLoops, StaticUndirected
from hgp_ref.networks.random import RandomDirected, RandomOut, RandomUndirected, SparseErdosRenyi
from hgp_ref.networks.unreliable import Unreliable

__all__ = [
    "Disconnected",
    "FullyConnected",
    "Network",
    "OnePeerExponential",
    "Periodic",
    "RandomDirected",
    "RandomOut",
    "RandomUndirected",
    "Schedule",
    "SelfLoops",
    "SparseErdosRenyi",
    "StaticUndirected",
    "Unreliable",
    "diagnose_connectivity",
    "smallest_window",
    "strongly_connected",
    "unreachable",
]
