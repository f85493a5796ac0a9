"""Several channels side by side along a leading run axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from hgp_ref.backend import Array, array_namespace
from hgp_ref.channels.base import FRESH, Channel, Weights
from hgp_ref.channels.calls import Rules, Steps
from hgp_ref.channels.composed import ComposedCalls
from hgp_ref.channels.simulated import calls_at_once
from hgp_ref.channels.traffic import Traffic

T = TypeVar("T")


class Runs(Channel):
    """Channels 1 .. R of the same clients; z is (R, n, d) and run r goes over channel r.

    `steps` and `weights` of a call are tuples with an entry for each run, or one for all of them. Where all channels
    compose at the first call, their matrices are stacked and one batched product serves all runs; otherwise they are
    asked one by one.

    Parameters
    ----------
    channels : sequence of Channel
        One for each run.

    Raises
    ------
    ValueError
        The channels are of different numbers of clients.

    Examples
    --------
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> runs = hgp.channels.Runs([hgp.channels.connect(net), hgp.channels.connect(net.after(10))])
    >>> runs.n
    3
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        clients = {c.n for c in channels}
        if len(clients) != 1:
            raise ValueError(f"avg: averagings of {sorted(clients)} clients together, needed the same number")
        super().__init__(clients.pop(), channels[0].clients)
        self.channels = list(channels)
        self._ahead: Sequence[tuple[int, ...]] = ()  # steps of the calls foreseen, of which _made were made
        self._made = 0
        self._stacked: bool | None = None
        self._calls: ComposedCalls | None = None
        self._closed: ComposedCalls | None = None  # the last ones, until others are prepared: they know the weights
        self._omega = np.ones((len(self.channels), self.n))  # before the calls prepared now
        self._sent = Traffic.side_by_side([Traffic()] * len(self.channels))

    @property
    def weights(self) -> Array:
        calls = self._closed if self._calls is None else self._calls
        if calls is not None:
            return calls.weights_now()
        parts = [c.weights for c in self.channels]
        like = next((part for part in parts if part is not None), None)
        if like is None:
            return None
        xp = array_namespace(like)
        return xp.stack([xp.ones_like(like) if part is None else part for part in parts])

    @property
    def traffic(self) -> Traffic:
        stacked = self._sent if self._calls is None else self._sent + self._calls.traffic()
        return stacked + Traffic.side_by_side([c.traffic for c in self.channels])

    def foresee(self, steps: Sequence[Steps]) -> None:
        self._ahead, self._made = [self._each(S) for S in steps], 0
        if self._stacked is False:
            self._tell_each()

    def _tell_each(self) -> None:
        """Each channel its own steps of what was foreseen."""
        for channel, ahead in zip(self.channels, zip(*self._ahead, strict=True), strict=True):
            channel.foresee(ahead)

    def mix(self, z: Array, steps: Steps, weights: Rules = FRESH) -> Array:
        return self._call(z, self._each(steps), self._each(weights), False)

    def average(self, z: Array, steps: Steps, weights: Rules = FRESH) -> Array:
        return self._call(z, self._each(steps), self._each(weights), True)

    def _each(self, asked: T | tuple[T, ...]) -> tuple[T, ...]:
        """An entry for each run."""
        return asked if isinstance(asked, tuple) else (asked,) * len(self.channels)

    def _call(self, z: Array, steps: tuple[int, ...], weights: tuple[Weights, ...], divide: bool) -> Array:
        if self._stacked is None:
            asked = zip(self.channels, steps, strict=True)
            self._stacked = all(channel.keeps_mass and channel.composes(z[0, ...], S) for channel, S in asked)
            if not self._stacked and self._ahead:
                self._tell_each()
        if not self._stacked:
            return self._one_by_one(z, steps, weights, divide)
        calls = self._calls
        if calls is None or not calls.serves(z, steps, weights, divide):
            calls = self._prepare(z, steps, weights, divide)
        self._made += self._made < len(self._ahead) and self._ahead[self._made] == steps
        return calls(z)

    def _one_by_one(self, z: Array, steps: tuple[int, ...], weights: tuple[Weights, ...], divide: bool) -> Array:
        asked = zip(self.channels, steps, weights, strict=True)
        rows = [(c.average if divide else c.mix)(z[r, ...], S, rule) for r, (c, S, rule) in enumerate(asked)]
        return array_namespace(z).stack(rows)

    def _prepare(self, z: Array, steps: tuple[int, ...], weights: tuple[Weights, ...], divide: bool) -> ComposedCalls:
        self.settle()
        self._closed = None
        most = calls_at_once(self.n, len(self.channels))
        ahead = self._ahead[self._made : self._made + most]
        ahead = ahead if ahead and ahead[0] == steps else (steps,)
        each = [c.matrices(S) for c, S in zip(self.channels, zip(*ahead, strict=True), strict=True)]
        P, messages = (np.stack(parts, axis=1) for parts in zip(*each, strict=True))
        name = "one of the networks"
        self._calls = ComposedCalls(P, messages, self._omega, ahead, weights, z, divide, name)
        return self._calls

    def settle(self) -> None:
        """Close the calls prepared before: clocks, what they have carried, where they have left the weights."""
        if self._calls is None or not self._calls.used:
            return
        self._sent = self._sent + self._calls.traffic()
        self._omega = self._calls.omega
        for channel, S in zip(self.channels, zip(*self._calls.steps[: self._calls.used], strict=True), strict=True):
            channel.step += sum(S)
        self._calls, self._closed = None, self._calls

    def skip(self, graphs: Steps, weights: Rules, like: Array) -> None:
        self.settle()
        asked = zip(self.channels, self._each(graphs), self._each(weights), strict=True)
        for r, (channel, passed, rule) in enumerate(asked):
            channel.skip(passed, rule, like[r, ...])
        self._omega = np.stack([channel.omega for channel in self.channels])

    @property
    def keeps_mass(self) -> bool:  # type: ignore[override]
        return all(channel.keeps_mass for channel in self.channels)

    @property
    def loses_mass(self) -> bool:  # type: ignore[override]
        return any(channel.loses_mass for channel in self.channels)

    @property
    def underway(self) -> bool:  # type: ignore[override]
        return any(channel.underway for channel in self.channels)

    def forget(self) -> None:
        for channel in self.channels:
            channel.forget()

    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """Maxima of (n, k) that all runs share, (k,), or of (R, n, k), those of each run, (R, k)."""
        self.settle()
        of_run = np.broadcast_to(values, (len(self.channels), *values.shape[-2:]))
        top = np.stack([c.largest(of_run[r], like[r, ...], max_rounds) for r, c in enumerate(self.channels)])
        return top if values.ndim == 3 else top[0]

    def meet(self, numbers: np.ndarray) -> None:
        self.channels[0].meet(numbers)

    def agree(self, what: str, **settings: object) -> None:
        self.channels[0].agree(what, **settings)

    def anyone(self, flag: bool) -> bool:
        return self.channels[0].anyone(flag)

    def max_over_clients(self, a: Array) -> np.ndarray:
        return self.channels[0].max_over_clients(a)

    def mean_over_clients(self, a: Array) -> Array:
        return self.channels[0].mean_over_clients(a)
