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

from hgp_ref import arguments
from hgp_ref.bounds.rounding import UNIT
from hgp_ref.bounds.scaled import power_of_two


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
    H, J, f_x : arrays (n, d_x, d_x), (n, d_lam, d_x), (n, d_x)
        Derivatives at the point, as `hgp.exact` gives them.
    w : array (n, d_x)
        What a run found for w*.

    Returns
    -------
    ResidualBounds
        C1 – C4 and the identity, (n,) each.

    Raises
    ------
    TypeError, ValueError
        Shapes must fit together, numbers be finite.
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
    f_x = arguments.real_array("f_x", f_x, (None, None), "(n, d)")
    n, d = f_x.shape
    H = arguments.real_array("H", H, (n, d, d), "(n, d, d)")
    J = arguments.real_array("J", J, (n, None, d), "(n, d_lam, d)")
    w = arguments.real_array("w", w, (n, d), "(n, d)")
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
