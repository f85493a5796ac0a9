"""The reference against itself (two ways), differences of the re-solved cost, and Algorithm 2 by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.user_problems import Reuses

import hgp_ref as hgp
from hgp_ref import exact

from .conftest import RandomMatrices, smooth_problem

SIZES = [(1, 1), (1, 4), (3, 1), (3, 4), (7, 2)]


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("n, d", SIZES)
def test_two_ways_to_the_truth_agree(n, d):
    problem, lam = smooth_problem(n, d, seed=n + 10 * d)
    x = exact.inner_solution(problem, lam)
    reduced = exact.hypergradient(problem, x, lam)
    for eta in (0.1, 1.0, 3.0):
        stacked = exact.hypergradient(problem, x, lam, method="stacked", eta=eta)
        assert relative(stacked, reduced) < 1e-12


@pytest.mark.parametrize("n, d", SIZES)
def test_truth_is_the_derivative_of_the_resolved_outer_cost(n, d):
    problem, lam = smooth_problem(n, d, seed=n + 10 * d + 1)
    x = exact.inner_solution(problem, lam)
    step, numeric = 1e-5, np.zeros_like(lam)
    for index in np.ndindex(*lam.shape):
        change = np.zeros_like(lam)
        change[index] = step
        ends = []
        for point in (lam + change, lam - change):
            solved = exact.inner_solution(problem, point, x0=x[0])
            ends.append(problem.outer_cost(solved, point).sum())
        numeric[index] = (ends[0] - ends[1]) / (2 * step)
    # central differences: step² of the third derivative and eps/step of rounding, both near 1e-10
    assert relative(exact.hypergradient(problem, x, lam), numeric) < 1e-6


def test_inner_solution_is_stationary_to_rounding():
    problem, lam = smooth_problem(6, 5, seed=3, instances=40)
    x = exact.inner_solution(problem, lam)
    assert np.all(x == x[0])
    gradients = problem.inner_grad(x, lam)
    assert np.linalg.norm(gradients.mean(axis=0)) < 10 * np.finfo(float).eps * np.abs(gradients).max() * 5
    assert np.array_equal(x, exact.inner_solution(problem, lam)), "a pure function"


def test_inner_solution_from_far_away_needs_backtracking():
    problem, lam = smooth_problem(4, 3, seed=5)
    near = exact.inner_solution(problem, lam - 6)
    far = exact.inner_solution(problem, lam - 6, x0=np.full(3, 300.0))
    assert np.allclose(near, far, rtol=1e-10)


def test_a_mean_hessian_that_is_not_positive_definite_is_refused():
    class Saddle:
        n_clients, dim_x, dim_lam = 2, 2, 1

        def inner_cost(self, x, lam):
            return 0.5 * (x[:, 0] ** 2 - x[:, 1] ** 2)

        def inner_grad(self, x, lam):
            return x * np.array([1.0, -1.0])

        def outer_grad(self, x, lam):
            return np.ones_like(x), np.zeros_like(lam)

        def hessian(self, x, lam):
            return np.tile(np.diag([1.0, -1.0]), (2, 1, 1))

        def jacobian(self, x, lam):
            return np.zeros((2, 1, 2))

    lam = np.zeros((2, 1))
    with pytest.raises(ValueError, match="not positive definite.*-1.000e\\+00"):
        exact.inner_solution(Saddle(), lam)
    with pytest.raises(ValueError, match="not positive definite"):
        exact.hypergradient(Saddle(), np.zeros((2, 2)), lam)


def test_derivatives_are_those_of_the_gradient():
    problem, lam = smooth_problem(3, 4, seed=8)
    x = np.random.default_rng(0).normal(size=(3, 4))
    H, J = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)
    h = 1e-6
    for k in range(4):
        e = np.zeros((3, 4))
        e[:, k] = h
        by_x = (problem.inner_grad(x + e, lam) - problem.inner_grad(x - e, lam)) / (2 * h)
        by_lam = (problem.inner_grad(x, lam + e) - problem.inner_grad(x, lam - e)) / (2 * h)
        assert np.allclose(H[:, :, k], by_x, atol=1e-8)
        assert np.allclose(J[:, k, :], by_lam, atol=1e-8)  # row k of J_i is ∂_λk ∂_x g_i


def test_closed_forms_are_used_when_offered():
    problem, lam = smooth_problem(2, 3, seed=1)
    x = np.ones((2, 3))
    wanted = exact.hessians(problem, x, lam), exact.jacobians(problem, x, lam)

    class Closed:
        def hessian(self, x, lam, batch=None):
            return wanted[0]

        def jacobian(self, x, lam, batch=None):
            return wanted[1]

    for form, closed in zip((exact.hessians, exact.jacobians), wanted, strict=True):
        found = form(Closed(), x, lam)
        assert np.array_equal(found, closed) and not np.shares_memory(found, closed), "a caller may write into it"


def test_a_problem_may_reuse_its_output_array():
    """Every answer written into the same array: what is kept must be a copy."""
    problem, lam = smooth_problem(3, 3, seed=4)
    wanted = hypergradients(problem, lam)
    assert np.allclose(hypergradients(Reuses(problem), lam), wanted, rtol=1e-9)


def hypergradients(problem, lam):
    x = exact.inner_solution(problem, lam)
    ways = [exact.hypergradient(problem, x, lam, method=method) for method in ("reduced", "stacked")]
    return np.stack([*ways, exact.estimate(problem, x, lam, [np.full((3, 3), 1 / 3)] * 5, eta=0.3)])


@pytest.mark.parametrize("method", ["reduced", "stacked"])
@pytest.mark.parametrize("eta", [0, -1.0, np.nan, np.inf, True, "1", None])
def test_eta_must_be_positive(eta, method):
    problem, lam = smooth_problem(2, 3, seed=1)
    with pytest.raises((TypeError, ValueError), match=r"eta must be a finite number > 0, got .*"):
        exact.hypergradient(problem, np.ones((2, 3)), lam, method=method, eta=eta)
    with pytest.raises(ValueError, match="method must be one of 'reduced', 'stacked', got 'direct'"):
        exact.hypergradient(problem, np.ones((2, 3)), lam, method="direct")


def test_too_large_arrays_are_refused_with_their_size():
    n, d = 10, 20_000
    X, y = np.zeros((n, 1, d)), np.zeros((n, 1))
    problem, at = hgp.problems.LogisticRegression(X, y, X, y), (np.zeros((n, d)), np.ones((n, d)))
    for call in (exact.hessians, exact.jacobians, exact.hypergradient):
        with pytest.raises(ValueError, match=r"must take at most 4 GiB, got 29\.8 GiB.*hgp_ref\.certify"):
            call(problem, *at)
    with pytest.raises(ValueError, match=r"stacked system .* 298\.0 GiB"):
        exact.hypergradient(problem, *at, method="stacked")
    with pytest.raises(ValueError, match=r"stacked operators"):
        exact.estimate(problem, *at, [np.full((n, n), 1 / n)], eta=0.1)
    with pytest.raises(ValueError, match=r"29\.8 GiB"):
        exact.inner_solution(problem, at[1])
    with pytest.raises(ValueError, match=r"Θ \(nd, nd\)"):
        exact.theta(n, d)


# ---- operators


@pytest.mark.parametrize("steps, call", [(1, 0), (3, 2)])
def test_push_sum_matrix_is_algorithm_1(steps, call):
    net, n = RandomMatrices(4, seed=2), 4
    y = np.random.default_rng(1).normal(size=(n, 3))
    z, omega = y.copy(), np.ones(n)
    for s in range(call * steps + 1, (call + 1) * steps + 1):
        W = net.mixing_matrix(s)
        z, omega = W @ z, W @ omega
    K = exact.push_sum_matrix(net, steps, call)
    assert np.allclose(K @ y, z / omega[:, None], atol=1e-15)
    assert np.allclose(K.sum(axis=1), 1, atol=1e-15)
    assert np.allclose(omega @ K, 1, atol=1e-15)


def test_lists_of_matrices_match_the_single_ones():
    net = RandomMatrices(5, seed=4)
    for debias in ("reset", "keep", "conserve"):
        matrices, weights = exact.push_sum_matrices(net, 2, 4, debias)
        for m in range(4):
            assert np.allclose(matrices[m], exact.push_sum_matrix(net, 2, m, debias), atol=1e-15)
            assert np.allclose(weights[m], exact.push_sum_weights(net, 2, m), atol=1e-15)
    assert not np.allclose(exact.push_sum_matrix(net, 2, 3, "keep"), exact.push_sum_matrix(net, 2, 3))


def test_push_sum_tends_to_theta():
    K = exact.push_sum_matrix(RandomMatrices(5, seed=4), 200)
    assert np.allclose(np.kron(K, np.eye(2)), exact.theta(5, 2), atol=1e-14)


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"steps": 1, "call": -1}, "call must be an integer >= 0, got -1"),
        ({"steps": 1, "debias": "x"}, "debias must be one of .*, got 'x'"),
    ],
)
def test_bad_operators(kwargs, message):
    with pytest.raises(ValueError, match=message):
        exact.push_sum_matrix(RandomMatrices(2), **kwargs)


# ---- the explicit product formula


def algorithm_2(problem, x, lam, net, steps, M, eta, debias, batches_v=None, batches_u=None):
    """Lines of Algorithm 2 with the weights treated as `debias` says; loops only, no block matrices."""
    u, v = problem.outer_grad(x, lam)
    z, omega = u.copy(), np.ones(net.n)
    for m in range(M):
        if debias == "reset":
            z, omega = u.copy(), np.ones(net.n)
        elif debias == "keep":
            z = u.copy()
        for s in range(m * steps + 1, (m + 1) * steps + 1):
            W = net.mixing_matrix(s)
            z, omega = W @ z, W @ omega
        mean = z / omega[:, None]
        v = v - eta * problem.linearize(x, lam, None if batches_v is None else batches_v[m]).cross(mean)
        Hu = problem.linearize(x, lam, None if batches_u is None else batches_u[m]).hvp(mean)
        u = mean - eta * Hu
        z = z - eta * Hu
    return v


@pytest.mark.parametrize("debias", ["reset", "keep", "conserve"])
@pytest.mark.parametrize("minibatch", [False, True])
@pytest.mark.parametrize("n, d", [(1, 1), (1, 3), (4, 2)])
def test_product_formula_is_algorithm_2(n, d, minibatch, debias):
    problem, lam = smooth_problem(n, d, seed=11)
    x, net, M, eta = exact.inner_solution(problem, lam), RandomMatrices(n, seed=5), 6, 0.2
    batches_v = batches_u = None
    if minibatch:
        rng = np.random.default_rng(0)
        batches_v, batches_u = (
            np.array([[rng.permutation(5)[:3] for _ in range(n)] for _ in range(M)]) for _ in range(2)
        )
        batches_u[:, 0, 2] = -1  # padding
    matrices, weights = exact.push_sum_matrices(net, 2, M, debias)
    found = exact.estimate(
        problem, x, lam, matrices, eta, batches_v, batches_u, weights=weights if debias == "conserve" else None
    )
    wanted = algorithm_2(problem, x, lam, net, 2, M, eta, debias, batches_v, batches_u)
    assert relative(found, wanted) < 1e-13
    if minibatch:
        swapped = exact.estimate(
            problem, x, lam, matrices, eta, batches_u, batches_v, weights=weights if debias == "conserve" else None
        )
        assert relative(swapped, wanted) > 1e-6


def test_with_exact_averages_the_formula_tends_to_the_truth():
    problem, lam = smooth_problem(3, 2, seed=12)
    x = exact.inner_solution(problem, lam)
    found = exact.estimate(problem, x, lam, [np.full((3, 3), 1 / 3)] * 400, eta=0.3)
    assert relative(found, exact.hypergradient(problem, x, lam)) < 1e-12


def test_counts_that_disagree_are_refused():
    problem, lam = smooth_problem(2, 2, seed=12)
    with pytest.raises(ValueError, match="batches_v must have 2 entries, one per matrix, got 1"):
        exact.estimate(problem, lam, lam, [np.eye(2)] * 2, 0.1, batches_v=np.zeros((1, 2, 1), dtype=int))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 5), d=st.integers(1, 3), seed=st.integers(0, 2**31), order=st.randoms(use_true_random=False))
def test_permuting_the_clients_permutes_everything(n, d, seed, order):
    problem, lam = smooth_problem(n, d, seed)
    p = list(range(n))
    order.shuffle(p)
    permuted = type(problem)(problem.A[p], problem.b[p], problem.c[p])
    x = exact.inner_solution(problem, lam)
    assert np.allclose(exact.inner_solution(permuted, lam[p]), x, rtol=1e-9, atol=1e-11)
    truth = exact.hypergradient(problem, x, lam)
    assert np.allclose(exact.hypergradient(permuted, x, lam[p]), truth[p], rtol=1e-9, atol=1e-10)
    matrices, _ = exact.push_sum_matrices(RandomMatrices(n, seed), 2, 4)
    found = exact.estimate(problem, x, lam, matrices, 0.1)
    shuffled = exact.estimate(permuted, x, lam[p], [K[np.ix_(p, p)] for K in matrices], 0.1)
    assert np.allclose(shuffled, found[p], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_problems_of_other_libraries(library):
    """A diagonal problem written for any namespace gives the same reference numbers as in NumPy."""
    pytest.importorskip(library)
    from hgp_ref.backend import array_namespace, get_backend, to_host

    backend = get_backend(library)

    class Diagonal:
        n_clients, dim_x, dim_lam = 3, 2, 2

        def inner_cost(self, x, lam):
            xp = array_namespace(x)
            return xp.sum(xp.exp(lam) * (x - 1) ** 2 / 2, axis=-1)

        def inner_grad(self, x, lam):
            xp = array_namespace(x)
            return xp.exp(lam) * (x - 1) + 0.1 * lam

        def outer_grad(self, x, lam):
            return x * lam, x * x / 2

        def linearize(self, x, lam):
            xp = array_namespace(x)

            class At:
                def hvp(self, u):
                    return xp.exp(lam) * u

                def cross(self, u):
                    return (xp.exp(lam) * (x - 1) + 0.1) * u

            return At()

    lam = np.array([[0.1, 0.5], [-0.3, 0.2], [0.4, -0.1]])
    there = backend.asarray(lam)
    x, x_there = exact.inner_solution(Diagonal(), lam), exact.inner_solution(Diagonal(), there)
    assert type(x_there) is type(there)
    assert np.allclose(to_host(x_there), x, atol=1e-15)
    for method in ("reduced", "stacked"):
        truth = exact.hypergradient(Diagonal(), x_there, there, method)
        assert truth.dtype == np.float64
        assert np.allclose(truth, exact.hypergradient(Diagonal(), x, lam, method), atol=1e-14)
