"""The channel between ranks: the sums of the simulation's stepping mode, bit for bit.

A call on NumPy arrays goes by rows (`host_rows`: in every step those that cross) or, unless mode="stepping" was asked
for, by columns where that sends less (`by_columns`: all steps on some columns of all clients).

Weights are a function of the graphs, which every rank draws in full: each carries ω of all clients, and sends none. The
ledger counts what clients send each other, as the simulation does; `net.handed` what ranks hand to MPI.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, is_numpy
from hgp_ref.channels.base import BALANCED, CARRIED, FRESH, Channel, Weights, connect
from hgp_ref.channels.calls import check_balanced, check_heard, weights_before
from hgp_ref.channels.simulated import MODES
from hgp_ref.channels.stepping import step_weights
from hgp_ref.mpi.by_columns import Strips, columns_pay
from hgp_ref.mpi.composed import ComposedCrossing
from hgp_ref.mpi.device_rows import DeviceRows
from hgp_ref.mpi.host_rows import HostRows
from hgp_ref.mpi.lossy_crossing import LossyCrossing
from hgp_ref.mpi.network import Spread
from hgp_ref.mpi.own_rows import OwnRows
from hgp_ref.mpi.rank_step import RankStep
from hgp_ref.networks import Unreliable


class Crossing(OwnRows):
    """The graphs of a spread network; arrays hold the rows of this rank's clients.

    Parameters
    ----------
    net : Spread
        The network.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD)
    >>> isinstance(hgp.channels.connect(net), hgp.channels.Channel)
    True
    """

    def __init__(self, net: Spread, mode: str = "auto") -> None:
        super().__init__(net, mode)
        self.ranks = net.ranks
        self._omega = np.ones(net.n)
        self._foreseen = 0  # graphs that will be used, as far as that is known
        self._wide: dict[tuple[object, ...], bool] = {}  # kinds of calls, and whether they go by columns
        self._strips: Strips | None = None  # those of the last call that did

    @property
    def omega(self) -> np.ndarray:
        return self._omega

    def mix(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        self.agree_on_call(z, steps, weights)
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
        return np.divide(mixed, self.weights, out=mixed) if is_numpy(mixed) else mixed / self.weights

    def _on_host(self, z: np.ndarray, steps: int, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        folded = np.moveaxis(z, -2, 0)  # (m, ..., d): leading axes join the columns
        flat = folded.reshape(folded.shape[0], -1)
        if self._goes_by_columns(flat, steps):
            if self._strips is None or not self._strips.fit(flat):
                self._strips = Strips(self.ranks, self.net.starts, flat)
            mixed, omega, messages = self._strips.mix(flat, self.net, self.step + 1, steps, omega)
        else:
            rows = HostRows(self.ranks, flat)
            omega, messages = self._steps(rows, steps, omega)
            mixed = rows.held[: rows.m]
        return np.moveaxis(mixed.reshape(folded.shape), 0, -2), omega, messages

    def _goes_by_columns(self, flat: np.ndarray, steps: int) -> bool:
        kind = (flat.shape[1], flat.dtype, steps)
        if kind not in self._wide:
            asked = (self.net, self.step + 1, steps, flat.shape[1], self.net.starts)
            self._wide[kind] = self.mode == "auto" and columns_pay(*asked)
        return self._wide[kind]

    def _on_device(self, z: Array, steps: int, omega: np.ndarray) -> tuple[Array, np.ndarray, int]:
        rows = DeviceRows(self.ranks, z, self.net.direct)
        after = self._steps(rows, steps, omega)
        return rows.held, *after

    def _steps(self, rows: HostRows | DeviceRows, steps: int, omega: np.ndarray) -> tuple[np.ndarray, int]:
        """The next graphs, one after the other: ω after them and their messages. Meanwhile the next one is drawn."""
        first, messages = self.step + 1, 0
        for s in range(first, first + steps):
            step = self.net.rank_step(s)
            ahead = s + 1 < first + steps or s < self._foreseen

            def meanwhile(s: int = s, step: RankStep = step, ahead: bool = ahead) -> None:
                nonlocal omega
                omega = step.weigh(omega)
                if ahead:
                    self.net.rank_step(s + 1)

            rows.step(step, meanwhile)
            messages += step.messages
        return omega, messages

    def foresee(self, steps: Sequence[int]) -> None:
        self._foreseen = self.step + sum(steps)

    def skip(self, graphs: int, weights: Weights, like: Array) -> None:
        if weights == CARRIED:
            self._omega = step_weights(self.net, self.step, graphs, self._omega)
        self.step += graphs


@connect.register
def _(net: Spread, mode: str = "auto") -> Channel:
    """Steps unless told to compose: only steps are the simulation's bit for bit."""
    arguments.choice("mode", mode, MODES)
    if isinstance(net.net, Unreliable) and not net.net.in_time:
        return LossyCrossing(net, mode)
    return ComposedCrossing(net) if mode == "composed" else Crossing(net, mode)
