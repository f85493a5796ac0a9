"""Linear systems with the sum of the clients' Hessians, refined until the residual is that of rounding a pair.

    (Σ_k H_k) w = Σ_k b_k:     w ← w + S⁻¹ r,    r = Σ_k b_k − Σ_k H_k w,    S = fl(Σ_k H_k) factorised once.

r is evaluated in twice the precision, over the H_k and b_k themselves, and w is kept as a pair hi + lo. Each step
multiplies the error by about κ(S) · 2^-53 (Higham, Theorem 12.1), so that the rounding of S and of its factors does not
reach w. Arrays are in units that are powers of two: exponents are returned beside them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from hgp_ref.exact import twofold
from hgp_ref.exact.twofold import Pair

MOST_STEPS = 20  # of refinement; the residual at least halves in each but the last
CHUNK = 2**20  # numbers of a block of rows that are multiplied at once


def scaled(a: np.ndarray) -> tuple[np.ndarray, int]:
    """a/2^e with entries up to 1, and e."""
    peak = float(np.max(np.abs(a), initial=0.0))
    exponent = int(np.frexp(peak)[1]) if np.isfinite(peak) else 0
    return np.ldexp(a, -exponent), exponent


def refine(solve: Callable[[np.ndarray], np.ndarray], residual: Callable[[Pair], np.ndarray], b: np.ndarray) -> Pair:
    """The solution as a pair: steps x + solve(residual(x)) from x = solve(b), while the residual falls."""
    x: Pair = (solve(b), np.zeros_like(b))
    r = residual(x)
    for _ in range(MOST_STEPS):
        tried = twofold.two_sum(x[0], x[1] + solve(r))
        left = residual(tried)
        before, after = np.max(np.abs(r)), np.max(np.abs(left))
        if not after < before:
            break
        x, r = tried, left
        if after > before / 2:
            break
    return x


class HessianSum:
    """Σ_k H_k for H (n, d, d), positive definite; b and w below are in units of their own."""

    def __init__(self, H: np.ndarray) -> None:
        n, d = H.shape[:2]
        self.H, self.exponent = scaled(H)  # w is in units of 2^(exponent of b − this one)
        self.n, self.d = n, d
        self._rows = np.ascontiguousarray(np.swapaxes(self.H, 0, 1)).reshape(d, n * d)
        self._factors = lu_factor(self.H.sum(axis=0))

    def solve(self, b: np.ndarray) -> Pair:
        """w with (Σ_k H_k) w = Σ_j b_j for b (m, d), as a pair (d,)."""
        return refine(self.by_factors, lambda w: self.residual(w, b), b.sum(axis=0))

    def by_factors(self, b: np.ndarray) -> np.ndarray:
        """S⁻¹ b for b (d,) or (d, m), without refinement."""
        return np.asarray(lu_solve(self._factors, b))

    def transposed(self, b: np.ndarray) -> np.ndarray:
        """S⁻ᵀ b."""
        return np.asarray(lu_solve(self._factors, b, trans=1))

    def residual(self, w: Pair, b: np.ndarray) -> np.ndarray:
        """Σ_j b_j − Σ_k H_k w, (d,)."""
        everywhere = (np.tile(-w[0], self.n), np.tile(-w[1], self.n))
        count = max(1, CHUNK // (self.n * self.d))
        parts = [
            twofold.dot(self._rows[at : at + count], everywhere, [row[at : at + count] for row in b])[0]
            for at in range(0, self.d, count)
        ]
        return np.concatenate(parts)


def less_products(f_lam: np.ndarray, J: np.ndarray, w: Pair, w_exponent: int) -> np.ndarray:
    """∂_λ f_i − J_i w_i, (n, d_λ), for w (d,) or (n, d) in units of 2^w_exponent; ValueError beyond float64."""
    J, J_exponent = scaled(J)
    f_exponent, Jw_exponent = scaled(f_lam)[1], J_exponent + w_exponent
    unit = max(f_exponent, Jw_exponent) if np.any(f_lam) and np.any(J) else f_exponent if np.any(f_lam) else Jw_exponent
    value = np.empty_like(f_lam)
    with np.errstate(under="ignore", over="ignore"):
        for i in range(len(J)):
            own = tuple(np.ldexp(-part if part.ndim == 1 else -part[i], Jw_exponent - unit) for part in w)
            value[i] = np.ldexp(twofold.dot(J[i], (own[0], own[1]), [np.ldexp(f_lam[i], -unit)])[0], unit)
    if not np.isfinite(value).all():
        raise ValueError(
            "x, lam: values given at which the derivative leaves the range of float64, needed smaller ones"
        )
    return value
