"""Where λ may lie: projections onto convex sets, each client's row onto its own.

    Π(λ) = argmin_{μ ∈ C} |μ − λ|

A projection is a function λ → λ; these are three of them, any other function will do. The sets are convex, so that a
point between two allowed ones is allowed, too: what `optimise` needs where it halves a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, all_finite, array_namespace, host_dtype, to_host


def _checked(lam: Array) -> None:
    arguments.same_kind(lam=lam)
    if lam.ndim < 2 or lam.shape[-1] < 1:
        raise ValueError(f"lam: shape {tuple(lam.shape)} given, needed (..., n, d_lam)")


@dataclass(frozen=True)
class Box:
    """low ≤ λ_ij ≤ high.

    Parameters
    ----------
    low : smallest value of any λ.
    high : largest one.

    Raises
    ------
    TypeError, ValueError
        `low` and `high` must be numbers with low ≤ high.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> hgp.bilevel.Box(0.0, 1.0)(np.array([[-0.5, 0.5, 1.5]]))
    array([[0. , 0.5, 1. ]])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, arguments.number(name, getattr(self, name)))
        if self.low > self.high:
            raise ValueError(f"low={self.low:g}, high={self.high:g} given, needed low <= high")

    def __call__(self, lam: Array) -> Array:
        _checked(lam)
        xp = array_namespace(lam)
        lam = xp.where(lam < self.low, xp.full_like(lam, self.low), lam)
        return xp.where(lam > self.high, xp.full_like(lam, self.high), lam)


@dataclass(frozen=True)
class NonNegative:
    """λ_ij ≥ 0.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> hgp.bilevel.NonNegative()(np.array([[-0.5, 0.5]]))
    array([[0. , 0.5]])
    """

    def __call__(self, lam: Array) -> Array:
        _checked(lam)
        xp = array_namespace(lam)
        return xp.where(lam < 0, xp.zeros_like(lam), lam)


@dataclass(frozen=True)
class Simplex:
    """λ_ij ≥ 0, Σ_j λ_ij = total: Π(λ) = max(λ − τ_i, 0) with the τ_i that gives the sum.

    τ = (Σ_{j ∈ A} λ_j − total)/|A| over the entries A that stay positive; A starts as all of them and loses those that
    are not above τ, until it loses none (at most d_λ times) [1].

    Parameters
    ----------
    total : to which the entries of each λ_i sum.

    Raises
    ------
    TypeError, ValueError
        `total` must be positive, and within the range of λ's floating point.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> hgp.bilevel.Simplex()(np.array([[0.5, 0.9, -2.0]]))
    array([[0.3, 0.7, 0. ]])

    [1] C. Michelot. A finite algorithm for finding the projection of a point onto the canonical simplex of Rⁿ. 1986.
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", arguments.positive("total", self.total))

    def __call__(self, lam: Array) -> Array:
        _checked(lam)
        if not all_finite(lam):
            raise ValueError("lam: holds NaN or infinite values, needed finite numbers")
        info = np.finfo(host_dtype(lam))
        if not lam.shape[-1] * float(info.tiny) <= self.total <= float(info.max):
            raise ValueError(f"total={self.total:g} given, which entries of lam ({info.dtype}) cannot sum to")
        xp = array_namespace(lam)
        half = lam / 2 - xp.max(lam, axis=-1, keepdims=True) / 2  # λ − max λ has the same projection; no overflow
        far = half <= -self.total / 2  # 0 in the projection, as −total is
        lam = xp.where(far, xp.full_like(lam, -self.total), 2 * xp.where(far, xp.zeros_like(lam), half))
        kept, zero = xp.ones_like(lam), xp.zeros_like(lam)
        while True:
            count = xp.sum(kept, axis=-1, keepdims=True)
            tau = (xp.sum(xp.where(kept > 0, lam, zero), axis=-1, keepdims=True) - self.total) / count
            above = xp.astype((lam > tau) & (kept > 0), lam.dtype)
            if bool(to_host(xp.all(above == kept))):
                return xp.where(lam > tau, lam - tau, zero)
            kept = above
