"""Lipschitz constants of derivatives that hold at every x, in closed form for linear models.

For a loss l of the logits a_k = X_k U of instance k, with features X_k and weights m_k (the mean, or λ_k/N),

    ν_H  = c₃ λ_max(Σ_k |m_k| ‖X_k‖ X_kX_kᵀ)        c₃ = 1/(6√3) binary, (√2)³/(6√3) softmax, 0 squared
    ν_fx = c₂ λ_max(mean_k X_kX_kᵀ) (validation)     c₂ = 1/4 binary, 1/2 softmax, 1 squared
    ν_fλ = 0

c₂ and c₃ are in `losses`. Symmetric trilinear forms are largest on the diagonal. J is diag(x) or xᵀ for learnt L2
rates, so ν_J = 1. For instance weights, row k of J is ∂l_k/N and ν_J = (c₂/N) √λ_max(Σ_k ‖X_k‖² X_kX_kᵀ). If no loss
has a negative weight, the mean cost is strongly convex with the smallest mean L2 rate. λ_max of a moment is computed
from the smaller of its (d, d) matrix and its (N, N) Gram matrix; if both are large, the trace is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rounding
from hgp_ref.backend import to_host
from hgp_ref.problems.sparse import SparseRows
from hgp_ref.validation import Boolean, Nonnegative, Optional, Positive, checked

LARGEST_MATRIX = 2048  # rows of a moment matrix whose eigenvalues are computed
CHUNK_NUMBERS = 2**22  # numbers of the clients taken to the host at a time


@checked(
    nu_flam=Nonnegative(),
    nu_fx=Nonnegative(),
    nu_J=Nonnegative(),
    nu_H=Nonnegative(),
    strong_convexity=Optional(Positive()),
    holds_apart=Boolean(),
)
@dataclass(frozen=True)
class Lipschitz:
    """Lipschitz constants along x, largest over clients, of ∂_λ f_i, ∂_x f_i, J_i and H_i (spectral norm).

    Parameters
    ----------
    strong_convexity : a lower bound on λ_min of the mean Hessian at every common x, if known.
    holds_apart : whether it also bounds λ_min(mean_i H_i(x_i)) for different x_i, as a bound from L2 rates does.

    Examples
    --------
    >>> nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=0.0, nu_H=0.5, strong_convexity=0.1)
    >>> nu.nu_H, nu.strong_convexity
    (0.5, 0.1)
    """

    nu_flam: float
    nu_fx: float
    nu_J: float
    nu_H: float
    strong_convexity: float | None = None
    holds_apart: bool = False


def representable(**constants: Any) -> Lipschitz | None:
    """The constants, or None if one of them overflows."""
    numbers = [constants[name] for name in ("nu_flam", "nu_fx", "nu_J", "nu_H")]
    return Lipschitz(**constants) if all(map(math.isfinite, numbers)) else None


def positive_modulus(low: float) -> float | None:
    """`low` if it is positive and finite, else None."""
    return low if low > 0 and math.isfinite(low) else None


def mean_rate(rates: np.ndarray) -> float:
    """min_j mean_i rates_ij from below, for rates (n, k)."""
    accuracy = rounding.mean_accuracy(len(rates)) + rounding.EPS
    return float(np.min(rounding.mean(rates) - accuracy * rounding.mean(np.abs(rates))))


def largest_moment(factor: float, features: Any, weight: np.ndarray, power: int) -> float:
    """factor · max_i λ_max(Σ_k weight_ik ‖X_ik‖^power X_ik X_ikᵀ) from above for weight >= 0 (n, N).

    Infinite beyond floating point, and never rounded to 0.
    """
    if factor == 0:
        return 0.0
    N, d = features.shape[1:]
    norms_of = _sparse_norms if isinstance(features, SparseRows) else _dense_norms
    with np.errstate(over="ignore"):
        largest = max(norms_of(features, np.sqrt(weight), power / 2))
        square = factor * float(np.float64(largest) ** 2) * (1 + (N + d + 16) * rounding.EPS)
    return max(square, float(np.finfo(np.float64).smallest_subnormal)) if largest > 0 else 0.0


def _dense_norms(features: Any, root: np.ndarray, power: float) -> Iterator[float]:
    """Upper bounds on max_i ‖diag(root_ik ‖X_ik‖^power) X_i‖ over a few clients at a time, up to roundings."""
    n, N, d = features.shape
    smaller = min(N, d)
    size = max(1, CHUNK_NUMBERS // (N * d + smaller**2))
    for first in range(0, n, size):
        part = slice(first, min(first + size, n))
        X = host(features[part, ...])
        scaled = (root[part] * rounding.norms(X) ** power)[..., None] * X
        lengths = rounding.norms(scaled.reshape(len(scaled), -1)) if smaller > LARGEST_MATRIX else None
        if not np.all(np.isfinite(scaled)):
            yield math.inf
        else:
            yield float(np.max(rounding.spectral_norms(scaled) if lengths is None else lengths))


def _sparse_norms(features: SparseRows, root: np.ndarray, power: float) -> Iterator[float]:
    """As `_dense_norms` for sparse features, client by client."""
    features, lengths = features.on_host(), features.norms()
    for i in range(len(root)):
        X = features.of_client(i)
        factor = root[i, : X.shape[0]] * lengths[i, : X.shape[0]] ** power
        scaled = X.multiply(factor[:, None]).tocsr()
        if not np.all(np.isfinite(scaled.data)):
            yield math.inf
        elif min(X.shape) <= LARGEST_MATRIX:
            yield rounding.sparse_spectral_norm(scaled)
        else:
            yield rounding.norm(scaled.data)


def host(a: Any) -> np.ndarray:
    """`a` on the host in float64."""
    return np.asarray(to_host(a), dtype=np.float64)
