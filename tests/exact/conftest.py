"""A small user-style problem without closed forms, and a network of random column-stochastic matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class SmoothProblem:
    """g_i(x, λ) = mean_k log cosh(a_ikᵀx − b_ik) + ½ Σ_l exp(λ_l) x_l²,  f_i(x, λ) = ½‖x − c_i‖² + sin(λ)ᵀx.

    Strictly convex in x, neither quadratic nor linear in λ; only hvp and cross are offered.
    """

    A: np.ndarray  # (n, N, d)
    b: np.ndarray  # (n, N)
    c: np.ndarray  # (n, d)

    @property
    def n_clients(self):
        return self.A.shape[0]

    @property
    def dim_x(self):
        return self.A.shape[2]

    dim_lam = dim_x

    @property
    def counts(self):
        return np.full(self.n_clients, self.A.shape[1])

    def _rows(self, batch):
        """Data and weights of the batch: entries of -1 weigh nothing."""
        n, N, _ = self.A.shape
        batch = np.tile(np.arange(N), (n, 1)) if batch is None else batch
        weight = (batch >= 0) / np.sum(batch >= 0, axis=1, keepdims=True)
        i = np.arange(n)[:, None]
        return self.A[i, batch], self.b[i, batch], weight

    def inner_cost(self, x, lam, batch=None):
        A, b, weight = self._rows(batch)
        t = np.einsum("ikd,id->ik", A, x) - b
        return np.sum(weight * (np.logaddexp(t, -t) - np.log(2)), axis=1) + 0.5 * np.sum(np.exp(lam) * x**2, axis=1)

    def inner_grad(self, x, lam, batch=None):
        A, b, weight = self._rows(batch)
        t = np.einsum("ikd,id->ik", A, x) - b
        return np.einsum("ik,ikd->id", weight * np.tanh(t), A) + np.exp(lam) * x

    def outer_cost(self, x, lam):
        return 0.5 * np.sum((x - self.c) ** 2, axis=1) + np.sum(np.sin(lam) * x, axis=1)

    def outer_grad(self, x, lam):
        return x - self.c + np.sin(lam), np.cos(lam) * x

    def linearize(self, x, lam, batch=None):
        A, b, weight = self._rows(batch)
        curvature = weight * (1 - np.tanh(np.einsum("ikd,id->ik", A, x) - b) ** 2)
        return Linear(A, curvature, np.exp(lam), np.exp(lam) * x)


@dataclass(frozen=True)
class Linear:
    A: np.ndarray
    curvature: np.ndarray
    ridge: np.ndarray
    mixed: np.ndarray

    def hvp(self, u):
        Au = np.einsum("ikd,id->ik", self.A, u)
        return np.einsum("ik,ikd->id", self.curvature * Au, self.A) + self.ridge * u

    def cross(self, u):
        return self.mixed * u


@dataclass(frozen=True)
class RandomMatrices:
    """Column-stochastic matrices with positive diagonal; a pure function of (seed, step)."""

    n: int
    seed: int = 0

    def mixing_matrix(self, s):
        rng = np.random.default_rng([self.seed, s])
        W = np.eye(self.n) + (rng.random((self.n, self.n)) < 0.5)
        return W / W.sum(axis=0)

    def mixing_matrices(self, first, count):
        return np.stack([self.mixing_matrix(s) for s in range(first, first + count)])


def smooth_problem(n, d, seed, instances=5):
    """(problem, lam) with random data."""
    rng = np.random.default_rng(seed)
    problem = SmoothProblem(
        rng.normal(size=(n, instances, d)), rng.normal(size=(n, instances)), rng.normal(size=(n, d))
    )
    return problem, rng.normal(size=(n, d)) - 1


@pytest.fixture
def make_problem():
    return smooth_problem


@pytest.fixture
def make_network():
    return RandomMatrices
