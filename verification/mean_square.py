"""E: the exact mean-square error of mini-batch runs, against enumeration of all batches and against many runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
from scipy.linalg import block_diag

from hgp_ref.bounds import mean_square_error, sample_derivatives
from verification.cases import Case, logistic
from verification.minibatch import batches
from verification.rows import Row, verdict_row
from verification.run import Result, Run

TITLE = "Exact mean-square error (E)"


def verify(run: Run) -> Result:
    """Every batch of a small problem; Monte Carlo within five standard errors on a larger one."""
    rows = [
        enumerated(run, size, shared, replace)
        for size in (1, 2)
        for shared in (False, True)
        for replace in (False, True)
    ]
    options = ({"S": 2}, {"S": 10}, {"S": 10, "shared": True}, {"S": 10, "replace": True, "size": 5})
    for chosen in run.pick(options, options[:2]):
        rows.append(monte_carlo(run, chosen))
    return Result(rows)


def enumerated(run: Run, size: int, shared: bool, replace: bool) -> Row:
    """Two clients, three instances each, M = 2, unequal averaging matrices: the mean over all equally likely draws."""
    case, eta = logistic(2, 2, seed=run.seed, rate=0.2, instances=3), 1.0
    K = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.4, 0.6], [0.5, 0.5]]])
    H, J = sample_derivatives(case.problem, case.x, case.lam)
    mse = mean_square_error(H, J, case.f_x, eta, K, size, replace=replace, shared=shared)
    draws = list(product(range(3), repeat=size)) if replace else list(combinations(range(3), size))
    H_means = np.array([[h[list(b)].mean(axis=0) for b in draws] for h in H])  # (2, draws, d, d)
    J_means = np.array([[j[list(b)].mean(axis=0) for b in draws] for j in J])
    over_draws = mean_over_draws(case, K, eta, H_means, J_means, shared)
    label = f"b={size}, {'one sample' if shared else 'two samples'}, {'with' if replace else 'without'} replacement"
    gap = float(np.abs(over_draws - mse.per_client).max() / mse.total)
    return verdict_row("E", f"logistic n=2 d=2, M=2, all batches: {label}, relative difference", gap, 1e-11)


def mean_over_draws(case: Case, K: np.ndarray, eta: float, H: np.ndarray, J: np.ndarray, shared: bool) -> np.ndarray:
    """E‖v_i − d_i‖² over all draws of both iterations, (2,); the last Hessian sample does not enter v^(2)."""
    first = K[0] @ case.f_x
    draws = range(H.shape[1])
    total, count = np.zeros(2), 0
    for u0, u1 in product(draws, draws):  # the Hessian samples of the two clients in the first iteration
        u = np.stack([first[i] - eta * H[i, k] @ first[i] for i, k in enumerate((u0, u1))])
        second = K[1] @ u
        for i, own in enumerate((u0, u1)):
            befores = [own] if shared else draws  # the Jacobian sample that goes with it
            for a, b in product(befores, draws):
                v = case.f_lam[i] - eta * (J[i, a] @ first[i] + J[i, b] @ second[i])
                total[i] += np.sum((v - case.truth[i]) ** 2) / (len(befores) * len(draws))
        count += 1
    return total / count


def forward(
    case: Case,
    H_samples: Sequence[np.ndarray],
    J_samples: Sequence[np.ndarray],
    eta: float,
    matrices: np.ndarray,
    factor: Sequence[float],
    shared: bool,
) -> float:
    """E‖v − d‖² by the joint second moments of (u, v − d) run forward; independent of `mean_square_error`.

    With U = Θ̂ E[uuᵀ] Θ̂ᵀ, R = E[(v − d)uᵀ] Θ̂ᵀ and e = v − d:
    E[e'e'ᵀ] = E[eeᵀ] − η(R Jᵀ + J Rᵀ) + η²(J U Jᵀ + cov_J),  E[e'u'ᵀ] = (R − ηJU)(I − ηH)ᵀ + η² cov_JH (one sample).
    """
    n, d = case.f_x.shape
    H, J = (block_diag(*(a.mean(axis=0) for a in samples)) for samples in (H_samples, J_samples))
    H_dev, J_dev = ([a - a.mean(axis=0) for a in samples] for samples in (H_samples, J_samples))
    step = np.eye(n * d) - eta * H
    e = (case.f_lam - case.truth).ravel()
    uu, eu, ee = np.outer(case.f_x.ravel(), case.f_x.ravel()), np.outer(e, case.f_x.ravel()), np.outer(e, e)
    for K in matrices:
        Theta_m = np.kron(K, np.eye(d))
        U, R = Theta_m @ uu @ Theta_m.T, eu @ Theta_m.T

        def spread(left: list[np.ndarray], right: list[np.ndarray], U: np.ndarray = U) -> np.ndarray:
            """η² E[ε_left U_ii ε_rightᵀ], block-diagonal."""
            own = [U[i * d : (i + 1) * d, i * d : (i + 1) * d] for i in range(n)]
            parts = zip(left, own, right, factor, strict=True)
            return eta**2 * block_diag(*(f * np.einsum("sab,bc,sdc->ad", a, u, b) / len(a) for a, u, b, f in parts))

        ee = ee - eta * (R @ J.T + J @ R.T) + eta**2 * J @ U @ J.T + spread(J_dev, J_dev)
        eu = (R - eta * J @ U) @ step.T + (spread(J_dev, H_dev) if shared else 0.0)
        uu = step @ U @ step.T + spread(H_dev, H_dev)
    return float(np.trace(ee))


def monte_carlo(run: Run, options: dict[str, object]) -> Row:
    """The mean of ‖v − d‖² over runs, at most five standard errors from its exact value."""
    sampled = batches(run, run.pick(2000, 300), M=60, **options)  # type: ignore[arg-type]
    mse = mean_square_error(
        sampled.H,
        sampled.J,
        sampled.case.f_x,
        sampled.eta,
        sampled.matrices,
        sampled.size,
        replace=sampled.replace,
        shared=sampled.shared,
    )
    squares = sampled.errors**2
    standard_error = squares.std(ddof=1) / np.sqrt(len(squares))
    setting = f"{sampled.setting}: |mean over {len(squares)} runs − E| against 5 standard errors"
    return verdict_row("E", setting, abs(squares.mean() - mse.total), 5 * standard_error)
