"""What must hold of 2*, Chebyshev, the worst case, Lemma 2 and the printed statements (see `checks`)."""

from __future__ import annotations

import math

import numpy as np

from .checks import below
from .pool import pool


def check_inexact(b):
    """Scalar problems on which each constant alone explains the whole difference, then all together at random."""
    e = np.array([0.3, -0.1])  # x̂ − x for two clients
    zero = {"nu_flam": 0.0, "nu_fx": 0.0, "nu_J": 0.0, "nu_H": 0.0}

    def difference(h, h_slope, j, j_slope, f, f_slope, l_slope):
        """d̂ − d for H_i(x) = h + h_slope x, J_i = j + j_slope x, ∂_x f = f + f_slope x, ∂_λ f = l_slope x at x = 0."""
        w_hat = np.mean(f + f_slope * e) / np.mean(h + h_slope * e)
        w_star = f / h
        return l_slope * e - ((j + j_slope * e) * w_hat - j * w_star), abs(w_hat)

    one = np.array([0.3, 0.1])
    beta = np.array([2.0, 2.0])
    for name, slopes in (("nu_flam", (0, 0, 0, 1)), ("nu_J", (0, 1, 0, 0))):
        h_slope, j_slope, f_slope, l_slope = slopes
        actual, w = difference(1.6, h_slope, 2.0, j_slope, 1.2, f_slope, l_slope)
        found = b.inexact(b.Lipschitz(**{**zero, name: 1.0}), one, w, beta, 1.6)
        assert np.allclose(np.abs(actual), found, rtol=1e-12)
        total = b.inexact_total(b.Lipschitz(**{**zero, name: 1.0}), np.linalg.norm(e), w, 2.0, 1.6)
        assert math.isclose(np.linalg.norm(actual), total, rel_tol=1e-12)
    e = np.array([0.3, 0.3])
    for name, slopes in (("nu_fx", (0, 0, 1, 0)), ("nu_H", (1, 0, 0, 0))):
        h_slope, j_slope, f_slope, l_slope = slopes
        actual, w = difference(1.6, h_slope, 2.0, j_slope, 1.2, f_slope, l_slope)
        found = b.inexact(b.Lipschitz(**{**zero, name: 1.0}), np.array([0.3, 0.3]), w, beta, 1.6)
        assert np.allclose(np.abs(actual), found, rtol=1e-12)
        total = b.inexact_total(b.Lipschitz(**{**zero, name: 1.0}), np.linalg.norm(e), w, 2.0, 1.6)
        assert math.isclose(np.linalg.norm(actual), total, rel_tol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(200):
        e = rng.normal(size=2) * 0.5
        slopes = rng.normal(size=4)
        actual, w = difference(2.0, slopes[0], 2.0, slopes[1], rng.normal(), slopes[2], slopes[3])
        nu = b.Lipschitz(abs(slopes[3]), abs(slopes[2]), abs(slopes[1]), abs(slopes[0]))
        below(np.abs(actual), b.inexact(nu, np.abs(e), w, beta, 2.0), 1e-14)
        below(np.linalg.norm(actual), b.inexact_total(nu, np.linalg.norm(e), w, 2.0, 2.0), 1e-14)


def check_distance(b):
    """‖x̄ − x‖ with a global modulus (attained by a parabola) and by Kantorovich (attained by a cubic)."""
    zero = {"nu_flam": 0.0, "nu_fx": 0.0, "nu_J": 0.0}
    found = b.distance_to_solution(b.Lipschitz(**zero, nu_H=0.0), 0.6, 1.5)
    assert np.allclose(found, (0.4, 1.5))
    found = b.distance_to_solution(b.Lipschitz(**zero, nu_H=3.0, strong_convexity=0.5), 0.6, 1.5)
    assert np.allclose(found, (1.2, 0.5))
    # G(t) = t − t²/2·ν from x̄ = 0 towards the solution at e: Hessian 1 − νt, zero gradient where G₀ = e − νe²/2
    nu, e = 0.8, 0.7
    found = b.distance_to_solution(b.Lipschitz(**zero, nu_H=nu), e - nu * e**2 / 2, 1.0)
    assert np.allclose(found, (e, 1 - nu * e), rtol=1e-12)


def check_chebyshev(b):
    """Attained at an end of the interval, and never exceeded inside, by the iteration itself."""
    low, high = 0.5, 8.0
    for M in (0, 1, 3, 10):
        factors = [abs(chebyshev_error(x, low, high, M)) for x in np.linspace(low, high, 41)]
        found = b.chebyshev(np.array([1.0, 2.0]), 3.0, low, high, M, (low, high))
        assert math.isclose(found.total, 3 * math.sqrt(5) * max(factors), rel_tol=1e-9)
        assert math.isclose(factors[0], max(factors), rel_tol=1e-9)
        assert np.allclose(found.per_client, np.array([3.0, 6.0]) * max(factors), rtol=1e-9)


def chebyshev_error(eigenvalue, low, high, M):
    """(w* − w)/w* after M steps of the Chebyshev iteration on a scalar equation."""
    centre, half = (high + low) / 2, (high - low) / 2
    w, r, direction, factor = 0.0, eigenvalue, 0.0, half / centre  # right-hand side eigenvalue · 1, so w* = 1
    for k in range(M):
        if k == 0:
            direction = r / centre
        else:
            after = 1 / (2 * centre / half - factor)
            direction = after * factor * direction + 2 * after / half * r
            factor = after
        w += direction
        r = eigenvalue * (1 - w)
    return 1 - w


def check_worst_case(b):
    """The figures for ηα = 0.1: 249, 1.8e4 and 3e11 steps; and the exponent S − 1."""
    assert b.worst_case(3, 1).steps_needed(0.1) == 249
    assert round(b.worst_case(3, 2).steps_needed(0.1), -2) == 18400
    assert math.isclose(b.worst_case(10, 1).steps_needed(0.1), 3.05e11, rel_tol=0.02)
    c = b.worst_case(2, 1)
    assert math.isclose(c.delta, 1 / 4) and math.isclose(c.tau, 3 / 4)
    assert math.isclose(c.entry(3), 32 * (3 / 4) ** 2) and math.isclose(c.printed(3), 32 * (3 / 4) ** 3)
    assert b.worst_case(1).steps_needed(0.1) == 1 and b.worst_case(1).entry(2) == 0
    assert b.worst_case(1000).steps_needed(0.1) == math.inf


def check_lemma2(b):
    """n c holds on every averaging matrix at hand and is attained; √n c fails on two cliques."""
    for s in pool():
        for K in s.K[:3]:
            below(np.linalg.norm(K - 1 / len(K), 2), b.lemma2_realised(K), 1e-14)
    cliques = np.kron(np.eye(2), np.full((8, 8), 1 / 8))
    sigma = np.linalg.norm(cliques - 1 / 16, 2)
    assert math.isclose(b.lemma2_realised(cliques), sigma, rel_tol=1e-12)
    assert math.isclose(b.lemma2_realised(cliques, "printed"), sigma / 4, rel_tol=1e-12)
    c = b.worst_case(4, 1)
    assert math.isclose(b.lemma2_worst_case(c, 5, "printed"), 2 * c.printed(5))
    assert math.isclose(b.lemma2_worst_case(c, 5), 4 * c.entry(5))


def check_printed(b):
    """Theorem 1, the corollaries and Theorem 2 as printed, against the numbers of one hand-made setting."""
    n, eta, M, eps = 2, 0.5, 6, 0.1
    H = np.array([[[0.8]], [[1.2]]])
    c = b.realised_constants(H, np.full((n, 1, 1), 3.0), np.array([[3.0], [4.0]]), eta, [np.eye(n)] * M)
    s = b.SampleConstants(kappa_x=0.4, kappa_lam=0.3, sigma_x=0.1, sigma_lam=0.1, rho=0.7, alpha=0.6, beta=3.5)
    tail = 3 / 0.8 * 0.6**M
    assert math.isclose(b.corollary1(c, consensus=eps).total, 5 * (2 * 3 * eps / (eta * 0.64) + tail))
    rest = 2 * 3.5 * eps / (eta * 0.36) + 3.5 / 0.6 * 0.7**M
    mu = math.sqrt(0.09 + 0.16 * (3.5 / 0.6) ** 2)
    for text, copies in (("main", 2), ("appendix", 1)):
        noise = 4 * mu / 0.6 * 1.1 * math.sqrt(2 * math.log(copies * n * 2 / 0.05))
        found = b.theorem1(c, s, 0.05, consensus=eps, text=text)
        assert math.isclose(found.total, 5 * (noise + rest)), text
    noise = 4 * 0.4 * math.sqrt(1 + (3.5 / 0.6) ** 2) / 0.6 * 1.1 * math.sqrt(2 / 7 * math.log(n * 2 / 0.05))
    assert math.isclose(b.corollary2(c, s, 7, 0.05, consensus=eps).total, 5 * (noise + rest))
    slope = 2 * 0.2 / 0.8 * (1 + 3 / 0.8) * 1.1 + 0.9 / 5 * 3 / 0.8
    found = b.theorem2(c, 0.9, 0.2, 0.01, consensus=eps, alpha=0.8, beta=3.0)
    assert math.isclose(found.total, 5 * (2 * 3 * eps / (eta * 0.64) + tail + slope * 0.01))
    slope = 2 * 0.2 / 0.5 * (1 + 4 / 0.5) * 1.1 + 0.9 / 5 * 4 / 0.5  # the printed α and β, over every λ
    found = b.theorem2(c, 0.9, 0.2, 0.01, consensus=eps, alpha=0.5, beta=4.0)
    printed = 2 * 4 * eps / (eta * 0.25) + 4 / 0.5 * 0.75**M + slope * 0.01
    assert math.isclose(found.total, 5 * printed)
    assert "alpha" in b.theorem2(c, 0.9, 0.2, 0.01, consensus=eps).why, "one point does not know the printed α"
    assert math.isclose(b.theorem2(c, 0.9, 0.0, 0.01, consensus=eps).terms["inexact"], 0.9 * 3 / 0.8 * 0.01)
    # conditions: ηα/(2(1 − ηα)) = 1/3 for the corollary, α < 1/η
    assert b.corollary1(c, consensus=0.33).applicable and not b.corollary1(c, consensus=0.34).applicable
    assert "0 < alpha" in b.corollary1(b.realised_constants(H, H, c.G_inf * np.ones((2, 1)), 1.3, [np.eye(2)])).why
