"""Block derivatives as dense arrays: closed form where a problem offers it, else hvp and cross on unit vectors.

Everything here is a copy: a problem may write its next answer into the same array, and a caller may write into this
one. Arrays that would exceed `MEMORY_LIMIT` are refused before any work is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.problems.normalised import Normalised, as_problem, optional
from hgp_ref.problems.protocol import Problem

MEMORY_LIMIT = 4 * 2**30  # bytes of the largest array that the reference forms; a few of its size live at once


def hessians(problem: Problem, x: Array, lam: Array, batch: Array | None = None) -> np.ndarray:
    """H_i = ∂²_x g_i(x_i, λ_i), (n, d_x, d_x); over the instances `batch` (n, b) of each client if given.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.
    batch : array, optional
        Instances of each client.

    Returns
    -------
    array (n, d_x, d_x)
        H_i = ∂²_x g_i.

    Raises
    ------
    ValueError
        A client's Hessian is not symmetric (`require_symmetric`), or the matrices would not fit into memory.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> hgp.exact.hessians(problem, x, lam).shape
    (3, 4, 4)
    """
    H = _blocks("the clients' Hessians (n, d_x, d_x)", "hessian", "hvp", problem, x, lam, batch)
    require_symmetric(H, float(np.finfo(host_dtype(x)).eps))
    return H


def jacobians(problem: Problem, x: Array, lam: Array, batch: Array | None = None) -> np.ndarray:
    """J_i = ∂²_{xλ} g_i(x_i, λ_i), (n, d_λ, d_x): J_i u_i is what `cross` computes.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.
    batch : array, optional
        Instances of each client.

    Returns
    -------
    array (n, d_lam, d_x)
        J_i = ∂²_{xλ} g_i.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> hgp.exact.jacobians(problem, x, lam).shape
    (3, 2, 4)
    """
    return _blocks("the clients' mixed derivatives (n, d_λ, d_x)", "jacobian", "cross", problem, x, lam, batch)


def _blocks(
    what: str, closed: str, product: str, problem: Problem, x: Array, lam: Array, batch: Array | None
) -> np.ndarray:
    """The closed form of that name if the problem offers it, else `product` applied to unit vectors."""
    given = _optional(batch, x)
    if optional(problem, closed) is not None and optional(problem, "n_clients") is None:  # closed forms alone will do
        return host_float64(optional(problem, closed)(x, lam, *given))
    normal = enter(problem, x, lam, () if optional(problem, closed) is not None else ("linearize",))
    rows = normal.dim_x if closed == "hessian" else normal.dim_lam
    require_memory(what, normal.n_clients, rows, normal.dim_x)
    form = getattr(normal, closed)
    if form is not None:
        return host_float64(form(x, lam, *given))
    return unit_columns(f"{product}(u)", getattr(normal.linearize(x, lam, *given), product), x, rows)


def outer_gradients(problem: Problem, x: Array, lam: Array) -> tuple[np.ndarray, np.ndarray]:
    """∂_x f_i (n, d_x) and ∂_λ f_i (n, d_λ).

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.

    Returns
    -------
    two arrays
        ∂_x f (n, d_x) and ∂_λ f (n, d_lam).

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> [part.shape for part in hgp.exact.outer_gradients(problem, x, lam)]
    [(3, 4), (3, 2)]
    """
    f_x, f_lam = enter(problem, x, lam, ("outer_grad",)).outer_grad(x, lam)
    return host_float64(f_x), host_float64(f_lam)


def enter(problem: Problem, x: Array, lam: Array, needs: Sequence[str]) -> Normalised:
    """The problem in the package's form, with the methods `needs`, once x (n, d_x) and lam (n, d_λ) are looked at."""
    normal = as_problem(problem, needs)
    arguments.same_kind(x=x, lam=lam)
    for name, a, d in (("x", x, normal.dim_x), ("lam", lam, normal.dim_lam)):
        arguments.shape(name, a, (normal.n_clients, d), f"(n, d_{name})", run_axes=False)
        arguments.finite(name, a)
    return normal


def require_memory(what: str, *shape: int) -> None:
    """ValueError if a float64 array of this shape is beyond `MEMORY_LIMIT`."""
    needed = 8 * math.prod(shape)
    if needed > MEMORY_LIMIT:
        raise ValueError(
            f"{what} = {tuple(shape)} would take {needed / 2**30:.1f} GiB, needed at most "
            f"{MEMORY_LIMIT / 2**30:g} GiB for the explicit reference; use hgp_ref.hypergradient with ExactAverage, "
            "which forms no matrix, and hgp_ref.certify for its error"
        )


def require_symmetric(H: np.ndarray, eps: float) -> None:
    """ValueError where |H_i − H_iᵀ| exceeds √eps times the largest entry of H (n, d, d).

    Products that round differently leave less than that unless sums inside them lose half of their digits.
    """
    if H.ndim != 3 or H.shape[1] != H.shape[2]:
        raise ValueError(f"hessian(x, lam) must have shape (n, d_x, d_x), got {H.shape}")
    allowed = np.sqrt(eps) * float(np.max(np.abs(H), initial=0.0))
    for i, own in enumerate(H):
        skew = np.abs(own - own.T)
        j, k = np.unravel_index(int(np.argmax(skew)), skew.shape)
        if skew[j, k] > allowed:
            raise ValueError(
                f"hvp must be symmetric, got H[{j}, {k}] = {own[j, k]:.6g} and H[{k}, {j}] = {own[k, j]:.6g} for "
                f"client {i}; a Hessian is the second derivative of inner_cost along x"
            )


def unit_columns(name: str, product: Callable[[Array], Array], x: Array, rows: int) -> np.ndarray:
    """(n, rows, d_x) from u ↦ A_i u_i: column k is the product with the k-th unit vector at every client."""
    n, d = x.shape
    dtype = host_dtype(x)
    columns = np.empty((d, n, rows))
    for k in range(d):
        unit = np.zeros((n, d), dtype=dtype)
        unit[:, k] = 1.0
        columns[k] = host_float64(arguments.answer(name, product(from_host(unit, like=x)), (n, rows)))
    return np.moveaxis(columns, 0, -1)


def _optional(batch: Array | None, x: Array) -> tuple[Array, ...]:
    """The batch argument in the library of `x`; absent when None, so that a problem without batches still works."""
    if batch is None:
        return ()
    arguments.array("batch", batch)
    return (from_host(batch, like=x) if isinstance(batch, np.ndarray) else batch,)
