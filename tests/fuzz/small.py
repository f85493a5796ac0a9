"""Small valid objects: three clients, four parameters."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref import neural, problems

N, D = 3, 4
FOLDER = Path(tempfile.mkdtemp(prefix="hgp_fuzz_"))  # what the calls may write to


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@functools.cache
def quadratic() -> problems.Quadratic:
    return problems.Quadratic.random(N, D, 2, seed=1)


def data(features: int = D, classes: int = 2) -> dict[str, np.ndarray]:
    g = rng()
    X, X_val = g.standard_normal((2, N, 6, features)) / 2
    y, y_val = np.tile(np.arange(6) % classes, (2, N, 1)).astype(float)
    return {"X": X, "y": y, "X_val": X_val, "y_val": y_val}


@functools.cache
def logistic() -> problems.LogisticRegression:
    return problems.LogisticRegression(**data())


@functools.cache
def squares() -> problems.LeastSquares:
    return problems.LeastSquares(**data())


@functools.cache
def weights() -> problems.InstanceWeights:
    return problems.InstanceWeights(**data(), l2=0.3)


@functools.cache
def cleaning() -> problems.HyperCleaning:
    return problems.HyperCleaning(**data(classes=3), l2=0.3, n_classes=3)


@functools.cache
def softmax() -> problems.SoftmaxRegression:
    return problems.SoftmaxRegression(**data(classes=3), n_classes=3)


def model() -> neural.Sequential:
    return neural.Sequential((D,), neural.Linear(D, 3), neural.Tanh(), neural.Linear(3, 2))


@functools.cache
def neural_weights() -> problems.NeuralInstanceWeights:
    return problems.NeuralInstanceWeights(model(), **data())


@functools.cache
def mask() -> problems.PersonalMask:
    return problems.PersonalMask(model(), **data())


@functools.cache
def mixture() -> problems.PersonalMixture:
    return problems.PersonalMixture(model(), **data(), components=2)


def point(problem: Any) -> dict[str, np.ndarray]:
    g = rng()
    x = g.standard_normal((problem.n_clients, problem.dim_x)) / 2
    return {"x": x, "lam": g.uniform(0.2, 0.6, (problem.n_clients, problem.dim_lam))}


def net() -> hgp.networks.Network:
    return hgp.networks.RandomDirected(N, seed=1)


def avg() -> hgp.PushSum:
    return hgp.PushSum(net(), 5)


@functools.cache
def estimate() -> hgp.Estimate:
    return hgp.hypergradient(quadratic(), avg=avg(), iterations=20, history=True, **point(quadratic()))


@functools.cache
def path() -> Any:
    given = dict(train=hgp.training.SGP(8, 0.3), estimate=hgp.bilevel.Estimator(2, 4, eta=1.0))
    return hgp.bilevel.optimise(quadratic(), point(quadratic())["lam"], net(), outer_steps=2, **given)


@functools.cache
def group_influence() -> Any:
    return hgp.influence(weights(), avg=avg(), iterations=5, on=[(0, 1), (2, 0)], **point(weights()))


def influence() -> Any:
    return hgp.influence(weights(), avg=avg(), iterations=20, **point(weights()))


@functools.cache
def certificate() -> hgp.Certificate:
    return hgp.certify(quadratic(), **point(quadratic()), est=estimate())


@functools.cache
def derivatives() -> dict[str, np.ndarray]:
    at = point(quadratic())
    return {
        "H": hgp.exact.hessians(quadratic(), **at),
        "J": hgp.exact.jacobians(quadratic(), **at),
        "f_x": hgp.exact.outer_gradients(quadratic(), **at)[0],
    }


@functools.cache
def matrices() -> list[np.ndarray]:
    return hgp.exact.push_sum_matrices(net(), 5, 4)[0]


@functools.cache
def constants() -> Any:
    return hgp.bounds.realised_constants(**derivatives(), eta=0.5, matrices=matrices())


@functools.cache
def samples() -> tuple[list[np.ndarray], list[np.ndarray]]:
    return hgp.bounds.sample_derivatives(logistic(), **point(logistic()))


@functools.cache
def sample_constants() -> Any:
    return hgp.bounds.sample_constants(*samples(), eta=0.5)
