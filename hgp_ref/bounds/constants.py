"""Realised constants: norms and eigenvalues of the actual Hessians, Jacobians, gradients and averaging matrices.

With Π = 11ᵀ/n, Θ = Π ⊗ I, H = blockdiag(H_i), E_m = K_m − Π:

    γ_m = max_i Σ_j |E_m[i,j]|,  ε_m = σ_max(E_m),  ε∥_m = ‖Π E_m‖ = ‖1ᵀE_m‖/√n,  ε⊥_m = ‖(I − Π) E_m‖
    ζ = ‖(I − Θ) H Θ‖ = √λ_max(mean_i (H_i − H̄)²),  ρ⊥ = ‖(I − Θ)(I − ηH)(I − Θ)‖,  ζ∞ = max_i ‖H_i − H̄‖
    ρ = max_i ‖I − ηH_i‖,  ρ̄ = ‖I − ηH̄‖

The constants belong to one point and to the realised graphs; none is a supremum over λ or over graphs. ᾱ is lowered by
4 (n + d_x) 2^−52 max_i ‖H_i‖, which bounds the float64 error of the mean Hessian and its eigenvalues. Relative to ᾱ
that is 4 (n + d_x) 2^−52 times the condition number; no other constant is as sensitive to rounding. H, J and ∂_x f are
divided by powers of two first, so that no square overflows or underflows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from hgp_ref import validation
from hgp_ref.backend import Array, computes_on_device
from hgp_ref.bounds.result import UNIT, power_of_two, rounding
from hgp_ref.exact import hessians, jacobians, theta
from hgp_ref.problems.base import Problem, closed_form
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.rounding import norm, norms
from hgp_ref.validation import Integer, Optional, Positive, checked

ITERATIONS = Optional(Integer())
SIGNED = ("alpha", "L", "alpha_bar", "L_bar", "smallest_entry")  # all other constants are not negative


@dataclass(frozen=True)
class Constants:
    """Constants of one setting, defined at the head of this module and made by `realised_constants`.

    Arrays over the M averaging calls are (M,), over the clients (n,).

    Attributes
    ----------
    n : number of clients.
    d_x : dimension of x.
    d_lam : dimension of λ.
    eta : η.
    iterations : M.
    gamma : (M,), γ_m: largest absolute row sum of E_m.
    eps : (M,), ‖E_m‖.
    eps_par : (M,), ‖ΠE_m‖.
    eps_perp : (M,), ‖(I − Π)E_m‖.
    alpha : min_i λ_min(H_i).
    L : max_i λ_max(H_i).
    sigma_min : min_i σ_min(H_i); the paper's α.
    alpha_bar : λ_min(H̄).
    L_bar : λ_max(H̄).
    beta : ‖J_i‖.
    J_stacked : ‖[J_1; …; J_n]‖.
    rho : max_i ‖I − ηH_i‖.
    rho_bar : ‖I − ηH̄‖.
    zeta : ‖(I − Θ)HΘ‖.
    zeta_inf : max_i ‖H_i − H̄‖.
    rho_perp : ‖(I − Θ)(I − ηH)(I − Θ)‖.
    G_inf : max_i ‖∂_x f_i‖.
    g_bar : ‖mean ∂_x f_i‖.
    a0 : ‖Θ ∂_x f‖ = √n ‖ḡ‖.
    s0 : ‖(I − Θ) ∂_x f‖.
    f_norm : ‖∂_x f‖.
    row_sum_error : max |K_m 1 − 1|.
    smallest_entry : min K_m[i,j].
    f_lam : ‖∂_λ f‖, used by `rounding` only.
    steps : S, used by `rounding` only.
    """

    n: int
    d_x: int
    d_lam: int
    eta: float
    iterations: int
    gamma: np.ndarray
    eps: np.ndarray
    eps_par: np.ndarray
    eps_perp: np.ndarray
    alpha: float
    L: float
    sigma_min: float
    alpha_bar: float
    L_bar: float
    beta: np.ndarray
    J_stacked: float
    rho: float
    rho_bar: float
    zeta: float
    zeta_inf: float
    rho_perp: float
    G_inf: float
    g_bar: float
    a0: float
    s0: float
    f_norm: float
    row_sum_error: float
    smallest_entry: float
    f_lam: float = 0.0
    steps: int = 1

    def __post_init__(self) -> None:
        for name in ("n", "d_x", "d_lam", "iterations", "steps"):
            validation.integer(name, getattr(self, name))
        validation.positive("eta", self.eta)
        for name in ("gamma", "eps", "eps_par", "eps_perp"):
            validation.real_array(name, getattr(self, name), (self.iterations,), "(M,)", low=0.0)
        validation.real_array("beta", self.beta, (self.n,), "(n,)", low=0.0)
        for field in fields(self):
            if field.type == "float" and field.name != "eta":
                check = validation.number if field.name in SIGNED else validation.nonnegative
                check(field.name, getattr(self, field.name))

    @property
    def beta_max(self) -> float:
        """β = max_i ‖J_i‖."""
        return float(self.beta.max())

    @property
    def beta_norm(self) -> float:
        """√Σ β_i²: multiplies a common bound on all ‖w_i − w*‖ into a bound on ‖v − d‖."""
        return norm(self.beta)

    @property
    def rounding(self) -> float:
        """A bound on what float64 arithmetic adds to ‖v − d‖; the derivation is in `hgp_ref.bounds.result`."""
        return rounding(self)


@checked(eta=Positive(), steps=Integer())
def realised_constants(
    H: np.ndarray,
    J: np.ndarray,
    f_x: np.ndarray,
    eta: float,
    matrices: Sequence[np.ndarray],
    *,
    f_lam: np.ndarray | None = None,
    steps: int = 1,
) -> Constants:
    """Constants from H (n, d_x, d_x), J (n, d_lam, d_x), ∂_x f (n, d_x), η and K_0 … K_{M−1} (n, n) each.

    `f_lam` (∂_λ f, zero by default) and `steps` (S behind each matrix) are used by `Constants.rounding` only.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> c = hgp.bounds.realised_constants(H, J, f_x, 1.0, K)
    >>> c.n, c.iterations, bool(c.rho < 1)
    (3, 50, True)
    """
    f_x = validation.real_array("f_x", f_x, (None, None), "(n, d_x)")
    n, d_x = f_x.shape
    H = validation.real_array("H", H, (n, d_x, d_x), "(n, d_x, d_x)")
    J = validation.real_array("J", J, (n, None, d_x), "(n, d_lam, d_x)")
    K = validation.real_array("matrices", matrices, (None, n, n), "(M, n, n)")
    f_lam_norm = 0.0 if f_lam is None else norm(validation.real_array("f_lam", f_lam, J.shape[:2], "(n, d_lam)"))
    try:
        return Constants(
            n=n,
            d_x=d_x,
            d_lam=J.shape[1],
            eta=eta,
            iterations=len(K),
            **_averaging_constants(K),
            **_hessian_constants(H, eta),
            **_gradient_constants(f_x),
            beta=power_of_two(J) * np.linalg.norm(J / power_of_two(J), 2, axis=(1, 2)),
            J_stacked=power_of_two(J) * float(np.linalg.norm((J / power_of_two(J)).reshape(-1, d_x), 2)),
            f_lam=f_lam_norm,
            steps=steps,
        )
    except ValueError as error:
        raise ValueError(f"H, J, f_x, eta: a constant leaves the floating-point range ({error})") from error


def _hessian_constants(H: np.ndarray, eta: float) -> dict[str, Any]:
    """The constants of H (n, d, d) and η."""
    unit = power_of_two(H)
    A, step = H / unit, eta * unit
    A = (A + np.swapaxes(A, 1, 2)) / 2
    mean = A.mean(axis=0)
    eigenvalues, mean_eigenvalues = np.linalg.eigvalsh(A), np.linalg.eigvalsh(mean)
    deviation = A - mean
    allowance = 4 * sum(A.shape[:2]) * UNIT * float(np.abs(eigenvalues).max())
    return {
        "alpha": unit * float(eigenvalues.min()),
        "L": unit * float(eigenvalues.max()),
        "sigma_min": unit * float(np.abs(eigenvalues).min()),
        "alpha_bar": unit * (float(mean_eigenvalues[0]) - allowance),
        "L_bar": unit * float(mean_eigenvalues[-1]),
        "rho": float(np.abs(1 - step * eigenvalues).max()),
        "rho_bar": float(np.abs(1 - step * mean_eigenvalues).max()),
        "zeta": unit * math.sqrt(float(np.linalg.norm((deviation @ deviation).mean(axis=0), 2))),
        "zeta_inf": unit * float(np.linalg.norm(deviation, 2, axis=(1, 2)).max()),
        "rho_perp": _disagreement_rate(A, step),
    }


def _gradient_constants(f_x: np.ndarray) -> dict[str, Any]:
    """The constants of ∂_x f (n, d)."""
    unit = power_of_two(f_x)
    mean = (f_x / unit).mean(axis=0)
    return {
        "G_inf": float(norms(f_x).max()),
        "g_bar": unit * float(np.linalg.norm(mean)),
        "a0": unit * float(np.sqrt(len(f_x)) * np.linalg.norm(mean)),
        "s0": unit * float(np.linalg.norm(f_x / unit - mean)),
        "f_norm": norm(f_x),
    }


def _averaging_constants(K: np.ndarray) -> dict[str, Any]:
    """The constants of K (M, n, n)."""
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
    step = complement @ (np.eye(n * d) - eta * block_diag(*H)) @ complement
    return float(np.abs(np.linalg.eigvalsh((step + step.T) / 2)).max())


def geometric(ratio: float, terms: int) -> np.ndarray:
    """g_0 … g_terms with g_k = Σ_{t<k} ratio^t, (terms + 1,)."""
    with np.errstate(over="ignore"):
        return np.concatenate([[0.0], np.cumsum(ratio ** np.arange(terms, dtype=np.float64))])


def check_iterations(c: Constants, iterations: int | None) -> int:
    """M: by default the number of averaging calls in the constants, which is also the largest value."""
    if iterations is None:
        return c.iterations
    if iterations > c.iterations:
        raise ValueError(
            f"iterations must be at most {c.iterations}, the averaging calls in the constants, got {iterations}"
        )
    return iterations


# ----------------------------------------------------------------------------------------------- constants of instances
#
# For client i with instances s = 1 … N_i and the derivatives H_i^(s), J_i^(s) of each alone (means H_i, J_i):
#
#     κ_x = max_{i,s} ‖H_i^(s) − H_i‖,     σ_x² = max_i ‖mean_s (H_i^(s) − H_i)ᵀ(H_i^(s) − H_i)‖,     likewise κ_λ, σ_λ,
#     ρ = max_{i,s} ‖I − ηH_i^(s)‖, which also bounds the norm for a batch mean, because norms are convex.


@dataclass(frozen=True)
class SampleConstants:
    """Suprema and root mean squares over the instances of all clients.

    Attributes
    ----------
    kappa_x : κ_x, max over instances of ‖H_i^(s) − H_i‖.
    kappa_lam : κ_λ, the same of J.
    sigma_x : σ_x, the root of the largest ‖mean_s (H_i^(s) − H_i)ᵀ(H_i^(s) − H_i)‖ of a client.
    sigma_lam : σ_λ, the same of J.
    rho : max over instances of ‖I − ηH_i^(s)‖.
    alpha : min over instances of σ_min(H_i^(s)), as Theorem 1 prints it.
    beta : max over instances of ‖J_i^(s)‖.
    """

    kappa_x: float
    kappa_lam: float
    sigma_x: float
    sigma_lam: float
    rho: float
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        for field in fields(self):
            validation.nonnegative(field.name, getattr(self, field.name))


@computes_on_device
def sample_derivatives(problem: Problem, x: Array, lam: Array) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """H_i^(s) as n arrays (N_i, d_x, d_x) and J_i^(s) as n arrays (N_i, d_lam, d_x), from batches of one instance.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=2, n_train=5, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> H, J = hgp.bounds.sample_derivatives(problem, np.zeros((2, problem.dim_x)), np.ones((2, problem.dim_lam)))
    >>> len(H), H[0].shape == (5, problem.dim_x, problem.dim_x), J[0].shape == (5, problem.dim_lam, problem.dim_x)
    (2, True, True)
    """
    counts = validation.host_array("problem.counts", getattr(problem, "counts", None))
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise TypeError(f"problem must have instances (`counts`) and mini-batches, got {problem!r}")
    for name, value in (("x", x), ("lam", lam)):
        validation.array(name, value)
        if len(value.shape) != 2 or value.shape[0] != len(counts):
            raise ValueError(f"{name} must have shape ({len(counts)}, d), one row per client, got {tuple(value.shape)}")
    H: list[list[np.ndarray]] = [[] for _ in counts]
    J: list[list[np.ndarray]] = [[] for _ in counts]
    for s in range(int(counts.max())):
        batch = np.minimum(s, counts - 1)[:, None].astype(np.int64)  # (n, 1); clients with fewer repeat their last
        H_s, J_s = hessians(problem, x, lam, batch), jacobians(problem, x, lam, batch)
        for i in np.flatnonzero(s < counts):
            H[i].append(H_s[i])
            J[i].append(J_s[i])
    return [np.stack(a) for a in H], [np.stack(a) for a in J]


def check_samples(
    H: Sequence[np.ndarray],
    J: Sequence[np.ndarray],
    n: int | None = None,
    d_x: int | None = None,
    names: tuple[str, str] = ("H_samples", "J_samples"),
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """H_i^(s) and J_i^(s) in float64: one array per client, with the same instances in both."""
    for name, samples in zip(names, (H, J), strict=True):
        if not isinstance(samples, Sequence) or len(samples) == 0 or (n is not None and len(samples) != n):
            count = len(samples) if isinstance(samples, Sequence) else type(samples).__name__
            raise ValueError(f"{name} must be a list of {n or 'n'} arrays, one per client, got {count}")
    if len(H) != len(J):
        raise ValueError(f"{names[1]} must have {len(H)} clients like {names[0]}, got {len(J)}")
    H = [validation.real_array(f"{names[0]}[{i}]", a, (None, d_x, d_x), "(N_i, d_x, d_x)") for i, a in enumerate(H)]
    d_x = H[0].shape[1]
    H = [validation.real_array(f"{names[0]}[{i}]", a, (None, d_x, d_x), "(N_i, d_x, d_x)") for i, a in enumerate(H)]
    meaning = f"(N_i, d_lam, d_x) with N_i as in {names[0]}"
    J = [validation.real_array(f"{names[1]}[{i}]", a, (len(H[i]), None, d_x), meaning) for i, a in enumerate(J)]
    if len({a.shape[1] for a in J}) > 1:
        raise ValueError(f"{names[1]} must have the same d_lam for all clients, got {[a.shape[1] for a in J]}")
    return H, J


@checked(eta=Positive())
def sample_constants(H: Sequence[np.ndarray], J: Sequence[np.ndarray], eta: float) -> SampleConstants:
    """The constants from the derivatives of single instances.

    Examples
    --------
    >>> instances = [np.array([[[0.4]], [[0.6]]])] * 2
    >>> s = hgp.bounds.sample_constants(instances, instances, 1.0)
    >>> round(s.kappa_x, 3), round(s.rho, 3), s.alpha, s.beta
    (0.1, 0.6, 0.4, 0.6)
    """
    H, J = check_samples(H, J, names=("H", "J"))
    unit = max(power_of_two(a) for a in J)
    kappa_x, sigma_x = _deviations(H)
    kappa_lam, sigma_lam = _deviations(J)
    eigenvalues = np.concatenate([np.linalg.eigvalsh(a).ravel() for a in H])
    return SampleConstants(
        kappa_x=kappa_x,
        kappa_lam=kappa_lam,
        sigma_x=sigma_x,
        sigma_lam=sigma_lam,
        rho=float(np.abs(1 - eta * eigenvalues).max()),
        alpha=float(np.abs(eigenvalues).min()),
        beta=unit * float(max(np.linalg.norm(a / unit, 2, axis=(1, 2)).max() for a in J)),
    )


def _deviations(samples: Sequence[np.ndarray]) -> tuple[float, float]:
    """Largest deviation from a client's mean, and the largest root mean square deviation."""
    largest, square = 0.0, 0.0
    unit = max(power_of_two(a) for a in samples)
    for a in samples:
        deviation = a / unit - (a / unit).mean(axis=0)
        largest = max(largest, float(np.linalg.norm(deviation, 2, axis=(1, 2)).max()))
        second = (np.swapaxes(deviation, 1, 2) @ deviation).mean(axis=0)
        square = max(square, float(np.linalg.norm(second, 2)))
    return unit * largest, unit * float(np.sqrt(square))


# -------------------------------------------------------------------------------------------------- Lipschitz constants


def known_lipschitz(problem: Problem, lam: Array) -> Lipschitz | None:
    """The constants that the problem's optional member `lipschitz(lam)` returns; None without it.

    The member returns None, a `Lipschitz` or a mapping with its fields: nu_flam, nu_fx, nu_J, nu_H and, optionally,
    strong_convexity, a lower bound on λ_min of the mean Hessian for this lam at every x. Built-in problems have it
    (`hgp_ref.problems.lipschitz`).

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> hgp.bounds.known_lipschitz(problem, np.zeros((3, 2))).nu_H
    0.0
    """
    lipschitz = closed_form(problem, "lipschitz")
    constants = None if lipschitz is None else lipschitz(lam)
    if constants is None or isinstance(constants, Lipschitz):
        return constants
    if not isinstance(constants, Mapping):
        returned = type(constants).__name__
        raise TypeError(f"problem.lipschitz must return a Lipschitz, a mapping with its fields or None, got {returned}")
    return Lipschitz(**constants)
