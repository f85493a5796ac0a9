"""C1 and C2 of a finished run by someone who sees all clients, and what an inexact inner solution adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import rounding as rigorous
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.bounds.residual import c3, c4, distance_to_solution, inexact
from hgp_ref.certificates.point import Point
from hgp_ref.mixing import Averaging, Channel, Traffic, WeightRule
from hgp_ref.problems.lipschitz import Lipschitz


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


# ----------------------------------------------------------------------------------------------------
# The network as clients use it for a certificate: averaging calls and flooding on successive graphs.


@dataclass(frozen=True)
class Enclosed:
    """A mean over clients that lies in the hull of the boxes [low_i, high_i], rows of (n, k) arrays."""

    low: np.ndarray
    high: np.ndarray

    @property
    def farthest(self) -> np.ndarray:
        """The largest absolute values in the boxes, (n, k)."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


class Conversation:
    """`average` and `largest`, one after the other on graphs not used before, and the `traffic` of both.

    It begins after `passed` graphs of the network of `avg`, over a channel of its own. Every average takes as many
    steps as the first call of `avg`, and weights start from 1 whatever the averaging does with them in a run.
    """

    def __init__(self, avg: Averaging, passed: int, like: Array, max_rounds: int | None = None) -> None:
        self.n, self.like, self.max_rounds = avg.n, like, max_rounds
        self.channel = avg.connect()
        if not isinstance(self.channel, Channel):
            given = type(self.channel).__name__
            raise TypeError(f"avg: {type(avg).__name__}.connect() returned {given}, needed a Channel")
        if self.channel.drops_mass:
            raise ValueError(
                f"avg: {avg!r} given, needed RobustPushSum: C3 and C4 place the true mean among what clients hold in "
                "the course of Push-Sum, and here part of it is lost; or do without avg (C1, C2)"
            )
        self.steps = avg.steps_of(0, 1)[0]
        self.weights = WeightRule.NONE if avg.weight_rule is WeightRule.NONE else WeightRule.RESET
        self.channel.advance(passed, self.weights, like)

    @property
    def elsewhere(self) -> bool:
        """Whether some clients live in other processes."""
        return self.channel.clients.stop - self.channel.clients.start < self.n

    @property
    def traffic(self) -> Traffic:
        return self.channel.traffic

    def average(self, *parts: np.ndarray) -> list[Enclosed]:
        """The means of `parts`, (n,) or (n, k) each, in one call, enclosed by boxes (n, 1) or (n, k)."""
        flat = [p.reshape(len(p), -1) for p in parts]
        u = from_host(np.concatenate(flat, axis=1).astype(host_dtype(self.like)), like=self.like)
        boxes = self.channel.interval_mean(u, self.steps, self.weights, self.max_rounds)
        low, high = (np.split(host_float64(end), _ends(flat), axis=1) for end in boxes)
        return [Enclosed(*ends) for ends in zip(low, high, strict=True)]

    def largest(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Maxima over all clients of each of `parts` (n,) or (n, k), exact; (1,) or (k,) each."""
        flat = [p.reshape(len(p), -1) for p in parts]
        return np.split(
            self.channel.max_consensus(np.concatenate(flat, axis=1), self.like, self.max_rounds), _ends(flat)
        )

    def rounding(self) -> float:
        """Rounding of `average` relative to the largest of what it averages.

        S steps of sums over at most n clients, for values and weights: 2 S (n + 2) eps/2; one more of each where the
        steps are composed first; columns of mixing matrices that sum to 1 up to n eps/2, S times and for both; the
        division. Together at most 2 (S + 1)(n + 2) eps. Over links that delay, one step may add what n clients have
        sent in all S, n S numbers in place of n.
        """
        eps = float(np.finfo(host_dtype(self.like)).eps)
        at_once = self.n if self.channel.conserves_mass else self.n * self.steps
        return 2 * (self.steps + 1) * (at_once + 2) * eps


def _ends(flat: list[np.ndarray]) -> np.ndarray:
    """Where each part ends but the last."""
    return np.cumsum([p.shape[1] for p in flat])[:-1]


# ----------------------------------------------------------------------------------------------------
# C3 and C4 computed by the clients themselves: Push-Sum of vectors and scalars, maxima by flooding.
#
# Push-Sum is not exact, and need not be. Its matrices P are column-stochastic, so Σ_i (P r)_i = Σ_i r_i and the
# weights ω = P1 sum to n: the true mean is the convex combination Σ_i (ω_i/n) y_i of the outputs y_i = (P
# r)_i/ω_i. Hence, for however few steps,
#
#     ‖r̄‖ ≤ max_i ‖y_i‖,     w̄ lies in the box [min_i y_i, max_i y_i],     ᾱ ≥ mean_i λ_min(H_i) ≥ min_i y_i,
#
# and maxima and minima over clients are exact by flooding. Over links that lose and delay, where clients use running
# sums, part of the sums is under way at the end, and the mean may lie outside what clients hold; it lies in the hull of
# that and of what they held since the oldest share in flight was sent (`Lossy.interval_mean`), so that a box in place
# of y_i does the same. Four phases:
#
#     1  Push-Sum of (w_i, ∂_x f_i − H_i w_i, λ_min(H_i))
#     2  flood: box of w̄ with centre c, bounds on ‖r̄‖ and ᾱ, largest and smallest eigenvalue of all H_i with middle h
#     3  Push-Sum of (∂_x f_i − H_i c, z_i δ_i), with δ_i ≥ ‖w_i − w̄‖ from the box and z_i = ‖H_i − hI‖
#     4  flood: bounds on ‖ḡ − H̄c‖ and on mean_k z_k δ_k ≥ ‖mean_k (H_k − H̄)(w_k − w̄)‖
#
# (the deviations w_k − w̄ have mean zero, so any multiple of the identity may stand for H̄). Then every client
# has its C3 and C4. With Lipschitz constants the phases also carry x: its box gives a common centre, the mean
# gradient there is a Push-Sum. Where clients do not form their Hessians, what only C3 needs is left out: C4 remains,
# with an ᾱ that they know.
#
# Rounding travels along: what Push-Sum may be off is relative to ‖∂_x f_i‖ + ‖H_i‖ ‖w_i‖; with what the problem's own
# gradients and products may be off it is one number of each client, of which the largest is flooded beside the rest.


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
