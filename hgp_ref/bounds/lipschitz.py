"""Lipschitz constants of the built-in problems, in closed form.

For a loss l of the logits a_k = X_k U of instance k, with features X_k and weights m_k (the mean, or λ_k/N),

    ν_H  = c₃ λ_max(Σ_k |m_k| ‖X_k‖ X_kX_kᵀ)        c₃ = 1/(6√3) binary, (√2)³/(6√3) softmax
    ν_fx = c₂ λ_max(mean_k X_kX_kᵀ) (validation)     c₂ = 1/4 binary, 1/2 softmax
    ν_fλ = 0

because |l'''| along a direction is a third central moment of a variable whose range is at most 1 (binary) or √2
times the length of the direction (softmax), and a moment over range R is at most R³/(6√3); symmetric trilinear
forms are largest on the diagonal. J is diag(x) or xᵀ for learnt L2 rates, so ν_J = 1; for instance weights row
k of J is ∂l_k/N and ν_J = (c₂/N) √λ_max(Σ_k ‖X_k‖² X_kX_kᵀ). The mean cost is strongly convex with the smallest
mean L2 rate where losses have no negative weight. Quadratic: ν_H = ν_J = 0, ν_fx = ‖Q‖, ν_fλ = ‖D‖.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hgp_ref.backend import to_host
from hgp_ref.problems import InstanceWeights, LogisticRegression, Quadratic, SoftmaxRegression

from .inexact import Lipschitz

SKEW = 1 / (6 * math.sqrt(3))  # largest third central moment of a variable with range 1


def known_lipschitz(problem: Any, lam: Any) -> Lipschitz | None:
    """Constants of a problem that says them itself (`lipschitz(lam)`) or is built in; None of any other.

    A problem's own `lipschitz(lam)` returns a mapping with nu_flam, nu_fx, nu_J, nu_H and, optionally,
    strong_convexity: a lower bound on λ_min of the mean Hessian for this lam, at every x.
    """
    if hasattr(problem, "lipschitz"):
        return Lipschitz(**problem.lipschitz(lam))
    if isinstance(problem, Quadratic):
        return _quadratic(problem)
    if isinstance(problem, LogisticRegression | SoftmaxRegression | InstanceWeights):
        return _linear(problem, _host(lam))
    return None


def _linear(problem: Any, lam: np.ndarray) -> Lipschitz:
    train, val = problem._train.all, problem._val.all
    binary = problem._loss.logits == 1
    c2, c3 = (0.25, SKEW) if binary else (0.5, 2 * math.sqrt(2) * SKEW)
    weighted = isinstance(problem, InstanceWeights)
    mean = _host(train.mean)  # (n, N): 1/N_i, 0 for padding
    weight = mean * lam if weighted else mean
    nu_J, modulus = 1.0, float(lam.mean(axis=0).min())
    if weighted:
        nu_J = c2 * math.sqrt(_largest(train.features, mean**2, power=2))
        modulus = problem.l2 if np.all(weight >= 0) else 0.0
    return Lipschitz(
        nu_flam=0.0,
        nu_fx=c2 * _largest(val.features, _host(val.mean), power=0),
        nu_J=nu_J,
        nu_H=c3 * _largest(train.features, np.abs(weight), power=1),
        strong_convexity=modulus if modulus > 0 else None,
    )


def _largest(features: Any, weight: np.ndarray, power: int) -> float:
    """max_i λ_max(Σ_k weight_ik ‖X_ik‖^power X_ik X_ikᵀ), a few clients at a time."""
    n, N, d = features.shape
    size, found = max(1, 2**22 // (N * d + d * d)), 0.0
    for first in range(0, n, size):
        part = slice(first, min(first + size, n))
        X = _host(features[part, ...])
        scale = weight[part] * np.linalg.norm(X, axis=2) ** power  # (chunk, N)
        moment = np.swapaxes(X, 1, 2) @ (scale[..., None] * X)
        found = max(found, float(np.linalg.eigvalsh(moment)[:, -1].max()))
    return found


def _quadratic(problem: Quadratic) -> Lipschitz:
    A = _host(problem._A)
    Q = np.eye(problem.dim_x)[None] if problem._Q is None else _host(problem._Q)
    D = np.zeros((1, 1, 1)) if problem._D is None else _host(problem._D)
    modulus = float(np.linalg.eigvalsh(A.mean(axis=0))[0])
    return Lipschitz(
        nu_flam=float(np.linalg.norm(D, 2, axis=(1, 2)).max()),
        nu_fx=float(np.linalg.norm(Q, 2, axis=(1, 2)).max()),
        nu_J=0.0,
        nu_H=0.0,
        strong_convexity=modulus if modulus > 0 else None,
    )


def _host(a: Any) -> np.ndarray:
    return to_host(a).astype(np.float64)
