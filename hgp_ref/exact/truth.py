"""The true hyper-gradient d_λ Σ_k f_k(x_k(λ), λ_k), two independent ways.

    stacked   d = ∂_λ f − η J Θ (I − (I − ηH) Θ)⁻¹ ∂_x f, the fixed-point system of nd unknowns as the paper prints it,
              with H = blockdiag(H_i), J = blockdiag(J_i);
    reduced   d_i = ∂_λ f_i − J_i w*,   w* = (Σ_k H_k)⁻¹ Σ_k ∂_x f_k, a system of d unknowns.

They agree for every η > 0: I − (I − ηH)Θ is the identity on disagreement and ηH̄ on consensus, hence invertible whenever
the mean Hessian H̄ is.

Both are refined with residuals in twice the precision (`linear_systems`), so that the result is that of the derivatives
as the problem evaluates them, rounded once. What roundings of the derivatives themselves become is estimated on request
(`error`).
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, overload

import numpy as np
from scipy.linalg import LinAlgWarning, block_diag, lu_factor, lu_solve

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.exact import twofold
from hgp_ref.exact.derivatives import enter, hessians, jacobians, outer_gradients, require_memory
from hgp_ref.exact.error import Changes, Derivatives, error_estimate
from hgp_ref.exact.inner import require_positive_definite
from hgp_ref.exact.linear_systems import HessianSum, less_products, refine, scaled
from hgp_ref.exact.operators import theta
from hgp_ref.exact.twofold import Pair
from hgp_ref.problems.protocol import Problem


@overload
def hypergradient(
    problem: Problem, x: Array, lam: Array, method: str = ..., eta: float = ..., *, return_error: Literal[False] = ...
) -> np.ndarray: ...


@overload
def hypergradient(
    problem: Problem, x: Array, lam: Array, method: str = ..., eta: float = ..., *, return_error: Literal[True]
) -> tuple[np.ndarray, np.ndarray]: ...


def hypergradient(
    problem: Problem,
    x: Array,
    lam: Array,
    method: str = "reduced",
    eta: float = 1.0,
    *,
    return_error: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
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
    return_error : bool
        Return (value, error) instead of the value. `error` (n, d_lam) estimates |value − exact|, entry by entry: what
        rounding of the problem's derivatives becomes on the way, and what the solve leaves. It is rigorous to first
        order where the problem offers `term_sizes`; otherwise each entry of a derivative is taken as correctly rounded.
        Infinite where rounding could make the mean Hessian singular.

    Returns
    -------
    array (n, d_lam), or two of them
        Block i is client i's.

    Raises
    ------
    TypeError, ValueError
        x or λ does not fit the problem; `method` must be one of the two.
    ValueError
        The mean Hessian is not positive definite, a client's Hessian is not symmetric, the result leaves the range of
        float64, or a matrix would not fit into memory.

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
    eta, return_error = arguments.positive("eta", eta), arguments.boolean("return_error", return_error)
    enter(problem, x, lam, ("outer_grad",))
    if method == "stacked":
        require_memory("the stacked system (n d_x, n d_x)", math.prod(x.shape), math.prod(x.shape))
    at = Derivatives(hessians(problem, x, lam), jacobians(problem, x, lam), *outer_gradients(problem, x, lam))
    require_positive_definite(at.H.mean(axis=0))
    system = HessianSum(at.H)
    b, b_exponent = scaled(at.f_x)
    w_exponent = b_exponent - system.exponent
    w = system.solve(b) if method == "reduced" else _stacked(system, b, float(np.ldexp(eta, system.exponent)))
    value = less_products(at.f_lam, at.J, w, w_exponent)
    if not return_error:
        return value
    residual = np.ldexp(system.residual(w, b), b_exponent)
    return value, error_estimate(Changes(problem, x, lam, at), at, system, w, w_exponent, residual, value)


def _stacked(system: HessianSum, b: np.ndarray, eta: float) -> Pair:
    """w = η Θu of the system of nd unknowns, (d,), refined; `eta` in the units of `system`."""
    n, d = b.shape
    Theta, identity = theta(n, d), np.eye(n * d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # a singular matrix leaves a residual, which is looked at below
        system_matrix = identity - (identity - eta * block_diag(*system.H)) @ Theta  # (nd, nd)
        factors = lu_factor(system_matrix, check_finite=False)

    def mean(u: Pair) -> Pair:
        hi, lo = twofold.total(*(np.moveaxis(part.reshape(n, d), 0, -1) for part in u))
        m = hi / n
        back, lost = twofold.two_product(m, np.full(d, float(n)))
        return m, ((hi - back) - lost + lo) / n

    def times_eta(m: Pair) -> Pair:
        p, e = twofold.two_product(m[0], np.full(d, eta))
        return twofold.two_sum(p, e + eta * m[1])

    def residual(u: Pair) -> np.ndarray:
        m = mean(u)
        w = times_eta(m)
        rows = [
            twofold.dot(H, (-w[0], -w[1]), [f, -hi, -lo, *m])[0]
            for H, f, hi, lo in zip(system.H, b, u[0].reshape(n, d), u[1].reshape(n, d), strict=True)
        ]
        return np.concatenate(rows)

    w = times_eta(mean(refine(lambda r: np.asarray(lu_solve(factors, r, check_finite=False)), residual, b.ravel())))
    terms = sum(np.abs(H) @ np.abs(w[0]) for H in system.H) + np.abs(b).sum(axis=0)
    if not np.all(np.abs(system.residual(w, b)) <= math.sqrt(twofold.ROUNDOFF) * np.max(terms)):
        raise ValueError(
            f"eta must be near 1/‖H‖ for the stacked system to be solvable in float64, got eta‖H‖ of about {eta:.1e}; "
            "method='reduced' needs no eta"
        )
    return w
