"""Fastest-mixing symmetric weights on a graph, by a semidefinite program.

    minimise  || W - 11^T / n ||_2   over  W = W^T >= 0,  W 1 = 1,  W_ij = 0 where there is no edge.

With edge weights w_e >= 0 and the Laplacian L = sum_e w_e (e_i - e_j)(e_i - e_j)^T it reads W = I - L,
minimise t subject to -t I <= I - L - 11^T / n <= t I and diag(L) <= 1.

[1] S. Boyd, P. Diaconis, L. Xiao. Fastest mixing Markov chain on a graph. SIAM Review 46 (4), 2004.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from scipy.sparse import coo_array

ACCURACY = 1e-8  # of the solver, a first-order one: the weights depend on its version beyond this
NEGLIGIBLE = 1e-6  # weights the solver leaves this small are none


def require_cvxpy() -> ModuleType:
    """cvxpy, or an ImportError that names the extra."""
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("weights=\"fastest\" needs cvxpy: pip install 'hgp_ref[fastmixing]'") from error
    return cvxpy


def fastest_mixing_weights(graph: np.ndarray) -> np.ndarray:
    """(n, n) weights on a symmetric boolean graph: exactly symmetric, non-negative, rows sum to 1 up to rounding."""
    cp, n = require_cvxpy(), len(graph)
    i, j = np.nonzero(np.triu(graph, 1))
    return weights_from_edges(n, i, j, _solve(cp, n, i, j)) if i.size else np.eye(n)


def weights_from_edges(n: int, i: np.ndarray, j: np.ndarray, w: np.ndarray) -> np.ndarray:
    """W = I - L of edge weights w, made feasible exactly: w >= 0 and no row of W off the diagonal above 1."""
    w = np.where(w > NEGLIGIBLE, w, 0.0)
    weights = np.zeros((n, n))
    weights[i, j] = weights[j, i] = w
    weights /= max(1.0, weights.sum(axis=1).max())
    np.fill_diagonal(weights, np.maximum(0.0, 1.0 - weights.sum(axis=1)))
    return weights


def _solve(cp: ModuleType, n: int, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    m, e = i.size, np.arange(i.size)
    rows = np.concatenate([i * n + j, j * n + i, i * n + i, j * n + j])
    signs = np.repeat([-1.0, -1.0, 1.0, 1.0], m)
    laplacian = coo_array((signs, (rows, np.tile(e, 4))), shape=(n * n, m)).tocsr()
    incidence = coo_array((np.ones(2 * m), (np.concatenate([i, j]), np.tile(e, 2))), shape=(n, m)).tocsr()
    w, t = cp.Variable(m, nonneg=True), cp.Variable()
    gap = np.eye(n) - np.full((n, n), 1.0 / n) - cp.reshape(laplacian @ w, (n, n), order="C")
    problem = cp.Problem(cp.Minimize(t), [gap << t * np.eye(n), gap >> -t * np.eye(n), incidence @ w <= 1])
    problem.solve(solver="SCS", eps_abs=ACCURACY, eps_rel=ACCURACY, max_iters=200_000)
    if problem.status != "optimal":
        raise RuntimeError(
            f"the semidefinite program for the fastest-mixing weights ended with status {problem.status!r}"
        )
    return np.asarray(w.value)
