"""Every statement on the pool of settings, where it is attained, against numbers by hand, and by search."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgp_ref import bounds

from .all_checks import CHECKS
from .checks import below, constants
from .pool import attained_b, scalar
from .search import smallest_ratio
from .settings import push_sum, random_setting


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
def test_statement(check):
    check(bounds)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12), d=st.integers(1, 10), convex=st.booleans())
def test_no_violation(seed, n, d, convex):
    s = random_setting(seed, n=n, d=d, convex=convex)
    if not np.all(np.isfinite(s.w)):
        return
    c = constants(bounds, s)
    rounding = c.rounding * (1 + np.abs(s.w).max())
    both = bounds.best(bounds.contracting_clients(c), bounds.convex_mean(c))
    if both.applicable:
        below(s.errors, both.per_client, rounding)
        below(np.linalg.norm(s.errors), both.total, rounding)
    found = bounds.residual_bounds(s.H, s.J, s.f_x, s.w)
    below(s.errors, np.min([found.c1, found.c2, found.c3, found.c4], axis=0), rounding)


def attack(value):
    """bound/error of a setting where the error is far above rounding, infinite elsewhere."""

    def ratio(s):
        c = constants(bounds, s)
        errors = s.errors
        heard = errors > 1e6 * c.rounding
        if not np.all(np.isfinite(errors)) or not heard.any():
            return np.inf
        bound = value(c, s)
        return np.inf if bound is None else float(np.min(bound[heard] / errors[heard]))

    return ratio


ATTACKED = {
    "A": (lambda c, s: bounds.contracting_clients(c).per_client, True),
    "B": (lambda c, s: bounds.convex_mean(c).per_client, False),
    "C2": (lambda c, s: bounds.residual_bounds(s.H, s.J, s.f_x, s.w).c2, False),
    "C3": (lambda c, s: bounds.residual_bounds(s.H, s.J, s.f_x, s.w).c3, False),
}


@pytest.mark.parametrize("name", ATTACKED)
def test_an_optimiser_finds_no_violation(name):
    value, convex = ATTACKED[name]
    ratio, _ = smallest_ratio(attack(value), 2, 1, 1, 3, convex=convex, starts=1, seed=4, evaluations=1200)
    assert 1 - 1e-6 <= ratio < 1.5, "the search comes close to equality and not below it"


# ---- conditions


def test_a_failed_condition_has_no_number():
    s = scalar((0.5, 0.5), (1, 2), [np.array([[0.7, 0.2], [0.4, 0.4]])])  # rows do not sum to one, as with kept weights
    c = constants(bounds, s)
    for bound in (bounds.contracting_clients(c), bounds.convex_mean(c)):
        assert not bound.applicable and bound.total is None and bound.per_client is None
        assert "rows of K sum to 1 (off by 0.2)" in bound.why
    s = scalar((1.2, 1.1), (1, 2), [np.eye(2)])
    assert "alpha_bar > 0 (it is -0.3)" in bounds.convex_mean(constants(bounds, s)).why
    s = scalar((0.5, 0.5), (1, 2), [np.array([[1.2, -0.2], [0.5, 0.5]])])
    assert "non-negative (smallest entry -0.2)" in bounds.contracting_clients(constants(bounds, s)).why
    assert bounds.convex_mean(constants(bounds, s)).applicable, "B needs only rows that sum to one"
    both = bounds.best(*[bounds.contracting_clients(constants(bounds, scalar((1.2, 1.1), (1, 2), [np.eye(2)])))] * 2)
    assert not both.applicable and both.total is None and "alpha_bar" in both.why


def test_growth_beyond_floating_point_is_not_a_number():
    s = scalar((0.9, -50.0), (1, 1), [np.eye(2)] * 400)
    c = constants(bounds, s)
    for bound in (bounds.contracting_clients(c), bounds.convex_mean(c)):
        assert not bound.applicable and "beyond floating point" in bound.why


def test_printed_conditions_are_tested():
    s = attained_b()[-4]
    c = constants(bounds, s)
    assert "S large enough" in bounds.corollary1(c).why
    assert "rho < 1" in bounds.corollary1_repaired(dataclasses.replace(c, rho=1.0)).why
    samples = bounds.SampleConstants(1, 1, 1, 1, 0.5, 0.1, 1)
    for bound in (
        bounds.theorem1(c, samples, 2.0, consensus=0),
        bounds.corollary2(c, samples, 3, 2.0, consensus=0),
        bounds.minibatch_tail(c, samples, 3, 2.0),
    ):
        assert "0 < failure < 1 (it is 2)" in bound.why and bound.total is None
    assert "S large enough" in bounds.theorem2(c, 1, 1, 0.1, alpha=c.sigma_min, beta=1).why
    assert "high >= largest" in bounds.chebyshev(np.ones(2), 1.0, 0.5, 1.0, 3, (0.6, 1.1)).why
    assert "low <= smallest" in bounds.chebyshev(np.ones(2), 1.0, 0.7, 1.2, 3, (0.6, 1.1)).why
    with pytest.raises(ValueError, match="iterations must be at most 4, .* got 9"):
        bounds.contracting_clients(c, 9)
    with pytest.raises(ValueError, match="too far from the inner solution"):
        bounds.distance_to_solution(bounds.Lipschitz(0, 0, 0, 1.0), 0.5, 1.0)
    with pytest.raises(ValueError, match="nu_H must be a finite number >= 0, got -1"):
        bounds.Lipschitz(0, 0, 0, -1)


def test_theorem_1_is_false_as_printed():
    """H = diag(½, 3), η = 1, exact averages: α = ½ < 1/η, yet the error grows; A and B see it."""
    H = np.diag([0.5, 3.0])[None]
    for M, least in ((10, 1e2), (40, 1e11)):
        c = bounds.realised_constants(H, np.eye(2)[None], np.ones((1, 2)), 1.0, [np.eye(1)] * M)
        printed = bounds.corollary1(c)
        powers = np.linalg.matrix_power(np.eye(2) - H[0], M)
        error = np.linalg.norm(np.linalg.solve(H[0], powers @ np.ones(2)))
        assert printed.applicable and error > least and printed.total < 1e-2
        below(error, bounds.contracting_clients(c).total, 0)
        below(error, bounds.convex_mean(c).total, 0)


def test_constants_of_2star_belong_to_the_exact_solution():
    """H(x) = 1 + (x̂'s distance), J = 1, ∂_x f = 1: attained with ᾱ at x; half of the truth with ᾱ at x̂."""
    nu = bounds.Lipschitz(0.0, 0.0, 0.0, 1.0)
    here, there = 2.0, 1.0  # Hessian at x̂ and at x, which is 1 away
    w_hat, w_star = 1 / here, 1 / there
    actual = abs(w_hat - w_star)
    assert math.isclose(bounds.inexact_total(nu, 1.0, w_hat, 1.0, there), actual)
    assert math.isclose(bounds.inexact_total(nu, 1.0, w_hat, 1.0, here), actual / 2)
    gradient = (here + there) / 2  # mean gradient at x̂: the Hessian integrated along the way
    distance, modulus = bounds.distance_to_solution(bounds.Lipschitz(0, 0, 0, 1.0), gradient, here)
    assert np.isclose(distance, 1.0) and np.isclose(modulus, there), "Kantorovich finds both"
    assert gradient / here < 1.0, "the gradient over the Hessian at x̂ underestimates the way"


# ---- D by simulation, per-instance derivatives


def simulate(H, J, f_x, eta, K, size, shared, runs, rng):
    """v − d of many runs with batches drawn without replacement, (runs, n, d_lam)."""
    n, N = len(H), len(H[0])
    H, J = np.array(H), np.array(J)  # (n, N, ., d)
    who = np.arange(n)[None, :, None]

    def batch():
        return np.argsort(rng.random((runs, n, N)), axis=2)[:, :, :size]

    w_star = np.linalg.solve(H.mean(axis=(0, 1)), f_x.mean(axis=0))
    u, v = np.tile(f_x, (runs, 1, 1)), np.tile(J.mean(axis=1) @ w_star, (runs, 1, 1))
    for K_m in K:
        mean = np.einsum("ij,rjd->rid", K_m, u)
        for_v = batch()
        for_u = for_v if shared else batch()
        v = v - eta * np.einsum("rikab,rib->ria", J[who, for_v], mean) / size
        u = mean - eta * np.einsum("rikab,rib->ria", H[who, for_u], mean) / size
    return v


@pytest.mark.parametrize("shared", [False, True])
def test_d_covers(shared):
    rng = np.random.default_rng(5)
    n, N, d, size, failure = 3, 6, 2, 2, 0.1
    A = rng.normal(size=(n, N, d, d))
    H = 0.4 * np.eye(d) + 0.1 * A @ np.swapaxes(A, 2, 3)
    J, f_x, K = rng.normal(size=(n, N, 2, d)), rng.normal(size=(n, d)), push_sum(n, 5, 15, 0.5, rng)
    eta = 1 / np.linalg.eigvalsh(H).max()
    c = bounds.realised_constants(H.mean(axis=1), J.mean(axis=1), f_x, eta, K)
    s = bounds.sample_constants(list(H), list(J), eta)
    errors = np.linalg.norm(simulate(H, J, f_x, eta, K, size, shared, 400, rng), axis=2)  # (runs, n)
    exact = bounds.mean_square_error(list(H), list(J), f_x, eta, K, size, shared=shared)
    sample = np.sum(errors**2, axis=1)
    assert abs(sample.mean() - exact.total) < 5 * sample.std() / math.sqrt(400), "E is the mean of the squares"
    for form in ("azuma", "bernstein"):
        bound = bounds.minibatch_tail(c, s, size, failure, form=form, shared=shared)
        misses = np.linalg.norm(errors, axis=1) > bound.total
        assert misses.mean() <= failure
        assert np.all((errors > bound.per_client).mean(axis=0) <= failure)
        assert np.quantile(np.linalg.norm(errors, axis=1), 1 - failure) > bound.total / 100, "not absurdly loose"


def test_sample_derivatives_of_unequal_clients():
    class Ridge:
        """g_i = mean_k ½ (a_ik x)² + λ x: H^(s) = a², J = 1."""

        counts = np.array([3, 1])
        data = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])

        def hessian(self, x, lam, batch):
            return (self.data[np.arange(2)[:, None], batch] ** 2).mean(axis=1)[:, None, None]

        def jacobian(self, x, lam, batch):
            return np.ones((2, 1, 1))

    H, J = bounds.sample_derivatives(Ridge(), np.zeros((2, 1)), np.zeros((2, 1)))
    assert [a.ravel().tolist() for a in H] == [[1, 4, 9], [16]]
    assert [len(a) for a in J] == [3, 1]
    s = bounds.sample_constants(H, J, eta=0.1)
    assert math.isclose(s.kappa_x, 9 - 14 / 3) and s.kappa_lam == 0
    assert math.isclose(s.sigma_x, np.std([1, 4, 9])) and math.isclose(s.rho, 0.9) and s.alpha == 1 and s.beta == 1
