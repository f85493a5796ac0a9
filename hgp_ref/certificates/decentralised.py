"""C3 and C4 computed by the clients themselves: Push-Sum of vectors and scalars, maxima by flooding.

Push-Sum is not exact, and need not be. Its matrices P are column-stochastic, so Σ_i (P r)_i = Σ_i r_i and the
weights ω = P1 sum to n: the true mean is the convex combination Σ_i (ω_i/n) y_i of the outputs y_i = (P
r)_i/ω_i. Hence, for however few steps,

    ‖r̄‖ ≤ max_i ‖y_i‖,     w̄ lies in the box [min_i y_i, max_i y_i],     ᾱ ≥ mean_i λ_min(H_i) ≥ min_i y_i,

and maxima and minima over clients are exact by flooding. Over links that lose and delay, where clients use running
sums, part of the sums is under way at the end, and the mean may lie outside what clients hold; it lies in the hull of
that and of what they held since the oldest share under way was sent (`channels.Lossy.enclose`), so that a box in place
of y_i does the same. Four phases:

    1  Push-Sum of (w_i, ∂_x f_i − H_i w_i, λ_min(H_i))
    2  flood: box of w̄ with centre c, bounds on ‖r̄‖ and ᾱ, largest and smallest eigenvalue of all H_i with middle h
    3  Push-Sum of (∂_x f_i − H_i c, z_i δ_i), with δ_i ≥ ‖w_i − w̄‖ from the box and z_i = ‖H_i − hI‖
    4  flood: bounds on ‖ḡ − H̄c‖ and on mean_k z_k δ_k ≥ ‖mean_k (H_k − H̄)(w_k − w̄)‖

(the deviations w_k − w̄ have mean zero, so any multiple of the identity may stand for H̄). Then every client
has its C3 and C4. With Lipschitz constants the phases also carry x: its box gives a common centre, the mean
gradient there is a Push-Sum. Where clients do not form their Hessians, what only C3 needs is left out: C4 remains,
with an ᾱ that they know.

Rounding travels along: what Push-Sum may be off is relative to ‖∂_x f_i‖ + ‖H_i‖ ‖w_i‖; with what the problem's own
gradients and products may be off it is one number of each client, of which the largest is flooded beside the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import rigorous
from hgp_ref.averaging import Traffic
from hgp_ref.bounds.inexact_solution import distance_to_solution, inexact
from hgp_ref.bounds.residual import c3, c4
from hgp_ref.certificates.centralised import slack
from hgp_ref.certificates.conversation import Conversation
from hgp_ref.certificates.point import Point
from hgp_ref.problems.constants import Lipschitz

Curvature = tuple[np.ndarray, np.ndarray]  # bounds on λ_min(H_i) and λ_max(H_i), (n,) each


@dataclass(frozen=True)
class Decentralised:
    """What the clients know at the end, (n,) each, and what it took."""

    c3: np.ndarray | None
    c4: np.ndarray
    alpha_bar: float  # the lower bound on λ_min(H̄) that they used
    term: np.ndarray | None  # the inexact-inner-solution term, where constants are known
    traffic: Traffic


def decentralised(
    point: Point,
    w: np.ndarray,
    talk: Conversation,
    *,
    curvature: Curvature | None,
    nu: Lipschitz | None = None,
    strict: bool = True,
    alpha_known: float = 0.0,
) -> Decentralised:
    """C3 and C4 for w (n, d_x) over the network; `curvature` is each client's own.

    `alpha_known`: a lower bound on λ_min(H̄) that clients know beforehand. ValueError if no positive one comes out, and
    where x is too far off for the constants `nu` (then, unless `strict`, there is just no term).
    """
    shared = _first_half(point, w, curvature, talk, with_x=nu is not None)
    alpha_bar = max(shared.alpha_bar, alpha_known)
    if not alpha_bar > 0:
        raise ValueError(
            f"the clients' smallest Hessian eigenvalues average to {shared.alpha_bar:.3e} as far as Push-Sum can tell, "
            "which does not bound the mean Hessian away from zero: give strong_convexity, or do without avg"
        )
    from_centre = rigorous.norms(w - shared.centre)
    delta = rigorous.norms(np.abs(w - shared.centre) + shared.half)  # ≥ ‖w_i − w̄‖
    spread = None if curvature is None else _spread(curvature, shared.mid)
    end = _second_half(point, shared, None if spread is None else spread * delta, talk)
    term = None
    if nu is not None:
        try:
            term = _inner_term(point, nu, shared, end, alpha_bar) * slack(point)
        except ValueError:
            if strict:
                raise
    by_mean = c3(point.beta, shared.r_bar, delta, end.coupling, alpha_bar) * slack(point)
    return Decentralised(
        c3=None if curvature is None else by_mean,
        c4=c4(point.beta, end.r_at_centre, from_centre, alpha_bar) * slack(point),
        alpha_bar=alpha_bar,
        term=term,
        traffic=talk.traffic,
    )


def _spread(curvature: Curvature, mid: float) -> np.ndarray:
    """‖H_i − mid I‖, (n,)."""
    low, high = curvature
    return np.maximum(np.abs(high - mid), np.abs(low - mid))


@dataclass(frozen=True)
class _Shared:
    """What all clients know after phase 2."""

    centre: np.ndarray  # c, (d,)
    half: np.ndarray  # |c − w̄| ≤ half, coordinate by coordinate
    r_bar: float  # ≥ ‖r̄‖; NaN without curvature
    alpha_bar: float  # ≤ λ_min(H̄); −∞ without curvature
    mid: float  # middle of the spectrum of all H_i
    x_centre: np.ndarray | None  # middle of the box of the x_i


def _first_half(point: Point, w: np.ndarray, curvature: Curvature | None, talk: Conversation, with_x: bool) -> _Shared:
    """Phases 1 and 2."""
    blur, norms = talk.rounding(), rigorous.norms
    r_bar, alpha_bar, mid = np.nan, -np.inf, np.nan
    x = [point.x_host()] if with_x else []
    boxes = [*x, *(-a for a in x)]
    if curvature is None:
        (y_w,) = talk.average(w)
        top, bottom, w_scale, *x_box = talk.largest(y_w.high, -y_w.low, norms(w), *boxes)
    else:
        low, high = curvature
        y_w, y_r, y_low = talk.average(w, point.f_x - point.hvp(w), low)
        r_off = _mean_off(point, talk, norms(point.f_x) + point.H_sizes * norms(w), point.f_x_off + point.hvp_off(w))
        top, bottom, r, minus_alpha, L, minus_least, r_most, w_scale, *x_box = talk.largest(
            y_w.high, -y_w.low, norms(y_r.farthest), -y_low.low, high, -low, r_off, norms(w), *boxes
        )
        r_bar = float(r[0]) + float(r_most[0]) + point.tiny
        alpha_bar = float(-minus_alpha[0]) - blur * max(abs(float(L[0])), abs(float(minus_least[0])))
        mid = float(L[0]) / 2 - float(minus_least[0]) / 2
    centre = point.rounded(top / 2 - bottom / 2)  # bottom holds −min
    return _Shared(
        centre=centre,
        half=np.maximum(top - centre, centre + bottom) + blur * float(w_scale[0]) + point.tiny,
        r_bar=r_bar,
        alpha_bar=alpha_bar,
        mid=mid,
        x_centre=point.rounded(x_box[0] / 2 - x_box[1] / 2) if with_x else None,
    )


@dataclass(frozen=True)
class _End:
    """What all clients know after phase 4."""

    r_at_centre: float  # ≥ ‖ḡ − H̄c‖
    coupling: float  # ≥ mean_k z_k δ_k; NaN without curvature
    gradient: float  # ≥ ‖mean ∂g‖ at the centre of x
    x_off: float  # max_i ‖x_i − centre of x‖
    x_off_own: np.ndarray  # (n,), of which each client knows its own


def _second_half(point: Point, shared: _Shared, products: np.ndarray | None, talk: Conversation) -> _End:
    """Phases 3 and 4: everybody sends what it has, the same things in the same order."""
    blur, norms = talk.rounding(), rigorous.norms
    centres = np.tile(shared.centre, (point.n, 1))
    means = {"r": point.f_x - point.hvp(centres)}
    r_scale = norms(point.f_x) + point.H_sizes * rigorous.norm(shared.centre)
    maxima = {"r_off": _mean_off(point, talk, r_scale, point.f_x_off + point.hvp_off(centres))}
    x_off = np.zeros(point.n)
    if products is not None:
        means["coupling"] = products
    if shared.x_centre is not None:
        means["gradient"] = point.gradients(shared.x_centre)
        x_off = norms(point.x_host() - shared.x_centre) * slack(point)
        G_off = point.gradients_off(shared.x_centre, means["gradient"])
        maxima |= {"G_off": _mean_off(point, talk, norms(means["gradient"]), G_off), "x_off": x_off}
    for name, y in zip(means, talk.average(*means.values()), strict=True):
        maxima[name] = norms(y.farthest)
    top = {name: float(a[0]) for name, a in zip(maxima, talk.largest(*maxima.values()), strict=True)}
    return _End(
        r_at_centre=top["r"] + top["r_off"] + point.tiny,
        coupling=top.get("coupling", np.nan) * (1 + blur) + point.tiny,
        gradient=top.get("gradient", np.nan) + top.get("G_off", 0.0) + point.tiny,
        x_off=top.get("x_off", np.nan),
        x_off_own=x_off,
    )


def _mean_off(point: Point, talk: Conversation, sizes: np.ndarray, off: np.ndarray) -> np.ndarray:
    """What a mean over the network of vectors of these `sizes` may be off, whose entries are known to `off`, (n,).

    One more eps is for what is sent in the problem's dtype, and for norms of what comes back.
    """
    return (talk.rounding() + point.arithmetic + (point.d + 8) * point.eps) * sizes + off


def _inner_term(point: Point, nu: Lipschitz, shared: _Shared, end: _End, alpha_bar: float) -> np.ndarray:
    """2* from what the clients know: the centre of x stands for x̄, ‖ŵ‖ ≤ ‖c‖ + ‖ḡ − H̄c‖/ᾱ."""
    distance, alpha_there = distance_to_solution(nu, end.gradient, alpha_bar - nu.nu_H * end.x_off)
    apart = end.x_off_own + distance
    w_norm = rigorous.norm(shared.centre) + end.r_at_centre / alpha_bar
    beta_there = point.beta + nu.nu_J * apart
    return inexact(nu, apart, w_norm, beta_there, alpha_there, mean_apart=end.x_off + distance)
