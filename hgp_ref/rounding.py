"""Norms, means and extreme eigenvalues on the host in float64, with bounds on their rounding errors.

Scaling. Squares overflow beyond 1e154 and underflow below 1e-162, so everything is first divided by a power of two,
which is exact, and multiplied back at the end.

Eigenvalues. Let A be symmetric (k, k) and s a number. If the Cholesky factorisation of fl(A − sI) runs to its end in
floating point, its factor satisfies RᵀR = A − sI + E with |E| ≤ γ_{k+1} |Rᵀ||R| (Higham, Theorem 10.3, any order of
summation), and ‖|Rᵀ||R|‖ ≤ ‖R‖_F² = tr(RᵀR). Hence, with u = eps/2 and one more u for the subtraction on the diagonal,

    λ_min(A) ≥ s − (k + 3) eps tr(A − sI),

where the factor two between u and eps covers 1/(1 − γ) and the rounding of the trace. Nothing is assumed about the
eigensolver: it only proposes s.

Spectral norms. ‖B‖² = λ_max(BBᵀ), and the error of the computed product is at most γ_q ‖B‖_F² (q the length of its
sums).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPS = float(np.finfo(np.float64).eps)


def norms(a: np.ndarray) -> np.ndarray:
    """‖a‖ along the last axis, at any scale; relative error below (k + 4) eps/2 for k entries."""
    shrunk, exponent = _shrunk(a, axes=(-1,))
    return np.ldexp(np.sqrt(np.sum(shrunk * shrunk, axis=-1)), exponent)


def norm_accuracy(k: int) -> float:
    """A bound on the relative error of `norms` of k entries and of a few more operations."""
    return (k + 16) * EPS


def norm(a: np.ndarray) -> float:
    """‖a‖ of all entries together."""
    return float(norms(np.ravel(a)))


def mean(a: np.ndarray) -> np.ndarray:
    """The mean of the n rows: |error| ≤ `mean_accuracy(n)` · mean of |rows|, entry by entry."""
    return total(a / len(a))


def total(a: np.ndarray) -> np.ndarray:
    """The sum of the rows by halving."""
    while len(a) > 1:
        half = len(a) // 2
        pairs = a[:half] + a[half : 2 * half]
        a = pairs if len(a) % 2 == 0 else np.concatenate([pairs[:-1], pairs[-1:] + a[-1:]])
    return a[0]


def mean_accuracy(n: int) -> float:
    """A bound on the relative error of `mean`: at most two additions per halving, and one division."""
    return (2 * math.ceil(math.log2(n)) + 1) * EPS / 2 if n > 1 else 0.0


def lowest_eigenvalues(A: np.ndarray) -> np.ndarray:
    """Lower bounds on λ_min of the symmetric matrices A (..., k, k); only the lower triangle is read."""
    if not np.all(np.isfinite(A)):
        raise ValueError("a matrix of the problem leaves the range of floating point; rescale the problem")
    k, identity = A.shape[-1], np.eye(A.shape[-1])
    shrunk, exponent = _shrunk(A, axes=(-2, -1))
    values = np.linalg.eigvalsh(shrunk)
    gap = 2 * k * EPS * np.maximum(np.abs(values[..., 0]), np.abs(values[..., -1])) + EPS**4  # not 0 for A = 0
    while True:
        s = values[..., 0] - gap
        shifted = shrunk - s[..., None, None] * identity
        try:
            np.linalg.cholesky(shifted)
            break
        except np.linalg.LinAlgError:  # the eigensolver was less accurate; for s below −‖A‖ it cannot fail
            gap = 4 * gap
    trace = np.trace(shifted, axis1=-2, axis2=-1)
    below = np.nextafter(np.ldexp(s - (k + 3) * EPS * trace, exponent), -np.inf)
    return np.where(np.any(A, axis=(-2, -1)), below, 0.0)


def highest_eigenvalues(A: np.ndarray) -> np.ndarray:
    """Upper bounds on λ_max of the symmetric matrices A (..., k, k)."""
    return -lowest_eigenvalues(-A)


def spectral_norms(A: np.ndarray) -> np.ndarray:
    """Upper bounds on ‖A‖ for matrices A (..., p, q), through the smaller of AAᵀ and AᵀA."""
    B = A if A.shape[-2] <= A.shape[-1] else np.swapaxes(A, -1, -2)
    shrunk, exponent = _shrunk(B, axes=(-2, -1))
    above = _norms_from_squares(shrunk @ np.swapaxes(shrunk, -1, -2), B.shape[-1], exponent)
    return np.where(np.any(A, axis=(-2, -1)), above, 0.0)


def sparse_spectral_norm(A: Any) -> float:
    """An upper bound on ‖A‖ of a sparse matrix of SciPy, through the smaller of AAᵀ and AᵀA, which is dense."""
    if not A.nnz or not np.any(A.data):
        return 0.0
    B = (A if A.shape[0] <= A.shape[1] else A.T).tocsr().astype(np.float64)
    B.data, exponent = _shrunk(B.data, axes=(0,))
    return float(_norms_from_squares((B @ B.T).toarray(), B.shape[1], exponent))


def _norms_from_squares(square: np.ndarray, terms: int, exponent: np.ndarray) -> np.ndarray:
    """Upper bounds on 2^exponent ‖B‖ from computed BBᵀ, whose entries are sums of at most `terms` products."""
    trace = np.trace(square, axis1=-2, axis2=-1)  # ‖B‖_F²
    highest = highest_eigenvalues(square) + (terms + 2) * EPS * trace
    return np.nextafter(np.ldexp(np.sqrt(highest) * (1 + EPS), exponent), np.inf)


def _shrunk(a: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(a/2^e, e) with the largest entry along `axes` in [½, 1); e has the other axes."""
    peak = np.max(np.abs(a), axis=axes, keepdims=True, initial=0.0)
    exponent = np.frexp(np.where(np.isfinite(peak), peak, 0.0))[1]
    return np.ldexp(a, -exponent), np.squeeze(exponent, axis=axes)
