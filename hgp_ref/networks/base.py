"""Network: which clients send to which at step s, and with which weights; a pure function of (seed, step).

At step s = 1, 2, … client j sends to its out-neighbours N_j(s), itself included. The mixing matrix is

    W_s[i, j] = 1 / |N_j(s)|   if i ∈ N_j(s),   0 otherwise,

unless a class defines other weights. Columns sum to 1, so a step conserves sums over clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels.cuda import DeviceRule
from hgp_ref._kernels.graphs import Csr, pairs_from_lists, rows_from_lists, scatter
from hgp_ref.networks import drawing
from hgp_ref.networks.validation import allocate, check_methods
from hgp_ref.philox import MAX_CLIENTS, MAX_STEP, check_seed
from hgp_ref.validation import Integer

__all__ = ["Csr", "Edges", "Network"]

Edges = tuple[np.ndarray, np.ndarray]
CLIENTS = Integer(1, MAX_CLIENTS)  # what n may be


class Network(ABC):
    """A sequence of directed graphs on n clients with column-stochastic weights.

    n               number of clients
    seed            None if nothing is random
    period          1 for a static graph, T for a schedule of T graphs, None if graphs never repeat
    expected_edges  edges per step, self-loops included
    equal_shares    True promises W_s[i, j] = 1 / |N_j(s)|; mixing then uses `out_adjacency` directly
    self_loops      True promises that every client receives from itself at every step, as Assumption 1 requires
    is_reliable     whether every message arrives in the step in which it is sent, so that mixing conserves sums
    nodes           the names of the clients in messages and plots, a tuple; None if they have numbers only
    clients         the clients whose rows this process holds: all, unless the network is distributed over ranks

    A subclass calls `super().__init__(n, seed, period)` and provides two members: `expected_edges` (property or
    attribute) and the method `out_adjacency(s)`. Weights other than 1 / |N_j(s)| are defined by `csr(s)`. A faster
    `mixing_matrices`, or a `device_sampler` for graphs that a GPU draws itself, may be added. All other methods follow
    from these: `mixing_matrix`, `products`, `edges`, `out_neighbours`, `union`, `delivered_edges`, `plot`. What classes
    outside this package return is validated (`networks.validation`). A class without self-loops sets
    `self_loops = False`; `diagnose_connectivity` then also looks for periodic graphs.

    Example:

        class Ring(Network):
            period = 1

            @property
            def expected_edges(self):
                return 2.0 * self.n

            def out_adjacency(self, s):
                both = [sorted((j, (j + 1) % self.n)) for j in range(self.n)]
                return np.arange(0, 2 * self.n + 1, 2), np.array(both, dtype=np.int32).ravel()

    Examples
    --------
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> net.mixing_matrix(1).sum(axis=0)
    array([1., 1., 1.])
    >>> bool(np.all(net.after(4).mixing_matrix(1) == net.mixing_matrix(5)))
    True
    """

    n: int
    seed: int | None = None
    period: int | None = None
    equal_shares: bool = False
    self_loops: bool = True
    is_reliable: bool = True
    nodes: tuple[Any, ...] | None = None
    _offset: int = 0  # t of a view `net.after(t)`

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_methods(cls, Network)

    def __init__(self, n: int, seed: int | None = None, period: int | None = None) -> None:
        self.n = CLIENTS.check("n", n)
        self.seed = None if seed is None else check_seed(seed)
        if period is not None:
            self.period = validation.integer("period", period)

    @property
    def clients(self) -> slice:
        """The clients whose rows this process holds: all, unless `hgp.mpi.spread` has distributed them."""
        return slice(0, self.n)

    @property
    @abstractmethod
    def expected_edges(self) -> float:
        """Expected number of edges of one step, self-loops included."""

    @abstractmethod
    def out_adjacency(self, s: int) -> Edges:
        """(indptr int64 (n+1,), receivers int32): client j sends to receivers[indptr[j] : indptr[j + 1]], sorted."""

    def _names_of(self, clients: np.ndarray | int) -> list[Any]:
        """The names of the first five of `clients` for messages; numbers where clients have no names."""
        first = np.atleast_1d(clients)[:5].tolist()
        return first if self.nodes is None else [self.nodes[i] for i in first]

    def edges(self, s: int) -> Edges:
        """(senders, receivers), int64, self-loops included, sorted by sender, then receiver."""
        return pairs_from_lists(*self.out_adjacency(s))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        """The receivers of one sender at step s, sorted, int64, itself included."""
        indptr, receivers = self.out_adjacency(s)
        j = self._client("sender", sender)
        return receivers[indptr[j] : indptr[j + 1]].astype(np.int64)

    def csr(self, s: int) -> Csr:
        """W_s by rows: (indptr int64 (n+1,), senders int32, sorted in each row, weights float64)."""
        indptr, receivers = self.out_adjacency(s)
        return rows_from_lists(indptr, receivers, 1.0 / np.diff(indptr))

    def mixing_matrix(self, s: int) -> np.ndarray:
        """W_s, (n, n) float64: entry [i, j] is the weight of j → i. Columns sum to 1."""
        return self.mixing_matrices(validation.integer("s", s, 1, MAX_STEP - self._offset), 1)[0]

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        """W of the steps first, …, first + count − 1, (count, n, n) float64."""
        count = self._steps(first, count)[1]
        if self.period is not None and count > self.period:
            out = allocate(self, (count, self.n, self.n))
            return np.take(self.mixing_matrices(first, self.period), np.arange(count) % self.period, axis=0, out=out)
        out = allocate(self, (count, self.n, self.n), zero=True)
        for t in range(count):
            scatter(*self.csr(first + t), out[t])
        return out

    def products(self, first: int, calls: int, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The products W_{first+(c+1)S−1} … W_{first+cS}, S = steps, of calls c = 0, 1, …, and their messages (calls,).

        None if this is not faster than multiplying `mixing_matrices`.
        """
        return None

    def union(self, first: int, count: int) -> Edges:
        """(senders, receivers) of the edges of steps first, …, first + count − 1, in any order, perhaps repeated."""
        self._steps(first, validation.integer("count", count, 0, validation.LONGEST))
        lists = [self.edges(first + t) for t in range(count)]
        empty = (np.empty(0, np.int64), np.empty(0, np.int64))
        senders, receivers = (np.concatenate(part) for part in zip(empty, *lists, strict=True))
        return senders, receivers

    def delivered_edges(self, first: int, count: int) -> Edges:
        """As `union`, without the edges whose messages are lost."""
        return self.union(first, count)

    def device_sampler(self) -> DeviceRule | None:
        """How a GPU draws these graphs itself, by the steps of the original network; None if the host draws them."""
        return None

    def after(self, t: int) -> Network:
        """A view of this network whose step s is step t + s of this one; for t = 0 the network itself.

        For repeated runs: `net.after(t)`, with t the steps used so far, continues where the last run ended.
        """
        t = validation.integer("t", t, 0, MAX_STEP - 1)
        return ShiftedNetwork(self, t) if t else self

    def plot(self, step: int | Sequence[int] = 1, ax: Any = None, layout: Any = None) -> Any:
        """Draw the graph of a step, or a strip of several steps; needs `pip install 'hgp_ref[figures]'`.

        Arrows point from sender to receiver. Lines without arrows are messages in both directions. Lost messages are
        dashed, self-loops omitted.

        Parameters
        ----------
        ax : matplotlib axes, for several steps one for each; new ones by default, in pyplot's current figure.
        layout : positions (n, 2), or a dictionary of positions by node as networkx returns; by default a circle, or
            the grid of a `Torus`.

        Returns
        -------
        The axes, for several steps a list of them.
        """
        return drawing.plot(self, step, ax, layout)

    def _layout(self) -> tuple[np.ndarray, tuple[float, float] | None]:
        """Positions for `plot`, (n, 2), and the size of the box if edges wrap around one."""
        return drawing.circle(self.n), None

    def _step(self, s: int) -> int:
        """The step of the original network that is step s of this one."""
        return self._offset + validation.integer("s", s, 1, MAX_STEP - self._offset)

    def _steps(self, first: int, count: int) -> tuple[int, int]:
        """Where the steps first, …, first + count − 1 begin in the original network, and their number."""
        first = self._offset + validation.integer("first", first, 1, MAX_STEP - self._offset)
        return first, validation.integer("count", count, 0, MAX_STEP - first + 1)

    def _client(self, name: str, j: int) -> int:
        return validation.integer(name, j, 0, self.n - 1)

    def _arguments(self) -> dict[str, Any]:
        """Constructor arguments, for __repr__."""
        return {"n": self.n} if self.seed is None else {"n": self.n, "seed": self.seed}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._arguments().items())})"


class ShiftedNetwork(Network):
    """A view of `net`, made by `net.after(t)`: its step s is step t + s of `net`.

    It passes on every method that a network may define in a faster way than its base class.
    """

    def __init__(self, net: Network, t: int) -> None:
        super().__init__(net.n, net.seed, net.period)
        self.net, self._offset = net, t
        self.equal_shares, self.self_loops, self.is_reliable = net.equal_shares, net.self_loops, net.is_reliable
        self.nodes = net.nodes

    @property
    def expected_edges(self) -> float:
        return self.net.expected_edges

    def after(self, t: int) -> Network:
        return self.net.after(self._offset + validation.integer("t", t, 0, MAX_STEP - 1 - self._offset))

    def out_adjacency(self, s: int) -> Edges:
        return self.net.out_adjacency(self._step(s))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        return self.net.out_neighbours(self._step(s), sender)

    def csr(self, s: int) -> Csr:
        return self.net.csr(self._step(s))

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        return self.net.mixing_matrices(*self._steps(first, count))

    def products(self, first: int, calls: int, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
        return self.net.products(self._steps(first, calls * steps)[0], calls, steps)

    def device_sampler(self) -> DeviceRule | None:
        return self.net.device_sampler()

    def union(self, first: int, count: int) -> Edges:
        return self.net.union(*self._steps(first, count))

    def delivered_edges(self, first: int, count: int) -> Edges:
        return self.net.delivered_edges(*self._steps(first, count))

    def _layout(self) -> tuple[np.ndarray, tuple[float, float] | None]:
        return self.net._layout()

    def __repr__(self) -> str:
        return f"{self.net!r}.after({self._offset})"
