"""Error bounds of finished runs: for an observer of all clients (C1, C2), and by the clients themselves (C3, C4).

With r̃_i = ḡ − H̄ w_i, for an observer of all clients (`bounds.residual`),

    C1 = β_i ‖r̃_i‖/ᾱ,        C2 = ‖J_i H̄⁻¹‖ ‖r̃_i‖.

The clients use Push-Sum for means and max-consensus for maxima. Maxima are exact; means need not be. The matrices P of
Push-Sum are column-stochastic, so Σ_i (P r)_i = Σ_i r_i and the weights ω = P1 sum to n. The true mean is thus the
convex combination Σ_i (ω_i/n) y_i of the outputs y_i = (P r)_i/ω_i. Hence, for however few steps,

    ‖r̄‖ ≤ max_i ‖y_i‖,     w̄ lies in the box [min_i y_i, max_i y_i],     ᾱ ≥ mean_i λ_min(H_i) ≥ min_i y_i.

Over unreliable links, where clients use running sums, part of the sums is in flight at the end, and the mean may lie
outside the clients' values. It lies in the hull of these and of what clients held since the oldest message in flight
was sent, so each y_i is replaced by a box. There are four phases:

    1  Push-Sum of (w_i, ∂_x f_i − H_i w_i, λ_min(H_i))
    2  max: box of w̄ with centre c, bounds on ‖r̄‖ and ᾱ, largest and smallest eigenvalue of all H_i with middle h
    3  Push-Sum of (∂_x f_i − H_i c, z_i δ_i), with δ_i ≥ ‖w_i − w̄‖ from the box and z_i = ‖H_i − hI‖
    4  max: bounds on ‖ḡ − H̄c‖ and on mean_k z_k δ_k ≥ ‖mean_k (H_k − H̄)(w_k − w̄)‖

(the deviations w_k − w̄ have mean zero, so any multiple of the identity may replace H̄). With Lipschitz constants the
phases also carry x: its box gives a common centre, and the mean gradient there is a Push-Sum. In matrix-free form the
terms that only C3 needs are left out; C4 remains, with an ᾱ that is known beforehand.

Rounding errors of Push-Sum are relative to ‖∂_x f_i‖ + ‖H_i‖ ‖w_i‖. Each client adds those of its gradients and
products, and the largest sum enters the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rounding
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.bounds.residual import c3, c4, distance_to_solution, inexact_terms
from hgp_ref.certificates.point import Point
from hgp_ref.methods.spectrum import averaging_rounding
from hgp_ref.mixing import Averaging, Traffic, WeightRule
from hgp_ref.mixing.averaging import open_channel
from hgp_ref.problems.lipschitz import Lipschitz

norms = rounding.norms

# ---------------------------------------------------------------------------------------- by an observer of all clients


def consistency(point: Point, v: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """‖v_i − (∂_λ f_i − J_i w_i)‖ for v (..., n, d_lam) and w (..., n, d_x), and a bound on its rounding error.

    Each client computes its own without communication; (..., n) each.
    """
    difference = norms(v - (point.f_lam - point.J(w))) * (1 + rounding.norm_accuracy(v.shape[-1]))
    sizes = norms(point.f_lam) + point.J.sizes * norms(w)
    return difference, point.f_lam_error + point.J.error(w) + point.arithmetic * sizes + point.tiny


@dataclass(frozen=True)
class CentralTerms:
    """What an observer of all clients computes for w (..., n, d), (..., n) each."""

    residual: np.ndarray  # ‖ḡ − H̄ w_i‖
    identity: np.ndarray | None  # ‖J_i H̄⁻¹ (ḡ − H̄ w_i)‖
    c1: np.ndarray
    c2: np.ndarray | None
    rounding: np.ndarray  # a bound on what the rounding of the residual adds to the error


def centralised(point: Point, w: np.ndarray) -> CentralTerms:
    """C1 and C2 of runs that ended with w (..., n, d_x)."""
    r, error = point.residuals(w)  # r̃_i
    size = norms(r) * point.slack
    gain = point.beta / point.alpha_bar
    if point.beta_inverse is not None:
        gain = np.minimum(gain, point.beta_inverse)
    return CentralTerms(
        residual=size,
        identity=point.identity(r),
        c1=c4(point.beta, size, np.zeros(point.n), point.alpha_bar),  # C4 at c = w_i; divides before it multiplies
        c2=None if point.beta_inverse is None else point.beta_inverse * size,
        rounding=gain * error,
    )


@dataclass(frozen=True)
class InnerError:
    """How far x is from the inner solution."""

    gradient: float  # ‖mean ∂g(x̄)‖ at the mean x̄ of the rows of x, rounding included
    gap: float  # max_i ‖x_i − x̄‖
    term: np.ndarray | None = None  # bounds on ‖d̂_i − d_i‖, (n,), where constants are known
    note: str = ""  # why the constants give no term


def inner_error(point: Point, nu: Lipschitz | None, w: np.ndarray, strict: bool) -> InnerError:
    """The gradient at the mean of x and, with Lipschitz constants, the term of 2*; w (n, d) is that of a run.

    If x is too far from the inner solution for the constants, raise ValueError if `strict`, else leave the term out.
    """
    x = host_float64(point.x)
    centre = point.rounded(x.mean(axis=0))  # any common point will do
    distances = norms(x - centre) * point.slack
    gradients, errors = point.gradients(centre)
    hidden = float(errors.mean())
    hidden += point.arithmetic * float(norms(gradients).mean()) + point.tiny
    gradient = rounding.norm(rounding.mean(gradients)) * point.slack + hidden
    gap = float(distances.max())
    if nu is None:
        return InnerError(gradient, gap)
    z = point.solution(w)[None]  # ‖ŵ‖ ≤ ‖z‖ + ‖ḡ − H̄z‖/ᾱ for any z
    r, error = point.residuals(z)
    w_norm = rounding.norm(z) + (rounding.norm(r) + float(error[0])) / point.alpha_bar
    try:
        term = _inexact_term(point, nu, distances, None, gradient, w_norm, point.alpha_bar)
    except ValueError as reason:
        if strict:
            raise
        return InnerError(gradient, gap, note=f"no term for an inexact x: {reason}")
    return InnerError(gradient, gap, term)


def _inexact_term(
    point: Point,
    nu: Lipschitz,
    distances: np.ndarray,
    largest: float | None,
    gradient: float,
    w_norm: float,
    alpha_bar: float,
) -> np.ndarray:
    """The term of 2* for rows of x at `distances` (n,) from a common centre, where the mean gradient is `gradient`.

    `largest` bounds the distances of all clients; None if all are in `distances`, whose mean then takes its place.
    ValueError if x is too far from the inner solution for the constants.
    """
    mean = float(distances.mean()) if largest is None else largest
    distance, alpha = distance_to_solution(nu, gradient, alpha_bar - nu.nu_H * mean)  # ≤ λ_min(H̄) at the centre
    apart = distances + distance
    mean_apart = float(apart.mean()) if largest is None else largest + distance
    return inexact_terms(nu, apart, mean_apart, w_norm, point.beta + nu.nu_J * apart, alpha) * point.slack


# ------------------------------------------------------------------------------------ means and maxima over the network


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

    It opens a channel over the network of `avg`, `rounds_used` graphs in. Every mean takes as many steps as the first
    call of `avg`, and its weights start from 1 whatever the averaging does with them in a run.
    """

    def __init__(self, avg: Averaging, rounds_used: int, like: Array, max_rounds: int | None = None) -> None:
        self.n, self.like, self.max_rounds = avg.n, like, max_rounds
        self.channel = open_channel(avg)
        if self.channel.drops_mass:
            raise ValueError(
                f"avg must be a RobustPushSum on this network, got {avg!r}: C3 and C4 need all of the clients' sums, "
                "and here messages are lost; or omit avg (C1, C2)"
            )
        self.distributed = self.channel.clients.stop - self.channel.clients.start < self.n  # over several processes
        self.steps = avg.steps_of(0, 1)[0]
        self.weights = WeightRule.NONE if avg.weight_rule is WeightRule.NONE else WeightRule.RESET
        self.channel.advance(rounds_used, self.weights, like)
        self.rounding = averaging_rounding(self.channel, self.steps, float(np.finfo(host_dtype(like)).eps))

    @property
    def traffic(self) -> Traffic:
        return self.channel.traffic

    def means(self, *parts: np.ndarray) -> list[MeanInterval]:
        """The means of `parts`, (n,) or (n, k) each, in one call, enclosed by boxes (n, 1) or (n, k)."""
        columns, ends = _side_by_side(parts)
        u = from_host(columns.astype(host_dtype(self.like)), like=self.like)
        low, high = self.channel.interval_mean(u, self.steps, self.weights, self.max_rounds)
        boxes = zip(np.split(host_float64(low), ends, axis=1), np.split(host_float64(high), ends, axis=1), strict=True)
        return [MeanInterval(*box) for box in boxes]

    def maxima(self, *parts: np.ndarray) -> list[np.ndarray]:
        """The exact maxima over all clients of each of `parts`, (n,) or (n, k); (1,) or (k,) each."""
        columns, ends = _side_by_side(parts)
        return np.split(self.channel.max_consensus(columns, self.like, self.max_rounds), ends)


def _side_by_side(parts: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """`parts` as one array (n, columns), and where each part but the last ends."""
    matrices = [part.reshape(len(part), -1) for part in parts]
    return np.concatenate(matrices, axis=1), np.cumsum([a.shape[1] for a in matrices])[:-1]


# --------------------------------------------------------------------------------------------- C3 and C4 by the clients


@dataclass(frozen=True)
class DecentralisedTerms:
    """What the clients know at the end of a run, (n,) each; of all runs, (runs, n)."""

    c3: np.ndarray | None
    c4: np.ndarray
    inexact: np.ndarray | None  # what an inexact x may add, where constants are known
    alpha_bar: float  # the lower bound on λ_min(H̄) that they used; of all runs the smallest


def decentralised(
    point: Point,
    w: np.ndarray,
    networks: Sequence[NetworkReductions],
    nu: Lipschitz | None,
    alpha_known: float,
    strict: bool,
) -> DecentralisedTerms:
    """C3 and C4 of runs that ended with w (runs, n, d_x), each over a network.

    `alpha_known` is a lower bound on λ_min(H̄) that all clients know. If x is too far from the inner solution for the
    constants `nu`, raise ValueError if `strict`, else leave that term out.
    """
    curvature = point.curvature()
    runs = [
        _of_run(point, w_of_run, network, curvature, nu, alpha_known, strict)
        for w_of_run, network in zip(w, networks, strict=True)
    ]
    stacked: Any = {}
    for name in ("c3", "c4", "inexact"):
        values = [getattr(run, name) for run in runs]
        stacked[name] = None if any(value is None for value in values) else np.stack(values)
    return DecentralisedTerms(**stacked, alpha_bar=min(run.alpha_bar for run in runs))


def _of_run(
    point: Point,
    w: np.ndarray,
    network: NetworkReductions,
    curvature: tuple[np.ndarray, np.ndarray] | None,
    nu: Lipschitz | None,
    alpha_known: float,
    strict: bool,
) -> DecentralisedTerms:
    """The four phases for w (n, d_x); `curvature` is that of the point."""
    x, w_sizes, f_x_sizes = host_float64(point.x), norms(w), norms(point.f_x)

    def mean_errors(sizes: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """Bounds on the rounding error of the mean of vectors with these `sizes` and `errors`, (n,).

        One more eps is for vectors sent in the problem's dtype, and for norms of the result.
        """
        return (network.rounding + point.arithmetic + (point.d + 8) * point.eps) * sizes + errors

    # Phases 1 and 2
    x_box = [] if nu is None else [x, -x]
    if curvature is None:
        (y_w,) = network.means(w)
        top, bottom, w_scale, *x_ends = network.maxima(y_w.high, -y_w.low, w_sizes, *x_box)
        r_bar, by_clients, middle = np.nan, -np.inf, np.nan
    else:
        low, high = curvature
        y_w, y_r, y_low = network.means(w, point.f_x - point.H(w), low)
        r_errors = mean_errors(f_x_sizes + point.H.sizes * w_sizes, point.f_x_error + point.H.error(w))
        top, bottom, r, minus_alpha, largest, minus_least, r_error, w_scale, *x_ends = network.maxima(
            y_w.high, -y_w.low, norms(y_r.max_abs), -y_low.low, high, -low, r_errors, w_sizes, *x_box
        )
        r_bar = float(r[0]) + float(r_error[0]) + point.tiny  # ≥ ‖r̄‖
        spectrum = max(abs(float(largest[0])), abs(float(minus_least[0])))
        by_clients = float(-minus_alpha[0]) - network.rounding * spectrum  # ≤ mean_i λ_min(H_i) ≤ λ_min(H̄)
        middle = float(largest[0]) / 2 - float(minus_least[0]) / 2  # h
    alpha_bar = max(by_clients, alpha_known)
    if not alpha_bar > 0:
        raise ValueError(
            f"the mean of the clients' smallest Hessian eigenvalues is only known to be >= {by_clients:.3e}, "
            "which does not bound the mean Hessian away from zero: give strong_convexity, or omit avg"
        )
    centre = point.rounded(top / 2 - bottom / 2)  # c; bottom holds −min
    half_width = np.maximum(top - centre, centre + bottom) + network.rounding * float(w_scale[0]) + point.tiny
    from_centre = norms(w - centre)
    delta = norms(np.abs(w - centre) + half_width)  # δ_i ≥ ‖w_i − w̄‖

    # Phases 3 and 4
    centres = np.tile(centre, (point.n, 1))
    means = {"r": point.f_x - point.H(centres)}
    r_sizes = f_x_sizes + point.H.sizes * rounding.norm(centre)
    maxima = {"r_error": mean_errors(r_sizes, point.f_x_error + point.H.error(centres))}
    if curvature is not None:
        means["coupling"] = np.maximum(np.abs(high - middle), np.abs(low - middle)) * delta  # z_i δ_i
    if nu is not None:
        x_centre = point.rounded(x_ends[0] / 2 - x_ends[1] / 2)
        x_distances = norms(x - x_centre) * point.slack
        means["gradient"], errors = point.gradients(x_centre)
        maxima["gradient_error"] = mean_errors(norms(means["gradient"]), errors)
        maxima["x_distance"] = x_distances
    for name, interval in zip(means, network.means(*means.values()), strict=True):
        maxima[name] = norms(interval.max_abs)
    known = dict(zip(maxima, np.concatenate(network.maxima(*maxima.values())).tolist(), strict=True))
    r_at_centre = known["r"] + known["r_error"] + point.tiny  # ≥ ‖ḡ − H̄c‖

    # Bounds
    by_mean = None
    if curvature is not None:
        coupling = known["coupling"] * (1 + network.rounding) + point.tiny
        by_mean = c3(point.beta, r_bar, delta, coupling, alpha_bar) * point.slack
    by_centre = c4(point.beta, r_at_centre, from_centre, alpha_bar) * point.slack
    term = None
    if nu is not None:  # 2*: the centre of x replaces x̄, and ‖ŵ‖ ≤ ‖c‖ + ‖ḡ − H̄c‖/ᾱ
        gradient = known["gradient"] + known["gradient_error"] + point.tiny
        w_norm = rounding.norm(centre) + r_at_centre / alpha_bar
        try:
            term = _inexact_term(point, nu, x_distances, known["x_distance"], gradient, w_norm, alpha_bar)
        except ValueError:
            if strict:
                raise
    return DecentralisedTerms(by_mean, by_centre, term, alpha_bar)
