"""A network whose clients are distributed over the ranks of an MPI communicator.

`spread` distributes a network, `gather` collects the rows of all clients. Rank q holds a contiguous range of clients,
`net.clients`, and every array of a run holds the rows of these clients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, from_host, to_host
from hgp_ref.mixing.averaging import check_network
from hgp_ref.mixing.channel import connect
from hgp_ref.mpi import communicator
from hgp_ref.mpi.communicator import MPITraffic, Ranks, ranks_of
from hgp_ref.networks import Network, Unreliable
from hgp_ref.networks.base import ShiftedNetwork
from hgp_ref.philox import MAX_STEP


class DistributedNetwork(ShiftedNetwork):
    """The graphs of `net`, from step t + 1 on; made by `hgp.mpi.spread`.

    All methods describe the whole network, as those of `net` do. Only `clients`, the slice of this rank's clients,
    differs. `ranks` is the communicator, and rank q holds the clients starts[q] .. starts[q+1]-1.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD).clients  # a single process holds all clients
    slice(0, 6, None)
    """

    def __init__(self, net: Network, t: int, ranks: Ranks, starts: np.ndarray, direct: bool) -> None:
        super().__init__(net, t)
        self.ranks, self.starts, self.direct = ranks, starts, direct

    def after(self, t: int) -> Network:
        t = validation.integer("t", t, 0, MAX_STEP - 1 - self._offset)
        return DistributedNetwork(self.net, self._offset + t, self.ranks, self.starts, self.direct) if t else self

    @property
    def clients(self) -> slice:
        return slice(int(self.starts[self.ranks.rank]), int(self.starts[self.ranks.rank + 1]))

    @property
    def mpi_traffic(self) -> MPITraffic:
        """What this rank has sent by MPI, for all networks distributed over the same communicator."""
        return self.ranks.mpi_traffic

    def __deepcopy__(self, memo: object) -> DistributedNetwork:
        return self  # it never changes, and there is one communicator

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: it belongs to the running ranks of its communicator; store the original "
            "network (net.net) and spread it again"
        )

    def __repr__(self) -> str:
        later = "" if self._offset == 0 else f".after({self._offset})"
        return f"{self.net!r}{later} over {self.ranks.size} ranks"


def spread(
    net: Network,
    comm: Any = None,
    *,
    sizes: Sequence[int] | None = None,
    direct: bool = False,
    patience: float | None = None,
) -> DistributedNetwork:
    """Distribute the clients of a network over the ranks of an MPI communicator, in contiguous ranges.

    Every rank calls this with the same network. `hgp.sgp`, `hgp.hypergradient`, `hgp.influence`, `hgp.certify` and what
    is built on them then take the network and `problem.restrict(net.clients)`; arrays hold the rows of `net.clients`.
    Results and reported traffic are those of one process with mode="stepping", on NumPy arrays bit for bit, unless
    mode="composed" is chosen. `net.mpi_traffic` counts what went through MPI.

    Before anything is sent, ranks compare versions of the libraries, the network and its first graphs. Every function
    compares its settings (seeds, shapes, dtypes, numbers of steps) likewise. A mismatch raises ValueError on all ranks.
    An uncaught exception ends all ranks with its message; `sys.excepthook` is replaced for that.

    Parameters
    ----------
    comm : a communicator of mpi4py, by default COMM_WORLD; at most as many ranks as clients.
    sizes : the number of clients of each rank, by default as equal as possible.
    direct : pass arrays on a device to MPI as they are. This needs a CUDA-aware MPI library; others end with a
        segmentation fault. By default they go through the host.
    patience : seconds that a rank waits for the others before it ends all ranks with a TimeoutError; 600 at first. A
        later value applies to all networks over the same communicator.

    Examples
    --------
    The same line for any number of ranks; here one process, which holds all clients.

    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=3), MPI.COMM_WORLD)
    >>> problem, lam = hgp.problems.Quadratic.random(6, 4, 2, seed=0), np.zeros((6, 2))
    >>> fit = hgp.sgp(problem.restrict(net.clients), lam[net.clients], net, steps=50, lr=0.5)
    >>> hgp.mpi.gather(fit.x, net).shape
    (6, 4)
    """
    check_network(net)
    if isinstance(net, DistributedNetwork):
        raise TypeError(f"net must be a network that is not distributed yet, got {net!r}")
    if connect.dispatch(type(net)) not in (connect.dispatch(Network), connect.dispatch(Unreliable)):
        raise TypeError(f"net must use a channel of hgp_ref.mixing, but {type(net).__name__} has a channel of its own")
    direct = validation.boolean("direct", direct)
    patience = None if patience is None else validation.positive("patience", patience)
    ranks = ranks_of(communicator.load().COMM_WORLD if comm is None else comm, patience)
    starts = _starts(net.n, ranks.size, sizes)
    settings = {**_versions(), "net": repr(net), "first graphs": _digest(net)}
    ranks.check_same("hgp.mpi.spread", {**settings, "sizes": np.diff(starts).tolist(), "direct": direct})
    return DistributedNetwork(net, 0, ranks, starts, direct)


def _starts(n: int, ranks: int, sizes: Sequence[int] | None) -> np.ndarray:
    """The first client of each rank, (ranks + 1,)."""
    if n < ranks:
        raise ValueError(
            f"comm must have at most as many ranks as there are clients, got {ranks} ranks for {n} clients"
        )
    if sizes is None:
        counts = np.full(ranks, n // ranks)
        counts[: n % ranks] += 1
    else:
        counts = validation.host_array("sizes", sizes)
        integers = counts.shape == (ranks,) and np.issubdtype(counts.dtype, np.integer)
        if not integers or (counts < 1).any() or counts.sum() != n:
            raise ValueError(f"sizes must be {ranks} integers >= 1, one per rank, that sum to {n}, got {sizes!r}")
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _digest(net: Network) -> str:
    """A hash of the first graphs: a schedule too long to print may differ between ranks."""
    digest = blake2b(digest_size=8)
    for s in range(1, min(net.period or 1, 8) + 1):
        for part in net.links(s) if isinstance(net, Unreliable) else net.csr(s):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    package = sys.modules[__name__.partition(".")[0]]
    libraries = {name: version(name) for name in ("numpy", "scipy", "numba", "mpi4py")}
    python = ".".join(map(str, sys.version_info[:3]))
    return {package.__name__: package.__version__, **libraries, "Python": python}


def gather(a: Array, net: Network, axis: int | None = None) -> Array:
    """All clients' rows of `a`, in order, on every rank. All ranks must call it.

    Parameters
    ----------
    a : an array with the rows of `net.clients` along `axis`.
    net : a network from `spread`. Over any other network `a` holds all rows and is returned as it is.
    axis : the axis of clients, by default the second to last, or the only one.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> net = hgp.networks.RandomOut(3, k=1)  # not distributed
    >>> hgp.mpi.gather(np.arange(3.0), net)
    array([0., 1., 2.])
    """
    validation.same_kind(a=a)
    validation.instance("net", net, Network)
    axis = (-2 if a.ndim > 1 else -1) if axis is None else validation.integer("axis", axis, -a.ndim, a.ndim - 1)
    rows = net.clients.stop - net.clients.start
    if a.ndim == 0 or a.shape[axis] != rows:
        raise ValueError(f"a must have {rows} rows along axis {axis}, those of net.clients, got shape {tuple(a.shape)}")
    if not isinstance(net, DistributedNetwork):
        return a
    held = np.moveaxis(to_host(a), axis, 0)
    all_rows = net.ranks.collect(np.ascontiguousarray(held), np.diff(net.starts), "hgp.mpi.gather")
    return from_host(np.ascontiguousarray(np.moveaxis(all_rows, 0, axis)), like=a)
