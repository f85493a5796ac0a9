"""Adversarial search: minimise bound/error over everything a run depends on, at fixed small sizes."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .settings import Setting


def decode(z, n, d, d_lam, M, *, convex, rate_limit=2.0):
    """A setting from unconstrained numbers: Hessians by factors (or symmetric with positive mean), K by logits.

    K is diag(P1)⁻¹P of a column-stochastic P; logits far down make it sparse. The step size stays below
    `rate_limit`/λ_max, so that the Neumann series of every client converges.
    """
    parts = np.split(np.clip(z, -30, 30), np.cumsum([n * d * d, n * d_lam * d, n * d, M * n * n]))
    factor = parts[0].reshape(n, d, d)
    J, f_x = parts[1].reshape(n, d_lam, d), parts[2].reshape(n, d)
    logits, (t, lift) = parts[3].reshape(M, n, n), parts[4]
    if convex:
        H = factor @ np.swapaxes(factor, 1, 2) + 1e-3 * np.eye(d)
    else:
        H = factor + np.swapaxes(factor, 1, 2)
        lowest = np.linalg.eigvalsh(H.mean(axis=0))[0]
        H = H + (max(0.0, -lowest) + 1e-2 + np.exp(np.clip(lift, -5, 3))) * np.eye(d)
    P = np.exp(8 * np.tanh(logits / 4))
    P = P / P.sum(axis=1, keepdims=True)
    largest = np.abs(np.linalg.eigvalsh(H)).max()
    eta = rate_limit / largest / (1 + np.exp(-np.clip(t, -30, 30)))
    return Setting(H, J, f_x, P / P.sum(axis=2, keepdims=True), float(eta))


def smallest_ratio(ratio, n, d, d_lam, M, *, convex, starts, seed, evaluations=1500):
    """The smallest `ratio(setting)` that Powell's method finds from several random starts, and its setting."""
    rng = np.random.default_rng(seed)
    size = n * d * d + n * d_lam * d + n * d + M * n * n + 2

    def objective(z):
        value = ratio(decode(z, n, d, d_lam, M, convex=convex))
        return np.log(value) if np.isfinite(value) and value > 0 else 50.0

    best = (np.inf, None)
    for _ in range(starts):
        start = rng.normal(size=size) * 10 ** rng.uniform(-1, 0.7)
        found = minimize(objective, start, method="Powell", options={"maxfev": evaluations, "xtol": 1e-3, "ftol": 1e-6})
        if found.fun < best[0]:
            best = (float(found.fun), found.x)
    return float(np.exp(best[0])), decode(best[1], n, d, d_lam, M, convex=convex)
