"""`Constants.rounding`: at converged runs, where bounds are far below rounding, it covers what float64 adds."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref import bounds

from .settings import push_sum


def literal_run(H, J, f_x, f_lam, K, eta):
    """v by the lines of Algorithm 2, added up iteration by iteration."""
    u, v = f_x, f_lam
    for K_m in K:
        mean = K_m @ u
        v = v - eta * np.einsum("iab,ib->ia", J, mean)
        u = mean - eta * np.einsum("iab,ib->ia", H, mean)
    return v


def stepping_run(H, J, f_x, f_lam, W, calls, eta):
    """The same with Push-Sum step by step, W (S, n, n) in every call."""
    u, v = f_x, f_lam
    for _ in range(calls):
        z, omega = u, np.ones(len(u))
        for W_s in W:
            z, omega = W_s @ z, W_s @ omega
        mean = z / omega[:, None]
        v = v - eta * np.einsum("iab,ib->ia", J, mean)
        u = mean - eta * np.einsum("iab,ib->ia", H, mean)
    return v


def problem(n, d, seed, condition=10.0, cross=1.0, outer=1.0):
    """H with eigenvalues in [1/condition, 1], J of size `cross`, ∂_λ f of size `outer`, and the true hyper-gradient."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(n, d, d)))[0]
    H = (basis * np.geomspace(1 / condition, 1, d)) @ np.swapaxes(basis, 1, 2)
    H = (H + np.swapaxes(H, 1, 2)) / 2
    J, f_x, f_lam = cross * rng.normal(size=(n, 3, d)), rng.normal(size=(n, d)), outer * rng.normal(size=(n, 3))
    truth = f_lam - J @ np.linalg.solve(H.sum(axis=0), f_x.sum(axis=0))
    return H, J, f_x, f_lam, truth


@pytest.mark.parametrize(
    ("n", "d", "M", "cross", "outer"),
    [
        (1, 1, 60, 1.0, 1.0),
        (3, 5, 400, 1.0, 1.0),
        (3, 5, 400, 1e-8, 1.0),
        (3, 2, 300, 1.0, 1e9),
        (30, 15, 300, 1.0, 1.0),
    ],
)
def test_exact_averaging(n, d, M, cross, outer):
    H, J, f_x, f_lam, truth = problem(n, d, n + d, cross=cross, outer=outer)
    K = np.full((M, n, n), 1 / n)
    error = np.linalg.norm(literal_run(H, J, f_x, f_lam, K, 1.0) - truth)
    c = bounds.realised_constants(H, J, f_x, 1.0, K, f_lam=f_lam)
    for bound in (bounds.contracting_clients(c), bounds.convex_mean(c)):
        assert error <= bound.total + c.rounding
    assert c.rounding <= 1e-9 * (np.linalg.norm(truth) + np.linalg.norm(f_lam)), "and not more than rounding can be"


def test_outer_gradients_were_not_covered():
    """∂_λ f of size 1 beside a J of size 1e-8: errors of 1e-16 that A, B and J alone do not explain."""
    H, J, f_x, f_lam, truth = problem(3, 5, 8, cross=1e-8)
    K = np.full((400, 3, 3), 1 / 3)
    error = np.linalg.norm(literal_run(H, J, f_x, f_lam, K, 1.0) - truth)
    without, with_it = (bounds.realised_constants(H, J, f_x, 1.0, K, f_lam=f).rounding for f in (None, f_lam))
    bound = bounds.convex_mean(bounds.realised_constants(H, J, f_x, 1.0, K)).total
    assert bound + without < error <= bound + with_it


@pytest.mark.parametrize(("n", "S"), [(3, 100), (30, 300)])
def test_many_steps(n, S):
    """Push-Sum in S steps: the realised K is a rounded one, and each step adds its own rounding."""
    rng = np.random.default_rng(n)
    A = (rng.random((S, n, n)) < 0.5) | np.eye(n, dtype=bool)
    W = A / A.sum(axis=1, keepdims=True)
    P = np.linalg.multi_dot(W[::-1]) if n < 10 else _product(W)
    K, M = np.repeat((P / P.sum(axis=1, keepdims=True))[None], 300, axis=0), 300
    H, J, f_x, f_lam, truth = problem(n, 10, 1)
    error = np.linalg.norm(stepping_run(H, J, f_x, f_lam, W, M, 1.0) - truth)
    c = bounds.realised_constants(H, J, f_x, 1.0, K, f_lam=f_lam, steps=S)
    assert error <= bounds.contracting_clients(c).total + c.rounding
    assert error <= bounds.convex_mean(c).total + c.rounding
    assert c.rounding > bounds.realised_constants(H, J, f_x, 1.0, K, f_lam=f_lam).rounding


def _product(W):
    P = np.eye(W.shape[-1])
    for W_s in W:
        P = W_s @ P
    return P


def test_it_is_infinite_without_a_solution():
    c = bounds.realised_constants(-np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 1)), 0.5, [np.eye(1)])
    assert c.rounding == np.inf and not bounds.convex_mean(c).applicable


# ---- conditioning and scales


@pytest.mark.parametrize("condition", [1e4, 1e8, 1e12])
def test_ill_conditioned_means(condition):
    """ḡ along the eigenvector of λ_min(H̄): the truncation is the whole error, and ᾱ's own rounding decides."""
    for seed in range(20):
        H, J, f_x, f_lam, _ = problem(2, 3, seed, condition)
        H = np.repeat(H[:1], 2, axis=0)
        vectors = np.linalg.eigh(H[0])[1]
        f_x = np.repeat(vectors[:, :1].T, 2, axis=0)
        J = np.repeat(np.outer([1.0, 0, 0], vectors[:, 0])[None], 2, axis=0)
        error = np.sqrt(2) * condition  # of w = 0: H has the eigenvalue 1/condition
        K = np.full((1, 2, 2), 0.5)
        c = bounds.realised_constants(H, J, f_x, 1e-3, K, f_lam=f_lam)
        for bound in (bounds.contracting_clients(c), bounds.convex_mean(c)):
            assert error * (1 - 1e-3 / condition) <= (bound.total + c.rounding) * (1 + 1e-9)


@pytest.mark.parametrize("h", [-150, 0, 150])
@pytest.mark.parametrize("j", [-150, 0, 150])
@pytest.mark.parametrize("f", [-150, 0, 150])
def test_scales_change_nothing(h, j, f):
    """Bounds are homogeneous: in other units they are the same number in these units, or say why they are none."""
    H, J, f_x, _, _ = problem(3, 4, 5)
    K = push_sum(3, 3, 20, 0.5, np.random.default_rng(1))
    unit_h, unit_j, unit_f = (2.0 ** round(e / np.log10(2)) for e in (h, j, f))
    plain = bounds.realised_constants(H, J, f_x, 0.7, K)
    c = bounds.realised_constants(unit_h * H, unit_j * J, unit_f * f_x, 0.7 / unit_h, K)
    for function in (bounds.contracting_clients, bounds.convex_mean, bounds.corollary1_repaired):
        wanted, found = function(plain), function(c)
        if not wanted.applicable:
            assert not found.applicable
            continue
        if abs(f + j - h) <= 300:
            assert found.applicable
            assert np.isclose(found.total / unit_j * (unit_h / unit_f), wanted.total, rtol=1e-12, atol=0)
        elif f + j - h > 300:
            assert not found.applicable and "floating point" in found.why
        else:
            assert found.total > 0, "never 0 for an error that is not"


def test_residual_bounds_at_the_ends_of_the_range():
    H, J, f_x, _, _ = problem(3, 4, 5)
    w = np.random.default_rng(0).normal(size=(3, 4))
    plain = bounds.residual_bounds(H, J, f_x, w)
    for h, j, f in ((500, 0, 0), (-500, 0, -500), (500, 500, 500), (0, -500, 500)):
        unit_h, unit_j, unit_f = 2.0**h, 2.0**j, 2.0**f
        found = bounds.residual_bounds(unit_h * H, unit_j * J, unit_f * f_x, unit_f / unit_h * w)
        for name in ("identity", "c1", "c2", "c3", "c4"):
            assert np.allclose(getattr(found, name) / (unit_j * (unit_f / unit_h)), getattr(plain, name), rtol=1e-12)
