"""Large sparse networks: memory of the edges, never n x n."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hgp_ref.networks import RandomOut, SparseErdosRenyi


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


@pytest.mark.parametrize("k", [-1, 3])
def test_bad_k(k):
    with pytest.raises(ValueError, match=f"k={k} given, needed an integer from 0 to 2"):
        RandomOut(3, k)


@pytest.mark.parametrize(
    ("mean", "error"), [(-0.1, ValueError), (2.1, ValueError), (np.nan, ValueError), ("1", TypeError)]
)
def test_bad_mean_degree(mean, error):
    with pytest.raises(error, match="mean_degree must"):
        SparseErdosRenyi(3, mean)
