"""The other derivatives that the literature calls a hyper-gradient, explicitly: each is the limit of some method.

With H̄ and J̄ the means over clients and w* = H̄⁻¹ mean_k ∂_x f_k,

    Global   of Σ_k f_k along λ_i          ∂_λ f_i − J_i w*                       `exact.hypergradient`
             of mean_k f_k, λ shared       mean_i (∂_λ f_i − J_i w*)
    Client   of the own f_i along λ_i      ∂_λ f_i − (1/n) J_i H̄⁻¹ ∂_x f_i
             of the own f_i, λ shared      ∂_λ f_i − J̄ H̄⁻¹ ∂_x f_i
    Local    as if others did not exist    ∂_λ f_i − J_i H_i⁻¹ ∂_x f_i

where λ is shared its mean over clients is what a method with one λ for all moves along: of Client it is that of Global.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.exact.derivatives import enter, hessians, jacobians, outer_gradients
from hgp_ref.exact.inner import require_positive_definite
from hgp_ref.exact.linear_systems import HessianSum, less_products, scaled
from hgp_ref.exact.truth import hypergradient
from hgp_ref.exact.twofold import Pair
from hgp_ref.problems.protocol import Problem


def shared_hypergradient(problem: Problem, x: Array, lam: Array) -> np.ndarray:
    """d mean_k f_k / dλ for one λ that all clients share, (d_λ,): the mean over clients of `exact.hypergradient`.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.

    Returns
    -------
    array
        For one λ that all clients share.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> client = hgp.exact.client_hypergradient(problem, x, lam, shared=True)
    >>> bool(np.allclose(client.mean(axis=0), hgp.exact.shared_hypergradient(problem, x, lam)))
    True
    """
    return hypergradient(problem, x, lam).mean(axis=0)


def client_hypergradient(problem: Problem, x: Array, lam: Array, shared: bool = False) -> np.ndarray:
    """d f_i / dλ_i of each client's own cost through the solution that all share, (n, d_λ); along a shared λ if asked.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.
    shared : bool
        Whether λ is one for all.

    Returns
    -------
    array
        Class Client, the limit of `bilevel.at_point("dbo", ..., tracked=False)`.

    Raises
    ------
    ValueError
        x or λ does not fit the problem, or the mean Hessian is not positive definite.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=1, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((1, 3)), np.zeros((1, 2))
    >>> alone = hgp.exact.hypergradient(problem, x, lam)
    >>> bool(np.allclose(hgp.exact.client_hypergradient(problem, x, lam), alone))
    True
    """
    shared = arguments.boolean("shared", shared)
    enter(problem, x, lam, ("outer_grad",))
    H, J = hessians(problem, x, lam), jacobians(problem, x, lam)  # (n, d_x, d_x), (n, d_lam, d_x)
    f_x, f_lam = outer_gradients(problem, x, lam)
    require_positive_definite(H.mean(axis=0))
    system = HessianSum(H)
    b, exponent = scaled(f_x)
    w = _pairs([system.solve(row[None]) for row in b])  # (n, d_x), rows (Σ_k H_k)⁻¹ ∂_x f_i = H̄⁻¹ ∂_x f_i / n
    if shared:
        J = np.broadcast_to(J.sum(axis=0), J.shape)  # n J̄
    return less_products(f_lam, J, w, exponent - system.exponent)


def local_hypergradient(problem: Problem, x: Array, lam: Array) -> np.ndarray:
    """∂_λ f_i − J_i H_i⁻¹ ∂_x f_i, (n, d_λ): what each client would find alone.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.

    Returns
    -------
    array (n, d_lam)
        From each client's own Hessian.

    Raises
    ------
    ValueError
        x or λ does not fit the problem, or a client's Hessian is not positive definite.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=1, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((1, 3)), np.zeros((1, 2))
    >>> alone = hgp.exact.hypergradient(problem, x, lam)
    >>> bool(np.allclose(hgp.exact.local_hypergradient(problem, x, lam), alone))
    True
    """
    enter(problem, x, lam, ("outer_grad",))
    H, J = hessians(problem, x, lam), jacobians(problem, x, lam)
    f_x, f_lam = outer_gradients(problem, x, lam)
    for Hessian in H:
        require_positive_definite(Hessian)
    value = np.empty_like(f_lam)
    for i, row in enumerate(f_x):
        system = HessianSum(H[i : i + 1])
        b, exponent = scaled(row[None])
        value[i] = less_products(f_lam[i : i + 1], J[i : i + 1], system.solve(b), exponent - system.exponent)[0]
    return value


def _pairs(rows: list[Pair]) -> Pair:
    """Pairs (d,) as one of arrays (n, d)."""
    return np.stack([hi for hi, _ in rows]), np.stack([lo for _, lo in rows])
