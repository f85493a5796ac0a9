"""The network as clients use it for a certificate: averaging calls and flooding on successive graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.channels import BALANCED, FRESH, Channel, Traffic


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
        if self.channel.loses_mass:
            raise ValueError(
                f"avg: {avg!r} given, needed RobustPushSum: C3 and C4 place the true mean among what clients hold in "
                "the course of Push-Sum, and here part of it is lost; or do without avg (C1, C2)"
            )
        self.steps = avg.steps_of(0, 1)[0]
        self.weights = BALANCED if avg.weights is BALANCED else FRESH
        self.channel.skip(passed, self.weights, like)

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
        boxes = self.channel.enclose(u, self.steps, self.weights, self.max_rounds)
        low, high = (np.split(host_float64(end), _ends(flat), axis=1) for end in boxes)
        return [Enclosed(*ends) for ends in zip(low, high, strict=True)]

    def largest(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Maxima over all clients of each of `parts` (n,) or (n, k), exact; (1,) or (k,) each."""
        flat = [p.reshape(len(p), -1) for p in parts]
        return np.split(self.channel.largest(np.concatenate(flat, axis=1), self.like, self.max_rounds), _ends(flat))

    def rounding(self) -> float:
        """Rounding of `average` relative to the largest of what it averages.

        S steps of sums over at most n clients, for values and weights: 2 S (n + 2) eps/2; one more of each where the
        steps are composed first; columns of mixing matrices that sum to 1 up to n eps/2, S times and for both; the
        division. Together at most 2 (S + 1)(n + 2) eps. Over links that delay, one step may add what n clients have
        sent in all S, n S numbers in place of n.
        """
        eps = float(np.finfo(host_dtype(self.like)).eps)
        at_once = self.n if self.channel.keeps_mass else self.n * self.steps
        return 2 * (self.steps + 1) * (at_once + 2) * eps


def _ends(flat: list[np.ndarray]) -> np.ndarray:
    """Where each part ends but the last."""
    return np.cumsum([p.shape[1] for p in flat])[:-1]
