"""RandomOut: each client sends to itself and k distinct others, chosen anew at each step; for large n."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import arguments, philox
from hgp_ref._kernels import sparse
from hgp_ref._kernels.lists import rows_from_lists
from hgp_ref.networks.base import Csr, Edges, Network
from hgp_ref.networks.room import allocate


class RandomOut(Network):
    """P(s)[i, j] = 1 / (k + 1) for i = j and k distinct others i: a uniform set of k, independent over j and s.

    Parameters
    ----------
    n : int
        Clients.
    k : int
        Receivers besides itself.
    seed : int
        Another network.

    Raises
    ------
    TypeError, ValueError
        `k` must be an integer in [0, n − 1].

    Examples
    --------
    >>> net = hgp.networks.RandomOut(n=1000, k=2, seed=0)
    >>> net.out_neighbours(1, 5).size
    3
    """

    equal_shares = True

    def __init__(self, n: int, k: int, seed: int = 0) -> None:
        super().__init__(n, seed)
        self.k = arguments.integer("k", k, 0, self.n - 1)
        self._key = philox.key(seed)

    @property
    def expected_edges(self) -> float:
        return float(self.n * (self.k + 1))

    def out_lists(self, s: int) -> Edges:
        receivers = np.empty((self.n, self.k + 1), dtype=np.int32)
        self._sample(s, 0, receivers)
        return self._indptr, receivers.reshape(-1)

    @cached_property
    def _indptr(self) -> np.ndarray:
        """Where the receivers of each sender begin: the same at every step, hence kept, and not to be written to."""
        indptr = np.arange(0, (self.n + 1) * (self.k + 1), self.k + 1, dtype=np.int64)
        indptr.flags.writeable = False
        return indptr

    def csr(self, s: int) -> Csr:
        return rows_from_lists(*self.out_lists(s), 1.0 / (self.k + 1))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        receivers = np.empty((1, self.k + 1), dtype=np.int32)
        self._sample(s, self._client("sender", sender), receivers)
        return receivers[0].astype(np.int64)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._stretch(first, count)
        out = allocate(self, (count, self.n, self.n), zero=True)
        sparse.constant_matrices(self.n, self.k, philox.OUT_NEIGHBOURS, *self._key, first, out)
        return out

    def _sample(self, s: int, sender: int, out: np.ndarray) -> None:
        words = (self._step(s), philox.OUT_NEIGHBOURS, *self._key)
        sparse.constant_receivers(self.n, self.k, sender, *words, out)

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "k": self.k, "seed": self.seed}
