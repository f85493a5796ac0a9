"""Thinned: each client serves at most k of its out-neighbours, those it served longest ago."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref import networks
from hgp_ref.networks.thinned import BLOCK
from hgp_ref.philox import MAX_STEP

NETS = {
    "directed": lambda: networks.RandomDirected(7, 0.2, 0.6, seed=3),
    "ring": lambda: networks.Schedule([(np.arange(6), (np.arange(6) + 1) % 6)], n=6),
    "undirected": lambda: networks.StaticUndirected(9, 0.5, seed=1),
}


def served_longest_ago(net, k, steps):
    """The lists of receivers of steps 1, 2, …, by a dictionary of the last time that j served i in this block."""
    lists = []
    for s in range(1, steps + 1):
        if (s - 1) % BLOCK == 0:
            last = {}
        graph = []
        for j in range(net.n):
            others = [i for i in net.out_neighbours(s, j).tolist() if i != j]
            others.sort(key=lambda i, j=j: (last.get((j, i), -1), (i - j) % net.n))
            chosen = sorted(others[:k])
            last |= {(j, i): s * net.n + chosen.index(i) for i in chosen}
            graph.append(sorted([j, *chosen]))
        lists.append(graph)
    return lists


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("kind", NETS)
def test_clients_serve_those_served_longest_ago(kind, k):
    net = NETS[kind]()
    thinned = networks.Thinned(net, k)
    expected = served_longest_ago(net, k, 2 * BLOCK + 5)
    for s in [2 * BLOCK + 5, 1, BLOCK, BLOCK + 1, *range(1, 2 * BLOCK + 6)]:  # in any order
        indptr, receivers = thinned.out_adjacency(s)
        assert [receivers[indptr[j] : indptr[j + 1]].tolist() for j in range(net.n)] == expected[s - 1]


@pytest.mark.parametrize("kind", NETS)
def test_weights_are_equal_shares(kind):
    thinned = networks.Thinned(NETS[kind](), 2)
    assert thinned.equal_shares
    for s in (1, 2, BLOCK + 3):
        W = thinned.mixing_matrix(s)
        assert np.all(np.diag(W) > 0)
        degree = np.count_nonzero(W, axis=0)
        assert degree.max() <= 3
        np.testing.assert_array_equal(W, (W > 0) / degree)


def test_static_graphs_become_round_robin():
    """Every neighbour of a static graph is served once before any is served twice, and the network has a period."""
    net = networks.FullyConnected(6)
    thinned = networks.Thinned(net)
    for first in (1, 6, 11):
        W = thinned.mixing_matrices(first, 5) > 0
        np.testing.assert_array_equal(W.sum(axis=0), np.ones((6, 6)) + 4 * np.eye(6))
    assert thinned.period == BLOCK
    np.testing.assert_array_equal(thinned.mixing_matrix(3), thinned.mixing_matrix(3 + BLOCK))
    assert thinned.expected_edges == 12.0


def test_enough_receivers_change_nothing():
    net = networks.RandomDirected(5, 0.2, 0.6, seed=3)
    np.testing.assert_array_equal(networks.Thinned(net, 4).mixing_matrices(1, 40), net.mixing_matrices(1, 40))


def test_edges_of_a_period_and_the_last_steps():
    """The period of the network and of forgetting is 96 here; steps end within a block."""
    net = networks.Schedule([([0, 1], [1, 2]), ([0, 0, 2], [1, 2, 0]), ([2], [1])], n=3)
    thinned = networks.Thinned(net)
    assert thinned.period == 3 * BLOCK
    edges = [thinned.out_adjacency(s)[1].size for s in range(1, 3 * BLOCK + 1)]
    assert thinned.expected_edges == np.mean(edges) != np.mean(edges[:BLOCK])
    last = networks.Thinned(networks.RandomDirected(4, seed=1))
    indptr, receivers = last.out_adjacency(MAX_STEP)
    assert np.diff(indptr).max() <= 2 and set(receivers.tolist()) <= set(range(4))


def test_views_follow_the_steps_of_the_network():
    net = networks.Thinned(networks.RandomDirected(5, seed=3))
    np.testing.assert_array_equal(net.after(37).mixing_matrices(1, 40), net.mixing_matrices(38, 40))


def test_unreliable_links_are_refused():
    lossy = networks.Unreliable(networks.FullyConnected(3))
    with pytest.raises(ValueError, match=r"net must be reliable, got Unreliable.*use Unreliable\(Thinned"):
        networks.Thinned(lossy)
    assert networks.Unreliable(networks.Thinned(networks.FullyConnected(3))).n == 3
