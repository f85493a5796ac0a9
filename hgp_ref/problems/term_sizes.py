"""The sizes of the terms that a problem adds, from which rounding errors are bounded.

A sum Σ_k t_k that is evaluated in floating point in any order satisfies

    |fl(Σ t) − Σ t| ≤ γ_K Σ_k |t_k|,    γ_K = K u/(1 − K u),    u = eps/2,

with K roundings on the longest way from a term to the result (Higham, Section 4.2). Where terms cancel, the result is
far smaller than Σ|t_k|, and an allowance relative to the result is too small. A problem that offers
`term_sizes(x, lam)` reports Σ|t_k|, entry by entry, for each cost, gradient and product. Errors of intermediate
results (the logits of a linear model, the activations of a network) are part of it: they enter as further terms, in
units of γ_K.
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

    |computed − exact| ≤ γ_roundings · size for every entry. Arrays have the library, device and dtype of x, and the
    shape of what they describe. `hvp(u)` and `cross(u)` return the sizes for a product with u (n, d_x): they grow with
    |u|, and those of a sum of non-negative vectors are the sum of theirs.

    Parameters
    ----------
    roundings : int
        K, for all of them.
    inner_cost, inner_grad, outer_cost : arrays (n,), (n, d_x), (n,)
        Sizes of g_i, ∂_x g_i and f_i.
    outer_grad : pair of arrays (n, d_x), (n, d_λ)
        Sizes of ∂_x f_i and ∂_λ f_i.
    hvp, cross : functions
        Of u (n, d_x): sizes of ∂²_x g_i u_i, (n, d_x), and ∂²_{xλ} g_i u_i, (n, d_λ).

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
    """The size of factor · value: `more` counts the roundings of the factor and of the product, and one to spare.

    Without the value, |value| ≤ roundings · size, which holds as every term rounds at least once. That is linear in
    |u| where the size is.
    """
    xp = array_namespace(size)
    once = size if value is None else xp.abs(value) / roundings
    tiny = float(np.finfo(host_dtype(size)).smallest_normal)  # underflow of the product
    return xp.abs(factor) * (size + more * once) + tiny


def allowance(roundings: int, eps: float) -> float:
    """What multiplies a computed size to bound the error: K u/(1 − 6 K u) with u = eps/2, ∞ where 6 K u ≥ 1.

    γ_K = K u/(1 − K u) for exact sizes; the rest of the denominator is for the rounding of the sizes themselves, which
    are sums of at most 2 K non-negative terms, and for computed numbers that stand for exact ones in them.
    """
    share = roundings * eps / 2
    return share / (1 - 6 * share) if 6 * share < 1 else math.inf
