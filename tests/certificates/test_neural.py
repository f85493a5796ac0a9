"""Certificates of neural clients: the formula at x if H̄ is positive definite or a constant is given, else an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import exact, neural
from hgp_ref.certificates import MATRIX_FREE_ABOVE, measured_residual


def clients(l2, hidden=3, seed=0):
    """Three clients, a small smooth network, and an estimate by exact averaging where it is trained a little."""
    rng = np.random.default_rng(seed)
    model = neural.Sequential((4,), neural.Linear(4, hidden), neural.Tanh(), neural.Linear(hidden, 3))
    X, X_val = rng.standard_normal((3, 6, 4)), rng.standard_normal((3, 3, 4))
    y, y_val = rng.integers(0, 3, (3, 6)), rng.integers(0, 3, (3, 3))
    problem = hgp.problems.NeuralInstanceWeights(model, X, y, X_val, y_val, l2=l2)
    x, lam = model.init(3), np.ones((3, 6))
    for _ in range(300):
        x = x - 0.3 * problem.inner_grad(x, lam).mean(axis=0)
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.1, iterations=20)
    return problem, x, lam, est, np.linalg.eigvalsh(exact.hessians(problem, x, lam).mean(axis=0))[0]


def test_the_formula_at_x_is_certified_where_the_hessian_is_positive_definite():
    problem, x, lam, est, low = clients(l2=1.0)
    assert low > 0
    error = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
    assert np.all(error > 1e-8)  # the run ends early: there is something to bound
    avg = hgp.ExactAverage(3)
    for free in (False, True):
        found = hgp.certify(problem, x, lam, est, avg, strong_convexity=0.9 * low, matrix_free=free)
        assert np.all(error <= found.bound) and np.all(error <= found.decentralised_bound)
        assert found.inexact is None and found.against == "the hyper-gradient formula at the given x"
        assert any("against the formula at the given x" in words for words in found.assumptions)


def test_negative_curvature_is_refused_and_the_residual_is_measured():
    problem, x, lam, est, low = clients(l2=1e-4)
    assert low < 0
    with pytest.raises(ValueError, match=r"must be positive definite.*to certify; certificates.measured_residual"):
        hgp.certify(problem, x, lam, est)
    with pytest.raises(ValueError, match=r"strong_convexity must be .* smallest eigenvalue .* is at most .*, got 0.2"):
        hgp.certify(problem, x, lam, est, matrix_free=True, strong_convexity=0.2)
    with pytest.raises(ValueError, match="'lanczos'"):
        hgp.certify(problem, x, lam, est, matrix_free=True, strong_convexity="lanczos")
    found = measured_residual(problem, x, lam, est)
    H, f_x = exact.hessians(problem, x, lam).mean(axis=0), problem.outer_grad(x, lam)[0].mean(axis=0)
    truth = np.linalg.norm(f_x - est.w @ H, axis=1)
    assert np.all(found.residual >= truth) and np.allclose(found.residual, truth, rtol=1e-8)
    assert np.allclose(found.relative, truth / np.linalg.norm(f_x), rtol=1e-8) and np.all(found.consistency < 1e-9)
    off = replace(est, value=est.value + 0.5)
    assert np.allclose(measured_residual(problem, x, lam, off).consistency, 0.5 * np.sqrt(6), rtol=1e-6)
    with pytest.raises(TypeError, match="problem"):
        measured_residual(None, x, lam, est)


def test_an_l2_rate_is_no_modulus_of_a_network():
    problem, x, lam, est, _ = clients(l2=0.05, hidden=140)
    assert problem.dim_x > MATRIX_FREE_ABOVE
    with pytest.raises(ValueError, match=r"must be known.*not that of a neural network.*measured_residual"):
        hgp.certify(problem, x, lam, est)


def test_one_run_only():
    problem, x, lam, est, _ = clients(l2=0.3)
    many = replace(est, value=est.value[None], w=est.w[None])
    with pytest.raises(ValueError, match=r"est.value must have shape \(n, d_lam\), one run, got \(1, 3, 6\)"):
        measured_residual(problem, x, lam, many)
