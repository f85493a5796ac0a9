"""Clients are independent, padding has no effect, batches are unbiased, runs equal loops."""

from __future__ import annotations

import copy
import pickle
from itertools import combinations, product

import numpy as np
import pytest
from support.libraries import assert_close, identity_rtol

from hgp_ref.problems import InstanceWeights, Linearization, LogisticRegression, Problem, Quadratic, SoftmaxRegression
from hgp_ref.problems.linear import LinearLinearization

from .cases import DENSE, KINDS, LINEAR, data, full_quadratic, labels, linear, make, settings

TOL = identity_rtol("float64")


def results(problem, x, lam, u, batch=None):
    """Everything a problem says at a point, all with the client axis where the trailing axes begin."""
    lin = problem.linearize(x, lam, batch)
    along_x, along_lam = problem.outer_grad(x, lam)
    return {
        "inner_cost": problem.inner_cost(x, lam, batch)[..., None],
        "inner_grad": problem.inner_grad(x, lam, batch),
        "outer_cost": problem.outer_cost(x, lam)[..., None],
        "outer_grad_x": along_x,
        "outer_grad_lam": along_lam,
        "hvp": lin.hvp(u),
        "cross": lin.cross(u),
        "hessian": problem.hessian(x, lam, batch),
        "jacobian": problem.jacobian(x, lam, batch),
    }


def assert_results(actual, expected):
    for name, value in expected.items():
        assert actual[name].shape == value.shape, name
        assert_close(actual[name], value, TOL)


@pytest.mark.parametrize("kind", KINDS)
def test_built_in_problems_follow_the_protocol(kind):
    c = make(kind)
    assert isinstance(c.problem, Problem)
    assert isinstance(c.problem.linearize(c.x, c.lam), Linearization)


def test_protocol_notices_a_missing_member():
    class NoOuterGrad:
        n_clients = dim_x = dim_lam = 1

        def inner_cost(self, x, lam, batch=None): ...
        def inner_grad(self, x, lam, batch=None): ...
        def outer_cost(self, x, lam): ...
        def linearize(self, x, lam, batch=None): ...

    assert not isinstance(NoOuterGrad(), Problem)


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("d", [2, 9])
def test_each_client_is_its_own_problem_whatever_the_padding(kind, d):
    rng = np.random.default_rng(3)
    counts, val_counts, order = (4, 1, 7), (2, 5, 1), [2, 0, 1]
    classes = labels(kind, 3)
    X, y = data(rng, counts, d, classes, "float64")
    X_val, y_val = data(rng, val_counts, d, classes, "float64")
    whole = linear(kind, (X, y, X_val, y_val), classes)
    x, u = rng.standard_normal((2, 3, whole.dim_x))
    lam = rng.uniform(0.2, 1, (3, whole.dim_lam))
    together = results(whole, x, lam, u)
    assert whole.counts.tolist() == list(counts)
    turned = linear(kind, tuple([part[i] for i in order] for part in (X, y, X_val, y_val)), classes)
    assert_results(results(turned, x[order], lam[order], u[order]), {k: v[order] for k, v in together.items()})
    for i in range(3):
        alone = linear(kind, (X[i][None], y[i][None], X_val[i][None], y_val[i][None]), classes)
        own = results(alone, x[i : i + 1], lam[i : i + 1, : alone.dim_lam], u[i : i + 1])
        for name, value in own.items():
            cut = together[name][i : i + 1]
            if cut.shape != value.shape:  # weights of padding instances
                assert np.all(cut[:, alone.dim_lam :] == 0)
                cut = cut[:, : alone.dim_lam]
            assert_close(cut, value, TOL)


@pytest.mark.parametrize("kind", LINEAR)
def test_mean_over_all_batches_is_the_full_batch(kind):
    """Exact unbiasedness: all subsets of size 2 without replacement, all pairs with replacement."""
    c = make(kind, 2, counts=(4, 4), val_counts=(2, 2))
    full = results(c.problem, c.x, c.lam, c.u)
    for subsets in (combinations(range(4), 2), product(range(4), repeat=2)):
        each = [results(c.problem, c.x, c.lam, c.u, np.tile(s, (2, 1))) for s in subsets]
        assert_results({name: np.mean([one[name] for one in each], axis=0) for name in full}, full)


@pytest.mark.parametrize("kind", LINEAR)
def test_a_batch_of_everything_in_any_order_is_the_full_batch(kind):
    c = make(kind)
    batch = np.full((3, 10), -1)
    for i, count in enumerate(c.problem.counts):
        batch[i, 10 - count :] = np.random.default_rng(i).permutation(count)
    assert_results(results(c.problem, c.x, c.lam, c.u, batch), results(c.problem, c.x, c.lam, c.u))


@pytest.mark.parametrize("setting", settings(), ids=str)
def test_leading_run_axes_are_a_loop(setting):
    kind, d, mini = setting
    c = make(kind, d)
    rng = np.random.default_rng(5)
    shapes = [(2, 1), (3,), (2, 3)]  # run axes of x, lam and u broadcast to (2, 3)
    x, lam, u = (a * rng.uniform(0.5, 2, (*s, 1, 1)) for a, s in zip((c.x, c.lam, c.u), shapes, strict=True))
    batch = np.stack([[c.batch, c.batch[:, ::-1]]]).swapaxes(0, 1) if mini else None  # (2, 1, n, 3)
    together = results(c.problem, x, lam, u, batch)
    for r, s in product(range(2), range(3)):
        one = results(c.problem, x[r, 0], lam[s], u[r, s], batch[r, 0] if mini else None)
        assert_results({name: value[r, s] for name, value in together.items()}, one)


@pytest.mark.parametrize("setting", settings(), ids=str)
def test_runs_of_vectors_at_one_point_are_a_loop(setting):
    kind, d, mini = setting
    c = make(kind, d)
    lin = c.problem.linearize(c.x, c.lam, c.batch if mini else None)
    u = np.random.default_rng(6).standard_normal((4, 2, *c.u.shape))
    for product_of in (lin.hvp, lin.cross):
        assert_close(product_of(u), np.array([[product_of(v) for v in w] for w in u]), TOL)


@pytest.mark.parametrize("setting", settings(), ids=str)
def test_a_linearization_does_not_follow_later_changes(setting):
    kind, d, mini = setting
    c = make(kind, d)
    lin = c.problem.linearize(c.x, c.lam, c.batch if mini else None)
    before = lin.hvp(c.u), lin.cross(c.u)
    c.x[...], c.lam[...] = 7.0, 7.0
    np.testing.assert_array_equal(lin.hvp(c.u), before[0])
    np.testing.assert_array_equal(lin.cross(c.u), before[1])


@pytest.mark.parametrize("kind", LINEAR)
def test_one_client_one_instance_one_feature(kind):
    c = make(kind, 1, counts=(1,), val_counts=(1,), classes=2)
    assert c.problem.inner_grad(c.x, c.lam, np.array([[0]])).shape == (1, c.problem.dim_x)
    full = results(c.problem, c.x, c.lam, c.u)
    assert_results(results(c.problem, c.x, c.lam, c.u, np.array([[0]])), full)
    assert_close(full["hvp"], (full["hessian"] @ c.u[..., None])[..., 0], TOL)


def test_removing_an_instance_sets_its_weight_to_zero_and_keeps_the_divisor():
    rng = np.random.default_rng(8)
    X, y = data(rng, (4, 6), 2, 2, "float64")
    whole = InstanceWeights(X, y, X, y)
    lam = np.ones((2, 6))
    lam[0, 3] = 0
    x = rng.standard_normal((2, 2))
    without = InstanceWeights([X[0][:3], X[1]], [y[0][:3], y[1]], X, y)
    expected = without.inner_cost(x, np.ones((2, 6))) * [3 / 4, 1]
    assert_close(whole.inner_cost(x, lam), expected, TOL)


def test_instance_weights_at_one_are_logistic_regression():
    rng = np.random.default_rng(9)
    arrays = (*data(rng, (4, 6), 3, 2, "float64"), *data(rng, (2, 2), 3, 2, "float64"))
    weights, logistic = InstanceWeights(*arrays, l2=0.2), LogisticRegression(*arrays, regularization="client")
    x, u = rng.standard_normal((2, 2, 3))
    ones, rate = np.ones((2, 6)), np.full((2, 1), 0.2)
    assert_close(weights.inner_cost(x, ones), logistic.inner_cost(x, rate), TOL)
    assert_close(weights.linearize(x, ones).hvp(u), logistic.linearize(x, rate).hvp(u), TOL)


def test_quadratic_defaults_are_the_identity_and_nothing():
    A, t = np.eye(2)[None], np.array([[1.0, 2.0]])
    p = Quadratic(A, t, np.ones((1, 3, 2)), t)
    x, lam = np.array([[3.0, 5.0]]), np.array([[1.0, 2.0, 3.0]])
    assert p.outer_cost(x, lam) == [0.5 * (4 + 9)]
    along_x, along_lam = p.outer_grad(x, lam)
    assert along_x.tolist() == [[2, 3]] and along_lam.tolist() == [[0, 0, 0]]


def test_random_quadratic_has_the_requested_spectrum():
    equal = Quadratic.random(4, 5, 2, seed=1, condition=50, heterogeneity=0)
    mixed = Quadratic.random(4, 5, 2, seed=1, condition=50, heterogeneity=0.7)
    x, lam = np.zeros((4, 5)), np.zeros((4, 2))
    eigenvalues = np.linalg.eigvalsh(equal.hessian(x, lam))
    assert_close(eigenvalues, np.tile(np.geomspace(1 / 50, 1, 5), (4, 1)), TOL)
    assert np.ptp(equal.hessian(x, lam), axis=0).max() == 0
    eigenvalues = np.linalg.eigvalsh(mixed.hessian(x, lam))
    assert eigenvalues.min() >= 1 / 50 - TOL and eigenvalues.max() <= 1 + TOL
    assert np.ptp(mixed.hessian(x, lam), axis=0).max() > 0.01


def test_a_client_of_a_quadratic_may_be_non_convex():
    problem = full_quadratic(np.random.default_rng(0), 4, 3, 2, "float64")
    assert np.linalg.eigvalsh(problem.hessian(np.zeros((4, 3)), np.zeros((4, 2)))).min() < 0


@pytest.mark.parametrize("kind", DENSE)
def test_hessians_are_formed_only_where_the_rule_says(kind, monkeypatch):
    """Full batch and d_x <= N_i, client by client; no d_x x d_x array exists for any other client."""
    formed = []
    right = LinearLinearization._hessian
    monkeypatch.setattr(LinearLinearization, "_hessian", lambda self: formed.append(right(self)) or formed[-1])
    for d, counts in ((2, (5, 8, 6)), (2, (1, 6, 2)), (2, (1, 1, 1)), (9, (5, 8, 6))):
        c = make(kind, d, counts=counts)
        formed.clear()
        c.problem.linearize(c.x, c.lam).hvp(c.u)
        d_x, few = c.problem.dim_x, sum(count >= c.problem.dim_x for count in counts)
        assert [h.shape for h in formed] == ([(few, d_x, d_x)] if few else [])
        formed.clear()
        c.problem.linearize(c.x, c.lam, c.batch).hvp(c.u)
        assert formed == []


@pytest.mark.parametrize("kind", ["quadratic", "logistic", "softmax", "instance weights"])
def test_problems_travel_to_other_processes(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2, 5, 3)), rng.integers(0, 2, (2, 5))
    problem = {
        "quadratic": lambda: Quadratic.random(2, 3, 2, seed=0),
        "logistic": lambda: LogisticRegression(X, y, X, y),
        "softmax": lambda: SoftmaxRegression(X, y, X, y),
        "instance weights": lambda: InstanceWeights(X, y, X, y),
    }[kind]()
    x, lam = rng.normal(size=(2, problem.dim_x)), np.ones((2, problem.dim_lam))
    for moved in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        np.testing.assert_array_equal(moved.inner_grad(x, lam), problem.inner_grad(x, lam))
        np.testing.assert_array_equal(moved.linearize(x, lam).hvp(x), problem.linearize(x, lam).hvp(x))
