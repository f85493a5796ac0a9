"""What channels that mix the rows of this rank's clients have in common: kinds of calls agreed on, weights here."""

from __future__ import annotations

from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.channels.base import Weights
from hgp_ref.mpi.network import Spread
from hgp_ref.mpi.reports import BetweenRanks


class OwnRows(BetweenRanks):
    """A channel whose subclass mixes, keeps `omega` of all clients and says in `_like` what was mixed last."""

    def __init__(self, net: Spread, mode: str) -> None:
        super().__init__(net.n, net.clients)
        self.net, self.mode = net, mode
        self._like: Array | None = None
        self._agreed: set[tuple[object, ...]] = set()  # kinds of calls that all ranks have made alike

    @property
    def weights(self) -> Array:
        if self._like is None:
            return None
        own = self.omega[self.clients].astype(host_dtype(self._like))[:, None]
        return from_host(own, like=self._like)

    def agree_on_call(self, z: Array, steps: int, weights: Weights) -> None:
        """Before the first call of its kind."""
        kind = (tuple(z.shape[:-2]), z.shape[-1], host_dtype(z), weights, steps)
        if kind not in self._agreed:
            names = ("run axes", "columns", "dtype", "weights", "steps")
            self.agree("mixing", **dict(zip(names, kind, strict=True)))
            self._agreed.add(kind)
