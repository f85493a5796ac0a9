"""C: bounds on the error of a finished run from the residual of w, for any method.

With r̃_i = ḡ − H̄ w_i and w* = H̄⁻¹ḡ, exactly

    (∂_λ f_i − J_i w_i) − d_i = J_i (w* − w_i) = J_i H̄⁻¹ r̃_i,      hence

    C1 = β_i ‖r̃_i‖/ᾱ,        C2 = ‖J_i H̄⁻¹‖ ‖r̃_i‖ ≤ C1,

and from averages of d-vectors and scalars alone, with Δ_i = w_i − w̄, r̄ = ḡ − mean_k H_k w_k, ζ∞ = max_k ‖H_k − H̄‖,

    C3 = β_i [‖r̄‖/ᾱ + ‖Δ_i‖ + (ζ∞/ᾱ) mean_k ‖Δ_k‖],

because mean_k H_k w_k = H̄w̄ + mean_k (H_k − H̄)Δ_k (the Δ_k have mean zero) and r̃_i = r̄ + mean_k (H_k − H̄)Δ_k − H̄Δ_i.
If all clients evaluate at one common vector c instead, no heterogeneity enters:

    C4 = β_i [‖ḡ − H̄c‖/ᾱ + ‖w_i − c‖],

which with c = w̄ is never larger than C3 and costs the same messages once c is known to all. If v_i differs from
∂_λ f_i − J_i w_i, as after mini-batches, ‖v_i − (∂_λ f_i − J_i w_i)‖ is added to each of them.

2*: `inexact` bounds what an inexact inner solution x̂ adds, and `distance_to_solution` how far x̂ is from x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hgp_ref import validation
from hgp_ref.bounds.result import UNIT, power_of_two, product
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.validation import Instance, Nonnegative, Number, Optional, Positive, checked


@dataclass(frozen=True)
class ResidualBounds:
    """Per client, (n,) each: the error ‖J_i H̄⁻¹ r̃_i‖ and its bounds C1 … C4."""

    identity: np.ndarray
    c1: np.ndarray
    c2: np.ndarray
    c3: np.ndarray
    c4: np.ndarray


def residual_bounds(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, w: np.ndarray) -> ResidualBounds:
    """All forms of C from H (n, d, d), J (n, d_lam, d), ∂_x f (n, d) and the w (n, d) of a run; C4 at the mean of w.

    ᾱ is lowered and ‖J_i H̄⁻¹‖ raised by the rounding of H̄, 4 (n + d) 2^−52 max_i ‖H_i‖. The rounding of the residual is
    not included. ValueError if H̄ is not positive definite or a bound overflows.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> r = hgp.bounds.residual_bounds(H, J, f_x, np.zeros((3, 4)))
    >>> bool(np.all(r.identity <= r.c2) and np.all(r.c2 <= r.c1))
    True
    """
    f_x = validation.real_array("f_x", f_x, (None, None), "(n, d)")
    n, d = f_x.shape
    H = validation.real_array("H", H, (n, d, d), "(n, d, d)")
    J = validation.real_array("J", J, (n, None, d), "(n, d_lam, d)")
    w = validation.real_array("w", w, (n, d), "(n, d)")
    unit_H, unit_J = power_of_two(H), power_of_two(J)
    sizes = [power_of_two(w) if w.any() else 0.0, power_of_two(f_x) / unit_H if f_x.any() else 0.0]
    unit_w = max(sizes) or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        in_units = _in_units(H / unit_H, J / unit_J, f_x / unit_H / unit_w, w / unit_w)
        scaled = {name: unit_J * values * unit_w for name, values in vars(in_units).items()}
    if not np.isfinite(list(scaled.values())).all():
        raise ValueError("bounds of these H, J, f_x, w leave the floating-point range")
    return ResidualBounds(**scaled)


def _in_units(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, w: np.ndarray) -> ResidualBounds:
    """The bounds for arrays divided by powers of two."""
    H_bar, g, w_bar = H.mean(axis=0), f_x.mean(axis=0), w.mean(axis=0)
    hidden = 4 * sum(f_x.shape) * UNIT * float(np.linalg.norm(H, 2, axis=(1, 2)).max())  # rounding of H̄ and λ(H̄)
    alpha_bar = float(np.linalg.eigvalsh((H_bar + H_bar.T) / 2)[0]) - hidden
    if alpha_bar <= 0:
        raise ValueError(f"H must have a positive definite mean, got a smallest eigenvalue of {alpha_bar:.3e}")
    beta = np.linalg.norm(J, 2, axis=(1, 2))
    J_inverse = J @ np.linalg.inv(H_bar)
    inverse_norms = np.linalg.norm(J_inverse, 2, axis=(1, 2))
    residual = g - w @ H_bar.T  # r̃_i, (n, d)
    size = np.linalg.norm(residual, axis=1)
    apart = np.linalg.norm(w - w_bar, axis=1)  # ‖Δ_i‖
    mean_residual = float(np.linalg.norm(g - np.einsum("iab,ib->a", H, w) / len(H)))
    zeta_inf = float(np.linalg.norm(H - H_bar, 2, axis=(1, 2)).max())
    return ResidualBounds(
        identity=np.linalg.norm(np.einsum("iab,ib->ia", J_inverse, residual), axis=1),
        c1=c1(beta, size, alpha_bar),
        c2=np.minimum(inverse_norms * (1 + hidden / alpha_bar), beta / alpha_bar) * size,
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


# ---------------------------------------------------------------------------------------- 2*: an inexact inner solution
#
# Let d̂ be the hyper-gradient formula at x̂ (rows x̂_i may differ), ŵ = Ĥ̄⁻¹ ĝ̄ its solution and e_i = ‖x̂_i − x‖. With
# Lipschitz constants of each client's derivatives along x,
#
#     ‖d̂_i − d_i‖ ≤ (ν_fλ + ν_J ‖ŵ‖) e_i + β_i q,      q = (ν_fx + ν_H ‖ŵ‖) mean_k e_k /ᾱ,
#     ‖d̂ − d‖   ≤ [ν_fλ + ν_J ‖ŵ‖ + (β/ᾱ)(ν_fx + ν_H ‖ŵ‖)] ‖x̂ − x‖,
#
# to be added to any bound on ‖v − d̂‖. β_i and ᾱ belong to the exact solution x. With those of x̂ it fails: for H = 2
# at x̂, 1 at x, ‖x̂ − x‖ = ν_H = 1, the difference is twice what ᾱ = 2 allows. β_i(x̂) + ν_J e_i may replace β_i.
#
# Derivation. d̂_i − d_i = [∂_λ f_i(x̂_i) − ∂_λ f_i(x)] − [J_i(x̂_i) − J_i(x)] ŵ − J_i(x)(ŵ − w*), and ŵ − w* = H̄(x)⁻¹
# [(H̄(x) − Ĥ̄) ŵ + ĝ̄ − ḡ(x)], where the averages differ by at most ν_H mean e_k and ν_fx mean e_k. The stacked form
# follows from mean_k e_k ≤ ‖x̂ − x‖/√n. Block-diagonal differences act on the blocks ŵ one by one, so ‖ŵ‖ enters and
# not √n ‖ŵ‖. Constants of the stacked functions (the paper's Assumption 4) are constants of each client too.
#
# Distance. If the mean inner cost is ᾱ-strongly convex, ‖x̄ − x‖ ≤ ‖mean ∂g(x̄)‖/ᾱ for any common point x̄. Without a
# global ᾱ but with ν_H, let ᾱ₀ = λ_min(H̄(x̄)) and G = ‖mean ∂g(x̄)‖. If 2ν_H G < ᾱ₀², there is a stationary point
# within e = (ᾱ₀ − √(ᾱ₀² − 2ν_H G))/ν_H of x̄ (Kantorovich), where λ_min ≥ ᾱ₀ − ν_H e. It is x if the mean inner cost is
# convex.


@checked(nu=Instance(Lipschitz), w_norm=Nonnegative(), alpha_bar=Positive(), mean_apart=Optional(Nonnegative()))
def inexact(
    nu: Lipschitz, apart: np.ndarray, w_norm: float, beta: np.ndarray, alpha_bar: float, mean_apart: float | None = None
) -> np.ndarray:
    """Bounds on ‖d̂_i − d_i‖, (n,), from e_i ≤ `apart`, ‖ŵ‖ ≤ `w_norm`, and β_i, ᾱ at the exact solution.

    `mean_apart` bounds mean_k e_k; by default it is the mean of `apart`.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> hgp.bounds.inexact(nu, np.array([0.01, 0.02]), 1.0, np.ones(2), 0.5)
    array([0.045, 0.045])
    """
    apart = validation.real_array("apart", apart, (None,), "(n,)", low=0.0)
    beta = validation.real_array("beta", beta, apart.shape, f"{apart.shape} as apart", low=0.0)
    mean_apart = float(np.mean(apart)) if mean_apart is None else mean_apart
    return inexact_terms(nu, apart, mean_apart, w_norm, beta, alpha_bar)


def inexact_terms(
    nu: Lipschitz, apart: np.ndarray, mean_apart: float, w_norm: float, beta: np.ndarray, alpha_bar: float
) -> np.ndarray:
    """`inexact` without checks of its arguments; ValueError if a bound is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        bound = (nu.nu_flam + nu.nu_J * w_norm) * apart + beta * shift(nu, mean_apart, w_norm, alpha_bar)
    return np.asarray(_in_range(bound))


@checked(nu=Instance(Lipschitz), distance=Nonnegative(), w_norm=Nonnegative(), beta=Nonnegative(), alpha_bar=Positive())
def inexact_total(nu: Lipschitz, distance: float, w_norm: float, beta: float, alpha_bar: float) -> float:
    """A bound on ‖d̂ − d‖ from ‖x̂ − x‖ ≤ `distance`, ‖ŵ‖ ≤ `w_norm`, and max β_i, ᾱ at the exact solution.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> round(hgp.bounds.inexact_total(nu, distance=0.01, w_norm=1.0, beta=1.0, alpha_bar=0.5), 6)
    0.03
    """
    direct = product(nu.nu_flam + nu.nu_J * w_norm, distance)
    return float(_in_range(direct + product(beta, shift(nu, distance, w_norm, alpha_bar))))


def shift(nu: Lipschitz, mean_apart: float, w_norm: float, alpha_bar: float) -> float:
    """q ≥ ‖ŵ − w*‖."""
    return product(nu.nu_fx + nu.nu_H * w_norm, mean_apart, 1 / alpha_bar)


def _in_range(bound: np.ndarray | float) -> np.ndarray | float:
    if not np.isfinite(bound).all():
        raise ValueError("the bound for these nu, apart, distance, w_norm, beta leaves the floating-point range")
    return bound


@checked(nu=Instance(Lipschitz), gradient=Nonnegative(), alpha_bar_here=Number())
def distance_to_solution(nu: Lipschitz, gradient: float, alpha_bar_here: float) -> tuple[float, float]:
    """A bound on ‖x̄ − x‖ for a common point x̄, and a lower bound on λ_min of the mean Hessian at x.

    `gradient` is ‖mean ∂g(x̄)‖, `alpha_bar_here` is λ_min(H̄(x̄)) or a lower bound of it.

    Raises
    ------
    ValueError
        If `nu` has no strong convexity, and the mean Hessian at x̄ is not positive definite or x̄ is too far from x.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> [round(value, 6) for value in hgp.bounds.distance_to_solution(nu, gradient=0.01, alpha_bar_here=0.5)]
    [0.1, 0.1]
    """
    if nu.strong_convexity is not None:
        return gradient / nu.strong_convexity, nu.strong_convexity
    if alpha_bar_here <= 0:
        raise ValueError(
            f"alpha_bar_here, the smallest eigenvalue of the mean Hessian at x, must be > 0, got {alpha_bar_here:.3e}"
        )
    if nu.nu_H == 0:
        return gradient / alpha_bar_here, alpha_bar_here
    if alpha_bar_here > 1e150:
        raise ValueError(f"alpha_bar_here must be at most 1e150, got {alpha_bar_here}")
    discriminant = alpha_bar_here**2 - 2 * nu.nu_H * gradient
    if discriminant <= 0:
        raise ValueError(
            f"x is too far from the inner solution: 2 nu_H · gradient = {2 * nu.nu_H * gradient:.3g} must be below "
            f"{alpha_bar_here**2:.3g}, the square of the smallest eigenvalue of the mean Hessian; train further, or "
            "pass strong_convexity"
        )
    e = 2 * gradient / (alpha_bar_here + math.sqrt(discriminant))  # = (ᾱ₀ − √·)/ν_H without cancellation
    return e, alpha_bar_here - nu.nu_H * e
