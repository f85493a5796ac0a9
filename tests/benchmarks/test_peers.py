"""The implementations in other libraries compute the same as hgp_ref, or draw from the right distribution."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import logistic

import hgp_ref as hgp
from hgp_ref._kernels import mixing as kernels


def data_of(problem):
    views = problem._train.all, problem._val.all
    return tuple(a for v in views for a in (v.features, (v.targets[..., 0] + 1) / 2))


def test_torch_loop_is_algorithm_2():
    torch_loop = pytest.importorskip("benchmarks.peers.torch_loop", exc_type=ImportError)
    problem, x, lam = logistic()
    net = hgp.networks.RandomDirected(3, seed=4)
    clients = [torch_loop.Client(*(part[i] for part in data_of(problem))) for i in range(3)]
    graph = lambda s: [net.out_neighbours(s, j).tolist() for j in range(3)]  # noqa: E731
    v = torch_loop.hypergradient(clients, x, lam, graph, steps=2, iterations=7, eta=0.5)
    expected = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 2), eta=0.5, iterations=7).value
    np.testing.assert_allclose(v, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.slow
def test_jax_program_tends_to_exact_averaging():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from benchmarks.peers import jax_scan

    problem, x, lam = logistic()
    program = jax_scan.compiled(data_of(problem), x, lam, 2, steps=60, iterations=9, history=True, eta=0.5)
    v, past = program()
    expected = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.5, iterations=9, history=True)
    assert past.shape == (2, 9, 3, problem.dim_lam)
    for seed in range(2):
        np.testing.assert_allclose(np.asarray(v[seed]), expected.value, atol=1e-6)
        np.testing.assert_allclose(np.asarray(past[seed]), expected.history, atol=1e-6)
    u = np.random.default_rng(1).normal(size=x.shape)
    bent = np.asarray(jax_scan.hvp(data_of(problem), x, lam)(u))
    np.testing.assert_allclose(bent, problem.linearize(x, lam).hvp(u), rtol=1e-12, atol=1e-14)


def test_sparse_products_are_a_step():
    sparse = pytest.importorskip("benchmarks.peers.sparse", exc_type=ImportError)
    net = hgp.networks.SparseErdosRenyi(200, 4, seed=1)
    z = np.random.default_rng(0).normal(size=(200, 9))
    out = np.empty_like(z)
    kernels.pull_step(*net.csr(3), z, out)
    np.testing.assert_allclose(sparse.scipy_product(net.csr(3), z)(), out, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(sparse.torch_product(net.csr(3), z)().numpy(), out, rtol=1e-12, atol=1e-14)


def test_one_product_a_step_is_push_sum():
    sparse = pytest.importorskip("benchmarks.peers.sparse", exc_type=ImportError)
    net = hgp.networks.RandomDirected(7, seed=1)
    u = np.random.default_rng(0).normal(size=(7, 5))
    expected = hgp.PushSum(net, 4).apply(u)
    np.testing.assert_allclose(sparse.successive(net.mixing_matrices(1, 4), u), expected, rtol=1e-12, atol=1e-14)


def test_samplers_draw_what_the_networks_draw():
    samplers = pytest.importorskip("benchmarks.peers.samplers", exc_type=ImportError)
    rng = np.random.default_rng(0)
    for W in (samplers.dense_matrix(rng, np.full((30, 30), 0.3)),
              samplers.dense_matrix_of_integers(rng, np.full((30, 30), 2**31, np.uint32))):  # fmt: skip
        np.testing.assert_allclose(W.sum(axis=0), 1.0)
        assert np.all(np.diag(W) > 0)
    receivers = samplers.random_out(rng, 50, 4)
    assert receivers.shape == (50, 5) and all(len(set(row)) == 5 and j in row for j, row in enumerate(receivers))
    n, degree = 3000, 6.0
    indptr, receivers = samplers.erdos_renyi(rng, n, degree)
    senders = np.repeat(np.arange(n), np.diff(indptr))
    assert len(set(zip(senders, receivers, strict=True))) == receivers.size and np.all(senders != receivers)
    assert receivers.min() >= 0 and receivers.max() < n
    assert abs(receivers.size - n * degree) < 6 * (n * degree) ** 0.5  # six standard deviations
