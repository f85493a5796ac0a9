"""Gossip: averaging by doubly-stochastic mixing, without weights."""

from __future__ import annotations

import numpy as np

from hgp_ref.averaging.mixing import Mixing
from hgp_ref.networks import Network


class Gossip(Mixing):
    """Θ̂_m = W_{(m+1)S} ... W_{mS+1} ⊗ I with doubly-stochastic W: rows and columns sum to one.

    A message is one vector, no weight. Networks whose matrices are only column-stochastic need PushSum instead.
    """

    def __init__(self, net: Network, steps: int, mode: str = "auto") -> None:
        super().__init__(net, steps, mode)
        for s in range(1, (net.period or 1) + 1):
            self._check_sparse_step(s)

    def _check_matrices(self, W: np.ndarray, first_step: int) -> None:
        off = np.abs(W.sum(axis=2) - 1.0).max(axis=1)  # (steps,)
        self._refuse(off, first_step)

    def _check_sparse_step(self, s: int) -> None:
        indptr, _, weights = self.net.csr(s)
        self._refuse(np.abs(np.add.reduceat(weights, indptr[:-1]) - 1.0).max(keepdims=True), s)

    def _refuse(self, off: np.ndarray, first_step: int) -> None:
        bad = np.flatnonzero(off > 1e-10)
        if bad.size:
            raise ValueError(
                f"net: Gossip needs doubly-stochastic matrices, but a row of the mixing matrix of step "
                f"{first_step + bad[0]} of {self.net!r} misses 1 by {off[bad[0]]:.2g}; use PushSum"
            )

    def __repr__(self) -> str:
        return f"Gossip({self.net!r}, steps={self.steps})"
