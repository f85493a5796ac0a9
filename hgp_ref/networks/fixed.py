"""Graphs that do not change or change by rule, with nothing random: FullyConnected, SelfLoops, OnePeerExponential."""

from __future__ import annotations

import numpy as np

from hgp_ref.networks.base import Edges, Network
from hgp_ref.networks.room import allocate


class FullyConnected(Network):
    """Everyone sends to everyone: P(s) = 11^T / n, one step is the exact mean.

    Parameters
    ----------
    n : int
        Clients.

    Examples
    --------
    >>> hgp.networks.FullyConnected(2).mixing_matrix(1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    def __init__(self, n: int) -> None:
        super().__init__(n, period=1)

    @property
    def expected_edges(self) -> float:
        return float(self.n) ** 2

    def out_lists(self, s: int) -> Edges:
        self._step(s)
        receivers = allocate(self, (1, self.n, self.n), np.int32)
        receivers[:] = np.arange(self.n, dtype=np.int32)
        return np.arange(self.n + 1, dtype=np.int64) * self.n, receivers.reshape(-1)

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        self._step(s), self._client("sender", sender)
        return np.arange(self.n, dtype=np.int64)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        _, count = self._stretch(first, count)
        matrices = allocate(self, (count, self.n, self.n))
        matrices[:] = 1.0 / self.n
        return matrices


class SelfLoops(Network):
    """Nobody sends to anybody else: P(s) = I, local computation.

    Parameters
    ----------
    n : int
        Clients.

    Examples
    --------
    >>> hgp.networks.SelfLoops(2).mixing_matrix(1)
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, n: int) -> None:
        super().__init__(n, period=1)

    @property
    def expected_edges(self) -> float:
        return float(self.n)

    def out_lists(self, s: int) -> Edges:
        self._step(s)
        return np.arange(self.n + 1, dtype=np.int64), np.arange(self.n, dtype=np.int32)

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        self._step(s)
        return np.array([self._client("sender", sender)], dtype=np.int64)


class OnePeerExponential(Network):
    """At step s client i sends half to itself and half to (i + 2^((s - 1) mod L)) mod n, L = ceil(log2 n).

    If n is a power of two, L steps give the exact mean. For n = 1 there is only the self-loop.

    Parameters
    ----------
    n : int
        Clients.

    Examples
    --------
    >>> hgp.networks.OnePeerExponential(4).mixing_matrix(2)
    array([[0.5, 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0.5],
           [0.5, 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0.5]])
    """

    equal_shares = True

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.hops = max(1, (self.n - 1).bit_length())  # bit_length of n - 1 is ceil(log2 n)
        self.period = self.hops

    @property
    def expected_edges(self) -> float:
        return float(self.n if self.n == 1 else 2 * self.n)

    def hop(self, s: int) -> int:
        """2^((s - 1) mod L), how far messages go at step s.

        Parameters
        ----------
        s : the step, from 1.

        Returns
        -------
        int.
        """
        return 1 << (self._step(s) - 1) % self.hops

    def out_lists(self, s: int) -> Edges:
        hop, own = self.hop(s), np.arange(self.n, dtype=np.int64)
        if self.n == 1:
            return np.arange(2, dtype=np.int64), np.zeros(1, dtype=np.int32)
        peer = (own + hop) % self.n
        both = np.stack([np.minimum(own, peer), np.maximum(own, peer)], axis=1)  # (n, 2)
        return np.arange(self.n + 1, dtype=np.int64) * 2, both.astype(np.int32).ravel()

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        j = self._client("sender", sender)
        return np.unique(np.array([j, (j + self.hop(s)) % self.n], dtype=np.int64))
