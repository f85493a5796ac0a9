"""Communication between MPI ranks: transpose, mix in one process, transpose back.

Mixing treats every column of z by itself. So in a call each rank exchanges the rows of its clients for some columns of
all clients, passes these through a channel for one process, and exchanges them back:

    z (m, C)  rows of this rank's m clients   →   (n, c)  columns of this rank   →   P z (n, c)   →   (m, C)

A call takes two exchanges, however many steps it has, and all arithmetic is that of `Simulated` or `Lossy`. In mode
"stepping" results are therefore those of one process, bit for bit. Graphs, weights and the fate of messages are
functions of (seed, step), which every rank computes for itself.

Each rank sends 2 m C (R − 1)/R numbers per call. On a sparse static graph with few edges between ranks, sending only
the rows that cross, step by step, would be faster for calls of few steps, but hardly faster than one process
(docs/notes/mpi.md).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels.mixing import LINE, empty_like
from hgp_ref.backend import (
    Array,
    addressable,
    array_namespace,
    device,
    from_host,
    host_dtype,
    host_float64,
    is_numpy,
    synchronize,
    to_host,
)
from hgp_ref.errors import outside
from hgp_ref.mixing.channel import Channel, WeightRule, connect, message_size
from hgp_ref.mixing.simulated import MODES, Simulated
from hgp_ref.mixing.unreliable import Lossy, box, check_shape, stamps
from hgp_ref.mpi.communicator import Ranks
from hgp_ref.mpi.network import DistributedNetwork

MEAN_BYTES = 64 * 2**20  # of all clients' rows that one rank holds at a time to compute their mean


class Transpose:
    """The exchange of rows for columns, of arrays (m, columns); rank q has the clients starts[q] .. starts[q+1]-1.

    Columns are divided at cache lines if there are enough of them; with few, some ranks have none.
    """

    def __init__(self, ranks: Ranks, starts: np.ndarray, columns: int, itemsize: int) -> None:
        self.ranks, self.columns = ranks, columns
        line = LINE // itemsize if columns * itemsize >= LINE * ranks.size else 1
        ends = [*(columns * q // ranks.size // line * line for q in range(1, ranks.size)), columns]
        self.rows_of = [slice(int(a), int(b)) for a, b in pairwise(starts)]
        self.columns_of = [slice(a, b) for a, b in pairwise([0, *ends])]
        self.other_ranks = [q for q in range(ranks.size) if q != ranks.rank]

    def to_columns(self, z: Array, step: int) -> Array:
        """From the rows of this rank (m, C) to its columns (n, c)."""
        rows, columns = self.rows_of[self.ranks.rank], self.columns_of[self.ranks.rank]
        out = _empty(self.rows_of[-1].stop, columns.stop - columns.start, z)
        leaving = {q: _contiguous(z[:, self.columns_of[q]]) for q in self.other_ranks}
        requests = self._start({q: out[self.rows_of[q], :] for q in self.other_ranks}, leaving)
        out[rows, :] = z[:, columns]
        self._finish(requests, step)
        return out

    def to_rows(self, strip: Array, step: int) -> Array:
        """From the columns of this rank (n, c) to its rows (m, C)."""
        rows, columns = self.rows_of[self.ranks.rank], self.columns_of[self.ranks.rank]
        m = rows.stop - rows.start
        widths = {q: self.columns_of[q].stop - self.columns_of[q].start for q in self.other_ranks}
        arriving = {q: _empty(m, width, strip) for q, width in widths.items()}
        requests = self._start(arriving, {q: _contiguous(strip[self.rows_of[q], :]) for q in self.other_ranks})
        out = _empty(m, self.columns, strip)
        out[:, columns] = strip[rows, :]
        self._finish(requests, step)
        for q, part in arriving.items():
            out[:, self.columns_of[q]] = part
        return out

    def _start(self, arriving: dict[int, Array], leaving: dict[int, Array]) -> list[tuple[int, Any]]:
        """Post all messages; returns (rank, request) of each. Parts without columns are not sent."""
        comm = self.ranks.comm
        for part in list(leaving.values())[:1]:
            synchronize(part)
        requests = [(q, comm.Irecv(_buffer(a), q)) for q, a in arriving.items() if math.prod(a.shape)]
        sent = {q: a for q, a in leaving.items() if math.prod(a.shape)}
        requests += [(q, comm.Isend(_buffer(a), q)) for q, a in sent.items()]
        nbytes = sum(math.prod(a.shape) * host_dtype(a).itemsize for a in sent.values())
        self.ranks.count(len(sent), sum(a.shape[0] for a in sent.values()), nbytes)
        return requests

    def _finish(self, requests: list[tuple[int, Any]], step: int) -> None:
        self.ranks.wait([request for _, request in requests], f"step {step}", [q for q, _ in requests])


def _empty(rows: int, columns: int, like: Array) -> Array:
    """An uninitialised contiguous array (rows, columns), on the host at a cache line."""
    if is_numpy(like):
        return empty_like(np.broadcast_to(like[:1, :1] if like.size else np.zeros(1, like.dtype), (rows, columns)))
    return array_namespace(like).empty((rows, columns), dtype=like.dtype, device=device(like))


def _contiguous(a: Array) -> Array:
    return np.ascontiguousarray(a) if is_numpy(a) else array_namespace(a).asarray(a, copy=True)


def _buffer(a: Array) -> Any:
    """A contiguous array as MPI takes it."""
    return a.reshape(-1).view(np.uint8) if is_numpy(a) else a


class RankChannel(Channel):
    """A channel over a distributed network; arrays hold the rows of this rank's clients.

    `simulation` is a channel for one process, of all clients, on the columns of this rank. It holds the position, the
    weights and what is in flight. `traffic` counts what clients send each other, as in one process; `net.mpi_traffic`
    counts what ranks send.

    Parameters
    ----------
    mode : "composed" multiplies the graphs of a call first. This is faster for few clients, and results equal those of
        one process up to rounding, because BLAS rounds differently for other numbers of columns. In any other mode
        ranks step through the graphs, and results are those of one process bit for bit.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD)
    >>> isinstance(hgp.mixing.connect(net), hgp.mpi.RankChannel)
    True
    """

    net: DistributedNetwork
    simulation: Simulated

    def __init__(self, net: DistributedNetwork, mode: str = "auto") -> None:
        super().__init__(net.n, net.clients)
        validation.choice("mode", mode, MODES)
        self.net = net
        self.simulation = connect(net.net.after(net._offset), "composed" if mode == "composed" else "stepping")  # type: ignore[assignment]
        self._transpose: Transpose | None = None  # that of the last call
        self._shape: tuple[int, ...] = ()  # of what was mixed last
        self._compared: set[tuple[object, ...]] = set()  # kinds of calls that are the same on all ranks

    @property
    def step(self) -> int:  # type: ignore[override]
        return self.simulation.step

    @property
    def omega(self) -> np.ndarray:
        return self.simulation.omega

    @property
    def weights(self) -> Array:
        weights = self.simulation.weights
        return None if weights is None else weights[self.clients, ...]

    @property
    def conserves_mass(self) -> bool:  # type: ignore[override]
        return self.simulation.conserves_mass

    @property
    def drops_mass(self) -> bool:  # type: ignore[override]
        return self.simulation.drops_mass

    @property
    def in_flight(self) -> bool:  # type: ignore[override]
        return self.simulation.in_flight

    def use_running_sums(self) -> None:
        self.simulation.use_running_sums()

    def drop_in_flight(self) -> None:
        self.simulation.drop_in_flight()

    def continue_weights(self, weights: Array) -> None:
        rows = np.ascontiguousarray(to_host(weights))
        all_rows = self.net.ranks.collect(rows, np.diff(self.net.starts), "mixing weights")
        self.simulation.continue_weights(from_host(all_rows, like=weights))

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        no_columns = from_host(np.empty((self.n, 0), host_dtype(like)), like=like)
        self.simulation.advance(graphs, weight_rule, no_columns)

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        return self._call(self.simulation.mix, z, steps, weight_rule)

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        return self._call(self.simulation.average, z, steps, weight_rule)

    def _call(self, operation: Callable[..., Array], z: Array, steps: int, weight_rule: WeightRule) -> Array:
        before = self.simulation.traffic.messages
        mixed = self._to_rows(operation(self._to_columns(z, steps, weight_rule), steps, weight_rule), z)
        self.count(self.simulation.traffic.messages - before, z, weight_rule, steps)
        return mixed

    def interval_mean(
        self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """As `Lossy.interval_mean`; which shares are missing is the same for every column."""
        if not isinstance(self.simulation, Lossy):
            return super().interval_mean(z, steps, weight_rule, max_rounds)
        strip = self._to_columns(z, steps, weight_rule)
        past, missing, sent = self.simulation.averages_since_missing(strip, steps, weight_rule)
        self.count(sent, z, WeightRule.CARRY, steps)
        self._sent += stamps(sent * message_size(z, self.together)[0], z)
        low, high = box(past, -self.max_consensus(-missing[self.clients, None], z, max_rounds)[0])
        return self._to_rows(low, z), self._to_rows(high, z)

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        settings = {"columns": values.shape[1], "dtype": host_dtype(like), "max_rounds": max_rounds}
        self.check_same_on_all_ranks("maxima over clients", **settings)
        all_rows = self.net.ranks.collect(np.ascontiguousarray(values), np.diff(self.net.starts), "maxima over clients")
        before = self.simulation.traffic
        top = self.simulation.max_consensus(all_rows, like, max_rounds)
        self._sent += self.simulation.traffic - before
        return top

    def _to_columns(self, z: Array, steps: int, weight_rule: WeightRule) -> Array:
        """The columns of this rank, of all clients, (n, c); run axes of z join the columns."""
        self._check_call(z, steps, weight_rule)
        direct = self.net.direct or is_numpy(z)
        if not direct:
            rows = to_host(z)
        elif addressable(z):
            rows = z
        else:
            raise TypeError(
                f"direct=True needs arrays that MPI can write into, got {array_namespace(z).__name__}; use "
                "hgp.mpi.spread(..., direct=False)"
            )
        xp = array_namespace(rows)
        flat = xp.reshape(xp.moveaxis(rows, -2, 0), (rows.shape[-2], -1))
        if self._transpose is None or self._transpose.columns != flat.shape[1]:
            itemsize = host_dtype(flat).itemsize
            self._transpose = Transpose(self.net.ranks, self.net.starts, flat.shape[1], itemsize)
        strip = self._transpose.to_columns(flat, self.step + 1)
        return strip if direct else from_host(strip, like=z)

    def _to_rows(self, strip: Array, z: Array) -> Array:
        """The rows of this rank's clients, like z."""
        assert self._transpose is not None
        direct = self.net.direct or is_numpy(z)
        rows = self._transpose.to_rows(strip if direct else to_host(strip), self.step)
        xp = array_namespace(rows)
        folded = xp.moveaxis(xp.reshape(rows, (rows.shape[0], *z.shape[:-2], z.shape[-1])), 0, -2)
        return folded if direct else from_host(np.ascontiguousarray(folded), like=z)

    def _check_call(self, z: Array, steps: int, weight_rule: WeightRule) -> None:
        """Compare the settings of a call between ranks before the first of its kind."""
        kind = (tuple(z.shape[:-2]), z.shape[-1], host_dtype(z), weight_rule, steps)
        if kind not in self._compared:
            names = ("run axes", "columns", "dtype", "weights", "steps")
            self.check_same_on_all_ranks("mixing", **dict(zip(names, kind, strict=True)))
            self._compared.add(kind)
        lossy = isinstance(self.simulation, Lossy) and self._shape
        if lossy and weight_rule is WeightRule.CARRY and self.simulation.rows_in_flight:  # type: ignore[attr-defined]
            check_shape(z.shape, self._shape)  # here, since other shapes may have as many columns per rank
        self._shape = tuple(z.shape)

    # Reductions over all ranks

    def check_client_ids(self, client_ids: np.ndarray) -> None:
        """Raise ValueError on every rank if the problem of some rank holds other clients than `net.clients`.

        A problem made of this rank's data numbers its clients from 0, as does one restricted to the first clients:
        that only warns.
        """
        wrong = not np.array_equal(client_ids, np.arange(self.n)[self.clients])
        from_zero = wrong and np.array_equal(client_ids, np.arange(len(client_ids)))
        rank, first, last = self.net.ranks.rank, self.clients.start, self.clients.stop - 1
        if self.any_rank(wrong and not from_zero):
            raise ValueError(
                "problem must hold the clients of its rank on every rank, problem.restrict(net.clients); on rank "
                f"{rank} these are {first} to {last}, got {client_ids[:5].tolist()}, ..."
            )
        if from_zero:
            warnings.warn(
                f"the clients of problem are numbered from 0 on rank {rank}, where net.clients are {first} to {last}; "
                "use problem.restrict(net.clients). A problem made of this rank's data is right, but draws the "
                "mini-batches of other clients unless its attribute `clients` holds their numbers",
                RuntimeWarning,
                stacklevel=outside(),
            )

    def check_same_on_all_ranks(self, what: str, **settings: object) -> None:
        self.net.ranks.check_same(what, {"net": self.net, "graphs used": self.step, **settings})

    def any_rank(self, flag: bool) -> bool:
        return bool(self.net.ranks.one_each(np.array([flag]), "whether to go on").any())

    def max_over_clients(self, a: Array) -> np.ndarray:
        top = host_float64(array_namespace(a).max(a, axis=-1))
        return self.net.ranks.one_each(top.reshape(-1), "maxima over clients").max(axis=0).reshape(top.shape)

    def mean_over_clients(self, a: Array) -> Array:
        rows = np.moveaxis(to_host(a), -2, 0)  # (m, ..., d)
        widest = MEAN_BYTES // max(1, self.n * rows[0, ..., :1].nbytes)
        parts = []
        for columns in column_blocks(rows.shape[-1], widest):
            block = np.ascontiguousarray(rows[..., columns])
            all_rows = self.net.ranks.collect(block, np.diff(self.net.starts), "a mean over clients")
            parts.append(super().mean_over_clients(np.moveaxis(all_rows, 0, -2)))
        return from_host(np.concatenate(parts, axis=-1), like=a)


def column_blocks(d: int, widest: int) -> list[slice]:
    """Columns 0 .. d-1 in parts of about `widest`, none of them a single column unless d is 1.

    NumPy adds two columns or more row by row, however many they are, but a single column in another order.
    """
    cuts = list(range(0, d, max(2, widest))) or [0]
    if len(cuts) > 1 and d - cuts[-1] == 1:
        cuts.pop()
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], d], strict=True)]


connect.register(DistributedNetwork, RankChannel)
