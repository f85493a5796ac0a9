"""The data of a certificate at (x, λ), computed once for all runs that end there.

    ᾱ ≤ λ_min(H̄),    β_i ≥ ‖J_i‖,    γ_i ≥ ‖J_i H̄⁻¹‖,    ḡ = mean_i ∂_x f_i,    H̄ = mean_i H_i

with H_i = ∂²_x g_i and J_i = ∂²_{xλ} g_i. `DensePoint` forms all H_i and J_i; `MatrixFreePoint` uses products only.
The constructor computes what each client knows alone. `compute_means` adds what needs all clients, and is not called
where the clients live in several processes.

Rounding. A problem with `term_sizes` returns s ≥ Σ|terms| for the sums that it computes, entry by entry, so its
gradients and products are known up to γ s, even where terms cancel. The norms of these errors are called e_f for ∂f_i,
e_H for H_i (Frobenius norm) and so on. For a problem without `term_sizes` we assume a relative error of

    E = 4 (d_x + 4) eps        (eps of the problem's dtype),

e_f = E ‖∂f_i‖ and e_H = E ‖H_i‖_F. Cancelling sums may round by more, so the certificate then states that their
rounding is not included. The certificate's own arithmetic has relative error a ≤ (d_x + 8) eps64 + the rounding of a
mean over clients. Hence H̄ is known up to mean_i e_H + a H with H² = mean_i ‖H_i‖_F², and ḡ − H̄w up to
mean_i (e_f + e_H ‖w‖) + a (mean_i ‖∂_x f_i‖ + H ‖w‖). `tiny` bounds the absolute error from underflow.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64, to_host, unit_vectors
from hgp_ref.methods.spectrum import extremes
from hgp_ref.philox import check_seed
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.term_sizes import TermSizes, allowance

CHUNK_NUMBERS = 2**23  # numbers in a chunk of client matrices
PROBES = 8  # random products behind the sizes of H_i and J_i in matrix-free form

NOT_INCLUDED = "the rounding of the problem's own sums is not included: it offers no term_sizes(x, lam)"
INCLUDED = (
    "the rounding of the problem's own sums is included: sums in any order, products rounded in the dtype of x, exp "
    "and log accurate to 4 units in the last place, gradual underflow"
)


COLUMNS = 64  # that are moved to the host together


def host_copies(name: str, outputs: Iterable[Array], shape: tuple[int, ...]) -> np.ndarray:
    """`host_copy` of each of the outputs, (outputs, *shape), in one transfer."""
    copies = [array_namespace(a).asarray(validation.returned_array(name, a, shape), copy=True) for a in outputs]
    return host_copy(name, array_namespace(copies[0]).stack(copies), (len(copies), *shape))


def host_copy(name: str, output: Array, shape: tuple[int, ...]) -> np.ndarray:
    """A finite float64 copy of what the problem's `name` returned; a problem may reuse its output array."""
    host = np.array(to_host(validation.returned_array(name, output, shape)), dtype=np.float64)
    if not np.all(np.isfinite(host)):
        raise ValueError(f"problem: {name} must return finite numbers, got NaN or infinite values")
    return host


class RoundingErrors:
    """Bounds on |computed − exact| of a problem's outputs at (x, λ), from its `term_sizes`.

    All are (n,): norms of each client's error in ∂_x f_i (`f_x`), ∂_λ f_i (`f_lam`), ∂_x g_i (`inner_grad`), f_i
    (`outer_cost`); and (vectors, n) for H_i u_i (`hvp`) and J_i u_i (`cross`) of several vectors u.
    """

    def __init__(self, problem: FullProblem, x: Array, lam: Array) -> None:
        assert problem.term_sizes is not None
        sizes: Any = problem.term_sizes(x, lam)
        if not isinstance(sizes, TermSizes):
            raise TypeError(
                f"problem: term_sizes(x, lam) must return a hgp_ref.problems.TermSizes, got {type(sizes).__name__}"
            )
        self.sizes: TermSizes = sizes
        roundings = validation.integer("problem: term_sizes(x, lam).roundings", sizes.roundings, 1, validation.LONGEST)
        self.factor = allowance(roundings, float(np.finfo(host_dtype(x)).eps))  # γ
        if not np.isfinite(self.factor):
            raise ValueError(
                f"problem: sums of {roundings} roundings have no correct digit in {host_dtype(x)}; use a dtype with "
                "more digits"
            )
        self.shape_x, self.shape_lam = tuple(x.shape), tuple(lam.shape)

    @property
    def f_x(self) -> np.ndarray:
        return self._norms("outer_grad[0]", [self.sizes.outer_grad[0]], self.shape_x)[0]

    @property
    def f_lam(self) -> np.ndarray:
        return self._norms("outer_grad[1]", [self.sizes.outer_grad[1]], self.shape_lam)[0]

    @property
    def inner_grad(self) -> np.ndarray:
        return self._norms("inner_grad", [self.sizes.inner_grad], self.shape_x)[0]

    @property
    def outer_cost(self) -> np.ndarray:
        return self._norms("outer_cost", [self.sizes.outer_cost], self.shape_x[:1])[0]

    def hvp(self, vectors: Iterable[Array]) -> np.ndarray:
        return self._norms("hvp(u)", map(self.sizes.hvp, vectors), self.shape_x)

    def cross(self, vectors: Iterable[Array]) -> np.ndarray:
        return self._norms("cross(u)", map(self.sizes.cross, vectors), self.shape_lam)

    def _norms(self, name: str, sizes: Iterable[Array], shape: tuple[int, ...]) -> np.ndarray:
        host = host_copies(f"term_sizes(x, lam).{name}", sizes, shape)
        if np.any(host < 0):
            raise ValueError(f"problem: term_sizes(x, lam).{name} must be >= 0, got negative entries")
        if len(shape) == 1:
            return self.factor * host
        return self.factor * rounding.norms(host) * (1 + rounding.norm_accuracy(shape[1]))


def rounding_errors(problem: FullProblem, x: Array, lam: Array) -> RoundingErrors | None:
    """The `RoundingErrors` of a problem with `term_sizes`; None without."""
    return None if problem.term_sizes is None else RoundingErrors(problem, x, lam)


# ------------------------------------------------------------------------------------ Hessians and Jacobians of clients


def to_backend(u: np.ndarray, like: Array) -> Array:
    """The host array u in the library and dtype of `like`."""
    return from_host(u.astype(host_dtype(like)), like=like)


class ClientOperators:
    """Linear maps A_i of all clients, their H_i or J_i, by products with vectors.

        sizes    ‖A_i‖_F, (n,)
        errors   bounds on the Frobenius norms of the rounding errors of A_i as it is evaluated, (n,)

    `errors_of` bounds the rounding errors of products; without it, the relative error of A_i is assumed to be at most
    `accuracy`. Arrays u may have leading run axes.
    """

    def __init__(
        self,
        name: str,
        product: Callable[[Array], Array],
        errors_of: Callable[[Iterable[Array]], np.ndarray] | None,
        accuracy: float,
        x: Array,
        rows: int,
    ) -> None:
        self.name, self.product, self.errors_of, self.accuracy = name, product, errors_of, accuracy
        self.x, self.shape = x, (x.shape[0], rows)
        self.sizes, self.errors = self._measure()

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """A_i u_i for a host array u (..., n, d)."""
        outputs = np.empty((*u.shape[:-2], *self.shape))
        for run in np.ndindex(u.shape[:-2]):
            outputs[run] = host_copy(self.name, self.product(to_backend(u[run], self.x)), self.shape)
        return outputs

    def error(self, u: np.ndarray) -> np.ndarray:
        """Bounds on the rounding errors of A_i u_i, (..., n)."""
        if self.errors_of is None:
            return self.accuracy * self.sizes * rounding.norms(u)
        runs, errors = u.reshape(-1, *u.shape[-2:]), np.empty((u[..., 0, 0].size, u.shape[-2]))
        for first in range(0, len(runs), COLUMNS):
            some = slice(first, first + COLUMNS)
            errors[some] = self.errors_of(to_backend(run, self.x) for run in runs[some])
        return errors.reshape(u.shape[:-1])

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """`sizes`, estimated by ‖A‖_F² = E‖Az‖² over random signs z and doubled, and `errors`.

        Term sizes are linear in |u|, so S1, the sizes for a vector of ones, holds the row sums of S ≥ |error of A_i|,
        and ‖S‖_F ≤ ‖S1‖.
        """
        n, d = self.x.shape
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(PROBES, d))
        lengths = np.stack([rounding.norms(self(np.tile(z, (n, 1)))) for z in signs], axis=1)
        sizes = 2 * rounding.norms(lengths) / np.sqrt(PROBES)
        return sizes, self.accuracy * sizes if self.errors_of is None else self.error(np.ones((n, d)))


class ClientMatrices(ClientOperators):
    """Linear maps A_i with their matrices, as columns (d, n, rows) from d products with unit vectors."""

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """Form `columns`; `sizes` and `errors` from them."""
        n, d = self.x.shape
        self.columns = np.empty((d, *self.shape), dtype=host_dtype(self.x))
        lengths, errors = np.empty((n, d)), np.empty((n, d))
        for first in range(0, d, COLUMNS):
            some = range(first, min(d, first + COLUMNS))
            products = (self.product(unit_vectors(k, self.x)) for k in some)
            columns = host_copies(self.name, products, self.shape)
            self.columns[some.start : some.stop] = columns
            for k, column in zip(some, columns, strict=True):
                lengths[:, k] = rounding.norms(column)
            if self.errors_of is not None:
                errors[:, some.start : some.stop] = self.errors_of(unit_vectors(k, self.x) for k in some).T
        sizes = rounding.norms(lengths)
        if self.errors_of is None:
            return sizes, self.accuracy * sizes
        return sizes, rounding.norms(errors) * (1 + rounding.norm_accuracy(d))

    def mean(self) -> np.ndarray:
        """mean_i A_i, (rows, d)."""
        return np.stack([rounding.mean(column.astype(np.float64)) for column in self.columns], axis=1)

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`function` of the matrices A_i, applied to chunks (chunk, rows, d) of clients to save memory."""
        d, n, rows = self.columns.shape
        size = max(1, CHUNK_NUMBERS // (rows * d))
        outputs = []
        for first in range(0, n, size):
            outputs.append(function(np.moveaxis(self.columns[:, first : first + size], 0, 2).astype(np.float64)))
        return np.concatenate(outputs)


# ------------------------------------------------------------------------------------------------ both kinds of point


class Point(ABC):
    """Gradients and second derivatives at (x, λ). Subclasses provide ᾱ, β_i, γ_i and products with H̄.

    `n_total` is the number of clients in all processes. Arrays w may have leading run axes.
    """

    alpha_bar: float  # ≤ λ_min(H̄), positive
    alpha_top: float  # ≥ λ_min(H̄)
    g_bar: np.ndarray  # ḡ, (d,)
    H: ClientOperators
    J: ClientOperators
    beta: np.ndarray  # (n,), ≥ ‖J_i‖
    beta_inverse: np.ndarray | None  # (n,), γ_i ≥ ‖J_i H̄⁻¹‖
    H_scale: float  # √(mean_i ‖H_i‖_F²)
    H_mean_error: float  # ≥ ‖mean_i of the errors of H_i‖
    matrix_free = False
    notes: tuple[str, ...] = ()  # assumptions behind the numbers above

    def __init__(self, problem: FullProblem, x: Array, lam: Array, n_total: int | None = None) -> None:
        self.problem, self.x, self.lam = problem, x, lam
        self.n, self.d = int(problem.n_clients), int(problem.dim_x)
        f_x, f_lam = problem.outer_grad(x, lam)
        self.f_x = host_copy("outer_grad(x, lam)[0]", f_x, (self.n, self.d))
        self.f_lam = host_copy("outer_grad(x, lam)[1]", f_lam, (self.n, int(problem.dim_lam)))
        dtype = np.finfo(host_dtype(x))
        self.eps, self.tiny = float(dtype.eps), float(dtype.smallest_subnormal) * self.d
        self.accuracy = 4 * (self.d + 4) * self.eps  # E
        self.errors = rounding_errors(problem, x, lam)
        hvp_errors, cross_errors = (None, None) if self.errors is None else (self.errors.hvp, self.errors.cross)
        if self.errors is None:
            self.f_x_error = self.accuracy * rounding.norms(self.f_x)
            self.f_lam_error = self.accuracy * rounding.norms(self.f_lam)
        else:
            self.f_x_error, self.f_lam_error = self.errors.f_x, self.errors.f_lam
        linear, operators = problem.linearize(x, lam), ClientOperators if self.matrix_free else ClientMatrices
        self.H = operators("hvp(u)", linear.hvp, hvp_errors, self.accuracy, x, self.d)
        self.J = operators("cross(u)", linear.cross, cross_errors, self.accuracy, x, self.f_lam.shape[1])
        self.rounding_complete = self.errors is not None  # whether the rounding of the problem's own sums is included
        self.arithmetic = (self.d + 8) * rounding.EPS + rounding.mean_accuracy(n_total or self.n)  # a
        self.slack = 1 + (2 * self.d + 32) * rounding.EPS  # for norms, and the few products that make a bound of them

    def compute_means(self) -> None:
        """Compute ḡ, ᾱ and whatever else needs all clients; ValueError unless ᾱ > 0."""
        self.g_bar = rounding.mean(self.f_x)
        self.H_scale = rounding.norm(self.H.sizes / np.sqrt(self.n))
        self.H_mean_error = self.accuracy * self.H_scale if self.errors is None else float(np.mean(self.H.errors))

    @abstractmethod
    def mean_products(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """H̄ u for the rows u of w (..., n, d), and bounds on what the rounding of the H_i adds to it, (..., n)."""

    def residuals(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ḡ − H̄ u for the rows u of w (..., n, d), and bounds on the rounding error, (..., n)."""
        products, error = self.mean_products(w)
        sizes = float(np.mean(rounding.norms(self.f_x))) + self.H_scale * rounding.norms(w)
        error = float(np.mean(self.f_x_error)) + error + self.arithmetic * sizes + self.tiny
        return self.g_bar - products, error

    @abstractmethod
    def solution(self, w: np.ndarray) -> np.ndarray:
        """A vector near w* = H̄⁻¹ ḡ, (d,), given the w (n, d) of a run."""

    def identity(self, r: np.ndarray) -> np.ndarray | None:
        """‖J_i H̄⁻¹ r_i‖, (..., n); None in matrix-free form."""
        return None

    def curvature(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Each client's bounds below λ_min(H_i) and above λ_max(H_i), (n,) each; None in matrix-free form."""
        return None

    def gradients(self, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """∂_x g_i at the common point `centre` (d,), (n, d), and bounds on their rounding errors, (n,)."""
        rows = to_backend(np.tile(centre, (self.n, 1)), self.x)
        gradients = host_copy("inner_grad(x, lam)", self.problem.inner_grad(rows, self.lam), self.f_x.shape)
        if self.errors is None:
            return gradients, self.accuracy * rounding.norms(gradients)
        return gradients, RoundingErrors(self.problem, rows, self.lam).inner_grad

    def rounded(self, u: np.ndarray) -> np.ndarray:
        """u rounded to the problem's dtype, as clients will use it."""
        return u.astype(host_dtype(self.x)).astype(np.float64)


# -------------------------------------------------------------------------------------------------- explicit matrices


class DensePoint(Point):
    """A point with explicit matrices.

        ᾱ          λ_min of the computed H̄ by `rounding`, less the error of its entries, mean_i e_H + a H
        β_i        largest singular value of J_i, plus e_J
        ‖J_iH̄⁻¹‖   with X ≈ H̄⁻¹ and ε ≥ ‖I − H̄X‖: J H̄⁻¹ = JX + J H̄⁻¹(I − H̄X), so ‖J H̄⁻¹‖ ≤ ‖JX‖/(1 − ε) if ε < 1

    An ill-conditioned H̄ therefore makes the bound larger, not wrong. With ε ≥ 1 there is no C2, and C1 remains.

    Memory 8 n d_x (d_x + d_λ) bytes in float64; time d_x products of each kind and a (d_x, d_x) eigenproblem.
    """

    H: ClientMatrices
    J: ClientMatrices

    def __init__(self, problem: FullProblem, x: Array, lam: Array, n_total: int | None = None) -> None:
        super().__init__(problem, x, lam, n_total)
        self.beta = self.J.map(rounding.spectral_norms) + self.J.errors

    def compute_means(self) -> None:
        super().compute_means()
        mean = self.H.mean()
        self.H_bar = symmetric(mean)
        self.asymmetry = rounding.norm(mean / 2 - mean.T / 2)
        self.H_bar_error = self.H_mean_error + self.asymmetry + self.arithmetic * self.H_scale + self.tiny
        if not (np.all(np.isfinite(self.H_bar)) and np.isfinite(self.H_scale)):
            raise ValueError("the norms of the clients' Hessians overflow; rescale the problem")
        computed = float(np.linalg.eigvalsh(self.H_bar)[0])
        self.alpha_bar = float(rounding.lowest_eigenvalues(self.H_bar)) - self.H_bar_error
        self.alpha_top = computed + 4 * self.d * rounding.EPS * self.H_scale + self.H_bar_error
        if not self.alpha_bar > 0:
            raise ValueError(
                f"the mean Hessian at x must be positive definite, got a smallest eigenvalue of {computed:.3e} (known "
                f"to {self.alpha_top - self.alpha_bar:.1e}): without a unique inner minimiser there is no "
                "hyper-gradient to certify; certificates.measured_residual measures how well w solves its equation; "
                "problems.Damped(problem, mu) has a unique solution for large mu"
            )
        self.beta_inverse = self._beta_inverse()
        del self.J.columns

    def _beta_inverse(self) -> np.ndarray:
        """Bounds on ‖J_i H̄⁻¹‖, (n,); infinite if H̄ is too ill-conditioned."""
        exponent = np.frexp(np.max(np.abs(self.H_bar)))[1]
        H = np.ldexp(self.H_bar, -exponent)
        try:
            X = np.linalg.inv(H)
        except np.linalg.LinAlgError:
            return np.full(self.n, np.inf)
        size, H_error = rounding.norm(X), float(np.ldexp(self.H_bar_error, -exponent))
        epsilon = rounding.norm(np.eye(self.d) - H @ X)
        epsilon += ((self.d + 3) * rounding.EPS * rounding.norm(H) + H_error) * size
        if not epsilon < 1:
            return np.full(self.n, np.inf)
        JX = self.J.map(lambda J: rounding.spectral_norms(J @ X))
        JX += ((self.d + 3) * rounding.EPS * self.J.sizes + self.J.errors) * size
        return np.ldexp(JX / (1 - epsilon) * (1 + 4 * rounding.EPS), -exponent)

    def mean_products(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes = rounding.norms(w)
        return w @ self.H_bar, self.H_mean_error * sizes + self.asymmetry * sizes

    def solution(self, w: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.H_bar, self.g_bar)

    def identity(self, r: np.ndarray) -> np.ndarray:
        columns = np.linalg.solve(self.H_bar, np.swapaxes(r, -1, -2))
        return rounding.norms(self.J(np.swapaxes(columns, -1, -2)))

    def curvature(self) -> tuple[np.ndarray, np.ndarray]:
        low = self.H.map(lambda H: rounding.lowest_eigenvalues(symmetric(H))) - self.H.errors
        return low, self.H.map(lambda H: rounding.highest_eigenvalues(symmetric(H))) + self.H.errors


def symmetric(A: np.ndarray) -> np.ndarray:
    """The symmetric part of A (..., d, d)."""
    return A / 2 + np.swapaxes(A, -1, -2) / 2


# ------------------------------------------------------------------------------------- a smallest eigenvalue by Lanczos
#
# k steps of Lanczos from a random direction give Ritz values θ_1 ≤ … ≤ θ_k. As Rayleigh quotients they lie inside the
# spectrum, so θ_1 ≥ λ_min is certain. The reverse is not: an eigenvector almost orthogonal to the start is never seen.
# Kuczyński and Woźniakowski (SIAM J. Matrix Anal. Appl. 13, 1992, Theorem 4; Krylov spaces are invariant under shifts,
# so it bounds the spread λ_max − λ_min) show that over the random start, for any 0 < ε < 1,
#
#     P[θ_1 − λ_min > ε (λ_max − λ_min)] ≤ 1.648 √d exp(−√ε (2k − 1)),       likewise at the other end.
#
# With ε at which both ends fail together with probability p at most, λ_max − λ_min ≤ (θ_k − θ_1)/(1 − 2ε) and
#
#     λ_min ≥ θ_1 − ε (θ_k − θ_1)/(1 − 2ε)        with probability 1 − p.
#
# The probability is over the start, for a matrix that does not depend on it. Whoever makes the matrix must therefore
# not know the start: its seed is drawn from the operating system for every certificate, which records it.

FAILURE = 1e-6  # p
STEPS = 200  # k for a bound from below
FEW_STEPS = 16  # k for a bound from above


@dataclass(frozen=True)
class Lanczos:
    """Ask `certify(strong_convexity=Lanczos())` for a lower bound that holds with probability 1 − 1e-6.

    The probability is over the random start of the iteration, for a Hessian that does not depend on it.
    `strong_convexity="lanczos"` is the same.

    Parameters
    ----------
    seed : of the start. By default every certificate draws one from the operating system and records it. Pass a
        recorded seed to repeat a certificate. A seed chosen after looking at the Hessian voids the probability.

    Examples
    --------
    >>> hgp.certificates.Lanczos(seed=3)
    Lanczos(seed=3)
    """

    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed(self.seed)


def ritz_range(product: Callable[[np.ndarray], np.ndarray], d: int, steps: int, seed: int) -> tuple[float, float]:
    """θ_1 and θ_k of u ↦ product(u) for vectors (d,), from a random start; k ≤ min(steps, d)."""
    start = np.random.default_rng(seed).standard_normal((1, d))
    low, high = extremes(lambda u: product(u[0])[None], start, steps, reorthogonalise=True)
    return float(low[0]), float(high[0])


def lowest_with_probability(ritz: tuple[float, float], d: int, steps: int) -> float:
    """A lower bound on λ_min that holds with probability 1 − `FAILURE`; −∞ if `steps` are too few."""
    epsilon = (math.log(1.648 * math.sqrt(d) * 2 / FAILURE) / (2 * steps - 1)) ** 2
    if epsilon >= 0.5:
        return -math.inf
    return ritz[0] - epsilon * (ritz[1] - ritz[0]) / (1 - 2 * epsilon)


# -------------------------------------------------------------------------------------------------------- products only


class MatrixFreePoint(Point):
    """A point for large d_x, where matrices would not fit.

        ᾱ    must be known: given, or the strong convexity that the problem states (from the L2 rates of a built-in
             one), because products alone prove nothing about λ_min; or, on request, by `Lanczos` with probability
             1 − 1e-6
        β_i  from the problem's `jacobian_norms`, else from the columns J_i e_k, one at a time:
             ‖J‖ ≤ min(‖J‖_F, √(‖J‖₁ ‖J‖_∞)), which is sharp for diagonal J

    Memory is a few arrays (n, d_x); time d_x cross products unless the problem has `jacobian_norms`, and 24
    Hessian-vector products. ‖H_i‖_F and ‖J_i‖_F matter only for rounding, and are estimated.
    """

    beta_inverse = None
    matrix_free = True

    def __init__(
        self,
        problem: FullProblem,
        x: Array,
        lam: Array,
        n_total: int | None = None,
        *,
        strong_convexity: float | Lanczos | None,
        nu: Lipschitz | None,
    ) -> None:
        super().__init__(problem, x, lam, n_total)
        self.strong_convexity, self.nu = strong_convexity, nu
        self.beta = self._jacobian_norms() * (1 + self.accuracy)
        if self.rounding_complete:
            self.beta += self.J.errors

    def _jacobian_norms(self) -> np.ndarray:
        if self.problem.jacobian_norms is None:
            return self._norms_by_columns()
        output = self.problem.jacobian_norms(self.x, self.lam)
        norms: Any = to_host(validation.returned_array("jacobian_norms(x, lam)", output, (self.n,)))
        if not np.all(norms >= 0) or not np.all(np.isfinite(norms)):
            raise ValueError(
                "problem: jacobian_norms(x, lam) must return finite numbers >= 0, got a norm that is "
                "negative or not finite"
            )
        return np.array(norms, dtype=np.float64)

    def _norms_by_columns(self) -> np.ndarray:
        """min(‖J_i‖_F, √(‖J_i‖₁ ‖J_i‖_∞)), (n,)."""
        lengths, column_sums, row_sums = np.empty((self.n, self.d)), np.zeros(self.n), np.zeros(self.f_lam.shape)
        for k in range(self.d):
            column = np.abs(self.J(to_host(unit_vectors(k, self.x))))  # (n, d_lam)
            lengths[:, k] = rounding.norms(column)
            column_sums = np.maximum(column_sums, column.sum(axis=1))
            row_sums += column
        mixed = np.sqrt(column_sums) * np.sqrt(row_sums.max(axis=1))
        return np.minimum(rounding.norms(lengths), mixed) * (1 + self.arithmetic)

    def compute_means(self) -> None:
        super().compute_means()
        self.H_bar_error = self.H_mean_error + self.arithmetic * self.H_scale + self.tiny
        lanczos = self.strong_convexity if isinstance(self.strong_convexity, Lanczos) else None
        seed, steps = 0, FEW_STEPS  # θ_1 ≥ λ_min for every seed
        if lanczos is not None:
            seed, steps = secrets.randbits(64) if lanczos.seed is None else lanczos.seed, STEPS
        ritz = ritz_range(self._mean_product, self.d, steps, seed)
        self.alpha_top = ritz[0] + self.H_bar_error
        self.alpha_bar = self._known_modulus() if lanczos is None else self._probable_modulus(ritz, seed)

    def _known_modulus(self) -> float:
        """The largest known lower bound on λ_min of mean_i H_i(x_i)."""
        known, nu = [] if self.strong_convexity is None else [float(self.strong_convexity)], self.nu  # type: ignore
        if nu is not None and nu.strong_convexity is not None:
            x = host_float64(self.x)
            gap = 0.0 if nu.holds_apart else float(rounding.norms(x - x.mean(axis=0)).mean())
            known.append(nu.strong_convexity - nu.nu_H * gap)
        if not known or not max(known) > 0:
            raise ValueError(
                f"strong_convexity must be known for d_x={self.d}, where the mean Hessian is not formed, got None: "
                "pass a lower bound on its smallest eigenvalue (such as the L2 rate of a convex cost, but not that of "
                "a neural network), or strong_convexity='lanczos' for a bound that "
                f"holds with probability {1 - FAILURE:.6f}, or matrix_free=False, which takes "
                f"{8 * self.n * self.d * (self.d + self.f_lam.shape[1]) / 2**30:.1f} GiB; "
                "certificates.measured_residual needs no such bound, but does not bound the error"
            )
        return max(known)

    def _probable_modulus(self, ritz: tuple[float, float], seed: int) -> float:
        low = lowest_with_probability(ritz, self.d, STEPS) - self.H_bar_error
        self.notes = (
            f"smallest eigenvalue of the mean Hessian at least {low:.3e}: {STEPS} steps of Lanczos from a "
            f"random start, Lanczos(seed={seed}), wrong with probability {FAILURE:g} over the draw of the "
            "seed, for a Hessian that does not depend on it",
        )
        if not low > 0:
            raise ValueError(
                f"strong_convexity='lanczos': {STEPS} steps only show that the smallest eigenvalue of the mean Hessian "
                f"is between {low:.3e} and {self.alpha_top:.3e}, which may be <= 0; pass a lower bound that you know"
            )
        return low

    def _mean_product(self, u: np.ndarray) -> np.ndarray:
        """H̄ u for u (d,)."""
        return rounding.mean(self.H(np.tile(u, (self.n, 1))))

    def mean_products(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        products = np.stack([self._mean_product(row) for row in w.reshape(-1, self.d)]).reshape(w.shape)
        if self.errors is None:
            return products, self.H_mean_error * rounding.norms(w)
        largest = np.abs(w).max(axis=-2, keepdims=True)  # of all rows of a run
        errors = self.H.error(np.broadcast_to(largest, (*w.shape[:-2], self.n, self.d)))
        return products, np.broadcast_to(np.mean(errors, axis=-1, keepdims=True), w.shape[:-1])

    def solution(self, w: np.ndarray) -> np.ndarray:
        return w.mean(axis=0)
