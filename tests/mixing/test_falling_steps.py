"""Decreasing steps: the derivation in the docstring, the bounds with them, and the rounds they save."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import logistic

import hgp_ref as hgp
from hgp_ref import bounds, exact


def matrices(net, steps):
    """K_m of calls of S_0, S_1, ... steps, written out."""
    W, made = iter(net.mixing_matrices(1, sum(steps))), []
    for S in steps:
        P = np.eye(net.n)
        for _ in range(S):
            P = next(W) @ P
        made.append(P / P.sum(axis=1, keepdims=True))
    return np.stack(made)


def test_the_line_ends_where_it_should():
    for S_0, M in ((10, 40), (7, 3), (1, 5), (3, 3)):
        steps = hgp.falling_steps(S_0, M)
        assert len(steps) == M and steps[0] == S_0 and min(steps) >= 1 and sorted(steps, reverse=True) == list(steps)
        assert sum(steps) <= S_0 * (M + 1) / 2 + M
    assert hgp.falling_steps(5, 4, slope=0.0) == (5, 5, 5, 5)


def test_equal_shares_of_the_sum_are_the_cheapest():
    """The Lagrange condition of the docstring, against random directions that keep the sum of bound A."""
    rho, tau, M, S_0 = 0.9, 0.6, 40, 14.0
    m = np.arange(M)
    c = (rho**m - rho**M) / (1 - rho)
    line = S_0 - m * np.log(1 / rho) / np.log(1 / tau)
    best = line + np.log((1 - rho ** (M - m)) / (1 - rho**M)) / np.log(1 / tau)
    np.testing.assert_allclose(tau**best * c, np.full(M, tau**S_0 * c[0]), rtol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = best + rng.normal(size=M)
        other += np.log(np.sum(tau**other * c) / np.sum(tau**best * c)) / np.log(1 / tau)  # the same sum
        assert other.sum() > best.sum()
    np.testing.assert_allclose(c, rho**m * (1 + rho * (1 - rho ** (M - 1 - m)) / (1 - rho)), rtol=1e-12)


def test_bounds_hold_with_any_steps_and_the_rounds_are_about_half():
    problem, x, lam = logistic(n=4)
    truth, f_x = exact.hypergradient(problem, x, lam), exact.outer_gradients(problem, x, lam)[0]
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    net = hgp.networks.RandomDirected(4, seed=5)
    for steps in (hgp.falling_steps(12, 60), hgp.falling_steps(4, 25), (1, 9, 2, 5, 3)):
        avg, M = hgp.PushSum(net, steps), len(steps)
        est = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=M)
        K = matrices(net, steps)
        np.testing.assert_allclose(est.value, exact.estimate(problem, x, lam, K, 1.0), rtol=1e-10)
        c = bounds.realised_constants(H, J, f_x, 1.0, K)
        error = np.linalg.norm(est.value - truth, axis=1)
        for bound in (bounds.contracting_clients(c), bounds.convex_mean(c)):
            assert np.all(error <= bound.per_client * (1 + 1e-9))
    falling, constant = hgp.PushSum(net, hgp.falling_steps(12, 60)), hgp.PushSum(net, 12)
    errors = [
        np.linalg.norm(hgp.hypergradient(problem, x, lam, a, eta=1.0, iterations=60).value - truth)
        for a in (falling, constant)
    ]
    assert errors[0] < 1.3 * errors[1]
    assert falling.traffic.rounds < 0.6 * constant.traffic.rounds


@pytest.mark.parametrize(("given", "name"), [((0, 3), "steps"), ((3, 0), "iterations"), ((3, 3, -1.0), "slope")])
def test_bad_arguments_are_named(given, name):
    with pytest.raises(ValueError, match=f"{name} must be .*, got"):
        hgp.falling_steps(*given)
