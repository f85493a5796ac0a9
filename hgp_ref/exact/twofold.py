"""Sums of products in about twice the precision of float64, the same on every platform.

A number is an unevaluated pair hi + lo. Two identities hold exactly in round-to-nearest arithmetic (Knuth; Dekker and
Veltkamp), where nothing overflows:

    a + b = s + e,   s = fl(a + b);          a b = p + e,   p = fl(a b)    (e below 2^-1074 is lost).

`dot` adds the products and their errors pair by pair. For k terms (Ogita, Rump and Oishi, SIAM J. Sci. Comput. 2005,
Proposition 5.5; summation in pairs is more accurate still)

    |hi + lo − Σ terms| ≤ γ_k² Σ|terms|,      γ_k = k u/(1 − k u),   u = 2^-53.

np.longdouble is not used: on Windows, on ARM and under emulation it is float64 or slow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
        beside = np.stack(np.broadcast_arrays(*more), axis=-1)
        p, e = np.concatenate([p, beside], axis=-1), np.concatenate([e, np.zeros_like(beside)], axis=-1)
    return total(p, e)


def residual_error(terms: int) -> float:
    """γ_k² for k = `terms`: the error of `dot` relative to Σ|terms|, the terms with x_lo included."""
    gamma = 2 * terms * ROUNDOFF / (1 - 2 * terms * ROUNDOFF)
    return gamma * gamma
