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

import math
from dataclasses import dataclass

import numpy as np

from hgp_ref import validation
from hgp_ref.bounds.result import UNIT, power_of_two, product
from hgp_ref.problems.lipschitz import Lipschitz


@dataclass(frozen=True)
class ResidualBounds:
    """Per client, (n,) each: the error itself by the identity, and its bounds.

    Attributes
    ----------
    identity : ‖J_i H̄⁻¹ r̃_i‖.
    c1 : (n,), C1.
    c2 : (n,), C2.
    c3 : (n,), C3.
    c4 : (n,), C4.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> hgp.bounds.residual_bounds(H, J, f_x, np.zeros((3, 4))).c1.shape
    (3,)
    """

    identity: np.ndarray
    c1: np.ndarray
    c2: np.ndarray
    c3: np.ndarray
    c4: np.ndarray


def residual_bounds(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, w: np.ndarray) -> ResidualBounds:
    """All forms of C from explicit H (n, d, d), J (n, d_lam, d), ∂_x f (n, d) and w (n, d); C4 at the mean of w.

    ᾱ is lowered and ‖J_i H̄⁻¹‖ raised by what their own rounding may be, 4 (n + d) 2^−52 max_i ‖H_i‖ in H̄; that of the
    residual itself is left to the caller. Computed in units of H, J and ∂_x f that are powers of two.

    Parameters
    ----------
    w : array (n, d_x)
        What a run found for w*.

    Raises
    ------
    ValueError
        The bounds leave the floating-point range, or H̄ is not positive definite.

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
        raise ValueError("H, J, f_x, w: their bounds leave the floating-point range")
    return ResidualBounds(**scaled)


def _in_units(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, w: np.ndarray) -> ResidualBounds:
    """The bounds of numbers of ordinary size."""
    H_bar, g, w_bar = H.mean(axis=0), f_x.mean(axis=0), w.mean(axis=0)
    hidden = 4 * sum(f_x.shape) * UNIT * float(np.linalg.norm(H, 2, axis=(1, 2)).max())  # rounding of H̄ and λ(H̄)
    alpha_bar = float(np.linalg.eigvalsh((H_bar + H_bar.T) / 2)[0]) - hidden
    if alpha_bar <= 0:
        raise ValueError(f"H: the mean Hessian is not positive definite (smallest eigenvalue {alpha_bar:.3e})")
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


# ----------------------------------------------------------------------------------------------------
# 2*: what an inexact inner solution x̂ adds, and how far x̂ is from x.
#
# Let d̂ be the hyper-gradient formula at x̂ (rows x̂_i may differ), ŵ = Ĥ̄⁻¹ ĝ̄ its solution and e_i = ‖x̂_i −
# x‖. With Lipschitz constants of each client's derivatives along x,
#
#     ‖d̂_i − d_i‖ ≤ (ν_fλ + ν_J ‖ŵ‖) e_i + β_i q,      q = (ν_fx + ν_H ‖ŵ‖) mean_k e_k /ᾱ,
#     ‖d̂ − d‖   ≤ [ν_fλ + ν_J ‖ŵ‖ + (β/ᾱ)(ν_fx + ν_H ‖ŵ‖)] ‖x̂ − x‖,
#
# to be added to any bound on ‖v − d̂‖. Here β_i and ᾱ belong to the exact solution x: with those of x̂ it fails
# (H = 2 at x̂, 1 at x, ‖x̂ − x‖ = ν_H = 1: the difference is twice what ᾱ = 2 allows). β_i(x̂) + ν_J e_i will do for
# β_i.
#
# Derivation. d̂_i − d_i = [∂_λ f_i(x̂_i) − ∂_λ f_i(x)] − [J_i(x̂_i) − J_i(x)] ŵ − J_i(x)(ŵ − w*), and ŵ − w* =
# H̄(x)⁻¹ [(H̄(x) − Ĥ̄) ŵ + ĝ̄ − ḡ(x)], where the averages differ by at most ν_H mean e_k and ν_fx mean e_k. The
# stacked form follows from mean_k e_k ≤ ‖x̂ − x‖/√n. Block-diagonal differences act on the blocks ŵ one by one,
# so ‖ŵ‖ enters and not √n ‖ŵ‖; constants of the stacked functions (the paper's Assumption 4) are constants of
# each client too.
#
# Distance. If the mean inner cost is ᾱ-strongly convex, ‖x̄ − x‖ ≤ ‖mean ∂g(x̄)‖/ᾱ for any common point x̄.
# Without a global ᾱ but with ν_H, let ᾱ₀ = λ_min(H̄(x̄)) and G = ‖mean ∂g(x̄)‖: if 2ν_H G < ᾱ₀² there is a
# stationary point within e = (ᾱ₀ − √(ᾱ₀² − 2ν_H G))/ν_H of x̄ (Kantorovich), where λ_min ≥ ᾱ₀ − ν_H e; it is x if
# the mean inner cost is convex.


def inexact(
    nu: Lipschitz, apart: np.ndarray, w_norm: float, beta: np.ndarray, alpha_bar: float, mean_apart: float | None = None
) -> np.ndarray:
    """Bounds on ‖d̂_i − d_i‖, (n,), from e_i ≤ `apart`, ‖ŵ‖ ≤ `w_norm`, and β_i, ᾱ at the exact solution.

    `mean_apart` bounds mean_k e_k; by default the mean of `apart`.

    Parameters
    ----------
    apart : array (n,)
        Bounds on e_i = ‖x̂_i − x‖.
    w_norm : float
        A bound on ‖ŵ‖.
    beta : array (n,)
        β_i at the exact solution.
    alpha_bar : float
        ᾱ at the exact solution.
    mean_apart : float, optional
        A bound on mean_k e_k.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> hgp.bounds.inexact(nu, np.array([0.01, 0.02]), 1.0, np.ones(2), 0.5)
    array([0.045, 0.045])
    """
    validation.instance("nu", nu, Lipschitz)
    apart = validation.real_array("apart", apart, (None,), "(n,)", low=0.0)
    beta = validation.real_array("beta", beta, apart.shape, f"{apart.shape} as apart", low=0.0)
    w_norm, alpha_bar = validation.nonnegative("w_norm", w_norm), validation.positive("alpha_bar", alpha_bar)
    mean_apart = float(np.mean(apart)) if mean_apart is None else validation.nonnegative("mean_apart", mean_apart)
    with np.errstate(over="ignore", invalid="ignore"):
        own = (nu.nu_flam + nu.nu_J * w_norm) * apart + beta * shift(nu, mean_apart, w_norm, alpha_bar)
    return np.asarray(_in_range(own))


def inexact_total(nu: Lipschitz, distance: float, w_norm: float, beta: float, alpha_bar: float) -> float:
    """The bound on ‖d̂ − d‖ from ‖x̂ − x‖ ≤ `distance` and β = max β_i.

    Parameters
    ----------
    distance : float
        A bound on ‖x̂ − x‖.
    w_norm : float
        A bound on ‖ŵ‖.
    beta, alpha_bar : float
        max β_i and ᾱ at the exact solution.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> round(hgp.bounds.inexact_total(nu, 0.01, 1.0, 1.0, 0.5), 6)
    0.03
    """
    validation.instance("nu", nu, Lipschitz)
    distance, w_norm = validation.nonnegative("distance", distance), validation.nonnegative("w_norm", w_norm)
    beta, alpha_bar = validation.nonnegative("beta", beta), validation.positive("alpha_bar", alpha_bar)
    own = product(nu.nu_flam + nu.nu_J * w_norm, distance)
    return float(_in_range(own + product(beta, shift(nu, distance, w_norm, alpha_bar))))


def shift(nu: Lipschitz, mean_apart: float, w_norm: float, alpha_bar: float) -> float:
    """q ≥ ‖ŵ − w*‖."""
    return product(nu.nu_fx + nu.nu_H * w_norm, mean_apart, 1 / alpha_bar)


def _in_range(bound: np.ndarray | float) -> np.ndarray | float:
    """`bound`, or a ValueError where it has left the floating-point range."""
    if not np.isfinite(bound).all():
        raise ValueError("nu, apart, distance, w_norm, beta: their bound leaves the floating-point range")
    return bound


def distance_to_solution(nu: Lipschitz, gradient: float, alpha_bar_here: float) -> tuple[float, float]:
    """(bound on ‖x̄ − x‖, lower bound on λ_min of the mean Hessian at x) for a common point x̄.

    `gradient` = ‖mean ∂g(x̄)‖, `alpha_bar_here` = λ_min(H̄(x̄)) or a lower bound of it. ValueError where neither a global
    strong convexity nor Kantorovich's condition is at hand.

    Parameters
    ----------
    gradient : float
        ‖mean ∂g(x̄)‖.
    alpha_bar_here : float
        λ_min(H̄(x̄)), or a lower bound of it.

    Returns
    -------
    pair of floats
        A bound on ‖x̄ − x‖ and a lower bound on λ_min of the mean Hessian at x.

    Raises
    ------
    ValueError
        The mean Hessian at x is not positive definite, or x is too far off for these constants.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> [round(value, 6) for value in hgp.bounds.distance_to_solution(nu, gradient=0.01, alpha_bar_here=0.5)]
    [0.1, 0.1]
    """
    validation.instance("nu", nu, Lipschitz)
    gradient = validation.nonnegative("gradient", gradient)
    alpha_bar_here = validation.number("alpha_bar_here", alpha_bar_here)
    if nu.strong_convexity is not None:
        return gradient / nu.strong_convexity, nu.strong_convexity
    if alpha_bar_here <= 0:
        raise ValueError(
            f"alpha_bar_here: the mean Hessian at x is not positive definite (smallest eigenvalue {alpha_bar_here:.3e})"
        )
    if nu.nu_H == 0:
        return gradient / alpha_bar_here, alpha_bar_here
    if alpha_bar_here > 1e150:
        raise ValueError(f"alpha_bar_here={alpha_bar_here} given, whose square leaves the floating-point range")
    discriminant = alpha_bar_here**2 - 2 * nu.nu_H * gradient
    if discriminant <= 0:
        raise ValueError(
            f"gradient={gradient:.3g}: x is too far from the inner solution: "
            f"2 nu_H ‖G‖ = {2 * nu.nu_H * gradient:.3g} is not below "
            f"{alpha_bar_here**2:.3g}, the square of the smallest eigenvalue of the mean Hessian; "
            "give strong_convexity or train further"
        )
    e = 2 * gradient / (alpha_bar_here + math.sqrt(discriminant))  # = (ᾱ₀ − √·)/ν_H without cancellation
    return e, alpha_bar_here - nu.nu_H * e
