"""C1 and C2 of a finished run by someone who sees all clients, and what an inexact inner solution adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, host_float64
from hgp_ref.bounds.inexact_solution import distance_to_solution, inexact
from hgp_ref.bounds.residual import c4
from hgp_ref.certificates.point import Point
from hgp_ref.problems.constants import Lipschitz


@dataclass(frozen=True)
class Own:
    """What every client finds of a run by itself, (n,) each."""

    consistency: np.ndarray  # ‖v_i − (∂_λ f_i − J_i w_i)‖, with the rounding of the norm
    rounding: np.ndarray  # what rounding may add to it


def own_part(point: Point, value: Array, w: Array) -> Own:
    """Of a run that ended with v = `value` (n, d_lam) and w (n, d_x)."""
    v, w_host = (host_float64(a) for a in (value, w))
    miss = rigorous.norms(v - (point.f_lam - point.cross(w_host)))
    return Own(miss * (1 + rigorous.norm_accuracy(v.shape[-1])), point.own_rounding(w_host))


@dataclass(frozen=True)
class Residuals:
    """One run as someone who sees all clients judges it at a point: (n,) each."""

    residual: np.ndarray  # ‖ḡ − H̄ w_i‖
    identity: np.ndarray | None  # ‖J_i H̄⁻¹ (ḡ − H̄ w_i)‖
    c1: np.ndarray
    c2: np.ndarray | None
    rounding: np.ndarray  # what rounding may add to the consistency, and hide of the residual


def judge(point: Point, own: Own, w: Array) -> Residuals:
    """C1 and C2 of a run that ended with w (n, d_x)."""
    w_host = host_float64(w)
    r = point.residuals(w_host)  # r̃_i
    size = rigorous.norms(r) * slack(point)
    gain = point.beta / point.alpha_bar
    if point.beta_inverse is not None:
        gain = np.minimum(gain, point.beta_inverse)
    return Residuals(
        residual=size,
        identity=point.identity(r),
        c1=c4(point.beta, size, np.zeros(point.n), point.alpha_bar),  # C4 at c = w_i; divides before it multiplies
        c2=None if point.beta_inverse is None else point.beta_inverse * size,
        rounding=own.rounding + gain * point.residual_rounding(w_host),
    )


def slack(point: Point) -> float:
    """A factor for the rounding of norms and of the few products that make a bound of them."""
    return 1 + (2 * point.d + 32) * rigorous.EPS


@dataclass(frozen=True)
class InnerError:
    """How far x is from the inner solution."""

    gradient: float  # ‖mean ∂g(x̄)‖ at the mean x̄ of the rows of x, rounding included
    gap: float  # max_i ‖x_i − x̄‖
    term: np.ndarray | None = None  # bounds on ‖d̂_i − d_i‖, (n,), where constants are known


def inner_error(point: Point, nu: Lipschitz | None, w: np.ndarray) -> InnerError:
    """The gradient at the mean of x and, with Lipschitz constants, the term of 2*; w (n, d) is what a run found."""
    x = point.x_host()
    centre = point.rounded(x.mean(axis=0))  # any common point will do; this is the one at which gradients are taken
    off = rigorous.norms(x - centre) * slack(point)
    gradient = mean_gradient(point, centre)
    if nu is None:
        return InnerError(gradient, float(off.max()))
    here = point.alpha_bar - nu.nu_H * float(off.mean())  # λ_min(H̄(x̄)) is no smaller
    distance, alpha_bar = distance_to_solution(nu, gradient, here)
    apart = off + distance
    term = inexact(nu, apart, solution_norm(point, w), point.beta + nu.nu_J * apart, alpha_bar) * slack(point)
    return InnerError(gradient, float(off.max()), term)


def solution_norm(point: Point, w: np.ndarray) -> float:
    """‖ŵ‖ ≤ ‖z‖ + ‖ḡ − H̄z‖/ᾱ for any z, here one near ŵ."""
    z = point.solution(w)[None]
    r = rigorous.norm(point.residuals(z)) + float(point.residual_rounding(z)[0])
    return rigorous.norm(z) + r / point.alpha_bar


def mean_gradient(point: Point, centre: np.ndarray) -> float:
    """‖mean_i ∂g_i(centre, λ_i)‖, plus what rounding may hide."""
    gradients = point.gradients(centre)
    hidden = float(point.gradients_off(centre, gradients).mean())
    hidden += point.arithmetic * float(rigorous.norms(gradients).mean()) + point.tiny
    return rigorous.norm(rigorous.mean(gradients)) * slack(point) + hidden
