"""How fast averages over a network become equal, as clients can find out themselves.

The long run. Client i holds cos(1 + i²), which is no pattern of any network. After t rounds of Push-Sum the spread of
their averages, max_i z_i/ω_i − min_i z_i/ω_i, which flooding makes known to all, is about C τ^t. It is looked at after
t = 6, 12, 24, ... rounds until it is FALLEN of the first one, which everybody can compute. Where that takes EARLY
rounds at most, τ = (spread(t)/spread(0))^(1/t); else

    τ = (spread(t)/spread(t/2))^(2/t),

without the first rounds, in which local differences vanish fast while those across a large network do not.

Windows. Graphs that change may happen to make everything equal at once (three clients who all hear each other), which
says nothing of the next rounds. So in the first six rounds one client's second number is 1 and all others' 0, and the
third number of all is 1, anew and at other clients in turn every WINDOW rounds (each sets its own, no message). The
second over the third tends to 1/n, so that each client sees its own distance from it, and flooding tells the largest of
their means over the windows: what a window leaves on average. τ is at least that, to the power 1/WINDOW. Where windows
left all, since a client heard nobody, τ is at least what makes FALLEN of 1 over all rounds of the long run.

Weights. A client that hears few has a small ω, and what it divides by ω is large. Flooding tells the smallest ω that
was seen at the end of a window or of a stretch of the long run.

Other numbers may travel in the messages of the windows: as columns of P sum to 1, the mean of a column is no
larger than the largest of its averages, however few the rounds. Over links that lose or delay messages columns of P do
not sum to 1: part of the sums is in transit. There the clients average these numbers again in a call of
`channel.enclose`, as long as the long run, whose boxes contain the mean whatever is in transit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64
from hgp_ref.channels import Channel

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


def mixing(average: Mean, like: Array) -> Mixing:
    """The conversation alone; τ and ω of each run of `average` where it has a run axis."""
    none = np.zeros((like.shape[-2], 0))
    return watch_mixing(average, like, none, none)


def watch_mixing(average: Mean, like: Array, averaged: np.ndarray, flooded: np.ndarray) -> Mixing:
    """The conversation, while `averaged` (n, k) travels along; `flooded` (n, l) goes with the flooding."""
    channel, lead, k = average.channel, like.shape[:-2], averaged.shape[1]
    if channel.n == 1:
        most, maxima = (np.broadcast_to(a[0], (*lead, a.shape[1])) for a in (averaged, flooded))
        tau, lightest = (np.zeros(lead), np.ones(lead)) if lead else (0.0, 1.0)
        return Mixing(tau, lightest, 0, most, maxima)
    own = np.concatenate([_pattern(channel.n)[channel.clients, None], averaged], axis=1)
    average.forget()
    z, away, light = _windows(average, _beside(own, like))
    y = host_float64(z / average.weights)
    beside = np.broadcast_to(flooded, (*lead, *flooded.shape))
    top = channel.largest(np.concatenate([y, -y[..., :1], away, -light, beside], axis=-1), like)
    spread = np.asarray(top[..., 0] + top[..., k + 1]) / np.ptp(_pattern(channel.n))
    left = np.minimum(top[..., k + 2], 1.0)
    tau, lightest, rounds = _long_run(average, z[..., :1], spread, -top[..., k + 3])
    window = np.where(left < 1.0 - ALL, left ** (1.0 / WINDOW), FALLEN ** (1.0 / rounds))
    most, steps = top[..., 1 : k + 1], WINDOW * WINDOWS
    if k and not channel.keeps_mass:
        steps = rounds
        most = channel.largest(host_float64(channel.enclose(_beside(averaged, like), steps)[1]), like)
    rounding = averaging_rounding(channel, steps, float(np.finfo(host_dtype(like)).eps))
    known = Mixing(np.maximum(tau, window), lightest, rounds, most, top[..., k + 4 :], rounding)
    return known if lead else replace(known, tau=float(known.tau), lightest=float(lightest))


def averaging_rounding(channel: Channel, steps: int, eps: float) -> float:
    """Rounding of Push-Sum averages after `steps` steps, relative to the largest |number| averaged.

    The count is that of `certificates.conversation.Conversation.rounding`.
    """
    at_once = channel.n if channel.keeps_mass else channel.n * steps
    return 2 * (steps + 1) * (at_once + 2) * eps


def _pattern(n: int) -> np.ndarray:
    return np.cos(1.0 + np.arange(n) ** 2.0)


def _windows(average: Mean, z: Array) -> tuple[Array, np.ndarray, np.ndarray]:
    """z after all windows; each client's mean distance from 1/n at their ends, 1 at the beginning, and its least ω.

    The latter two (..., n, 1).
    """
    channel, xp = average.channel, array_namespace(z)
    n, number = channel.n, np.arange(channel.n)
    away, light = np.zeros((*z.shape[:-1], 1)), np.ones((*z.shape[:-1], 1))
    for w in range(WINDOWS):
        own = np.stack([number == w % n, np.ones(n)], axis=1)[channel.clients]
        mixed = average.taking(WINDOW).sums(xp.concat([z, _beside(own, z)], axis=-1))
        z = mixed[..., :-2]
        away += np.abs(host_float64(mixed[..., -2:-1] / mixed[..., -1:]) - 1 / n) * n / (n - 1) / WINDOWS
        light = np.minimum(light, _weights(average, z))
    return z, away, light


def _weights(average: Mean, z: Array) -> np.ndarray:
    """ω on the host, (..., n, 1)."""
    xp = array_namespace(z)
    return host_float64(xp.ones_like(z[..., :1]) * average.weights)


def _long_run(average: Mean, z: Array, share: np.ndarray, lightest: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """What a round leaves of the spread of z, of which `share` is left after the windows; smallest ω; rounds."""
    t, before = WINDOW * WINDOWS, np.ones_like(share)
    average.forget()
    while np.any(share > FALLEN) and t < MOST_ROUNDS:
        z = average.taking(t).sums(z)
        y = host_float64(z / average.weights)
        top = average.channel.largest(np.concatenate([y, -y, -_weights(average, z)], axis=-1), z)
        spread = np.asarray(top[..., 0] + top[..., 1]) / np.ptp(_pattern(average.channel.n))
        before, share, t, lightest = share, spread, 2 * t, np.minimum(lightest, -top[..., 2])
    if t <= EARLY:
        return np.minimum(share, 1.0) ** (1.0 / t), lightest, t
    left = np.where(before > 0, share / np.where(before > 0, before, 1.0), 0.0)
    return np.minimum(left, 1.0) ** (2.0 / t), lightest, t


def _beside(a: np.ndarray, like: Array) -> Array:
    """Rows (n, k) for every run, in the library and dtype of `like`."""
    rows = np.broadcast_to(a, (*like.shape[:-2], *a.shape))
    return from_host(np.ascontiguousarray(rows, dtype=host_dtype(like)), like=like)
