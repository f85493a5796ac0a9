"""Extreme eigenvalues of a symmetric matrix that is only known by its products.

k steps of Lanczos from a random direction give Ritz values θ_1 ≤ … ≤ θ_k. As Rayleigh quotients they lie inside the
spectrum: θ_1 ≥ λ_min is certain, the reverse is not — a small eigenvalue whose vector is almost orthogonal to the start
is never seen. What can be said (Kuczyński and Woźniakowski, SIAM J. Matrix Anal. Appl. 13, 1992, Theorem 4; Krylov
spaces do not feel a shift, so it speaks of the spread λ_max − λ_min): over the random start, for any 0 < ε < 1,

    P[θ_1 − λ_min > ε (λ_max − λ_min)] ≤ 1.648 √d exp(−√ε (2k − 1)),       likewise at the other end.

With ε at which both ends fail together with probability p at most, λ_max − λ_min ≤ (θ_k − θ_1)/(1 − 2ε) and

    λ_min ≥ θ_1 − ε (θ_k − θ_1)/(1 − 2ε)        with probability 1 − p.

The probability is over the start alone, for a matrix that does not depend on it. A matrix whose weak direction is
orthogonal to the start is never found out, so that the start must not be known where the matrix is made: by default its
seed is drawn from the operating system for every certificate, which records it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hgp_ref import rigorous
from hgp_ref.philox import check_seed

FAILURE = 1e-6  # p
STEPS = 200  # k for a bound from below
FEW_STEPS = 16  # k for a bound from above


@dataclass(frozen=True)
class Lanczos:
    """Ask `certify(strong_convexity=Lanczos())` for a lower bound that holds with probability 1 − 1e-6.

    The probability is over the random start of the iteration, for a Hessian that does not depend on it.
    `strong_convexity="lanczos"` is the same.

    Parameters
    ----------
    seed : int, optional
        Of the start. By default every certificate draws one from the operating system and records it. Give a recorded
        seed to repeat a certificate; a seed that was chosen after looking at the Hessian voids the probability.

    Raises
    ------
    TypeError, ValueError
        `seed` must be an integer from 0 to 2^64 − 1.

    Examples
    --------
    >>> hgp.certificates.Lanczos(seed=3)
    Lanczos(seed=3)
    """

    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed(self.seed)


def drawn_seed(asked: Lanczos) -> int:
    """The seed, a new one if none was given."""
    return secrets.randbits(64) if asked.seed is None else asked.seed


def ritz_values(product: Callable[[np.ndarray], np.ndarray], d: int, steps: int, seed: int) -> np.ndarray:
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
