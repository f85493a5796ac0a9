"""What a certificate needs to know of a problem at (x, λ), computed once for all runs that end there.

Every client's own part is computed at once. What only someone who sees all clients can say (means over clients, ᾱ) is
computed by `see_all`, which is not asked for where the clients are spread over several processes.

Rounding. A problem with `term_sizes` says how large the terms are that it adds, s ≥ Σ|terms| entry by entry, so that
its gradients and products are known to γ s: ‖γ s‖ is e_f for ∂f_i, e_H for H_i (in the Frobenius norm), and so on. They
do not shrink where terms cancel. Of a problem without it, answers are taken as accurate to

    E = 4 (d_x + 4) eps        (eps of the problem's dtype)

relative to themselves, e_f = E ‖∂f_i‖, e_H = E ‖H_i‖_F; sums inside that cancel may round by more, and the certificate
states that they are not included. With arithmetic of the certificate itself, below a ≤ (d_x + 8) eps64 + the rounding
of a mean over clients, the mean Hessian is known up to mean_i e_H + a H with H² = mean_i ‖H_i‖_F², and a residual
ḡ − H̄w up to mean_i (e_f + e_H ‖w‖) + a (mean_i ‖∂_x f_i‖ + H ‖w‖). Beyond the smallest numbers only absolute accuracy
is left: `tiny`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.certificates.allowances import Allowances, allowances
from hgp_ref.certificates.answers import host_copy
from hgp_ref.problems import Problem, as_problem


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
