"""C: a posteriori bounds from the residual of w, for any solver whatsoever.

With w_i = η Σ_m ū_i^(m) and r̃_i = ḡ − H̄ w_i, as w* = H̄⁻¹ḡ, exactly

    (∂_λ f_i − J_i w_i) − d_i = J_i (w* − w_i) = J_i H̄⁻¹ r̃_i,      hence

    C1 = β_i ‖r̃_i‖/ᾱ,        C2 = ‖J_i H̄⁻¹‖ ‖r̃_i‖ ≤ C1,

and from averages of d-vectors and scalars alone, with Δ_i = w_i − w̄, r̄ = ḡ − mean_k H_k w_k, ζ∞ = max_k ‖H_k
− H̄‖,

    C3 = β_i [‖r̄‖/ᾱ + ‖Δ_i‖ + (ζ∞/ᾱ) mean_k ‖Δ_k‖],

because mean_k H_k w_k = H̄w̄ + mean_k (H_k − H̄)Δ_k (the Δ_k have mean zero), so that r̃_i = r̄ + mean_k (H_k −
H̄)Δ_k − H̄Δ_i. If all clients evaluate at one common vector c instead, no heterogeneity enters:

    C4 = β_i [‖ḡ − H̄c‖/ᾱ + ‖w_i − c‖],

which with c = w̄ is never larger than C3 and costs the same messages once c is known to all.

A value v_i that is not ∂_λ f_i − J_i w_i, as after mini-batches, adds ‖v_i − (∂_λ f_i − J_i w_i)‖ to each of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ResidualBounds:
    """Per client, (n,) each: the error itself by the identity, and its bounds."""

    identity: np.ndarray  # ‖J_i H̄⁻¹ r̃_i‖
    c1: np.ndarray
    c2: np.ndarray
    c3: np.ndarray
    c4: np.ndarray


def residual_bounds(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, w: np.ndarray) -> ResidualBounds:
    """All forms of C from explicit H (n, d, d), J (n, d_lam, d), ∂_x f (n, d) and w (n, d); C4 at the mean of w."""
    H_bar, g, w_bar = H.mean(axis=0), f_x.mean(axis=0), w.mean(axis=0)
    alpha_bar = float(np.linalg.eigvalsh((H_bar + H_bar.T) / 2)[0])
    if alpha_bar <= 0:
        raise ValueError(f"H: the mean Hessian is not positive definite (smallest eigenvalue {alpha_bar:.3e})")
    beta = np.linalg.norm(J, 2, axis=(1, 2))
    J_inverse = J @ np.linalg.inv(H_bar)
    residual = g - w @ H_bar.T  # r̃_i, (n, d)
    size = np.linalg.norm(residual, axis=1)
    apart = np.linalg.norm(w - w_bar, axis=1)  # ‖Δ_i‖
    mean_residual = float(np.linalg.norm(g - np.einsum("iab,ib->a", H, w) / len(H)))
    zeta_inf = float(np.linalg.norm(H - H_bar, 2, axis=(1, 2)).max())
    return ResidualBounds(
        identity=np.linalg.norm(np.einsum("iab,ib->ia", J_inverse, residual), axis=1),
        c1=c1(beta, size, alpha_bar),
        c2=np.linalg.norm(J_inverse, 2, axis=(1, 2)) * size,
        c3=c3(beta, mean_residual, apart, zeta_inf * float(apart.mean()), alpha_bar),
        c4=c4(beta, float(np.linalg.norm(g - H_bar @ w_bar)), apart, alpha_bar),
    )


def c1(beta: np.ndarray, residual: np.ndarray, alpha_bar: float) -> np.ndarray:
    """β_i ‖r̃_i‖/ᾱ."""
    return beta * residual / alpha_bar


def c3(beta: np.ndarray, mean_residual: float, apart: np.ndarray, coupling: float, alpha_bar: float) -> np.ndarray:
    """β_i [‖r̄‖/ᾱ + ‖Δ_i‖ + coupling/ᾱ] where `coupling` bounds ‖mean_k (H_k − H̄)Δ_k‖."""
    return beta * (mean_residual / alpha_bar + apart + coupling / alpha_bar)


def c4(beta: np.ndarray, residual_at_c: float | np.ndarray, apart: np.ndarray, alpha_bar: float) -> np.ndarray:
    """β_i [‖ḡ − H̄c‖/ᾱ + ‖w_i − c‖]."""
    return beta * (residual_at_c / alpha_bar + apart)
