"""C1 and C2 of a finished run by someone who sees all clients, and what an inexact inner solution adds.

The point (x, λ) is looked at once: H̄ from d Hessian-vector products of unit vectors, norms of J_i and J_i H̄⁻¹
from d products with J, gradients. Every run at this point is then judged by one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref.backend import from_host, host_dtype, to_host

from . import client_norms
from .inexact import Lipschitz, distance_to_solution, inexact
from .residual import c1


class Point:
    """What a certificate needs to know of a problem at (x, λ), computed once."""

    def __init__(self, problem: Any, x: Any, lam: Any) -> None:
        self.problem, self.x, self.lam = problem, x, lam
        self.linear = problem.linearize(x, lam)
        f_x, self.f_lam = problem.outer_grad(x, lam)
        self.f_x = to_host(f_x).astype(np.float64)  # (n, d_x)
        self.n, self.d = self.f_x.shape
        self.g_bar = self.f_x.mean(axis=0)
        self.eps = float(np.finfo(host_dtype(x)).eps)
        self.H_columns = client_norms.columns(self.linear.hvp, x)
        H_bar = client_norms.mean_matrix(self.H_columns)
        self.H_bar = (H_bar + H_bar.T) / 2
        spectrum = np.linalg.eigvalsh(self.H_bar)
        self.alpha_bar, self.L_bar = float(spectrum[0]), float(spectrum[-1])
        self.H_scale = float(np.sqrt(client_norms.mean_square(self.H_columns)))
        if not self.alpha_bar > 4 * self.d * self.eps * self.H_scale:
            raise ValueError(
                f"the mean Hessian at x is not positive definite (smallest eigenvalue {self.alpha_bar:.3e}): without a "
                "unique inner minimiser there is no hyper-gradient to certify"
            )
        parts = client_norms.columns(self.linear.cross, x)
        self.beta = client_norms.spectral_norms(parts)  # ‖J_i‖
        self.beta_inverse = client_norms.spectral_norms(parts, right=np.linalg.inv(self.H_bar))  # ‖J_i H̄⁻¹‖

    def cross(self, u: np.ndarray) -> Any:
        """J_i u_i in the problem's library, for a host array u (n, d)."""
        return self.linear.cross(from_host(u.astype(host_dtype(self.x)), like=self.x))

    def rounding(self, w: np.ndarray) -> np.ndarray:
        """What arithmetic on the problem's gradients and products may add, (n,); not what cancels inside them."""
        size = np.linalg.norm(w, axis=1)
        solve = (np.linalg.norm(self.f_x, axis=1).mean() + self.H_scale * size) / self.alpha_bar
        own = client_norms.row_norms(self.f_lam) + self.beta * size
        return 8 * self.eps * self.d * (own + self.beta * solve)


@dataclass(frozen=True)
class Residuals:
    """One run judged at a point: (n,) each."""

    consistency: np.ndarray  # ‖v_i − (∂_λ f_i − J_i w_i)‖
    residual: np.ndarray  # ‖ḡ − H̄ w_i‖
    identity: np.ndarray  # ‖J_i H̄⁻¹ (ḡ − H̄ w_i)‖
    c1: np.ndarray
    c2: np.ndarray
    rounding: np.ndarray


def judge(point: Point, value: Any, w: Any) -> Residuals:
    """C1 and C2 of a run that ended with v = `value` (n, d_lam) and w (n, d_x)."""
    missing = value - (point.f_lam - point.linear.cross(w))
    w_host = to_host(w).astype(np.float64)
    r = point.g_bar - w_host @ point.H_bar  # r̃_i, H̄ symmetric
    size = np.linalg.norm(r, axis=1)
    return Residuals(
        consistency=client_norms.row_norms(missing),
        residual=size,
        identity=client_norms.row_norms(point.cross(np.linalg.solve(point.H_bar, r.T).T)),
        c1=c1(point.beta, size, point.alpha_bar),
        c2=point.beta_inverse * size,
        rounding=point.rounding(w_host),
    )


@dataclass(frozen=True)
class InnerError:
    """How far x is from the inner solution."""

    gradient: float  # ‖mean ∂g(x̄)‖ at the mean x̄ of the rows of x, rounding included
    gap: float  # max_i ‖x_i − x̄‖
    apart: np.ndarray | None = field(default=None)  # bounds on ‖x_i − x(λ)‖, (n,), where constants are known
    term: np.ndarray | None = field(default=None)  # bounds on ‖d̂_i − d_i‖, (n,), where constants are known


def inner_error(point: Point, nu: Lipschitz | None) -> InnerError:
    """The gradient at the mean of x and, with Lipschitz constants, the term of 2*."""
    x = to_host(point.x).astype(np.float64)
    centre = x.mean(axis=0)
    off = np.linalg.norm(x - centre, axis=1)
    gradient = mean_gradient(point, centre)
    if nu is None:
        return InnerError(gradient, float(off.max()))
    here = point.alpha_bar - nu.nu_H * float(off.mean())  # λ_min(H̄(x̄)) is no smaller
    distance, alpha_bar = distance_to_solution(nu, gradient, here)
    apart = off + distance
    w_norm = float(np.linalg.norm(np.linalg.solve(point.H_bar, point.g_bar)))
    term = inexact(nu, apart, w_norm, point.beta + nu.nu_J * apart, alpha_bar)
    return InnerError(gradient, float(off.max()), apart, term)


def mean_gradient(point: Point, centre: np.ndarray) -> float:
    """‖mean_i ∂g_i(centre, λ_i)‖, plus what rounding may hide."""
    rows = np.tile(centre.astype(host_dtype(point.x)), (point.n, 1))
    gradients = to_host(point.problem.inner_grad(from_host(rows, like=point.x), point.lam)).astype(np.float64)
    hidden = 4 * point.eps * point.d * float(np.linalg.norm(gradients, axis=1).mean())
    return float(np.linalg.norm(gradients.mean(axis=0))) + hidden
