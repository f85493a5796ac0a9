"""Traffic.seconds against a simulation of single messages in time."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import networks

LATENCY, BANDWIDTH, SIZE, ROUNDS = 0.03, 1e4, 5, 7


def simulated(net: networks.Network, shared: bool) -> float:
    """The time at which the last of ROUNDS rounds ends: events are (time, message) in a queue."""
    clock, nbytes = 0.0, 8 * (SIZE + 1)  # with the weight
    for s in range(1, ROUNDS + 1):
        free: dict[int, float] = {}  # when each uplink has sent what it has
        queue = [(clock, int(j)) for j, i in zip(*net.edges(s), strict=True) if i != j]
        heapq.heapify(queue)
        end = clock + LATENCY
        while queue:
            ready, sender = heapq.heappop(queue)
            uplink = 0 if shared else sender
            free[uplink] = max(ready, free.get(uplink, clock)) + nbytes / BANDWIDTH
            end = max(end, free[uplink] + LATENCY)
        clock = end
    return clock


def traffic(net):
    avg = hgp.PushSum(net, ROUNDS)
    avg.apply(np.zeros((net.n, SIZE)))
    return avg.traffic


REGULAR = [networks.Ring(6), networks.Torus(3, 4), networks.FullyConnected(4), networks.OnePeerExponential(8)]
OTHERS = [networks.Star(6), networks.RandomDirected(6, seed=1), networks.RandomUndirected(6, seed=1)]


@pytest.mark.parametrize("net", REGULAR + OTHERS, ids=repr)
def test_a_shared_medium(net):
    assert traffic(net).seconds(LATENCY, BANDWIDTH) == pytest.approx(simulated(net, True), rel=1e-12)


@pytest.mark.parametrize("net", REGULAR, ids=repr)
def test_an_uplink_for_each_client_of_a_regular_graph(net):
    assert traffic(net).seconds(LATENCY, BANDWIDTH, net.n) == pytest.approx(simulated(net, False), rel=1e-12)


@pytest.mark.parametrize("net", OTHERS, ids=repr)
def test_an_uplink_for_each_client_of_other_graphs_lies_between_the_bounds(net):
    sent = traffic(net)
    assert sent.seconds(LATENCY, BANDWIDTH, net.n) < simulated(net, False) < sent.seconds(LATENCY, BANDWIDTH)


def test_runs_have_their_own_times():
    sent = hgp.mixing.Traffic.side_by_side([hgp.mixing.Traffic.of(10, 3, 8, 2), hgp.mixing.Traffic.of(20, 3, 4, 5)])
    np.testing.assert_array_equal(sent.seconds(0.5, 8.0, 2), [2 * 0.5 + 240 / 16, 5 * 0.5 + 240 / 16])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-1.0, 1.0), "latency must be a finite number >= 0, got -1.0"),
        ((0.0, 0.0), "bandwidth must be a finite number > 0, got 0.0"),
        ((0.0, 1.0, 0), "uplinks must be an integer >= 1, got 0"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(ValueError, match=message):
        hgp.mixing.Traffic().seconds(*given)
