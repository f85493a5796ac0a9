"""Compiled kernels against their definitions: sparse steps by rows and columns, in threads; products of matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from support.examples import NETWORK_KINDS

from hgp_ref import _numba, mixing, networks
from hgp_ref._kernels import mixing as compose
from hgp_ref._kernels import mixing as kernels

DIMENSIONS = [1, 2, 3, 4, 5, 7, 8, 9, 16, 20, 31, 32, 33, 64, 65, 100, 129]  # around block sizes


def random_csr(n, seed=0):
    """Rows of unequal length, one of them long, one of the self-loop alone."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((n, n)) * (rng.random((n, n)) < rng.uniform(0, 0.6, size=(n, 1)))
    matrix[0], matrix[1] = rng.random(n), 0.0
    np.fill_diagonal(matrix, 0.5)
    csr = sp.csr_array(matrix)
    return matrix, (csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data)


def numbers(n, d, dtype):
    """Rows of very different sizes: sums in another order would round otherwise."""
    rng = np.random.default_rng(d)
    return (rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, size=(n, 1))).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_sparse_step_is_the_matrix_product(d, dtype):
    matrix, graph = random_csr(23)
    z = numbers(23, d, dtype)
    out = np.full_like(z, np.nan)
    kernels.pull_step(*graph, z, out)
    room = 2 * 24 * np.finfo(dtype).eps * (np.abs(matrix) @ np.abs(z))  # n + 1 roundings, in either order
    assert np.all(np.abs(out - matrix @ z.astype(np.float64)) <= room)


def in_order(graph, z):
    """The definition with NumPy's own roundings: every product and every sum by itself, senders in order."""
    indptr, indices, weights = graph
    out = np.zeros((len(indptr) - 1, z.shape[1]), dtype=z.dtype)
    for i, row in enumerate(out):
        for e in range(indptr[i], indptr[i + 1]):
            row += weights[e].astype(z.dtype) * z[indices[e]]
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_is_the_same_bits_however_it_is_computed(dtype):
    """For d = 1 .. 300: alone, in ranges, pulled or pushed, in blocks or by the definition."""
    net = networks.SparseErdosRenyi(11, 4.0, seed=2)
    graph, lists, n = net.csr(3), net.out_adjacency(3), 11
    for d in range(1, 301):
        z = numbers(n, d, dtype)
        expected = in_order(graph, z)
        for begin, end in ((0, n), (0, 1), (4, 5), (n - 1, n), (0, 4), (3, 9), (6, n)):
            pulled = [np.full((end - begin, d), np.nan, dtype=dtype) for _ in range(2)]
            some = graph[0][begin : end + 1]
            kernels.pull_step(some, *graph[1:], z, pulled[0])
            kernels.pull_rows(0, end - begin, some, *graph[1:], z, pulled[1])
            pushed = [np.full((n, d), np.nan, dtype=dtype) for _ in range(2)]
            kernels._push_blocks(begin, end, *lists, z, pushed[0])
            kernels.push_rows(begin, end, *lists, z, pushed[1])
            for result in (*pulled, *(part[begin:end] for part in pushed)):
                np.testing.assert_array_equal(result, expected[begin:end], strict=True)
        whole = np.full((n, d), np.nan, dtype=dtype)
        kernels.push_step(*lists, z, whole)
        np.testing.assert_array_equal(whole, expected, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_do_not_depend_on_the_columns_beside_them(dtype):
    net = networks.SparseErdosRenyi(40, 4.0, seed=2)
    graph, lists = net.csr(3), net.out_adjacency(3)
    z = numbers(40, 300, dtype)
    whole = in_order(graph, z)
    for first, last in ((0, 1), (7, 10), (13, 50), (1, 300), (100, 229)):
        part = np.ascontiguousarray(z[:, first:last])
        out = [np.empty_like(part) for _ in range(2)]
        kernels.pull_step(*graph, part, out[0])
        kernels.push_step(*lists, part, out[1])
        for result in out:
            np.testing.assert_array_equal(result, whole[:, first:last])


def test_entries_of_weights_are_the_same_bits_in_any_range():
    net = networks.SparseErdosRenyi(40, 4.0, seed=2)
    graph, lists, omega = net.csr(3), net.out_adjacency(3), np.random.default_rng(0).random(40)
    pulled, pushed = kernels.pull_vector_step(*graph, omega), kernels.push_vector_step(*lists, omega)
    np.testing.assert_allclose(pulled, net.mixing_matrix(3) @ omega, rtol=1e-14)
    for begin, end in ((0, 40), (0, 1), (39, 40), (5, 17)):
        some = graph[0][begin : end + 1]
        np.testing.assert_array_equal(kernels.pull_vector_step(some, *graph[1:], omega), pulled[begin:end])
        part = np.full(40, np.nan)
        kernels._push_vector(begin, end, *lists, omega, part)
        np.testing.assert_array_equal(part[begin:end], pushed[begin:end])


def test_rows_may_be_pulled_from_another_numbering_of_senders():
    """What a process needs that holds some receivers, and of the senders only those it hears: z has other rows."""
    _, (indptr, indices, weights) = random_csr(23)
    z = numbers(23, 70, "float64")
    begin, end = 5, 12
    edges = slice(indptr[begin], indptr[end])
    heard, renumbered = np.unique(indices[edges], return_inverse=True)
    out = np.empty((end - begin, 70))
    own = indptr[begin : end + 1] - indptr[begin]
    kernels.pull_step(own, renumbered.astype(np.int32), weights[edges], z[heard], out)
    np.testing.assert_array_equal(out, in_order((indptr, indices, weights), z)[begin:end])


@pytest.mark.parametrize("number", [2, 3, 50])
@pytest.mark.parametrize("d", [3, 20, 67])
def test_sparse_step_does_not_depend_on_the_number_of_threads(d, number, monkeypatch):
    monkeypatch.setattr(_numba, "GRAIN", 1)
    _, graph = random_csr(40)
    z, omega = np.random.default_rng(1).normal(size=(40, d)), np.random.default_rng(2).random(40)
    results = []
    for limit in (1, number):
        out = np.full_like(z, np.nan)
        with _numba.limited(limit):
            kernels.pull_step(*graph, z, out)
            results.append((out, kernels.pull_vector_step(*graph, omega)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("net", [networks.RandomDirected(7, seed=1), networks.RandomOut(40, 2, seed=1)], ids=repr)
def test_products_by_blas_and_along_edges_are_equal(net, steps):
    W = net.mixing_matrices(1, 3 * steps)
    by_call = W.reshape(3, steps, net.n, net.n)
    explicit = np.stack([np.linalg.multi_dot([np.eye(net.n), np.eye(net.n), *call[::-1]]) for call in by_call])
    room = 2 * steps * net.n * np.finfo(np.float64).eps  # entries lie in [0, 1], each step adds up to n of them
    assert np.abs(compose.compose(W, steps, net.expected_edges) - explicit).max() <= room
    assert np.abs(compose.compose_edges(by_call) - explicit).max() <= room


def test_dense_and_sparse_matrices_take_different_ways(monkeypatch):
    taken = []
    monkeypatch.setattr(compose, "compose_edges", lambda W: taken.append("edges"))
    for net in (networks.RandomOut(40, 2, seed=1), networks.RandomDirected(40, seed=1)):
        compose.compose(net.mixing_matrices(1, 4), 2, net.expected_edges)
    assert taken == ["edges"]


def test_messages_of_clients_without_self_loop_are_counted():
    net = networks.RandomDirected(6, seed=3)
    W = net.mixing_matrices(1, 4)
    W[1, 2, 2] = 0.0  # no self-loop: that entry was none to count
    edges = [len(net.edges(s)[0]) - 6 for s in range(1, 5)]
    np.testing.assert_array_equal(compose.count_messages(W, 2), [edges[0] + edges[1], edges[2] + edges[3]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_pushing_is_pulling(d, dtype):
    net = networks.SparseErdosRenyi(60, 3.0, seed=2)
    z = numbers(60, d, dtype)
    pulled, pushed = (np.full_like(z, np.nan) for _ in range(2))
    kernels.pull_step(*net.csr(4), z, pulled)
    kernels.push_step(*net.out_adjacency(4), z, pushed)
    np.testing.assert_array_equal(pulled, pushed)


@pytest.mark.parametrize("number", [2, 3, 50])
@pytest.mark.parametrize("d", [3, 20, 67])
def test_pushing_does_not_depend_on_the_number_of_threads(d, number, monkeypatch):
    monkeypatch.setattr(_numba, "GRAIN", 1)
    net = networks.RandomOut(40, 5, seed=2)
    z, omega = np.random.default_rng(1).normal(size=(40, d)), np.random.default_rng(2).random(40)
    results = []
    for limit in (1, number):
        out = np.full_like(z, np.nan)
        with _numba.limited(limit):
            kernels.push_step(*net.out_adjacency(1), z, out)
            results.append((out, kernels.push_vector_step(*net.out_adjacency(1), omega)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    np.testing.assert_allclose(results[0][1], net.mixing_matrix(1) @ omega, rtol=1e-14)


@pytest.mark.parametrize("kind", NETWORK_KINDS)
def test_equal_shares_is_declared_by_networks_with_equal_weights(kind):
    net = NETWORK_KINDS[kind](12)
    for s in (1, 2, 5):
        _, indices, weights = net.csr(s)
        equal = 1.0 / np.diff(net.out_adjacency(s)[0])[indices]
        if net.equal_shares:
            np.testing.assert_array_equal(weights, equal)
    assert net.equal_shares == (kind in ("OnePeerExponential", "RandomOut", "SparseErdosRenyi"))


def test_runs_and_strides_step_as_one_array_would():
    avg = mixing.PushSum(networks.RandomOut(30, 3, seed=1), 3, mode="stepping")
    u = np.random.default_rng(0).normal(size=(2, 30, 9))
    before = u.copy()
    together = avg.apply(u, call=1)
    for r in range(2):
        np.testing.assert_allclose(together[r], avg.apply(np.asfortranarray(u[r]), call=1), rtol=1e-13)
    np.testing.assert_array_equal(u, before)  # the first step reads u itself


@pytest.mark.parametrize("shape", [(5, 3), (1000, 8)])
def test_room_for_results_begins_at_a_cache_line(shape):
    z = np.ones(shape, dtype=np.float32)
    room = kernels.empty_like(z)
    assert room.shape == shape and room.dtype == z.dtype and room.flags.c_contiguous and room.flags.writeable
    assert room.ctypes.data % 64 == 0


@pytest.mark.parametrize("kind", [networks.RandomDirected, networks.RandomUndirected])
@pytest.mark.parametrize(
    ("n", "calls", "steps"), [(1, 32, 1), (3, 1, 5), (3, 70, 1), (3, 64, 7), (4, 33, 2), (8, 40, 3)]
)
def test_products_of_one_sweep_are_those_of_the_matrices(kind, n, calls, steps):
    net = kind(n, seed=4)
    found = net.products(5 * steps + 1, calls, steps)
    assert found is not None
    W = net.mixing_matrices(5 * steps + 1, calls * steps)
    assert (
        np.abs(found[0] - compose.compose(W, steps, net.expected_edges)).max()
        <= 2 * steps * n * np.finfo(np.float64).eps
    )
    np.testing.assert_array_equal(found[1], compose.count_messages(W, steps))


def test_sweeps_are_for_few_clients():
    assert networks.RandomDirected(9, seed=0).products(1, 100, 2) is None
    assert networks.RandomOut(3, 1, seed=0).products(1, 100, 2) is None
