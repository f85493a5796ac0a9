"""What must hold of D and E (see `checks`)."""

from __future__ import annotations

import itertools
import math

import numpy as np


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
        found = b.minibatch_tail(c, s, 1, 0.05, shared=shared)
        assert math.isclose(found.terms["noise"], math.sqrt(2 * log_term * total), rel_tol=1e-12)
        assert math.isclose(found.total, found.terms["noise"] + math.sqrt(3) * bias, rel_tol=1e-12)
        assert np.allclose(found.per_client, math.sqrt(2 * log_term * own) + bias, rtol=1e-12)
        # Bernstein with σ = κ: r solves r² = 2ℓ(V² + cr/3)
        largest = np.max(for_v + math.sqrt(n) * for_u) if shared else max(for_v.max(), math.sqrt(n) * for_u.max())
        r = b.minibatch_tail(c, s, 1, 0.05, shared=shared, form="bernstein").terms["noise"]
        assert math.isclose(r**2, 2 * log_term * (total + largest * r / 3), rel_tol=1e-12)
    quarter = b.minibatch_tail(c, s, 4, 0.05).terms["noise"] / b.minibatch_tail(c, s, 1, 0.05).terms["noise"]
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


def check_d_decomposition(b):
    """On random draws: v − d is the martingale plus a part that A's terms bound surely; squares stay below D's sum."""
    rng = np.random.default_rng(11)
    for k in range(60):
        n, N, d, M = 1 + k % 4, 3, 1 + k % 3, 1 + k % 6
        A = rng.normal(size=(n, N, d, d))
        H, J = 0.3 * np.eye(d) + 0.3 * A @ np.swapaxes(A, 2, 3), rng.normal(size=(n, N, 2, d))
        f_x, K = rng.normal(size=(n, d)), rng.dirichlet(np.full(n, 0.4), size=(M, n))
        eta = rng.uniform(0.3, 1.9) / np.linalg.eigvalsh(H).max()
        c = b.realised_constants(H.mean(axis=1), J.mean(axis=1), f_x, eta, K)
        found = b.minibatch_tail(c, b.sample_constants(list(H), list(J), eta), 1, 0.1)
        error, martingale, squares = one_draw(H, J, f_x, eta, K, rng)
        rounding = c.rounding * 1e2
        assert np.linalg.norm(error - martingale) <= found.terms["bias"] * (1 + 1e-9) + rounding
        assert squares <= found.terms["noise"] ** 2 / (2 * math.log(2 / 0.1)) * (1 + 1e-9) + rounding


def one_draw(H, J, f_x, eta, K, rng):
    """v − d, the martingale's value and the sum of its squared increments, for batches of one, (n, d_lam) each."""
    n, M = len(f_x), len(K)
    H_mean, J_mean = H.mean(axis=1), J.mean(axis=1)
    H_bar, who = H_mean.mean(axis=0), np.arange(n)
    w_star = np.linalg.solve(H_bar, f_x.mean(axis=0))
    u, v = f_x, J_mean @ w_star  # v − d with ∂_λ f = 0
    martingale, squares = np.zeros_like(v), 0.0
    for m in range(M):
        mean = K[m] @ u
        J_m, H_m = (a[who, rng.integers(0, a.shape[1], size=n)] for a in (J, H))
        G = sum((np.linalg.matrix_power(np.eye(len(H_bar)) - eta * H_bar, t) for t in range(M - 1 - m)), 0 * H_bar)
        for_v = -eta * np.einsum("iab,ib->ia", J_m - J_mean, mean)
        noise = np.einsum("iab,ib->ia", H_m - H_mean, mean)
        for_u = eta**2 / n * np.einsum("iab,kb->kia", J_mean, noise @ G.T)  # [k]: what client k's sample does to all
        martingale = martingale + for_v + for_u.sum(axis=0)
        squares += np.sum(for_v**2) + np.sum(for_u**2)
        v = v - eta * np.einsum("iab,ib->ia", J_m, mean)
        u = mean - eta * np.einsum("iab,ib->ia", H_m, mean)
    return v, martingale, squares
