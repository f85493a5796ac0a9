"""Error bounds of one finished run: by someone who sees all clients (C1, C2), and by the clients themselves (C3, C4).

With r̃_i = ḡ − H̄ w_i, for an observer of all clients (`bounds.residual`),

    C1 = β_i ‖r̃_i‖/ᾱ,        C2 = ‖J_i H̄⁻¹‖ ‖r̃_i‖.

The clients use Push-Sum for means and max-consensus for maxima, which are exact. Push-Sum need not be. Its matrices P
are column-stochastic, so Σ_i (P r)_i = Σ_i r_i and the weights ω = P1 sum to n. The true mean is thus the convex
combination Σ_i (ω_i/n) y_i of the outputs y_i = (P r)_i/ω_i. Hence, for however few steps,

    ‖r̄‖ ≤ max_i ‖y_i‖,     w̄ lies in the box [min_i y_i, max_i y_i],     ᾱ ≥ mean_i λ_min(H_i) ≥ min_i y_i.

Over unreliable links, where clients use running sums, part of the sums is in flight at the end, and the mean may lie
outside the clients' values. It lies in the hull of these and of what clients held since the oldest message in flight
was sent, so a box in place of y_i does the same. Four phases:

    1  Push-Sum of (w_i, ∂_x f_i − H_i w_i, λ_min(H_i))
    2  max: box of w̄ with centre c, bounds on ‖r̄‖ and ᾱ, largest and smallest eigenvalue of all H_i with middle h
    3  Push-Sum of (∂_x f_i − H_i c, z_i δ_i), with δ_i ≥ ‖w_i − w̄‖ from the box and z_i = ‖H_i − hI‖
    4  max: bounds on ‖ḡ − H̄c‖ and on mean_k z_k δ_k ≥ ‖mean_k (H_k − H̄)(w_k − w̄)‖

(the deviations w_k − w̄ have mean zero, so any multiple of the identity may replace H̄). With Lipschitz constants the
phases also carry x: its box gives a common centre, the mean gradient there is a Push-Sum. In matrix-free form the
terms that only C3 needs are left out; C4 remains, with an ᾱ that is known beforehand.

Rounding errors of Push-Sum are relative to ‖∂_x f_i‖ + ‖H_i‖ ‖w_i‖. Each client adds those of its own gradients and
products, and the largest sum enters the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import rounding
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.bounds.residual import c3, c4, distance_to_solution, inexact
from hgp_ref.certificates.point import Point
from hgp_ref.methods.spectrum import averaging_rounding
from hgp_ref.mixing import Averaging, Channel, Traffic, WeightRule
from hgp_ref.problems.lipschitz import Lipschitz

norms = rounding.norms

# ----------------------------------------------------------------------------------------------- seen from the centre


@dataclass(frozen=True)
class LocalTerms:
    """What every client finds about a run without communication, (n,) each."""

    consistency: np.ndarray  # ‖v_i − (∂_λ f_i − J_i w_i)‖, with the rounding of the norm
    rounding: np.ndarray  # a bound on the rounding error of v_i − (∂_λ f_i − J_i w_i)


def local_terms(point: Point, v: np.ndarray, w: np.ndarray) -> LocalTerms:
    """The local terms of a run that ended with v (n, d_lam) and w (n, d_x)."""
    difference = norms(v - (point.f_lam - point.cross(w)))
    sizes = norms(point.f_lam) + point.J_sizes * norms(w)
    return LocalTerms(
        consistency=difference * (1 + rounding.norm_accuracy(v.shape[-1])),
        rounding=point.f_lam_error + point.cross_error(w) + point.arithmetic * sizes + point.tiny,
    )


@dataclass(frozen=True)
class GlobalTerms:
    """What an observer of all clients finds about a run, (n,) each."""

    residual: np.ndarray  # ‖ḡ − H̄ w_i‖
    identity: np.ndarray | None  # ‖J_i H̄⁻¹ (ḡ − H̄ w_i)‖
    c1: np.ndarray
    c2: np.ndarray | None
    rounding: np.ndarray  # of the consistency and of the residual


def evaluate(point: Point, local: LocalTerms, w: np.ndarray) -> GlobalTerms:
    """C1 and C2 of a run that ended with w (n, d_x)."""
    r = point.residuals(w)  # r̃_i
    size = norms(r) * point.slack
    gain = point.beta / point.alpha_bar
    if point.beta_inverse is not None:
        gain = np.minimum(gain, point.beta_inverse)
    return GlobalTerms(
        residual=size,
        identity=point.identity(r),
        c1=c4(point.beta, size, np.zeros(point.n), point.alpha_bar),  # C4 at c = w_i; divides before it multiplies
        c2=None if point.beta_inverse is None else point.beta_inverse * size,
        rounding=local.rounding + gain * point.residual_rounding(w),
    )


@dataclass(frozen=True)
class InnerError:
    """How far x is from the inner solution."""

    gradient: float  # ‖mean ∂g(x̄)‖ at the mean x̄ of the rows of x, rounding included
    gap: float  # max_i ‖x_i − x̄‖
    term: np.ndarray | None = None  # bounds on ‖d̂_i − d_i‖, (n,), where constants are known


def inner_error(point: Point, nu: Lipschitz | None, w: np.ndarray) -> InnerError:
    """The gradient at the mean of x and, with Lipschitz constants, the term of 2*; w (n, d) is that of a run."""
    x = host_float64(point.x)
    centre = point.rounded(x.mean(axis=0))  # any common point will do
    distances = norms(x - centre) * point.slack
    gradients, errors = point.gradients(centre)
    hidden = float(errors.mean())
    hidden += point.arithmetic * float(norms(gradients).mean()) + point.tiny
    gradient = rounding.norm(rounding.mean(gradients)) * point.slack + hidden
    if nu is None:
        return InnerError(gradient, float(distances.max()))
    z = point.solution(w)[None]  # ‖ŵ‖ ≤ ‖z‖ + ‖ḡ − H̄z‖/ᾱ for any z
    r = rounding.norm(point.residuals(z)) + float(point.residual_rounding(z)[0])
    w_norm = rounding.norm(z) + r / point.alpha_bar
    alpha_centre = point.alpha_bar - nu.nu_H * float(distances.mean())  # ≤ λ_min(H̄(x̄))
    distance, alpha_bar = distance_to_solution(nu, gradient, alpha_centre)
    apart = distances + distance
    term = inexact(nu, apart, w_norm, point.beta + nu.nu_J * apart, alpha_bar) * point.slack
    return InnerError(gradient, float(distances.max()), term)


# --------------------------------------------------------------------------------------------------- over the network


@dataclass(frozen=True)
class MeanInterval:
    """A mean over clients that lies in the hull of the boxes [low_i, high_i], rows of (n, k) arrays."""

    low: np.ndarray
    high: np.ndarray

    @property
    def max_abs(self) -> np.ndarray:
        """The largest absolute values in the boxes, (n, k)."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


class NetworkReductions:
    """Means and maxima over clients, one after the other on graphs not used before, with their `traffic`.

    It opens its own channel over the network of `avg`, `rounds_used` graphs in. Every mean takes as many steps as the
    first call of `avg`, and its weights start from 1 whatever the averaging does with them in a run.
    """

    def __init__(self, avg: Averaging, rounds_used: int, like: Array, max_rounds: int | None = None) -> None:
        self.n, self.like, self.max_rounds = avg.n, like, max_rounds
        self.channel = avg.connect()
        if not isinstance(self.channel, Channel):
            returned = type(self.channel).__name__
            raise TypeError(f"avg: {type(avg).__name__}.connect() must return a Channel, got {returned}")
        if self.channel.drops_mass:
            raise ValueError(
                f"avg must be a RobustPushSum on this network, got {avg!r}: C3 and C4 need all of the clients' sums, "
                "and here messages are lost; or omit avg (C1, C2)"
            )
        self.steps = avg.steps_of(0, 1)[0]
        self.weights = WeightRule.NONE if avg.weight_rule is WeightRule.NONE else WeightRule.RESET
        self.channel.advance(rounds_used, self.weights, like)
        self.rounding = averaging_rounding(self.channel, self.steps, float(np.finfo(host_dtype(like)).eps))

    @property
    def distributed(self) -> bool:
        """Whether some clients live in other processes."""
        return self.channel.clients.stop - self.channel.clients.start < self.n

    @property
    def traffic(self) -> Traffic:
        return self.channel.traffic

    def means(self, *parts: np.ndarray) -> list[MeanInterval]:
        """The means of `parts`, (n,) or (n, k) each, in one call, enclosed by boxes (n, 1) or (n, k)."""
        columns, ends = _columns(parts)
        u = from_host(columns.astype(host_dtype(self.like)), like=self.like)
        low, high = self.channel.interval_mean(u, self.steps, self.weights, self.max_rounds)
        boxes = zip(np.split(host_float64(low), ends, axis=1), np.split(host_float64(high), ends, axis=1), strict=True)
        return [MeanInterval(*box) for box in boxes]

    def maxima(self, *parts: np.ndarray) -> list[np.ndarray]:
        """The exact maxima over all clients of each of `parts`, (n,) or (n, k); (1,) or (k,) each."""
        columns, ends = _columns(parts)
        return np.split(self.channel.max_consensus(columns, self.like, self.max_rounds), ends)


def _columns(parts: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """`parts` side by side, (n, columns), and where each part but the last ends."""
    matrices = [part.reshape(len(part), -1) for part in parts]
    return np.concatenate(matrices, axis=1), np.cumsum([a.shape[1] for a in matrices])[:-1]


# ------------------------------------------------------------------------------------------- C3 and C4 by the clients

Curvature = tuple[np.ndarray, np.ndarray]  # bounds on λ_min(H_i) and λ_max(H_i), (n,) each


@dataclass(frozen=True)
class DecentralisedTerms:
    """What the clients know at the end, (n,) each."""

    c3: np.ndarray | None
    c4: np.ndarray
    alpha_bar: float  # the lower bound on λ_min(H̄) that they used
    term: np.ndarray | None  # the inexact-inner-solution term, where constants are known
    traffic: Traffic


def decentralised(
    point: Point,
    w: np.ndarray,
    reductions: NetworkReductions,
    *,
    curvature: Curvature | None,
    nu: Lipschitz | None = None,
    strict: bool = True,
    alpha_known: float = 0.0,
) -> DecentralisedTerms:
    """C3 and C4 for w (n, d_x) over the network.

    `alpha_known` is a lower bound on λ_min(H̄) that all clients know. If x is too far from the inner solution for the
    constants `nu`, raise ValueError if `strict`, else leave the term out.
    """
    common = _phases_1_and_2(point, w, curvature, reductions, with_x=nu is not None)
    alpha_bar = max(common.alpha_bar, alpha_known)
    if not alpha_bar > 0:
        raise ValueError(
            f"the mean of the clients' smallest Hessian eigenvalues is only known to be >= {common.alpha_bar:.3e}, "
            "which does not bound the mean Hessian away from zero: give strong_convexity, or omit avg"
        )
    from_centre = norms(w - common.centre)
    delta = norms(np.abs(w - common.centre) + common.half_width)  # ≥ ‖w_i − w̄‖
    coupling = None
    if curvature is not None:
        low, high = curvature
        coupling = np.maximum(np.abs(high - common.middle), np.abs(low - common.middle)) * delta  # z_i δ_i
    end = _phases_3_and_4(point, common, coupling, reductions)
    term = None
    if nu is not None:
        try:
            term = _inner_term(point, nu, common, end, alpha_bar) * point.slack
        except ValueError:
            if strict:
                raise
    by_mean = c3(point.beta, common.r_bar, delta, end.coupling, alpha_bar) * point.slack
    return DecentralisedTerms(
        c3=None if curvature is None else by_mean,
        c4=c4(point.beta, end.r_at_centre, from_centre, alpha_bar) * point.slack,
        alpha_bar=alpha_bar,
        term=term,
        traffic=reductions.traffic,
    )


@dataclass(frozen=True)
class _Common:
    """What all clients know after phase 2."""

    centre: np.ndarray  # c, (d,)
    half_width: np.ndarray  # ≥ |c − w̄|, coordinate by coordinate
    r_bar: float  # ≥ ‖r̄‖; NaN without curvature
    alpha_bar: float  # ≤ λ_min(H̄); −∞ without curvature
    middle: float  # h, of the spectrum of all H_i
    x_centre: np.ndarray | None  # of the box of the x_i


def _phases_1_and_2(
    point: Point, w: np.ndarray, curvature: Curvature | None, reductions: NetworkReductions, with_x: bool
) -> _Common:
    r_bar, alpha_bar, middle = np.nan, -np.inf, np.nan
    x = host_float64(point.x)
    x_ends = [x, -x] if with_x else []
    if curvature is None:
        (y_w,) = reductions.means(w)
        top, bottom, w_scale, *x_box = reductions.maxima(y_w.high, -y_w.low, norms(w), *x_ends)
    else:
        low, high = curvature
        y_w, y_r, y_low = reductions.means(w, point.f_x - point.hvp(w), low)
        r_sizes = norms(point.f_x) + point.H_sizes * norms(w)
        r_errors = _mean_error(point, reductions, r_sizes, point.f_x_error + point.hvp_error(w))
        top, bottom, r, minus_alpha, L, minus_least, r_error, w_scale, *x_box = reductions.maxima(
            y_w.high, -y_w.low, norms(y_r.max_abs), -y_low.low, high, -low, r_errors, norms(w), *x_ends
        )
        r_bar = float(r[0]) + float(r_error[0]) + point.tiny
        alpha_bar = float(-minus_alpha[0]) - reductions.rounding * max(abs(float(L[0])), abs(float(minus_least[0])))
        middle = float(L[0]) / 2 - float(minus_least[0]) / 2
    centre = point.rounded(top / 2 - bottom / 2)  # bottom holds −min
    return _Common(
        centre=centre,
        half_width=np.maximum(top - centre, centre + bottom) + reductions.rounding * float(w_scale[0]) + point.tiny,
        r_bar=r_bar,
        alpha_bar=alpha_bar,
        middle=middle,
        x_centre=point.rounded(x_box[0] / 2 - x_box[1] / 2) if with_x else None,
    )


@dataclass(frozen=True)
class _End:
    """What all clients know after phase 4."""

    r_at_centre: float  # ≥ ‖ḡ − H̄c‖
    coupling: float  # ≥ mean_k z_k δ_k; NaN without curvature
    gradient: float  # ≥ ‖mean ∂g‖ at the centre of x
    x_distance: float  # max_i ‖x_i − centre of x‖
    x_distances: np.ndarray  # (n,), of which each client knows its own


def _phases_3_and_4(point: Point, common: _Common, coupling: np.ndarray | None, reductions: NetworkReductions) -> _End:
    centres = np.tile(common.centre, (point.n, 1))
    means = {"r": point.f_x - point.hvp(centres)}
    r_sizes = norms(point.f_x) + point.H_sizes * rounding.norm(common.centre)
    maxima = {"r_error": _mean_error(point, reductions, r_sizes, point.f_x_error + point.hvp_error(centres))}
    x_distances = np.zeros(point.n)
    if coupling is not None:
        means["coupling"] = coupling
    if common.x_centre is not None:
        means["gradient"], errors = point.gradients(common.x_centre)
        x_distances = norms(host_float64(point.x) - common.x_centre) * point.slack
        maxima["gradient_error"] = _mean_error(point, reductions, norms(means["gradient"]), errors)
        maxima["x_distance"] = x_distances
    for name, interval in zip(means, reductions.means(*means.values()), strict=True):
        maxima[name] = norms(interval.max_abs)
    top = dict(zip(maxima, np.concatenate(reductions.maxima(*maxima.values())).tolist(), strict=True))
    return _End(
        r_at_centre=top["r"] + top["r_error"] + point.tiny,
        coupling=top.get("coupling", np.nan) * (1 + reductions.rounding) + point.tiny,
        gradient=top.get("gradient", np.nan) + top.get("gradient_error", 0.0) + point.tiny,
        x_distance=top.get("x_distance", np.nan),
        x_distances=x_distances,
    )


def _mean_error(point: Point, reductions: NetworkReductions, sizes: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Bounds on the rounding error of a mean over the network of vectors of these `sizes` and `errors`, (n,).

    One more eps is for vectors sent in the problem's dtype, and for norms of the result.
    """
    return (reductions.rounding + point.arithmetic + (point.d + 8) * point.eps) * sizes + errors


def _inner_term(point: Point, nu: Lipschitz, common: _Common, end: _End, alpha_bar: float) -> np.ndarray:
    """2* as clients know it: the centre of x replaces x̄, and ‖ŵ‖ ≤ ‖c‖ + ‖ḡ − H̄c‖/ᾱ."""
    distance, alpha_solution = distance_to_solution(nu, end.gradient, alpha_bar - nu.nu_H * end.x_distance)
    apart = end.x_distances + distance
    w_norm = rounding.norm(common.centre) + end.r_at_centre / alpha_bar
    return inexact(
        nu, apart, w_norm, point.beta + nu.nu_J * apart, alpha_solution, mean_apart=end.x_distance + distance
    )
