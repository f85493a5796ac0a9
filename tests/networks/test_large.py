"""Large sparse networks: memory proportional to the edges, never n × n."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import networks
from hgp_ref.networks import RandomOut, SparseErdosRenyi, validation


@pytest.mark.parametrize("net", [RandomOut(300_000, 4, seed=1), SparseErdosRenyi(300_000, 4.0, seed=1)], ids=repr)
def test_memory_grows_with_edges(net):
    """csr holds 12 bytes per edge and 8 per client; lists by sender and shares add 4 per edge, 24 per client."""
    net.csr(1)  # compiled and warm
    tracemalloc.start()
    indptr, indices, weights = net.csr(2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert indices.size == indptr[-1] == weights.size
    assert peak <= 1.05 * (16 * indices.size + 32 * net.n)
    rows = np.repeat(np.arange(net.n), np.diff(indptr))
    assert np.all(np.diff(rows * net.n + indices) > 0)
    sums = np.bincount(indices, weights, minlength=net.n)
    assert np.abs(sums - 1).max() <= 64 * np.finfo(np.float64).eps  # at most 64 edges of one sender


def test_one_sender_of_a_huge_network():
    """Work and memory for one sender do not grow with n."""
    for net in (RandomOut(2**31, 4), SparseErdosRenyi(2**31, 4.0)):
        receivers = net.out_neighbours(2**50, 2**31 - 1)
        assert receivers[-1] == 2**31 - 1 and np.all(np.diff(receivers) > 0) and receivers[0] >= 0


@pytest.mark.parametrize(("k", "expected"), [(-1, ">= 0"), (3, "from 0 to 2")])
def test_bad_k(k, expected):
    with pytest.raises(ValueError, match=f"k must be an integer {expected}, got {k}"):
        RandomOut(3, k)


@pytest.mark.parametrize(
    ("mean", "error"), [(-0.1, ValueError), (2.1, ValueError), (np.nan, ValueError), ("1", TypeError)]
)
def test_bad_mean_degree(mean, error):
    with pytest.raises(error, match="mean_degree must"):
        SparseErdosRenyi(3, mean)


N = 100_000
TOO_LARGE = {
    "RandomDirected": lambda: networks.RandomDirected(N).out_adjacency(1),
    "RandomDirected, matrices": lambda: networks.RandomDirected(N).mixing_matrix(1),
    "RandomDirected, expected": lambda: networks.RandomDirected(N).expected_edges,
    "RandomDirected, averaged": lambda: hgp.PushSum(networks.RandomDirected(N), 3).apply(np.ones((N, 1))),
    "RandomUndirected": lambda: networks.RandomUndirected(N).union(1, 5),
    "StaticUndirected": lambda: networks.StaticUndirected(N),
    "FullyConnected": lambda: networks.FullyConnected(N).csr(1),
    "FullyConnected, matrices": lambda: networks.FullyConnected(N).mixing_matrix(1),
    "RandomOut, matrices": lambda: RandomOut(N, 3).mixing_matrix(1),
    "SparseErdosRenyi, matrices": lambda: SparseErdosRenyi(N, 3.0).mixing_matrix(1),
    "Schedule, matrices": lambda: networks.Schedule([([0], [1])], n=N).mixing_matrix(1),
    "SelfLoops, matrices": lambda: networks.SelfLoops(N).mixing_matrix(1),
}


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_too_many_clients_for_n_by_n(kind, monkeypatch):
    """Refused at once, whatever the machine: as if it had 8 GiB."""
    monkeypatch.setattr("hgp_ref.networks.validation.memory", lambda: 8 * 2**30)
    with pytest.raises(MemoryError, match=r"needs n² = 10,000,000,000 entries of \w+, \d+\.\d GiB.*RandomOut, Sparse"):
        TOO_LARGE[kind]()


def test_allocation_that_the_system_refuses(monkeypatch):
    """Where the memory is not known the allocation itself fails, with the same words; 2^50 matrices of 3 clients."""
    monkeypatch.setattr("hgp_ref.networks.validation.memory", lambda: None)
    with pytest.raises(
        MemoryError, match=r"RandomDirected\(n=3.* needs n² = 9 entries of float64 for each of 11258999"
    ):
        networks.RandomDirected(3).mixing_matrices(1, 2**50)


def test_allocation_up_to_the_last_byte(monkeypatch):
    monkeypatch.setattr("hgp_ref.networks.validation.memory", lambda: 2 * 8 * 100**2)
    assert validation.allocate("two matrices", (2, 100, 100), zero=True).sum() == 0
    with pytest.raises(MemoryError, match=r"^three needs n² = 10,000 entries of float64 for each of 3 steps, 0\.0 GiB"):
        validation.allocate("three", (3, 100, 100))


def test_memory_of_this_machine():
    there = validation.memory()
    assert there is None or 2**28 < there < 2**50
