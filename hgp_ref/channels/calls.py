"""Successive calls of a simulated channel, prepared together for arrays of one kind."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.channels.base import BALANCED, FRESH, Weights
from hgp_ref.channels.traffic import Traffic

Steps = int | tuple[int, ...]  # of one channel, or of each of several along a run axis
Rules = Weights | tuple[Weights, ...]


class PreparedCalls(ABC):
    """Calls of `steps` graphs each, in order; `used` of them were made.

    With several channels along a run axis, the entries of `steps` and `weights` are tuples.
    """

    messages: Sequence[int] | np.ndarray  # of each call made, (calls,) or (calls, runs)

    def __init__(self, steps: Sequence[Steps], weights: Rules, like: Array, divide: bool) -> None:
        self.steps, self.weights, self.divide = steps, weights, divide
        self.like, self.shape, self.dtype = like, like.shape, like.dtype
        self.used = 0

    def serves(self, z: Array, steps: Steps, weights: Rules, divide: bool) -> bool:
        """Whether the next call is the one that is asked for."""
        if self.used == len(self.steps) or divide is not self.divide or z.shape != self.shape or z.dtype != self.dtype:
            return False
        foreseen = self.steps[self.used]
        return (foreseen is steps or foreseen == steps) and (weights is self.weights or weights == self.weights)

    @abstractmethod
    def __call__(self, z: Array) -> Array:
        """Make the next call."""

    @abstractmethod
    def weights_now(self) -> Array:
        """ω after the last call made, (..., n, 1) beside z."""

    @property
    @abstractmethod
    def omega(self) -> np.ndarray:
        """The same on the host, in float64, (..., n)."""

    def traffic(self) -> Traffic:
        """What the calls made so far have carried; with a run axis, fields are arrays."""
        if isinstance(self.weights, tuple):
            messages = np.asarray(self.messages)[: self.used].reshape(self.used, len(self.weights)).sum(axis=0)
            rounds = np.array(self.steps[: self.used], dtype=np.int64).reshape(self.used, len(self.weights)).sum(axis=0)
            runs = zip(messages, self.weights, rounds, strict=True)
            return Traffic.side_by_side([self._traffic(int(m), rule, int(s), 1) for m, rule, s in runs])
        sent = int(sum(self.messages[: self.used]))
        rounds = int(np.sum(self.steps[: self.used]))
        return self._traffic(sent, self.weights, rounds, math.prod(self.shape[:-2]))

    def _traffic(self, messages: int, weights: Weights, rounds: int, runs: int) -> Traffic:
        floats = self.shape[-1] + (weights is not BALANCED)
        return Traffic.of(messages * runs, floats, host_dtype(self.like).itemsize, rounds)


class ForeseenCalls(PreparedCalls):
    """Calls whose weights are known beforehand: `after` (calls, ..., n) is ω after each of them."""

    after: np.ndarray
    _beside: Array | None = None  # the same beside z, from the first question on

    def weights_now(self) -> Array:
        if self._beside is None:
            self._beside = from_host(self.after.astype(host_dtype(self.like))[..., None], like=self.like)
        return self._beside[self.used - 1, ...]

    @property
    def omega(self) -> np.ndarray:
        return self.after[self.used - 1]


def check_balanced(omega: np.ndarray, steps: int, name: str) -> None:
    """ValueError unless ω = P 1 is 1 up to rounding, as it is where all matrices of P are doubly stochastic."""
    off = float(np.abs(omega - 1.0).max(initial=0.0))
    if off > balance_tolerance(omega.shape[-1], steps):
        raise ValueError(
            f"net: Gossip needs doubly-stochastic matrices, but a row of a product of {steps} matrices of {name} "
            f"misses 1 by {off:.2g}; use PushSum"
        )


def balance_tolerance(n: int, steps: int) -> float:
    """How far rows of a product of doubly-stochastic matrices may be from 1: n + 2 roundings for each factor."""
    return 4 * (n + 2) * steps * float(np.finfo(np.float64).eps)


def check_heard(omega: np.ndarray, name: str) -> None:
    """ValueError if some client's weight is 0: it has heard nobody, itself included, and has nothing to divide."""
    if not omega.all():
        client = int(np.argwhere(omega == 0)[0][-1])
        raise ValueError(
            f"net: client {client} hears nobody over all graphs of a call of {name}, so that its weight is 0: "
            "needed self-loops, or more steps a call"
        )


def weights_before(weights: Weights, omega: np.ndarray) -> np.ndarray:
    """ω before a call: as it was left where it is carried, 1 otherwise."""
    return np.ones_like(omega) if weights is BALANCED or weights == FRESH else omega
