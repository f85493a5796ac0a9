"""The true hyper-gradient d_λ Σ_k f_k(x_k(λ), λ_k), two independent ways.

    stacked   d = ∂_λ f − η J Θ (I − (I − ηH) Θ)⁻¹ ∂_x f, the fixed-point system of nd unknowns as the paper prints it,
              with H = blockdiag(H_i), J = blockdiag(J_i);
    reduced   d_i = ∂_λ f_i − J_i w*,   w* = (Σ_k H_k)⁻¹ Σ_k ∂_x f_k, a system of d unknowns.

They agree for every η > 0: I − (I − ηH)Θ is the identity on disagreement and ηH̄ on consensus, hence invertible whenever
the mean Hessian H̄ is.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import block_diag

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.exact.derivatives import enter, hessians, jacobians, outer_gradients, require_memory
from hgp_ref.exact.inner import require_positive_definite
from hgp_ref.exact.operators import theta
from hgp_ref.problems.protocol import Problem


def hypergradient(problem: Problem, x: Array, lam: Array, method: str = "reduced", eta: float = 1.0) -> np.ndarray:
    """The hyper-gradient formula at (x, λ), (n, d_λ): the truth when x is the inner solution of λ.

    `method` is "reduced" or "stacked"; `eta` > 0 enters only the stacked system and cancels. ValueError if the mean
    Hessian is not positive definite, or if the matrices would exceed `exact.derivatives.MEMORY_LIMIT`.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        The inner solution and the hyper-parameters.
    method : str
        Which of the forms above.
    eta : float
        η of the stacked form; the result does not depend on it.

    Returns
    -------
    array (n, d_lam)
        Block i is client i's.

    Raises
    ------
    TypeError, ValueError
        x or λ does not fit the problem; `method` must be one of the two.
    ValueError
        The mean Hessian is not positive definite, or a matrix would not fit into memory.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> total = lambda at: problem.outer_cost(hgp.exact.inner_solution(problem, at), at).sum()
    >>> step = np.zeros((3, 2)); step[1, 0] = 1e-5
    >>> difference = (total(lam + step) - total(lam - step)) / 2e-5
    >>> bool(abs(difference - hgp.exact.hypergradient(problem, x, lam)[1, 0]) < 1e-7)
    True
    """
    arguments.choice("method", method, ("reduced", "stacked"))
    eta = arguments.positive("eta", eta)
    enter(problem, x, lam, ("outer_grad",))
    if method == "stacked":
        require_memory("the stacked system (n d_x, n d_x)", math.prod(x.shape), math.prod(x.shape))
    H, J = hessians(problem, x, lam), jacobians(problem, x, lam)  # (n, d_x, d_x), (n, d_lam, d_x)
    f_x, f_lam = outer_gradients(problem, x, lam)  # (n, d_x), (n, d_lam)
    require_positive_definite(H.mean(axis=0))
    if method == "reduced":
        w = np.linalg.solve(H.sum(axis=0), f_x.sum(axis=0))  # (d_x,)
        return f_lam - J @ w
    return _stacked(H, J, f_x, f_lam, eta)


def _stacked(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, f_lam: np.ndarray, eta: float) -> np.ndarray:
    n, d = f_x.shape
    Theta, identity = theta(n, d), np.eye(n * d)
    system = identity - (identity - eta * block_diag(*H)) @ Theta  # (nd, nd)
    u = np.linalg.solve(system, f_x.ravel())
    return f_lam - (eta * block_diag(*J) @ (Theta @ u)).reshape(f_lam.shape)
