"""Bound F: its suprema against fine grids, the bound against runs, and its limiting cases."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import bounds, exact
from hgp_ref.bounds.series import Responses, convex_mean


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
def test_suprema_are_those_of_the_derivation(low, high):
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
            assert np.abs(r).max() <= poly.residuals(k + 1)[j] * (1 + 1e-9) + 1e-13
            assert poly.residuals(k + 1)[j] <= 1.01 * np.abs(r).max() + 1e-9 or j == 0, "attained at one of the ends"
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
    bound = bounds.chebyshev_push_sum(c, low, high)
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
        F = bounds.chebyshev_push_sum(c, float(eigenvalues[0]), float(eigenvalues[-1]))
        classical = bounds.chebyshev(
            c.beta, c.g_bar / c.alpha_bar, eigenvalues[0], eigenvalues[-1], M, eigenvalues[[0, -1]]
        )
        assert np.all(F.per_client >= classical.per_client * (1 - 1e-6))
        assert np.all(F.per_client <= classical.per_client * (1 + 1e-6) + F.terms["rounding"])
        assert F.terms["rounding"] <= 1e-11 * np.linalg.norm(c.beta) * c.g_bar / c.alpha_bar
        assert np.isclose(F.terms["truncation"], np.sqrt(n) * classical.per_client.max(), rtol=1e-6)


def test_a_single_point_is_the_series_with_one_over_it():
    """low = high: no momentum; F then bounds what B bounds, and is close to it."""
    A = np.stack([np.eye(3) * 2.0] * 4)
    problem = hgp.problems.Quadratic(A, np.zeros((4, 3)), np.ones((4, 1, 3)), np.arange(12.0).reshape(4, 3))
    x, lam, net = np.zeros((4, 3)), np.zeros((4, 1)), hgp.networks.RandomDirected(4, seed=1)
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    K = exact.push_sum_matrices(net, 3, 6)[0]
    c = bounds.realised_constants(H, J, exact.outer_gradients(problem, x, lam)[0], 0.5, K)
    F, B = bounds.chebyshev_push_sum(c, 2.0, 2.0), convex_mean(c)
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
def test_failed_conditions_are_named(change, why):
    H = np.stack([np.diag([1.0, 2.0])] * 3)
    K = np.full((4, 3, 3), 1 / 3) * (1.1 if change.pop("kept", False) else 1.0)
    c = bounds.realised_constants(H, np.ones((3, 1, 2)), np.ones((3, 2)), 1.0, K)
    bound = bounds.chebyshev_push_sum(c, **{"low": 1.0, "high": 2.0, **change})
    assert not bound.applicable and why in bound.why


def test_what_overflows_is_not_a_number():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 3, 3)) * 50
    H = A + A.swapaxes(1, 2) - (A + A.swapaxes(1, 2)).mean(axis=0) + np.eye(3)
    K = np.stack([np.eye(4)] * 400)
    c = bounds.realised_constants(H, np.ones((4, 1, 3)), rng.normal(size=(4, 3)), 1.0, K)
    assert not bounds.chebyshev_push_sum(c, 1.0, 1.0).applicable


def test_an_interval_so_wide_that_q_rounds_to_one():
    """κ = 1e30: q = 1 in float64, but 1 − q² = 4e-15 does not vanish, and the bound is a finite number."""
    H = np.stack([np.diag([1.0, 2.0])] * 3)
    c = bounds.realised_constants(H, np.ones((3, 1, 2)), np.ones((3, 2)), 1.0, np.full((4, 3, 3), 1 / 3))
    bound = bounds.chebyshev_push_sum(c, 1.0, 1e30)
    assert bound.applicable and np.isfinite(bound.total) and bound.terms["truncation"] >= np.sqrt(3) * (1 - 1e-9)


def test_without_a_gradient_there_is_no_error():
    H = np.stack([np.diag([1.0, 2.0])] * 3)
    c = bounds.realised_constants(H, np.ones((3, 1, 2)), np.zeros((3, 2)), 1.0, np.full((4, 3, 3), 1 / 3))
    assert bounds.chebyshev_push_sum(c, 1.0, 2.0).total == 0.0


# ---- rounding


def far_apart(seed):
    """Clients that are not convex and far from each other, whose mean is known: runs end at rounding."""
    rng = np.random.default_rng(seed)
    n, d, S, M = int(rng.integers(2, 7)), int(rng.integers(1, 6)), int(rng.integers(5, 30)), int(rng.integers(1, 60))
    condition = 1.0 if seed % 3 == 0 else 10 ** rng.uniform(0, 4)
    basis, spectrum = np.linalg.qr(rng.normal(size=(d, d)))[0], np.geomspace(1 / condition, 1, d)
    apart = rng.normal(size=(n, d, d)) * 10 ** rng.uniform(-2, 10) / condition
    apart = apart + apart.swapaxes(1, 2) - (apart + apart.swapaxes(1, 2)).mean(axis=0)
    A = (np.eye(d) if condition == 1 else (basis * spectrum) @ basis.T) + apart
    A = (A + A.swapaxes(1, 2)) / 2
    D = rng.normal(size=(n, 2, d)) * 10 ** rng.uniform(-8, 3)
    problem = hgp.problems.Quadratic(
        A, np.zeros((n, d)), rng.normal(size=(n, 2, d)), rng.normal(size=(n, d)), coupling=D
    )
    x, lam = rng.normal(size=(n, d)), np.zeros((n, 2))
    avg = hgp.ExactAverage(n) if seed % 2 else hgp.PushSum(hgp.networks.RandomDirected(n, seed=seed), S)
    K = np.full((M, n, n), 1 / n) if seed % 2 else exact.push_sum_matrices(avg.net, S, M)[0]
    interval = (1.0, 1.0) if condition == 1 else (float(spectrum[0]), float(spectrum[-1]))
    f_x, f_lam = exact.outer_gradients(problem, x, lam)
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    c = bounds.realised_constants(H, J, f_x, 1.0, K, f_lam=f_lam, steps=1 if seed % 2 else S)
    return problem, x, lam, avg, M, interval, c


@pytest.mark.filterwarnings("ignore:not converged:RuntimeWarning")
def test_rounding_is_part_of_the_bound():
    """No allowance here beside the bound; without its rounding term it is exceeded often, and is 0 where low = high."""
    exceeded, zero, tried = 0, 0, 0
    for seed in range(120):
        problem, x, lam, avg, M, (low, high), c = far_apart(seed)
        bound = bounds.chebyshev_push_sum(c, low, high)
        if not bound.applicable:
            continue
        try:
            method = hgp.methods.Chebyshev(low, high)
            est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=M)
            truth = exact.hypergradient(problem, x, lam)
        except (hgp.DivergenceError, ValueError):
            continue
        error = np.linalg.norm(est.value - truth, axis=1)
        assert np.linalg.norm(error) <= bound.total and np.all(error <= bound.per_client)
        assert bound.total <= sum(bound.terms.values()) * (1 + 1e-12)
        without = bound.total - bound.terms["rounding"]
        tried, exceeded = tried + 1, exceeded + (np.linalg.norm(error) > without)
        zero += without <= 1e-200 and np.linalg.norm(error) > 1e-16
    assert tried > 60 and exceeded > 10 and zero > 3


def rounding(low=0.5, high=2.0, M=20, **changes):
    """The rounding term of a plain setting with one thing changed."""
    settings = {"n": 3, "d": 2, "steps": 1, "f_lam": 0.0, "f_x": 1.0, "J": 1.0, "apart": 0.0} | changes
    n, d = settings["n"], settings["d"]
    matrices = np.stack([np.diag(np.linspace(0.6, 1.8, d))] * n)
    matrices[0] += settings["apart"] * np.eye(d)
    matrices[1] -= settings["apart"] * np.eye(d)
    c = bounds.realised_constants(
        matrices, np.full((n, 1, d), settings["J"]), np.full((n, d), settings["f_x"]), 1.0, np.full((M, n, n), 1 / n),
        f_lam=np.full((n, 1), settings["f_lam"]), steps=settings["steps"],
    )  # fmt: skip
    return bounds.chebyshev_push_sum(c, low, high).terms["rounding"]


def test_what_the_rounding_term_grows_with():
    plain = rounding()
    assert 1e-16 < plain < 1e-11
    for change, least in (
        ({"steps": 100}, 5.0), ({"n": 30}, 2.0), ({"d": 20}, 30.0), ({"f_lam": 1e3}, 10.0), ({"apart": 1e3}, 100.0),
        ({"M": 200}, 1.2), ({"low": 1e-3}, 10.0), ({"J": 7.0}, 6.9), ({"f_x": 7.0}, 6.9),
    ):  # fmt: skip
        assert rounding(**change) > least * plain, change
    assert np.isclose(rounding(f_x=2.0**300, J=2.0**-200), 2.0**100 * plain, rtol=1e-9)


def test_a_spectrum_outside_by_rounding_counts():
    """low = high = 1 for a mean of 1 + 4e-14 beside clients of 100: allowed as rounding, which must then hold it."""
    H = np.stack([np.eye(1) * (1 + 4e-14 + 100), np.eye(1) * (1 + 4e-14 - 100)])
    c = bounds.realised_constants(H, np.ones((2, 1, 1)), np.ones((2, 1)), 1.0, np.full((1, 2, 2), 0.5))
    bound = bounds.chebyshev_push_sum(c, 1.0, 1.0)
    outside = c.L_bar - 1 + 4 * 3 * np.finfo(float).eps * 101
    assert bound.applicable and bound.terms["rounding"] >= np.sqrt(2) * outside
    wide = bounds.chebyshev_push_sum(c, 0.9, 1.1)
    assert wide.terms["rounding"] < bound.terms["rounding"]
    twice = bounds.realised_constants(H, np.ones((2, 1, 1)), np.ones((2, 1)), 1.0, np.full((2, 2, 2), 0.5))
    outside *= np.sqrt(2)
    more = (
        bounds.chebyshev_push_sum(twice, 1.0, 1.0).terms["rounding"]
        - bounds.chebyshev_push_sum(twice, 0.99, 1.01).terms["rounding"]
    )
    assert more >= 1.5 * outside, "once in w*, once injected"


@pytest.mark.parametrize("M", [2, 3, 4])
def test_disagreement_that_grows_by_the_curvature_of_single_clients_is_bounded(M):
    """Two of 20 clients have H_i = 10 and opposite gradients, and nothing is averaged. H̄ = 1, but their terms grow."""
    H, f_x = np.zeros((20, 1, 1)), np.zeros((20, 1))
    H[:2], f_x[:2, 0] = 10.0, (1.0, -1.0)
    c = bounds.realised_constants(H, np.ones((20, 1, 1)), f_x, 1.0, [np.eye(20)] * M)
    w, r = np.zeros_like(f_x), f_x
    for _ in range(M):  # p = r, since low = high = 1
        w, r = w + r, r - H[:, 0] * r
    bound = bounds.chebyshev_push_sum(c, 1.0, 1.0)
    assert bound.applicable and np.linalg.norm(w) <= bound.total  # w* = 0
    assert np.all(np.linalg.norm(w, axis=1) <= bound.per_client)
