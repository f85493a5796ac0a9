"""A point seen through explicit matrices: H_i and J_i of all clients, from d_x products each.

    ᾱ        λ_min of the computed mean Hessian by `rigorous`, less what its entries may be off, mean_i e_H + a H
    ‖J_i‖     largest singular value, plus e_J
    ‖J_iH̄⁻¹‖  with X ≈ H̄⁻¹ and ε ≥ ‖I − H̄X‖: J H̄⁻¹ = JX + J H̄⁻¹(I − H̄X), hence ‖J H̄⁻¹‖ ≤ ‖JX‖/(1 − ε) if ε < 1

so that a badly conditioned H̄ makes the bound larger, not wrong; with ε ≥ 1 there is no C2 and C1 remains.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array
from hgp_ref.certificates.client_matrices import ClientMatrices, symmetric, unit_vectors
from hgp_ref.certificates.point import Point
from hgp_ref.problems import Problem


class DensePoint(Point):
    """Memory 8 n d_x (d_x + d_λ) bytes in float64, time d_x products of each kind and a (d_x, d_x) eigenproblem."""

    def __init__(self, problem: Problem, x: Array, lam: Array, everybody: int | None = None) -> None:
        super().__init__(problem, x, lam, everybody)
        self.H = ClientMatrices("hvp(u)", self.linear.hvp, x, self.d)
        self.H_sizes = self.H.sizes()
        self.J = ClientMatrices("cross(u)", self.linear.cross, x, self.f_lam.shape[1])
        self.J_sizes = self.J.sizes()
        self.H_off, self.J_off = self._off("hvp", self.H_sizes), self._off("cross", self.J_sizes)
        self.beta = self.J.over_clients(rigorous.spectral_norms) + self.J_off

    def see_all(self) -> None:
        super().see_all()
        mean = self.H.mean()
        self.H_bar = symmetric(mean)
        self.skew = rigorous.norm(mean / 2 - mean.T / 2)  # what symmetry changes
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
        return super().mean_products_off(w) + self.skew * rigorous.norms(w)

    def solution(self, w: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.H_bar, self.g_bar)

    def identity(self, r: np.ndarray) -> np.ndarray:
        return rigorous.norms(self.cross(np.linalg.solve(self.H_bar, r.T).T))

    def curvature(self) -> tuple[np.ndarray, np.ndarray]:
        low = self.H.over_clients(lambda H: rigorous.lowest_eigenvalues(symmetric(H))) - self.H_off
        return low, self.H.over_clients(lambda H: rigorous.highest_eigenvalues(symmetric(H))) + self.H_off

    def _off(self, product: str, sizes: np.ndarray) -> np.ndarray:
        """‖error of A_i‖_F from its columns, (n,); `sizes` are ‖A_i‖_F."""
        if self.allowances is None:
            return self.accuracy * sizes
        of_column = getattr(self.allowances, product)
        columns = np.stack([of_column(unit_vectors(k, self.x)) for k in range(self.d)], axis=1)
        return rigorous.norms(columns) * (1 + rigorous.norm_accuracy(self.d))

    def _smallest_eigenvalue(self) -> None:
        """Set ᾱ from below and from above; ValueError unless it is positive."""
        seen = float(np.linalg.eigvalsh(self.H_bar)[0])
        self.alpha_bar = float(rigorous.lowest_eigenvalues(self.H_bar)) - self.H_error
        self.alpha_top = seen + 4 * self.d * rigorous.EPS * self.H_scale + self.H_error
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
        size, off = rigorous.norm(X), float(np.ldexp(self.H_error, -exponent))
        missing = rigorous.norm(np.eye(self.d) - H @ X)
        missing += ((self.d + 3) * rigorous.EPS * rigorous.norm(H) + off) * size
        if not missing < 1:
            return np.full(self.n, np.inf)
        seen = J.over_clients(lambda A: rigorous.spectral_norms(A @ X))
        seen += ((self.d + 3) * rigorous.EPS * self.J_sizes + self.J_off) * size
        return np.ldexp(seen / (1 - missing) * (1 + 4 * rigorous.EPS), -exponent)
