"""What a problem returns, as a certificate keeps it: copied, on the host, in float64, finite."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref import rounding as rigorous
from hgp_ref.backend import Array, from_host, host_dtype, host_float64, to_host
from hgp_ref.philox import check_seed
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.base import Normalised, closed_form
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.term_sizes import TermSizes, allowance


def host_copy(name: str, given: Array, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of what the problem's `name` returned: a problem may write its next answer into the same array."""
    host = np.array(to_host(validation.returned_array(name, given, shape)), dtype=np.float64)
    if not np.all(np.isfinite(host)):
        raise ValueError(f"problem: {name} returned NaN or infinite values, needed finite numbers")
    return host


# ----------------------------------------------------------------------------------------------------
# Every client's H_i or J_i from products with unit vectors, and norms of them in chunks of clients.
#
# Nothing of size n × n or nd × nd is formed: d products over all clients at once, in the library of the problem, give
# the columns A_i e_k, which are copied to the host (a problem may reuse its output) and meet each other there.


CHUNK_NUMBERS = 2**23  # numbers of a chunk of client matrices on the host


class ClientMatrices:
    """A_i for all clients as columns (d, n, rows) in the problem's dtype on the host."""

    def __init__(self, name: str, product: Callable[[Array], Array], x: Array, rows: int) -> None:
        n, d = x.shape
        self.columns = np.empty((d, n, rows), dtype=host_dtype(x))
        for k in range(d):
            self.columns[k] = host_copy(name, product(unit_vectors(k, x)), (n, rows))

    def mean(self) -> np.ndarray:
        """mean_i A_i, (rows, d)."""
        return np.stack([rounding.mean(column.astype(np.float64)) for column in self.columns], axis=1)

    def sizes(self) -> np.ndarray:
        """‖A_i‖_F, (n,)."""
        return rounding.norms(np.stack([rounding.norms(column.astype(np.float64)) for column in self.columns], axis=1))

    def over_clients(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`function` of (chunk, rows, d) for successive chunks of clients, its answers one after the other."""
        return np.concatenate([function(chunk) for chunk in self._chunks()])

    def _chunks(self) -> Iterator[np.ndarray]:
        d, n, rows = self.columns.shape
        size = max(1, CHUNK_NUMBERS // (rows * d))
        for first in range(0, n, size):
            yield np.moveaxis(self.columns[:, first : first + size], 0, 2).astype(np.float64)


def unit_vectors(k: int, x: Array) -> Array:
    """The k-th unit vector for every client, beside `x` (n, d)."""
    unit = np.zeros(x.shape, dtype=host_dtype(x))
    unit[:, k] = 1.0
    return from_host(unit, like=x)


def symmetric(A: np.ndarray) -> np.ndarray:
    """The symmetric part of A (..., d, d)."""
    return A / 2 + np.swapaxes(A, -1, -2) / 2


# ----------------------------------------------------------------------------------------------------
# Extreme eigenvalues of a symmetric matrix that is only known by its products.
#
# k steps of Lanczos from a random direction give Ritz values θ_1 ≤ … ≤ θ_k. As Rayleigh quotients they lie inside the
# spectrum: θ_1 ≥ λ_min is certain, the reverse is not — a small eigenvalue whose vector is almost orthogonal to the
# start
# is never seen. What can be said (Kuczyński and Woźniakowski, SIAM J. Matrix Anal. Appl. 13, 1992, Theorem 4; Krylov
# spaces do not feel a shift, so it speaks of the spread λ_max − λ_min): over the random start, for any 0 < ε < 1,
#
#     P[θ_1 − λ_min > ε (λ_max − λ_min)] ≤ 1.648 √d exp(−√ε (2k − 1)),       likewise at the other end.
#
# With ε at which both ends fail together with probability p at most, λ_max − λ_min ≤ (θ_k − θ_1)/(1 − 2ε) and
#
#     λ_min ≥ θ_1 − ε (θ_k − θ_1)/(1 − 2ε)        with probability 1 − p.
#
# The probability is over the start alone, for a matrix that does not depend on it. A matrix whose weak direction is
# orthogonal to the start is never found out, so that the start must not be known where the matrix is made: by default
# its
# seed is drawn from the operating system for every certificate, which records it.


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
    seed : int, optional
        Of the start. By default every certificate draws one from the operating system and records it. Give a recorded
        seed to repeat a certificate; a seed that was chosen after looking at the Hessian voids the probability.

    Raises
    ------
    TypeError, ValueError
        `seed` must be an integer from 0 to 2^64 − 1.

    Examples
    --------
    >>> hgp.certificates.Lanczos(seed=3)
    Lanczos(seed=3)
    """

    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed(self.seed)


def drawn_seed(asked: Lanczos) -> int:
    """The seed, a new one if none was given."""
    return secrets.randbits(64) if asked.seed is None else asked.seed


def ritz_values(product: Callable[[np.ndarray], np.ndarray], d: int, steps: int, seed: int) -> np.ndarray:
    """θ_1 ≤ … ≤ θ_k of u ↦ product(u) for vectors (d,), with full reorthogonalisation; k ≤ min(steps, d)."""
    q = np.random.default_rng(seed).standard_normal(d)
    basis = np.empty((min(steps, d), d))
    diagonal: list[float] = []
    beside: list[float] = []
    for k in range(len(basis)):
        basis[k] = q / rigorous.norm(q)
        q = product(basis[k])
        diagonal.append(float(basis[k] @ q))
        for _ in range(2):  # once more, for what the first pass left by rounding
            q = q - basis[: k + 1].T @ (basis[: k + 1] @ q)
        length = rigorous.norm(q)
        if length <= d * rigorous.EPS * max(map(abs, diagonal)):  # an invariant space: nothing more to be found
            break
        beside.append(length)
    k = len(diagonal)
    T = np.diag(diagonal) + np.diag(beside[: k - 1], 1) + np.diag(beside[: k - 1], -1)
    return np.linalg.eigvalsh(T)


def lowest_with_probability(ritz: np.ndarray, d: int, steps: int) -> float:
    """λ_min is no smaller with probability 1 − `FAILURE`; −∞ where `steps` are too few to say anything."""
    epsilon = (math.log(1.648 * math.sqrt(d) * 2 / FAILURE) / (2 * steps - 1)) ** 2
    if epsilon >= 0.5:
        return -math.inf
    return float(ritz[0] - epsilon * (ritz[-1] - ritz[0]) / (1 - 2 * epsilon))


# ----------------------------------------------------------------------------------------------------
# What rounding may do to the answers of a problem, client by client, from the sizes of the terms that it adds.


NOT_INCLUDED = "the rounding of the problem's own sums is not included: it offers no term_sizes(x, lam)"
INCLUDED = (
    "the rounding of the problem's own sums is included: sums in any order, products rounded in the dtype of x, exp "
    "and log accurate to 4 units in the last place, gradual underflow"
)


class Allowances:
    """|computed − exact| of a problem's answers at (x, λ): norms of each client's row, (n,), from above."""

    def __init__(self, problem: Normalised, x: Array, lam: Array) -> None:
        if problem.term_sizes is None:
            raise ValueError(f"problem: {type(problem.given).__name__} offers no term_sizes(x, lam), needed here")
        given: Any = problem.term_sizes(x, lam)
        if not isinstance(given, TermSizes):
            raise TypeError(
                f"problem: term_sizes(x, lam) returned {type(given).__name__}, needed hgp_ref.problems.TermSizes"
            )
        self._sizes: TermSizes = given
        roundings = validation.integer("problem: term_sizes(x, lam).roundings", given.roundings, 1, validation.LONGEST)
        self.factor = allowance(roundings, float(np.finfo(host_dtype(x)).eps))
        if not np.isfinite(self.factor):
            raise ValueError(
                f"problem: sums of {roundings} roundings in {host_dtype(x)} may be off by more than they are; needed a "
                "dtype with more digits"
            )
        n, d, k = problem.n_clients, problem.dim_x, problem.dim_lam
        self._shapes = {"x": (n, d), "lam": (n, k), "cost": (n,)}

    def outer_grad(self) -> tuple[np.ndarray, np.ndarray]:
        """Of ∂_x f_i and of ∂_λ f_i."""
        along_x, along_lam = self._sizes.outer_grad
        return self._norms("outer_grad[0]", along_x, "x"), self._norms("outer_grad[1]", along_lam, "lam")

    def inner_grad(self) -> np.ndarray:
        """Of ∂_x g_i."""
        return self._norms("inner_grad", self._sizes.inner_grad, "x")

    def outer_cost(self) -> np.ndarray:
        """Of f_i."""
        return self.factor * self._host("outer_cost", self._sizes.outer_cost, "cost")

    def hvp(self, u: Array) -> np.ndarray:
        """Of H_i u_i."""
        return self._norms("hvp(u)", self._sizes.hvp(u), "x")

    def cross(self, u: Array) -> np.ndarray:
        """Of J_i u_i."""
        return self._norms("cross(u)", self._sizes.cross(u), "lam")

    def _host(self, name: str, given: Array, kind: str) -> np.ndarray:
        full = f"term_sizes(x, lam).{name}"
        host = host_copy(full, given, self._shapes[kind])
        if np.any(host < 0):
            raise ValueError(f"problem: {full} has negative entries, needed sizes >= 0")
        return host

    def _norms(self, name: str, given: Array, kind: str) -> np.ndarray:
        host = self._host(name, given, kind)
        return self.factor * rigorous.norms(host) * (1 + rigorous.norm_accuracy(host.shape[-1]))


def allowances(problem: Normalised, x: Array, lam: Array) -> Allowances | None:
    """Those of a problem that knows the sizes of its terms; None of one that does not."""
    return None if problem.term_sizes is None else Allowances(problem, x, lam)


# ----------------------------------------------------------------------------------------------------
# What a certificate needs to know of a problem at (x, λ), computed once for all runs that end there.
#
# Every client's own part is computed at once. What only someone who sees all clients can say (means over clients, ᾱ) is
# computed by `see_all`, which is not asked for where the clients are spread over several processes.
#
# Rounding. A problem with `term_sizes` says how large the terms are that it adds, s ≥ Σ|terms| entry by entry, so that
# its gradients and products are known to γ s: ‖γ s‖ is e_f for ∂f_i, e_H for H_i (in the Frobenius norm), and so on.
# They
# do not shrink where terms cancel. Of a problem without it, answers are taken as accurate to
#
#     E = 4 (d_x + 4) eps        (eps of the problem's dtype)
#
# relative to themselves, e_f = E ‖∂f_i‖, e_H = E ‖H_i‖_F; sums inside that cancel may round by more, and the
# certificate
# states that they are not included. With arithmetic of the certificate itself, below a ≤ (d_x + 8) eps64 + the rounding
# of a mean over clients, the mean Hessian is known up to mean_i e_H + a H with H² = mean_i ‖H_i‖_F², and a residual
# ḡ − H̄w up to mean_i (e_f + e_H ‖w‖) + a (mean_i ‖∂_x f_i‖ + H ‖w‖). Beyond the smallest numbers only absolute
# accuracy
# is left: `tiny`.


class Point(ABC):
    """Gradients and second derivatives at (x, λ); a subclass says how it comes to ᾱ, β_i and H̄ w.

    `everybody` is the number of all clients, by default those of the problem.
    """

    alpha_bar: float  # ≤ λ_min(H̄), positive
    alpha_top: float  # ≥ λ_min(H̄)
    g_bar: np.ndarray  # ḡ, (d,)
    beta: np.ndarray  # (n,), ≥ ‖J_i‖
    beta_inverse: np.ndarray | None  # (n,), ≥ ‖J_i H̄⁻¹‖
    H_sizes: np.ndarray  # (n,), ‖H_i‖_F
    J_sizes: np.ndarray  # (n,), ‖J_i‖_F
    H_off: np.ndarray  # (n,), ≥ ‖error of H_i‖_F, as it is evaluated
    J_off: np.ndarray  # (n,), ≥ ‖error of J_i‖_F
    matrix_free = False  # whether products alone are used
    notes: tuple[str, ...] = ()  # what the numbers above assume

    def __init__(self, problem: Problem, x: Array, lam: Array, everybody: int | None = None) -> None:
        self.problem, self.x, self.lam = problem, x, lam
        self.checked = checked = as_problem(problem, needs=("inner_grad", "outer_grad", "linearize"))
        self.n, self.d = int(problem.n_clients), int(problem.dim_x)
        f_x, f_lam = checked.outer_grad(x, lam)
        self.f_x = host_copy("outer_grad(x, lam)[0]", f_x, (self.n, self.d))
        self.f_lam = host_copy("outer_grad(x, lam)[1]", f_lam, (self.n, int(problem.dim_lam)))
        self.linear = checked.linearize(x, lam)
        kind = np.finfo(host_dtype(x))
        self.eps, self.tiny = float(kind.eps), float(kind.smallest_subnormal) * self.d
        self.accuracy = 4 * (self.d + 4) * self.eps  # E
        self.allowances = allowances(checked, x, lam)  # None: the sizes of the problem's terms are not known
        if self.allowances is None:
            self.f_x_off, self.f_lam_off = (self.accuracy * rigorous.norms(a) for a in (self.f_x, self.f_lam))
        else:
            self.f_x_off, self.f_lam_off = self.allowances.outer_grad()
        self.arithmetic = (self.d + 8) * rigorous.EPS + rigorous.mean_accuracy(everybody or self.n)  # a

    def see_all(self) -> None:
        """Set ᾱ and whatever else takes a look at all clients; ValueError where ᾱ is not positive."""
        self.g_bar = rigorous.mean(self.f_x)

    @abstractmethod
    def mean_products(self, w: np.ndarray) -> np.ndarray:
        """H̄ u for the rows u of w (k, d)."""

    @abstractmethod
    def solution(self, w: np.ndarray) -> np.ndarray:
        """Something near w* = H̄⁻¹ ḡ, (d,); w (n, d) is what a run found."""

    def identity(self, r: np.ndarray) -> np.ndarray | None:
        """‖J_i H̄⁻¹ r_i‖, (n,), where H̄ is at hand."""
        return None

    def curvature(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Bounds below λ_min(H_i) and above λ_max(H_i), (n,) each, which every client finds on its own."""
        return None

    @property
    def H_scale(self) -> float:
        """√(mean_i ‖H_i‖_F²)."""
        return rigorous.norm(self.H_sizes / np.sqrt(self.n))

    @property
    def complete(self) -> bool:
        """Whether the rounding of the problem's own sums is included."""
        return self.allowances is not None

    def own_rounding(self, w: np.ndarray) -> np.ndarray:
        """What rounding may add to v_i − (∂_λ f_i − J_i w_i), (n,)."""
        sizes = rigorous.norms(self.f_lam) + self.J_sizes * rigorous.norms(w)
        return self.f_lam_off + self.cross_off(w) + self.arithmetic * sizes + self.tiny

    def residual_rounding(self, w: np.ndarray) -> np.ndarray:
        """What rounding may hide of ‖ḡ − H̄ w_i‖, for rows w (k, d)."""
        sizes = float(np.mean(rigorous.norms(self.f_x))) + self.H_scale * rigorous.norms(w)
        return float(np.mean(self.f_x_off)) + self.mean_products_off(w) + self.arithmetic * sizes + self.tiny

    def mean_products_off(self, w: np.ndarray) -> np.ndarray:
        """What the rounding of the H_i may add to H̄ u, for the rows u of w (k, d)."""
        return self.H_off_mean * rigorous.norms(w)

    @property
    def H_off_mean(self) -> float:
        """≥ ‖mean_i of the errors of H_i‖."""
        return self.accuracy * self.H_scale if self.allowances is None else float(np.mean(self.H_off))

    def hvp_off(self, u: np.ndarray) -> np.ndarray:
        """What rounding may add to H_i u_i, (n,), for host arrays u (n, d)."""
        if self.allowances is None:
            return self.accuracy * self.H_sizes * rigorous.norms(u)
        return self.allowances.hvp(self.beside(u))

    def cross_off(self, u: np.ndarray) -> np.ndarray:
        """The same for J_i u_i."""
        if self.allowances is None:
            return self.accuracy * self.J_sizes * rigorous.norms(u)
        return self.allowances.cross(self.beside(u))

    def gradients_off(self, centre: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """The same for `gradients` of the inner costs at `centre`, (n,)."""
        if self.allowances is None:
            return self.accuracy * rigorous.norms(gradients)
        return Allowances(self.checked, self.rows(centre), self.lam).inner_grad()

    def residuals(self, w: np.ndarray) -> np.ndarray:
        """ḡ − H̄ u for the rows u of w (k, d)."""
        return self.g_bar - self.mean_products(w)

    def hvp(self, u: np.ndarray) -> np.ndarray:
        """H_i u_i for host arrays u (n, d)."""
        return host_copy("hvp(u)", self.linear.hvp(self.beside(u)), (self.n, self.d))

    def cross(self, u: np.ndarray) -> np.ndarray:
        """J_i u_i for host arrays u (n, d)."""
        return host_copy("cross(u)", self.linear.cross(self.beside(u)), self.f_lam.shape)

    def gradients(self, centre: np.ndarray) -> np.ndarray:
        """∂_x g_i at the common point `centre` (d,), (n, d)."""
        return host_copy("inner_grad(x, lam)", self.problem.inner_grad(self.rows(centre), self.lam), self.f_x.shape)

    def rows(self, u: np.ndarray) -> Array:
        """u (d,) for every client, beside x."""
        return self.beside(np.tile(u, (self.n, 1)))

    def beside(self, u: np.ndarray) -> Array:
        """The host array u in the library and dtype of x."""
        return from_host(u.astype(host_dtype(self.x)), like=self.x)

    def rounded(self, u: np.ndarray) -> np.ndarray:
        """u as the problem's dtype holds it, in which clients will use it."""
        return u.astype(host_dtype(self.x)).astype(np.float64)

    def x_host(self) -> np.ndarray:
        """x on the host in float64, (n, d)."""
        return host_float64(self.x)


# ----------------------------------------------------------------------------------------------------
# A point seen through explicit matrices: H_i and J_i of all clients, from d_x products each.
#
#     ᾱ        λ_min of the computed mean Hessian by `rigorous`, less what its entries may be off, mean_i e_H + a H
#     ‖J_i‖     largest singular value, plus e_J
#     ‖J_iH̄⁻¹‖  with X ≈ H̄⁻¹ and ε ≥ ‖I − H̄X‖: J H̄⁻¹ = JX + J H̄⁻¹(I − H̄X), hence ‖J H̄⁻¹‖ ≤ ‖JX‖/(1 − ε) if ε < 1
#
# so that a badly conditioned H̄ makes the bound larger, not wrong; with ε ≥ 1 there is no C2 and C1 remains.


class DensePoint(Point):
    """Memory 8 n d_x (d_x + d_λ) bytes in float64, time d_x products of each kind and a (d_x, d_x) eigenproblem."""

    def __init__(self, problem: Problem, x: Array, lam: Array, everybody: int | None = None) -> None:
        super().__init__(problem, x, lam, everybody)
        self.H = ClientMatrices("hvp(u)", self.linear.hvp, x, self.d)
        self.H_sizes = self.H.sizes()
        self.J = ClientMatrices("cross(u)", self.linear.cross, x, self.f_lam.shape[1])
        self.J_sizes = self.J.sizes()
        self.H_off, self.J_off = self._off("hvp", self.H_sizes), self._off("cross", self.J_sizes)
        self.beta = self.J.over_clients(rounding.spectral_norms) + self.J_off

    def see_all(self) -> None:
        super().see_all()
        mean = self.H.mean()
        self.H_bar = symmetric(mean)
        self.skew = rounding.norm(mean / 2 - mean.T / 2)  # what symmetry changes
        self.H_error = self.H_off_mean + self.skew + self.arithmetic * self.H_scale + self.tiny
        if not (np.all(np.isfinite(self.H_bar)) and np.isfinite(self.H_scale)):
            raise ValueError(
                "problem: the norms of the clients' Hessians leave the range of floating point; rescale it"
            )
        self._smallest_eigenvalue()
        self.beta_inverse = self._beta_inverse(self.J)
        del self.J

    def mean_products(self, w: np.ndarray) -> np.ndarray:
        return w @ self.H_bar

    def mean_products_off(self, w: np.ndarray) -> np.ndarray:
        return super().mean_products_off(w) + self.skew * rounding.norms(w)

    def solution(self, w: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.H_bar, self.g_bar)

    def identity(self, r: np.ndarray) -> np.ndarray:
        return rounding.norms(self.cross(np.linalg.solve(self.H_bar, r.T).T))

    def curvature(self) -> tuple[np.ndarray, np.ndarray]:
        low = self.H.over_clients(lambda H: rounding.lowest_eigenvalues(symmetric(H))) - self.H_off
        return low, self.H.over_clients(lambda H: rounding.highest_eigenvalues(symmetric(H))) + self.H_off

    def _off(self, product: str, sizes: np.ndarray) -> np.ndarray:
        """‖error of A_i‖_F from its columns, (n,); `sizes` are ‖A_i‖_F."""
        if self.allowances is None:
            return self.accuracy * sizes
        of_column = getattr(self.allowances, product)
        columns = np.stack([of_column(unit_vectors(k, self.x)) for k in range(self.d)], axis=1)
        return rounding.norms(columns) * (1 + rounding.norm_accuracy(self.d))

    def _smallest_eigenvalue(self) -> None:
        """Set ᾱ from below and from above; ValueError unless it is positive."""
        seen = float(np.linalg.eigvalsh(self.H_bar)[0])
        self.alpha_bar = float(rounding.lowest_eigenvalues(self.H_bar)) - self.H_error
        self.alpha_top = seen + 4 * self.d * rounding.EPS * self.H_scale + self.H_error
        if not self.alpha_bar > 0:
            raise ValueError(
                f"the mean Hessian at x is not positive definite (smallest eigenvalue {seen:.3e}, known to "
                f"{self.alpha_top - self.alpha_bar:.1e}): without a unique inner minimiser there is no hyper-gradient "
                "to certify; certificates.measured_residual says how far the run is from its equation"
            )

    def _beta_inverse(self, J: ClientMatrices) -> np.ndarray:
        """Bounds on ‖J_i H̄⁻¹‖, (n,); infinite where H̄ is too badly conditioned to tell."""
        exponent = np.frexp(np.max(np.abs(self.H_bar)))[1]
        H = np.ldexp(self.H_bar, -exponent)
        try:
            X = np.linalg.inv(H)
        except np.linalg.LinAlgError:
            return np.full(self.n, np.inf)
        size, off = rounding.norm(X), float(np.ldexp(self.H_error, -exponent))
        missing = rounding.norm(np.eye(self.d) - H @ X)
        missing += ((self.d + 3) * rounding.EPS * rounding.norm(H) + off) * size
        if not missing < 1:
            return np.full(self.n, np.inf)
        seen = J.over_clients(lambda A: rounding.spectral_norms(A @ X))
        seen += ((self.d + 3) * rounding.EPS * self.J_sizes + self.J_off) * size
        return np.ldexp(seen / (1 - missing) * (1 + 4 * rounding.EPS), -exponent)


# ----------------------------------------------------------------------------------------------------
# A point seen through products alone, where d_x is too large for matrices.
#
#     ᾱ    known beforehand: given, or the strong convexity that the problem tells (L2 rates of a built-in one); nothing
#          about λ_min is certain from products. On request a value that holds with probability 1 − 1e-6 over the random
#          start of `lanczos`
#     β_i  from the problem's `jacobian_norms`, else from all columns J_i e_k, one at a time, of which only norms are
#          kept: ‖J‖ ≤ min(‖J‖_F, √(‖J‖₁ ‖J‖_∞)), which is sharp for diagonal J
#     H̄ u  one Hessian-vector product of u over all clients
#
# Memory is a few arrays (n, d_x). ‖H_i‖_F and ‖J_i‖_F enter only the allowance for rounding, and are estimated:
# ‖A‖_F² = E‖Az‖² over random signs z, doubled. Of a problem with `term_sizes` the rounding of every product is known
# from
# the product itself; sizes grow with |u| and are linear in it, so that S 1, the sizes for a vector of ones, has the row
# sums of S ≥ |error of A_i|, and ‖S‖_F ≤ ‖S 1‖.


PROBES = 8  # random products behind the sizes of H_i and J_i


class MatrixFreePoint(Point):
    """d_x cross products for β_i unless the problem offers `jacobian_norms`; 24 Hessian-vector products."""

    beta_inverse = None
    matrix_free = True

    def __init__(
        self,
        problem: Problem,
        x: Array,
        lam: Array,
        everybody: int | None = None,
        *,
        strong_convexity: float | Lanczos | None,
        nu: Lipschitz | None,
    ) -> None:
        super().__init__(problem, x, lam, everybody)
        self.told = strong_convexity, nu
        self._sizes()
        self.beta = self._jacobian_norms() * (1 + self.accuracy)
        if self.complete:
            self.beta += self.J_off

    def see_all(self) -> None:
        super().see_all()
        strong_convexity, nu = self.told
        self.H_error = self.H_off_mean + self.arithmetic * self.H_scale + self.tiny
        asked = strong_convexity if isinstance(strong_convexity, Lanczos) else None
        seed, steps = (drawn_seed(asked), STEPS) if asked else (0, FEW_STEPS)  # θ_1 ≥ λ_min for every seed
        ritz = ritz_values(self._mean_product, self.d, steps, seed)
        self.alpha_top = float(ritz[0]) + self.H_error
        if isinstance(strong_convexity, Lanczos):
            self.alpha_bar = self._probable(ritz, seed)
        else:
            self.alpha_bar = self._known(strong_convexity, nu)

    def mean_products(self, w: np.ndarray) -> np.ndarray:
        return np.stack([self._mean_product(row) for row in w])

    def mean_products_off(self, w: np.ndarray) -> np.ndarray:
        if self.allowances is None:
            return super().mean_products_off(w)
        largest = np.tile(np.abs(w).max(axis=0), (self.n, 1))
        return np.full(len(w), np.mean(self.hvp_off(largest)))

    def solution(self, w: np.ndarray) -> np.ndarray:
        return w.mean(axis=0)

    def _mean_product(self, u: np.ndarray) -> np.ndarray:
        """H̄ u for u (d,)."""
        return rigorous.mean(self.hvp(np.tile(u, (self.n, 1))))

    def _sizes(self) -> None:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(PROBES, self.d))
        H, J = (
            np.stack([rigorous.norms(product(np.tile(z, (self.n, 1)))) for z in signs], axis=1)
            for product in (self.hvp, self.cross)
        )
        self.H_sizes, self.J_sizes = (2 * rigorous.norms(A) / np.sqrt(PROBES) for A in (H, J))
        if self.allowances is None:
            self.H_off, self.J_off = self.accuracy * self.H_sizes, self.accuracy * self.J_sizes
        else:
            ones = np.ones((self.n, self.d))
            self.H_off, self.J_off = self.hvp_off(ones), self.cross_off(ones)

    def _jacobian_norms(self) -> np.ndarray:
        given = closed_form(self.problem, "jacobian_norms")
        if given is None:
            return self._norms_by_columns()
        norms: Any = to_host(validation.returned_array("jacobian_norms(x, lam)", given(self.x, self.lam), (self.n,)))
        if not np.all(norms >= 0) or not np.all(np.isfinite(norms)):
            raise ValueError("problem: jacobian_norms(x, lam) returned a norm that is negative or not finite")
        return np.array(norms, dtype=np.float64)

    def _norms_by_columns(self) -> np.ndarray:
        """min(‖J_i‖_F, √(‖J_i‖₁ ‖J_i‖_∞)), (n,)."""
        lengths, widest, rows = np.empty((self.n, self.d)), np.zeros(self.n), np.zeros(self.f_lam.shape)
        for k in range(self.d):
            column = np.abs(self.cross(to_host(unit_vectors(k, self.x))))  # (n, d_lam)
            lengths[:, k] = rigorous.norms(column)
            widest = np.maximum(widest, column.sum(axis=1))
            rows += column
        mixed = np.sqrt(widest) * np.sqrt(rows.max(axis=1))
        return np.minimum(rigorous.norms(lengths), mixed) * (1 + self.arithmetic)

    def _known(self, strong_convexity: float | None, nu: Lipschitz | None) -> float:
        """The largest modulus that is known of mean_i H_i(x_i)."""
        known = [] if strong_convexity is None else [float(strong_convexity)]
        if nu is not None and nu.strong_convexity is not None:
            x = self.x_host()
            off = 0.0 if nu.holds_apart else float(rigorous.norms(x - x.mean(axis=0)).mean())
            known.append(nu.strong_convexity - nu.nu_H * off)
        if not known or not max(known) > 0:
            raise ValueError(
                f"strong_convexity: none given or known for d_x={self.d}, where the mean Hessian is not formed; needed "
                "a lower bound on its smallest eigenvalue (L2 rates of a convex cost, say; the L2 rate of a network is "
                "none), strong_convexity='lanczos' for one that "
                f"holds with probability {1 - FAILURE:.6f}, or matrix_free=False, which takes "
                f"{8 * self.n * self.d * (self.d + self.f_lam.shape[1]) / 2**30:.1f} GiB; "
                "certificates.measured_residual needs none of them, and bounds no error"
            )
        return max(known)

    def _probable(self, ritz: np.ndarray, seed: int) -> float:
        low = lowest_with_probability(ritz, self.d, STEPS) - self.H_error
        self.notes = (
            f"smallest eigenvalue of the mean Hessian at least {low:.3e}: {STEPS} steps of Lanczos from a "
            f"random start, Lanczos(seed={seed}), wrong with probability {FAILURE:g} over the draw of the "
            "seed, for a Hessian that does not depend on it",
        )
        if not low > 0:
            raise ValueError(
                f"strong_convexity='lanczos' given, but {STEPS} steps only show that the smallest eigenvalue "
                f"of the mean Hessian lies between {low:.3e} and {self.alpha_top:.3e}; needed a positive lower bound: "
                "give a number that you know"
            )
        return low
