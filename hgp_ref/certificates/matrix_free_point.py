"""A point seen through products alone, where d_x is too large for matrices.

    ᾱ    known beforehand: given, or the strong convexity that the problem tells (L2 rates of a built-in one); nothing
         about λ_min is certain from products. On request a value that holds with probability 1 − 1e-6 over the random
         start of `lanczos`
    β_i  from the problem's `jacobian_norms`, else from all columns J_i e_k, one at a time, of which only norms are
         kept: ‖J‖ ≤ min(‖J‖_F, √(‖J‖₁ ‖J‖_∞)), which is sharp for diagonal J
    H̄ u  one Hessian-vector product of u over all clients

Memory is a few arrays (n, d_x). ‖H_i‖_F and ‖J_i‖_F enter only the allowance for rounding, and are estimated:
‖A‖_F² = E‖Az‖² over random signs z, doubled. Of a problem with `term_sizes` the rounding of every product is known from
the product itself; sizes grow with |u| and are linear in it, so that S 1, the sizes for a vector of ones, has the row
sums of S ≥ |error of A_i|, and ‖S‖_F ≤ ‖S 1‖.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref import arguments, rigorous
from hgp_ref.backend import Array, to_host
from hgp_ref.certificates import lanczos
from hgp_ref.certificates.client_matrices import unit_vectors
from hgp_ref.certificates.point import Point
from hgp_ref.problems import Problem
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.normalised import closed_form

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
        strong_convexity: float | lanczos.Lanczos | None,
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
        asked = strong_convexity if isinstance(strong_convexity, lanczos.Lanczos) else None
        seed, steps = (
            (lanczos.drawn_seed(asked), lanczos.STEPS) if asked else (0, lanczos.FEW_STEPS)
        )  # θ_1 ≥ λ_min for every seed
        ritz = lanczos.ritz_values(self._mean_product, self.d, steps, seed)
        self.alpha_top = float(ritz[0]) + self.H_error
        if isinstance(strong_convexity, lanczos.Lanczos):
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
        norms: Any = to_host(arguments.answer("jacobian_norms(x, lam)", given(self.x, self.lam), (self.n,)))
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
                f"holds with probability {1 - lanczos.FAILURE:.6f}, or matrix_free=False, which takes "
                f"{8 * self.n * self.d * (self.d + self.f_lam.shape[1]) / 2**30:.1f} GiB; "
                "certificates.measured_residual needs none of them, and bounds no error"
            )
        return max(known)

    def _probable(self, ritz: np.ndarray, seed: int) -> float:
        low = lanczos.lowest_with_probability(ritz, self.d, lanczos.STEPS) - self.H_error
        self.notes = (
            f"smallest eigenvalue of the mean Hessian at least {low:.3e}: {lanczos.STEPS} steps of Lanczos from a "
            f"random start, Lanczos(seed={seed}), wrong with probability {lanczos.FAILURE:g} over the draw of the "
            "seed, for a Hessian that does not depend on it",
        )
        if not low > 0:
            raise ValueError(
                f"strong_convexity='lanczos' given, but {lanczos.STEPS} steps only show that the smallest eigenvalue "
                f"of the mean Hessian lies between {low:.3e} and {self.alpha_top:.3e}; needed a positive lower bound: "
                "give a number that you know"
            )
        return low
