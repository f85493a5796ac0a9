"""Extreme eigenvalues of a symmetric matrix that is only known by its products.

k steps of Lanczos from a random direction give Ritz values θ_1 ≤ … ≤ θ_k. As Rayleigh quotients they lie inside the
spectrum: θ_1 ≥ λ_min is certain, the reverse is not — a small eigenvalue whose vector is almost orthogonal to the start
is never seen. What can be said (Kuczyński and Woźniakowski, SIAM J. Matrix Anal. Appl. 13, 1992, Theorem 4; Krylov
spaces do not feel a shift, so it speaks of the spread λ_max − λ_min): over the random start, for any 0 < ε < 1,

    P[θ_1 − λ_min > ε (λ_max − λ_min)] ≤ 1.648 √d exp(−√ε (2k − 1)),       likewise at the other end.

With ε at which both ends fail together with probability p at most, λ_max − λ_min ≤ (θ_k − θ_1)/(1 − 2ε) and

    λ_min ≥ θ_1 − ε (θ_k − θ_1)/(1 − 2ε)        with probability 1 − p.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hgp_ref import rigorous

FAILURE = 1e-6  # p
STEPS = 200  # k for a bound from below
FEW_STEPS = 16  # k for a bound from above


def ritz_values(product: Callable[[np.ndarray], np.ndarray], d: int, steps: int, seed: int = 0) -> np.ndarray:
    """θ_1 ≤ … ≤ θ_k of u ↦ product(u) for vectors (d,), with full reorthogonalisation; k ≤ min(steps, d)."""
    q = np.random.default_rng(seed).standard_normal(d)
    basis = np.empty((min(steps, d), d))
    diagonal: list[float] = []
    beside: list[float] = []
    for k in range(len(basis)):
        basis[k] = q / rigorous.norm(q)
        q = product(basis[k])
        diagonal.append(float(basis[k] @ q))
        for _ in range(2):  # once more, for what the first pass left by rounding
            q = q - basis[: k + 1].T @ (basis[: k + 1] @ q)
        length = rigorous.norm(q)
        if length <= d * rigorous.EPS * max(map(abs, diagonal)):  # an invariant space: nothing more to be found
            break
        beside.append(length)
    k = len(diagonal)
    T = np.diag(diagonal) + np.diag(beside[: k - 1], 1) + np.diag(beside[: k - 1], -1)
    return np.linalg.eigvalsh(T)


def lowest_with_probability(ritz: np.ndarray, d: int, steps: int) -> float:
    """λ_min is no smaller with probability 1 − `FAILURE`; −∞ where `steps` are too few to say anything."""
    epsilon = (math.log(1.648 * math.sqrt(d) * 2 / FAILURE) / (2 * steps - 1)) ** 2
    if epsilon >= 0.5:
        return -math.inf
    return float(ritz[0] - epsilon * (ritz[-1] - ritz[0]) / (1 - 2 * epsilon))
