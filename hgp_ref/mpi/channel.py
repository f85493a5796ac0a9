"""The channel between ranks: the sums of the simulation's stepping mode, bit for bit.

Weights are a function of the graphs, which every rank draws in full: each carries ω of all clients, and sends none. The
ledger counts what clients send each other, as the simulation does; `net.handed` what ranks hand to MPI.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64, is_numpy, to_host
from hgp_ref.channels.base import BALANCED, CARRIED, FRESH, Channel, Weights, connect
from hgp_ref.channels.calls import check_balanced, check_heard, weights_before
from hgp_ref.channels.flooding import Flooded, flood_max, hear
from hgp_ref.channels.simulated import MODES
from hgp_ref.channels.stepping import step_weights
from hgp_ref.channels.traffic import Traffic
from hgp_ref.mpi.device_rows import DeviceRows
from hgp_ref.mpi.host_rows import HostRows
from hgp_ref.mpi.network import Spread
from hgp_ref.mpi.plan import Plan

MEAN_BYTES = 64 * 2**20  # of all clients' rows that one rank holds at a time to take their mean


class Crossing(Channel):
    """The graphs of a spread network; arrays hold the rows of this rank's clients."""

    def __init__(self, net: Spread) -> None:
        super().__init__(net.n, net.clients)
        self.net, self.ranks = net, net.ranks
        self._omega = np.ones(net.n)
        self._like: Array | None = None  # what was mixed last
        self._agreed: set[tuple[object, ...]] = set()  # kinds of calls that all ranks have made alike
        self._foreseen = 0  # graphs that will be used, as far as that is known

    @property
    def weights(self) -> Array:
        if self._like is None:
            return None
        own = self._omega[self.clients].astype(host_dtype(self._like))[:, None]
        return from_host(own, like=self._like)

    @property
    def omega(self) -> np.ndarray:
        return self._omega

    def mix(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        kind = (tuple(z.shape[:-2]), z.shape[-1], host_dtype(z), weights, steps)
        if kind not in self._agreed:
            self._agreed.add(kind)
            names = ("run axes", "columns", "dtype", "weights", "steps")
            self.agree("mixing", **dict(zip(names, kind, strict=True)))
        omega = weights_before(weights, self._omega)
        mixed, self._omega, messages = (self._on_host if is_numpy(z) else self._on_device)(z, steps, omega)
        self.count(messages, z, weights, steps)
        if weights is BALANCED:
            check_balanced(self._omega, steps, repr(self.net.net))
        self.step += steps
        self._like = z
        return mixed

    def average(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        mixed = self.mix(z, steps, weights)
        if weights is BALANCED:
            return mixed
        check_heard(self._omega, repr(self.net.net))
        return mixed / self.weights

    def _on_host(self, z: np.ndarray, steps: int, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        folded = np.moveaxis(z, -2, 0)  # (m, ..., d): leading axes join the columns
        rows = HostRows(self.ranks, folded.reshape(folded.shape[0], -1))
        after = self._steps(rows, steps, omega)
        return np.moveaxis(rows.held[: rows.m].reshape(folded.shape), 0, -2), *after

    def _on_device(self, z: Array, steps: int, omega: np.ndarray) -> tuple[Array, np.ndarray, int]:
        rows = DeviceRows(self.ranks, z, self.net.direct)
        after = self._steps(rows, steps, omega)
        return rows.held, *after

    def _steps(self, rows: HostRows | DeviceRows, steps: int, omega: np.ndarray) -> tuple[np.ndarray, int]:
        """The next graphs, one after the other: ω after them and their messages. Meanwhile the next one is drawn."""
        first, messages = self.step + 1, 0
        for s in range(first, first + steps):
            plan = self.net.plan(s)
            ahead = s + 1 < first + steps or s < self._foreseen

            def meanwhile(s: int = s, plan: Plan = plan, ahead: bool = ahead) -> None:
                nonlocal omega
                omega = plan.weigh(omega)
                if ahead:
                    self.net.plan(s + 1)

            rows.step(plan, meanwhile)
            messages += plan.messages
        return omega, messages

    def foresee(self, steps: Sequence[int]) -> None:
        self._foreseen = self.step + sum(steps)

    def skip(self, graphs: int, weights: Weights, like: Array) -> None:
        if weights == CARRIED:
            self._omega = step_weights(self.net, self.step, graphs, self._omega)
        self.step += graphs

    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.agree("maxima over clients", columns=values.shape[1], dtype=host_dtype(like), max_rounds=max_rounds)
        top, rounds, messages = flood_max(self.net, values, self.step + 1, max_rounds, FloodedRanks(self.net))
        self.step += rounds
        self._sent += Traffic.of(messages, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def agree(self, what: str, **settings: object) -> None:
        self.ranks.agree(what, {"net": self.net, "graphs used": self.step, **settings})

    def anyone(self, flag: bool) -> bool:
        return bool(self.ranks.one_each(np.array([flag]), "whether to go on").any())

    def max_over_clients(self, a: Array) -> np.ndarray:
        top = host_float64(array_namespace(a).max(a, axis=-1))
        return self.ranks.one_each(top.reshape(-1), "maxima over clients").max(axis=0).reshape(top.shape)

    def mean_over_clients(self, a: Array) -> Array:
        rows = np.moveaxis(to_host(a), -2, 0)  # (m, ..., d)
        d, sizes = rows.shape[-1], np.diff(self.net.starts)
        widest = MEAN_BYTES // max(1, self.n * rows[0, ..., :1].nbytes)
        parts = []
        for columns in blocks(d, widest):
            every = self.ranks.collect(np.ascontiguousarray(rows[..., columns]), sizes, "a mean over clients")
            parts.append(super().mean_over_clients(np.moveaxis(every, 0, -2)))
        return from_host(np.concatenate(parts, axis=-1), like=a)


def blocks(d: int, widest: int) -> list[slice]:
    """Columns 0 .. d-1 in parts of about `widest`, none of them a single column unless d is 1.

    Sums of two columns or more run over rows in order, whatever their number; NumPy adds up one column in another way.
    """
    cuts = list(range(0, d, max(2, widest))) or [0]
    if len(cuts) > 1 and d - cuts[-1] == 1:
        cuts.pop()
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], d], strict=True)]


class FloodedRanks(Flooded):
    """Flooding over the same edges, rows of other ranks by messages."""

    net: Spread

    def top(self, values: np.ndarray) -> np.ndarray:
        return self.net.ranks.one_each(values.max(axis=0), "maxima over clients").max(axis=0)

    def hear(self, s: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        plan = self.net.plan(s)
        known = HostRows(self.net.ranks, held).exchanged(plan)
        indptr, places, _ = plan.rows()
        return hear(indptr, places, known)[: len(held)], plan.messages

    def anyone(self, flag: bool) -> bool:
        return bool(self.net.ranks.one_each(np.array([flag]), "whether maxima still travel").any())

    def everybody(self, flags: np.ndarray) -> np.ndarray:
        return self.net.ranks.collect(flags[:, None], np.diff(self.net.starts), "whom maxima do not reach")[:, 0]


@connect.register
def _(net: Spread, mode: str = "auto") -> Channel:
    if arguments.choice("mode", mode, MODES) == "composed":
        raise ValueError("mode='composed' given over a network that is spread over ranks, needed 'auto' or 'stepping'")
    return Crossing(net)
