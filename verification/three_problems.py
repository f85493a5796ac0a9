"""Three problems for measuring the cost of a hyper-gradient, and their networks.

P1  logistic regression, n = 3, d = 5, 100 instances, λ ~ U[.05, .2], RandomDirected(.4, .8)
P2  quadratic, n = 10, d = 8, every client's spectrum from .05 to 1, RandomDirected(.1, .3)
P3  quadratic, n = 10, d = 20, condition of the mean Hessian 100, clients that differ by up to 90 % of it in any
    direction, RandomDirected(.3, .6)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import hgp_ref as hgp
from hgp_ref.data import synthetic_mixture
from verification.cases import Case, case_of


@dataclass(frozen=True)
class Priced:
    """A problem at its inner solution and the networks that belong to it."""

    case: Case
    network: Callable[[int], hgp.networks.Network]  # by seed


def three_problems(seed: int) -> dict[str, Priced]:
    """P1, P2 and P3."""

    def random_directed(n: int, low: float, high: float) -> Callable[[int], hgp.networks.Network]:
        return lambda s: hgp.networks.RandomDirected(n, low=low, high=high, seed=s)

    return {
        "P1": Priced(_logistic(seed), random_directed(3, 0.4, 0.8)),
        "P2": Priced(_equal_spectra(seed), random_directed(10, 0.1, 0.3)),
        "P3": Priced(_conditioned_mean(seed), random_directed(10, 0.3, 0.6)),
    }


def ill_conditioned(seed: int) -> Priced:
    """P3 with a condition of 1000."""
    case = _conditioned_mean(seed, condition=1000.0)
    return Priced(case, lambda s: hgp.networks.RandomDirected(10, low=0.3, high=0.6, seed=s))


def _logistic(seed: int) -> Case:
    data = synthetic_mixture(3, 100, 100, 1, dim=5, seed=seed, bias=False)
    problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    return case_of("P1", problem, np.random.default_rng([seed, 7]).uniform(0.05, 0.2, (3, 5)))


def _equal_spectra(seed: int, n: int = 10, d: int = 8) -> Case:
    rng = np.random.default_rng([seed, 2])
    bases = np.linalg.qr(rng.normal(size=(n, d, d)))[0]
    spectra = rng.uniform(0.05, 1.0, (n, d))
    spectra[:, 0], spectra[:, -1] = 0.05, 1.0
    return _quadratic("P2", (bases * spectra[:, None, :]) @ np.swapaxes(bases, 1, 2), rng)


def _conditioned_mean(seed: int, n: int = 10, d: int = 20, condition: float = 100.0) -> Case:
    rng = np.random.default_rng([seed, 3])
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    mean = (basis * condition ** -np.linspace(0, 1, d)) @ basis.T
    apart = rng.normal(size=(n, d, d))
    apart = (apart + np.swapaxes(apart, 1, 2)) / 2
    apart = apart - apart.mean(axis=0)
    apart = 0.9 * apart / np.abs(np.linalg.eigvalsh(apart)).max()
    root = np.linalg.cholesky(mean)
    return _quadratic("P3", mean + root @ apart @ root.T, rng)


def _quadratic(name: str, A: np.ndarray, rng: np.random.Generator) -> Case:
    n, d, _ = A.shape
    A = (A + np.swapaxes(A, 1, 2)) / 2
    problem = hgp.problems.Quadratic(A, rng.normal(size=(n, d)), rng.normal(size=(n, d, d)), rng.normal(size=(n, d)))
    return case_of(name, problem, rng.normal(size=(n, d)))
