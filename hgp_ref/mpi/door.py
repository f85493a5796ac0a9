"""The two functions that a program over several machines adds to its own: `spread` and `gather`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, from_host, to_host
from hgp_ref.mpi import library
from hgp_ref.mpi.network import Spread, check_spreadable, identity, ranges
from hgp_ref.mpi.ranks import ranks_of
from hgp_ref.networks import Network


def spread(
    net: Network,
    comm: Any = None,
    *,
    sizes: Sequence[int] | None = None,
    direct: bool = False,
    patience: float | None = None,
) -> Spread:
    """The same network, its clients spread over the ranks of an MPI communicator in contiguous ranges.

    Every rank calls this with the same network. `hgp.sgp`, `hgp.hypergradient`, `hgp.influence`, `hgp.certify` and
    what is built on them then take the network and, as the problem, `problem.restrict(net.clients)`; arrays hold the
    rows of `net.clients`. Results are those of the simulation with mode="stepping", bit for bit on NumPy arrays unless
    mode="composed" is asked for, and so is the traffic that they report. `net.handed` says what really went through
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
    Spread, a network with `clients`, the slice of this rank's clients.

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
    >>> fit = hgp.sgp(problem.restrict(net.clients), net, lam[net.clients], steps=50, lr=0.5)
    >>> hgp.mpi.gather(fit.x, net).shape
    (6, 4)
    """
    check_spreadable(net)
    direct, patience = (
        arguments.boolean("direct", direct),
        patience if patience is None else arguments.positive("patience", patience),
    )
    ranks = ranks_of(library.load().COMM_WORLD if comm is None else comm, patience)
    starts = ranges(net.n, ranks, sizes)
    settings = {**_versions(), **identity(net), "sizes": np.diff(starts).tolist(), "direct": direct}
    ranks.agree("hgp.mpi.spread", settings)
    return Spread(net, 0, ranks, starts, direct)


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
    arguments.same_kind(a=a)
    arguments.kind("net", net, Network)
    axis = (-2 if a.ndim > 1 else -1) if axis is None else arguments.integer("axis", axis, -a.ndim, a.ndim - 1)
    clients = net.clients
    if a.ndim == 0 or a.shape[axis] != clients.stop - clients.start:
        needed = clients.stop - clients.start
        raise ValueError(
            f"a: shape {tuple(a.shape)} given, needed {needed} rows along axis {axis}, those of net.clients"
        )
    if not isinstance(net, Spread):
        return a
    rows = np.moveaxis(to_host(a), axis, 0)
    every = net.ranks.collect(np.ascontiguousarray(rows), np.diff(net.starts), "hgp.mpi.gather")
    return from_host(np.ascontiguousarray(np.moveaxis(every, 0, axis)), like=a)


def _versions() -> dict[str, str]:
    own = sys.modules[__name__.partition(".")[0]]
    others = {name: version(name) for name in ("numpy", "scipy", "numba", "mpi4py")}
    return {own.__name__: own.__version__, **others, "Python": ".".join(map(str, sys.version_info[:3]))}
