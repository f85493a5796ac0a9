"""What one Newton step after a removal predicts: the check that tells why a first-order prediction is poor.

First order takes the Hessian H̄ of the training cost as it was and the validation cost as linear. The step below drops
the removed instance's own curvature from H̄ and evaluates the validation cost where it lands,

    x' = x + (H̄ − ∇²ℓ_ik/(n N_i))⁻¹ ∇ℓ_ik/(n N_i),      change = f(x') − f(x).

If this agrees with retraining and first order does not, then the instance had much curvature of its own (leverage), and
neither HGP nor the network is at fault. It needs H̄, which no client has: a diagnosis, not an estimator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.backend import from_host, host_dtype, to_host


def newton_step_changes(problem: Any, lam: Any, x: Any, chosen: np.ndarray) -> np.ndarray:
    """Changes of Σ f_k for the instances `chosen` (R, 2) of an `InstanceWeights` at its exact solution x (n, d_x)."""
    n, counts = problem.n_clients, problem.counts
    H = hgp.exact.hessians(problem, x, lam).mean(axis=0)
    J = hgp.exact.jacobians(problem, x, lam)  # (n, N_max, d_x): rows ∇ℓ_ik / N_i
    before = float(np.sum(to_host(problem.outer_cost(x, lam))))
    changes = []
    for i, k in chosen:
        batch = np.full((n, 1), -1)
        batch[i, 0] = k
        alone = hgp.exact.hessians(problem, x, lam, batch)[i] - problem.l2 * np.eye(problem.dim_x)
        step = np.linalg.solve(H - alone / (n * counts[i]), J[i, k] / n)
        moved = (to_host(x) + step).astype(host_dtype(x))
        changes.append(float(np.sum(to_host(problem.outer_cost(from_host(moved, like=x), lam)))) - before)
    return np.array(changes)
