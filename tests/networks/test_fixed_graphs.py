"""Schedules, fixed graphs and static weights."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from hgp_ref import networks, philox
from hgp_ref.networks import OnePeerExponential, Schedule, StaticUndirected
from hgp_ref.networks import fixed as static_undirected
from hgp_ref.networks.fixed import fastest_mixing_weights

from . import oracle

EPS = np.finfo(np.float64).eps
HALF = np.array([[0.5, 0.25], [0.5, 0.75]])


def gap(W):
    """|| W - 11^T / n ||_2 of a symmetric W."""
    return np.abs(np.linalg.eigvalsh(W - 1 / len(W))).max()


def test_schedule_repeats():
    net = Schedule([HALF, np.eye(2), HALF.T[::-1, ::-1] * 0 + 0.5])
    np.testing.assert_array_equal(net.mixing_matrix(1), HALF)
    np.testing.assert_array_equal(net.mixing_matrix(5), np.eye(2))
    np.testing.assert_array_equal(net.mixing_matrix(3 * 10**9), np.full((2, 2), 0.5))
    assert (net.period, net.n) == (3, 2)


def test_schedule_of_edges_adds_self_loops():
    net = Schedule([([0, 0, 1], [1, 2, 1]), ([], [])])
    third = 1 / 3
    np.testing.assert_array_equal(net.mixing_matrix(1), [[third, 0, 0], [third, 1, 0], [third, 0, 1]])
    np.testing.assert_array_equal(net.mixing_matrix(2), np.eye(3))
    assert Schedule([([0], [1])], n=4).n == 4


def test_schedule_takes_a_mixture_and_a_stack():
    net = Schedule([([0], [1]), HALF])
    np.testing.assert_array_equal(net.mixing_matrices(1, 2), [[[0.5, 0], [0.5, 1]], HALF])
    np.testing.assert_array_equal(Schedule(np.stack([HALF, np.eye(2)])).mixing_matrices(1, 2), [HALF, np.eye(2)])


def test_schedule_keeps_its_own_copy():
    given = HALF.copy()
    net = Schedule([given])
    given[:] = 0
    for part in net.csr(1):
        part[:] = 0
    np.testing.assert_array_equal(net.mixing_matrix(1), HALF)


def test_large_schedule_of_edges_has_a_short_repr():
    senders = np.arange(10**5)
    net = Schedule([(senders, (senders + 1) % 10**5)])
    assert repr(net) == "<Schedule of 1 graphs on 100000 clients>"
    assert net.csr(1)[1].size == 2 * 10**5


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "at least one"),
        ([np.ones((2, 3))], "shape"),
        ([np.eye(2), np.eye(3)], r"graphs\[1\] must be a matrix of shape \(2, 2\)"),
        ([[[0.5, np.nan], [0.5, 1]]], "finite"),
        ([[[1.5, 0], [-0.5, 1]]], r"non-negative, got -0\.5"),
        ([[[0.5, 0], [0.25, 1]]], r"column-stochastic: column 0 sums to 0\.75"),
        ([HALF.T], "column-stochastic"),
        ([[[0, 1], [1, 0]]], "positive diagonal"),
        ([([0, 0], [1, 1])], "repeat"),
        ([([0, 1], [1])], "equal length"),
        ([([0.5], [1.0])], "integer"),
        ([([0], [-1])], "must be an integer from 0"),
    ],
)
def test_bad_schedules(graphs, message):
    with pytest.raises(ValueError, match=message):
        Schedule(graphs)


@pytest.mark.parametrize("graphs", [HALF, 3, "ab", None])
def test_schedule_of_wrong_type(graphs):
    with pytest.raises(TypeError, match="graphs must be a list"):
        Schedule(graphs)


def test_schedule_refuses_complex_matrices_and_clients_beyond_n():
    with pytest.raises(TypeError, match="real"):
        Schedule([np.eye(2) + 0j])
    with pytest.raises(ValueError, match="must be an integer from 0 to 2, got 3"):
        Schedule([([0], [3])], n=3)


def test_schedule_takes_single_precision_to_its_rounding():
    W = np.random.default_rng(0).random((50, 50), dtype=np.float32)
    W /= W.sum(axis=0)
    assert Schedule([W]).n == 50
    with pytest.raises(ValueError, match="column-stochastic"):
        Schedule([W.astype(np.float64)])  # the same numbers, no longer excused by their precision


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_one_peer_averages_powers_of_two_exactly(n):
    net = OnePeerExponential(n)
    product = np.eye(n)
    for W in net.mixing_matrices(1, net.period):
        product = W @ product
    np.testing.assert_array_equal(product, np.full((n, n), 1 / n))


def test_one_peer_sends_one_hop():
    net = OnePeerExponential(5)
    assert [net.hop(s) for s in range(1, 7)] == [1, 2, 4, 1, 2, 4]
    assert net.out_neighbours(3, 2).tolist() == [1, 2]


def test_fixed_graphs():
    np.testing.assert_array_equal(networks.FullyConnected(4).mixing_matrix(7), np.full((4, 4), 0.25))
    np.testing.assert_array_equal(networks.SelfLoops(4).mixing_matrix(7), np.eye(4))


@pytest.mark.parametrize("seed", range(5))
def test_static_graph_is_the_first_connected_one(seed):
    n, p = 12, 0.18
    net = StaticUndirected(n, p, seed)
    assert connected_components(net.graph, directed=False)[0] == 1
    np.testing.assert_array_equal(net.graph, net.graph.T)
    np.testing.assert_array_equal(net.graph, StaticUndirected(n, p, seed).graph)


def test_static_graph_has_rate_p():
    n, p = 400, 0.3
    edges = np.triu(StaticUndirected(n, p, seed=2).graph, 1).sum()
    pairs = n * (n - 1) / 2
    assert abs(edges - pairs * p) <= 5 * np.sqrt(pairs * p * (1 - p))


@pytest.mark.parametrize("seed", range(3))
def test_static_rates_are_exact(seed, monkeypatch):
    """Of two clients, the pair's word w makes an edge at rate (w + 1) / 2^32 and not at w / 2^32."""
    w = oracle.word(seed, philox.STATIC_EDGES, 1, 0, 1)
    monkeypatch.setattr(static_undirected, "ATTEMPTS", 1)
    assert StaticUndirected(2, (w + 1) / 2**32, seed).graph.all()
    with pytest.raises(ValueError, match="no connected graph on n = 2 clients in 1 attempts"):
        StaticUndirected(2, w / 2**32, seed)
    assert StaticUndirected(9, 1.0, seed).graph.all()


def test_metropolis_weights():
    path = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
    third = 1 / 3
    expected = [[2 / 3, third, 0], [third, third, third], [0, third, 2 / 3]]
    np.testing.assert_allclose(static_undirected.metropolis_weights(path), expected, atol=2 * EPS)


def test_static_graph_that_cannot_be_connected():
    with pytest.raises(ValueError, match="p must be positive"):
        StaticUndirected(3, 0.0)
    with pytest.raises(ValueError, match=r"no connected graph on n = 40 clients in 1000 attempts with p = 0\.001"):
        StaticUndirected(40, 0.001)
    assert StaticUndirected(1, 0.0).mixing_matrix(1) == 1


def test_bad_static_arguments():
    with pytest.raises(ValueError, match="weights must be one of 'metropolis', 'fastest'"):
        StaticUndirected(3, weights="best")
    with pytest.raises(ValueError, match=r"p must be a number in \[0, 1\], got .*"):
        StaticUndirected(3, 1.5)


def test_missing_cvxpy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    for ask in (lambda: StaticUndirected(3, weights="fastest"), lambda: fastest_mixing_weights(np.eye(3, dtype=bool))):
        with pytest.raises(ImportError, match=r"weights=\"fastest\" needs cvxpy: pip install 'hgp_ref\[fastmixing\]'"):
            ask()


@pytest.mark.parametrize("n", [1, 2, 12])
def test_fastest_weights_are_feasible_and_faster(n):
    pytest.importorskip("cvxpy", reason="cvxpy is the extra fastmixing")
    net = StaticUndirected(n, 0.5, seed=1, weights="fastest")
    W = net.mixing_matrix(4)
    np.testing.assert_array_equal(W, W.T)
    assert W.min() >= 0 and np.all(W[~net.graph] == 0)
    assert np.abs(W.sum(axis=0) - 1).max() <= n * EPS
    assert gap(W) <= gap(StaticUndirected(n, 0.5, seed=1).mixing_matrix(1)) + 1e-7  # ten times the solver's accuracy
    senders, receivers = net.edges(1)
    assert set(zip(senders, receivers, strict=True)) == set(
        zip(*np.nonzero((W > 0) | np.eye(n, dtype=bool)), strict=True)
    )


@pytest.mark.parametrize(
    ("edges", "optimum"),
    [
        ([(0, 1), (1, 2)], 0.5),  # a path: w = 1/2 each
        ([(0, 1), (1, 2), (2, 3), (3, 0)], 1 / 3),  # a cycle of 4: w = 1/3, from 1 - 2w = |1 - 4w|
        ([(0, 1), (0, 2), (1, 2)], 0.0),  # complete: the mean in one step
    ],
)
def test_fastest_weights_of_known_graphs(edges, optimum):
    pytest.importorskip("cvxpy", reason="cvxpy is the extra fastmixing")
    n = 1 + max(max(e) for e in edges)
    graph = np.eye(n, dtype=bool)
    for i, j in edges:
        graph[i, j] = graph[j, i] = True
    assert abs(gap(fastest_mixing_weights(graph)) - optimum) <= 1e-6  # weights below 1e-6 are dropped
