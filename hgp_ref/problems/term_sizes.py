"""Term sizes: bounds on the rounding errors of costs, gradients and products.

A sum Σ_k t_k that is evaluated in floating point, in any order, satisfies

    |fl(Σ t) − Σ t| ≤ γ_K Σ_k |t_k|,    γ_K = K u/(1 − K u),    u = eps/2,

if no term goes through more than K roundings (Higham, Section 4.2). If terms cancel, the result is far smaller than
Σ|t_k|, so that a bound relative to the result would be too small. A problem with `term_sizes(x, lam)` reports Σ|t_k|,
entry by entry, for each cost, gradient and product. Errors of intermediate results (logits, activations) are included
as further terms, in units of γ_K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype


@dataclass(frozen=True)
class TermSizes:
    """Σ|terms| of every quantity that a problem evaluates at one point (x, λ), on full batches.

    |computed − exact| ≤ γ_roundings · size for every entry. Arrays have the library, device, dtype and shape of what
    they describe. `hvp` and `cross` are functions of u (n, d_x), linear in |u|.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> sizes = problem.term_sizes(x, lam)
    >>> sizes.roundings, sizes.inner_grad.shape, sizes.cross(x).shape
    (28, (3, 4), (3, 2))
    """

    roundings: int  # K, for all of them
    inner_cost: Array  # (n,)
    inner_grad: Array  # (n, d_x)
    outer_cost: Array  # (n,)
    outer_grad: tuple[Array, Array]  # (n, d_x), (n, d_λ)
    hvp: Callable[[Array], Array]  # (n, d_x)
    cross: Callable[[Array], Array]  # (n, d_λ)


def scaled(factor: Array, size: Array, more: int, roundings: int, value: Array | None = None) -> Array:
    """The size of factor · value, if `more` bounds the roundings of the factor and of the product.

    Without the value, |value| ≤ roundings · size is used, which holds because every term rounds at least once and is
    linear in |u| if the size is.
    """
    xp = array_namespace(size)
    once = size if value is None else xp.abs(value) / roundings
    tiny = float(np.finfo(host_dtype(size)).smallest_normal)  # underflow of the product
    return xp.abs(factor) * (size + more * once) + tiny


def allowance(roundings: int, eps: float) -> float:
    """The factor by which a computed size bounds the error: K u/(1 − 6 K u) with u = eps/2, ∞ if 6 K u ≥ 1.

    For exact sizes γ_K = K u/(1 − K u) would do. The rest covers the rounding of the sizes themselves, which are sums
    of at most 2 K non-negative terms, and computed numbers that they use in place of exact ones.
    """
    share = roundings * eps / 2
    return share / (1 - 6 * share) if 6 * share < 1 else math.inf
