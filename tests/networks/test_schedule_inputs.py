"""Inputs of Schedule: low precision made exact, sparse matrices, and the number of clients."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import hgp_ref as hgp
from hgp_ref.networks import Schedule

EPS = np.finfo(np.float64).eps
HALF = np.array([[0.5, 0.25], [0.5, 0.75]])
DTYPES = [np.float16, np.float32, np.float64, np.longdouble]


def stochastic(n, dtype, seed=0):
    """Columns that sum to 1 as well as `dtype` can say it."""
    W = np.random.default_rng(seed).random((n, n)).astype(dtype) + np.eye(n, dtype=dtype)
    return W / W.sum(axis=0, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_columns_sum_to_one_whatever_the_precision(dtype, n):
    W = stochastic(n, dtype)
    held = Schedule([W]).mixing_matrix(1)
    assert np.abs(held.sum(axis=0) - 1).max() <= (n + 1) * EPS
    assert np.abs(held - W).max() <= (n + 1) * max(np.finfo(dtype).eps, EPS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [lambda W: [W], lambda W: [W, W.T[::-1, ::-1] * 0 + np.eye(len(W), dtype=W.dtype)]])
@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_push_sum_tends_to_the_true_mean(dtype, make, mode):
    """Undivided, float16 (float32) columns tilt the limit by 2e-4 (6e-9).

    Each step may round its n sums by n eps / 2, and so the weights of the mean.
    """
    n, S = 6, 2000
    u = np.random.default_rng(1).normal(size=(n, 2))
    got = hgp.PushSum(Schedule(make(stochastic(n, dtype))), S, mode=mode).apply(u)
    assert np.abs(got - u.mean(axis=0)).max() <= S * n * EPS * np.abs(u).max()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_precision_does_not_explain_is_refused(dtype):
    W = stochastic(5, dtype).astype(np.float64)
    unit = float(np.finfo(dtype).eps)
    W[2, 3] += 8 * unit  # a column of 5 numbers may be off by 6
    with pytest.raises(ValueError, match=r"graphs\[0\] must be column-stochastic: column 3 sums to 1\.0"):
        Schedule([W.astype(dtype)])
    with pytest.raises(ValueError, match="column-stochastic"):
        Schedule([stochastic(40, dtype).astype(np.float64)])  # the same numbers, no longer excused


def test_zeros_excuse_nothing():
    """Only the numbers that are added up round: a column of two is as exact among 1000 as alone."""
    W = np.eye(1000, dtype=np.float32)
    W[1, 0], W[0, 0] = 0.5, 0.5 + 1e-4
    with pytest.raises(ValueError, match="column 0 sums to"):
        Schedule([W])


@given(st.integers(1, 6), st.sampled_from(DTYPES[:3]), st.integers(0, 99))
def test_repr_of_any_precision_can_be_pasted(n, dtype, seed):
    net = Schedule([stochastic(n, dtype, seed), np.eye(n, dtype=dtype)])
    copy = eval(repr(net))
    np.testing.assert_array_equal(copy.mixing_matrices(1, 2), net.mixing_matrices(1, 2))
    assert repr(copy) == repr(net)


@pytest.mark.parametrize(
    ("graphs", "n"),
    [
        ([([0], [1])], 2),
        ([([5], [1])], 6),  # the largest sender
        ([([1], [5])], 6),  # the largest receiver
        ([([0], [1]), ([3], [0])], 4),  # of the second graph
        ([([], [])], 1),
        ([([0], [0])], 1),
        ([([0], [1]), HALF], 2),  # the matrix decides,
        ([([0], [1]), np.eye(5)], 5),  # although the edges speak of fewer
        ([np.eye(3), ([0], [1])], 3),
    ],
)
def test_number_of_clients(graphs, n):
    net = Schedule(graphs)
    assert net.n == n
    assert net.mixing_matrix(1).shape == (n, n)


def test_the_first_matrix_decides_on_n():
    with pytest.raises(ValueError, match=r"graphs\[1\] must be a matrix of shape \(3, 3\)"):
        Schedule([np.eye(3), np.eye(2)])
    with pytest.raises(ValueError, match="client must be an integer from 0 to 2, got 4"):
        Schedule([np.eye(3), ([4], [0])])


SPARSE = [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array, sp.lil_array, sp.dok_array, sp.bsr_array]


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_matrices(kind):
    W = stochastic(6, np.float64) * (np.random.default_rng(0).random((6, 6)) < 0.5)
    W = (W + np.eye(6)) / (W + np.eye(6)).sum(axis=0)
    for net in (Schedule(kind(W)), Schedule([kind(W)]), Schedule([([0], [1]), kind(W)])):
        np.testing.assert_array_equal(net.mixing_matrix(net.period), W)
        np.testing.assert_array_equal(net.csr(net.period)[1], Schedule([W]).csr(1)[1])
    np.testing.assert_array_equal(eval(repr(Schedule(kind(W)))).mixing_matrix(1), W)


def test_sparse_matrices_of_many_clients_stay_sparse():
    n = 100_000
    i = np.arange(n)
    W = sp.coo_array((np.full(2 * n, 0.5, np.float32), (np.r_[i, (i + 1) % n], np.r_[i, i])), shape=(n, n))
    tracemalloc.start()
    indptr, senders, weights = Schedule(W).csr(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert indptr[-1] == senders.size == 2 * n and np.all(weights == 0.5)
    assert peak <= 400 * n  # of n² = 1e10


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (sp.csr_array(HALF.T), ValueError, "column-stochastic: column 0 sums to 0.75"),
        (sp.csr_array([[0.0, 1], [1, 0]]), ValueError, "positive diagonal, got 0 at entry 0"),
        (sp.csr_array([[1.5, 0], [-0.5, 1]]), ValueError, "non-negative, got -0.5"),
        (sp.csr_array([[np.nan, 0], [0.5, 1]]), ValueError, "finite"),
        (sp.csr_array(np.ones((2, 3))), ValueError, r"shape \(2, 2\).*got shape \(2, 3\)"),
        (sp.csr_array(np.eye(2) + 0j), TypeError, "real matrix, got dtype complex"),
    ],
)
def test_bad_sparse_matrices(matrix, error, message):
    with pytest.raises(error, match=message):
        Schedule(matrix)


def test_entries_given_twice_are_added():
    W = sp.coo_array(([0.25, 0.25, 0.5, 1.0, 0.0], ([0, 0, 1, 1, 0], [0, 0, 0, 1, 1])), shape=(2, 2))
    net = Schedule(W)
    np.testing.assert_array_equal(net.mixing_matrix(1), [[0.5, 0], [0.5, 1]])
    assert net.expected_edges == 3


def test_rows_in_any_order_and_the_given_matrix_stays_as_it_is():
    """Unsorted rows, an entry in two parts and a stored zero, as scipy allows them."""
    W = sp.csr_array(([0.5, 0.25, 0.25, 0.0, 0.5, 0.5], [1, 0, 0, 1, 1, 0], [0, 4, 6]), shape=(2, 2))
    before = W.copy()
    net = Schedule(W)
    assert [part.tolist() for part in net.csr(1)] == [[0, 2, 4], [0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5]]
    assert (W.nnz, W.indices.tolist(), W.data.tolist()) == (6, before.indices.tolist(), before.data.tolist())


def test_networkx_is_not_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)  # importing it raises
    assert Schedule([([0], [1]), HALF, sp.csr_array(HALF)]).period == 3
