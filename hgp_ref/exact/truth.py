"""The true hyper-gradient d_λ Σ_k f_k(x_k(λ), λ_k), two independent ways.

    stacked   d = ∂_λ f − η J Θ (I − (I − ηH) Θ)⁻¹ ∂_x f, the fixed-point system of nd unknowns as the paper prints it,
              with H = blockdiag(H_i), J = blockdiag(J_i);
    reduced   d_i = ∂_λ f_i − J_i w*,   w* = (Σ_k H_k)⁻¹ Σ_k ∂_x f_k, a system of d unknowns.

They agree for every η > 0: I − (I − ηH)Θ is the identity on disagreement and ηH̄ on consensus, hence invertible if and
only if the mean Hessian H̄ is. Both are refined with residuals in twice the precision (`linear_systems`), so the result
is exact for the derivatives as the problem evaluates them, rounded once. `return_error` estimates the effect of
rounding in the derivatives.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, overload

import numpy as np
from scipy.linalg import LinAlgWarning, block_diag, lu_factor, lu_solve, null_space

from hgp_ref import validation
from hgp_ref.backend import Array, computes_on_device
from hgp_ref.exact import linear_systems as twofold
from hgp_ref.exact.derivatives import (
    enter,
    hessians,
    jacobians,
    outer_gradients,
    require_memory,
    require_positive_definite,
)
from hgp_ref.exact.linear_systems import (
    Changes,
    DenseDerivatives,
    HessianSum,
    Pair,
    error_estimate,
    less_products,
    refine,
    scaled,
)
from hgp_ref.exact.operators import mixing_product, theta
from hgp_ref.networks import Network
from hgp_ref.problems.base import Problem
from hgp_ref.validation import Boolean, Choice, Count, Instance, Positive, checked


@overload
def hypergradient(
    problem: Problem, x: Array, lam: Array, method: str = ..., eta: float = ..., *, return_error: Literal[False] = ...
) -> np.ndarray: ...


@overload
def hypergradient(
    problem: Problem, x: Array, lam: Array, method: str = ..., eta: float = ..., *, return_error: Literal[True]
) -> tuple[np.ndarray, np.ndarray]: ...


@checked(method=Choice("reduced", "stacked"), eta=Positive(), return_error=Boolean())
def hypergradient(
    problem: Problem,
    x: Array,
    lam: Array,
    method: str = "reduced",
    eta: float = 1.0,
    *,
    return_error: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """The hyper-gradient formula at (x, λ), (n, d_λ): the true hyper-gradient if x is the inner solution of λ.

    Parameters
    ----------
    method : "reduced" or "stacked".
    eta : η of the stacked form; the result does not depend on it.
    return_error : return (value, error) instead of the value. `error` (n, d_lam) estimates |value − exact|, entry by
        entry: the effect of rounding in the problem's derivatives, and the error of the solve. It is rigorous to first
        order if the problem has `term_sizes`; otherwise each entry of a derivative is assumed to be correctly rounded.
        It is infinite if rounding could make the mean Hessian singular.

    Raises
    ------
    ValueError
        If the mean Hessian is not positive definite, a client's Hessian is not symmetric, the result leaves the range
        of float64, or a matrix would exceed `exact.derivatives.MEMORY_LIMIT`.

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
    enter(problem, x, lam, ("outer_grad",))
    if method == "stacked":
        require_memory("the stacked system (n d_x, n d_x)", math.prod(x.shape), math.prod(x.shape))
    at = _derivatives(problem, x, lam)
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


def _derivatives(problem: Problem, x: Array, lam: Array) -> DenseDerivatives:
    return DenseDerivatives(hessians(problem, x, lam), jacobians(problem, x, lam), *outer_gradients(problem, x, lam))


def _stacked(system: HessianSum, b: np.ndarray, eta: float) -> Pair:
    """w = η Θu of the system of nd unknowns, (d,), refined; `eta` in the units of `system`."""
    n, d = b.shape
    Theta, identity = theta(n, d), np.eye(n * d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # a singular matrix leaves a residual, which is checked below
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


# -------------------------------------------------------------------------------------------- HGP's v^(M), as a formula
#
#     v^(M) = ∂_λ f − η Σ_{m<M} Ĵ^(m) Θ̂_m [Π_{m'<m} (I − η Ĥ^(m')) Θ̂_{m'}] ∂_x f,     Θ̂_m = K_m ⊗ I_d,
#
# the product with later factors to the left. Ĵ^(m) is taken on the m-th batch for v, Ĥ^(m) on the m-th batch for u;
# every call has its own Θ̂_m (the paper's remark writes one Θ̂ and one sample for both). With conserved mass
# ("conserve" in `push_sum_matrix`) the identity in the Hessian factor m becomes diag(ω_{m+1}) ⊗ I_d.


@checked(eta=Positive())
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

    `push_sum_matrices` returns such matrices. `batches_v` and `batches_u` are (M, n, b) instance indices per iteration,
    by default all instances. `weights` are ω_1 … ω_M, (n,) each, if sums are conserved.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> K, _ = hgp.exact.push_sum_matrices(net, 5, calls=30)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=5), eta=1.0, iterations=30)
    >>> bool(np.allclose(hgp.exact.estimate(problem, x, lam, K, eta=1.0), est.value))
    True
    """
    f_x, f_lam = outer_gradients(problem, x, lam)  # (n, d_x), (n, d_lam)
    n, d = f_x.shape
    matrices = [
        validation.real_array(f"matrices[{m}]", K, (n, n), "(n, n)")
        for m, K in enumerate(_listed("matrices", matrices))
    ]
    require_memory("the stacked operators (n d_x, n d_x)", n * d, n * d)
    for name, entries in (("batches_v", batches_v), ("batches_u", batches_u), ("weights", weights)):
        if entries is not None and len(_listed(name, entries)) != len(matrices):
            raise ValueError(f"{name} must have {len(matrices)} entries, one per matrix, got {len(entries)}")
    if weights is not None:
        weights = [validation.real_array(f"weights[{m}]", omega, (n,), "(n,)") for m, omega in enumerate(weights)]
    J = _blocks(jacobians, problem, x, lam, batches_v)
    H = _blocks(hessians, problem, x, lam, batches_u)
    v = f_lam.ravel().copy()
    product = np.eye(n * d)  # Π_{m'<m} (I − η Ĥ^(m')) Θ̂_{m'}
    for m, K in enumerate(matrices):
        Theta_m = np.kron(K, np.eye(d))  # (nd, nd)
        v -= eta * J(m) @ Theta_m @ product @ f_x.ravel()
        identity = np.eye(n * d) if weights is None else np.kron(np.diag(weights[m]), np.eye(d))
        product = (identity - eta * H(m)) @ Theta_m @ product
    if not np.all(np.isfinite(v)):
        raise ValueError(f"eta must be small enough for a series within the range of floating point, got {eta:g}")
    return v.reshape(f_lam.shape)


def _listed(name: str, entries: Sequence[Array]) -> Sequence[Array]:
    if not isinstance(entries, list | tuple) and not (isinstance(entries, np.ndarray) and entries.ndim >= 1):
        raise TypeError(f"{name} must be a list with one entry per iteration, got {type(entries).__name__}")
    return entries


def _blocks(
    derivative: Callable[..., np.ndarray], problem: Problem, x: Array, lam: Array, batches: Sequence[Array] | None
) -> Callable[[int], np.ndarray]:
    """m ↦ the block-diagonal derivative matrix of iteration m; the same one every time without batches."""
    if batches is None:
        full = block_diag(*derivative(problem, x, lam))
        return lambda m: full
    return lambda m: block_diag(*derivative(problem, x, lam, batches[m]))


# ------------------------------------------------------------------------------------------------ other hyper-gradients
#
# Other derivatives are called hyper-gradients in the literature; each is the limit of some method. With H̄ and J̄ the
# means over clients and w* = H̄⁻¹ mean_k ∂_x f_k,
#
#     Global   of Σ_k f_k along λ_i          ∂_λ f_i − J_i w*                       `exact.hypergradient`
#              of mean_k f_k, λ shared       mean_i (∂_λ f_i − J_i w*)
#     Client   of f_i along λ_i              ∂_λ f_i − (1/n) J_i H̄⁻¹ ∂_x f_i
#              of f_i, λ shared              ∂_λ f_i − J̄ H̄⁻¹ ∂_x f_i
#     Local    of f_i without other clients  ∂_λ f_i − J_i H_i⁻¹ ∂_x f_i
#
# If λ is shared, a method with one λ for all follows the mean over clients; the means of Client and of Global agree.


@computes_on_device
def shared_hypergradient(problem: Problem, x: Array, lam: Array) -> np.ndarray:
    """d mean_k f_k / dλ for one λ that all clients share, (d_λ,): the mean over clients of `exact.hypergradient`.

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


@checked(shared=Boolean())
def client_hypergradient(problem: Problem, x: Array, lam: Array, shared: bool = False) -> np.ndarray:
    """d f_i / dλ_i of each client's cost f_i through the shared solution, (n, d_λ); with `shared`, along one common λ.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=1, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((1, 3)), np.zeros((1, 2))
    >>> alone = hgp.exact.hypergradient(problem, x, lam)
    >>> bool(np.allclose(hgp.exact.client_hypergradient(problem, x, lam), alone))
    True
    """
    enter(problem, x, lam, ("outer_grad",))
    at = _derivatives(problem, x, lam)
    require_positive_definite(at.H.mean(axis=0))
    system = HessianSum(at.H)
    b, exponent = scaled(at.f_x)
    w = _pairs([system.solve(row[None]) for row in b])  # (n, d_x), rows (Σ_k H_k)⁻¹ ∂_x f_i = H̄⁻¹ ∂_x f_i / n
    J = np.broadcast_to(at.J.sum(axis=0), at.J.shape) if shared else at.J  # n J̄, or J_i
    return less_products(at.f_lam, J, w, exponent - system.exponent)


@computes_on_device
def local_hypergradient(problem: Problem, x: Array, lam: Array) -> np.ndarray:
    """∂_λ f_i − J_i H_i⁻¹ ∂_x f_i, (n, d_λ): the hyper-gradient of each client alone.

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
    at = _derivatives(problem, x, lam)
    for H in at.H:
        require_positive_definite(H)
    value = np.empty_like(at.f_lam)
    for i in range(len(value)):
        row = slice(i, i + 1)
        system = HessianSum(at.H[row])
        b, exponent = scaled(at.f_x[row])
        value[row] = less_products(at.f_lam[row], at.J[row], system.solve(b), exponent - system.exponent)
    return value


def _pairs(rows: list[Pair]) -> Pair:
    """Pairs (d,) as one of arrays (n, d)."""
    return np.stack([hi for hi, _ in rows]), np.stack([lo for _, lo in rows])


# ------------------------------------------------------------------- the rate of gradient tracking over periodic graphs
#
# Once the weights are periodic (P_{c−1} … P_0 ω = ω after c calls), a call with P maps, with w = u/ω,
#
#     (u, y) ↦ (u⁺, P y + H(u⁺/ω⁺ − u/ω)),      u⁺ = P(u − ηy),   ω⁺ = Pω,
#
# linearly. Columns of P sum to 1, so Σ_i y_i − Σ_i H_i u_i/ω_i never changes: one eigenvalue 1 for each of its d
# coordinates. Runs start where it is −Σ ∂_x f and differ from the limit (ωw*, 0) by vectors on which it is 0: on that
# subspace the largest |eigenvalue| of the period, its c-th root taken, is the factor by which the error falls in a
# call.


UNCHANGED = 1e-13  # relative change of ω over a period
MOST_PERIODS = 100_000


@checked(net=Instance(Network), step=Positive(), steps=Count(1))
def tracking_rate(H: np.ndarray, net: Network, step: float, steps: int = 1) -> float:
    """The asymptotic factor on the error of `hgp.methods.Tracking(step)` per call; unstable above 1.

    Parameters
    ----------
    H : (n, d, d), the clients' Hessians, e.g. `exact.hessians(problem, x, lam)`.
    net : a periodic network (`net.period`), jointly strongly connected.
    step : η.
    steps : S, graphs per call.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> ring = hgp.networks.Schedule([(np.arange(3), (np.arange(3) + 1) % 3)], n=3)
    >>> round(hgp.exact.tracking_rate(np.ones((3, 1, 1)), ring, 0.1), 4)
    0.9
    """
    H = validation.real_array("H", H, (None, None, None), "(n, d, d)")
    n, d = H.shape[:2]
    H = validation.real_array("H", H, (n, d, d), "(n, d, d)")
    if net.n != n:
        raise ValueError(f"net must have {n} clients like H, got {net.n}")
    if net.period is None:
        raise ValueError(f"net must be periodic, got {net!r}")
    require_memory("the map of a period (2nd, 2nd)", 2 * n * d, 2 * n * d)
    calls = math.lcm(net.period, steps) // steps
    products = [mixing_product(net, steps, call) for call in range(calls)]
    omega = _periodic_weights(products, net)
    blocks, T = block_diag(*H), np.eye(2 * n * d)
    invariant = np.tile(np.eye(d), (1, n)) @ np.hstack([-blocks / np.repeat(omega, d), np.eye(n * d)])  # (d, 2nd)
    for P in products:
        after = P @ omega
        T = _call(np.kron(P, np.eye(d)), blocks, step, np.repeat(omega, d), np.repeat(after, d)) @ T
        omega = after
    free = null_space(invariant)  # (2nd, 2nd − d)
    return float(np.abs(np.linalg.eigvals(free.T @ T @ free)).max() ** (1 / calls))


def _call(P: np.ndarray, H: np.ndarray, step: float, omega: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The matrix of one call on (u, y)."""
    ahead = np.hstack([P, -step * P])  # u⁺
    Hw = np.hstack([H / omega, np.zeros_like(H)])
    return np.vstack([ahead, np.hstack([np.zeros_like(P), P]) + H @ (ahead / after[:, None]) - Hw])


def _periodic_weights(products: list[np.ndarray], net: Network) -> np.ndarray:
    """ω with mean 1 that is unchanged after a period."""
    omega = np.ones(net.n)
    for _ in range(MOST_PERIODS):
        before = omega
        for P in products:
            omega = P @ omega
        if np.abs(omega - before).max() <= UNCHANGED * net.n:
            return omega
    raise ValueError(f"net must have weights that converge within {MOST_PERIODS} periods, got {net!r}")
