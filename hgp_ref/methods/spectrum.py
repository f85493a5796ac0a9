"""Extreme eigenvalues of Hessians from products with vectors: Lanczos, many operators at once.

Lanczos with k products makes a (k, k) tridiagonal matrix whose eigenvalues lie inside the spectrum, the extreme ones
close to its ends. They are estimates from inside: SAFETY widens the upper end where something must not exceed it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64
from hgp_ref.channels import Channel
from hgp_ref.errors import NonFiniteError
from hgp_ref.methods.base import Curvature

PRODUCTS = 30
SAFETY = 1.05  # on what Lanczos finds from inside, for the largest eigenvalue
NOT_FINITE = "problem: hvp(u) returned NaN or infinite values for finite u, needed finite numbers"


def range_over_clients(channel: Channel, linearization: Curvature, like: Array) -> tuple[float, float]:
    """Bounds of the spectrum of H̄ that clients can find: the extremes over all H_i, by Lanczos and flooding."""
    one = like[(*(0,) * (like.ndim - 2), ...)]  # (n, d): all runs share the Hessians
    low, high = extremes(linearization.hvp, start_rows(one))
    ends = np.stack([high, -low], axis=1)
    top = channel.largest(np.where(np.isfinite(ends), ends, np.inf), like)  # so that all ranks hear of NaN on one
    if not np.isfinite(top).all():
        raise NonFiniteError(NOT_FINITE)
    return float(-top[1]), float(SAFETY * top[0])


def client_extremes(linearization: Curvature, like: Array) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest eigenvalue of every client's own H_i, (n,) each, as Lanczos finds them; finite."""
    low, high = extremes(linearization.hvp, start_rows(like))
    if not np.isfinite(low + high).all():
        raise NonFiniteError(NOT_FINITE)
    return low, high


def range_of_mean(channel: Channel, linearization: Curvature, like: Array) -> tuple[float, float]:
    """Smallest and largest eigenvalue of H̄ as someone who sees all clients would find them, for reports."""
    xp = array_namespace(like)
    everybody = tuple(like.shape)

    def mean_product(u: Array) -> Array:  # (1, d)
        return channel.mean_over_clients(linearization.hvp(xp.broadcast_to(u, everybody) + xp.zeros_like(like)))

    low, high = extremes(mean_product, start_rows(like[:1, :]))
    return float(low[0]), float(high[0])


def extremes(product: Callable[[Array], Array], start: Array, steps: int = PRODUCTS) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest Ritz value of each of m symmetric operators, (m,) each; `product` maps rows (m, d).

    NaN for an operator whose products are not finite; it goes on with rows of zeros, so that `product` never sees them.
    """
    xp = array_namespace(start)
    before, q = xp.zeros_like(start), start / row_norms(start)[..., None]
    beta = xp.zeros_like(start[..., :1])
    diagonal, beside = [], []
    for _ in range(min(steps, start.shape[-1])):
        z = product(q)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite products; `_ritz` judges α and β
            z = z - beta * before
            alpha = xp.sum(q * z, axis=-1, keepdims=True)
            z = z - alpha * q
            diagonal.append(alpha)
            beta = row_norms(z)[..., None]
            beside.append(beta)
            before, q = q, z / xp.where(beta > 0, beta, xp.ones_like(beta))
            beta, q = (xp.where(xp.isfinite(a), a, xp.zeros_like(a)) for a in (beta, q))
    alphas, betas = (host_float64(xp.concat(parts, axis=-1)) for parts in (diagonal, beside))
    return _ritz(alphas, betas, spent=100 * float(xp.finfo(start.dtype).eps))


def row_norms(u: Array) -> Array:
    """‖u_i‖ of every client, (..., n); scaled, so that squares stay within range."""
    xp = array_namespace(u)
    scale = xp.max(xp.abs(u), axis=-1, keepdims=True)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    return (xp.sqrt(xp.sum((u / scale) ** 2, axis=-1, keepdims=True)) * scale)[..., 0]


def _ritz(alphas: np.ndarray, betas: np.ndarray, spent: float) -> tuple[np.ndarray, np.ndarray]:
    """Extreme eigenvalues of the tridiagonal matrices; each ends where its β says that the space is exhausted."""
    low, high = np.empty(len(alphas)), np.empty(len(alphas))
    for i, (a, b) in enumerate(zip(alphas, betas, strict=True)):
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            low[i] = high[i] = np.nan
            continue
        ends = np.flatnonzero(b <= spent * max(np.abs(a).max(), b.max()))
        k = int(ends[0]) + 1 if ends.size else len(a)
        values = np.linalg.eigvalsh(np.diag(a[:k]) + np.diag(b[: k - 1], 1) + np.diag(b[: k - 1], -1))
        low[i], high[i] = values[0], values[-1]
    return low, high


def start_rows(like: Array) -> Array:
    """Rows in which no direction is special, each the same whatever rows are beside it."""
    row = np.cos(1.0 + np.arange(like.shape[-1], dtype=np.float64) ** 2)
    return from_host(np.broadcast_to(row, like.shape).astype(host_dtype(like)), like=like)
