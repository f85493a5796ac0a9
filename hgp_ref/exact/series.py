"""HGP's v^(M) by its explicit formula, with dense block matrices.

    v^(M) = ∂_λ f − η Σ_{m<M} Ĵ^(m) Θ̂_m [Π_{m'<m} (I − η Ĥ^(m')) Θ̂_{m'}] ∂_x f,     Θ̂_m = K_m ⊗ I_d,

the product with later factors to the left. Ĵ^(m) is taken on the m-th batch for v, Ĥ^(m) on the m-th batch for u; every
call has its own Θ̂_m (the paper's remark writes one Θ̂ and one sample for both). With conserved mass ("conserve" in
`push_sum_matrix`) the identity in the Hessian factor m becomes diag(ω_{m+1}) ⊗ I_d.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import block_diag

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.exact.derivatives import hessians, jacobians, outer_gradients, require_memory
from hgp_ref.problems.protocol import Problem


def estimate(
    problem: Problem,
    x: Array,
    lam: Array,
    matrices: Sequence[np.ndarray],
    eta: float,
    batches_v: Sequence[Array] | None = None,
    batches_u: Sequence[Array] | None = None,
    *,
    weights: Sequence[np.ndarray] | None = None,
) -> np.ndarray:
    """v^(M), (n, d_λ), for the M = len(matrices) averaging matrices K_m (n, n).

    `batches_v`, `batches_u`: (M, n, b) instance indices per iteration, all instances if None. `weights`: ω_1 … ω_M for
    conserved mass.

    Parameters
    ----------
    problem : Problem
        Client costs.
    x, lam : arrays (n, d_x) and (n, d_lam)
        Where they are differentiated.
    matrices : sequence of (n, n)
        K_0 … K_{M−1}, such as `push_sum_matrices` gives.
    eta : float
        η.
    batches_v, batches_u : sequences of arrays, optional
        Mini-batches of each iteration for v and for u.
    weights : sequence of arrays, optional
        Where sums are conserved: ω before each call and after the last.

    Returns
    -------
    array (n, d_lam)
        v^(M).

    Raises
    ------
    TypeError, ValueError
        Matrices must be (n, n) and as many as batches and weights, η positive.
    ValueError
        The series leaves the range of floating point.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> K, _ = hgp.exact.push_sum_matrices(net, 5, calls=30)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=5), iterations=30)
    >>> bool(np.allclose(hgp.exact.estimate(problem, x, lam, K, eta=1.0), est.value))
    True
    """
    f_x, f_lam = outer_gradients(problem, x, lam)  # (n, d_x), (n, d_lam)
    n, d = f_x.shape
    eta = arguments.positive("eta", eta)
    matrices = [
        arguments.real_array(f"matrices[{m}]", K, (n, n), "(n, n)") for m, K in enumerate(_listed("matrices", matrices))
    ]
    require_memory("the stacked operators (n d_x, n d_x)", n * d, n * d)
    for name, given in (("batches_v", batches_v), ("batches_u", batches_u), ("weights", weights)):
        if given is not None and len(_listed(name, given)) != len(matrices):
            raise ValueError(f"{name} has {len(given)} entries for {len(matrices)} matrices; one each is needed")
    if weights is not None:
        weights = [arguments.real_array(f"weights[{m}]", omega, (n,), "(n,)") for m, omega in enumerate(weights)]
    J = _blocks(jacobians, problem, x, lam, batches_v)
    H = _blocks(hessians, problem, x, lam, batches_u)
    v = f_lam.ravel().copy()
    product = np.eye(n * d)  # Π_{m'<m} (I − η Ĥ^(m')) Θ̂_{m'}
    for m, K in enumerate(matrices):
        Theta_m = np.kron(K, np.eye(d))  # (nd, nd)
        v -= eta * J(m) @ Theta_m @ product @ f_x.ravel()
        kept = np.eye(n * d) if weights is None else np.kron(np.diag(weights[m]), np.eye(d))
        product = (kept - eta * H(m)) @ Theta_m @ product
    if not np.all(np.isfinite(v)):
        raise ValueError(f"eta={eta:g} given: the series leaves the range of floating point at this x and lam")
    return v.reshape(f_lam.shape)


def _listed(name: str, given: Sequence[Array]) -> Sequence[Array]:
    if not isinstance(given, list | tuple) and not (isinstance(given, np.ndarray) and given.ndim >= 1):
        raise TypeError(f"{name}: {type(given).__name__} given, needed a list with one entry for each iteration")
    return given


def _blocks(
    derivative: Callable[..., np.ndarray], problem: Problem, x: Array, lam: Array, batches: Sequence[Array] | None
) -> Callable[[int], np.ndarray]:
    """m ↦ the block-diagonal derivative matrix of iteration m; the same one every time without batches."""
    if batches is None:
        full = block_diag(*derivative(problem, x, lam))
        return lambda m: full
    return lambda m: block_diag(*derivative(problem, x, lam, batches[m]))
