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
from hgp_ref.networks.convert import from_networkx
from hgp_ref.networks.fixed import FullyConnected, OnePeerExponential, Schedule, SelfLoops, StaticUndirected
from hgp_ref.networks.random import RandomDirected, RandomOut, RandomUndirected, SparseErdosRenyi
from hgp_ref.networks.standard import Exponential, Hypercube, Ring, Star, Torus
from hgp_ref.networks.thinned import Thinned
from hgp_ref.networks.unreliable import Unreliable

__all__ = [
    "Disconnected",
    "Exponential",
    "FullyConnected",
    "Hypercube",
    "Network",
    "OnePeerExponential",
    "Periodic",
    "RandomDirected",
    "RandomOut",
    "RandomUndirected",
    "Ring",
    "Schedule",
    "SelfLoops",
    "SparseErdosRenyi",
    "Star",
    "StaticUndirected",
    "Thinned",
    "Torus",
    "Unreliable",
    "diagnose_connectivity",
    "from_networkx",
    "smallest_window",
    "strongly_connected",
    "unreachable",
]
