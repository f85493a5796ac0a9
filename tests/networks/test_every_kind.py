"""Properties of every network: all methods give the same matrix, columns sum to one, every client has a self-loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgp_ref import networks
from hgp_ref._kernels import graphs
from hgp_ref.philox import MAX_STEP

from .user_networks import OwnRing

EPS = np.finfo(np.float64).eps


def _random_schedule(n):
    rng = np.random.default_rng(n)
    matrices = rng.random((3, n, n)) * (rng.random((3, n, n)) < 0.5) + np.eye(n)
    return networks.Schedule(matrices / matrices.sum(axis=1, keepdims=True))


KINDS = {
    "RandomDirected": lambda n: networks.RandomDirected(n, seed=1),
    "RandomDirected, rates 0 to 1": lambda n: networks.RandomDirected(n, 0.0, 1.0, seed=1),
    "RandomUndirected": lambda n: networks.RandomUndirected(n, 0.1, 0.6, seed=1),
    "FullyConnected": networks.FullyConnected,
    "StaticUndirected": lambda n: networks.StaticUndirected(n, 0.7, seed=1),
    "SelfLoops": networks.SelfLoops,
    "Schedule": _random_schedule,
    "Schedule of edges": lambda n: networks.Schedule([([0] * (n > 1), [n - 1] * (n > 1)), ([], [])], n=n),
    "OnePeerExponential": networks.OnePeerExponential,
    "Ring": networks.Ring,
    "Ring, directed": lambda n: networks.Ring(n, directed=True),
    "Star": networks.Star,
    "Torus of two rows": lambda n: networks.Torus(1 + (n % 2 == 0), n // 2 if n % 2 == 0 else n),
    "Exponential": networks.Exponential,
    "RandomOut": lambda n: networks.RandomOut(n, min(3, n - 1), seed=1),
    "RandomOut to all": lambda n: networks.RandomOut(n, n - 1, seed=1),
    "SparseErdosRenyi": lambda n: networks.SparseErdosRenyi(n, (n - 1) / 3, seed=1),
    "Thinned": lambda n: networks.Thinned(networks.RandomDirected(n, seed=1), k=2),
    "Unreliable": lambda n: networks.Unreliable(networks.RandomDirected(n, seed=1), 0.2, 2, sleep=0.3, seed=1),
}
ALL = {**KINDS, "of one's own": OwnRing}
UNEQUAL = ("StaticUndirected", "Star", "Schedule", "Unreliable")
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@settings(max_examples=12)
@given(n=st.integers(1, 20), s=st.integers(1, 2**45))
def test_all_ways_of_asking_agree_exactly(kind, n, s):
    net = KINDS[kind](n)
    W = net.mixing_matrix(s)
    assert (W.shape, W.dtype, W.flags.c_contiguous) == ((n, n), np.float64, True)
    senders, receivers = net.edges(s)
    assert (senders.dtype, receivers.dtype) == (np.int64, np.int64)
    assert np.all(np.diff(senders * n + receivers) > 0)  # sorted by sender, then receiver, none twice
    support = np.zeros((n, n), dtype=bool)
    support[receivers, senders] = True
    np.testing.assert_array_equal(support, W > 0)
    indptr, indices, weights = net.csr(s)
    assert (indptr.dtype, indices.dtype, weights.dtype) == (np.int64, np.int32, np.float64)
    rows = np.repeat(np.arange(n), np.diff(indptr))
    assert np.all(np.diff(rows * n + indices) > 0)
    dense = np.zeros((n, n))
    dense[rows, indices] = weights
    np.testing.assert_array_equal(dense, W)
    for j in range(n):
        np.testing.assert_array_equal(net.out_neighbours(s, j), receivers[senders == j])


@kinds
@settings(max_examples=8)
@given(n=st.integers(1, 15), first=st.integers(1, 2**45), count=st.sampled_from([0, 1, 5, graphs.TILE + 3]))
def test_stretches_equal_single_steps(kind, n, first, count):
    net = KINDS[kind](n)
    stretch = net.mixing_matrices(first, count)
    assert (stretch.shape, stretch.dtype) == ((count, n, n), np.float64)
    singles = np.array([net.mixing_matrix(first + t) for t in range(count)]).reshape(count, n, n)
    np.testing.assert_array_equal(stretch, singles)
    senders, receivers = net.union(first, count) if count else (np.empty(0, int),) * 2
    union = np.zeros((n, n), dtype=bool)
    union[receivers, senders] = True
    np.testing.assert_array_equal(union, (singles > 0).any(axis=0))


@kinds
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 33])
def test_columns_sum_to_one_and_every_client_has_a_self_loop(kind, n):
    for W in KINDS[kind](n).mixing_matrices(1, 20):
        assert np.all(W >= 0) and np.all(np.diag(W) > 0)
        assert np.abs(W.sum(axis=0) - 1).max() <= n * EPS  # n roundings of at most eps/2 in the sum, n in the entries


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNEQUAL])
@pytest.mark.parametrize("n", [1, 2, 9, 33])
def test_senders_share_equally(kind, n):
    """P[i, j] is exactly the float 1 / outdegree of j on the edges, so that lists by sender alone give the matrix."""
    net = KINDS[kind](n)
    for s in (1, 2, 3):
        indptr, receivers = net.out_adjacency(s)
        assert (indptr.dtype, receivers.dtype) == (np.int64, np.int32)
        degree = np.diff(indptr)
        W = np.zeros((n, n))
        W[receivers, np.repeat(np.arange(n), degree)] = np.repeat(1.0 / degree, degree)
        np.testing.assert_array_equal(W, net.mixing_matrix(s))


@kinds
def test_a_single_client_receives_from_itself_only(kind):
    np.testing.assert_array_equal(KINDS[kind](1).mixing_matrices(1, 3), np.ones((3, 1, 1)))


@pytest.mark.parametrize("kind", ALL)
@settings(max_examples=5)
@given(
    n=st.integers(1, 6),
    s=st.integers(1, 100) | st.just(MAX_STEP),
    kind_of=st.sampled_from([np.int64, np.uint64, np.int32, np.uint8, np.array]),
)
def test_integers_of_numpy_are_integers(kind, n, s, kind_of):
    s = s if kind_of in (np.int64, np.uint64, np.array) else min(s, 100)
    net, step, one = ALL[kind](n), kind_of(s), kind_of(1)
    for ask in ("mixing_matrix", "csr", "out_adjacency", "edges"):
        for a, b in zip(getattr(net, ask)(step), getattr(net, ask)(s), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(net.mixing_matrices(step, one), net.mixing_matrices(s, 1))
    np.testing.assert_array_equal(net.out_neighbours(step, kind_of(n - 1)), net.out_neighbours(s, n - 1))
    np.testing.assert_array_equal(net.union(step, one), net.union(s, 1))
    np.testing.assert_array_equal(net.after(one).after(one).mixing_matrix(1), net.mixing_matrix(3))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("wrong", [True, np.True_, 1.0, np.float64(1), "1", None, np.array([1, 2]), 1 + 0j])
def test_other_things_are_not(kind, wrong):
    net = ALL[kind](3)
    for call in (
        *(
            lambda ask=ask: getattr(net, ask)(wrong)
            for ask in ("mixing_matrix", "csr", "out_adjacency", "edges", "after")
        ),
        lambda: net.mixing_matrices(wrong, 1),
        lambda: net.mixing_matrices(1, wrong),
        lambda: net.union(wrong, 1),
        lambda: net.union(1, wrong),
        lambda: net.out_neighbours(1, wrong),
        lambda: net.out_neighbours(wrong, 1),
    ):
        with pytest.raises(TypeError, match="(s|t|first|count|sender) must be an integer .*, got .*"):
            call()


@pytest.mark.parametrize("kind", ALL)
@settings(max_examples=6)
@given(n=st.integers(1, 7), first=st.integers(MAX_STEP - 40, MAX_STEP))
def test_the_last_steps_of_all(kind, n, first):
    """Up to step 2^56 - 1 and no further, with the period of the schedule kept."""
    net, count = ALL[kind](n), MAX_STEP - first + 1
    W = net.mixing_matrices(first, count)
    np.testing.assert_array_equal(W[-1], net.mixing_matrix(MAX_STEP))
    if net.period is not None:
        np.testing.assert_array_equal(W[-1], net.mixing_matrix((MAX_STEP - 1) % net.period + 1))
    for call in (net.mixing_matrices, net.union):
        with pytest.raises(ValueError, match=f"count must be an integer from 0 to {count}, got {count + 1}"):
            call(first, count + 1)


@pytest.mark.parametrize("kind", ALL)
def test_one_client_alone(kind):
    net = ALL[kind](1)
    assert (net.n, net.expected_edges) == (1, 1.0)
    assert [part.tolist() for part in net.csr(2)] == [[0, 1], [0], [1.0]]
    assert [part.tolist() for part in net.out_adjacency(2)] == [[0, 1], [0]]
    assert [part.tolist() for part in net.edges(2)] == [[0], [0]]
    assert networks.smallest_window(net, 1, 3) == 1 and networks.diagnose_connectivity(net, 1, 3) is None


@kinds
@pytest.mark.parametrize("n", [1, 2, 9])
def test_repr_can_be_pasted(kind, n):
    net = KINDS[kind](n)
    copy = eval(repr(net), vars(networks))
    assert repr(copy) == repr(net)
    np.testing.assert_array_equal(copy.mixing_matrices(3, 4), net.mixing_matrices(3, 4))


@kinds
def test_period(kind):
    net = KINDS[kind](6)
    if net.period is None:
        assert not np.array_equal(net.mixing_matrices(1, 30), net.mixing_matrices(2, 30)) or kind == "RandomOut to all"
    else:
        np.testing.assert_array_equal(net.mixing_matrices(1, 7), net.mixing_matrices(1 + net.period, 7))


@kinds
@pytest.mark.parametrize("ask", ["mixing_matrix", "edges", "csr", "out_adjacency"])
@pytest.mark.parametrize(("s", "error"), [(0, ValueError), (-3, ValueError), (2**56, ValueError), (1.0, TypeError)])
def test_bad_steps_are_refused(kind, ask, s, error):
    with pytest.raises(error, match="(s|first) must be an integer .*, got .*"):
        getattr(KINDS[kind](3), ask)(s)


@kinds
def test_bad_stretches_and_senders_are_refused(kind):
    net = KINDS[kind](3)
    for call in (
        lambda: net.mixing_matrices(0, 2),
        lambda: net.mixing_matrices(1, -1),
        lambda: net.out_neighbours(0, 1),
        lambda: net.out_neighbours(1, 3),
        lambda: net.out_neighbours(1, -1),
    ):
        with pytest.raises(ValueError, match="must be an integer from"):
            call()


@pytest.mark.parametrize(
    ("n", "error"), [(0, ValueError), (2**31 + 1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_bad_number_of_clients(n, error):
    with pytest.raises(error, match="n must be an integer .*, got .*"):
        networks.SelfLoops(n)


def test_expected_edges_is_the_mean_number_of_edges():
    """Bernoulli edges have variance 1/4 at most: five standard deviations of the mean over 400 steps."""
    for kind, make in KINDS.items():
        net = make(8)
        counts = [net.edges(s)[0].size for s in range(1, 401)]
        bound = 5 * np.sqrt(8 * 8 / 4 * 2 / len(counts)) if net.period is None else 0.05  # undirected pairs count twice
        assert abs(np.mean(counts) - net.expected_edges) <= bound, kind
