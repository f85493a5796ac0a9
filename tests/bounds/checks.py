"""What must hold of the bounds, as functions of the package under test: the tests call them on the real one, the
mutation test on altered copies, at least one of which must then fail."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .pool import attained_a, attained_b, pool
from .settings import run

SLACK = 1 + 1e-9


def constants(b, s):
    return b.realised_constants(s.H, s.J, s.f_x, s.eta, s.K)


def below(error, bound, rounding):
    """error ≤ bound up to rounding, everywhere."""
    assert np.all(np.asarray(error) <= np.asarray(bound) * SLACK + rounding), (error, bound, rounding)


def holds(bound, errors, rounding):
    if bound.applicable:
        below(np.linalg.norm(errors), bound.total, rounding)
        if bound.per_client is not None:
            below(errors, bound.per_client, rounding)
    else:
        assert bound.total is None and bound.per_client is None and bound.why


def check_a(b):
    for s in pool():
        c = constants(b, s)
        rounding = c.rounding * (1 + np.abs(s.w).max())
        holds(b.bound_a(c), s.errors, rounding)
        part = b.bound_a.__globals__["consensus_part"](c, c.iterations)
        below(s.consensus_errors, c.beta * part, rounding)


def check_a_is_attained(b):
    for s in attained_a():
        c = constants(b, s)
        part = b.bound_a.__globals__["consensus_part"](c, c.iterations)
        assert math.isclose(part * c.beta_max, s.consensus_errors.max(), rel_tol=1e-12)


def check_a_is_its_double_sum(b):
    for s in pool()[::10]:
        c, M = constants(b, s), len(s.K)
        rate = np.abs(1 - s.eta * np.linalg.eigvalsh(s.H)).max()
        mean_rate = np.abs(1 - s.eta * np.linalg.eigvalsh(s.H.mean(axis=0))).max()
        n, total = len(s.H), 0.0
        for j in range(M):
            gamma = max(sum(abs(s.K[j, i, k] - 1 / n) for k in range(n)) for i in range(n))
            later = sum(mean_rate ** (m - 1 - j) for m in range(j + 1, M))
            total += s.eta * gamma * rate**j * np.linalg.norm(s.f_x, axis=1).max() * (1 + rate * later)
        alpha_bar = np.linalg.eigvalsh(s.H.mean(axis=0))[0]
        total += mean_rate**M * np.linalg.norm(s.f_x.mean(axis=0)) / alpha_bar
        wanted = np.array([np.linalg.svd(J)[1][0] for J in s.J]) * total
        found = b.bound_a(c)
        assert np.allclose(found.per_client, wanted, rtol=1e-9, atol=0)
        assert math.isclose(found.total, np.linalg.norm(wanted), rel_tol=1e-9)
        assert math.isclose(sum(found.terms.values()), found.total, rel_tol=1e-9)


def check_a_floor(b):
    """With ρ < 1 the consensus part never exceeds the floor, however long the run."""
    floor = b.bound_a.__globals__["floor"]
    part = b.bound_a.__globals__["consensus_part"]
    for s in pool():
        c = constants(b, s)
        if c.rho < 1:
            below(part(c, c.iterations) * c.beta_norm, floor(c), 0)
        else:
            assert floor(c) == math.inf
    c = constants(b, attained_a()[0])
    assert math.isclose(floor(c), math.sqrt(2) * 0.5 * 1 / (1 - 0.05) ** 2, rel_tol=1e-12)


def check_b(b):
    F = b.bound_b.__globals__["averaging_sum"]
    for s in pool():
        c = constants(b, s)
        rounding = c.rounding * (1 + np.abs(s.w).max())
        holds(b.bound_b(c), s.errors, rounding)
        with np.errstate(over="ignore"):
            below(np.linalg.norm(s.consensus_errors), c.beta_max * c.eta * F(c, c.iterations), rounding)


def check_b_is_attained(b):
    F = b.bound_b.__globals__["averaging_sum"]
    for s in attained_b():
        c = constants(b, s)
        found = c.beta_max * c.eta * F(c, c.iterations)
        assert math.isclose(found, np.linalg.norm(s.consensus_errors), rel_tol=1e-12, abs_tol=1e-15)


def check_b_follows_the_run(b):
    """The recursion's s bounds the actual disagreement before every call."""
    disagreement = b.bound_b.__globals__["disagreement"]
    for s in pool():
        c = constants(b, s)
        w = run(s)
        means = np.diff(np.concatenate([np.zeros((1, *s.f_x.shape)), w]), axis=0) / s.eta  # ū^(m)
        u = means - s.eta * np.einsum("iab,mib->mia", s.H, means)
        u = np.concatenate([s.f_x[None], u])[: c.iterations]
        actual = np.linalg.norm((u - u.mean(axis=1, keepdims=True)).reshape(c.iterations, -1), axis=1)
        with np.errstate(over="ignore"):
            below(actual, disagreement(c, c.iterations), 1e-12 * c.G_inf * (1 + np.abs(u).max()))


def check_tails(b):
    """The truncation terms are attained with exact averages, d = 1: A and B are then the error itself."""
    from .settings import Setting

    for n, M in itertools.product((1, 3), (1, 4)):
        H, J, f_x = np.full((n, 1, 1), 0.8), np.full((n, 1, 1), 2.0), np.full((n, 1), 1.5)
        s = Setting(H, J, f_x, np.full((M, n, n), 1 / n), 0.5)
        c = constants(b, s)
        for bound in (b.bound_a(c), b.bound_b(c)):
            assert np.allclose(bound.per_client, s.errors, rtol=1e-12)
            assert math.isclose(bound.total, np.linalg.norm(s.errors), rel_tol=1e-12)


def check_c(b):
    for s in pool():
        c, found = constants(b, s), b.residual_bounds(s.H, s.J, s.f_x, s.w)
        rounding = c.rounding * (1 + np.abs(s.w).max())
        assert np.allclose(found.identity, s.errors, rtol=1e-7, atol=rounding)
        for bound in (found.c1, found.c2, found.c3, found.c4):
            below(s.errors, bound, rounding)
        below(found.c2, found.c1, rounding)
        below(found.c4, found.c3, rounding)


def check_c_is_attained(b):
    """C1 = C2 = error for d = 1; C3 = error where all its terms push the same way."""
    s = attained_b()[1]
    found = b.residual_bounds(s.H, s.J, s.f_x, s.w)
    assert np.allclose(found.c1, s.errors) and np.allclose(found.c2, s.errors)
    # w = (1, −1) around a mean that is off by the residual: Δ = ±1, H̄ = 1, H − H̄ = ±½, coupling ½
    H, J = np.array([1.5, 0.5]).reshape(2, 1, 1), np.ones((2, 1, 1))
    w, f_x = np.array([[1.0], [-1.0]]), np.array([[-3.0], [-1.0]])
    found = b.residual_bounds(H, J, f_x, w)
    # r̄ = −2 − ½ = −2.5 (norm 2.5), ‖Δ‖ = 1, coupling ½: C3 = 2.5 + 1 + 0.5
    assert np.allclose(found.c3, [4.0, 4.0])
    assert np.allclose(found.identity, [3.0, 1.0])
    assert np.allclose(found.c4, [3.0, 3.0])


def check_corollary1_repaired(b):
    applied = 0
    for s in pool():
        c = constants(b, s)
        found = b.corollary1_repaired(c)
        applied += found.applicable
        holds(found, s.errors, c.rounding)
    assert applied > 50
    s = attained_b()[4]  # rates (0.5, 0.5), K = I: ε = 1 needs (1 − ρ)/(2ρ) = ½
    assert not b.corollary1_repaired(constants(b, s)).applicable
    c = constants(b, s)
    found = b.corollary1_repaired(c, consensus=0.25)
    assert math.isclose(found.total, (2 * 0.5 * 0.25 / 0.25 + 0.5 * 0.5**4 / 0.5) * math.sqrt(2), rel_tol=1e-12)


# ---- mini-batches


def two_point_samples(n, h, kappa_x, j, kappa_lam):
    """Every client has two instances h ± κ_x, j ± κ_λ, d = 1."""
    H = [np.array([h - kappa_x, h + kappa_x]).reshape(2, 1, 1) for _ in range(n)]
    J = [np.array([j - kappa_lam, j + kappa_lam]).reshape(2, 1, 1) for _ in range(n)]
    return H, J


def check_d_increments(b):
    """On the draw with the slowest decay the increments' squares add up to exactly what D allows, n = 3, b = 1."""
    n, eta, h, kx, j, kl, G, M = 3, 0.5, 1.0, 0.4, 2.0, 0.7, 1.5, 4
    H, J = two_point_samples(n, h, kx, j, kl)
    c = b.realised_constants(np.full((n, 1, 1), h), np.full((n, 1, 1), j), np.full((n, 1), G), eta, [np.eye(n)] * M)
    s = b.sample_constants(H, J, eta)
    assert math.isclose(s.kappa_x, kx) and math.isclose(s.kappa_lam, kl) and math.isclose(s.sigma_x, kx)
    rate, mean_rate = 1 - eta * (h - kx), 1 - eta * h
    for_v, for_u = np.empty(M), np.empty(M)
    for m in range(M):
        later = sum(mean_rate**k for k in range(M - 1 - m))
        for_v[m] = eta * kl * rate**m * G  # in client i alone
        for_u[m] = eta**2 * j * later * kx * rate**m * G / n  # in each of the n clients
    squares = n * np.sum(for_v**2) + n * np.sum(n * for_u**2)
    aligned = n * np.sum((for_v + math.sqrt(n) * for_u) ** 2)
    alone = np.sum(for_v**2) + n * np.sum(for_u**2)
    alone_aligned = np.sum((for_v + for_u) ** 2) + (n - 1) * np.sum(for_u**2)
    log_term = math.log(2 / 0.05)
    bias = 2 * (np.sum(eta * G * (4 / 3) * rate ** np.arange(M) * (1 + rate * np.array(
        [sum(mean_rate**k for k in range(M - 1 - m)) for m in range(M)]))) + mean_rate**M * G / h)  # fmt: skip
    for shared, total, own in ((False, squares, alone), (True, aligned, alone_aligned)):
        found = b.bound_d(c, s, 1, 0.05, shared=shared)
        assert math.isclose(found.terms["noise"], math.sqrt(2 * log_term * total), rel_tol=1e-12)
        assert math.isclose(found.total, found.terms["noise"] + math.sqrt(3) * bias, rel_tol=1e-12)
        assert np.allclose(found.per_client, math.sqrt(2 * log_term * own) + bias, rtol=1e-12)
        # Bernstein with σ = κ: r solves r² = 2ℓ(V² + cr/3)
        largest = np.max(for_v + math.sqrt(n) * for_u) if shared else max(for_v.max(), math.sqrt(n) * for_u.max())
        r = b.bound_d(c, s, 1, 0.05, shared=shared, form="bernstein").terms["noise"]
        assert math.isclose(r**2, 2 * log_term * (total + largest * r / 3), rel_tol=1e-12)
    quarter = b.bound_d(c, s, 4, 0.05).terms["noise"] / b.bound_d(c, s, 1, 0.05).terms["noise"]
    assert math.isclose(quarter, 0.5, rel_tol=1e-12), "noise falls as 1/√b"


def all_batches(counts, size, replace):
    """Every batch of each client, as tuples of index arrays."""
    options = [
        list(itertools.product(range(N), repeat=size))
        if replace
        else list(itertools.permutations(range(N), min(size, N)))
        for N in counts
    ]
    return list(itertools.product(*options))


def enumerated_mean_square(H, J, f_x, eta, K, size, replace, shared):
    """E‖v_i − d_i‖² by going through every possible draw, (n,)."""
    draws = all_batches([len(a) for a in H], size, replace)
    H_bar = np.mean([a.mean(axis=0) for a in H], axis=0)
    w_star = np.linalg.solve(H_bar, f_x.mean(axis=0))
    d = np.array([-a.mean(axis=0) @ w_star for a in J])  # ∂_λ f = 0

    def mean_of(samples, draw):
        return np.array([a[list(k)].mean(axis=0) for a, k in zip(samples, draw, strict=True)])

    H_draw, J_draw = [mean_of(H, k) for k in draws], [mean_of(J, k) for k in draws]
    total, count = np.zeros(len(H)), 0

    def go(m, u, v):
        nonlocal total, count
        if m == len(K):
            total, count = total + np.sum((v - d) ** 2, axis=1), count + 1
            return
        mean = K[m] @ u
        for k, H_k in enumerate(H_draw):
            after = mean - eta * np.einsum("iab,ib->ia", H_k, mean)
            for J_k in [J_draw[k]] if shared else J_draw:
                go(m + 1, after, v - eta * np.einsum("iab,ib->ia", J_k, mean))

    go(0, f_x, np.zeros((len(H), J[0].shape[1])))
    return total / count


def check_e(b):
    """Against the enumeration of all draws: unequal clients, with and without replacement, shared or not."""
    rng = np.random.default_rng(3)
    for n, counts, size, d, M in ((1, [3], 2, 2, 2), (2, [2, 1], 1, 1, 3), (2, [2, 3], 2, 2, 2)):
        H = [np.eye(d) + 0.5 * _symmetric(rng, N, d) for N in counts]
        J = [rng.normal(size=(N, 2, d)) for N in counts]
        f_x, K = rng.normal(size=(n, d)), rng.dirichlet(np.ones(n), size=(M, n))
        for replace, shared in itertools.product((False, True), (False, True)):
            if replace and not shared and n == 2 and size == 2:
                continue  # 4 · 9 draws for u and v each, squared: too many to enumerate
            wanted = enumerated_mean_square(H, J, f_x, 0.4, K, size, replace, shared)
            found = b.mean_square_error(H, J, f_x, 0.4, K, size, replace=replace, shared=shared)
            assert np.allclose(found.per_client, wanted, rtol=1e-11)
            assert math.isclose(found.total, wanted.sum(), rel_tol=1e-11)


def _symmetric(rng, N, d):
    A = rng.normal(size=(N, d, d))
    return (A + np.swapaxes(A, 1, 2)) / 2


# ---- inexact inner solution, Chebyshev, worst case


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
    found = b.theorem2(c, 0.9, 0.2, 0.01, consensus=eps)
    assert math.isclose(found.total, 5 * (2 * 3 * eps / (eta * 0.64) + tail + slope * 0.01))
    # conditions: ηα/(2(1 − ηα)) = 1/3 for the corollary, α < 1/η
    assert b.corollary1(c, consensus=0.33).applicable and not b.corollary1(c, consensus=0.34).applicable
    assert "0 < alpha" in b.corollary1(b.realised_constants(H, H, c.G_inf * np.ones((2, 1)), 1.3, [np.eye(2)])).why


CHECKS = [check for name, check in list(globals().items()) if name.startswith("check_")]
