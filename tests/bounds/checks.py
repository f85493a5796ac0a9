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
        holds(b.contracting_clients(c), s.errors, rounding)
        part = b.series.consensus_part(c, c.iterations)
        below(s.consensus_errors, c.beta * part, rounding)


def check_a_is_attained(b):
    for s in attained_a():
        c = constants(b, s)
        part = b.series.consensus_part(c, c.iterations)
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
        found = b.contracting_clients(c)
        assert np.allclose(found.per_client, wanted, rtol=1e-9, atol=0)
        assert math.isclose(found.total, np.linalg.norm(wanted), rel_tol=1e-9)
        assert math.isclose(sum(found.terms.values()), found.total, rel_tol=1e-9)


def check_a_floor(b):
    """With ρ < 1 the consensus part never exceeds the floor, however long the run."""
    floor = b.series.floor
    part = b.series.consensus_part
    for s in pool():
        c = constants(b, s)
        if c.rho < 1:
            below(part(c, c.iterations) * c.beta_norm, floor(c), 0)
        else:
            assert floor(c) == math.inf
    c = constants(b, attained_a()[0])
    assert math.isclose(floor(c), math.sqrt(2) * 0.5 * 1 / (1 - 0.05) ** 2, rel_tol=1e-12)


def check_b(b):
    F = b.series.averaging_sum
    for s in pool():
        c = constants(b, s)
        rounding = c.rounding * (1 + np.abs(s.w).max())
        holds(b.convex_mean(c), s.errors, rounding)
        with np.errstate(over="ignore"):
            below(np.linalg.norm(s.consensus_errors), c.beta_max * c.eta * F(c, c.iterations), rounding)


def check_b_is_attained(b):
    F = b.series.averaging_sum
    for s in attained_b():
        c = constants(b, s)
        found = c.beta_max * c.eta * F(c, c.iterations)
        assert math.isclose(found, np.linalg.norm(s.consensus_errors), rel_tol=1e-12, abs_tol=1e-15)


def check_b_follows_the_run(b):
    """The recursion's s bounds the actual disagreement before every call."""
    disagreement = b.result.consensus_and_disagreement
    for s in pool():
        c = constants(b, s)
        w = run(s)
        means = np.diff(np.concatenate([np.zeros((1, *s.f_x.shape)), w]), axis=0) / s.eta  # ū^(m)
        u = means - s.eta * np.einsum("iab,mib->mia", s.H, means)
        u = np.concatenate([s.f_x[None], u])[: c.iterations]
        actual = np.linalg.norm((u - u.mean(axis=1, keepdims=True)).reshape(c.iterations, -1), axis=1)
        with np.errstate(over="ignore"):
            below(actual, disagreement(c, c.iterations)[1], 1e-12 * c.G_inf * (1 + np.abs(u).max()))


def check_tails(b):
    """The truncation terms are attained with exact averages, d = 1: A and B are then the error itself."""
    from .settings import Setting

    for n, M in itertools.product((1, 3), (1, 4)):
        H, J, f_x = np.full((n, 1, 1), 0.8), np.full((n, 1, 1), 2.0), np.full((n, 1), 1.5)
        s = Setting(H, J, f_x, np.full((M, n, n), 1 / n), 0.5)
        c = constants(b, s)
        for bound in (b.contracting_clients(c), b.convex_mean(c)):
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
