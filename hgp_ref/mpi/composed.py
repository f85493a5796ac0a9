"""Calls whose graphs are multiplied first, between ranks: one exchange a call, whatever the number of steps.

P of the whole network is composed as in the simulation, every rank its share of the calls where there are enough of
them; a rank keeps the rows of its clients, and multiplies them with everybody's vectors. That pays where clients are
few and steps many. A product adds in another order than the simulation's, so results agree with it to rounding, not bit
for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref.backend import Array, host_dtype, is_numpy
from hgp_ref.channels.base import FRESH, Weights
from hgp_ref.channels.calls import PreparedCalls
from hgp_ref.channels.composed import ComposedCalls
from hgp_ref.channels.products import products
from hgp_ref.channels.simulated import Simulated, calls_at_once
from hgp_ref.mpi.device_rows import DeviceRows
from hgp_ref.mpi.host_rows import HostRows
from hgp_ref.mpi.network import Spread
from hgp_ref.mpi.reports import BetweenRanks
from hgp_ref.mpi.route import everything


class RankCalls(ComposedCalls):
    """Of each P the rows of this rank's clients; columns as rows stand, those of the clients here first."""

    def __init__(
        self,
        net: Spread,
        step: int,
        P: np.ndarray,
        messages: np.ndarray,
        omega: np.ndarray,
        steps: Sequence[int],
        weights: Weights,
        like: Array,
        divide: bool,
    ) -> None:
        begin, end = net.clients.start, net.clients.stop
        self.net, self.m = net, end - begin
        self._order = np.r_[begin:end, 0:begin, end : net.n]
        self._route = everything(net.starts, net.ranks.rank, step)
        self._rows: HostRows | None = None  # room for everybody's rows, from the first call on
        super().__init__(P, messages, omega, steps, weights, like, divide, repr(net.net))

    def here(self, K: np.ndarray) -> np.ndarray:
        return K[:, self.net.clients][:, :, self._order]

    def __call__(self, z: Array) -> Array:
        K = self._K[self.used, ...]  # (m, n)
        self.used += 1
        return self._on_host(K, z) if is_numpy(z) else self._on_device(K, z)

    def _on_host(self, K: np.ndarray, z: np.ndarray) -> np.ndarray:
        folded = np.moveaxis(z, -2, 0)
        flat = folded.reshape(self.m, -1)
        if self._rows is None:
            self._rows = HostRows(self.net.ranks, flat, self.net.n - self.m)
        else:
            self._rows.held[: self.m] = flat
        total = K @ self._rows.exchanged(
            self._route
        )  # one product of all: two of half its depth take 1.8 times as long
        return np.moveaxis(total.reshape(folded.shape), 0, -2)

    def _on_device(self, K: Array, z: Array) -> Array:
        rows = DeviceRows(self.net.ranks, z, self.net.direct)
        parts: list[Array] = []
        come = rows.exchange(self._route, lambda: parts.append(K[:, : self.m] @ z))
        return parts[0] if come is None else parts[0] + K[:, self.m :] @ come

    def weights_now(self) -> Array:
        return super().weights_now()[self.net.clients, ...]


class ComposedCrossing(BetweenRanks, Simulated):  # type: ignore[misc]  # its net is a Spread
    """The graphs of a spread network, multiplied before they meet the rows of this rank's clients."""

    def __init__(self, net: Spread) -> None:
        Simulated.__init__(self, net, "composed")
        self.clients = net.clients

    def settle(self) -> None:
        Simulated.settle(self)

    def composes(self, z: Array, steps: int, weights: Weights = FRESH) -> bool:
        return False  # not as a matrix that others may stack

    def _prepare(self, z: Array, steps: int, weights: Weights, divide: bool) -> PreparedCalls:
        self.settle()
        self._closed = None
        kind = {"run axes": tuple(z.shape[:-2]), "columns": z.shape[-1], "dtype": host_dtype(z), "weights": weights}
        self.agree("mixing", **kind, steps=steps)
        ahead: Sequence[int] = self.upcoming(steps, calls_at_once(self.n))
        P, messages = self._matrices(ahead)
        self._calls = RankCalls(self.net, self.step + 1, P, messages, self._omega, ahead, weights, z, divide)
        return self._calls

    def _matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """P of the next calls and their messages; where there are enough of them, every rank composes its share."""
        ranks = self.net.ranks
        if len(steps) < ranks.size:
            return self.matrices(steps)
        cuts = [len(steps) * q // ranks.size for q in range(ranks.size + 1)]
        before, own = sum(steps[: cuts[ranks.rank]]), steps[cuts[ranks.rank] : cuts[ranks.rank + 1]]
        P, messages = products(self.net, self.step + before, own)
        sizes = np.diff(cuts)
        every = ranks.collect(P.reshape(len(own), -1), sizes, "matrices of the next calls")
        return every.reshape(-1, self.n, self.n), ranks.collect(messages, sizes, "messages of the next calls")
