"""Ridge regression: costs written out, the normal equations, the hyper-gradient in closed form, certificates."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close, identity_rtol

import hgp_ref as hgp

from .cases import COUNTS, VAL_COUNTS, data, make

TOL = identity_rtol("float64")


def ridge(d=4, seed=0, counts=COUNTS, **options):
    rng = np.random.default_rng(seed)
    arrays = (*data(rng, counts, d, None, "float64"), *data(rng, VAL_COUNTS, d, None, "float64"))
    problem = hgp.problems.LeastSquares(*arrays, **options)
    return arrays, problem, rng.uniform(0.2, 1.0, (3, problem.dim_lam))


@pytest.mark.parametrize("style", ["coordinate", "client"])
def test_costs_are_the_printed_ones(style):
    (X, y, X_val, y_val), problem, lam = ridge(regularization=style)
    x = np.random.default_rng(1).normal(size=(3, 4))
    fit = [0.5 * np.mean((A @ row - b) ** 2) for A, row, b in zip(X, x, y, strict=True)]
    assert_close(problem.inner_cost(x, lam), fit + 0.5 * np.sum(lam * x * x, axis=1), TOL)
    fit = [0.5 * np.mean((A @ row - b) ** 2) for A, row, b in zip(X_val, x, y_val, strict=True)]
    assert_close(problem.outer_cost(x, lam), np.array(fit), TOL)


def test_the_inner_solution_and_the_hypergradient_follow_from_the_normal_equations():
    (X, y, X_val, y_val), problem, lam = ridge()
    H = sum(A.T @ A / len(A) for A in X) + np.diag(lam.sum(axis=0))
    solution = np.linalg.solve(H, sum(A.T @ b / len(A) for A, b in zip(X, y, strict=True)))
    x = hgp.exact.inner_solution(problem, lam)
    assert_close(x, np.tile(solution, (3, 1)), TOL)
    f_x = sum(A.T @ (A @ solution - b) / len(A) for A, b in zip(X_val, y_val, strict=True))
    expected = -x * np.linalg.solve(H, f_x)
    assert_close(hgp.exact.hypergradient(problem, x, lam), expected, TOL)
    net = hgp.networks.RandomDirected(3, seed=0)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 40), iterations=400)
    assert_close(est.value, expected, 4 * np.sqrt(np.finfo(float).eps))
    cert = hgp.certify(problem, x, lam, est)
    assert np.all(np.linalg.norm(est.value - expected, axis=1) <= cert.bound)


def test_weights_of_instances_predict_the_effect_of_their_removal():
    """The hyper-gradient along the weight of an instance against differences of the re-solved problem."""
    c = make("weights-squares", 3)
    problem = hgp.problems.InstanceWeights(*_arrays(c.problem), l2=0.3, loss="squared")
    lam = np.ones_like(c.lam)
    found = hgp.exact.hypergradient(problem, hgp.exact.inner_solution(problem, lam), lam)
    for i, k in ((0, 0), (1, 7), (2, 3)):
        sides = []
        for h in (1e-5, -1e-5):
            at = lam.copy()
            at[i, k] += h
            sides.append(problem.outer_cost(hgp.exact.inner_solution(problem, at), at).sum())
        assert_close(found[i, k], np.asarray((sides[0] - sides[1]) / 2e-5), 1e-6)


def _arrays(problem):
    for part in (problem._train, problem._val):
        counts = part.counts
        yield [part.all.features[i, :k] for i, k in enumerate(counts)]
        yield [part.all.targets[i, :k, 0] for i, k in enumerate(counts)]


def test_lipschitz_constants_are_those_of_a_quadratic():
    (_, _, X_val, _), problem, lam = ridge()
    nu = problem.lipschitz(lam)
    exact = max(np.linalg.norm(A.T @ A / len(A), 2) for A in X_val)
    assert (nu.nu_H, nu.nu_flam, nu.nu_J) == (0.0, 0.0, 1.0)
    assert exact <= nu.nu_fx <= exact * (1 + 1e-12)
    assert nu.strong_convexity == pytest.approx(lam.mean(axis=0).min(), rel=1e-12)


def test_integer_targets_take_the_dtype_of_the_features():
    X = np.ones((2, 3, 1), dtype="float32")
    problem = hgp.problems.LeastSquares(X, np.arange(6).reshape(2, 3), X, np.zeros((2, 3)))
    cost = problem.inner_cost(np.zeros((2, 1), "float32"), np.zeros((2, 1), "float32"))
    assert cost.dtype == np.float32 and cost.tolist() == pytest.approx([5 / 6, 50 / 6])


def test_least_squares_on_another_library():
    strict = pytest.importorskip("array_api_strict")
    for kind in ("squares", "weights-squares"):
        c = make(kind, 3)
        moved = c.problem.to("array_api_strict")
        x, lam, u = (hgp.backend.from_host(a, like=moved._like()) for a in (c.x, c.lam, c.u))
        assert isinstance(x, type(strict.asarray(1.0)))
        for name in ("inner_cost", "inner_grad", "outer_cost"):
            there = getattr(moved, name)(x, lam)
            assert_close(hgp.backend.to_host(there), getattr(c.problem, name)(c.x, c.lam), TOL)
        assert_close(hgp.backend.to_host(moved.linearize(x, lam).hvp(u)), c.problem.linearize(c.x, c.lam).hvp(c.u), TOL)
