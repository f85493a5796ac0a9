"""Influence: predictions against the exact derivative and against retraining, removals, retraining itself, scores."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from support.libraries import LIBRARIES, open_library

import hgp_ref as hgp
import hgp_ref.attribution.prediction
import hgp_ref.attribution.retraining
from hgp_ref import attribution
from hgp_ref.attribution import client_removals, influence, retrain, retrain_over_network, scores
from hgp_ref.problems import InstanceWeights, LogisticRegression

SIZES = (5, 9, 7)  # training instances of the clients
LOSSES = {"binary": {}, "softmax": {"loss": "softmax", "n_classes": 3}}


def labelled(classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X, X_val = ([rng.standard_normal((k, 3)) for k in part] for part in (SIZES, (6, 6, 6)))
    y, y_val = ([rng.integers(0, classes, k) for k in part] for part in (SIZES, (6, 6, 6)))
    for labels in y:
        labels[:classes] = np.arange(classes)
    return X, y, X_val, y_val


def weighted(loss: str = "binary", l2: float = 0.3, seed: int = 0):
    """A problem with clients of unequal size, weights 1 and the exact inner solution."""
    problem = InstanceWeights(*labelled(3 if loss == "softmax" else 2, seed), l2=l2, **LOSSES[loss])
    lam = np.ones((problem.n_clients, problem.dim_lam))
    return problem, lam, hgp.exact.inner_solution(problem, lam)


def predict(problem, x, lam, **options):
    """To rounding: exact averaging, and enough terms for a smallest eigenvalue of 0.3 and η = 1/2."""
    return influence(problem, x, lam, hgp.ExactAverage(problem.n_clients), eta=0.5, iterations=300, **options)


@pytest.mark.parametrize("loss", LOSSES)
def test_prediction_is_minus_the_weighted_derivative(loss):
    problem, lam, x = weighted(loss)
    lam = lam * 0.7
    found = predict(problem, x, lam)
    exact = -lam * hgp.exact.hypergradient(problem, x, lam)
    valid = np.arange(problem.dim_lam) < np.array(SIZES)[:, None]
    assert np.max(np.abs(found.per_instance - np.where(valid, exact, 0))) <= 1e-12 * np.max(np.abs(exact))
    assert np.array_equal(found.predicted, found.per_instance[valid])  # client by client, each in order
    assert found.removals == tuple(((i, k),) for i, size in enumerate(SIZES) for k in range(size))


@pytest.mark.parametrize("loss", LOSSES)
def test_prediction_is_the_slope_of_the_retrained_cost(loss):
    """f(x(λ − t e)) − f(x(λ + t e)) = 2t · predicted + O(t³), with the scale: a sum over clients, each mean by N_i."""
    problem, lam, x = weighted(loss)
    found = predict(problem, x, lam)
    t = 1e-4
    for (pair,) in found.removals[::4]:
        costs = []
        for sign in (-1, 1):
            moved = lam.copy()
            moved[pair] += sign * t
            costs.append(np.sum(problem.outer_cost(hgp.exact.inner_solution(problem, moved), moved)))
        slope = (costs[0] - costs[1]) / (2 * t)
        assert abs(slope - found.per_instance[pair]) <= 1e-6 * np.max(np.abs(found.per_instance))


def test_the_convention_of_koh_and_liang():
    """One client: I_up,loss = −∇f·H⁻¹∇ℓ_k, and the change upon removal is −I_up,loss / N."""
    X, y, X_val, y_val = (part[1:2] for part in labelled(2))
    problem = InstanceWeights(X, y, X_val, y_val, l2=0.3)
    lam = np.ones((1, problem.dim_lam))
    x = hgp.exact.inner_solution(problem, lam)
    p = 1 / (1 + np.exp(-X[0] @ x[0]))
    grads = (p - y[0])[:, None] * X[0]  # ∇ℓ_k
    H = (X[0] * (p * (1 - p))[:, None]).T @ X[0] / len(p) + 0.3 * np.eye(3)
    p_val = 1 / (1 + np.exp(-X_val[0] @ x[0]))
    grad_f = X_val[0].T @ (p_val - y_val[0]) / len(p_val)
    up = -grads @ np.linalg.solve(H, grad_f)
    assert np.max(np.abs(predict(problem, x, lam).predicted + up / len(p))) <= 1e-12 * np.max(np.abs(up))


def test_a_group_and_a_client_are_sums():
    problem, lam, x = weighted()
    found = predict(problem, x, lam)
    each = found.per_instance
    expected = [each[0, 1] + each[2, 3], each[1, 8], each[1, 0]]
    assert np.allclose(found.predict([[(0, 1), (2, 3)], [(1, 8)], (1, 0)]), expected, rtol=1e-14, atol=0)
    clients = client_removals(problem)
    assert [len(removal) for removal in clients] == list(SIZES)
    for predicted in (found.predict(clients), found.per_client):
        assert np.allclose(predicted, [each[i, :size].sum() for i, size in enumerate(SIZES)], rtol=1e-12, atol=1e-16)
    assert found.predict([]).shape == (0,)


def test_most_influential_over_all_clients():
    problem, lam, x = weighted()
    found = predict(problem, x, lam)
    top = found.most_influential(6)
    sizes = np.abs([found.per_instance[pair] for pair in top])
    assert np.all(np.diff(sizes) <= 0)
    rest = [found.per_instance[pair] for (pair,) in found.removals if pair not in top]
    assert np.max(np.abs(rest)) <= sizes[-1]
    with pytest.raises(ValueError, match="^count must be an integer from 0 to 21, got 22"):
        found.most_influential(22)


def test_most_harmful_and_most_helpful_are_the_two_ends():
    problem, lam, x = weighted()
    found = predict(problem, x, lam)
    order = [pair for _, pair in sorted((found.per_instance[pair], pair) for (pair,) in found.removals)]
    assert found.most_harmful(21) == order and found.most_helpful(21) == order[::-1]
    assert found.most_harmful(2) == order[:2] and found.per_instance[order[0]] < 0 < found.per_instance[order[-1]]


def test_a_resumed_run_is_an_uninterrupted_one():
    problem, lam, x = weighted()
    avg = hgp.ExactAverage(problem.n_clients)
    half = influence(problem, x, lam, avg, eta=0.5, iterations=10)
    whole = influence(problem, x, lam, avg, eta=0.5, iterations=20)
    resumed = influence(problem, x, lam, avg, eta=0.5, iterations=10, resume=half.estimate)
    assert np.array_equal(resumed.per_instance, whole.per_instance)


def test_prediction_over_a_network_is_the_exact_derivative():
    """RandomDirected with S = 60 steps: certified by the exact value, whose error at S steps is far below 1e-8."""
    problem, lam, x = weighted()
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, 0.4, 0.8, seed=1), steps=60)
    found = influence(problem, x, lam, avg, method=hgp.methods.Neumann(0.5), iterations=300)
    exact = -lam * hgp.exact.hypergradient(problem, x, lam)
    assert np.max(np.abs(found.per_instance - exact)) <= 1e-8 * np.max(np.abs(exact))
    assert found.estimate.traffic.rounds == 60 * 300


@pytest.mark.parametrize("name", [lib for lib in LIBRARIES if lib != "jax"])
def test_on_every_library(name):
    lib = open_library(name)
    problem, lam, x = weighted()
    expected = predict(problem, x, lam)
    X, y, X_val, y_val = ([lib.asarray(a, "float64") for a in part] for part in labelled(2))
    there = InstanceWeights(X, y, X_val, y_val, l2=0.3)
    found = predict(there, lib.asarray(x), lib.asarray(lam))
    removals = client_removals(there)[1:2]
    assert isinstance(found.predicted, np.ndarray)
    assert np.allclose(found.per_instance, expected.per_instance, rtol=0, atol=1e-12)
    assert np.allclose(
        retrain(there, lib.asarray(lam), removals).actual,
        retrain(problem, lam, removals).actual,
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_retraining_equals_deleting_the_instance(loss):
    """Without instance k a client divides by N_i − 1, so the same problem has weights (N_i − 1)/N_i there."""
    problem, lam, _ = weighted(loss)
    X, y, X_val, y_val = labelled(3 if loss == "softmax" else 2)
    result = retrain(problem, lam, [((1, 4),)])
    X[1], y[1] = np.delete(X[1], 4, axis=0), np.delete(y[1], 4)
    smaller = InstanceWeights(X, y, X_val, y_val, l2=0.3, **LOSSES[loss])
    weights = np.ones((3, smaller.dim_lam))
    weights[1] = 8 / 9
    x = hgp.exact.inner_solution(smaller, weights)
    change = np.sum(smaller.outer_cost(x, weights)) - result.cost
    assert np.max(np.abs(result.x[0] - x)) <= 1e-11
    assert abs(result.actual[0] - change) <= 1e-11


class OneByOne:
    """The same problem without run axes or a closed-form Hessian, as a user may write it."""

    broadcasts = False

    def __init__(self, problem):
        self.problem = problem
        for name in ("n_clients", "dim_x", "dim_lam", "counts"):
            setattr(self, name, getattr(problem, name))
        for name in ("inner_cost", "inner_grad", "outer_cost", "outer_grad", "linearize"):
            setattr(self, name, getattr(problem, name))


@pytest.mark.parametrize("loss", LOSSES)
def test_retraining_at_once_and_one_by_one_agree(loss, monkeypatch):
    """Chord steps, and Newton's method with or without a closed-form Hessian, end at the same points."""
    problem, lam, _ = weighted(loss, l2=0.02)
    removals = [((0, 0),), ((1, 3),), ((2, 5), (2, 6)), tuple((1, k) for k in range(9))]
    together = retrain(problem, lam, removals)
    alone = retrain(OneByOne(problem), lam, removals)
    monkeypatch.setattr(attribution.retraining, "_chord", no_chord)
    newton = retrain(problem, lam, removals)
    for other in (alone, newton):
        assert np.max(np.abs(together.x - other.x)) <= 1e-10 * np.max(np.abs(together.x))
        assert np.max(np.abs(together.actual - other.actual)) <= 1e-11
    residual = np.mean(problem.inner_grad(together.x, attribution.retraining.reduced_weights(lam, removals)), axis=1)
    assert np.max(np.abs(residual)) <= 1e-13


def no_chord(problem, lam, lam0, x):
    return np.zeros(len(x), dtype=bool)


def test_newton_is_safe_far_from_the_solution():
    """From a point where full steps overshoot (saturated sigmoids), the search still reaches the solution."""
    problem, lam, x = weighted(l2=0.01)
    found = hgp.exact.inner_solution(problem, lam, x0=[30.0, -40.0, 20.0])
    assert np.max(np.abs(found - x)) <= 1e-9


def test_retraining_in_float32_reaches_float32():
    problem, lam, _ = weighted()
    single = problem.to("numpy", dtype="float32")
    removals = [((0, 0),), ((1, 3),)]
    found = retrain(single, lam.astype(np.float32), removals)
    assert np.max(np.abs(found.x - retrain(problem, lam, removals).x)) <= 1e-5


def test_retraining_by_sgp_approaches_the_exact_one():
    """Gradient descent over a complete graph is exact averaging: at rate 1 it contracts by 0.7 a step."""
    problem, lam, _ = weighted()
    removals = [((0, 0),), ((1, 3),), ((2, 5), (2, 6))]
    net = hgp.networks.FullyConnected(3)
    by_sgp = retrain_over_network(problem, lam, net, hgp.training.SGP(400, lr=1.0), removals)
    exact = retrain(problem, lam, removals)
    assert by_sgp.x.shape == (3, 3, problem.dim_x)
    assert np.max(np.abs(by_sgp.x - exact.x)) <= 1e-10
    assert np.max(np.abs(by_sgp.actual - exact.actual)) <= 1e-10
    assert abs(by_sgp.cost - exact.cost) <= 1e-10


def test_predictions_agree_with_retraining_on_mild_data(monkeypatch):
    """Many instances, each a small part: first order is enough for all three scores, chord steps for retraining."""
    data = hgp.data.synthetic_mixture(seed=1234, variant="published", n_test=1)
    problem = InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.01)
    lam = np.ones((3, 100))
    x = hgp.exact.inner_solution(problem, lam)
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, 0.4, 0.8, seed=0), steps=100)
    found = hgp.influence(problem, x, lam, avg, method=hgp.methods.Neumann(1.0), iterations=500)
    top = found.most_influential(50)
    monkeypatch.setattr(attribution.retraining, "inner_solution", lambda problem, lam, x0: x)  # for λ only
    result = scores(retrain(problem, lam, top).actual, found.predict(top))
    assert result.r2 >= 0.99 and result.f1 == 1.0 and result.spearman >= 0.99


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn_and_scipy(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    actual = np.round(rng.standard_normal(40), 1)  # rounded: ties
    predicted = np.round(actual + rng.standard_normal(40), 1)
    found = scores(actual, predicted)
    assert found.r2 == pytest.approx(metrics.r2_score(actual, predicted), rel=1e-12)
    assert found.f1 == pytest.approx(metrics.f1_score(actual < 0, predicted < 0), rel=1e-12)
    assert found.spearman == pytest.approx(stats.spearmanr(actual, predicted).statistic, rel=1e-12)


def test_scores_that_are_undefined_are_nan():
    found = scores(np.ones(3), np.array([1.0, 2.0, 3.0]))
    assert np.isnan(found.r2) and np.isnan(found.f1) and np.isnan(found.spearman)
    with pytest.raises(ValueError, match=r"^predicted must have shape \(3,\) like actual, got \(2,\)"):
        scores(np.ones(3), np.ones(2))


@pytest.mark.parametrize(
    ("removal", "message"),
    [
        ((3, 0), "client must be an integer from 0 to 2, got 3"),
        ((-1, 0), "client must be .*, got -1"),
        ((0, 5), "instance of client 0 must be an integer from 0 to 4, got 5"),
        ((0, -1), "instance of client 0 must be .*, got -1"),
        ([(0, 1, 2)], r"^removals\[0\] must consist of pairs \(client, index\), got \(0, 1, 2\)"),
        ([(0, 1), (0, 1)], r"^removals\[0\] must not contain an instance twice, got"),
    ],
)
def test_bad_removals(removal, message):
    problem, lam, x = weighted()
    with pytest.raises(ValueError, match=message):
        predict(problem, x, lam).predict([removal])


def test_problems_whose_lam_weighs_no_instances_are_refused():
    problem = LogisticRegression(*labelled(2))
    x, lam = np.zeros((3, 3)), np.zeros((3, 3))
    with pytest.raises(ValueError, match="problem.dim_lam is 3 and the largest client has 9 instances"):
        predict(problem, x, lam)
    with pytest.raises(ValueError, match="needs a problem whose lam weighs training instances, .* has no `counts`"):
        predict(hgp.problems.Quadratic.random(3, 2, 2), np.zeros((3, 2)), np.zeros((3, 2)))


def test_the_worked_example():
    assert doctest.testmod(attribution.prediction, extraglobs={"hgp": hgp, "np": np}).failed == 0


def test_several_seeds_are_refused():
    problem, lam, x = weighted()
    with pytest.raises(ValueError, match="^batches must have one seed, got MiniBatches"):
        predict(problem, x, lam, batches=hgp.MiniBatches(3, seed=[1, 2]))
    with pytest.raises(ValueError, match="^batches must have one seed, got MiniBatches"):
        attribution.retrain_from(problem, x, lam, [(0, 0)], eta=0.1, steps=2, batches=hgp.MiniBatches(3, seed=[1, 2]))


@pytest.mark.parametrize("unit", [1e-10, 1.0, 1e10])
def test_retraining_does_not_depend_on_the_unit_of_x(unit):
    X, y, X_val, y_val = labelled(2)
    removals = [(0, 1), (2, 3), tuple((1, k) for k in range(8))]

    def actual(scale):
        scaled = [[part / scale for part in parts] for parts in (X, X_val)]
        problem = InstanceWeights(scaled[0], y, scaled[1], y_val, l2=0.3 / scale**2)
        return retrain(problem, np.ones((3, problem.dim_lam)), removals)

    one, other = actual(1.0), actual(unit)
    np.testing.assert_allclose(other.actual, one.actual, rtol=1e-9)
    np.testing.assert_allclose(other.x / unit, one.x, rtol=1e-10, atol=1e-13)


def test_retraining_where_the_solution_is_zero():
    """Data that come with both labels: x = 0 up to rounding, before and after a symmetric removal."""
    rng = np.random.default_rng(3)
    half = [rng.standard_normal((4, 2)) for _ in range(2)]
    X, y = [np.concatenate([h, h]) for h in half], [np.repeat([0, 1], 4) for _ in half]
    problem = InstanceWeights(X, y, X, y, l2=0.1)
    found = retrain(problem, np.ones((2, 8)), [((0, 1), (0, 5)), (1, 2)])
    assert np.max(np.abs(found.x_base)) < 1e-15 and np.max(np.abs(found.x[0])) < 1e-15
    assert np.max(np.abs(found.x[1])) > 1e-3


REMOVALS = {
    "padding": ([((0, 6),)], ValueError, "instance of client 0 must be an integer from 0 to 4, got 6"),
    "a negative client": ([((-1, 0),)], ValueError, "client must be .*, got -1"),
    "a negative instance": ([(0, -1)], ValueError, "instance of client 0 must be .*, got -1"),
    "a fraction": ([(0.9, 0)], TypeError, "client must be .*, got 0.9"),
    "True": ([(True, 0)], TypeError, "client must be .*, got True"),
    "twice": ([((0, 1), (0, 1))], ValueError, r"^removals\[0\] must not contain an instance twice"),
    "a number": ([3], TypeError, r"^removals\[0\] must be a list, got 3"),
    "none": (None, TypeError, "^removals must be a list, got None"),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_retraining_refuses_what_cannot_be_removed(name):
    removals, error, message = REMOVALS[name]
    problem, lam, _ = weighted()
    net, method = hgp.networks.FullyConnected(problem.n_clients), hgp.training.SGP(5)
    for call in (
        lambda: retrain(problem, lam, removals),
        lambda: retrain_over_network(problem, lam, net, method, removals),
    ):
        with pytest.raises(error, match=message):
            call()


def test_instances_are_not_rounded():
    problem, lam, x = weighted()
    with pytest.raises(TypeError, match="client must be .*, got 0.9"):
        predict(problem, x, lam).predict([(0.9, 0)])
    with pytest.raises(TypeError, match="instance of client 1 must be .*, got 1.5"):
        predict(problem, x, lam).predict([(1, 1.5)])
    with pytest.raises(TypeError, match="^count must be an integer from 0 to 21, got 2.5"):
        predict(problem, x, lam).most_influential(2.5)


def test_rates_are_not_instances_even_if_their_numbers_agree():
    X, y, X_val, y_val = labelled(2)
    X, X_val = ([np.tile(part, (1, 3)) for part in parts] for parts in (X, X_val))  # nine features, largest client 9
    problem = LogisticRegression(X, y, X_val, y_val)
    lam = np.full((3, 9), 0.1)
    for call in (lambda: retrain(problem, lam, [(0, 0)]), lambda: predict(problem, np.zeros((3, 9)), lam)):
        with pytest.raises(ValueError, match="lam of LogisticRegression does not weigh instances"):
            call()


def test_retraining_accepts_the_most_influential():
    problem, lam, x = weighted()
    top = predict(problem, x, lam).most_influential(3)
    direct = retrain(problem, lam, top)
    np.testing.assert_array_equal(direct.actual, retrain(problem, lam, [(pair,) for pair in top]).actual)
    assert retrain(problem, lam, []).actual.shape == (0,)


@pytest.mark.parametrize("score", [attribution.r2_score, attribution.f1_negative, attribution.spearman, scores])
def test_scores_do_not_broadcast(score):
    one, three = np.ones(1), np.ones(3)
    for actual, predicted in ((three, one), (three[:, None], three), (np.ones(0), np.ones(0)), (1, 1)):
        with pytest.raises(ValueError, match=r"^(actual|predicted) must have shape \("):
            score(actual, predicted)
    with pytest.raises(ValueError, match="predicted must not contain NaN"):
        score(np.ones(2), np.array([1.0, np.nan]))


def test_an_undefined_score_gives_the_reason():
    found = scores(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    assert str(found) == "R² -1, F1 undefined (no change is negative, actual or predicted), Spearman 1"
