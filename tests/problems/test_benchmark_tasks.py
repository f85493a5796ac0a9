"""The two tasks of benchmark_bilevel as problems, for n = 1 and over a network: their costs written out anew."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close, identity_rtol

import hgp_ref as hgp
from hgp_ref.problems import HyperCleaning, LogisticRegression, LogRates, check_derivatives

TOL = identity_rtol("float64")


def cleaning(n, N=12, d=5, C=3, seed=0):
    rng = np.random.default_rng(seed)
    X, X_val = rng.random((2, n, N, d))
    y, y_val = rng.integers(0, C, (2, n, N))
    return (X, y, X_val, y_val), HyperCleaning(X, y, X_val, y_val, l2=0.4, n_classes=C)


def rates(n, N=40, d=22, seed=0):
    """Data of the shape of ijcnn1: 22 features, labels ±1, a tenth of them positive."""
    rng = np.random.default_rng(seed)
    X, X_val = rng.uniform(-1, 1, (2, n, N, d))
    signs, signs_val = np.where(rng.random((2, n, N)) < 0.1, 1, -1)
    return (X, signs, X_val, signs_val), LogRates(LogisticRegression(X, (signs + 1) // 2, X_val, (signs_val + 1) // 2))


@pytest.mark.parametrize("n", [1, 4])
def test_data_cleaning(n):
    """g = mean_k σ(λ_k) l_k(x) + 0.2 |x|², softmax without bias; f = mean l on validation data."""
    (X, y, X_val, y_val), problem = cleaning(n)
    rng = np.random.default_rng(1)
    x, lam = rng.normal(size=(n, 15)), rng.normal(size=(n, 12))

    def losses(A, labels, i):
        logits = A[i] @ x[i].reshape(5, 3)
        return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), labels[i]]

    inner = [np.mean(losses(X, y, i) / (1 + np.exp(-lam[i]))) + 0.2 * np.sum(x[i] ** 2) for i in range(n)]
    assert_close(problem.inner_cost(x, lam), np.array(inner), TOL)
    assert_close(problem.outer_cost(x, lam), np.array([losses(X_val, y_val, i).mean() for i in range(n)]), TOL)
    result = check_derivatives(problem, x, lam)
    assert result.ok, str(result)


@pytest.mark.parametrize("n", [1, 4])
def test_regularization_of_every_feature(n):
    """g = mean_k log(1 + exp(−s_k X_k x)) + ½ Σ_j exp(λ_j) x_j²; f = the mean loss on validation data."""
    (X, signs, X_val, signs_val), problem = rates(n)
    rng = np.random.default_rng(1)
    x, lam = rng.normal(size=(n, 22)), rng.normal(size=(n, 22))
    inner = [np.log1p(np.exp(-signs[i] * (X[i] @ x[i]))).mean() + np.sum(np.exp(lam[i]) * x[i] ** 2) / 2
             for i in range(n)]  # fmt: skip
    outer = [np.log1p(np.exp(-signs_val[i] * (X_val[i] @ x[i]))).mean() for i in range(n)]
    assert_close(problem.inner_cost(x, lam), np.array(inner), TOL)
    assert_close(problem.outer_cost(x, lam), np.array(outer), TOL)
    result = check_derivatives(problem, x, lam)
    assert result.ok, str(result)


@pytest.mark.parametrize("task", [cleaning, rates])
def test_hypergradients_over_a_network(task):
    _, problem = task(4)
    lam = np.full((4, problem.dim_lam), -1.0)
    x = hgp.exact.inner_solution(problem, lam)
    net = hgp.networks.RandomDirected(4, seed=0)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 40), iterations=400)
    assert_close(est.value, hgp.exact.hypergradient(problem, x, lam), 4 * np.sqrt(np.finfo(float).eps))


def test_ijcnn1_from_a_file(tmp_path):
    """The svmlight format, read as sparse rows and divided between clients without making them dense."""
    datasets = pytest.importorskip("sklearn.datasets")
    (X, signs, X_val, signs_val), _ = rates(3)
    X[np.abs(X) < 0.3] = 0
    datasets.dump_svmlight_file(X.reshape(-1, 22), signs.ravel(), str(tmp_path / "ijcnn1"))
    rows, labels = datasets.load_svmlight_file(str(tmp_path / "ijcnn1"), n_features=22)
    parts = np.array_split(np.arange(len(labels)), 3)
    problem = LogRates(LogisticRegression(
        [rows[part] for part in parts], [(labels[part] + 1) / 2 for part in parts], X_val, (signs_val + 1) // 2
    ))  # fmt: skip
    dense = LogRates(LogisticRegression(X, (signs + 1) // 2, X_val, (signs_val + 1) // 2))
    x, lam = np.random.default_rng(2).normal(size=(2, 3, 22))
    assert_close(problem.inner_grad(x, lam), dense.inner_grad(x, lam), 1e-12)
