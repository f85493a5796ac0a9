"""An estimate of the error of `exact.hypergradient`, entry by entry.

The reference evaluates d_i = ∂_λ f_i − J_i w, A w = b with A = Σ_k H_k and b = Σ_k ∂_x f_k, from derivatives that the
problem rounds. With changes |δA| ≤ E and so on, and Z_i = |J_i A⁻¹|, to first order (Higham, Theorem 7.4)

    |δd_i| ≤ |δ∂_λ f_i| + |δJ_i||w| + Z_i (|δb| + E|w| + |r|),

r the residual that refinement leaves. The terms of second order sum to at most a factor 1/(1 − q), q the spectral
radius of |A⁻¹|E; where q ≥ 1 rounding can make A singular and the estimate is infinite.

Changes are γ_K Σ|terms| where the problem offers `term_sizes`, and half a unit in the last place of every entry (in the
problem's dtype) where it does not: then sums inside its derivatives that cancel may add more. What H lacks in symmetry
is an error of H in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.exact import twofold
from hgp_ref.exact.derivatives import unit_columns
from hgp_ref.exact.linear_systems import HessianSum
from hgp_ref.exact.twofold import Pair
from hgp_ref.problems.normalised import closed_form
from hgp_ref.problems.protocol import Problem
from hgp_ref.problems.term_sizes import TermSizes, allowance

POWER_STEPS = 10


@dataclass(frozen=True)
class Derivatives:
    """What the reference evaluates of a problem at one point, in float64."""

    H: np.ndarray  # (n, d_x, d_x)
    J: np.ndarray  # (n, d_λ, d_x)
    f_x: np.ndarray  # (n, d_x)
    f_lam: np.ndarray  # (n, d_λ)


class Changes:
    """Bounds on what rounding has changed in the derivatives, from their values or from the problem's term sizes."""

    def __init__(self, problem: Problem, x: Array, lam: Array, at: Derivatives) -> None:
        eps = float(np.finfo(host_dtype(x)).eps)
        offered = closed_form(problem, "term_sizes")
        self._skew = np.sum([np.abs(H - H.T) for H in at.H], axis=0)
        sizes: TermSizes | None = None if offered is None else offered(x, lam)
        if sizes is None:
            self.f_x, self.f_lam = eps / 2 * np.abs(at.f_x), eps / 2 * np.abs(at.f_lam)
            self._H, self._J = eps / 2 * np.abs(at.H).sum(axis=0), eps / 2 * np.abs(at.J)
        else:
            gamma = allowance(sizes.roundings, eps)
            self.f_x, self.f_lam = (gamma * host_float64(size) for size in sizes.outer_grad)
            self._H = gamma * unit_columns("term_sizes.hvp(u)", sizes.hvp, x, at.f_x.shape[1]).sum(axis=0)
            self._J = gamma * unit_columns("term_sizes.cross(u)", sizes.cross, x, at.f_lam.shape[1])

    def hvp(self, v: np.ndarray) -> np.ndarray:
        """Σ_k |δH_k| v, (d,), for v ≥ 0 (d,)."""
        return (self._skew + self._H) @ v

    def cross(self, v: np.ndarray) -> np.ndarray:
        """|δJ_i| v, (n, d_λ)."""
        return self._J @ v


def error_estimate(
    changes: Changes, at: Derivatives, system: HessianSum, w: Pair, w_exponent: int, residual: np.ndarray,
    value: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """|value − d| as estimated above, (n, d_λ); w and the residual in units, `residual` in those of ∂_x f."""
    n, d = at.f_x.shape
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size = np.ldexp(np.abs(w[0]), w_exponent)
        Z = np.abs(np.ldexp(system.transposed(at.J.reshape(-1, d).T).T, -system.exponent)).reshape(at.J.shape)
        inverse = np.abs(np.ldexp(system.by_factors(np.eye(d)), -system.exponent))
        q = _spectral_radius(lambda v: inverse @ changes.hvp(v), d)
        if not q < 1:
            return np.full_like(value, np.inf)
        left = np.abs(residual) + twofold.residual_error(n * (d + 1)) * (
            sum(np.abs(H) @ size for H in at.H) + np.abs(at.f_x).sum(axis=0)
        )
        through = changes.f_x.sum(axis=0) + changes.hvp(size) + left
        own = changes.f_lam + changes.cross(size)
        return (own + Z @ through) / (1 - q) + twofold.ROUNDOFF * np.abs(value)


def _spectral_radius(product: Callable[[np.ndarray], np.ndarray], d: int) -> float:
    """An upper bound on the spectral radius of M ≥ 0: min over some v > 0 of max_i (Mv)_i/v_i (Collatz, Wielandt)."""
    v, bound = np.ones(d), np.inf
    for _ in range(POWER_STEPS):
        Mv = product(v)
        bound = min(bound, float(np.max(Mv / v)))
        peak = float(np.max(Mv))
        if not 0 < peak < np.inf:
            break
        v = np.maximum(Mv / peak, 1e-8)  # positive entries, whatever M is
    return bound
