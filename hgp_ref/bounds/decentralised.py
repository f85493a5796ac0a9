"""C3 and C4 computed by the clients themselves: Push-Sum of vectors and scalars, maxima by flooding.

Push-Sum is not exact, and need not be. Its matrices P are column-stochastic, so Σ_i (P r)_i = Σ_i r_i and the
weights ω = P1 sum to n: the true mean is the convex combination Σ_i (ω_i/n) y_i of the outputs y_i = (P
r)_i/ω_i. Hence, for however few steps,

    ‖r̄‖ ≤ max_i ‖y_i‖,     w̄ lies in the box [min_i y_i, max_i y_i],     ᾱ ≥ mean_i λ_min(H_i) ≥ min_i y_i,

and maxima and minima over clients are exact by flooding. Four phases:

    1  Push-Sum of (w_i, ∂_x f_i − H_i w_i, λ_min(H_i))
    2  flood: box of w̄ with centre c, bounds on ‖r̄‖ and ᾱ, largest and smallest eigenvalue of all H_i with middle h
    3  Push-Sum of (∂_x f_i − H_i c, z_i δ_i), with δ_i ≥ ‖w_i − w̄‖ from the box and z_i = ‖H_i − hI‖
    4  flood: bounds on ‖ḡ − H̄c‖ and on mean_k z_k δ_k ≥ ‖mean_k (H_k − H̄)(w_k − w̄)‖

(the deviations w_k − w̄ have mean zero, so any multiple of the identity may stand for H̄). Then every client
has its C3 and C4. With Lipschitz constants the phases also carry x: its box gives a common centre, the mean
gradient there is a Push-Sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.averaging import Traffic
from hgp_ref.backend import from_host, host_dtype, to_host

from . import client_norms
from .centralised import Point
from .channel import Channel
from .inexact import Lipschitz, distance_to_solution, inexact
from .residual import c3, c4


@dataclass(frozen=True)
class Decentralised:
    """What the clients know at the end, (n,) each, and what it took."""

    c3: np.ndarray
    c4: np.ndarray
    alpha_bar: float  # the lower bound on λ_min(H̄) that they used
    term: np.ndarray | None  # the inexact-inner-solution term, where constants are known
    traffic: Traffic


def decentralised(
    point: Point,
    w: np.ndarray,
    avg: Any,
    first_call: int,
    *,
    curvature: tuple[np.ndarray, np.ndarray],
    nu: Lipschitz | None = None,
    strict: bool = True,
    alpha_known: float = 0.0,
    max_rounds: int | None = None,
) -> Decentralised:
    """C3 and C4 for w (n, d_x) with `avg`; `curvature` = λ_min and λ_max of the clients' Hessians, each its own.

    `alpha_known`: a lower bound on λ_min(H̄) that clients know beforehand. ValueError if no positive one comes out, and
    where x is too far off for the constants `nu` (then, unless `strict`, there is just no term).
    """
    channel = Channel(avg, first_call, point.x, max_rounds)
    blur = 4 * point.eps * (avg.steps + point.d)  # rounding of Push-Sum, relative to what it averages
    low, high = curvature
    shared = _first_half(point, w, low, high, channel, blur, with_x=nu is not None)
    alpha_bar = max(shared.alpha_bar, alpha_known)
    if not alpha_bar > 0:
        raise ValueError(
            f"the clients' smallest Hessian eigenvalues average to {shared.alpha_bar:.3e} as far as Push-Sum can tell, "
            "which does not bound the mean Hessian away from zero: give strong_convexity, or do without avg"
        )
    from_centre = np.linalg.norm(w - shared.centre, axis=1)
    delta = np.linalg.norm(np.abs(w - shared.centre) + shared.half, axis=1)  # ≥ ‖w_i − w̄‖
    spread = np.maximum(np.abs(high - shared.mid), np.abs(low - shared.mid))  # ‖H_i − mid I‖
    end = _second_half(point, shared, spread * delta, channel, blur)
    term = None
    if nu is not None:
        try:
            term = _inner_term(point, nu, shared, end, alpha_bar)
        except ValueError:
            if strict:
                raise
    return Decentralised(
        c3=c3(point.beta, shared.r_bar, delta, end.coupling, alpha_bar),
        c4=c4(point.beta, end.r_at_centre, from_centre, alpha_bar),
        alpha_bar=alpha_bar,
        term=term,
        traffic=channel.traffic,
    )


@dataclass(frozen=True)
class _Shared:
    """What all clients know after phase 2."""

    centre: np.ndarray  # c, (d,)
    half: np.ndarray  # |c − w̄| ≤ half, coordinate by coordinate
    r_bar: float  # ≥ ‖r̄‖
    alpha_bar: float  # ≤ λ_min(H̄)
    mid: float  # middle of the spectrum of all H_i
    x_centre: np.ndarray | None  # middle of the box of the x_i


def _first_half(
    point: Point, w: np.ndarray, low: np.ndarray, high: np.ndarray, channel: Channel, blur: float, with_x: bool
) -> _Shared:
    """Phases 1 and 2."""
    d, norm = point.d, lambda a: np.linalg.norm(a, axis=1)
    r = point.f_x - _hvp(point, w)
    y_w, y_r, y_low = np.split(channel.average(w, r, low), [d, 2 * d], axis=1)
    x = [to_host(point.x).astype(np.float64)] if with_x else []
    top, bottom, r_bar, alpha, L, least, r_scale, w_scale, *x_box = channel.largest(
        y_w, -y_w, norm(y_r), -y_low, high, -low, norm(r), norm(w), *x, *(-a for a in x)
    )
    centre = _as(point, (top - bottom) / 2)  # bottom holds −min
    return _Shared(
        centre=centre,
        half=np.maximum(top - centre, centre + bottom) + blur * float(w_scale[0]),
        r_bar=float(r_bar[0]) + blur * float(r_scale[0]),
        alpha_bar=float(-alpha[0]) - blur * max(abs(float(L[0])), abs(float(least[0]))),
        mid=(float(L[0]) - float(least[0])) / 2,
        x_centre=_as(point, (x_box[0] - x_box[1]) / 2) if with_x else None,
    )


@dataclass(frozen=True)
class _End:
    """What all clients know after phase 4."""

    r_at_centre: float  # ≥ ‖ḡ − H̄c‖
    coupling: float  # ≥ mean_k z_k δ_k
    gradient: float  # ≥ ‖mean ∂g‖ at the centre of x
    x_off: float  # max_i ‖x_i − centre of x‖
    x_off_own: np.ndarray  # (n,), of which each client knows its own


def _second_half(point: Point, shared: _Shared, products: np.ndarray, channel: Channel, blur: float) -> _End:
    """Phases 3 and 4."""
    d, norm = point.d, lambda a: np.linalg.norm(a, axis=1)
    r_c = point.f_x - _hvp(point, np.tile(shared.centre, (point.n, 1)))
    if shared.x_centre is None:
        y_r, y_p = np.split(channel.average(r_c, products), [d], axis=1)
        r, coupling, scale = (float(a[0]) for a in channel.largest(norm(y_r), y_p, norm(r_c)))
        return _End(r + blur * scale, coupling * (1 + blur), np.nan, np.nan, np.zeros(point.n))
    gradients = _gradients(point, shared.x_centre)
    off = norm(to_host(point.x).astype(np.float64) - shared.x_centre)
    y_r, y_p, y_g = np.split(channel.average(r_c, products, gradients), [d, d + 1], axis=1)
    r, coupling, scale, G, G_scale, x_off = (
        float(a[0]) for a in channel.largest(norm(y_r), y_p, norm(r_c), norm(y_g), norm(gradients), off)
    )
    return _End(r + blur * scale, coupling * (1 + blur), G + blur * G_scale, x_off, off)


def _inner_term(point: Point, nu: Lipschitz, shared: _Shared, end: _End, alpha_bar: float) -> np.ndarray:
    """2* from what the clients know: the centre of x stands for x̄, ‖ŵ‖ ≤ ‖c‖ + ‖ḡ − H̄c‖/ᾱ."""
    distance, alpha_there = distance_to_solution(nu, end.gradient, alpha_bar - nu.nu_H * end.x_off)
    apart = end.x_off_own + distance
    w_norm = float(np.linalg.norm(shared.centre)) + end.r_at_centre / alpha_bar
    beta_there = point.beta + nu.nu_J * apart
    return inexact(nu, apart, w_norm, beta_there, alpha_there, mean_apart=end.x_off + distance)


def client_curvature(point: Point) -> tuple[np.ndarray, np.ndarray]:
    """λ_min(H_i), λ_max(H_i), which each client finds on its own."""
    return client_norms.eigenvalue_ranges(point.H_columns)


def _as(point: Point, a: np.ndarray) -> np.ndarray:
    """`a` rounded to the problem's dtype, in which clients will use it."""
    return a.astype(host_dtype(point.x)).astype(np.float64)


def _hvp(point: Point, u: np.ndarray) -> np.ndarray:
    return to_host(point.linear.hvp(from_host(u.astype(host_dtype(point.x)), like=point.x))).astype(np.float64)


def _gradients(point: Point, centre: np.ndarray) -> np.ndarray:
    rows = from_host(np.tile(centre.astype(host_dtype(point.x)), (point.n, 1)), like=point.x)
    return to_host(point.problem.inner_grad(rows, point.lam)).astype(np.float64)
