"""RandomOut: each client sends to itself and k distinct others, chosen anew at each step; for large n."""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref import philox
from hgp_ref.networks import sparse
from hgp_ref.networks.base import Edges, Network, check_count


class RandomOut(Network):
    """P(s)[i, j] = 1 / (k + 1) for i = j and for k distinct others i, uniform among all sets of k; independent over j and s."""

    def __init__(self, n: int, k: int, seed: int = 0) -> None:
        super().__init__(n, seed)
        self.k = check_count("k", k, 0, self.n - 1)
        self._key = philox.key(seed)

    @property
    def expected_edges(self) -> float:
        return float(self.n * (self.k + 1))

    def out_lists(self, s: int) -> Edges:
        return self._receivers(s, np.arange(self.n, dtype=np.int32))

    def out_neighbours(self, s: int, sender: int) -> np.ndarray:
        j = self._client("sender", sender)
        return self._receivers(s, np.array([j], dtype=np.int32))[1].astype(np.int64)

    def _receivers(self, s: int, senders: np.ndarray) -> Edges:
        indptr = np.arange(senders.size + 1, dtype=np.int64) * (self.k + 1)
        words = (self._step(s), philox.OUT_NEIGHBOURS, *self._key)
        return indptr, sparse.receivers(self.n, indptr, senders, *words)

    def _arguments(self) -> dict[str, Any]:
        return {"n": self.n, "k": self.k, "seed": self.seed}
