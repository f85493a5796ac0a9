"""The parts of the proofs of Theorems 1 and 2 as block matrices, on a small problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import block_diag

import hgp_ref as hgp
from hgp_ref.problems import sample_batches
from verification.cases import logistic, push_sum_matrices


@dataclass(frozen=True)
class Blocks:
    """The terms of the proofs of Theorems 1 and 2 as block matrices; lists run over iterations."""

    eta: float
    Theta: np.ndarray
    Thetas: list[np.ndarray]  # Θ̂_m
    H: np.ndarray
    J: np.ndarray
    H_hat: list[np.ndarray]  # samples at x, for u
    J_hat: list[np.ndarray]  # samples at x, for v
    H_check: list[np.ndarray]  # the same samples at x̂
    J_check: list[np.ndarray]
    f_x: np.ndarray
    f_lam: np.ndarray
    f_x_hat: np.ndarray  # at x̂
    f_lam_hat: np.ndarray
    truth: np.ndarray  # d_λ f, by the reduced system

    @property
    def M(self) -> int:
        return len(self.Thetas)

    @property
    def T(self) -> np.ndarray:
        """(I − ηH)Θ."""
        return (np.eye(len(self.H)) - self.eta * self.H) @ self.Theta

    def iterates(self, H: list[np.ndarray], start: np.ndarray) -> list[np.ndarray]:
        """u^(0) … u^(M−1) with the given Hessians."""
        u = [start]
        for m in range(self.M - 1):
            u.append((np.eye(len(self.H)) - self.eta * H[m]) @ self.Thetas[m] @ u[-1])
        return u

    def value(self, H: list[np.ndarray], J: list[np.ndarray], f_x: np.ndarray, f_lam: np.ndarray) -> np.ndarray:
        """v^(M)."""
        u = self.iterates(H, f_x)
        return f_lam - self.eta * sum(J[m] @ self.Thetas[m] @ u[m] for m in range(self.M))

    def series(self, start: np.ndarray, first: int, last: int) -> np.ndarray:
        """η J Θ Σ_{first ≤ m < last} T^m start."""
        terms = [np.linalg.matrix_power(self.T, m) @ start for m in range(first, last)]
        return self.eta * self.J @ self.Theta @ sum(terms, np.zeros_like(start))

    def whole_series(self, start: np.ndarray) -> np.ndarray:
        """The same from 0 to infinity, by a solve."""
        return self.eta * self.J @ self.Theta @ np.linalg.solve(np.eye(len(self.T)) - self.T, start)


@lru_cache(maxsize=4)
def blocks(seed: int) -> Blocks:
    """A logistic problem with mini-batches of 3, Push-Sum of 2 steps, M = 6, and a point x̂ beside its solution."""
    case, eta, M = logistic(2, 3, seed=seed, rate=0.2, instances=12), 1.0, 6
    rng = np.random.default_rng([seed, 17])
    there = case.x + 0.3 * rng.normal(size=case.x.shape)
    problem, lam = case.problem, case.lam
    drawn = [sample_batches(problem.counts, 3, seed, 0, M, stream=k) for k in (0, 1)]

    def derivatives(what: Callable[..., np.ndarray], x: np.ndarray, batches: np.ndarray) -> list[np.ndarray]:
        return [block_diag(*what(problem, x, lam, b)) for b in batches]

    f_x, f_lam = hgp.exact.outer_gradients(problem, there, lam)
    Theta = hgp.exact.theta(2, 3)
    K, _ = push_sum_matrices(hgp.networks.RandomDirected(2, seed=seed + 1), 2, M)
    return Blocks(
        eta,
        Theta,
        [np.kron(k, np.eye(3)) for k in K],
        block_diag(*case.H),
        block_diag(*case.J),
        derivatives(hgp.exact.hessians, case.x, drawn[1]),
        derivatives(hgp.exact.jacobians, case.x, drawn[0]),
        derivatives(hgp.exact.hessians, there, drawn[1]),
        derivatives(hgp.exact.jacobians, there, drawn[0]),
        case.f_x.ravel(),
        case.f_lam.ravel(),
        f_x.ravel(),
        f_lam.ravel(),
        case.truth.ravel(),
    )
