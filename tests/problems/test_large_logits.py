"""Costs and derivatives where the model is very certain, right or wrong: no NaN, no warning, no lost digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hgp_ref.problems import InstanceWeights, LogisticRegression, SoftmaxRegression

LOGITS = [-1e4, -700.0, -100.0, -40.0, -1e-3, 0.0, 1e-3, 40.0, 80.0, 100.0, 700.0, 1e4]
DTYPES = ["float32", "float64"]


def at(logit, label, dtype, loss):
    """One client, one instance with feature 1, whose (last) logit is `logit`; another class has logit 0."""
    X, y = np.ones((1, 1, 1), dtype=dtype), np.array([[label]])
    problem = InstanceWeights(X, y, X, y, loss=loss, n_classes=2)
    x = np.array([[logit]] if loss == "binary" else [[0.0, logit]], dtype=dtype)
    return problem, x, np.ones((1, 1), dtype=dtype)


def true_loss(z):
    """log(1 + exp(z)) to full relative accuracy."""
    return z + math.log1p(math.exp(-z)) if z > 0 else math.log1p(math.exp(z))


def true_sigmoid(z):
    return 1 / (1 + math.exp(-z)) if z > -700 else math.exp(z) if z > -745 else 0.0


@pytest.mark.parametrize("loss", ["binary", "softmax"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("logit", LOGITS)
def test_value_and_derivatives_keep_their_relative_accuracy(logit, label, dtype, loss):
    problem, x, lam = at(logit, label, dtype, loss)
    logit = float(x[0, -1])
    info = np.finfo(dtype)
    z = -logit if label else logit
    last = np.zeros_like(x)
    last[0, -1] = 1
    lin = problem.linearize(x, lam)
    curvature = true_sigmoid(logit) * true_sigmoid(-logit)
    expected = {
        "cost": (problem.inner_cost(x, lam)[0], true_loss(z)),
        "grad": (problem.inner_grad(x, lam)[0, -1], true_sigmoid(z) * (-1 if label else 1)),
        "cross": (lin.cross(last)[0, 0], true_sigmoid(z) * (-1 if label else 1)),
        "outer": (problem.outer_cost(x, lam)[0], true_loss(z)),
    }
    for name, (actual, value) in expected.items():  # exp(z) itself carries |z| eps of relative rounding
        assert abs(float(actual) - value) <= 10 * info.eps * (1 + abs(z)) * abs(value) + float(info.tiny), name
    for actual in (lin.hvp(last)[0, -1], problem.hessian(x, lam)[0, -1, -1]):
        assert abs(float(actual) - curvature) <= 10 * info.eps * (1 + abs(z)) * curvature + 4 * float(info.tiny)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [2, 40])
def test_everything_stays_finite_with_all_logits_huge(dtype, d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2, 20, d)).astype(dtype)
    y = rng.integers(0, 3, (2, 20))
    for problem in (
        LogisticRegression(X, y % 2, X, y % 2),
        SoftmaxRegression(X, y, X, y),
        InstanceWeights(X, y, X, y, loss="softmax"),
    ):
        x = (1e4 * rng.standard_normal((2, problem.dim_x))).astype(dtype)
        lam = np.ones((2, problem.dim_lam), dtype=dtype)
        lin = problem.linearize(x, lam)
        for value in (problem.inner_cost(x, lam), problem.inner_grad(x, lam), problem.outer_cost(x, lam),
                      problem.outer_grad(x, lam)[0], lin.hvp(x), lin.cross(x), problem.hessian(x, lam),
                      problem.jacobian(x, lam)):  # fmt: skip
            assert np.all(np.isfinite(value)) and value.dtype == dtype
