"""What a certificate needs to know of a problem at (x, λ), computed once for all runs that end there.

Every client's own part is computed at once. What only someone who sees all clients can say (means over clients, ᾱ) is
computed by `see_all`, which is not asked for where the clients are spread over several processes.

Rounding. The problem's gradients and products are taken as accurate to

    E = 4 (d_x + 4) eps        (eps of the problem's dtype)

relative to their sizes: ‖∂f_i‖, ‖H_i‖_F ‖u‖, ‖J_i‖_F ‖u‖. Logistic regression stays below 0.42 E with up to 300,000
instances a client in float32; sums inside a product that cancel may round by more, which the certificate states as its
assumption. With arithmetic of the certificate itself, below a ≤ (d_x + 8) eps64 + the
rounding of a mean over clients, the mean Hessian is known up to (E + a) H with H² = mean_i ‖H_i‖_F², and a residual
ḡ − H̄w up to (E + a)(mean_i ‖∂_x f_i‖ + H ‖w‖). Beyond the smallest numbers only absolute accuracy is left: `tiny`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
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
    matrix_free = False  # whether products alone are used
    notes: tuple[str, ...] = ()  # what the numbers above assume

    def __init__(self, problem: Problem, x: Array, lam: Array, everybody: int | None = None) -> None:
        self.problem, self.x, self.lam = problem, x, lam
        checked = as_problem(problem, needs=("inner_grad", "outer_grad", "linearize"))
        self.n, self.d = int(problem.n_clients), int(problem.dim_x)
        f_x, f_lam = checked.outer_grad(x, lam)
        self.f_x = host_copy("outer_grad(x, lam)[0]", f_x, (self.n, self.d))
        self.f_lam = host_copy("outer_grad(x, lam)[1]", f_lam, (self.n, int(problem.dim_lam)))
        self.linear = checked.linearize(x, lam)
        kind = np.finfo(host_dtype(x))
        self.eps, self.tiny = float(kind.eps), float(kind.smallest_subnormal) * self.d
        self.accuracy = 4 * (self.d + 4) * self.eps  # E
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

    def own_rounding(self, w: np.ndarray) -> np.ndarray:
        """What rounding may add to v_i − (∂_λ f_i − J_i w_i), (n,)."""
        sizes = rigorous.norms(self.f_lam) + self.J_sizes * rigorous.norms(w)
        return (self.accuracy + self.arithmetic) * sizes + self.tiny

    def residual_rounding(self, w: np.ndarray) -> np.ndarray:
        """What rounding may hide of ‖ḡ − H̄ w_i‖, for rows w (k, d)."""
        sizes = float(np.mean(rigorous.norms(self.f_x))) + self.H_scale * rigorous.norms(w)
        return (self.accuracy + self.arithmetic) * sizes + self.tiny

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
