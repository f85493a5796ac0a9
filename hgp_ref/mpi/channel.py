"""A call of mixing between ranks by columns: two exchanges, however many steps it takes.

A step mixes every column of z (n, C) by itself. So rank q takes the columns cuts[q] .. cuts[q+1]-1 of all clients, goes
through all steps of the call as the simulation does, bit for bit, and gives the rows back to whose they are:

    z (m, C)  clients here, all columns  →  (n, c)  all clients, columns of this rank  →  S steps  →  (m, C)

By rows (`host_rows`) each step sends those that cross, X of them over all R ranks: S X rows a call. By columns a call
sends 2 n (R − 1)/R: less on graphs that join everybody, more where few edges cross.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels.graphs import Csr
from hgp_ref._kernels.mixing import LINE, empty_like
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64, is_numpy, to_host
from hgp_ref.errors import outside
from hgp_ref.mixing.channel import Channel, MaxConsensus, Traffic, WeightRule, connect, hear, max_consensus
from hgp_ref.mixing.simulated import (
    MODES,
    ComposedCalls,
    PreparedCalls,
    Simulated,
    calls_at_once,
    check_balanced,
    check_heard,
    drawn,
    mix_along,
    products,
    step_weights,
    weights_before,
)
from hgp_ref.mixing.unreliable import Lossy, box, check_shape, stamps
from hgp_ref.mpi.communicator import Ranks
from hgp_ref.mpi.network import Spread
from hgp_ref.mpi.rows import DeviceRows, HostRows, RankStep, everything
from hgp_ref.networks import Network, Unreliable
from hgp_ref.networks.base import Edges

AHEAD = 2**19  # edges of graphs that are drawn beforehand


def columns_pay(net: Network, first: int, steps: int, columns: int, starts: np.ndarray) -> bool:
    """Whether a call of `steps` steps goes by columns, judged by its first graph: the same answer on every rank."""
    n, ranks = net.n, starts.size - 1
    if not 1 < ranks <= columns:  # everybody must have one
        return False
    return steps * rows_that_cross(net.out_lists(first), starts) >= 2 * n * (ranks - 1) / ranks


def rows_that_cross(lists: Edges, starts: np.ndarray) -> int:
    """Pairs of a client and a rank that is not its own where somebody hears it; lists of receivers, sorted."""
    indptr, receivers = lists
    clients = np.arange(indptr.size - 1)
    senders = np.repeat(clients, np.diff(indptr))
    home, there = (np.searchsorted(starts, who, side="right") for who in (clients, receivers))
    again = np.zeros(senders.size, dtype=np.bool_)
    again[1:] = (senders[1:] == senders[:-1]) & (there[1:] == there[:-1])
    return int(np.count_nonzero((there != home[senders]) & ~again))


class Strips:
    """Calls on arrays like z (m, C), in buffers that stay; rank q has the clients starts[q] .. starts[q+1]-1."""

    def __init__(self, ranks: Ranks, starts: np.ndarray, z: np.ndarray) -> None:
        self.ranks, (m, columns), self.dtype = ranks, z.shape, z.dtype
        line = LINE // z.itemsize if columns * z.itemsize >= LINE * ranks.size else 1
        ends = [*(columns * q // ranks.size // line * line for q in range(1, ranks.size)), columns]
        self.rows = [slice(int(a), int(b)) for a, b in pairwise(starts)]
        self.cuts = [slice(a, b) for a, b in pairwise([0, *ends])]
        self.here, self.own = self.rows[ranks.rank], self.cuts[ranks.rank]
        strip = np.broadcast_to(z[:1, self.own], (int(starts[-1]), self.own.stop - self.own.start))
        self.held, self.free = empty_like(strip), empty_like(strip)  # (n, c)
        others = [q for q in range(ranks.size) if q != ranks.rank]
        self.parts = {q: np.empty((m, self.cuts[q].stop - self.cuts[q].start), z.dtype) for q in others}

    def fit(self, z: np.ndarray) -> bool:
        """Whether the buffers are those for z."""
        return z.shape[1] == self.cuts[-1].stop and z.dtype == self.dtype

    def mix(
        self, z: np.ndarray, net: Network, first: int, steps: int, omega: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """(P z, P ω, messages) over graphs first, first + 1, ..., of which some are drawn while rows travel."""
        some = min(steps, max(1, int(AHEAD // net.expected_edges)))
        graphs: list[Edges | Csr] = []
        messages = 0
        self.take(z, f"step {first}", lambda: graphs.extend(drawn(net, s) for s in range(first, first + some)))
        for k in range(steps):
            graph = graphs[k] if k < some else drawn(net, first + k)
            sent, omega = mix_along(net, graph, self.held, self.free, omega)
            self.held, self.free = self.free, self.held
            messages += sent
        return self.give(self.held, f"step {first + steps - 1}"), omega, messages

    def take(self, z: np.ndarray, what: str, meanwhile: Callable[[], Any] = lambda: None) -> np.ndarray:
        """From rows (m, C) to columns `held` (n, c): they come in where they belong."""
        arriving = {q: self.held[self.rows[q]] for q in self.parts}
        for q, part in self.parts.items():
            part[...] = z[:, self.cuts[q]]
        requests = self._post(arriving, self.parts)
        self.held[self.here] = z[:, self.own]
        meanwhile()
        self.ranks.wait(requests, what, [*self.parts, *self.parts])
        return self.held

    def give(self, held: np.ndarray, what: str) -> np.ndarray:
        """From columns (n, c) to rows (m, C): they go out as they lie."""
        requests = self._post(self.parts, {q: held[self.rows[q]] for q in self.parts})
        out = np.empty((self.here.stop - self.here.start, self.cuts[-1].stop), self.dtype)
        out[:, self.own] = held[self.here]
        self.ranks.wait(requests, what, [*self.parts, *self.parts])
        for q, part in self.parts.items():
            out[:, self.cuts[q]] = part
        return out

    def _post(self, arriving: dict[int, np.ndarray], leaving: dict[int, np.ndarray]) -> list[Any]:
        comm = self.ranks.comm
        requests = [comm.Irecv(a.view(np.uint8), q) for q, a in arriving.items()]
        requests += [comm.Isend(a.view(np.uint8), q) for q, a in leaving.items()]
        sent = leaving.values()
        self.ranks.count(len(sent), sum(len(a) for a in sent), sum(a.nbytes for a in sent))
        return requests


# ----------------------------------------------------------------------------------------------------
# What all ranks find out together, whichever way their channel mixes: agreement, maxima, means over all clients.


MEAN_BYTES = 64 * 2**20  # of all clients' rows that one rank holds at a time to take their mean


class BetweenRanks(Channel):
    """A channel over a spread network; a subclass says how sums are mixed."""

    net: Spread

    def flush(self) -> None:
        """Bring the books up to date before something else than mixing moves the clock."""
        return None

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.flush()
        self.check_same_on_all_ranks(
            "maxima over clients", columns=values.shape[1], dtype=host_dtype(like), max_rounds=max_rounds
        )
        top, rounds, messages = max_consensus(self.net, values, self.step + 1, max_rounds, RankMaxConsensus(self.net))
        self.step += rounds
        self._sent += Traffic.of(messages, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def check_client_ids(self, numbers: np.ndarray) -> None:
        """ValueError on every rank where some rank's problem holds other clients than are there.

        A problem that was made of a rank's own data numbers its clients from 0, as one that was restricted to the first
        clients does: that only warns.
        """
        wrong = not np.array_equal(numbers, np.arange(self.n)[self.clients])
        from_zero = wrong and np.array_equal(numbers, np.arange(len(numbers)))
        if self.any_rank(wrong and not from_zero):
            raise ValueError(
                f"problem: it holds clients {numbers[:5].tolist()}, ... on rank {self.net.ranks.rank}, and on some "
                f"rank not those of net.clients, here {self.clients.start} to {self.clients.stop - 1}; needed "
                "problem.restrict(net.clients)"
            )
        if from_zero:
            warnings.warn(
                f"problem: its clients are numbered from 0 on rank {self.net.ranks.rank}, where net.clients are "
                f"{self.clients.start} to {self.clients.stop - 1}: needed problem.restrict(net.clients) of the whole "
                "problem; one made of this rank's data is right, but draws the mini-batches of other clients unless "
                "its attribute `clients` holds their numbers",
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
        d, sizes = rows.shape[-1], np.diff(self.net.starts)
        widest = MEAN_BYTES // max(1, self.n * rows[0, ..., :1].nbytes)
        parts = []
        for columns in column_blocks(d, widest):
            every = self.net.ranks.collect(np.ascontiguousarray(rows[..., columns]), sizes, "a mean over clients")
            parts.append(super().mean_over_clients(np.moveaxis(every, 0, -2)))
        return from_host(np.concatenate(parts, axis=-1), like=a)


def column_blocks(d: int, widest: int) -> list[slice]:
    """Columns 0 .. d-1 in parts of about `widest`, none of them a single column unless d is 1.

    Sums of two columns or more run over rows in order, whatever their number; NumPy adds up one column in another way.
    """
    cuts = list(range(0, d, max(2, widest))) or [0]
    if len(cuts) > 1 and d - cuts[-1] == 1:
        cuts.pop()
    return [slice(a, b) for a, b in zip(cuts, [*cuts[1:], d], strict=True)]


class RankMaxConsensus(MaxConsensus):
    """Flooding over the same edges, rows of other ranks by messages."""

    net: Spread

    def top(self, values: np.ndarray) -> np.ndarray:
        return self.net.ranks.one_each(values.max(axis=0), "maxima over clients").max(axis=0)

    def hear(self, s: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        step = self.net.rank_step(s)
        known = HostRows(self.net.ranks, held).exchanged(step)
        indptr, places, _ = step.rows()
        return hear(indptr, places, known)[: len(held)], step.messages

    def any_rank(self, flag: bool) -> bool:
        return bool(self.net.ranks.one_each(np.array([flag]), "whether maxima still travel").any())

    def everybody(self, flags: np.ndarray) -> np.ndarray:
        return self.net.ranks.collect(flags[:, None], np.diff(self.net.starts), "whom maxima do not reach")[:, 0]


# ----------------------------------------------------------------------------------------------------
# What channels that mix the rows of this rank's clients have in common: kinds of calls agreed on, weights here.


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

    def check_call(self, z: Array, steps: int, weight_rule: WeightRule) -> None:
        """Before the first call of its kind."""
        kind = (tuple(z.shape[:-2]), z.shape[-1], host_dtype(z), weight_rule, steps)
        if kind not in self._agreed:
            names = ("run axes", "columns", "dtype", "weights", "steps")
            self.check_same_on_all_ranks("mixing", **dict(zip(names, kind, strict=True)))
            self._agreed.add(kind)


# ----------------------------------------------------------------------------------------------------
# Calls whose graphs are multiplied first, between ranks: one exchange a call, whatever the number of steps.
#
# P of the whole network is composed as in the simulation, every rank its share of the calls where there are enough of
# them; a rank keeps the rows of its clients, and multiplies them with everybody's vectors. That pays where clients are
# few and steps many. A product adds in another order than the simulation's, so results agree with it to rounding, not
# bit
# for bit.


class RankCalls(ComposedCalls):
    """Of each P the rows of this rank's clients; columns as rows stand, those of the clients here first."""

    def __init__(
        self,
        net: Spread,
        step: int,
        P: np.ndarray,
        messages: np.ndarray,
        omega: np.ndarray,
        steps: Sequence[int],
        weight_rule: WeightRule,
        like: Array,
        divide: bool,
    ) -> None:
        begin, end = net.clients.start, net.clients.stop
        self.net, self.m = net, end - begin
        self._order = np.r_[begin:end, 0:begin, end : net.n]
        self._route = everything(net.starts, net.ranks.rank, step)
        self._rows: HostRows | None = None  # room for everybody's rows, from the first call on
        super().__init__(P, messages, omega, steps, weight_rule, like, divide, repr(net.net))

    def here(self, K: np.ndarray) -> np.ndarray:
        return K[:, self.net.clients][:, :, self._order]

    def __call__(self, z: Array) -> Array:
        K = self._K[self.used, ...]  # (m, n)
        self.used += 1
        return self._on_host(K, z) if is_numpy(z) else self._on_device(K, z)

    def _on_host(self, K: np.ndarray, z: np.ndarray) -> np.ndarray:
        folded = np.moveaxis(z, -2, 0)
        flat = folded.reshape(self.m, -1)
        if self._rows is None:
            self._rows = HostRows(self.net.ranks, flat, self.net.n - self.m)
        else:
            self._rows.held[: self.m] = flat
        total = K @ self._rows.exchanged(
            self._route
        )  # one product of all: two of half its depth take 1.8 times as long
        return np.moveaxis(total.reshape(folded.shape), 0, -2)

    def _on_device(self, K: Array, z: Array) -> Array:
        rows = DeviceRows(self.net.ranks, z, self.net.direct)
        parts: list[Array] = []
        come = rows.exchange(self._route, lambda: parts.append(K[:, : self.m] @ z))
        return parts[0] if come is None else parts[0] + K[:, self.m :] @ come

    def weights_now(self) -> Array:
        return super().weights_now()[self.net.clients, ...]


class ComposedCrossing(BetweenRanks, Simulated):  # type: ignore[misc]  # its net is a Spread
    """The graphs of a spread network, multiplied before they meet the rows of this rank's clients."""

    def __init__(self, net: Spread) -> None:
        Simulated.__init__(self, net, "composed")
        self.clients = net.clients

    def flush(self) -> None:
        Simulated.flush(self)

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        return False  # not as a matrix that others may stack

    def _prepare(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool) -> PreparedCalls:
        self.flush()
        self._closed = None
        kind = {"run axes": tuple(z.shape[:-2]), "columns": z.shape[-1], "dtype": host_dtype(z), "weights": weight_rule}
        self.check_same_on_all_ranks("mixing", **kind, steps=steps)
        ahead: Sequence[int] = self.upcoming(steps, calls_at_once(self.n))
        P, messages = self._matrices(ahead)
        self._calls = RankCalls(self.net, self.step + 1, P, messages, self._omega, ahead, weight_rule, z, divide)
        return self._calls

    def _matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """P of the next calls and their messages; where there are enough of them, every rank composes its share."""
        ranks = self.net.ranks
        if len(steps) < ranks.size:
            return self.matrices(steps)
        cuts = [len(steps) * q // ranks.size for q in range(ranks.size + 1)]
        before, own = sum(steps[: cuts[ranks.rank]]), steps[cuts[ranks.rank] : cuts[ranks.rank + 1]]
        P, messages = products(self.net, self.step + before, own)
        sizes = np.diff(cuts)
        every = ranks.collect(P.reshape(len(own), -1), sizes, "matrices of the next calls")
        return every.reshape(-1, self.n, self.n), ranks.collect(messages, sizes, "messages of the next calls")


# ----------------------------------------------------------------------------------------------------
# Links that lose and delay, between ranks: the simulation's calls bit for bit, on some columns of all clients each.
#
# What becomes of a message is a function of (seed, step, edge), so that every rank knows which of all shares arrive
# when,
# and which are still under way. A call is linear in what clients hold, and takes every column of z by itself. So, as in
# `by_columns`, a rank takes some columns of all clients, makes the call with the simulation's channel, which keeps what
# is under way of these columns, and gives the rows back: two exchanges a call, whatever is lost.
#
# The ledger counts what clients send each other, not what ranks do.


Call = Callable[[np.ndarray], np.ndarray]


class LossyCrossing(OwnRows):
    """The graphs of a spread Unreliable network; arrays hold the rows of this rank's clients.

    `columns` is the simulation of all clients, for the columns of this rank: it keeps the clock, the weights and what
    is under way. mode="composed" composes there, with sums in another order; else it steps.
    """

    conserves_mass = False

    def __init__(self, net: Spread, mode: str) -> None:
        unreliable = net.net.after(net.t)
        assert isinstance(unreliable, Unreliable)
        self.columns = Lossy(unreliable, "composed" if mode == "composed" else "stepping")
        super().__init__(net, mode)
        self._strips: Strips | None = None  # those of the last call

    @property
    def step(self) -> int:
        return self.columns.step

    @step.setter
    def step(self, graphs: int) -> None:
        self.columns.step = graphs

    @property
    def drops_mass(self) -> bool:  # type: ignore[override]
        return self.columns.drops_mass

    @property
    def in_flight(self) -> bool:  # type: ignore[override]
        return self.columns.in_flight

    @property
    def omega(self) -> np.ndarray:
        return self.columns.omega

    def use_running_sums(self) -> None:
        self.columns.use_running_sums()

    def drop_in_flight(self) -> None:
        self.columns.drop_in_flight()

    def flush(self) -> None:
        self.columns.flush()

    def foresee(self, steps: Sequence[int]) -> None:
        self.columns.foresee(steps)

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        self.columns.advance(graphs, weight_rule, np.empty((self.n, 0), host_dtype(like)))
        if weight_rule == WeightRule.CARRY and graphs:
            self._like = like  # whose weights are known now

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        return self._call(z, steps, weight_rule, lambda strip: self.columns.mix(strip, steps, weight_rule))

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        return self._call(z, steps, weight_rule, lambda strip: self.columns.average(strip, steps, weight_rule))

    def _call(self, z: Array, steps: int, weight_rule: WeightRule, call: Call) -> Array:
        sent = self.columns.traffic.messages
        mixed = self._given(call(self._taken(z, steps, weight_rule)), z)
        self.count(self.columns.traffic.messages - sent, z, weight_rule, steps)
        self._like = z
        return mixed

    def interval_mean(
        self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """As `Lossy.interval_mean`; which shares are missing is the same for every column."""
        past, missing, sent = self.columns.averages_since_missing(
            self._taken(z, steps, weight_rule), steps, weight_rule
        )
        self.count(sent, z, WeightRule.CARRY, steps)
        self._sent += stamps(sent * math.prod(z.shape[:-2]), z)
        self._like = z
        oldest = -self.max_consensus(-missing[self.clients, None], z, max_rounds)[0]
        low, high = box(past, oldest)
        return self._given(low, z), self._given(high, z)

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """By the simulation's flooding on every rank, from what all clients begin with."""
        self.check_same_on_all_ranks(
            "maxima over clients", columns=values.shape[1], dtype=host_dtype(like), max_rounds=max_rounds
        )
        every = self.net.ranks.collect(np.ascontiguousarray(values), np.diff(self.net.starts), "maxima over clients")
        before = self.columns.traffic
        top = self.columns.max_consensus(every, like, max_rounds)
        self._sent += self.columns.traffic - before
        return top

    def _taken(self, z: Array, steps: int, weight_rule: WeightRule) -> np.ndarray:
        """This rank's columns of all clients, (n, c)."""
        self.check_call(z, steps, weight_rule)
        if weight_rule == WeightRule.CARRY and self._like is not None and self.columns.rows_in_flight:
            check_shape(z.shape, self._like.shape)  # here: columns of one rank may be as many as before
        folded = np.moveaxis(to_host(z), -2, 0)
        flat = folded.reshape(folded.shape[0], -1)  # leading axes join the columns
        if self._strips is None or not self._strips.fit(flat):
            self._strips = Strips(self.net.ranks, self.net.starts, flat)
        return self._strips.take(flat, f"step {self.step + 1}")

    def _given(self, strip: np.ndarray, z: Array) -> Array:
        """The rows of this rank's clients, like z."""
        assert self._strips is not None
        rows = self._strips.give(np.ascontiguousarray(strip), f"step {self.step}")
        folded = rows.reshape(len(rows), *z.shape[:-2], z.shape[-1])
        return from_host(np.moveaxis(folded, 0, -2), like=z)


# ----------------------------------------------------------------------------------------------------
# The channel between ranks: the sums of the simulation's stepping mode, bit for bit.
#
# A call on NumPy arrays goes by rows (`host_rows`: in every step those that cross) or, unless mode="stepping" was asked
# for, by columns where that sends less (`by_columns`: all steps on some columns of all clients).
#
# Weights are a function of the graphs, which every rank draws in full: each carries ω of all clients, and sends none.
# Traffic counts what clients send each other, as the simulation does; `net.handed` what ranks hand to MPI.


class Crossing(OwnRows):
    """The graphs of a spread network; arrays hold the rows of this rank's clients.

    Parameters
    ----------
    net : Spread
        The network.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD)
    >>> isinstance(hgp.mixing.connect(net), hgp.mixing.Channel)
    True
    """

    def __init__(self, net: Spread, mode: str = "auto") -> None:
        super().__init__(net, mode)
        self.ranks = net.ranks
        self._omega = np.ones(net.n)
        self._foreseen = 0  # graphs that will be used, as far as that is known
        self._wide: dict[tuple[object, ...], bool] = {}  # kinds of calls, and whether they go by columns
        self._strips: Strips | None = None  # those of the last call that did

    @property
    def omega(self) -> np.ndarray:
        return self._omega

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        self.check_call(z, steps, weight_rule)
        omega = weights_before(weight_rule, self._omega)
        mixed, self._omega, messages = (self._on_host if is_numpy(z) else self._on_device)(z, steps, omega)
        self.count(messages, z, weight_rule, steps)
        if weight_rule is WeightRule.NONE:
            check_balanced(self._omega, steps, repr(self.net.net))
        self.step += steps
        self._like = z
        return mixed

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        mixed = self.mix(z, steps, weight_rule)
        if weight_rule is WeightRule.NONE:
            return mixed
        check_heard(self._omega, repr(self.net.net))
        return np.divide(mixed, self.weights, out=mixed) if is_numpy(mixed) else mixed / self.weights

    def _on_host(self, z: np.ndarray, steps: int, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        folded = np.moveaxis(z, -2, 0)  # (m, ..., d): leading axes join the columns
        flat = folded.reshape(folded.shape[0], -1)
        if self._goes_by_columns(flat, steps):
            if self._strips is None or not self._strips.fit(flat):
                self._strips = Strips(self.ranks, self.net.starts, flat)
            mixed, omega, messages = self._strips.mix(flat, self.net, self.step + 1, steps, omega)
        else:
            rows = HostRows(self.ranks, flat)
            omega, messages = self._steps(rows, steps, omega)
            mixed = rows.held[: rows.m]
        return np.moveaxis(mixed.reshape(folded.shape), 0, -2), omega, messages

    def _goes_by_columns(self, flat: np.ndarray, steps: int) -> bool:
        kind = (flat.shape[1], flat.dtype, steps)
        if kind not in self._wide:
            asked = (self.net, self.step + 1, steps, flat.shape[1], self.net.starts)
            self._wide[kind] = self.mode == "auto" and columns_pay(*asked)
        return self._wide[kind]

    def _on_device(self, z: Array, steps: int, omega: np.ndarray) -> tuple[Array, np.ndarray, int]:
        rows = DeviceRows(self.ranks, z, self.net.direct)
        after = self._steps(rows, steps, omega)
        return rows.held, *after

    def _steps(self, rows: HostRows | DeviceRows, steps: int, omega: np.ndarray) -> tuple[np.ndarray, int]:
        """The next graphs, one after the other: ω after them and their messages. Meanwhile the next one is drawn."""
        first, messages = self.step + 1, 0
        for s in range(first, first + steps):
            step = self.net.rank_step(s)
            ahead = s + 1 < first + steps or s < self._foreseen

            def meanwhile(s: int = s, step: RankStep = step, ahead: bool = ahead) -> None:
                nonlocal omega
                omega = step.weigh(omega)
                if ahead:
                    self.net.rank_step(s + 1)

            rows.step(step, meanwhile)
            messages += step.messages
        return omega, messages

    def foresee(self, steps: Sequence[int]) -> None:
        self._foreseen = self.step + sum(steps)

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        if weight_rule == WeightRule.CARRY:
            self._omega = step_weights(self.net, self.step, graphs, self._omega)
        self.step += graphs


@connect.register
def _(net: Spread, mode: str = "auto") -> Channel:
    """Steps unless told to compose: only steps are the simulation's bit for bit."""
    validation.choice("mode", mode, MODES)
    if isinstance(net.net, Unreliable) and not net.net.in_time:
        return LossyCrossing(net, mode)
    return ComposedCrossing(net) if mode == "composed" else Crossing(net, mode)
