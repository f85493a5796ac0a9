"""Everybody hears everybody: one step is the exact mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref.backend import Array, array_namespace, host_dtype
from hgp_ref.channels.base import BALANCED, Channel, Weights
from hgp_ref.channels.flooding import flood_max
from hgp_ref.channels.traffic import Traffic

FEW = 1024  # clients whose matrix of means is worth stacking with others


class Everyone(Channel):
    """n(n-1) messages of one vector each in every step; no weights are needed, and one step does what many do.

    Parameters
    ----------
    n : int
        Clients.
    clients : slice, optional
        Those whose rows are here; all by default.

    Examples
    --------
    >>> isinstance(hgp.ExactAverage(3).connect(), hgp.channels.Everyone)
    True
    """

    @property
    def messages_a_step(self) -> int:
        return self.n * (self.n - 1)

    def mix(self, z: Array, steps: int, weights: Weights = BALANCED) -> Array:
        xp = array_namespace(z)
        self.step += steps
        self.count(steps * self.messages_a_step, z, BALANCED, steps)
        return xp.broadcast_to(self.mean_over_clients(z), z.shape) + xp.zeros_like(z)

    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        top, rounds, _ = flood_max(None, values, self.step + 1)
        self.step += rounds
        self._sent += Traffic.of(rounds * self.messages_a_step, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        P = np.full((len(steps), self.n, self.n), 1.0 / self.n)
        return P, np.array(steps, dtype=np.int64) * self.messages_a_step

    def composes(self, z: Array, steps: int, weights: Weights = BALANCED) -> bool:
        return self.n <= FEW
