"""Certificates in extreme floating-point ranges, also over the network, and constants they must not trust."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.user_problems import Reuses

import hgp_ref as hgp
from hgp_ref import bounds, certificates, exact, rounding

from .certificate_checks import estimate_of, logistic, quadratic, value_of
from .hard_checks import HARD_CHECKS, SCALES, aligned, covered, exact_errors


@pytest.mark.parametrize("check", HARD_CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
def test_hard(check):
    check(certificates)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(12))
def test_clients_at_any_scale(seed, dtype):
    """The decentralised bound against rational numbers; non-convex clients where the seed is odd."""
    scales = SCALES[seed % 6] if dtype == "float64" else (1.0, 1.0, 1.0)
    kappa = 10.0 ** (seed if dtype == "float64" else seed / 4)
    sizes = {"n": 1 + seed % 4, "d": 1 + seed % 5, "kappa": kappa}
    problem, x, lam, w = aligned(
        seed, **sizes, **dict(zip(("scale_H", "scale_J", "scale_f"), scales, strict=True)), dtype=dtype
    )
    value = value_of(problem, x, lam, w)
    errors = exact_errors(problem, x, lam, value)
    net = hgp.networks.RandomDirected(problem.n_clients, 0.4, 0.8, seed=seed)
    try:
        low = certificates.certify(problem, x, lam, estimate_of(value, w)).alpha_bar
        found = hgp.certify(
            problem, x, lam, estimate_of(value, w), hgp.PushSum(net, 3), first_call=0, strong_convexity=low
        )
    except ValueError as error:  # in float32 a condition of 1e3 may be beyond what can be computed
        assert dtype == "float32" and "not positive definite" in str(error)
        return
    assert covered(errors, found.centralised) <= 1 and covered(errors, found.decentralised) <= 1
    assert covered(errors, np.minimum(found.c3, found.c4) + found.rounding + found.consistency) <= 1


def test_overflow_raises():
    problem, x, lam, w = aligned(2, n=2, d=3, kappa=10.0, scale_H=1e-200, scale_J=1e200, scale_f=1e-60)
    with pytest.raises(ValueError, match=r"range of floating point|NaN or infinite"):
        hgp.certify(problem, x, lam, estimate_of(np.zeros((2, 1)), w))
    huge = hgp.problems.Quadratic(*(np.full(s, 5e307) for s in ((2, 1, 1), (2, 1), (2, 1, 1), (2, 1))))
    nothing = np.zeros((2, 1))
    found = hgp.certify(huge, nothing, nothing, estimate_of(nothing, nothing))
    assert covered(exact_errors(huge, nothing, nothing, nothing), found.centralised) <= 1


def test_constants_beyond_floating_point_are_not_known():
    X, y = np.full((2, 3, 2), 1e150), np.ones((2, 3))
    problem = hgp.problems.LogisticRegression(X, y, X, y)
    assert problem.lipschitz(np.ones((2, 2))) is None and bounds.known_lipschitz(problem, np.ones((2, 2))) is None
    tiny = hgp.problems.LogisticRegression(X * 1e-300, y, X * 1e-300, y).lipschitz(np.ones((2, 2)))
    assert tiny.nu_fx > 0 and tiny.nu_H > 0, "not rounded to nothing"


@pytest.fixture
def finished():
    """(problem, x, lam, est, avg)."""
    problem, lam = quadratic(3, 2, 1)
    x = exact.inner_solution(problem, lam)
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, 0.4, 0.8, seed=1), 4)
    return problem, x, lam, hgp.hypergradient(problem, x, lam, avg, eta=0.05, iterations=20), avg


@pytest.mark.parametrize("matrix_free", [False, True])
def test_a_modulus_above_what_is_computed_is_refused(finished, matrix_free):
    problem, x, lam, est, avg = finished
    alpha = np.linalg.eigvalsh(exact.hessians(problem, x, lam).mean(axis=0))[0]
    for avg_or_none in (avg, None):
        with pytest.raises(ValueError, match=rf"strong_convexity must be .* at most {alpha:.4g}\d*, got 1e\+09"):
            hgp.certify(problem, x, lam, est, avg_or_none, strong_convexity=1e9, matrix_free=matrix_free)
    with pytest.raises(ValueError, match=r"strong_convexity must be .* at most .*, got"):
        hgp.certify(problem, x, lam, est, strong_convexity=alpha * (1 + 1e-9), matrix_free=matrix_free)
    constants = bounds.Lipschitz(5.0, 1.0, 0.0, 0.0, strong_convexity=1e9)
    with pytest.raises(ValueError, match=r"lipschitz.strong_convexity must be .*, got 1e\+09"):
        hgp.certify(problem, x, lam, est, lipschitz=constants, matrix_free=matrix_free)
    assert np.all(hgp.certify(problem, x, lam, est, avg, strong_convexity=float(alpha)).decentralised > 0)


@pytest.mark.parametrize("value", [-1, 0, -0.0, np.nan, np.inf, True, "power", [1.0]])
def test_a_modulus_must_be_a_positive_number(finished, value):
    problem, x, lam, est, avg = finished
    with pytest.raises((TypeError, ValueError), match=r"strong_convexity must be (one of|a finite number > 0).*, got "):
        hgp.certify(problem, x, lam, est, avg, strong_convexity=value)


@pytest.mark.parametrize("matrix_free", [False, True])
def test_a_problem_may_reuse_its_output_array(matrix_free):
    problem, lam = logistic(3, 4, 3)
    x = exact.inner_solution(problem, lam)
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, 0.4, 0.8, seed=1), 4)
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.3, iterations=5)
    options = {"strong_convexity": 0.05, "matrix_free": matrix_free, "lipschitz": problem.lipschitz(lam)}
    wanted = hgp.certify(problem, x, lam, est, hgp.PushSum(avg.net, 4), **options)
    found = hgp.certify(Reuses(problem), x, lam, est, hgp.PushSum(avg.net, 4), **options)
    assert np.allclose(found.bound, wanted.bound, rtol=1e-9)
    assert np.allclose(found.decentralised_bound, wanted.decentralised_bound, rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [{"lipschitz": {"nu_H": 0}}, {"first_call": -1}, {"first_call": 1.5}, {"max_rounds": -1}, {"matrix_free": "no"}],
    ids=str,
)
def test_bad_options_are_named(finished, options):
    problem, x, lam, est, avg = finished
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=rf"{name}(=.* given| must be .*, got)"):
        hgp.certify(problem, x, lam, est, avg, **options)


def test_results_compare(finished):
    problem, x, lam, est, _ = finished
    one, other = (hgp.certify(problem, x, lam, est) for _ in range(2))
    assert (one == other) in (True, False) and one == one
    assert dataclasses.replace(one, alpha_bar=1.0).alpha_bar == 1.0


def test_public_names_are_the_same_objects():
    assert hgp.certify is certificates.certify
    assert bounds.Lipschitz is hgp.problems.Lipschitz


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e-150, 1e150, 1e300])
def test_norms_at_any_scale(scale):
    a = np.random.default_rng(0).normal(size=(4, 6))
    assert np.allclose(rounding.norms(a * scale) / scale, np.linalg.norm(a, axis=1), rtol=1e-14)
    A = np.random.default_rng(1).normal(size=(3, 4, 5))
    assert np.allclose(rounding.spectral_norms(A * scale) / scale, np.linalg.norm(A, 2, axis=(1, 2)), rtol=1e-12)
    S = A @ np.swapaxes(A, 1, 2)
    assert np.allclose(rounding.lowest_eigenvalues(S * scale) / scale, np.linalg.eigvalsh(S)[:, 0], rtol=1e-11)
    assert np.allclose(rounding.highest_eigenvalues(S * scale) / scale, np.linalg.eigvalsh(S)[:, -1], rtol=1e-11)
    assert not rounding.norms(0 * a).any() and not rounding.spectral_norms(0 * A).any()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 1001])
def test_means_by_halving(n):
    from math import fsum

    rows = np.random.default_rng(n).normal(size=(n, 2)) * np.geomspace(1, 1e8, n)[:, None]
    for k in range(2):
        off = abs(rounding.mean(rows)[k] - fsum(rows[:, k]) / n)
        assert off <= (rounding.mean_accuracy(n) + rounding.EPS) * fsum(np.abs(rows[:, k])) / n


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@np.errstate(over="ignore", invalid="ignore")  # of drawing values that do not fit, which are passed over
def test_search(seed):
    """Random conditions up to 1e12 and scales up to 1e±150: centre, clients and products alone, by rational numbers."""
    rng = np.random.default_rng(seed)
    for number in range(60):
        small = rng.random() < 0.25  # float32
        kappa = 10.0 ** rng.uniform(0, 3 if small else 12)
        scales = 10.0 ** rng.uniform(-15, 15, size=3) if small else 10.0 ** rng.uniform(-150, 150, size=3)
        n, d, dtype = int(rng.integers(1, 6)), int(rng.integers(1, 7)), "float32" if small else "float64"
        problem, x, lam, w = aligned(
            1000 * seed + number, n=n, d=d, kappa=kappa, scale_H=scales[0], scale_J=scales[1], scale_f=scales[2],
            dtype=dtype,
        )  # fmt: skip
        value = value_of(problem, x, lam, w)
        if not (np.all(np.isfinite(value)) and np.all(np.isfinite(w))):
            continue
        errors, est = exact_errors(problem, x, lam, value), estimate_of(value, w)
        avg = hgp.PushSum(hgp.networks.RandomDirected(n, 0.4, 0.8, seed=number), 1 + number % 9)
        try:
            low = hgp.certify(problem, x, lam, est).alpha_bar
            found = [
                hgp.certify(problem, x, lam, est, avg, first_call=0, strong_convexity=low, matrix_free=free)
                for free in (False, True)
            ]
        except ValueError as error:
            assert any(
                words in str(error) for words in ("range of floating point", "not positive definite", "infinite")
            )
            continue
        for one in found:
            assert covered(errors, one.centralised) <= 1 and covered(errors, one.decentralised) <= 1
