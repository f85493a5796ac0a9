"""DistributedNetwork: a network whose clients are divided among the ranks of a communicator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, from_host, to_host
from hgp_ref.mixing.channel import connect
from hgp_ref.mpi import communicator as library
from hgp_ref.mpi.communicator import MPITraffic, Ranks, ranks_of
from hgp_ref.mpi.rows import RankStep, rank_step
from hgp_ref.networks import Network, Unreliable
from hgp_ref.networks.base import ShiftedNetwork

REMEMBERED = 64  # steps of a network whose graphs repeat, at most


class DistributedNetwork(ShiftedNetwork):
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
        later = validation.integer("t", t, 0, self._last_step - 1)
        view = DistributedNetwork(self.net, self.t + later, self.ranks, self.starts, self.direct)
        view._remembered = self._remembered
        return self if later == 0 else view

    @property
    def clients(self) -> slice:
        return slice(int(self.starts[self.ranks.rank]), int(self.starts[self.ranks.rank + 1]))

    @property
    def mpi_traffic(self) -> MPITraffic:
        """What this rank has handed to MPI, over all networks that are spread over the same communicator."""
        return self.ranks.mpi_traffic

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

    def __deepcopy__(self, memo: object) -> DistributedNetwork:
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
        raise TypeError(f"net must be a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")
    if isinstance(net, DistributedNetwork):
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
        each = validation.host_array("sizes", sizes)
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


# ----------------------------------------------------------------------------------------------------
# The two functions that a program over several machines adds to its own: `spread` and `gather`.


def spread(
    net: Network,
    comm: Any = None,
    *,
    sizes: Sequence[int] | None = None,
    direct: bool = False,
    patience: float | None = None,
) -> DistributedNetwork:
    """The same network, its clients spread over the ranks of an MPI communicator in contiguous ranges.

    Every rank calls this with the same network. `hgp.sgp`, `hgp.hypergradient`, `hgp.influence`, `hgp.certify` and
    what is built on them then take the network and, as the problem, `problem.restrict(net.clients)`; arrays hold the
    rows of `net.clients`. Results are those of the simulation with mode="stepping", bit for bit on NumPy arrays unless
    mode="composed" is asked for, and so is the traffic that they report. `net.mpi_traffic` says what went through
    MPI.

    Parameters
    ----------
    net : a network of `hgp_ref.networks`.
    comm : a communicator of mpi4py, by default COMM_WORLD; not more ranks than clients.
    sizes : how many clients each rank takes, by default as equal as can be.
    direct : hand arrays on a device to MPI as they are, which needs a CUDA-aware MPI library; with others that is a
        segmentation fault. By default such rows go through the host.
    patience : seconds that a rank waits for others before it ends all with a TimeoutError; 600 unless it was said for
        the same communicator before, to all networks of which it applies.

    Returns
    -------
    DistributedNetwork, a network with `clients`, the slice of this rank's clients.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network that is not spread yet; ranks must have been told the same.
    ImportError
        mpi4py is not installed.

    Notes
    -----
    Before anything is sent, ranks compare versions of the libraries, the network and its first graphs; every function
    compares its settings (seeds, shapes, dtypes, numbers of steps) likewise. A mismatch is a ValueError on every rank.
    An exception that nobody catches ends all ranks with its message: `sys.excepthook` is replaced for that.

    Examples
    --------
    The same line for any number of ranks; here one process, which has all clients.

    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=3), MPI.COMM_WORLD)
    >>> problem, lam = hgp.problems.Quadratic.random(6, 4, 2, seed=0), np.zeros((6, 2))
    >>> fit = hgp.sgp(problem.restrict(net.clients), lam[net.clients], net, steps=50, lr=0.5)
    >>> hgp.mpi.gather(fit.x, net).shape
    (6, 4)
    """
    check_spreadable(net)
    direct, patience = (
        validation.boolean("direct", direct),
        patience if patience is None else validation.positive("patience", patience),
    )
    ranks = ranks_of(library.load().COMM_WORLD if comm is None else comm, patience)
    starts = ranges(net.n, ranks, sizes)
    settings = {**_versions(), **identity(net), "sizes": np.diff(starts).tolist(), "direct": direct}
    ranks.check_same("hgp.mpi.spread", settings)
    return DistributedNetwork(net, 0, ranks, starts, direct)


def gather(a: Array, net: Network, axis: int | None = None) -> Array:
    """All clients' rows of `a`, in order and on every rank; all ranks must ask.

    Parameters
    ----------
    a : an array with the rows of `net.clients` along `axis`.
    net : a network from `spread`; over any other network all rows are here, and `a` is returned as it is.
    axis : the axis of clients, by default the last but one, or the only one.

    Returns
    -------
    The whole array, in the library and on the device of `a`.

    Raises
    ------
    TypeError, ValueError
        `a` must have this rank's rows along `axis`, `net` be a network.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> net = hgp.networks.RandomOut(3, k=1)                      # not spread: nothing to be done
    >>> hgp.mpi.gather(np.arange(3.0), net)
    array([0., 1., 2.])
    """
    validation.same_kind(a=a)
    validation.instance("net", net, Network)
    axis = (-2 if a.ndim > 1 else -1) if axis is None else validation.integer("axis", axis, -a.ndim, a.ndim - 1)
    clients = net.clients
    if a.ndim == 0 or a.shape[axis] != clients.stop - clients.start:
        needed = clients.stop - clients.start
        raise ValueError(
            f"a: shape {tuple(a.shape)} given, needed {needed} rows along axis {axis}, those of net.clients"
        )
    if not isinstance(net, DistributedNetwork):
        return a
    rows = np.moveaxis(to_host(a), axis, 0)
    every = net.ranks.collect(np.ascontiguousarray(rows), np.diff(net.starts), "hgp.mpi.gather")
    return from_host(np.ascontiguousarray(np.moveaxis(every, 0, axis)), like=a)


def _versions() -> dict[str, str]:
    own = sys.modules[__name__.partition(".")[0]]
    others = {name: version(name) for name in ("numpy", "scipy", "numba", "mpi4py")}
    return {own.__name__: own.__version__, **others, "Python": ".".join(map(str, sys.version_info[:3]))}
