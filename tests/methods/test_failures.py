"""Runs that cannot return a result raise an error, and errors name the bad argument."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref.methods.divergence import DivergenceMonitor
from hgp_ref.mixing import start_averaging


def stiff(n=2, curvature=3.0):
    """H = diag(0.5, curvature) for every client: diverges at η = 1 once curvature > 2, though α = 0.5 < 1/η."""
    A = np.broadcast_to(np.diag([0.5, curvature]), (n, 2, 2)).copy()
    problem = hgp.problems.Quadratic(A, np.ones((n, 2)), np.ones((n, 1, 2)), np.zeros((n, 2)))
    return problem, np.ones((n, 2)), np.ones((n, 1))


@pytest.mark.parametrize("iterations", [1, 2, 10, 500])
def test_eta_too_large_is_reported_with_the_curvature(iterations):
    problem, x, lam = stiff()
    with pytest.raises(hgp.DivergenceError, match=r"eta \* lambda_max = 3 .*which must be < 2"):
        hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=1.0, iterations=iterations)
    hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=0.6, iterations=iterations)


def test_slow_divergence_is_detected_while_terms_are_small():
    problem, x, lam = stiff(curvature=2.01)
    x[:, 1] = 1e-3  # the growing direction starts a thousand times below the other
    with pytest.raises(hgp.DivergenceError, match=r"eta \* lambda_max = 2\.01"):
        hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=1.0, iterations=400)


def test_divergence_in_one_run_of_many_is_reported():
    problem, x, lam = stiff()
    with pytest.raises(hgp.DivergenceError):
        hgp.hypergradient(problem, x, lam, [hgp.ExactAverage(2)] * 3, eta=1.0, iterations=30)


def test_divergence_from_carried_weights_names_the_averaging():
    problem, x, lam = logistic()
    with pytest.warns(RuntimeWarning, match="can diverge"):
        avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), 1, debias="keep")
    with pytest.raises(hgp.DivergenceError, match="debias='keep' of the averaging makes them grow"):
        hgp.hypergradient(problem, x, lam, avg, eta=0.1, iterations=2000)


def scalars(*curvatures):
    """One client for each curvature: H_i = h_i, J_i = 1, ∂_x f_i ≠ 0."""
    n = len(curvatures)
    A = np.array(curvatures, dtype=float).reshape(n, 1, 1)
    problem = hgp.problems.Quadratic(A, np.ones((n, 1)), np.ones((n, 1, 1)), np.full((n, 1), 5.0))
    return problem, np.full((n, 1), 0.5), np.zeros((n, 1))


@pytest.mark.parametrize("curvature", [0.0, 2.0])
def test_a_series_that_does_not_shrink_warns(curvature):
    with pytest.warns(RuntimeWarning, match="not converged: the terms of the series do not shrink"):
        hgp.hypergradient(*scalars(curvature, curvature), hgp.ExactAverage(2), eta=1.0, iterations=100)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_terms_that_have_underflowed_are_converged(dtype):
    """0.9 of the smallest positive number rounds to itself: what is left stays there for ever."""
    A = np.broadcast_to(np.diag([0.1, 0.7]), (2, 2, 2)).astype(dtype)
    ones = np.ones((2, 2), dtype)
    problem = hgp.problems.Quadratic(A, ones, np.ones((2, 1, 2), dtype), 3 * ones)
    est = hgp.hypergradient(
        problem, ones, ones[:, :1], hgp.ExactAverage(2), eta=1.0, iterations=9000
    )  # warnings are errors
    assert 0 < est.residual_norms[-1] == est.residual_norms[-2] < np.finfo(dtype).tiny


def test_falling_terms_above_the_first_one_warn():
    problem, x, lam = scalars(300.0, -299.0)
    with pytest.warns(RuntimeWarning, match="not converged: after 3 iterations the largest term is"):
        est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=0.5, iterations=3)
    assert est.residual_norms[0] < est.residual_norms[-1] < est.residual_norms[-2]


def test_negative_curvature_is_named_with_its_sign():
    with pytest.raises(hgp.DivergenceError, match=r"lambda_max = -0\.5 .*not convex"):
        hgp.hypergradient(*scalars(-0.5, -0.5), hgp.ExactAverage(2), eta=1.0, iterations=200)


def test_a_transient_of_nonconvex_clients_warns_and_converges_later():
    """Clients −0.5 and 1.5: the first step grows the terms, the mean curvature 0.5 shrinks them."""
    problem, x, lam = scalars(-0.5, 1.5)
    x = np.array([[-20.0], [24.5]])
    net = hgp.networks.FullyConnected(2)
    with pytest.warns(RuntimeWarning, match="not converged: after 1 iterations"):
        hgp.hypergradient(
            problem,
            x,
            lam,
            hgp.PushSum(hgp.networks.Schedule([np.array([[0.9, 0.1], [0.1, 0.9]])]), 1),
            eta=1.0,
            iterations=1,
        )
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 1), eta=1.0, iterations=200)
    np.testing.assert_allclose(est.value, hgp.exact.hypergradient(problem, x, lam), rtol=1e-12)


def test_the_run_that_diverges_is_named():
    problem, x, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    with pytest.warns(RuntimeWarning, match="can diverge"):
        keep = hgp.PushSum(net, 1, debias="keep")
    with pytest.raises(hgp.DivergenceError, match=r"in run 1, PushSum\(.*debias='keep'\)"):
        hgp.hypergradient(problem, x, lam, [hgp.PushSum(net, 100), keep], eta=0.1, iterations=2000)


def test_every_averaging_over_a_shared_network_is_checked():
    problem, x, lam = quadratic(n=3)
    ring = hgp.networks.Schedule([(np.array([i]), np.array([(i + 1) % 3])) for i in range(3)], n=3)
    with pytest.warns(RuntimeWarning, match="steps=1"):
        hgp.hypergradient(problem, x, lam, [hgp.PushSum(ring, 100), hgp.PushSum(ring, 1)], eta=1.0, iterations=1)


class WrongShapes:
    """A user's problem that returns (n,) where (n, 1) is needed."""

    n_clients, dim_x, dim_lam = 3, 4, 1

    def __init__(self, wrong):
        self.wrong = wrong

    def _flat(self, name, a):
        return a[:, 0] if name == self.wrong else a

    def outer_grad(self, x, lam):
        return self._flat("u", x), self._flat("v", lam)

    def linearize(self, x, lam, batch=None):
        outer = self

        class At:
            def hvp(self, u):
                return outer._flat("hvp", 0.5 * u)

            def cross(self, u):
                return outer._flat("cross", u[:, :1])

        return At()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("u", r"outer_grad\(x, lam\)\[0\]"),
        ("v", r"outer_grad\(x, lam\)\[1\]"),
        ("hvp", r"hvp\(u\)"),
        ("cross", r"cross\(u\)"),
    ],
)
def test_wrong_shapes_of_a_users_problem_are_named(wrong, named):
    x, lam = np.ones((3, 4)), np.ones((3, 1))
    message = rf"problem.{named} must return shape \(3, \d\), got \(3,\)"
    with pytest.raises(ValueError, match=message):
        hgp.hypergradient(WrongShapes(wrong), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=3)
    with pytest.raises(ValueError, match=message):
        hgp.exact.hypergradient(WrongShapes(wrong), x, lam)


def test_a_disconnected_network_warns_and_names_the_clients():
    problem, x, lam = quadratic(n=3)
    one_way = hgp.networks.Schedule([(np.array([0, 1]), np.array([1, 0]))], n=3)
    with pytest.warns(RuntimeWarning, match="2"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(one_way, 2), eta=1.0, iterations=5)
    with pytest.warns(RuntimeWarning):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(hgp.networks.SelfLoops(3), 2), eta=1.0, iterations=5)


def test_a_network_connected_only_over_the_run_does_not_warn():
    problem, x, lam = quadratic(n=3)
    ring = [(np.array([i]), np.array([(i + 1) % 3])) for i in range(3)]  # one edge a step
    with warnings.catch_warnings(record=True) as caught:
        hgp.hypergradient(problem, x, lam, hgp.PushSum(hgp.networks.Schedule(ring, n=3), 1), eta=1.0, iterations=6)
    assert not [w for w in caught if "reach" in str(w.message)]


def call(change):
    problem, x, lam = logistic()
    given = {"problem": problem, "x": x, "lam": lam, "avg": hgp.ExactAverage(3), "iterations": 3}
    return hgp.hypergradient(**{**given, **change(x, lam)})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, lam: {"x": x[:2]}, ValueError, r"x must have shape \(3, 4\) = \(n, d_x\), got \(2, 4\)"),
        (
            lambda x, lam: {"x": np.stack([x, x])},
            ValueError,
            r"x must have shape \(3, 4\) = \(n, d_x\), got \(2, 3, 4\)",
        ),
        (lambda x, lam: {"lam": lam[:, :1]}, ValueError, r"lam must have shape \(3, 4\) = \(n, d_lam\), got \(3, 1\)"),
        (lambda x, lam: {"x": x.astype(np.float32)}, TypeError, "mixed dtypes: x is float32, lam is float64"),
        (lambda x, lam: {"x": x.tolist()}, TypeError, "x must be an array, got builtins.list"),
        (lambda x, lam: {"x": np.where(x > 0, np.nan, x)}, ValueError, "NaN"),
        (lambda x, lam: {"eta": 0.0}, ValueError, "eta must be a finite number > 0, got 0.0"),
        (lambda x, lam: {"eta": float("nan")}, ValueError, "eta must be a finite number > 0, got nan"),
        (lambda x, lam: {"iterations": 0}, ValueError, "iterations must be an integer >= 1, got 0"),
        (lambda x, lam: {"iterations": 2.5}, TypeError, "iterations must be an integer >= 1, got 2.5"),
        (lambda x, lam: {"batches": 0}, ValueError, "batches must be an integer from 1 to 2147483647, got 0"),
        (lambda x, lam: {"avg": hgp.ExactAverage(4)}, ValueError, "avg must average the problem's 3 clients, .* for 4"),
        (lambda x, lam: {"avg": []}, TypeError, "avg must be an averaging"),
        (lambda x, lam: {"avg": "push-sum"}, TypeError, "avg must be an averaging"),
        (
            lambda x, lam: {"batches": hgp.MiniBatches(2, seed=[1, 2]), "avg": [hgp.ExactAverage(3)] * 3},
            ValueError,
            "seed must be one seed or one for each of 3 averagings, got 2",
        ),
        (
            lambda x, lam: {"batches": hgp.MiniBatches(2, seed=[])},
            ValueError,
            "seed must be an integer or a list .* got an empty list",
        ),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    with pytest.raises(error, match=message):
        call(change)


def test_mini_batches_need_instances():
    problem, x, lam = quadratic()
    with pytest.raises(ValueError, match=r"batches=MiniBatches\(5, seed=0\) needs a problem with `counts`"):
        hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=1.0, batches=5)


@pytest.mark.parametrize("many", [False, True])
def test_a_failed_run_counts_its_traffic(many):
    problem, x, lam = quadratic()
    net = hgp.networks.RandomDirected(n=3, seed=1)

    def interrupt(m, v):
        if m == 4:
            raise KeyboardInterrupt

    avg, alone = hgp.PushSum(net, 5), hgp.PushSum(net, 5)
    with pytest.raises(KeyboardInterrupt):
        hgp.hypergradient(problem, x, lam, [avg] if many else avg, eta=1.0, iterations=50, callback=interrupt)
    hgp.hypergradient(problem, x, lam, alone, eta=1.0, iterations=4)
    assert avg.traffic == alone.traffic
    assert avg.traffic.rounds == 20


def test_zero_dimensional_arrays_are_numbers():
    problem, x, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    avg, batches = hgp.PushSum(net, np.array(5)), hgp.MiniBatches(2, seed=np.array(7))
    assert avg.steps == 5 and batches.seed == 7
    est = hgp.hypergradient(problem, x, lam, avg, eta=0.1, iterations=5, batches=batches)
    fit = hgp.sgp(problem, lam, net, steps=5, lr=0.1, batches=batches)
    assert est.value.ndim == fit.x.ndim == 2
    with pytest.raises(TypeError, match="seed must be an integer from 0 to 18446744073709551615, got 'ab'"):
        hgp.MiniBatches(2, seed="ab")


def test_growth_that_no_hessian_explains_asks_for_a_check_of_the_derivatives():
    problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0, heterogeneity=0.1)
    x, lam = np.ones((3, 4)), np.zeros((3, 2))
    mixer = start_averaging([hgp.ExactAverage(3)], 3, x, calls=1)
    monitor = DivergenceMonitor(problem, x, lam, hgp.methods.Neumann(0.1), np.ones_like(x), mixer, mini_batches=False)
    cause = monitor._cause(0.1, 0.5, 1.0, run=0)
    assert (
        cause.startswith("which is < 2, but no client's Hessian explains the growth") and "check_derivatives" in cause
    )
