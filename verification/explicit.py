"""HGP with explicit block matrices and no divergence check, for runs that diverge and for the parts of the proofs.

ū = K u,  w += η ū,  u ← (D − ηH) ū,   v = ∂_λ f − J w,   D = I, or diag(ω) where mass is conserved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verification.cases import Case


def run(
    case: Case, matrices: Sequence[np.ndarray], eta: float, weights: Sequence[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """v^(1) … v^(M) (M, n, d_lam) and ū^(0) … ū^(M−1) (M, n, d_x)."""
    u, w = case.f_x, np.zeros_like(case.f_x)
    values, averaged = [], []
    with np.errstate(over="ignore", invalid="ignore"):
        for m, K in enumerate(matrices):
            mean = K @ u
            w = w + eta * mean
            carried = mean if weights is None else weights[m][:, None] * mean
            u = carried - eta * np.einsum("nij,nj->ni", case.H, mean)
            values.append(case.f_lam - np.einsum("nij,nj->ni", case.J, w))
            averaged.append(mean)
    return np.stack(values), np.stack(averaged)


def errors(
    case: Case, matrices: Sequence[np.ndarray], eta: float, weights: Sequence[np.ndarray] | None = None
) -> np.ndarray:
    """‖v^(m) − d‖, m = 1 … M."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.linalg.norm(run(case, matrices, eta, weights)[0] - case.truth, axis=(1, 2))
