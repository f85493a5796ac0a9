"""Realised constants: what the bounds need of the actual Hessians, Jacobians, gradients and averaging matrices.

With Π = 11ᵀ/n, Θ = Π ⊗ I, H = blockdiag(H_i), E_m = K_m − Π:

    γ_m = max_i Σ_j |E_m[i,j]|,  ε_m = σ_max(E_m),  ε∥_m = ‖Π E_m‖ = ‖1ᵀE_m‖/√n,  ε⊥_m = ‖(I − Π) E_m‖
    ζ = ‖(I − Θ) H Θ‖ = √λ_max(mean_i (H_i − H̄)²),  ρ⊥ = ‖(I − Θ)(I − ηH)(I − Θ)‖,  ζ∞ = max_i ‖H_i − H̄‖
    ρ = max_i ‖I − ηH_i‖,  ρ̄ = ‖I − ηH̄‖

Constants are those of the current point and the realised graphs; nothing here is a supremum over λ or over
graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from hgp_ref.exact import theta


@dataclass(frozen=True)
class Constants:
    """Constants of one setting; arrays over the M averaging calls are (M,), over the clients (n,)."""

    n: int
    d_x: int
    d_lam: int
    eta: float
    iterations: int  # M
    gamma: np.ndarray
    eps: np.ndarray
    eps_par: np.ndarray
    eps_perp: np.ndarray
    alpha: float  # min_i λ_min(H_i)
    L: float  # max_i λ_max(H_i)
    sigma_min: float  # min_i σ_min(H_i), which the paper prints for alpha
    alpha_bar: float  # λ_min(H̄)
    L_bar: float  # λ_max(H̄)
    beta: np.ndarray  # ‖J_i‖
    J_stacked: float  # ‖[J_1; …; J_n]‖
    rho: float
    rho_bar: float
    zeta: float
    zeta_inf: float
    rho_perp: float
    G_inf: float  # max_i ‖∂_x f_i‖
    g_bar: float  # ‖mean ∂_x f_i‖
    a0: float  # ‖Θ ∂_x f‖ = √n ‖ḡ‖
    s0: float  # ‖(I − Θ) ∂_x f‖
    f_norm: float  # ‖∂_x f‖
    row_sum_error: float  # max |K_m 1 − 1|
    smallest_entry: float  # min K_m[i,j]

    @property
    def beta_max(self) -> float:
        """β = max_i ‖J_i‖."""
        return float(self.beta.max())

    @property
    def beta_norm(self) -> float:
        """√Σ β_i²: turns a bound that is common to all w_i − w* into one on all clients together."""
        return float(np.linalg.norm(self.beta))

    @property
    def rounding(self) -> float:
        """What float64 arithmetic alone may add to ‖v − d‖: eps times the work times the conditioning of H̄."""
        work = 32 * np.finfo(np.float64).eps * (self.n + self.d_x)
        return float(work * self.beta_norm * (1 + self.L_bar / self.alpha_bar) * self.G_inf / self.alpha_bar)


def realised_constants(
    H: np.ndarray, J: np.ndarray, f_x: np.ndarray, eta: float, matrices: Sequence[np.ndarray]
) -> Constants:
    """Constants from H (n, d_x, d_x), J (n, d_lam, d_x), ∂_x f (n, d_x), η and K_0 … K_{M−1} (n, n) each."""
    H, J, f_x, K = (np.asarray(a, dtype=np.float64) for a in (H, J, f_x, matrices))
    n, d_x = f_x.shape
    H = (H + np.swapaxes(H, 1, 2)) / 2
    H_bar, g = H.mean(axis=0), f_x.mean(axis=0)
    eigenvalues, mean_eigenvalues = np.linalg.eigvalsh(H), np.linalg.eigvalsh(H_bar)
    deviation = H - H_bar
    return Constants(
        n=n,
        d_x=d_x,
        d_lam=J.shape[1],
        eta=float(eta),
        iterations=len(K),
        **_averaging_constants(K),
        alpha=float(eigenvalues.min()),
        L=float(eigenvalues.max()),
        sigma_min=float(np.abs(eigenvalues).min()),
        alpha_bar=float(mean_eigenvalues[0]),
        L_bar=float(mean_eigenvalues[-1]),
        beta=np.linalg.norm(J, 2, axis=(1, 2)),
        J_stacked=float(np.linalg.norm(J.reshape(-1, d_x), 2)),
        rho=float(np.abs(1 - eta * eigenvalues).max()),
        rho_bar=float(np.abs(1 - eta * mean_eigenvalues).max()),
        zeta=float(np.sqrt(np.linalg.norm((deviation @ deviation).mean(axis=0), 2))),
        zeta_inf=float(np.linalg.norm(deviation, 2, axis=(1, 2)).max()),
        rho_perp=_disagreement_rate(H, eta),
        G_inf=float(np.linalg.norm(f_x, axis=1).max()),
        g_bar=float(np.linalg.norm(g)),
        a0=float(np.sqrt(n) * np.linalg.norm(g)),
        s0=float(np.linalg.norm(f_x - g)),
        f_norm=float(np.linalg.norm(f_x)),
    )


def _averaging_constants(K: np.ndarray) -> dict[str, Any]:
    """What depends on K (M, n, n) alone."""
    n = K.shape[-1]
    E = K - 1.0 / n
    column_means = E.mean(axis=1, keepdims=True)  # (M, 1, n), rows of Π E
    return {
        "gamma": np.abs(E).sum(axis=2).max(axis=1),
        "eps": np.linalg.norm(E, 2, axis=(1, 2)),
        "eps_par": np.sqrt(n) * np.linalg.norm(column_means[:, 0], axis=1),
        "eps_perp": np.linalg.norm(E - column_means, 2, axis=(1, 2)),
        "row_sum_error": float(np.abs(K.sum(axis=2) - 1).max()),
        "smallest_entry": float(K.min()),
    }


def _disagreement_rate(H: np.ndarray, eta: float) -> float:
    """ρ⊥ = ‖(I − Θ)(I − ηH)(I − Θ)‖, 0 for a single client."""
    n, d, _ = H.shape
    if n == 1:
        return 0.0
    complement = np.eye(n * d) - theta(n, d)
    return float(np.linalg.norm(complement @ (np.eye(n * d) - eta * block_diag(*H)) @ complement, 2))


def row_stochastic(c: Constants) -> bool:
    """K_m 1 = 1 to rounding: true with weights reset at every call, false when they are kept."""
    return bool(c.row_sum_error <= 16 * c.n * np.finfo(np.float64).eps)


def geometric(ratio: float, terms: int) -> np.ndarray:
    """g_0 … g_terms with g_k = Σ_{t<k} ratio^t, (terms + 1,)."""
    with np.errstate(over="ignore"):
        return np.concatenate([[0.0], np.cumsum(ratio ** np.arange(terms, dtype=np.float64))])


def check_iterations(c: Constants, iterations: int | None) -> int:
    """M, all calls that the constants know unless fewer are asked for."""
    M = c.iterations if iterations is None else iterations
    if not 1 <= M <= c.iterations:
        raise ValueError(f"iterations={iterations}; the constants hold {c.iterations} averaging calls")
    return M
