"""Random and parametrised settings (H, J, ∂_x f, K_m, η) on which the bounds are tried, and the actual errors there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Setting:
    """Everything a full-batch run depends on."""

    H: np.ndarray  # (n, d, d)
    J: np.ndarray  # (n, d_lam, d)
    f_x: np.ndarray  # (n, d)
    K: np.ndarray  # (M, n, n)
    eta: float

    @cached_property
    def w(self):
        """η Σ_m ū^(m), by the lines of Algorithm 2, (n, d)."""
        return run(self)[-1]

    @cached_property
    def w_star(self):
        return np.linalg.solve(self.H.sum(axis=0), self.f_x.sum(axis=0))

    @cached_property
    def w_exact_average(self):
        """η Σ_{m<M} (I − ηH̄)^m ḡ: what w would be with exact averages, (d,)."""
        H_bar, u, w = self.H.mean(axis=0), self.f_x.mean(axis=0), 0.0
        for _ in self.K:
            w = w + self.eta * u
            u = u - self.eta * H_bar @ u
        return w

    @cached_property
    def consensus_errors(self):
        """‖J_i (w_i − w with exact averages)‖: the part of the error that averaging alone is to blame for, (n,)."""
        return np.linalg.norm(np.einsum("iab,ib->ia", self.J, self.w_exact_average - self.w), axis=1)

    @cached_property
    def errors(self):
        """‖v_i − d_i‖ = ‖J_i (w* − w_i)‖, (n,)."""
        return np.linalg.norm(np.einsum("iab,ib->ia", self.J, self.w_star - self.w), axis=1)


def run(setting):
    """w after 1 … M iterations, (M, n, d)."""
    u, w, seen = setting.f_x, np.zeros_like(setting.f_x), []
    for K in setting.K:
        mean = K @ u
        w = w + setting.eta * mean
        seen.append(w)
        u = mean - setting.eta * np.einsum("iab,ib->ia", setting.H, mean)
    return np.array(seen)


def push_sum(n, steps, calls, density, rng):
    """K_m from column-stochastic matrices of random directed graphs with self-loops, (calls, n, n)."""
    found = []
    for _ in range(calls):
        P = np.eye(n)
        for _ in range(steps):
            W = np.eye(n) + (rng.random((n, n)) < density) * (1 - np.eye(n))
            P = (W / W.sum(axis=0)) @ P
        found.append(P / P.sum(axis=1, keepdims=True))
    return np.array(found)


def random_setting(seed, *, n=None, d=None, convex=True):
    """A setting with n ≤ 12, d ≤ 10, S ≤ 100, conditioning ≤ 1e4, any step size up to a little beyond stability."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 13)) if n is None else n
    d = int(rng.integers(1, 11)) if d is None else d
    d_lam = int(rng.integers(1, 11))
    spread = 10 ** rng.uniform(0, 4)
    H = np.empty((n, d, d))
    for i in range(n):
        basis, _ = np.linalg.qr(rng.normal(size=(d, d)))
        H[i] = basis * (spread ** -rng.random(d)) @ basis.T
    if not convex:
        H += rng.uniform(0, 0.5) * _mean_free(rng, n, d)
        lowest = np.linalg.eigvalsh(H.mean(axis=0))[0]
        H += max(0.0, 0.05 - lowest) * np.eye(d)
    largest = np.linalg.eigvalsh(H)[..., -1].max()
    M, S = int(10 ** rng.uniform(0, 2)), int(10 ** rng.uniform(0, 2))
    K = push_sum(n, min(S, 100), M, rng.uniform(0.1, 0.9), rng)
    J = rng.normal(size=(n, d_lam, d)) * 10 ** rng.uniform(-1, 1, size=(n, 1, 1))
    f_x = rng.normal(size=(n, d)) + rng.normal(size=d) * rng.integers(0, 2)
    return Setting(H, J, f_x, K, eta=rng.uniform(0.05, 2.02) / largest)


def _mean_free(rng, n, d):
    """Symmetric perturbations whose mean over clients vanishes."""
    A = rng.normal(size=(n, d, d))
    A = A + np.swapaxes(A, 1, 2)
    return A - A.mean(axis=0)
