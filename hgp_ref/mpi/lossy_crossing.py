"""Links that lose and delay, between ranks: the simulation's calls bit for bit, on some columns of all clients each.

What becomes of a message is a function of (seed, step, edge), so that every rank knows which of all shares arrive when,
and which are still under way. A call is linear in what clients hold, and takes every column of z by itself. So, as in
`by_columns`, a rank takes some columns of all clients, makes the call with the simulation's channel, which keeps what
is under way of these columns, and gives the rows back: two exchanges a call, whatever is lost.

The ledger counts what clients send each other, not what ranks do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype, to_host
from hgp_ref.channels.base import CARRIED, FRESH, Weights
from hgp_ref.channels.lossy import Lossy, box, stamps
from hgp_ref.channels.lossy_calls import check_shape
from hgp_ref.mpi.by_columns import Strips
from hgp_ref.mpi.network import Spread
from hgp_ref.mpi.own_rows import OwnRows
from hgp_ref.networks import Unreliable

Call = Callable[[np.ndarray], np.ndarray]


class LossyCrossing(OwnRows):
    """The graphs of a spread Unreliable network; arrays hold the rows of this rank's clients.

    `columns` is the simulation of all clients, for the columns of this rank: it keeps the clock, the weights and what
    is under way. mode="composed" composes there, with sums in another order; else it steps.
    """

    keeps_mass = False

    def __init__(self, net: Spread, mode: str) -> None:
        unreliable = net.net.after(net.t)
        assert isinstance(unreliable, Unreliable)
        self.columns = Lossy(unreliable, "composed" if mode == "composed" else "stepping")
        super().__init__(net, mode)
        self._strips: Strips | None = None  # those of the last call

    @property
    def step(self) -> int:
        return self.columns.step

    @step.setter
    def step(self, graphs: int) -> None:
        self.columns.step = graphs

    @property
    def loses_mass(self) -> bool:  # type: ignore[override]
        return self.columns.loses_mass

    @property
    def underway(self) -> bool:  # type: ignore[override]
        return self.columns.underway

    @property
    def omega(self) -> np.ndarray:
        return self.columns.omega

    def use_running_sums(self) -> None:
        self.columns.use_running_sums()

    def forget(self) -> None:
        self.columns.forget()

    def settle(self) -> None:
        self.columns.settle()

    def foresee(self, steps: Sequence[int]) -> None:
        self.columns.foresee(steps)

    def skip(self, graphs: int, weights: Weights, like: Array) -> None:
        self.columns.skip(graphs, weights, np.empty((self.n, 0), host_dtype(like)))
        if weights == CARRIED and graphs:
            self._like = like  # whose weights are known now

    def mix(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        return self._call(z, steps, weights, lambda strip: self.columns.mix(strip, steps, weights))

    def average(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        return self._call(z, steps, weights, lambda strip: self.columns.average(strip, steps, weights))

    def _call(self, z: Array, steps: int, weights: Weights, call: Call) -> Array:
        sent = self.columns.traffic.messages
        mixed = self._given(call(self._taken(z, steps, weights)), z)
        self.count(self.columns.traffic.messages - sent, z, weights, steps)
        self._like = z
        return mixed

    def enclose(
        self, z: Array, steps: int, weights: Weights = FRESH, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """As `Lossy.enclose`; which shares are missing is the same for every column."""
        past, missing, sent = self.columns.averages_since_missing(self._taken(z, steps, weights), steps, weights)
        self.count(sent, z, CARRIED, steps)
        self._sent += stamps(sent * math.prod(z.shape[:-2]), z)
        self._like = z
        oldest = -self.largest(-missing[self.clients, None], z, max_rounds)[0]
        low, high = box(past, oldest)
        return self._given(low, z), self._given(high, z)

    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """By the simulation's flooding on every rank, from what all clients begin with."""
        self.agree("maxima over clients", columns=values.shape[1], dtype=host_dtype(like), max_rounds=max_rounds)
        every = self.net.ranks.collect(np.ascontiguousarray(values), np.diff(self.net.starts), "maxima over clients")
        before = self.columns.traffic
        top = self.columns.largest(every, like, max_rounds)
        self._sent += self.columns.traffic - before
        return top

    def _taken(self, z: Array, steps: int, weights: Weights) -> np.ndarray:
        """This rank's columns of all clients, (n, c)."""
        self.agree_on_call(z, steps, weights)
        if weights == CARRIED and self._like is not None and self.columns.rows_underway:
            check_shape(z.shape, self._like.shape)  # here: columns of one rank may be as many as before
        folded = np.moveaxis(to_host(z), -2, 0)
        flat = folded.reshape(folded.shape[0], -1)  # leading axes join the columns
        if self._strips is None or not self._strips.fit(flat):
            self._strips = Strips(self.net.ranks, self.net.starts, flat)
        return self._strips.take(flat, f"step {self.step + 1}")

    def _given(self, strip: np.ndarray, z: Array) -> Array:
        """The rows of this rank's clients, like z."""
        assert self._strips is not None
        rows = self._strips.give(np.ascontiguousarray(strip), f"step {self.step}")
        folded = rows.reshape(len(rows), *z.shape[:-2], z.shape[-1])
        return from_host(np.moveaxis(folded, 0, -2), like=z)
