"""Schedule and from_networkx read networkx graphs: order of nodes, direction of edges, weights, and errors."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.networks import Schedule, from_networkx


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


def test_edge_weights_are_used_on_request_only():
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


# from_networkx


def weighted(*edges, kind=None):
    graph = (kind or nx.DiGraph)()
    graph.add_weighted_edges_from(edges)
    return graph


def test_metropolis_weights_of_an_undirected_graph():
    graph = nx.Graph([("a", "b"), ("b", "c"), ("b", "d")])
    net = from_networkx(graph)
    quarter = [[0.75, 0.25, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0.25, 0.75, 0], [0, 0.25, 0, 0.75]]
    np.testing.assert_array_equal(net.mixing_matrix(1), quarter)
    assert (net.nodes, net.period) == (("a", "b", "c", "d"), 1)
    hgp.Gossip(net, 3)


@pytest.mark.parametrize("seed", range(5))
def test_metropolis_weights_are_those_of_static_undirected(seed):
    net = hgp.networks.StaticUndirected(9, 0.4, seed=seed)
    graph = nx.from_numpy_array(net.graph & ~np.eye(9, dtype=bool))
    np.testing.assert_allclose(from_networkx(graph).mixing_matrix(1), net.mixing_matrix(1), atol=1e-15)


@pytest.mark.parametrize("weights", ["metropolis", "uniform"])
def test_directed_edges_keep_their_direction(weights):
    graph = nx.DiGraph([(2, 0), (0, 1), (1, 2), (0, 2)])
    W = from_networkx(graph, weights).mixing_matrix(1)
    degree = dict(graph.out_degree())
    for i in range(3):
        for j in set(range(3)) - {i}:
            most = degree[j] if weights == "uniform" else max(degree[i], degree[j])
            assert W[i, j] == (1 / (1 + most) if graph.has_edge(j, i) else 0)
    np.testing.assert_allclose(W.sum(axis=0), 1, atol=1e-15)


def test_weights_of_an_attribute():
    net = from_networkx(weighted(("a", "b", 0.25), ("b", "a", 0.5)), "weight")
    np.testing.assert_array_equal(net.mixing_matrix(1), [[0.75, 0.5], [0.25, 0.5]])
    net = from_networkx(weighted(("a", "b", 0.25), kind=nx.Graph), "weight")
    np.testing.assert_array_equal(net.mixing_matrix(1), [[0.75, 0.25], [0.25, 0.75]])


def test_a_sequence_repeats_and_a_node_may_be_idle_in_some_graphs():
    first, second = nx.DiGraph([("b", "a")]), nx.DiGraph([("a", "c"), ("c", "b")])
    first.add_node("c"), second.add_nodes_from("abc")
    net = from_networkx(iter([first, second]), "uniform")
    assert net.nodes == ("b", "a", "c") and net.period == 2
    expected = Schedule([([0], [1]), ([1, 2], [2, 0])], n=3)
    np.testing.assert_array_equal(net.mixing_matrices(1, 4), expected.mixing_matrices(1, 4))


def test_nodes_that_are_numbers_are_clients_in_any_order():
    net = from_networkx(nx.DiGraph([(2, 0), (0, 1), (1, 2)]))
    assert net.nodes == (0, 1, 2) and net.out_neighbours(1, 2).tolist() == [0, 2]
    assert from_networkx(nx.empty_graph(1)).n == 1


def test_names_appear_in_warnings_and_errors():
    net = from_networkx(nx.DiGraph([("Ann", "Bob"), ("Bob", "Cem")]), "uniform")
    problem = hgp.problems.Quadratic.random(3, 2, 2, seed=0)
    point = np.zeros((3, 2)), np.zeros((3, 2))
    for view in (net, net.after(1), hgp.networks.Unreliable(net, loss=0.1)):
        assert view.nodes == ("Ann", "Bob", "Cem")
        with pytest.warns(RuntimeWarning, match="clients 'Ann', 'Bob' cannot be reached by .*client 'Cem' alone"):
            hgp.hypergradient(problem, *point, hgp.mixing.push_sum_for(view, 2), eta=0.1, iterations=2)
        with pytest.raises(ValueError, match=r"the first: \['Ann'\]"):
            hgp.mixing.connect(view).max_consensus(np.array([[0.0], [1.0], [1.0]]), point[0], max_rounds=9)


LOOP, SPARE, EXTRA = nx.path_graph(3), nx.path_graph(3), nx.path_graph(4)
LOOP.add_edge(1, 1)
SPARE.add_node("x")


@pytest.mark.parametrize(
    ("graphs", "weights", "error", "message"),
    [
        (SPARE, "metropolis", ValueError, "graphs: node 'x' must have an edge to another node, got none"),
        ([SPARE, SPARE], "uniform", ValueError, "graphs: node 'x' must have an edge"),
        (LOOP, "uniform", ValueError, "graphs must have no self-loops, got one at 1; a client keeps"),
        ([LOOP], "metropolis", ValueError, r"graphs\[0\] must have no self-loops"),
        (nx.MultiGraph([(0, 1)]), "uniform", TypeError, "graphs must not be a multigraph, got MultiGraph"),
        ([nx.path_graph(3), EXTRA], "uniform", ValueError, r"graphs\[1\] must have .* as graphs\[0\], but also has 3"),
        ([EXTRA, nx.path_graph(3)], "uniform", ValueError, r"graphs\[1\] must have the same .*, but lacks 3"),
        (weighted((0, 1, -0.5), (1, 0, 0.5)), "weight", ValueError, "of edge 0 -> 1 must be .* > 0, got -0.5"),
        (weighted((0, 1, "x")), "weight", TypeError, "graphs: 'weight' of edge 0 -> 1 must be a finite number > 0"),
        (weighted((0, 1, 0.5), (0, 2, 0.75), (2, 0, 0.1)), "weight", ValueError, "from 0 must sum to .*, got 1.25"),
        (nx.path_graph(3), "metropolys", ValueError, "got 'metropolys', which edge 0 -> 1 of graphs lacks"),
        (nx.path_graph(3), None, TypeError, "weights must be 'metropolis', .*, got None"),
        (nx.DiGraph(), "uniform", ValueError, "graphs: number of nodes must be an integer .*, got 0"),
        ([], "uniform", ValueError, "graphs must be a networkx Graph or DiGraph, or a sequence of them, got none"),
        ([np.eye(2)], "uniform", TypeError, r"graphs\[0\] must be a networkx Graph or DiGraph, got ndarray"),
        (3, "uniform", TypeError, "graphs must be a networkx Graph or DiGraph, or a sequence of them, got int"),
    ],
)  # fmt: skip
def test_from_networkx_refuses(graphs, weights, error, message):
    with pytest.raises(error, match=message):
        from_networkx(graphs, weights)


def test_errors_along_a_tree_name_the_nodes():
    graph = nx.DiGraph([("Oslo", "Rome"), ("Rome", "Oslo"), ("Bonn", "Oslo")])  # nobody sends to Bonn
    with pytest.raises(ValueError, match=r"a path to client 'Oslo' and back.* gives none to clients \['Bonn'\] within"):
        hgp.mixing.find_tree(hgp.networks.from_networkx(graph, weights="uniform"))
