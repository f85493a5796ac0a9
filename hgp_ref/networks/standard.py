"""Standard static graphs with doubly stochastic weights, for Gossip as well as for Push-Sum.

Ring, Torus, Hypercube and Exponential are regular: every client sends to d others, and all weights are 1 / (d + 1).
Star has Metropolis weights. The gap of each docstring is 1 − |λ₂|, with λ₂ the eigenvalue of W of second largest
modulus. These W are normal, so one step reduces the distance to the mean to at most 1 − gap. The complete graph is
`FullyConnected`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref._kernels.graphs import Csr
from hgp_ref.networks.base import CLIENTS, Edges, Network
from hgp_ref.networks.drawing import circle
from hgp_ref.validation import Boolean, Integer, check_memory, checked


class Regular(Network):
    """A static graph in which all clients have the same out-degree; a subclass defines `_table`."""

    equal_shares = True
    degree: int  # without self-loops

    @property
    def expected_edges(self) -> float:
        return float(self.n) * (self.degree + 1)

    def _table(self, clients: np.ndarray) -> list[np.ndarray]:
        """The receivers of each of `clients` except itself: `degree` arrays."""
        raise NotImplementedError

    @cached_property
    def _receivers(self) -> np.ndarray:
        check_memory(repr(self), 2 * self.n * (self.degree + 2))
        clients = np.arange(self.n, dtype=np.int64)
        return np.sort(np.stack([clients, *self._table(clients)], axis=1), axis=1).astype(np.int32).ravel()

    def out_adjacency(self, s: int) -> Edges:
        self._step(s)
        receivers = self._receivers.copy()
        return np.arange(self.n + 1, dtype=np.int64) * (self.degree + 1), receivers

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        self._step(s)
        j = np.array([self._client("sender", sender)])
        return np.sort(np.concatenate([j, *self._table(j)]))


@checked(n=CLIENTS, directed=Boolean())
class Ring(Regular):
    """Client i sends to i + 1 and i − 1 (mod n), or only to i + 1 if `directed`. Equal weights, 1/3 or 1/2.

    Gap for n >= 3: (2/3)(1 − cos(2π/n)), about 13/n²; directed: 1 − cos(π/n), about 5/n².

    Examples
    --------
    >>> hgp.networks.Ring(4, directed=True).mixing_matrix(1)
    array([[0.5, 0. , 0. , 0.5],
           [0.5, 0.5, 0. , 0. ],
           [0. , 0.5, 0.5, 0. ],
           [0. , 0. , 0.5, 0.5]])
    """

    def __init__(self, n: int, directed: bool = False) -> None:
        super().__init__(n, period=1)
        self.directed = directed
        self._hops = sorted({1 % self.n, (1 if directed else -1) % self.n} - {0})
        self.degree = len(self._hops)

    def _table(self, clients: np.ndarray) -> list[np.ndarray]:
        return [(clients + hop) % self.n for hop in self._hops]

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n} | ({"directed": True} if self.directed else {})


@checked(rows=CLIENTS, columns=CLIENTS)
class Torus(Regular):
    """A grid of rows × columns clients that wraps around. Client (r, c) = r · columns + c sends to its four neighbours.

    Equal weights, 1/5. Gap for rows, columns >= 3: (2/5)(1 − cos(2π/m)), m = max(rows, columns). Neighbours that
    coincide, in grids with fewer rows or columns, count once.

    Examples
    --------
    >>> hgp.networks.Torus(3, 4).out_neighbours(1, 0)
    array([0, 1, 3, 4, 8])
    """

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__(rows * columns, period=1)
        self.rows, self.columns = rows, columns
        moves = {(1 % rows, 0), (-1 % rows, 0), (0, 1 % columns), (0, -1 % columns)}
        self._moves = sorted(moves - {(0, 0)})
        self.degree = len(self._moves)

    def _table(self, clients: np.ndarray) -> list[np.ndarray]:
        r, c = np.divmod(clients, self.columns)
        return [(r + down) % self.rows * self.columns + (c + right) % self.columns for down, right in self._moves]

    def _layout(self) -> tuple[np.ndarray, tuple[float, float] | None]:
        r, c = np.divmod(np.arange(self.n), self.columns)
        return np.stack([c, -r], axis=1).astype(np.float64), (float(self.columns), float(self.rows))

    def _arguments(self) -> dict[str, Any]:
        return {"rows": self.rows, "columns": self.columns}


@checked(dimension=Integer(0, 31))
class Hypercube(Regular):
    """n = 2^dimension clients; two exchange messages if their numbers differ in one bit. Equal weights.

    Gap: 2 / (dimension + 1) for dimension >= 1.

    Examples
    --------
    >>> hgp.networks.Hypercube(3).out_neighbours(1, 5)
    array([1, 4, 5, 7])
    """

    def __init__(self, dimension: int) -> None:
        super().__init__(2**dimension, period=1)
        self.dimension = self.degree = dimension

    def _table(self, clients: np.ndarray) -> list[np.ndarray]:
        return [clients ^ (1 << bit) for bit in range(self.dimension)]

    def _layout(self) -> tuple[np.ndarray, tuple[float, float] | None]:
        place = np.arange(self.n)
        positions = np.empty((self.n, 2))
        positions[place ^ (place >> 1)] = circle(self.n)  # a Gray code: neighbours on the circle are neighbours
        return positions, None

    def _arguments(self) -> dict[str, Any]:
        return {"dimension": self.dimension}


@checked(n=CLIENTS)
class Exponential(Regular):
    """Client i sends to i + 1, i + 2, i + 4, …, i + 2^(L−1) (mod n) at every step, L = ceil(log2 n). Equal weights.

    Gap: 2 / (L + 1) if n is even, at least that if n is odd [1]. `OnePeerExponential` sends one of these messages per
    step.

    [1] B. Ying et al. Exponential graph is provably efficient for decentralized deep training. NeurIPS 2021.

    Examples
    --------
    >>> hgp.networks.Exponential(6).out_neighbours(1, 3)
    array([1, 3, 4, 5])
    """

    def __init__(self, n: int) -> None:
        super().__init__(n, period=1)
        self.degree = (self.n - 1).bit_length()

    def _table(self, clients: np.ndarray) -> list[np.ndarray]:
        return [(clients + (1 << k)) % self.n for k in range(self.degree)]


@checked(n=CLIENTS)
class Star(Network):
    """Clients 1 … n−1 exchange messages with client 0 only. Metropolis weights.

    All edges have the weight 1/n, W_00 = 1/n and W_ii = 1 − 1/n, so that W is doubly stochastic. Gap: 1/n for n >= 3.
    Client 0 sends n − 1 messages per step.

    Examples
    --------
    >>> hgp.networks.Star(4).mixing_matrix(1)
    array([[0.25, 0.25, 0.25, 0.25],
           [0.25, 0.75, 0.  , 0.  ],
           [0.25, 0.  , 0.75, 0.  ],
           [0.25, 0.  , 0.  , 0.75]])
    """

    def __init__(self, n: int) -> None:
        super().__init__(n, period=1)

    @property
    def expected_edges(self) -> float:
        return 3.0 * self.n - 2.0

    def out_adjacency(self, s: int) -> Edges:
        self._step(s)
        check_memory(repr(self), 6 * self.n)
        leaves = np.arange(1, self.n, dtype=np.int32)
        both = np.stack([np.zeros_like(leaves), leaves], axis=1).ravel()  # the lists of the leaves
        indptr = np.concatenate([[0], self.n + 2 * np.arange(self.n, dtype=np.int64)])
        return indptr, np.concatenate([np.arange(self.n, dtype=np.int32), both])

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        self._step(s)
        j = self._client("sender", sender)
        return np.arange(self.n, dtype=np.int64) if j == 0 else np.array([0, j], dtype=np.int64)

    def _layout(self) -> tuple[np.ndarray, tuple[float, float] | None]:
        return np.concatenate([np.zeros((1, 2)), circle(self.n - 1)]), None

    def csr(self, s: int) -> Csr:
        indptr, senders = self.out_adjacency(s)  # the graph is symmetric
        weights = np.full(senders.size, 1.0 / self.n)
        weights[self.n + 1 :: 2] = 1.0 - 1.0 / self.n
        return indptr, senders, weights
