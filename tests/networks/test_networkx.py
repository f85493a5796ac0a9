"""Schedule accepts networkx graphs: the order of nodes, the direction of edges, and optional weights."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref.networks import Schedule

nx = pytest.importorskip("networkx", reason="networkx is optional")


def test_directed_edges_go_one_way():
    net = Schedule(nx.DiGraph([(0, 1), (1, 2), (0, 2)]))
    expected = Schedule([([0, 1, 0], [1, 2, 2])])
    np.testing.assert_array_equal(net.mixing_matrix(1), expected.mixing_matrix(1))
    assert (net.nodes, net.period, repr(net)) == (None, 1, "Schedule(graphs=[([0, 0, 1], [1, 2, 2])], n=3)")


def test_undirected_edges_go_both_ways():
    graph = nx.path_graph(3)
    graph.add_edge(1, 1)
    expected = Schedule([([0, 1, 1, 2], [1, 0, 2, 1])])
    np.testing.assert_array_equal(Schedule(graph).mixing_matrix(1), expected.mixing_matrix(1))


def test_isolated_nodes_count():
    graph = nx.DiGraph([(0, 1)])
    graph.add_node(2)
    assert Schedule(graph).n == Schedule([graph, ([0], [1])]).n == 3
    assert Schedule(graph, n=7).n == Schedule([graph, np.eye(7)]).n == Schedule([graph, ([6], [0])]).n == 7


def test_numbers_are_clients_in_any_order():
    net = Schedule(nx.DiGraph([(2, 0), (0, 1)]))
    assert net.nodes is None and net.out_neighbours(1, 2).tolist() == [0, 2]


def test_other_nodes_are_numbered_in_their_order():
    first, second = nx.DiGraph([("b", "a")]), nx.DiGraph([("a", "c"), ("c", "b")])
    net = Schedule([first, second])
    assert net.nodes == ("b", "a", "c")
    expected = Schedule([([0], [1]), ([1, 2], [2, 0])], n=3)
    np.testing.assert_array_equal(net.mixing_matrices(1, 2), expected.mixing_matrices(1, 2))
    one_based = Schedule(nx.DiGraph([(1, 2), (2, 3)]))
    assert (one_based.n, one_based.nodes) == (3, (1, 2, 3))
    with pytest.raises(ValueError, match="n must be at least 3, the number of nodes of the networkx graphs, got 2"):
        Schedule([first, second], n=2)


def test_weights_only_if_asked():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 0, 0.75), (0, 1, 0.25), (1, 1, 1.0)])
    np.testing.assert_array_equal(Schedule(graph).mixing_matrix(1), [[0.5, 0], [0.5, 1]])
    np.testing.assert_array_equal(Schedule(graph, weight="weight").mixing_matrix(1), [[0.75, 0], [0.25, 1]])
    with pytest.raises(TypeError, match=r"graphs\[0\], edge 0 -> 0: share must be .*, got None"):
        Schedule(graph, weight="share")
    graph.add_edge(1, 0, weight=0.5)
    with pytest.raises(ValueError, match="column 1 sums to 1.5"):
        Schedule(graph, weight="weight")


def test_weights_of_undirected_edges_go_both_ways():
    graph = nx.Graph()
    graph.add_weighted_edges_from([("x", "x", 0.75), ("x", "y", 0.25), ("y", "y", 0.75)])
    net = Schedule([graph, graph], weight="weight")
    np.testing.assert_array_equal(net.mixing_matrix(2), [[0.75, 0.25], [0.25, 0.75]])


@pytest.mark.parametrize("weight", ["weight", 3, True])
def test_a_weight_without_a_graph(weight):
    with pytest.raises(ValueError, match=f"weight must be None or the name of an edge attribute .*, got {weight!r}"):
        Schedule([([0], [1])], weight=weight)


def test_repeated_and_no_edges():
    with pytest.raises(ValueError, match="must not repeat an edge"):
        Schedule(nx.MultiDiGraph([(0, 1), (0, 1)]))
    with pytest.raises(ValueError, match="n must be an integer .*, got 0"):
        Schedule(nx.DiGraph())
