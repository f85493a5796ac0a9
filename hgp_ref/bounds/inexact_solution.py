"""2*: what an inexact inner solution x̂ adds, and how far x̂ is from x.

Let d̂ be the hyper-gradient formula at x̂ (rows x̂_i may differ), ŵ = Ĥ̄⁻¹ ĝ̄ its solution and e_i = ‖x̂_i −
x‖. With Lipschitz constants of each client's derivatives along x,

    ‖d̂_i − d_i‖ ≤ (ν_fλ + ν_J ‖ŵ‖) e_i + β_i q,      q = (ν_fx + ν_H ‖ŵ‖) mean_k e_k /ᾱ,
    ‖d̂ − d‖   ≤ [ν_fλ + ν_J ‖ŵ‖ + (β/ᾱ)(ν_fx + ν_H ‖ŵ‖)] ‖x̂ − x‖,

to be added to any bound on ‖v − d̂‖. Here β_i and ᾱ belong to the exact solution x: with those of x̂ it fails
(H = 2 at x̂, 1 at x, ‖x̂ − x‖ = ν_H = 1: the difference is twice what ᾱ = 2 allows). β_i(x̂) + ν_J e_i will do for β_i.

Derivation. d̂_i − d_i = [∂_λ f_i(x̂_i) − ∂_λ f_i(x)] − [J_i(x̂_i) − J_i(x)] ŵ − J_i(x)(ŵ − w*), and ŵ − w* =
H̄(x)⁻¹ [(H̄(x) − Ĥ̄) ŵ + ĝ̄ − ḡ(x)], where the averages differ by at most ν_H mean e_k and ν_fx mean e_k. The
stacked form follows from mean_k e_k ≤ ‖x̂ − x‖/√n. Block-diagonal differences act on the blocks ŵ one by one,
so ‖ŵ‖ enters and not √n ‖ŵ‖; constants of the stacked functions (the paper's Assumption 4) are constants of
each client too.

Distance. If the mean inner cost is ᾱ-strongly convex, ‖x̄ − x‖ ≤ ‖mean ∂g(x̄)‖/ᾱ for any common point x̄.
Without a global ᾱ but with ν_H, let ᾱ₀ = λ_min(H̄(x̄)) and G = ‖mean ∂g(x̄)‖: if 2ν_H G < ᾱ₀² there is a
stationary point within e = (ᾱ₀ − √(ᾱ₀² − 2ν_H G))/ν_H of x̄ (Kantorovich), where λ_min ≥ ᾱ₀ − ν_H e; it is x if
the mean inner cost is convex.
"""

from __future__ import annotations

import math

import numpy as np

from hgp_ref import arguments
from hgp_ref.bounds.scaled import product
from hgp_ref.problems.constants import Lipschitz


def inexact(
    nu: Lipschitz, apart: np.ndarray, w_norm: float, beta: np.ndarray, alpha_bar: float, mean_apart: float | None = None
) -> np.ndarray:
    """Bounds on ‖d̂_i − d_i‖, (n,), from e_i ≤ `apart`, ‖ŵ‖ ≤ `w_norm`, and β_i, ᾱ at the exact solution.

    `mean_apart` bounds mean_k e_k; by default the mean of `apart`.

    Parameters
    ----------
    nu : Lipschitz
        Constants of the clients' derivatives.
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

    Returns
    -------
    array (n,)
        Bounds on ‖d̂_i − d_i‖.

    Raises
    ------
    TypeError, ValueError
        `nu` must be Lipschitz, `apart` and `beta` (n,) and ≥ 0, `alpha_bar` positive.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> hgp.bounds.inexact(nu, np.array([0.01, 0.02]), 1.0, np.ones(2), 0.5)
    array([0.045, 0.045])
    """
    arguments.kind("nu", nu, Lipschitz)
    apart = arguments.real_array("apart", apart, (None,), "(n,)", low=0.0)
    beta = arguments.real_array("beta", beta, apart.shape, f"{apart.shape} as apart", low=0.0)
    w_norm, alpha_bar = arguments.nonnegative("w_norm", w_norm), arguments.positive("alpha_bar", alpha_bar)
    mean_apart = float(np.mean(apart)) if mean_apart is None else arguments.nonnegative("mean_apart", mean_apart)
    with np.errstate(over="ignore", invalid="ignore"):
        own = (nu.nu_flam + nu.nu_J * w_norm) * apart + beta * shift(nu, mean_apart, w_norm, alpha_bar)
    return np.asarray(_in_range(own))


def inexact_total(nu: Lipschitz, distance: float, w_norm: float, beta: float, alpha_bar: float) -> float:
    """The bound on ‖d̂ − d‖ from ‖x̂ − x‖ ≤ `distance` and β = max β_i.

    Parameters
    ----------
    nu : Lipschitz
        Constants of the clients' derivatives.
    distance : float
        A bound on ‖x̂ − x‖.
    w_norm : float
        A bound on ‖ŵ‖.
    beta, alpha_bar : float
        max β_i and ᾱ at the exact solution.

    Returns
    -------
    float
        A bound on ‖d̂ − d‖.

    Raises
    ------
    TypeError, ValueError
        `nu` must be Lipschitz, the others numbers ≥ 0, `alpha_bar` positive.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> round(hgp.bounds.inexact_total(nu, 0.01, 1.0, 1.0, 0.5), 6)
    0.03
    """
    arguments.kind("nu", nu, Lipschitz)
    distance, w_norm = arguments.nonnegative("distance", distance), arguments.nonnegative("w_norm", w_norm)
    beta, alpha_bar = arguments.nonnegative("beta", beta), arguments.positive("alpha_bar", alpha_bar)
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
    nu : Lipschitz
        Constants of the clients' derivatives.
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
    TypeError, ValueError
        `nu` must be Lipschitz, `gradient` ≥ 0.
    ValueError
        The mean Hessian at x is not positive definite, or x is too far off for these constants.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> [round(value, 6) for value in hgp.bounds.distance_to_solution(nu, gradient=0.01, alpha_bar_here=0.5)]
    [0.1, 0.1]
    """
    arguments.kind("nu", nu, Lipschitz)
    gradient = arguments.nonnegative("gradient", gradient)
    alpha_bar_here = arguments.number("alpha_bar_here", alpha_bar_here)
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
