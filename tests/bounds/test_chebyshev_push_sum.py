"""Bound F: its suprema against fine grids, the bound against runs, and what happens at its edges."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import bounds, exact
from hgp_ref.bounds.chebyshev_averaged import Responses
from hgp_ref.bounds.convexity import convex_mean


def coefficients(low, high, M):
    """a_k and b_k by the recursion of the method."""
    c, h, rho, a, b = (low + high) / 2, (high - low) / 2, 0.0, [], []
    for k in range(M):
        if k == 0 or h == 0:
            before, rho = rho, h / c
            a.append(1 / c)
            b.append(0.0)
        else:
            before, rho = rho, 1 / (2 * c / h - rho)
            a.append(2 * rho / h)
            b.append(rho * before)
    return a, b


@pytest.mark.parametrize(("low", "high"), [(0.1, 1.0), (1.0, 1.5), (1e-3, 1.0), (0.5, 0.5), (2.0, 2.0001), (1e-6, 1.0)])
def test_suprema_are_what_the_derivation_says(low, high):
    """One unit injected at every step j, its increments and their sums on a grid of λ."""
    M, lam, poly = 22, np.linspace(low, high, 1501), Responses(low, high)
    a, b = coefficients(low, high, M)
    np.testing.assert_allclose([poly.a(k) for k in range(M)], a, rtol=1e-9)
    np.testing.assert_allclose([poly.b(k) for k in range(M)], b, rtol=1e-9, atol=1e-15)
    for j in range(M):
        r, p, w = np.ones_like(lam), np.zeros_like(lam), np.zeros_like(lam)
        for k in range(j, M):
            p = a[k] * r + b[k] * p
            w, r = w + p, r - lam * p
            seen, bound = np.abs(p).max(), poly.increments(k)[j]
            assert seen <= bound * (1 + 1e-9) + 1e-13
            assert bound <= 1.4 * seen + 1e-12, "the bound on increments is nearly attained"
            assert np.abs(w).max() <= (1 + 1e-9) / low, "never amplified beyond 1/low"
        np.testing.assert_allclose(poly.sums(M)[j], np.abs(w).max(), rtol=1e-6)


def setting(seed):
    """A random problem, half of them with clients that are not convex, a network and an interval."""
    rng = np.random.default_rng(seed)
    n, d, S, M = int(rng.integers(1, 7)), int(rng.integers(1, 6)), int(rng.integers(1, 25)), int(rng.integers(1, 40))
    A = rng.normal(size=(n, d, d))
    A = A @ A.swapaxes(1, 2) / d + 10 ** rng.uniform(-2, 0) * np.eye(d)
    if seed % 2 and n > 1:
        apart = rng.normal(size=(n, d, d)) * rng.uniform(0, 2)
        A = A + (apart + apart.swapaxes(1, 2)) - (apart + apart.swapaxes(1, 2)).mean(axis=0)
    problem = hgp.problems.Quadratic(A, np.zeros((n, d)), rng.normal(size=(n, 2, d)), rng.normal(size=(n, d)))
    x, lam = rng.normal(size=(n, d)), np.zeros((n, 2))
    eigenvalues = np.linalg.eigvalsh(A.mean(axis=0))
    interval = float(eigenvalues[0]) * rng.uniform(0.3, 1), float(eigenvalues[-1]) * rng.uniform(1, 2)
    net = hgp.networks.RandomDirected(n, seed=seed) if n > 1 else hgp.networks.SelfLoops(1)
    return problem, x, lam, net, S, M, interval


@pytest.mark.filterwarnings("ignore:not converged:RuntimeWarning")
@pytest.mark.parametrize("seed", range(40))
def test_no_run_is_worse_than_its_bound(seed):
    problem, x, lam, net, S, M, (low, high) = setting(seed)
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    K = exact.push_sum_matrices(net, S, M)[0]
    c = bounds.realised_constants(H, J, exact.outer_gradients(problem, x, lam)[0], 1.0, K)
    bound = bounds.bound_f(c, low, high)
    assert bound.applicable, bound.why
    try:
        est = hgp.hypergradient(
            problem, x, lam, hgp.PushSum(net, S), method=hgp.methods.Chebyshev(low, high), iterations=M
        )
    except hgp.DivergenceError:
        return
    error = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam), axis=1)
    rounding = 1e-11 * (1 + np.abs(est.value).max())
    assert np.linalg.norm(error) <= bound.total + rounding
    assert np.all(error <= bound.per_client + rounding)
    assert bound.total <= sum(bound.terms.values()) * (1 + 1e-12)


def test_with_exact_averages_it_is_the_classical_bound():
    problem, x, lam, _, _, _, _ = setting(4)
    n = problem.n_clients
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    f_x = exact.outer_gradients(problem, x, lam)[0]
    eigenvalues = np.linalg.eigvalsh(H.mean(axis=0))
    for M in (1, 5, 30):
        c = bounds.realised_constants(H, J, f_x, 1.0, np.full((M, n, n), 1 / n))
        F = bounds.bound_f(c, float(eigenvalues[0]), float(eigenvalues[-1]))
        classical = bounds.chebyshev(
            c.beta, c.g_bar / c.alpha_bar, eigenvalues[0], eigenvalues[-1], M, eigenvalues[[0, -1]]
        )
        np.testing.assert_allclose(F.per_client, classical.per_client, rtol=1e-6, atol=1e-14)


def test_a_single_point_is_the_series_with_one_over_it():
    """low = high: no momentum; F then bounds what B bounds, and is close to it."""
    A = np.stack([np.eye(3) * 2.0] * 4)
    problem = hgp.problems.Quadratic(A, np.zeros((4, 3)), np.ones((4, 1, 3)), np.arange(12.0).reshape(4, 3))
    x, lam, net = np.zeros((4, 3)), np.zeros((4, 1)), hgp.networks.RandomDirected(4, seed=1)
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    K = exact.push_sum_matrices(net, 3, 6)[0]
    c = bounds.realised_constants(H, J, exact.outer_gradients(problem, x, lam)[0], 0.5, K)
    F, B = bounds.bound_f(c, 2.0, 2.0), convex_mean(c)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 3), method=hgp.methods.Chebyshev(2.0, 2.0), iterations=6)
    error = np.linalg.norm(est.value - exact.hypergradient(problem, x, lam))
    assert error <= F.total <= 2 * B.total


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"low": 0.0}, "0 < low"),
        ({"low": 9.0}, "0 < low"),
        ({"low": 1.1}, "low <= smallest"),
        ({"high": 1.2}, "high >= largest"),
        ({"kept": True}, "rows of K"),
    ],
)
def test_it_says_what_is_missing(change, why):
    H = np.stack([np.diag([1.0, 2.0])] * 3)
    K = np.full((4, 3, 3), 1 / 3) * (1.1 if change.pop("kept", False) else 1.0)
    c = bounds.realised_constants(H, np.ones((3, 1, 2)), np.ones((3, 2)), 1.0, K)
    bound = bounds.bound_f(c, **{"low": 1.0, "high": 2.0, **change})
    assert not bound.applicable and why in bound.why


def test_what_overflows_is_not_a_number():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 3, 3)) * 50
    H = A + A.swapaxes(1, 2) - (A + A.swapaxes(1, 2)).mean(axis=0) + np.eye(3)
    K = np.stack([np.eye(4)] * 400)
    c = bounds.realised_constants(H, np.ones((4, 1, 3)), rng.normal(size=(4, 3)), 1.0, K)
    assert not bounds.bound_f(c, 1.0, 1.0).applicable


def test_without_a_gradient_there_is_no_error():
    H = np.stack([np.diag([1.0, 2.0])] * 3)
    c = bounds.realised_constants(H, np.ones((3, 1, 2)), np.zeros((3, 2)), 1.0, np.full((4, 3, 3), 1 / 3))
    assert bounds.bound_f(c, 1.0, 2.0).total == 0.0
