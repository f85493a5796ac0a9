"""Which networks a method can use, and the averaging of one round over them; others are refused in words."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from hgp_ref.averaging import Averaging, Gossip, PushSum, ServerAverage
from hgp_ref.averaging.base import check_network
from hgp_ref.channels.calls import balance_tolerance
from hgp_ref.networks import FullyConnected, Network

STATIC, DIRECTED, SERVER = "static undirected", "directed", "server"


def one_round(name: str, kind: str, net: Network) -> Averaging:
    """The averaging whose calls are one round of the method `name` over `net`."""
    check_network(net)
    if kind == DIRECTED:
        return PushSum(net, 1)
    if kind == SERVER:
        if not isinstance(net, FullyConnected):
            raise ValueError(
                f"net: {net!r} given, but {name} averages through a server that reaches everybody in every round; "
                f"needed FullyConnected({net.n}), which is counted as n messages to the server and n back"
            )
        return ServerAverage(net.n)
    missing = _no_static_undirected(net)
    if missing:
        raise ValueError(
            f"net: {net!r} given, but {name} needs one undirected graph with symmetric doubly stochastic weights, the "
            f"same in every round, such as StaticUndirected; {missing}. Over other networks there are bilevel.fab and "
            "bilevel.optimise"
        )
    return Gossip(net, 1)


def _no_static_undirected(net: Network) -> str:
    """What is missing, "" if nothing is."""
    if net.period != 1:
        return "its graphs change"
    indptr, senders, shares = net.csr(1)
    W = csr_array((shares, senders, indptr), shape=(net.n, net.n))
    if abs(W - W.T).max() > balance_tolerance(net.n, 1):
        return "its weights are not symmetric"
    off = float(np.abs(W.sum(axis=1) - 1).max())
    return "" if off <= balance_tolerance(net.n, 1) else f"a row of its weights misses 1 by {off:.2g}"
