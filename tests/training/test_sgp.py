"""Stochastic gradient push against its two recursions, and against the exact inner solution."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import NETWORK_KINDS, logistic, quadratic, quadratic_data
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.problems.batches import sample_batches

RTOL = 1e-12


def recursion(problem, net, lam, rates, variant, batches=None):
    """The two forms with explicit matrices, step by step."""
    n = net.n
    x, omega = np.zeros((n, problem.dim_x)), np.ones(n)
    for s, rate in enumerate(rates):
        W, batch = net.mixing_matrix(s + 1), None if batches is None else batches[s]
        if variant == "assran":
            x = W @ (x - rate * problem.inner_grad(x / omega[:, None], lam, batch=batch))
            omega = W @ omega
        else:
            x, omega = W @ x, W @ omega
            x = x - rate * problem.inner_grad(x / omega[:, None], lam, batch=batch)
    return x / omega[:, None]


@pytest.mark.parametrize("variant", ["assran", "nedic"])
@pytest.mark.parametrize("kind", NETWORK_KINDS)
def test_sgp_equals_its_recursion(kind, variant):
    problem, _, lam = logistic(n=4)
    net = NETWORK_KINDS[kind](4)
    fit = hgp.train(
        problem, lam, net, hgp.training.SGP(steps=30, lr=0.5, milestones=(10, 20), decay=0.2, variant=variant)
    )
    rates = [0.5] * 10 + [0.1] * 10 + [0.02] * 10
    assert_close(fit.x, recursion(problem, net, lam, rates, variant), RTOL)
    for first in (0, 1000):
        rule = dict(batches=hgp.MiniBatches(5, seed=9, offset=first))
        mini = hgp.train(problem, lam, net, hgp.training.SGP(steps=300, lr=0.1, variant=variant, **rule))
        batches = sample_batches(problem.counts, 5, 9, first, 300)
        assert_close(mini.x, recursion(problem, net, lam, [0.1] * 300, variant, batches), RTOL)


@pytest.mark.parametrize("variant", ["assran", "nedic"])
def test_reaches_the_inner_solution_as_the_rate_falls(variant):
    problem, _, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    fit = hgp.train(
        problem, lam, net, hgp.training.SGP(steps=3000, lr=1.0, milestones=(1000, 1500, 2000, 2500), variant=variant)
    )
    solution = exact.inner_solution(problem, lam)
    assert np.abs(fit.x - solution).max() < 1e-3
    assert fit.consensus_gap < 1e-3 and fit.grad_norm < 1e-3
    mean = fit.x.mean(axis=0)
    assert fit.consensus_gap == pytest.approx(np.linalg.norm(fit.x - mean, axis=1).max())
    grads = problem.inner_grad(np.tile(mean, (3, 1)), lam)
    assert fit.grad_norm == pytest.approx(np.linalg.norm(grads.mean(axis=0)))


def test_runs_along_lam_equal_one_by_one():
    problem, _, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    many = np.stack([lam, 2 * lam, 0.5 * lam])
    together = hgp.sgp(problem, many, net, steps=40, lr=0.5, milestones=(0.6, 0.8))
    assert together.x.shape == (3, 3, 4) and together.consensus_gap.shape == (3,)
    for r in range(3):
        alone = hgp.sgp(problem, many[r], net, steps=40, lr=0.5, milestones=(0.6, 0.8))
        assert_close(together.x[r], alone.x, RTOL)
        assert together.grad_norm[r] == pytest.approx(alone.grad_norm)


def test_sgp_starts_at_x0():
    problem, x, lam = logistic()
    net = hgp.networks.FullyConnected(3)
    start = np.tile(x[0], (3, 1))
    fit = hgp.sgp(problem, lam, net, steps=1, lr=0.1, x0=start, milestones=(0.6, 0.8))
    expected = (start - 0.1 * problem.inner_grad(start, lam)).mean(axis=0)
    assert_close(fit.x, np.tile(expected, (3, 1)), RTOL)


def test_traffic_counts_one_round_a_step():
    problem, _, lam = logistic()
    net = hgp.networks.RandomDirected(n=3, seed=1)
    fit = hgp.sgp(problem, lam, net, steps=20, lr=0.1, milestones=(0.6, 0.8))
    sent = sum(net.edges(s)[0].size - 3 for s in range(1, 21))
    assert fit.traffic == hgp.Traffic(messages=sent, floats=sent * 5, bytes=sent * 40, rounds=20)


def test_divergence_is_reported():
    problem, _, lam = quadratic()
    with pytest.raises(hgp.DivergenceError, match="take a smaller lr"):
        hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), steps=5000, lr=50.0)


@pytest.mark.parametrize(("steps", "lr"), [(40, 5.0), (500, 3.5)])
def test_divergence_is_reported_while_numbers_are_finite(steps, lr):
    problem, _, lam = quadratic()  # λ_max = 1: needs lr < 2
    with pytest.raises(hgp.DivergenceError, match="training diverged.*take a smaller lr"):
        hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), steps=steps, lr=lr)


@pytest.mark.parametrize("variant", ["assran", "nedic"])
def test_mini_batches_from_a_stationary_start_are_no_divergence(variant):
    """The gradient of all instances is exactly 0 at x = 0, that of a mini-batch is not."""
    X, y = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]), np.array([1, 0, 0, 1])
    problem, lam = hgp.problems.LogisticRegression(*[[X, X], [y, y]] * 2), np.full((2, 2), 0.1)
    assert not problem.inner_grad(np.zeros((2, 2)), lam).any()
    net = hgp.networks.FullyConnected(2)
    fit = hgp.train(
        problem, lam, net, hgp.training.SGP(steps=300, lr=0.1, variant=variant, milestones=(0.6, 0.8), batches=1)
    )
    assert 0 < np.abs(fit.x).max() < 1
    with pytest.raises(hgp.DivergenceError):
        hgp.train(problem, lam, net, hgp.training.SGP(steps=300, lr=40.0, variant=variant, batches=1))


def test_a_start_at_the_solution_is_no_divergence():
    problem, _, lam = logistic()
    x0 = exact.inner_solution(problem, lam)
    net = hgp.networks.RandomDirected(n=3, seed=1)
    fit = hgp.sgp(problem, lam, net, steps=50, lr=0.5, x0=x0, batches=2)
    assert fit.grad_norm > 1e-6  # the noise moves it away, and that is no error


def test_a_tolerance_ends_training_at_the_first_check_that_meets_it():
    """‖mean_i ∂g_i(x̄)‖ against that of the start, every 32 steps."""
    problem, _, lam = quadratic()
    given = dict(lr=0.1, milestones=(), x0=np.full((3, 4), 50.0))

    def left(x):
        return np.linalg.norm(problem.inner_grad(np.tile(x.mean(axis=0), (3, 1)), lam).mean(axis=0))

    fit = hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), steps=2000, tol=1e-3, **given)
    earlier = hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), steps=fit.steps - 32, **given)
    assert fit.stopped == "tolerance" and fit.steps % 32 == 0 and fit.traffic.rounds == fit.steps
    assert left(fit.x) <= 1e-3 * left(given["x0"]) < left(earlier.x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"lr": -1.0}, "lr must be a finite number > 0, got -1.0"),
        ({"variant": "adam"}, "variant must be one of 'assran', 'nedic', got 'adam'"),
        ({"batches": 0}, "batches must be an integer from 1 to 2147483647, got 0"),
        ({"x0": np.zeros((2, 4))}, r"x0 must have shape \(..., 3, 4\) = \(n, d_x\), got \(2, 4\)"),
        ({"lam": np.full((3, 4), np.nan)}, "lam must not contain NaN or infinite values"),
        ({"decay": 0.0}, "decay must be a finite number > 0, got 0.0"),
        ({"milestones": 50}, "milestones must be step numbers, or fractions of the steps.*got 50"),
    ],
)
def test_bad_arguments_are_named(change, message):
    problem, _, lam = logistic()
    given = {"lam": lam, "x0": None, "steps": 5, **change}
    settings = {name: value for name, value in given.items() if name not in ("lam", "x0")}
    with pytest.raises(ValueError, match=message):
        hgp.train(problem, given["lam"], hgp.networks.FullyConnected(3), hgp.training.SGP(**settings), x0=given["x0"])


def test_lam_of_another_dtype_is_refused():
    problem, _, lam = logistic()
    with pytest.raises(TypeError, match="lam must have the problem's dtype float64, got float32"):
        hgp.sgp(problem, lam.astype(np.float32), hgp.networks.FullyConnected(3), steps=5, lr=0.1)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
def test_an_unmet_tolerance_is_reported_at_any_scale(scale):
    A, b, C, target = quadratic_data()
    net, lam = hgp.networks.RandomDirected(n=3, seed=1), np.zeros((3, 2))
    one = hgp.sgp(hgp.problems.Quadratic(A, b, C, target), lam, net, steps=65, lr=0.5, milestones=(0.6, 0.8))
    with pytest.warns(hgp.ConvergenceWarning, match="tol=1e-09 was not met in 65 steps"):
        far = hgp.sgp(
            hgp.problems.Quadratic(A, b * scale, C, target), lam, net, steps=65, lr=0.5, tol=1e-9, milestones=(0.6, 0.8)
        )
    assert far.stopped == "steps"  # squares that underflow are no gradient of 0
    np.testing.assert_allclose(far.grad_norm / scale, one.grad_norm, rtol=1e-9)
    np.testing.assert_allclose(far.consensus_gap / scale, one.consensus_gap, rtol=1e-9)
