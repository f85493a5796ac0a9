"""Certificates from products alone: as valid as with matrices, cheap at large d_x, refused if nothing is known."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from support.user_problems import Reuses

import hgp_ref as hgp
from hgp_ref import certificates, exact
from hgp_ref.certificates import point
from hgp_ref.problems import as_problem

from .certificate_checks import estimate_of, linear_problem, logistic, quadratic, value_of


@pytest.mark.parametrize("seed", range(8))
def test_as_valid_as_with_matrices(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 6)), int(rng.integers(1, 7))
    problem, lam = (logistic if seed % 2 else quadratic)(n, d, seed)
    x = exact.inner_solution(problem, lam)
    truth = exact.hypergradient(problem, x, lam)
    away = x + 10 ** rng.uniform(-5, -1) * rng.normal(size=x.shape)
    net = hgp.networks.RandomDirected(n, 0.4, 0.8, seed=seed)
    for at in (x, away):
        w = rng.normal(size=d) + 0.1 * rng.normal(size=(n, d))
        value = value_of(problem, at, lam, w)
        errors = np.linalg.norm(value - truth, axis=1)
        found, dense = (
            hgp.certify(problem, at, lam, estimate_of(value, w), hgp.PushSum(net, 2), first_call=0, matrix_free=free)
            for free in (True, False)
        )
        assert np.all(errors <= found.bound) and np.all(errors <= found.decentralised_bound)
        assert found.matrix_free and found.c2 is None and found.c3 is None and found.identity is None
        assert not dense.matrix_free
        assert np.allclose(found.residual, dense.residual, rtol=1e-9) and np.all(found.c1 >= dense.c1 * (1 - 1e-9))
        assert found.traffic.floats < dense.traffic.floats


@pytest.mark.parametrize("kind", ["rates", "client", "weights", "quadratic"])
def test_norms_of_the_cross_derivative(kind):
    """Told by the problem and found from its columns: both at least ‖J_i‖, and no more than ‖J_i‖_F."""
    if kind == "client":
        X, y = np.random.default_rng(0).normal(size=(2, 5, 4)), np.ones((2, 5))
        problem, lam = hgp.problems.LogisticRegression(X, y, X, y, regularization="client"), np.ones((2, 1))
    else:
        problem, lam = quadratic(3, 4, 2) if kind == "quadratic" else linear_problem("softmax", kind)
    x = np.random.default_rng(1).normal(size=(problem.n_clients, problem.dim_x))
    J = exact.jacobians(problem, x, lam)
    spectral, frobenius = np.linalg.norm(J, 2, axis=(1, 2)), np.linalg.norm(J, axis=(1, 2))
    for one in (problem, Reuses(problem)):
        beta = certificates.point.MatrixFreePoint(as_problem(one), x, lam, strong_convexity=1e-3, nu=None).beta
        assert np.all(beta >= spectral * (1 - 1e-14)) and np.all(beta <= frobenius * (1 + 1e-12)), one
    if kind == "rates":
        assert np.allclose(beta, spectral, rtol=1e-12), "sharp where J is diagonal"


def test_matrix_free_needs_a_modulus():
    problem, lam = logistic(3, 4, 1)
    x = exact.inner_solution(problem, lam)
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.3, iterations=5)
    with pytest.raises(
        ValueError, match=r"strong_convexity must be known for d_x=4.*got None.*'lanczos'.*matrix_free=Fals"
    ):
        hgp.certify(Reuses(problem), x, lam, est, matrix_free=True)
    with pytest.raises(ValueError, match=r"strong_convexity must be None or a number for d_x=4,.*got 'lanczos'"):
        hgp.certify(problem, x, lam, est, strong_convexity="lanczos")
    with pytest.raises(TypeError, match="matrix_free must be .*, got 1"):
        hgp.certify(problem, x, lam, est, matrix_free=1)

    class Boasts(Reuses):
        def jacobian_norms(self, x, lam):
            return np.full(3, np.nan)

    with pytest.raises(ValueError, match="jacobian_norms.*negative or not finite"):
        hgp.certify(Boasts(problem), x, lam, est, strong_convexity=0.01, matrix_free=True)


def test_rows_apart_cost_what_is_known():
    """A modulus at common points bounds mean_i H_i(x_i) only up to ν_H times the gap."""
    problem, lam = logistic(3, 4, 1)
    x = exact.inner_solution(problem, lam)
    apart = x + np.array([[0.01], [-0.01], [0.0]])
    est = hgp.hypergradient(problem, apart, lam, hgp.ExactAverage(3), eta=0.3, iterations=5)
    own = problem.lipschitz(lam)
    common = hgp.problems.Lipschitz(own.nu_flam, own.nu_fx, own.nu_J, own.nu_H, own.strong_convexity)
    assert own.holds_apart and not common.holds_apart
    at = [hgp.certify(problem, apart, lam, est, lipschitz=nu, matrix_free=True).alpha_bar for nu in (own, common)]
    off = np.linalg.norm(apart - apart.mean(axis=0), axis=1).mean()
    assert np.isclose(at[0] - at[1], own.nu_H * off, rtol=1e-6)


def test_lanczos_bounds_the_smallest_eigenvalue():
    """Ritz values are never below λ_min; the value that is used is, and is labelled."""
    d = 60
    rng = np.random.default_rng(0)
    for spread in (10.0, 1e3):
        Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        A = (Q * np.geomspace(1 / spread, 1, d)) @ Q.T
        for seed in range(30):
            few = point.ritz_range(lambda u, A=A: A @ u, d, 5, seed)
            assert few[0] >= 1 / spread * (1 - 1e-9) and few[-1] <= 1 + 1e-9
            many = point.ritz_range(lambda u, A=A: A @ u, d, 40, seed)
            assert point.lowest_with_probability(many, d, 40) <= 1 / spread
    assert point.lowest_with_probability(few, d, 5) == -np.inf
    problem, lam = logistic(3, 4, 1)
    x = exact.inner_solution(problem, lam)
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.3, iterations=5)
    found = hgp.certify(Reuses(problem), x, lam, est, strong_convexity="lanczos", matrix_free=True)
    low = np.linalg.eigvalsh(exact.hessians(problem, x, lam).mean(axis=0))[0]
    assert 0.5 * low < found.alpha_bar <= low
    assert any("Lanczos" in a and "wrong with probability 1e-06" in a for a in found.assumptions)


def against(start, d=30, weak=0.01):
    """A Hessian with one weak direction, orthogonal to `start`: from there it looks like the identity."""
    v = np.random.default_rng(5).normal(size=d)
    v -= start * (start @ v) / (start @ start)
    v /= np.linalg.norm(v)
    A = np.eye(d) - (1 - weak) * np.outer(v, v)
    A = (A + A.T)[None] / 2
    problem = hgp.problems.Quadratic(A, np.zeros((1, d)), v[None, None], v[None])
    at = np.zeros((1, d)), np.zeros((1, 1))
    value = exact.hypergradient(problem, *at)
    return Reuses(problem), at, estimate_of(np.zeros((1, 1)), np.zeros((1, d))), float(np.abs(value).max())


def test_a_hessian_that_depends_on_the_seed_of_lanczos():
    problem, at, est, error = against(np.random.default_rng(0).standard_normal(30))
    found = [hgp.certify(problem, *at, est, strong_convexity="lanczos", matrix_free=True) for _ in range(5)]
    assert all(error <= one.bound[0] and one.alpha_bar <= 0.01 for one in found)
    words = [next(a for a in one.assumptions if "Lanczos" in a) for one in found]
    assert len(set(words)) == 5, "another seed for every certificate"
    assert all("over the draw of the seed, for a Hessian that does not depend on it" in a for a in words)
    fooled = hgp.certify(problem, *at, est, strong_convexity=certificates.Lanczos(seed=0), matrix_free=True)
    assert fooled.alpha_bar > 0.9, "a seed that the Hessian was made for is what the text excludes"


def test_a_recorded_seed_repeats_the_certificate():
    problem, at, est, _ = against(np.ones(30))
    drawn = hgp.certify(problem, *at, est, strong_convexity="lanczos", matrix_free=True)
    recorded = next(a for a in drawn.assumptions if "Lanczos" in a).partition("seed=")[2].partition(")")[0]
    again = certificates.Lanczos(int(recorded))
    assert hgp.certify(problem, *at, est, strong_convexity=again, matrix_free=True) == drawn
    with pytest.raises(ValueError, match="strong_convexity must be None or a number for d_x=30,.*got 'lanczos'"):
        hgp.certify(problem, *at, est, strong_convexity=again, matrix_free=False)
    for seed in (-1, 0.5, "1", True, 2**64):
        with pytest.raises((TypeError, ValueError), match="seed must be .*, got"):
            certificates.Lanczos(seed)


def test_a_weak_direction_that_lanczos_cannot_see_is_refused():
    weak = np.ones(400)
    weak[0] = 1e-7
    A = np.diag(weak)[None]
    problem = hgp.problems.Quadratic(A, np.zeros((1, 400)), np.ones((1, 1, 400)), np.ones((1, 400)))
    at = np.zeros((1, 400)), np.zeros((1, 1))
    est = estimate_of(np.zeros((1, 1)), np.zeros((1, 400)))
    with pytest.raises(ValueError, match="'lanczos': 200 steps only show"):
        hgp.certify(Reuses(problem), *at, est, strong_convexity="lanczos", matrix_free=True)


LARGE = """
import time, numpy as np, hgp_ref as hgp
from benchmarks.memory import highest
n, N, d = 6, 30, 20_000
rng = np.random.default_rng(0)
X, y = rng.normal(size=(n, N, d)) * 3 / d**0.5, (rng.random((n, N)) < 0.5).astype(float)
problem = hgp.problems.LogisticRegression(X, y, X[:, :20].copy(), y[:, :20].copy())
lam, x = np.full((n, d), 0.1), np.tile(rng.normal(size=d) / d**0.5, (n, 1))
net = hgp.networks.RandomDirected(n, 0.4, 0.8, seed=1)
est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 10), eta=1.0, iterations=20)
far = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(n), eta=1.0, iterations=150).value
start = time.process_time()
found = hgp.certify(problem, x, lam, est, hgp.PushSum(net, 20))
seconds = time.process_time() - start
error = np.linalg.norm(est.value - far, axis=1)
assert found.matrix_free and np.all(error <= found.centralised) and np.all(error <= found.decentralised)
print(seconds, highest())
"""


def test_twenty_thousand_parameters():
    """Peak memory of the whole process, data and imports included, and processor time of the certificate."""
    run = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    seconds, peak = map(float, run.stdout.split())
    assert peak < 1e9 and seconds < 20, (seconds, peak)
