"""What must hold of certificates and of constants, as functions of the package under test."""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace

import numpy as np

import hgp_ref as hgp
from hgp_ref import exact

SLACK = 1 + 1e-9


def estimate_of(value, w, avg=None, iterations=0):
    """An estimate that some solver, any solver, ended with."""
    return SimpleNamespace(value=value, w=w, averaging=avg, iterations=iterations)


def logistic(n, d, seed, *, N=12, scale=1.0):
    """(problem, lam)."""
    rng = np.random.default_rng(seed)
    X, Xv = scale * rng.normal(size=(n, N, d)), rng.normal(size=(n, 6, d))
    y, yv = ((rng.random(shape) < 0.5).astype(float) for shape in ((n, N), (n, 6)))
    return hgp.problems.LogisticRegression(X, y, Xv, yv), 0.05 + 0.3 * rng.random((n, d))


def quadratic(n, d, seed, *, convex=True):
    """(problem, lam), with ∂_λ f that depends on x."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d, d))
    A = 0.3 * np.eye(d) + A @ np.swapaxes(A, 1, 2)
    if not convex:
        B = rng.normal(size=(n, d, d))
        A = A + (lambda s: s - s.mean(axis=0))(B + np.swapaxes(B, 1, 2))
    b, C, t = rng.normal(size=(n, d)), rng.normal(size=(n, 2, d)), rng.normal(size=(n, d))
    D = rng.normal(size=(n, 2, d))
    return hgp.problems.Quadratic(A, b, C, t, coupling=D), rng.normal(size=(n, 2))


@cache
def cases():
    """(problem, lam, x(λ), truth, averaging, w) with arbitrary w: certificates do not care where w comes from."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 8)), int(rng.integers(1, 5))
        problem, lam = (logistic if seed % 2 else quadratic)(n, d, seed)
        x = exact.inner_solution(problem, lam)
        truth = exact.hypergradient(problem, x, lam)
        net = hgp.networks.RandomDirected(n, 0.4, 0.8, seed=seed)
        avg = hgp.ExactAverage(n) if seed % 7 == 0 else hgp.PushSum(net, steps=int(rng.integers(1, 12)))
        H = exact.hessians(problem, x, lam)
        f_x = exact.outer_gradients(problem, x, lam)[0]
        w_star = np.linalg.solve(H.sum(axis=0), f_x.sum(axis=0))
        w = w_star + 10 ** rng.uniform(-4, 0) * (
            rng.normal(size=d) + 10 ** rng.uniform(-3, 1) * rng.normal(size=(n, d))
        )
        found.append((problem, lam, x, truth, avg, w))
    return found


def value_of(problem, x, lam, w):
    return problem.outer_grad(x, lam)[1] - problem.linearize(x, lam).cross(w)


def check_certificate(b):
    """Every form bounds the error, also when v has noise that w does not explain."""
    for number, (problem, lam, x, truth, avg, w) in enumerate(cases()):
        noise = 0.0 if number % 3 else 0.1
        value = value_of(problem, x, lam, w) + noise * np.random.default_rng(number).normal(size=truth.shape)
        found = b.certify(problem, x, lam, estimate_of(value, w, avg, 3), avg)
        errors = np.linalg.norm(value - truth, axis=1)
        plain = np.linalg.norm(value_of(problem, x, lam, w) - truth, axis=1)
        for bound in (found.c1, found.c2, found.c3, found.c4):
            assert np.all(plain <= bound * SLACK + found.rounding)
        for bound in (found.centralised, found.decentralised, found.bound, found.decentralised_bound):
            assert np.all(errors <= bound * SLACK)
        assert np.allclose(found.identity, plain, rtol=1e-7, atol=1e-12)
        assert found.against == "the hyper-gradient at the exact inner solution"
        assert np.all(found.centralised >= found.consistency) and np.all(found.c2 <= found.c1 * SLACK)


def check_certificate_is_attained(b):
    """d = 1, equal Hessians, exact averages: C1, C2, C4 equal the error of the client beyond the centre."""
    ones = np.ones((2, 1, 1))
    problem = hgp.problems.Quadratic(2 * ones, np.zeros((2, 1)), 3 * ones, np.array([[-4.0], [-6.0]]))
    lam, x, w = np.zeros((2, 1)), np.zeros((2, 1)), np.array([[0.0], [1.0]])  # ∂f = 4, 6: w* = 2.5, centre ½
    found = b.certify(problem, x, lam, estimate_of(value_of(problem, x, lam, w), w), hgp.ExactAverage(2), first_call=0)
    assert np.allclose(found.c1, [7.5, 4.5]) and np.allclose(found.c2, [7.5, 4.5])
    assert np.allclose(found.c4, [3 * (2 + 0.5)] * 2)
    assert np.allclose(found.c3, [3 * (2 + 0.5)] * 2)
    # unequal Hessians 1, 3 (middle 2, z = 1): δ = ½, coupling ½·1, r̄ = 5 − mean(H w) = 3.5, ᾱ = 2
    A = np.array([1.0, 3.0]).reshape(2, 1, 1)
    problem = hgp.problems.Quadratic(A, np.zeros((2, 1)), 3 * ones, np.array([[-4.0], [-6.0]]))
    found = b.certify(problem, x, lam, estimate_of(value_of(problem, x, lam, w), w), hgp.ExactAverage(2), first_call=0)
    assert math.isclose(found.alpha_bar, 2)
    assert np.allclose(found.c3, [3 * (3.5 / 2 + 0.5 + 0.25)] * 2)
    assert np.allclose(found.c4, [3 * (4 / 2 + 0.5)] * 2)


def check_certificate_by_hand(b):
    """C3 and C4 with one step of Push-Sum, which is far from the mean, by the phases written out with matrices."""
    H = np.array([np.diag([1.0, 4.0]), np.diag([2.0, 2.5])])
    f_x, w = np.array([[4.0, 1.0], [6.0, -1.0]]), np.array([[0.5, 1.0], [2.0, -1.0]])
    problem = hgp.problems.Quadratic(H, np.zeros((2, 2)), np.tile(3 * np.eye(2), (2, 1, 1)), -f_x)
    lam, x = np.zeros((2, 2)), np.zeros((2, 2))
    P = np.array([[0.9, 0.2], [0.1, 0.8]])
    avg = hgp.PushSum(hgp.networks.Schedule([P]), 1)
    found = b.certify(problem, x, lam, estimate_of(value_of(problem, x, lam, w), w), avg, first_call=0)
    K = P / P.sum(axis=1, keepdims=True)
    r = f_x - np.einsum("iab,ib->ia", H, w)
    box = K @ w
    centre = (box.min(axis=0) + box.max(axis=0)) / 2
    half = (box.max(axis=0) - box.min(axis=0)) / 2
    delta = np.linalg.norm(np.abs(w - centre) + half, axis=1)
    alpha = (K @ np.array([1.0, 2.0])).min()
    coupling = (K @ (np.array([1.5, 0.5]) * delta)).max()  # spectra 1 … 4 and 2 … 2.5, middle 2.5
    r_c = f_x - np.einsum("iab,b->ia", H, centre)
    c3 = 3 * (np.linalg.norm(K @ r, axis=1).max() / alpha + delta + coupling / alpha)
    c4 = 3 * (np.linalg.norm(K @ r_c, axis=1).max() / alpha + np.linalg.norm(w - centre, axis=1))
    assert np.allclose(found.c3, c3, rtol=1e-12) and np.allclose(found.c4, c4, rtol=1e-12)


def check_inexact_certificate_with_rows_apart(b):
    """Rows ±0.3 around the solution: the mean gradient vanishes there and only the gap explains the difference."""
    ones = np.ones((2, 1, 1))
    problem = hgp.problems.Quadratic(2 * ones, np.ones((2, 1)), ones, np.zeros((2, 1)), coupling=5 * ones)
    lam = np.zeros((2, 1))
    x = exact.inner_solution(problem, lam) + np.array([[0.3], [-0.3]])
    w = np.full((2, 1), 0.25)  # w* = H̄⁻¹ ḡ, and ḡ = ½ at the solution as at x
    found = b.certify(problem, x, lam, estimate_of(value_of(problem, x, lam, w), w), hgp.ExactAverage(2), first_call=0)
    truth = exact.hypergradient(problem, exact.inner_solution(problem, lam), lam)
    errors = np.linalg.norm(value_of(problem, x, lam, w) - truth, axis=1)
    assert np.allclose(errors, 1.5)  # 5 · 0.3
    assert np.allclose(found.inexact, 5 * 0.3 + 1 * 0.3 / 2) and np.allclose(found.decentralised_inexact, found.inexact)
    assert np.all(errors <= found.bound) and np.all(errors <= found.decentralised_bound)


def check_inexact_certificate(b):
    """At a wrong x, rows apart, the bound still holds against the hyper-gradient at the exact solution."""
    for number, (problem, lam, x, truth, avg, w) in enumerate(cases()):
        rng = np.random.default_rng(number)
        away = x + 10 ** rng.uniform(-4, -0.5) * (
            rng.normal(size=x.shape[1]) + rng.integers(0, 2) * rng.normal(size=x.shape)
        )
        value = value_of(problem, away, lam, w)
        found = b.certify(problem, away, lam, estimate_of(value, w, avg, 0), avg)
        errors = np.linalg.norm(value - truth, axis=1)
        assert np.all(errors <= found.bound * SLACK) and np.all(errors <= found.decentralised_bound * SLACK)
        moved = np.linalg.norm(exact.hypergradient(problem, away, lam) - truth, axis=1)
        assert np.all(moved <= found.inexact * SLACK) and np.all(moved <= found.decentralised_inexact * SLACK)


def check_lipschitz(problems):
    """The closed forms hold along random segments and are not far above the largest ratios found."""
    for name, kind in (("logistic", "rates"), ("softmax", "rates"), ("binary", "weights"), ("softmax", "weights")):
        problem, lam = linear_problem(name, kind, problems)
        nu = problem.lipschitz(lam)
        largest_ratio = dict.fromkeys(("nu_fx", "nu_flam", "nu_J", "nu_H"), 0.0)
        rng = np.random.default_rng(1)
        for _ in range(300):
            x = rng.normal(size=(2, problem.dim_x)) * 10 ** rng.uniform(-1, 1)
            step = rng.normal(size=x.shape) * 10 ** rng.uniform(-4, 0)
            length = np.linalg.norm(step, axis=1)
            pairs = [
                (
                    exact.outer_gradients(problem, p, lam),
                    exact.jacobians(problem, p, lam),
                    exact.hessians(problem, p, lam),
                )
                for p in (x, x + step)
            ]
            ((fx, fl), J, H), ((fx2, fl2), J2, H2) = pairs
            now = {
                "nu_fx": np.linalg.norm(fx2 - fx, axis=1),
                "nu_flam": np.linalg.norm(fl2 - fl, axis=1),
                "nu_J": np.linalg.norm(J2 - J, 2, axis=(1, 2)),
                "nu_H": np.linalg.norm(H2 - H, 2, axis=(1, 2)),
            }
            largest_ratio = {k: max(largest_ratio[k], float((now[k] / length).max())) for k in largest_ratio}
            low = np.linalg.eigvalsh(H.mean(axis=0))[0]
            assert low >= nu.strong_convexity * (1 - 1e-9)
        for k, largest in largest_ratio.items():
            assert largest <= getattr(nu, k) * (1 + 1e-6), (name, kind, k)
            assert getattr(nu, k) <= 12 * largest + 1e-12, (name, kind, k)


def linear_problem(name, kind, problems=hgp.problems):
    rng = np.random.default_rng(2)
    n, N, d = 2, 4, 2
    X, Xv = rng.normal(size=(n, N, d)), rng.normal(size=(n, N, d))
    y, yv = (rng.integers(0, 3 if name == "softmax" else 2, size=(n, N)).astype(float) for _ in range(2))
    if kind == "rates":
        cls = problems.SoftmaxRegression if name == "softmax" else problems.LogisticRegression
        problem = cls(X, y, Xv, yv)
    else:
        problem = problems.InstanceWeights(X, y, Xv, yv, loss=name, l2=0.1)
    return problem, rng.uniform(0.5, 1.5, size=(n, problem.dim_lam))


def scalar(h, f_x):
    """(problem, x, lam) with Hessians h_i, ∂²_{xλ} g = 1 and ∂_x f = f_x, (n,) each, in one dimension."""
    n = len(h)
    ones = np.ones((n, 1, 1))
    problem = hgp.problems.Quadratic(h[:, None, None] * ones, np.zeros((n, 1)), ones, np.zeros((n, 1)))
    return problem, np.asarray(f_x, dtype=float)[:, None], np.zeros((n, 1))


@cache
def lossy_cases():
    """(what is decided by a box alone, problem, x, lam, w, averaging): few steps over links that lose and delay.

    mean w      H_i = 1, w_i = ∂_x f_i:  no client has a residual, and the error is |w_i − w̄|
    residual    H_i = 1, w_i = 0:        the error is |mean ∂_x f|
    curvature   ∂_x f_i = 1, w_i = 0:    the error is 1 / mean H
    """
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 5))
        inner = hgp.networks.RandomDirected(n, 0.4, 0.8, seed=seed)
        rule = dict(loss=float(rng.choice([0.1, 0.3, 0.6])), delay=int(rng.integers(0, 4)), seed=seed)
        avg = hgp.RobustPushSum(hgp.networks.Unreliable(inner, **rule), int(rng.integers(1, 6)))
        ones, numbers, positive = np.ones(n), rng.normal(size=n), rng.uniform(0.1, 3.0, n)
        for what, h, f_x, w in (("mean w", ones, numbers, numbers), ("residual", ones, numbers, 0 * ones),
                                ("curvature", positive, ones, 0 * ones)):  # fmt: skip
            found.append((what, *scalar(h, f_x), w[:, None], avg))
    return found


def check_certificates_over_links_that_lose(certificates):
    """C3 and C4 of the clients, where each of their boxes alone decides; it would be passed without boxes otherwise."""
    closest = dict.fromkeys(("mean w", "residual", "curvature"), np.inf)
    for what, problem, x, lam, w, avg in lossy_cases():
        f_lam = exact.outer_gradients(problem, x, lam)[1]
        value = f_lam - np.einsum("nij,nj->ni", exact.jacobians(problem, x, lam), w)
        certificate = certificates.certify(problem, x, lam, estimate_of(value, w), avg, first_call=0)
        error = np.linalg.norm(value - exact.hypergradient(problem, x, lam), axis=1)
        assert np.all(error <= certificate.decentralised * SLACK), what
        closest[what] = min(closest[what], np.min(certificate.decentralised / np.maximum(error, 1e-300)))
    assert max(closest.values()) < 1.05, closest  # close enough that a box a little too small is detected


CHECKS = [
    check_certificate,
    check_certificate_is_attained,
    check_certificate_by_hand,
    check_inexact_certificate_with_rows_apart,
    check_inexact_certificate,
    check_certificates_over_links_that_lose,
]  # of hgp_ref.certificates
PROBLEM_CHECKS = [check_lipschitz]  # of hgp_ref.problems
