"""Linear systems in about twice the precision of float64, the same on every platform.

Sums of products. A number is an unevaluated pair hi + lo. Without overflow, two identities hold exactly in
round-to-nearest arithmetic (Knuth; Dekker and Veltkamp):

    a + b = s + e,   s = fl(a + b);          a b = p + e,   p = fl(a b)    (e below 2^-1074 is lost).

`dot` adds the products and their errors pair by pair. For k terms (Ogita, Rump and Oishi, SIAM J. Sci. Comput. 2005,
Proposition 5.5; summation in pairs is more accurate still)

    |hi + lo − Σ terms| ≤ γ_k² Σ|terms|,      γ_k = k u/(1 − k u),   u = 2^-53.

np.longdouble is not used: on Windows, on ARM and under emulation it is float64 or slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.exact.derivatives import unit_columns
from hgp_ref.problems.base import Problem, closed_form
from hgp_ref.problems.term_sizes import TermSizes, allowance

Pair = tuple[np.ndarray, np.ndarray]

SPLITTER = 2.0**27 + 1
ROUNDOFF = 2.0**-53


def two_sum(a: np.ndarray, b: np.ndarray) -> Pair:
    """s and e with a + b = s + e."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: np.ndarray, b: np.ndarray) -> Pair:
    """p and e with a b = p + e, for |a|, |b| < 2^500."""
    p = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: np.ndarray) -> Pair:
    t = SPLITTER * a
    high = t - (t - a)
    return high, a - high


def total(hi: np.ndarray, lo: np.ndarray) -> Pair:
    """Σ (hi + lo) along the last axis, by halving."""
    while hi.shape[-1] > 1:
        half = hi.shape[-1] // 2
        s, e = two_sum(hi[..., :half], hi[..., half : 2 * half])
        e = e + (lo[..., :half] + lo[..., half : 2 * half])
        hi, lo = (np.concatenate([new, old[..., 2 * half :]], axis=-1) for new, old in ((s, hi), (e, lo)))
    return two_sum(hi[..., 0], lo[..., 0])


def dot(A: np.ndarray, x: Pair, more: Sequence[np.ndarray] = ()) -> Pair:
    """Σ_k A[..., k] (x_hi + x_lo)[k] + Σ more, for A (..., p, k), pairs x (k,) and terms (..., p)."""
    p, e = two_product(A, np.broadcast_to(x[0], A.shape))
    e = e + A * x[1]
    if more:
        terms = np.stack(np.broadcast_arrays(*more), axis=-1)
        p, e = np.concatenate([p, terms], axis=-1), np.concatenate([e, np.zeros_like(terms)], axis=-1)
    return total(p, e)


def residual_error(terms: int) -> float:
    """γ_k² for k = `terms`: the error of `dot` relative to Σ|terms|, the terms with x_lo included."""
    gamma = 2 * terms * ROUNDOFF / (1 - 2 * terms * ROUNDOFF)
    return gamma * gamma


# ------------------------------------------------------------------------------------------------- iterative refinement
#
#     (Σ_k H_k) w = Σ_k b_k:     w ← w + S⁻¹ r,    r = Σ_k b_k − Σ_k H_k w,    S = fl(Σ_k H_k) factorised once.
#
# r is evaluated in twice the precision, over the H_k and b_k themselves, and w is kept as a pair hi + lo. Each step
# multiplies the error by about κ(S) · 2^-53 (Higham, Theorem 12.1), so that the rounding of S and of its factors does
# not reach w. Arrays are divided by powers of two, whose exponents are returned with them.


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
        x_next = two_sum(x[0], x[1] + solve(r))
        r_next = residual(x_next)
        size, next_size = np.max(np.abs(r)), np.max(np.abs(r_next))
        if not next_size < size:
            break
        x, r = x_next, r_next
        if next_size > size / 2:
            break
    return x


class HessianSum:
    """Σ_k H_k for H (n, d, d), positive definite; b and w below have exponents of their own."""

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
        minus_w = (np.tile(-w[0], self.n), np.tile(-w[1], self.n))  # one copy for each H_k
        count = max(1, CHUNK // (self.n * self.d))
        blocks = [slice(first, first + count) for first in range(0, self.d, count)]
        return np.concatenate([dot(self._rows[rows], minus_w, [terms[rows] for terms in b])[0] for rows in blocks])


def less_products(f_lam: np.ndarray, J: np.ndarray, w: Pair, w_exponent: int) -> np.ndarray:
    """∂_λ f_i − J_i w_i, (n, d_λ), for w (d,) or (n, d) in units of 2^w_exponent; ValueError beyond float64."""
    J, J_exponent = scaled(J)
    f_exponent, Jw_exponent = scaled(f_lam)[1], J_exponent + w_exponent
    unit = max(f_exponent, Jw_exponent) if np.any(f_lam) and np.any(J) else f_exponent if np.any(f_lam) else Jw_exponent
    value = np.empty_like(f_lam)
    with np.errstate(under="ignore", over="ignore"):
        for i in range(len(J)):
            hi, lo = (np.ldexp(-part if part.ndim == 1 else -part[i], Jw_exponent - unit) for part in w)
            value[i] = np.ldexp(dot(J[i], (hi, lo), [np.ldexp(f_lam[i], -unit)])[0], unit)
    if not np.isfinite(value).all():
        raise ValueError("the derivative at these x and lam leaves the range of float64; use smaller ones")
    return value


# ----------------------------------------------------------------------------- an estimate of the error, entry by entry
#
# The reference evaluates d_i = ∂_λ f_i − J_i w, A w = b with A = Σ_k H_k and b = Σ_k ∂_x f_k, from derivatives that the
# problem rounds. With changes |δA| ≤ E and so on, and Z_i = |J_i A⁻¹|, to first order (Higham, Theorem 7.4)
#
#     |δd_i| ≤ |δ∂_λ f_i| + |δJ_i||w| + Z_i (|δb| + E|w| + |r|),
#
# r the residual that refinement leaves. The terms of second order sum to at most a factor 1/(1 − q), q the spectral
# radius of |A⁻¹|E. If q ≥ 1, rounding can make A singular, and the estimate is infinite.
#
# Changes are γ_K Σ|terms| where the problem offers `term_sizes`, and half a unit in the last place of every entry (in
# the problem's dtype) where it does not: then sums inside its derivatives that cancel may add more. What H lacks in
# symmetry is an error of H in either case.


POWER_STEPS = 10


@dataclass(frozen=True)
class DenseDerivatives:
    """The derivatives of a problem at one point, in float64."""

    H: np.ndarray  # (n, d_x, d_x)
    J: np.ndarray  # (n, d_λ, d_x)
    f_x: np.ndarray  # (n, d_x)
    f_lam: np.ndarray  # (n, d_λ)


class Changes:
    """Bounds on the rounding errors of the derivatives, from their values or from the problem's term sizes."""

    def __init__(self, problem: Problem, x: Array, lam: Array, at: DenseDerivatives) -> None:
        eps = float(np.finfo(host_dtype(x)).eps)
        term_sizes = closed_form(problem, "term_sizes")
        self._skew = np.sum([np.abs(H - H.T) for H in at.H], axis=0)
        sizes: TermSizes | None = None if term_sizes is None else term_sizes(x, lam)
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
    changes: Changes, at: DenseDerivatives, system: HessianSum, w: Pair, w_exponent: int, residual: np.ndarray,
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
        unsolved = np.abs(residual) + residual_error(n * (d + 1)) * (
            sum(np.abs(H) @ size for H in at.H) + np.abs(at.f_x).sum(axis=0)
        )
        of_equation = changes.f_x.sum(axis=0) + changes.hvp(size) + unsolved
        of_result = changes.f_lam + changes.cross(size)
        return (of_result + Z @ of_equation) / (1 - q) + ROUNDOFF * np.abs(value)


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
