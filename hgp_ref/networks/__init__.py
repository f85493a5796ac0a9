"""Networks: who hears whom at step s — a pure function of (seed, step)."""

from hgp_ref.networks.base import Network
from hgp_ref.networks.bernoulli import RandomDirected, RandomUndirected
from hgp_ref.networks.connectivity import Unreachable, obstacle, smallest_window, strongly_connected, unreachable
from hgp_ref.networks.fixed import FullyConnected, OnePeerExponential, SelfLoops
from hgp_ref.networks.periodicity import Periodic
from hgp_ref.networks.random_out import RandomOut
from hgp_ref.networks.schedule import Schedule
from hgp_ref.networks.sparse_erdos_renyi import SparseErdosRenyi
from hgp_ref.networks.static_undirected import StaticUndirected
from hgp_ref.networks.unreliable import Unreliable

__all__ = [
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
    "Unreachable",
    "Unreliable",
    "obstacle",
    "smallest_window",
    "strongly_connected",
    "unreachable",
]
