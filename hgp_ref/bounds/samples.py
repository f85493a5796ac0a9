"""Per-instance derivatives and the constants of mini-batches.

For client i with instances s = 1 … N_i and the derivatives H_i^(s), J_i^(s) of each alone (means H_i, J_i):

    κ_x = max_{i,s} ‖H_i^(s) − H_i‖,     σ_x² = max_i ‖mean_s (H_i^(s) − H_i)ᵀ(H_i^(s) − H_i)‖,     likewise κ_λ, σ_λ,
    ρ = max_{i,s} ‖I − ηH_i^(s)‖: the supremum over samples; a batch mean is no larger, the norm being convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.exact import hessians, jacobians


@dataclass(frozen=True)
class SampleConstants:
    """Suprema and root mean squares over the instances of all clients."""

    kappa_x: float
    kappa_lam: float
    sigma_x: float
    sigma_lam: float
    rho: float
    alpha: float  # min over instances of σ_min(H_i^(s)), as Theorem 1 prints it
    beta: float  # max over instances of ‖J_i^(s)‖


def sample_derivatives(problem: Any, x: Any, lam: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """H_i^(s) as n arrays (N_i, d_x, d_x) and J_i^(s) as n arrays (N_i, d_lam, d_x), from batches of one instance."""
    counts = np.asarray(problem.counts)
    H: list[list[np.ndarray]] = [[] for _ in counts]
    J: list[list[np.ndarray]] = [[] for _ in counts]
    for s in range(int(counts.max())):
        batch = np.minimum(s, counts - 1)[:, None].astype(
            np.int64
        )  # (n, 1); a client that has run out repeats its last
        H_s, J_s = hessians(problem, x, lam, batch), jacobians(problem, x, lam, batch)
        for i in np.flatnonzero(s < counts):
            H[i].append(H_s[i])
            J[i].append(J_s[i])
    return [np.stack(a) for a in H], [np.stack(a) for a in J]


def sample_constants(H: Sequence[np.ndarray], J: Sequence[np.ndarray], eta: float) -> SampleConstants:
    """The constants from the derivatives of single instances."""
    kappa_x, sigma_x = _spread(H)
    kappa_lam, sigma_lam = _spread(J)
    eigenvalues = np.concatenate([np.linalg.eigvalsh(a).ravel() for a in H])
    return SampleConstants(
        kappa_x=kappa_x,
        kappa_lam=kappa_lam,
        sigma_x=sigma_x,
        sigma_lam=sigma_lam,
        rho=float(np.abs(1 - eta * eigenvalues).max()),
        alpha=float(np.abs(eigenvalues).min()),
        beta=float(max(np.linalg.norm(a, 2, axis=(1, 2)).max() for a in J)),
    )


def _spread(samples: Sequence[np.ndarray]) -> tuple[float, float]:
    """Largest deviation from a client's mean, and the largest root mean square deviation."""
    largest, square = 0.0, 0.0
    for a in samples:
        deviation = a - a.mean(axis=0)
        largest = max(largest, float(np.linalg.norm(deviation, 2, axis=(1, 2)).max()))
        second = (np.swapaxes(deviation, 1, 2) @ deviation).mean(axis=0)
        square = max(square, float(np.linalg.norm(second, 2)))
    return largest, float(np.sqrt(square))
