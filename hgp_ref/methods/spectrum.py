"""Extreme eigenvalues of Hessians, and how fast averages over a network become equal, as clients find them.

Lanczos with k products makes a (k, k) tridiagonal matrix. Its eigenvalues lie inside the spectrum, the extreme ones
close to its ends. They are estimates from inside: SAFETY widens the upper end where something must not exceed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64
from hgp_ref.errors import NonFiniteError
from hgp_ref.methods.base import Curvature
from hgp_ref.mixing import Channel, Mixer

PRODUCTS = 30
SAFETY = 1.05  # on what Lanczos finds from inside, for the largest eigenvalue
NOT_FINITE = "problem: hvp(u) returned NaN or infinite values for finite u, needed finite numbers"


def range_over_clients(channel: Channel, linearization: Curvature, like: Array) -> tuple[float, float]:
    """Bounds of the spectrum of H̄ that clients can find: the extremes over all H_i, by Lanczos and flooding."""
    one = like[(*(0,) * (like.ndim - 2), ...)]  # (n, d): all runs share the Hessians
    low, high = extremes(linearization.hvp, start_rows(one))
    ends = np.stack([high, -low], axis=1)
    top = channel.max_consensus(np.where(np.isfinite(ends), ends, np.inf), like)  # so that all ranks hear of NaN on one
    if not np.isfinite(top).all():
        raise NonFiniteError(NOT_FINITE)
    return float(-top[1]), float(SAFETY * top[0])


def safe_step_size(name: str, channel: Channel, linearization: Curvature, like: Array, added: float = 0.0) -> float:
    """1 / L, with L the largest |eigenvalue| of any client's Hessian plus `added`, as the clients find it.

    I − H_i/L then expands no vector at a client whose H_i is positive semi-definite.
    """
    low, high = range_over_clients(channel, linearization, like)
    L = max(abs(low), abs(high)) + added
    if not L > 0:
        raise ValueError(f"{name} must be given: the clients' Hessians are zero, so no step size follows from them")
    return 1.0 / L


def client_extremes(linearization: Curvature, like: Array) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest eigenvalue of every client's own H_i, (n,) each, as Lanczos finds them; finite."""
    low, high = extremes(linearization.hvp, start_rows(like))
    if not np.isfinite(low + high).all():
        raise NonFiniteError(NOT_FINITE)
    return low, high


def range_of_mean(channel: Channel, linearization: Curvature, like: Array) -> tuple[float, float]:
    """Smallest and largest eigenvalue of H̄ as someone who sees all clients would find them, for reports."""
    xp = array_namespace(like)
    everybody = tuple(like.shape)

    def mean_product(u: Array) -> Array:  # (1, d)
        return channel.mean_over_clients(linearization.hvp(xp.broadcast_to(u, everybody) + xp.zeros_like(like)))

    low, high = extremes(mean_product, start_rows(like[:1, :]))
    return float(low[0]), float(high[0])


def extremes(product: Callable[[Array], Array], start: Array, steps: int = PRODUCTS) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest Ritz value of each of m symmetric operators, (m,) each; `product` maps rows (m, d).

    NaN for an operator whose products are not finite; it goes on with rows of zeros, so that `product` never sees them.
    """
    xp = array_namespace(start)
    before, q = xp.zeros_like(start), start / row_norms(start)[..., None]
    beta = xp.zeros_like(start[..., :1])
    diagonal, beside = [], []
    for _ in range(min(steps, start.shape[-1])):
        z = product(q)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite products; `_ritz` judges α and β
            z = z - beta * before
            alpha = xp.sum(q * z, axis=-1, keepdims=True)
            z = z - alpha * q
            diagonal.append(alpha)
            beta = row_norms(z)[..., None]
            beside.append(beta)
            before, q = q, z / xp.where(beta > 0, beta, xp.ones_like(beta))
            beta, q = (xp.where(xp.isfinite(a), a, xp.zeros_like(a)) for a in (beta, q))
    alphas, betas = (host_float64(xp.concat(parts, axis=-1)) for parts in (diagonal, beside))
    return _ritz(alphas, betas, spent=100 * float(xp.finfo(start.dtype).eps))


def row_norms(u: Array) -> Array:
    """‖u_i‖ of every client, (..., n); scaled, so that squares stay within range."""
    xp = array_namespace(u)
    scale = xp.max(xp.abs(u), axis=-1, keepdims=True)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    return (xp.sqrt(xp.sum((u / scale) ** 2, axis=-1, keepdims=True)) * scale)[..., 0]


def _ritz(alphas: np.ndarray, betas: np.ndarray, spent: float) -> tuple[np.ndarray, np.ndarray]:
    """Extreme eigenvalues of the tridiagonal matrices; each ends where its β says that the space is exhausted."""
    low, high = np.empty(len(alphas)), np.empty(len(alphas))
    for i, (a, b) in enumerate(zip(alphas, betas, strict=True)):
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            low[i] = high[i] = np.nan
            continue
        ends = np.flatnonzero(b <= spent * max(np.abs(a).max(), b.max()))
        k = int(ends[0]) + 1 if ends.size else len(a)
        values = np.linalg.eigvalsh(np.diag(a[:k]) + np.diag(b[: k - 1], 1) + np.diag(b[: k - 1], -1))
        low[i], high[i] = values[0], values[-1]
    return low, high


def start_rows(like: Array) -> Array:
    """Rows in which no direction is special, each the same whatever rows are beside it."""
    row = np.cos(1.0 + np.arange(like.shape[-1], dtype=np.float64) ** 2)
    return from_host(np.broadcast_to(row, like.shape).astype(host_dtype(like)), like=like)


# ----------------------------------------------------------------------------------------------------
# How fast averages over a network become equal, as clients can find out themselves.
#
# The long run. Client i holds cos(1 + i²), which is no pattern of any network. After t rounds of Push-Sum the spread of
# their averages, max_i z_i/ω_i − min_i z_i/ω_i, which flooding makes known to all, is about C τ^t. It is looked at
# after
# t = 6, 12, 24, ... rounds until it is FALLEN of the first one, which everybody can compute. Where that takes EARLY
# rounds at most, τ = (spread(t)/spread(0))^(1/t); else
#
#     τ = (spread(t)/spread(t/2))^(2/t),
#
# without the first rounds, in which local differences vanish fast while those across a large network do not.
#
# Windows. Graphs that change may happen to make everything equal at once (three clients who all hear each other), which
# says nothing of the next rounds. So in the first six rounds one client's second number is 1 and all others' 0, and the
# third number of all is 1, anew and at other clients in turn every WINDOW rounds (each sets its own, no message). The
# second over the third tends to 1/n, so that each client sees its own distance from it, and flooding tells the largest
# of
# their means over the windows: what a window leaves on average. τ is at least that, to the power 1/WINDOW. Where
# windows
# left all, since a client heard nobody, τ is at least what makes FALLEN of 1 over all rounds of the long run.
#
# Weights. A client that hears few has a small ω, and what it divides by ω is large. Flooding tells the smallest ω that
# was seen at the end of a window or of a stretch of the long run.
#
# Other numbers may travel in the messages of the windows: as columns of P sum to 1, the mean of a column is no
# larger than the largest of its averages, however few the rounds. Over links that lose or delay messages columns of P
# do
# not sum to 1: part of the sums is in transit. There the clients average these numbers again in a call of
# `channel.enclose`, as long as the long run, whose boxes contain the mean whatever is in transit.


WINDOW, WINDOWS = 2, 3  # rounds of a window, and how many there are
FALLEN = 0.02  # the share of the first spread at which τ is read off
ALL = 1e-6  # of what a window leaves, taken for nothing: it has left all
EARLY = 12  # rounds until which C is taken to be 1
MOST_ROUNDS = 2**14  # after which clients that still differ are taken to differ for ever: τ is then as it was seen


@dataclass(frozen=True)
class Mixing:
    """What clients know after the conversation; with a run axis, arrays have one more axis in front."""

    tau: float | np.ndarray  # 0 where averages become exact
    lightest: float | np.ndarray  # the smallest weight ω that was seen, at most 1
    rounds: int  # that were looked at
    most: np.ndarray  # above the means of the numbers that travelled along, (k,), up to rounding
    flooded: np.ndarray  # maxima of what was flooded along, (l,)
    rounding: float = 0.0  # of `most`, relative to the largest |number| that travelled along


def mixing(mixer: Mixer, like: Array) -> Mixing:
    """The conversation alone; τ and ω of each run of `mixer` where it has a run axis."""
    none = np.zeros((like.shape[-2], 0))
    return watch_mixing(mixer, like, none, none)


def watch_mixing(mixer: Mixer, like: Array, averaged: np.ndarray, flooded: np.ndarray) -> Mixing:
    """The conversation, while `averaged` (n, k) travels along; `flooded` (n, l) goes with the flooding."""
    channel, lead, k = mixer.channel, like.shape[:-2], averaged.shape[1]
    if channel.n == 1:
        most, maxima = (np.broadcast_to(a[0], (*lead, a.shape[1])) for a in (averaged, flooded))
        tau, lightest = (np.zeros(lead), np.ones(lead)) if lead else (0.0, 1.0)
        return Mixing(tau, lightest, 0, most, maxima)
    own = np.concatenate([_pattern(channel.n)[channel.clients, None], averaged], axis=1)
    mixer.drop_in_flight()
    z, away, light = _windows(mixer, _beside(own, like))
    y = host_float64(z / mixer.weights)
    beside = np.broadcast_to(flooded, (*lead, *flooded.shape))
    top = channel.max_consensus(np.concatenate([y, -y[..., :1], away, -light, beside], axis=-1), like)
    spread = np.asarray(top[..., 0] + top[..., k + 1]) / np.ptp(_pattern(channel.n))
    left = np.minimum(top[..., k + 2], 1.0)
    tau, lightest, rounds = _long_run(mixer, z[..., :1], spread, -top[..., k + 3])
    window = np.where(left < 1.0 - ALL, left ** (1.0 / WINDOW), FALLEN ** (1.0 / rounds))
    most, steps = top[..., 1 : k + 1], WINDOW * WINDOWS
    if k and not channel.conserves_mass:
        steps = rounds
        most = channel.max_consensus(host_float64(channel.interval_mean(_beside(averaged, like), steps)[1]), like)
    rounding = averaging_rounding(channel, steps, float(np.finfo(host_dtype(like)).eps))
    known = Mixing(np.maximum(tau, window), lightest, rounds, most, top[..., k + 4 :], rounding)
    return known if lead else replace(known, tau=float(known.tau), lightest=float(lightest))


def averaging_rounding(channel: Channel, steps: int, eps: float) -> float:
    """The rounding error of Push-Sum after `steps` steps, relative to the largest |number| averaged.

    S steps of sums over at most n clients, for values and weights: 2 S (n + 2) eps/2; one more of each where the steps
    are composed first; columns of mixing matrices that sum to 1 up to n eps/2, S times and for both; the division.
    Together at most 2 (S + 1)(n + 2) eps. Over links that delay messages, one step may add what n clients have sent in
    all S, n S numbers in place of n.
    """
    at_once = channel.n if channel.conserves_mass else channel.n * steps
    return 2 * (steps + 1) * (at_once + 2) * eps


def _pattern(n: int) -> np.ndarray:
    return np.cos(1.0 + np.arange(n) ** 2.0)


def _windows(mixer: Mixer, z: Array) -> tuple[Array, np.ndarray, np.ndarray]:
    """z after all windows; each client's mean distance from 1/n at their ends, 1 at the beginning, and its least ω.

    The latter two (..., n, 1).
    """
    channel, xp = mixer.channel, array_namespace(z)
    n, number = channel.n, np.arange(channel.n)
    away, light = np.zeros((*z.shape[:-1], 1)), np.ones((*z.shape[:-1], 1))
    for w in range(WINDOWS):
        own = np.stack([number == w % n, np.ones(n)], axis=1)[channel.clients]
        mixed = mixer.with_steps(WINDOW).push(xp.concat([z, _beside(own, z)], axis=-1))
        z = mixed[..., :-2]
        away += np.abs(host_float64(mixed[..., -2:-1] / mixed[..., -1:]) - 1 / n) * n / (n - 1) / WINDOWS
        light = np.minimum(light, _weights(mixer, z))
    return z, away, light


def _weights(mixer: Mixer, z: Array) -> np.ndarray:
    """ω on the host, (..., n, 1)."""
    xp = array_namespace(z)
    return host_float64(xp.ones_like(z[..., :1]) * mixer.weights)


def _long_run(mixer: Mixer, z: Array, share: np.ndarray, lightest: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """What a round leaves of the spread of z, of which `share` is left after the windows; smallest ω; rounds."""
    t, before = WINDOW * WINDOWS, np.ones_like(share)
    mixer.drop_in_flight()
    while np.any(share > FALLEN) and t < MOST_ROUNDS:
        z = mixer.with_steps(t).push(z)
        y = host_float64(z / mixer.weights)
        top = mixer.channel.max_consensus(np.concatenate([y, -y, -_weights(mixer, z)], axis=-1), z)
        spread = np.asarray(top[..., 0] + top[..., 1]) / np.ptp(_pattern(mixer.channel.n))
        before, share, t, lightest = share, spread, 2 * t, np.minimum(lightest, -top[..., 2])
    if t <= EARLY:
        return np.minimum(share, 1.0) ** (1.0 / t), lightest, t
    left = np.where(before > 0, share / np.where(before > 0, before, 1.0), 0.0)
    return np.minimum(left, 1.0) ** (2.0 / t), lightest, t


def _beside(a: np.ndarray, like: Array) -> Array:
    """Rows (n, k) for every run, in the library and dtype of `like`."""
    rows = np.broadcast_to(a, (*like.shape[:-2], *a.shape))
    return from_host(np.ascontiguousarray(rows, dtype=host_dtype(like)), like=like)
