"""Quadratic costs, with every derivative in closed form:

    g_i(x, λ_i) = ½ xᵀ A_i x − b_iᵀ x + λ_iᵀ C_i x
    f_i(x, λ_i) = ½ (x − t_i)ᵀ Q_i (x − t_i) + λ_iᵀ D_i x + (μ/2) |λ_i|²

Hence ∂²_x g_i = A_i and ∂²_{xλ} g_i = C_i at every point. A_i is symmetric and need not be definite: one client may be
non-convex as long as the mean of the A_i is positive definite.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref.backend import Array, Namespace, detached, host_dtype, to_host
from hgp_ref.problems import lipschitz as constants
from hgp_ref.problems.base import FullProblem, Portable, check_argument, expand, matvec, run_axes
from hgp_ref.problems.instances import digest
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.term_sizes import TermSizes
from hgp_ref.validation import check_memory


class Quadratic(Portable, FullProblem):
    """Quadratic inner and outer costs. There are no instances, hence no mini-batches.

    Parameters
    ----------
    A, b, C : A_i (n, d_x, d_x) symmetric, b_i (n, d_x), C_i (n, d_λ, d_x).
    target : t_i (n, d_x).
    outer_hessian : Q_i (n, d_x, d_x) symmetric; by default the identity.
    coupling : D_i (n, d_λ, d_x); by default 0.
    outer_reg : μ.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0, condition=10)
    >>> problem.n_clients, problem.dim_x, problem.dim_lam
    (3, 4, 2)
    """

    broadcasts = True
    trusted = True

    def __init__(self, A: Array, b: Array, C: Array, target: Array, *, outer_hessian: Array | None = None,
                 coupling: Array | None = None, outer_reg: float = 0.0) -> None:  # fmt: skip
        arrays = {"A": A, "b": b, "C": C, "target": target, "outer_hessian": outer_hessian, "coupling": coupling}
        arrays = {k: detached(a) for k, a in arrays.items() if a is not None or k not in ("outer_hessian", "coupling")}
        self._xp = validation.same_kind(**arrays)
        if A.ndim != 3 or A.shape[0] < 1 or A.shape[1] < 1 or A.shape[1] != A.shape[2]:
            raise ValueError(f"A must have shape (n, d_x, d_x), got {tuple(A.shape)}")
        n, d_x = int(A.shape[0]), int(A.shape[1])
        if C.ndim != 3 or C.shape[1] < 1 or (C.shape[0], C.shape[2]) != (n, d_x):
            raise ValueError(f"C must have shape ({n}, d_lam, {d_x}) = (n, d_lam, d_x), got {tuple(C.shape)}")
        d_lam = int(C.shape[1])
        shapes = {"A": (n, d_x, d_x), "b": (n, d_x), "C": (n, d_lam, d_x), "target": (n, d_x),
                  "outer_hessian": (n, d_x, d_x), "coupling": (n, d_lam, d_x)}  # fmt: skip
        for name, a in arrays.items():
            if tuple(a.shape) != shapes[name]:
                raise ValueError(f"{name} must have shape {shapes[name]}, got {tuple(a.shape)}")
            validation.finite(name, a)
        for name in ("A", "outer_hessian"):
            if name in arrays:
                _check_symmetric(name, arrays[name], self._xp)
        self.n_clients, self.dim_x, self.dim_lam = n, d_x, d_lam
        self.clients = np.arange(n)  # their numbers in the problem that this one is a restriction of
        self._A, self._b, self._C, self._t = arrays["A"], arrays["b"], arrays["C"], arrays["target"]
        self._Q, self._D = arrays.get("outer_hessian"), arrays.get("coupling")
        self._mu = validation.number("outer_reg", outer_reg)

    @classmethod
    @validation.checked(
        n=validation.Integer(1),
        dim_x=validation.Integer(1),
        dim_lam=validation.Integer(1),
        seed=validation.Integer(0),
        condition=validation.Positive(),
        heterogeneity=validation.Probability(),
    )
    def random(cls, n: int, dim_x: int, dim_lam: int, seed: int = 0, *, condition: float = 10.0,
               heterogeneity: float = 0.5) -> Quadratic:  # fmt: skip
        """A random problem on NumPy in float64: eigenvalues of every A_i in [1/condition, 1].

        `heterogeneity` in [0, 1] interpolates between equal A_i, b_i and independent ones. C_i and t_i are standard
        normal.
        """
        check_memory(f"n={n}, dim_x={dim_x}, dim_lam={dim_lam}", (n + 1) * dim_x * (4 * dim_x + dim_lam))
        if condition < 1:
            raise ValueError(f"condition must be a number >= 1, got {condition}")
        rng = np.random.default_rng(seed)
        spectrum = np.geomspace(1 / condition, 1, dim_x)
        bases = np.linalg.qr(rng.standard_normal((n + 1, dim_x, dim_x)))[0]
        matrices = (bases * spectrum) @ bases.swapaxes(1, 2)  # (n + 1, d_x, d_x)
        A = (1 - heterogeneity) * matrices[:1] + heterogeneity * matrices[1:]
        b = rng.standard_normal((1, dim_x)) + heterogeneity * rng.standard_normal((n, dim_x))
        C = rng.standard_normal((n, dim_lam, dim_x))
        return cls((A + A.swapaxes(1, 2)) / 2, b, C, rng.standard_normal((n, dim_x)))

    def _like(self) -> Array:
        return self._A

    def _check(self, x: Array, lam: Array, batch: Array | None = None) -> tuple[int, ...]:
        if batch is not None:
            raise ValueError("batch must be None for a Quadratic, which has no instances, got an array")
        return run_axes(
            x=check_argument("x", x, self._A, (self.n_clients, self.dim_x), "n_clients, dim_x"),
            lam=check_argument("lam", lam, self._A, (self.n_clients, self.dim_lam), "n_clients, dim_lam"),
        )

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """½ xᵀ A_i x − b_iᵀ x + λ_iᵀ C_i x.  # (n,)"""
        self._check(x, lam, batch)
        xp = self._xp
        linear = xp.sum((0.5 * matvec(self._A, x, xp=xp) - self._b) * x, axis=-1)
        return linear + xp.sum(lam * matvec(self._C, x, xp=xp), axis=-1)

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """A_i x − b_i + C_iᵀ λ_i.  # (n, d_x)"""
        self._check(x, lam, batch)
        return matvec(self._A, x, xp=self._xp) - self._b + self._transposed(self._C, lam)

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """½ (x − t_i)ᵀ Q_i (x − t_i) + λ_iᵀ D_i x + (μ/2) |λ_i|².  # (n,)"""
        lead = self._check(x, lam)
        xp = self._xp
        gap = x - self._t
        cost = 0.5 * xp.sum(gap * self._outer(gap), axis=-1) + 0.5 * self._mu * xp.sum(lam * lam, axis=-1)
        if self._D is not None:
            cost = cost + xp.sum(lam * matvec(self._D, x, xp=xp), axis=-1)
        return expand(cost, lead, 1, xp=xp)

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """Q_i (x − t_i) + D_iᵀ λ_i and D_i x + μ λ_i.  # (n, d_x), (n, d_λ)"""
        lead = self._check(x, lam)
        xp = self._xp
        f_x, f_lam = self._outer(x - self._t), self._mu * lam
        if self._D is not None:
            f_x = f_x + self._transposed(self._D, lam)
            f_lam = f_lam + matvec(self._D, x, xp=xp)
        f_x, f_lam = (xp.asarray(expand(a, lead, 2, xp=xp), copy=True) for a in (f_x, f_lam))
        return f_x, f_lam

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> QuadraticLinearization:
        """The same A_i and C_i at every point."""
        return QuadraticLinearization(self, self._check(x, lam, batch))

    def term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """|A||x| + |b| + |Cᵀ||λ| and so on, each term times its number of roundings, divided by K."""
        self._refuse_run_axes("x and lam", self._check(x, lam))
        return quadratic_sizes(self, x, lam)

    def hessian(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """A_i.  # (n, d_x, d_x)"""
        return expand(self._A, self._check(x, lam, batch), 3, xp=self._xp)

    def jacobian(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """C_i.  # (n, d_λ, d_x)"""
        return expand(self._C, self._check(x, lam, batch), 3, xp=self._xp)

    def data_digest(self) -> str:
        """SHA-256 of all arrays and settings, which checkpoints compare."""
        return digest(self, self._A, self._b, self._C, self._t, self._Q, self._D, self._mu)

    def _with(self, change: Callable[[Array], Array], clients: slice | np.ndarray | None = None) -> Quadratic:
        changed = copy.copy(self)
        for name in ("_A", "_b", "_C", "_t", "_Q", "_D"):
            if getattr(self, name) is not None:
                setattr(changed, name, change(getattr(self, name)))
        return changed

    def _outer(self, gap: Array) -> Array:
        return gap if self._Q is None else matvec(self._Q, gap, xp=self._xp)

    def _transposed(self, matrix: Array, lam: Array) -> Array:
        return matvec(self._xp.matrix_transpose(matrix), lam, xp=self._xp)

    def jacobian_norms(self, x: Array, lam: Array) -> np.ndarray:
        """Upper bounds on ‖C_i‖.  # (n,) on the host"""
        return rounding.spectral_norms(constants.host(self._C))

    def lipschitz(self, lam: Array) -> Lipschitz | None:
        """ν_H = ν_J = 0, ν_fx = ‖Q‖, ν_fλ = ‖D‖, modulus λ_min(mean A_i), with rounding included."""
        norm = {name: 0.0 if a is None else float(rounding.spectral_norms(constants.host(a)).max())
                for name, a in (("Q", self._Q), ("D", self._D))}  # fmt: skip
        A = constants.host(self._A) / self.n_clients  # before the sum, which may overflow
        error = rounding.mean_accuracy(self.n_clients) * float(rounding.norms(A.reshape(len(A), -1)).sum())
        return constants.representable(
            nu_flam=norm["D"],
            nu_fx=1.0 if self._Q is None else norm["Q"],
            nu_J=0.0,
            nu_H=0.0,
            strong_convexity=constants.positive_modulus(float(rounding.lowest_eigenvalues(rounding.total(A))) - error),
            holds_apart=True,
        )


class QuadraticLinearization:
    """hvp(u) = A_i u_i and cross(u) = C_i u_i."""

    def __init__(self, problem: Quadratic, lead: tuple[int, ...]) -> None:
        self._problem, self._lead = problem, lead

    def hvp(self, u: Array) -> Array:
        """A_i u_i.  # (n, d_x)"""
        A, b = self._problem._A, self._problem._b
        if type(u) is np.ndarray and (u.shape, u.dtype, self._lead) == (b.shape, b.dtype, ()):
            return (A @ u[..., None])[..., 0]  # the common case
        return self._apply(A, u)

    def cross(self, u: Array) -> Array:
        """C_i u_i.  # (n, d_λ)"""
        return self._apply(self._problem._C, u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """A_i u_i and C_i u_i."""
        return self.hvp(u), self.cross(u)

    def _apply(self, matrix: Array, u: Array) -> Array:
        p = self._problem
        lead = check_argument("u", u, p._A, (p.n_clients, p.dim_x), "n_clients, dim_x")
        return expand(matvec(matrix, u, xp=p._xp), run_axes(point=self._lead, u=lead), 2, xp=p._xp)


def _check_symmetric(name: str, a: Array, xp: Namespace) -> None:
    gap, size = xp.max(xp.abs(a - xp.matrix_transpose(a))), xp.max(xp.abs(a))
    gap, size = float(to_host(gap)), float(to_host(size))
    if gap > 100 * float(xp.finfo(a.dtype).eps) * size:
        raise ValueError(f"{name} must be symmetric for every client, got |{name} - {name}^T| up to {gap:.3g}")


# ----------------------------------------------------------------------------------------------------------- term sizes
#
# The cost functions with absolute values in place of numbers, each term multiplied by its number of roundings. x − t
# rounds once; everything else is sums of products. A product with a matrix of d columns has d roundings in any order.
# Underflow is gradual: it adds at most u times the smallest normal number for every product.


def quadratic_sizes(problem: Quadratic, x: Array, lam: Array) -> TermSizes:
    """The sizes at x (n, d_x) and lam (n, d_λ)."""
    xp, p, d, k = problem._xp, problem, problem.dim_x, problem.dim_lam
    K = 2 * (d + k) + 16  # at least the roundings of every term below
    tiny = K * float(np.finfo(host_dtype(x)).smallest_normal)
    abs_x, abs_lam = xp.abs(x), xp.abs(lam)
    gap, mu = xp.abs(x - p._t), abs(p._mu)
    A, C, b = xp.abs(p._A), xp.abs(p._C), xp.abs(p._b)

    def times(matrix: Array, u: Array) -> Array:
        return matvec(matrix, u, xp=xp) + tiny

    def transposed(matrix: Array, u: Array) -> Array:
        return matvec(xp.matrix_transpose(matrix), u, xp=xp) + tiny

    def dot(a: Array, c: Array) -> Array:
        return xp.sum(a * c, axis=-1) + tiny

    Q_gap = gap if p._Q is None else times(xp.abs(p._Q), gap)
    Q_roundings = 0 if p._Q is None else d  # of the product with Q
    inner_cost = (2 * d + 4) * dot(0.5 * times(A, abs_x) + b, abs_x) + (d + k + 3) * dot(abs_lam, times(C, abs_x))
    inner_grad = (d + 2) * times(A, abs_x) + 2 * b + (k + 2) * transposed(C, abs_lam)
    outer_cost = (d + Q_roundings + 5) * dot(0.5 * gap, Q_gap) + 0.5 * mu * (k + 5) * dot(abs_lam, abs_lam)
    f_x, f_lam = (Q_roundings + 2) * Q_gap, 3 * mu * abs_lam + tiny
    if p._D is not None:
        D = xp.abs(p._D)
        outer_cost = outer_cost + (d + k + 3) * dot(abs_lam, times(D, abs_x))
        f_x = f_x + (k + 2) * transposed(D, abs_lam)
        f_lam = f_lam + (d + 2) * times(D, abs_x)
    return TermSizes(
        roundings=K,
        inner_cost=inner_cost / K,
        inner_grad=inner_grad / K,
        outer_cost=(outer_cost + tiny) / K,
        outer_grad=(f_x / K, f_lam / K),
        hvp=lambda u: d * times(A, xp.abs(u)) / K,
        cross=lambda u: d * times(C, xp.abs(u)) / K,
    )
