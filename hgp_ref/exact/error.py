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

from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.exact import twofold
from hgp_ref.exact.linear_systems import HessianSum
from hgp_ref.exact.twofold import Pair
from hgp_ref.problems.normalised import optional
from hgp_ref.problems.protocol import Problem
from hgp_ref.problems.term_sizes import TermSizes

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
        self.x, self.at, self.u = x, at, float(np.finfo(host_dtype(x)).eps) / 2
        offered = optional(problem, "term_sizes")
        self.sizes: TermSizes | None = None if offered is None else offered(x, lam)
        if self.sizes is None:
            self.f_x, self.f_lam = self.u * np.abs(at.f_x), self.u * np.abs(at.f_lam)
        else:
            K = self.sizes.roundings
            self.gamma = K * self.u / (1 - K * self.u) if K * self.u < 1 else np.inf
            self.f_x, self.f_lam = (self.gamma * host_float64(size) for size in self.sizes.outer_grad)

    def hvp(self, v: np.ndarray) -> np.ndarray:
        """Σ_k |δH_k| v, (d,), for v ≥ 0 (d,)."""
        skew = sum(np.abs(H - H.T) @ v for H in self.at.H)
        if self.sizes is None:
            return skew + self.u * sum(np.abs(H) @ v for H in self.at.H)
        return skew + self.gamma * host_float64(self.sizes.hvp(self._rows(v))).sum(axis=0)

    def cross(self, v: np.ndarray) -> np.ndarray:
        """|δJ_i| v, (n, d_λ)."""
        if self.sizes is None:
            return self.u * (np.abs(self.at.J) @ v)
        return self.gamma * host_float64(self.sizes.cross(self._rows(v)))

    def _rows(self, v: np.ndarray) -> Array:
        return from_host(np.tile(v, (len(self.at.H), 1)).astype(host_dtype(self.x)), like=self.x)


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
