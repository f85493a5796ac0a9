"""Clients' derivatives as dense arrays, and the inner solution.

    H_i = ∂²_x g_i,    J_i = ∂²_{xλ} g_i,    ∂_x f_i,    ∂_λ f_i,    x(λ) = argmin_x Σ_i g_i(x, λ_i)

H_i and J_i come from the problem's closed forms if it has them, else from hvp and cross on unit vectors. All results
are copies, because a problem may reuse its output arrays. Arrays that would exceed `MEMORY_LIMIT` raise ValueError
before any work is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import (
    Array,
    computes_on_device,
    from_host,
    host_dtype,
    host_float64,
    to_host,
    unit_vectors,
)
from hgp_ref.problems.base import FullProblem, Problem, as_problem, check_lam, check_point, optional

MEMORY_LIMIT = 4 * 2**30  # bytes of the largest array; a few of its size exist at once


@computes_on_device
def hessians(problem: Problem, x: Array, lam: Array, batch: Array | None = None) -> np.ndarray:
    """H_i = ∂²_x g_i(x_i, λ_i), (n, d_x, d_x); with `batch`, over the instances batch[i] of each client.

    ValueError if a client's Hessian is not symmetric.

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


@computes_on_device
def jacobians(problem: Problem, x: Array, lam: Array, batch: Array | None = None) -> np.ndarray:
    """J_i = ∂²_{xλ} g_i(x_i, λ_i), (n, d_λ, d_x): J_i u_i is what `cross` computes.

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
    batches = _optional(batch, x)
    if optional(problem, closed) is not None and optional(problem, "n_clients") is None:  # closed forms are enough
        return host_float64(optional(problem, closed)(x, lam, *batches))
    normal = enter(problem, x, lam, () if optional(problem, closed) is not None else ("linearize",))
    rows = normal.dim_x if closed == "hessian" else normal.dim_lam
    require_memory(what, normal.n_clients, rows, normal.dim_x)
    form = getattr(normal, closed)
    if form is not None:
        return host_float64(form(x, lam, *batches))
    return unit_columns(f"{product}(u)", getattr(normal.linearize(x, lam, *batches), product), x, rows)


@computes_on_device
def outer_gradients(problem: Problem, x: Array, lam: Array) -> tuple[np.ndarray, np.ndarray]:
    """∂_x f_i (n, d_x) and ∂_λ f_i (n, d_λ).

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


def enter(problem: Problem, x: Array, lam: Array, needs: Sequence[str]) -> FullProblem:
    """The problem with all members, after checks of its methods `needs`, x (n, d_x) and lam (n, d_λ)."""
    normal = as_problem(problem, needs)
    check_point(normal, x, lam)
    return normal


def require_memory(what: str, *shape: int) -> None:
    """ValueError if a float64 array of this shape exceeds `MEMORY_LIMIT`."""
    size = 8 * math.prod(shape)
    if size > MEMORY_LIMIT:
        raise ValueError(
            f"{what} = {tuple(shape)} must take at most {MEMORY_LIMIT / 2**30:g} GiB, got {size / 2**30:.1f} GiB; use "
            "hgp_ref.hypergradient with ExactAverage, which forms no matrix, and hgp_ref.certify for its error"
        )


def require_symmetric(H: np.ndarray, eps: float) -> None:
    """ValueError if |H_i − H_iᵀ| exceeds √eps times the largest entry of H (n, d, d).

    Rounding of products stays below that unless sums inside them lose half of their digits.
    """
    if H.ndim != 3 or H.shape[1] != H.shape[2]:
        raise ValueError(f"hessian(x, lam) must have shape (n, d_x, d_x), got {H.shape}")
    allowed = np.sqrt(eps) * float(np.max(np.abs(H), initial=0.0))
    for i, H_i in enumerate(H):
        skew = np.abs(H_i - H_i.T)
        j, k = np.unravel_index(int(np.argmax(skew)), skew.shape)
        if skew[j, k] > allowed:
            raise ValueError(
                f"hvp must be symmetric, got H[{j}, {k}] = {H_i[j, k]:.6g} and H[{k}, {j}] = {H_i[k, j]:.6g} for "
                f"client {i}; a Hessian is the second derivative of inner_cost along x"
            )


def unit_columns(name: str, product: Callable[[Array], Array], x: Array, rows: int) -> np.ndarray:
    """(n, rows, d_x) from u ↦ A_i u_i: column k is the product with the k-th unit vector at every client."""
    n, d = x.shape
    columns = np.empty((d, n, rows))
    for k in range(d):
        columns[k] = host_float64(validation.returned_array(name, product(unit_vectors(k, x)), (n, rows)))
    return np.moveaxis(columns, 0, -1)


def _optional(batch: Array | None, x: Array) -> tuple[Array, ...]:
    """(batch,) in the library of `x`, or () if it is None, so that a problem without batches still works."""
    if batch is None:
        return ()
    validation.array("batch", batch)
    if not isinstance(batch, np.ndarray):
        return (batch,)
    if batch.dtype.kind not in "iu":
        raise TypeError(f"batch must hold integers (instance numbers, -1 for padding), got {batch.dtype}")
    return (from_host(batch, like=x),)


# --------------------------------------------------------------------------------------------------- the inner solution
#
# x(λ) = argmin_x Σ_i g_i(x, λ_i), to machine precision, by Newton's method on the mean cost c(x) = mean_i g_i(x, λ_i)
# with gradient G and Hessian H̄: p = −H̄⁻¹ G, and x ← x + t p with the first t = 1, ½, ¼, … that makes progress, which
# is either of
#
#     ‖G(x + t p)‖ ≤ (1 − t/4) ‖G(x)‖,
#     c(x + t p) ≤ c(x) + 1e-4 t Gᵀp, where rounding of the cost, 1e3 · eps · mean|g_i|, does not hide the decrease.
#
# Since d/dt ‖G(x + t p)‖ = −‖G‖ at t = 0, some t makes progress as long as G has a correct digit. Stopping rule: the
# iteration ends when none does; what is left of G is then its own rounding. That this is convergence and not a
# derivative that contradicts the cost is checked: the step still promised must be lost in rounding, ‖p‖ ≤ √eps · (size
# of x or of the longest step), or its decrease −Gᵀp in that of the cost. Every test is relative, so that units do not
# matter.


FEW = 3  # steps before a step as long as x suggests that x diverges; from x = 0 the first step is x itself
SHORTEST = 2.0**-40  # smallest t: without progress at this t, the gradient is dominated by rounding


@computes_on_device
def inner_solution(
    problem: Problem, lam: Array, *, x0: Array | Sequence[float] | None = None, max_iterations: int = 100
) -> Array:
    """x(λ), (n, d_x) with equal rows, in the library, on the device and with the dtype of `lam`.

    Newton's method starts from `x0`, (d_x,) or (n, d_x) with equal rows; zeros by default.

    Raises
    ------
    ValueError
        If the mean Hessian is not positive definite at an iterate.
    RuntimeError
        If the mean gradient is not reduced to rounding. Both messages say if the minimum is at infinity.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> bool(np.abs(problem.inner_grad(x, lam).sum(axis=0)).max() < 1e-12)
    True
    """
    problem = as_problem(problem, ("inner_cost", "inner_grad"))
    check_lam(problem, lam)
    mean = _Mean(problem, lam)
    newton = _Newton(mean, _start(x0, problem))
    for _ in range(validation.integer("max_iterations", max_iterations)):
        if not newton.step():
            return mean.rows(newton.x)
    raise RuntimeError(
        f"inner_solution: ‖mean gradient‖={_norm(newton.G):.3e} after max_iterations={max_iterations} Newton steps"
        + newton.at_infinity()
    )


def _start(x0: Array | Sequence[float] | None, problem: Problem) -> np.ndarray:
    """One point (d_x,) for all clients, in float64 on the host."""
    d, n = problem.dim_x, problem.n_clients
    if x0 is None:
        return np.zeros(d)
    expected = f"x0 must have shape ({d},) = (d_x,), or ({n}, {d}) = (n, d_x) with equal rows"
    try:
        start = np.array(to_host(x0) if hasattr(x0, "shape") else x0, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{expected}, got {type(x0).__name__}") from error
    if start.shape == (n, d) and np.all(start == start[0]):
        start = start[0]
    if start.shape != (d,):
        raise ValueError(f"{expected}, got {start.shape}" + (" with unequal rows" if start.shape == (n, d) else ""))
    if not np.all(np.isfinite(start)):
        raise ValueError("x0 must not contain NaN or infinite values")
    return start


class _Newton:
    """Newton's iteration: the iterate x, its mean gradient G, the last direction p, and the longest step so far."""

    def __init__(self, mean: _Mean, x: np.ndarray) -> None:
        self.mean, self.x, self.G = mean, x, mean.gradient(x)
        self.p = np.zeros_like(x)
        self.first, self.longest, self.steps = _norm(self.G), 0.0, 0

    def step(self) -> bool:
        """Take a step x + t p; return False if x is already the solution."""
        try:
            H = self.mean.hessian(self.x)
        except ValueError as error:
            raise ValueError(f"{error}{self.at_infinity()}") from error
        if not np.any(self.G):
            return False
        self.p = -np.linalg.solve(H, self.G)
        t = 1.0
        while t >= SHORTEST:
            tried = self.x + t * self.p
            G = self.mean.gradient(tried)
            if _norm(G) <= (1 - t / 4) * _norm(self.G) or self._descends(tried, t):
                self.steps += 1
                self.x, self.G, self.longest = tried, G, max(self.longest, t * _norm(self.p))
                return True
            t /= 2
        self._require_rounding()
        return False

    def _descends(self, tried: np.ndarray, t: float) -> bool:
        cost, scale = self.mean.cost(self.x)
        promised = t * float(self.G @ self.p)  # < 0
        visible = -promised > 1e3 * self.mean.eps * scale
        return visible and self.mean.cost(tried)[0] <= cost + 1e-4 * promised

    def _require_rounding(self) -> None:
        size = max(_norm(self.x), self.longest)
        hidden = -float(self.G @ self.p) <= 1e3 * self.mean.eps * self.mean.cost(self.x)[1]
        if _norm(self.p) > np.sqrt(self.mean.eps) * size and not hidden:
            raise RuntimeError(
                f"inner_solution stalled with ‖mean gradient‖={_norm(self.G):.3e}: no step along −H̄⁻¹G lowers it; "
                "do inner_grad and hvp (or hessian) of the problem belong to its inner_cost?"
            )

    def at_infinity(self) -> str:
        """An explanation to add to a failure if the gradient falls while Newton's steps do not shrink."""
        size = _norm(self.x)
        if self.steps < FEW or not (_norm(self.G) < 1e-3 * self.first and _norm(self.p) > 1e-3 * size):
            return ""
        return (
            f"; the gradient falls while x grows without end (‖x‖={size:.3g}): the minimum lies at infinity, as for "
            "linearly separable data without regularisation; use a positive rate (lam or l2)"
        )


class _Mean:
    """Mean cost, gradient and Hessian over the clients at a common point x (d_x,), in the problem's library."""

    def __init__(self, problem: Problem, lam: Array) -> None:
        self.problem, self.lam, self.dtype = problem, lam, host_dtype(lam)
        self.eps = float(np.finfo(self.dtype).eps)

    def rows(self, x: np.ndarray) -> Array:
        """x for every client, (n, d_x)."""
        rows = np.tile(x.astype(self.dtype), (self.problem.n_clients, 1))  # (n, d_x)
        return from_host(rows, like=self.lam)

    def cost(self, x: np.ndarray) -> tuple[float, float]:
        """mean g_i, and mean |g_i| as the scale of its rounding."""
        g = host_float64(self.problem.inner_cost(self.rows(x), self.lam))
        return float(np.mean(g)), float(np.mean(np.abs(g)))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        G = host_float64(self.problem.inner_grad(self.rows(x), self.lam)).mean(axis=0)
        if not np.all(np.isfinite(G)):
            raise ValueError(
                "problem.inner_grad must return finite numbers, got NaN or infinity; check the data and lam"
            )
        return G

    def hessian(self, x: np.ndarray) -> np.ndarray:
        return require_positive_definite(hessians(self.problem, self.rows(x), self.lam).mean(axis=0))


def _norm(a: np.ndarray) -> float:
    """‖a‖ without overflow or underflow of squares."""
    size = float(np.max(np.abs(a), initial=0.0))
    return size * float(np.linalg.norm(a / size)) if size > 0 and np.isfinite(size) else size


def require_positive_definite(H: np.ndarray) -> np.ndarray:
    """The symmetric part of the mean Hessian `H` (d, d); ValueError if its smallest eigenvalue is not positive."""
    if not np.all(np.isfinite(H)):
        raise ValueError("problem: the mean Hessian must not contain NaN or infinite values")
    H = (H + H.T) / 2
    eigenvalues = np.linalg.eigvalsh(H)
    if not eigenvalues[0] > len(H) * np.finfo(np.float64).eps * abs(eigenvalues[-1]):
        raise ValueError(
            "problem: the mean Hessian over the clients is not positive definite "
            f"(smallest eigenvalue {eigenvalues[0]:.3e}): the inner problem has no unique smooth minimiser here"
        )
    return H
