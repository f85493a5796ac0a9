"""Influence with networks: predictions are the slope of M more gradient steps, with and without, convex or not."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref import neural
from hgp_ref.attribution import influence, retrain_from, retrain_over_network
from hgp_ref.attribution.retraining import instance_counts
from hgp_ref.errors import DivergenceError
from hgp_ref.problems import NeuralInstanceWeights, PersonalMask, PersonalMixture

SIZES, CLASSES = (4, 6, 5), 3


def data(counts, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((k, 1, 5, 5)) for k in counts], [rng.integers(0, CLASSES, k) for k in counts]


def network():
    return neural.Sequential((1, 5, 5), neural.Conv2d(1, 2, 2), neural.Tanh(), neural.AvgPool2d(2), neural.Flatten(),
                             neural.Linear(8, CLASSES))  # fmt: skip


def stationary(problem, x, lam):
    """A minimum of the mean inner cost, to rounding: gradient descent from x, then Newton's method."""
    gradient = np.inf
    while np.linalg.norm(gradient) > 1e-3:
        gradient = problem.inner_grad(x, lam).mean(axis=0)
        x = x - 0.5 * gradient
    for _ in range(4):
        H = hgp.exact.hessians(problem, x, lam).mean(axis=0)
        assert np.linalg.eigvalsh(H)[0] > 0
        x = x - np.linalg.solve(H, problem.inner_grad(x, lam).mean(axis=0))
    assert np.linalg.norm(problem.inner_grad(x, lam).mean(axis=0)) < 1e-13
    return x


@pytest.fixture(scope="module")
def trained():
    """A stationary point, to rounding, of weights that are not all 1."""
    problem = NeuralInstanceWeights(network(), *data(SIZES, 0), *data((3, 3, 3), 1), l2=0.05)
    lam = np.ones((3, problem.dim_lam))
    lam[1, 2] = 1e-4  # small enough for first order: to remove it is a small change
    return problem, stationary(problem, problem.model.init(3), lam), lam


def test_a_small_fraction_of_a_weight_agrees_to_first_order(trained):
    """What is missed falls with the fraction that is removed: first order is its limit."""
    problem, x, lam = trained
    lam = np.ones_like(lam)
    x = stationary(problem, x, lam)
    predicted = influence(
        problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(0.3), iterations=50
    ).per_instance[1, 2]
    options = {"eta": 0.3, "steps": 50}
    missed = [
        abs(retrain_from(problem, x, lam, [(1, 2)], fraction=t, **options).actual[0] / (t * predicted) - 1)
        for t in (1.0, 0.1, 0.01)
    ]
    assert missed[0] > 5 * missed[1] > 25 * missed[2] and missed[2] < 0.01
    part = lam.copy()
    part[1, 2] = 0.75
    expected = retrain_from(problem, x, part, [], **options).x_base
    assert np.array_equal(retrain_from(problem, x, lam, [(1, 2)], fraction=0.25, **options).x[0], expected)
    with pytest.raises(ValueError, match=r"^fraction must be a number in \[0, 1\], got 1.5"):
        retrain_from(problem, x, lam, [(1, 2)], fraction=1.5, **options)


@pytest.mark.parametrize("steps", [1, 7, 200])
def test_a_prediction_is_the_slope_of_more_steps(trained, steps):
    """v^(M) with exact averaging is the derivative of M steps, for few M as for many: error of second order only."""
    problem, x, lam = trained
    found = influence(problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(0.3), iterations=steps)
    actual = retrain_from(problem, x, lam, [(1, 2)], eta=0.3, steps=steps).actual[0]
    assert actual == pytest.approx(found.per_instance[1, 2], rel=2e-4)
    other = influence(problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(0.3), iterations=steps + 1)
    assert abs(other.per_instance[1, 2] / actual - 1) > 1e-3 or steps == 200  # the number of steps matters


def test_negative_curvature_changes_nothing():
    """At a stationary point that is a saddle the slope is still v^(M): x = 0, where all logits are equal.

    With tanh and no biases but the last one's, x = 0 is stationary in all but the last biases for any data; labels in
    equal numbers make it stationary in these as well.
    """
    X, X_val = data((6, 6), 3)[0], data((3, 3), 4)[0]
    y = [np.array([0, 1, 2, 0, 1, 2])] * 2
    problem = NeuralInstanceWeights(network(), X, y, X_val, [np.array([0, 1, 1])] * 2, l2=1e-3)
    lam = np.full((2, 6), 1.0)
    x = np.zeros((2, problem.dim_x))
    assert np.abs(problem.inner_grad(x, lam).mean(axis=0)).max() < 1e-16
    H = hgp.exact.hessians(problem, x, lam).mean(axis=0)
    assert np.linalg.eigvalsh(H)[0] < -1e-3
    found = influence(problem, x, lam, hgp.ExactAverage(2), method=hgp.methods.Neumann(0.5), iterations=40)
    both = []
    for t in (1e-3, -1e-3):  # a weight that is t more or less, instead of one that becomes 0
        moved = lam.copy()
        moved[0, 1] += t
        z = np.zeros_like(x)
        for _ in range(40):
            z = z - 0.5 * problem.inner_grad(z, moved).mean(axis=0)
        both.append(problem.outer_cost(z, moved).sum())
    assert (both[1] - both[0]) / 2e-3 == pytest.approx(found.per_instance[0, 1], rel=1e-5)


def test_runs_are_the_same_alone_and_together(trained):
    problem, x, lam = trained
    removals = [(0, 1), ((1, 0), (2, 3))]
    together = retrain_from(problem, x, lam, removals, eta=0.3, steps=20)
    for r, removal in enumerate(removals):
        alone = retrain_from(problem, x, lam, [removal], eta=0.3, steps=20)
        assert np.array_equal(alone.x[0], together.x[r]) and alone.actual[0] == together.actual[r]
    assert np.allclose(together.x_base, x, atol=1e-12)
    assert np.array_equal(retrain_from(problem, x, lam, removals, eta=0.3, steps=0).actual, np.zeros(2))


def test_sgp_retrains_networks(trained):
    problem, _, lam = trained
    net = hgp.networks.RandomDirected(3, 0.4, 0.8, seed=1)
    method, x0 = hgp.training.SGP(30, 0.2, (0.6, 0.8), batches=hgp.MiniBatches(3, seed=2)), problem.model.init(3)
    found = retrain_over_network(problem, lam, net, method, [(0, 1), (2, 0)], x0=x0)
    weights = lam.copy()
    weights[2, 0] = 0
    assert np.array_equal(found.x[1], hgp.train(problem, weights, net, method, x0=x0).x)


def test_problems_declare_whether_lam_weighs_instances():
    X, y = data((3, 3, 3), 0)  # as many instances as classes, so that numbers alone do not tell
    weights = NeuralInstanceWeights(network(), *data(SIZES, 0), X, y)
    assert instance_counts(weights.restrict([0, 2])).tolist() == [4, 5]  # dim_lam remains 6
    for problem in (PersonalMask(network(), X, y), PersonalMixture(network(), X, y, components=3)):
        with pytest.raises(ValueError, match=f"lam of {type(problem).__name__} does not weigh instances"):
            instance_counts(problem)


def test_refusals(trained):
    problem, x, lam = trained
    with pytest.raises(ValueError, match="eta must be .*, got 0"):
        retrain_from(problem, x, lam, [(0, 0)], eta=0, steps=3)
    with pytest.raises(ValueError, match=r"x must have shape \(3, 37\) = .*, got \(2, 37\)"):
        retrain_from(problem, x[:2], lam, [(0, 0)], eta=0.1, steps=3)
    with pytest.raises(ValueError, match=f"steps must be .*, got {2 * 10**9}"):
        retrain_from(problem, x, lam, [(0, 0)], eta=0.1, steps=2 * 10**9)
    with pytest.raises(DivergenceError, match="take a smaller eta"):
        retrain_from(problem, x, lam, [(0, 0)], eta=1e6, steps=200)


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_a_mini_batch_prediction_is_the_slope_of_steps_on_its_batches_in_reverse(trained, steps):
    """Without the gradient at x the identity is exact for every sequence of batches, up to second order."""
    problem, x, lam = trained
    options, batches = {"batches": hgp.MiniBatches(3, seed=5)}, hgp.MiniBatches(3, seed=5, share=True)
    found = influence(
        problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(0.3), iterations=steps, batches=batches
    )
    one, other = (0, 2), (1, 3)
    for pair in (one, other):
        both = [
            retrain_from(
                problem, x, lam, [pair], eta=0.3, steps=steps, subtract_gradient_at_x=True, fraction=t, **options
            ).actual[0]
            for t in (1e-3, 2e-3)
        ]
        slope = (2 * both[0] - both[1] / 2) / 1e-3  # the second order cancels
        assert slope == pytest.approx(found.per_instance[pair], rel=1e-5, abs=1e-12)
    assert np.array_equal(
        retrain_from(problem, x, lam, [one], eta=0.3, steps=steps, subtract_gradient_at_x=True, **options).x_base,
        np.broadcast_to(x.mean(axis=0), x.shape),
    )
    plain = retrain_from(problem, x, lam, [one], eta=0.3, steps=steps, **options)
    assert not np.allclose(plain.x_base, x, atol=1e-4)  # where all data move away from x


def test_the_order_of_batches_matters(trained):
    problem, x, lam = trained
    options = {"batches": hgp.MiniBatches(3, seed=5)}
    forward = x.mean(axis=0) + np.zeros_like(x)
    for batch in hgp.problems.sample_batches(problem.counts, 3, 5, 0, 4):
        forward = forward - 0.3 * problem.inner_grad(forward, lam, batch).mean(axis=0)
    backward = retrain_from(problem, x, lam, [(0, 0)], eta=0.3, steps=4, **options).x_base
    again = x.mean(axis=0) + np.zeros_like(x)
    for batch in hgp.problems.sample_batches(problem.counts, 3, 5, 0, 4)[::-1]:
        again = again - 0.3 * problem.inner_grad(again, lam, batch).mean(axis=0)
    assert np.allclose(backward, again, rtol=0, atol=1e-14) and not np.allclose(backward, forward, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:not converged")  # the mean Hessian is not positive there
def test_steps_without_the_gradient_at_x_need_no_stationary_point():
    """Their slope is v^(M) wherever x is: the gradient that remains there plays no part."""
    problem = NeuralInstanceWeights(network(), *data(SIZES, 0), *data((3, 3, 3), 1), l2=0.05)
    lam, x = np.ones((3, problem.dim_lam)), problem.model.init(3)
    predicted = influence(
        problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(0.3), iterations=20
    ).per_instance[1, 2]
    changes = {
        subtract: retrain_from(
            problem, x, lam, [(1, 2)], eta=0.3, steps=20, subtract_gradient_at_x=subtract, fraction=1e-4
        ).actual[0]
        / 1e-4
        for subtract in (True, False)
    }
    assert changes[True] == pytest.approx(predicted, rel=1e-3)
    assert abs(changes[False] / predicted - 1) > 0.01  # the gradient that is left does matter to plain steps


def test_mini_batches_are_those_of_hypergradient(trained):
    problem, x, lam = trained
    options = {"method": hgp.methods.Neumann(0.3), "iterations": 6}
    net = hgp.ExactAverage(3)
    for choice in ({"share": True}, {"full_jacobian": True}, {}):
        batches = hgp.MiniBatches(2, seed=3, **choice)
        found = influence(problem, x, lam, net, batches=batches, **options)
        value = hgp.hypergradient(problem, x, lam, net, batches=batches, **options).value
        assert np.array_equal(found.estimate.value, value)
