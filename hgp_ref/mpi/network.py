"""Spread: a network whose clients are divided among the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.channels.base import connect
from hgp_ref.mpi.rank_step import RankStep, rank_step
from hgp_ref.mpi.ranks import Handed, Ranks
from hgp_ref.networks import Network, Unreliable
from hgp_ref.networks.after import After

REMEMBERED = 64  # steps of a network whose graphs repeat, at most


class Spread(After):
    """The graphs of `net`, the clients of this rank under `clients`; made by `hgp.mpi.spread`.

    Every question about graphs is answered as by `net` itself, for all clients. What is built on it finds with
    `clients` which rows of its arrays are here, and channels over it carry messages between ranks.

    clients  this rank's clients, a slice
    ranks    the communicator behind it

    Parameters
    ----------
    Made by `hgp.mpi.spread`, not by hand.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD).clients  # of one process: everybody
    slice(0, 6, None)
    """

    def __init__(self, net: Network, t: int, ranks: Ranks, starts: np.ndarray, direct: bool) -> None:
        super().__init__(net, t)
        self.ranks, self.starts, self.direct = ranks, starts, direct
        self._remembered: dict[int, RankStep] = {}

    def after(self, t: int) -> Network:
        later = arguments.integer("t", t, 0, self._last_step - 1)
        view = Spread(self.net, self.t + later, self.ranks, self.starts, self.direct)
        view._remembered = self._remembered
        return self if later == 0 else view

    @property
    def clients(self) -> slice:
        return slice(int(self.starts[self.ranks.rank]), int(self.starts[self.ranks.rank + 1]))

    @property
    def handed(self) -> Handed:
        """What this rank has handed to MPI, over all networks that are spread over the same communicator."""
        return self.ranks.handed

    def rank_step(self, s: int) -> RankStep:
        """Step s as this rank sees it; asked for once more it is the same, as long as it is remembered."""
        step = self.t + self._step(s)
        key = step if self.period is None else (step - 1) % self.period
        known = self._remembered.get(key)
        if known is None:
            known = rank_step(self.net, step, self.starts, self.ranks.rank)
            if len(self._remembered) >= (2 if self.period is None else REMEMBERED):
                del self._remembered[next(iter(self._remembered))]
            self._remembered[key] = known
        return known

    def __deepcopy__(self, memo: object) -> Spread:
        return self  # it never changes, and there is one communicator

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: it belongs to the running ranks of its communicator; keep the network that "
            "was spread (net.net) and spread it again"
        )

    def __repr__(self) -> str:
        later = "" if self.t == 0 else f".after({self.t})"
        return f"{self.net!r}{later} over {self.ranks.size} ranks"


def check_spreadable(net: Network) -> Network:
    """TypeError unless `net` is a network that the simulation serves, with nothing of its own on the way."""
    if not isinstance(net, Network):
        raise TypeError(f"net: needed a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")
    if isinstance(net, Spread):
        raise TypeError(f"net: {net!r} given, which is spread already")
    if connect.dispatch(type(net)) not in (connect.dispatch(Network), connect.dispatch(Unreliable)):
        raise TypeError(f"net: {type(net).__name__} has a channel of its own, which does not reach over ranks")
    return net


def ranges(n: int, ranks: Ranks, sizes: Sequence[int] | None) -> np.ndarray:
    """Where the clients of each rank begin, (ranks + 1,): as even as can be, the first ones get one more."""
    if n < ranks.size:
        raise ValueError(
            f"comm: {ranks.size} ranks given for {n} clients, needed at least one client for each rank: start fewer"
        )
    if sizes is None:
        each = np.full(ranks.size, n // ranks.size)
        each[: n % ranks.size] += 1
    else:
        each = arguments.host_array("sizes", sizes)
        whole = each.shape == (ranks.size,) and np.issubdtype(each.dtype, np.integer)
        if not whole or (each < 1).any() or each.sum() != n:
            raise ValueError(f"sizes={sizes!r} given, needed {ranks.size} integers >= 1, one a rank, that sum to {n}")
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(each, dtype=np.int64)])


def identity(net: Network) -> dict[str, Any]:
    """What tells this network from others: how it was made, and its first graphs."""
    seen = blake2b(digest_size=8)
    for s in range(1, min(net.period or 1, 8) + 1):
        for part in net.links(s) if isinstance(net, Unreliable) else net.csr(s):
            seen.update(np.ascontiguousarray(part).tobytes())
    return {"net": repr(net), "first graphs": seen.hexdigest()}
