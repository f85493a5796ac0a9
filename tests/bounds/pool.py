"""Settings for the bounds: random ones, and constructed ones in which single terms are attained."""

from __future__ import annotations

from functools import cache

import numpy as np

from .search import decode
from .settings import Setting, random_setting

MEAN = np.full((2, 2), 0.5)
STAY = np.eye(2)  # nobody hears anybody
COPY = np.array([[1.0, 0.0], [1.0, 0.0]])  # everybody takes client 0's value: averaging that moves the mean


def scalar(rates, f_x, K, eta=0.5, J=(1.0, 1.0)):
    """Two clients, d = 1, with 1 − ηH_i = rates and the given averaging matrices."""
    H = (1 - np.array(rates, dtype=float)).reshape(2, 1, 1) / eta
    return Setting(H, np.array(J, dtype=float).reshape(2, 1, 1), np.array(f_x, dtype=float)[:, None], np.array(K), eta)


@cache
def attained_a():
    """Bound A with equality: disagreement created by H, kept by one call without communication, turned into mean."""
    found = []
    for r in (0.05, 0.5, 0.9):
        found.append(scalar((r, -r), (1, -1), [STAY, MEAN, MEAN]))  # j = 0: γ₀ (1 + ρ g₂), ρ̄ = 0
        found.append(scalar((r, -r), (1, 1), [MEAN, STAY, MEAN, MEAN]))  # j = 1: γ₁ ρ (1 + ρ g₂)
        found.append(scalar((r, -r), (1, 1), [MEAN, STAY]))  # j = 1 last: γ₁ ρ
    return found


@cache
def attained_b():
    """Bound B's averaging part with equality, term by term."""
    found = []
    for r in (0.1, 0.5, 0.9):
        found.append(scalar((r, r), (1, -1), [STAY] * 4))  # s₀, ε⊥ and ρ⊥
        found.append(scalar((r, -r), (1, 1), [MEAN, STAY]))  # ηζ takes mean to disagreement
        found.append(scalar((r, r), (1, -1), [COPY, MEAN, MEAN]))  # ε∥ g_M
        found.append(scalar((r, r), (3, 1), [MEAN] * 3 + [STAY]))  # nothing to blame averaging for
    return found


@cache
def near_b():
    """Bound B's averaging part within a factor √2: the same error in two orthogonal directions."""
    found = []
    for r in (0.3, 0.9):
        found.append(scalar((r, -r), (1, 1), [MEAN, STAY, MEAN]))  # 1 and ηζ g
        found.append(scalar((r, -r), (1, -1), [STAY, MEAN]))
        found.append(scalar((r, 0.2), (1, -1), [COPY, STAY, MEAN]))
    return found


@cache
def pool():
    """Random settings of all sizes and small ones drawn as the adversarial search draws them."""
    found = [random_setting(seed, convex=seed % 3 > 0) for seed in range(150)]
    rng = np.random.default_rng(7)
    for k in range(150):
        n, d, d_lam, M = 1 + k % 3, 1 + k % 2, 1 + k % 2, 1 + k % 5
        size = n * d * d + n * d_lam * d + n * d + M * n * n + 2
        found.append(decode(3 * rng.normal(size=size), n, d, d_lam, M, convex=k % 2 == 0))
    return [s for s in found if np.all(np.isfinite(s.w))] + attained_a() + attained_b() + near_b()
