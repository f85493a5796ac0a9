"""Links that lose and delay messages: a call of S steps as sums over past rows.

Client j holds z_j(t) before step t = 1, 2, … and sends the share W_ij(t) z_j(t) to client i. Each share has an arrival
step, at whose end the receiver adds it:

    z_i(t + 1) = Σ of all shares W_ij(s) z_j(s), s ≤ t, that arrive at step t.

A plain message carries one share and may be lost. With running sums, the message j → i of step s carries
σ_ij(s) = Σ_{r ≤ s} W_ij(r) z_j(r), the sum of all that j has sent to i so far. The receiver adds σ − ρ, where ρ is the
last sum it received from j, and ignores older sums. The next message along an edge makes up for a lost one: a share of
step s arrives at

    min { arrival of the message j → i of step r : r ≥ s, not lost }.

The sum of the weights grows with every message, which tells old sums from new; so d + 1 numbers travel.

A call is still linear, z ← P z and ω ← P ω with P ≥ 0, but columns of P no longer sum to 1: lost shares and shares in
flight are missing. K = diag(P 1)⁻¹ P is non-negative with rows that sum to 1 all the same, which is what bounds A and B
need. Sums over clients are not conserved within a call, so `interval_mean` bounds the mean by the averages of the last
few steps. Plain messages lose mass for good, and K tends to a matrix whose rows agree on something that is not the
mean. With running sums, or with delays but no losses, K tends to 11ᵀ/n.

On CuPy, the device draws losses, delays and sleep and finds the shares that arrive, if calls start with nothing in
flight (RESET) and the device draws the graphs. Else the host prepares every call: if weights carry over, if stepping
calls have more than PAST_STEPS steps or past rows of more than DEVICE_PAST_BYTES, or over graphs of the host.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref._kernels import cuda, links
from hgp_ref._kernels.graphs import Csr
from hgp_ref._kernels.links import LOST, NEVER, earliest_arrivals, group
from hgp_ref._kernels.mixing import padded_rows, pull_step, pull_vector_step
from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, is_numpy
from hgp_ref.errors import outside
from hgp_ref.mixing.channel import Channel, Traffic, WeightRule, connect
from hgp_ref.mixing.simulated import (
    CudaCalls,
    CudaProducts,
    CudaSteps,
    PreparedCalls,
    Simulated,
    check_received,
    chunks,
    weights_before,
)
from hgp_ref.networks import Unreliable

TABLE = 2**22  # pairs of clients up to which a table with one entry per pair is used


@dataclass(frozen=True)
class InFlight:
    """Shares that have not arrived yet: entry k goes from senders[k] to receivers[k]."""

    senders: np.ndarray
    receivers: np.ndarray
    arrival: np.ndarray  # NEVER if no message carries it yet
    sent_at: np.ndarray  # the first step whose share it holds

    @staticmethod
    def empty() -> InFlight:
        return InFlight(*(np.empty(0, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Deliveries:
    """The steps first, …, first + steps − 1: which rows each step adds up, and what is in flight at the end.

    Rows are numbered: those in flight before, then the n clients before the first step, before the second, …
    """

    rows: list[Csr]  # what clients hold after each step, (n, rows so far)
    remaining: InFlight
    remaining_rows: Csr  # of each entry of `remaining`
    messages: int


def deliveries(net: Unreliable, first: int, steps: int, robust: bool, before: InFlight) -> Deliveries:
    """The deliveries of steps first, …, first + steps − 1, with `before` in flight."""
    n, waiting = net.n, before.arrival.size
    senders, receivers, shares = [before.senders], [before.receivers], [np.ones(waiting)]
    arrival, sent_at, source = [np.maximum(before.arrival, first)], [before.sent_at], [np.arange(waiting)]
    for k in range(steps):
        indptr, from_clients, weights, delays = net.links(first + k)
        senders.append(from_clients)
        receivers.append(np.repeat(np.arange(n), np.diff(indptr)))
        shares.append(weights)
        arrival.append(np.where(delays == LOST, NEVER, first + k + delays))
        sent_at.append(np.full(delays.size, first + k))
        source.append(waiting + k * n + from_clients.astype(np.int64))
    j, i, share, at, sent, row = (
        np.concatenate(parts) for parts in (senders, receivers, shares, arrival, sent_at, source)
    )
    if robust:
        _arrive_with_running_sums(i * n + j, at, n)
    received = at < first + steps
    bucket = (at[received] - first) * n + i[received]
    indptr, order = group(bucket, steps * n)
    columns, weights = row[received][order].astype(np.int32), share[received][order]
    rows = []
    for k in range(steps):
        begin = indptr[k * n : (k + 1) * n + 1]
        part = slice(begin[0], begin[-1])
        rows.append((begin - begin[0], columns[part], weights[part]))
    waits = ~received if robust else ~received & (at < NEVER)
    remaining, remaining_rows = _merged(*(part[waits] for part in (j, i, at, sent, row, share)))
    return Deliveries(rows, remaining, remaining_rows, int(np.count_nonzero(j[waiting:] != i[waiting:])))


def _arrive_with_running_sums(pair: np.ndarray, arrival: np.ndarray, n: int) -> None:
    """Running sums: a share arrives with the first message of its edge that was not sent earlier."""
    pairs = n * n
    if pairs > TABLE:
        distinct, pair = np.unique(pair, return_inverse=True)
        pairs = distinct.size
    earliest_arrivals(pair, arrival, np.full(pairs, NEVER))


def _merged(
    j: np.ndarray, i: np.ndarray, arrival: np.ndarray, sent_at: np.ndarray, row: np.ndarray, share: np.ndarray
) -> tuple[InFlight, Csr]:
    """One entry for each (receiver, sender, arrival): shares that wait for the same message are added up."""
    if not j.size:
        return InFlight.empty(), (np.zeros(1, dtype=np.int64), row.astype(np.int32), share)
    order = np.lexsort((arrival, j, i))
    j, i, arrival = j[order], i[order], arrival[order]
    new = np.ones(order.size, dtype=bool)
    new[1:] = (np.diff(i) != 0) | (np.diff(j) != 0) | (arrival[1:] != arrival[:-1])
    starts = np.flatnonzero(new)
    indptr = np.append(starts, order.size).astype(np.int64)
    earliest = np.minimum.reduceat(sent_at[order], starts)
    remaining = InFlight(j[starts].astype(np.int64), i[starts].astype(np.int64), arrival[starts], earliest)
    return remaining, (indptr, row[order].astype(np.int32), share[order])


PAST_BYTES = 16 * 2**20  # of past rows that are stored; shares still in flight are then added up by edge
PAST_STEPS = 32
DEVICE_PAST_BYTES = 16 * PAST_BYTES  # on CuPy, where calls of more steps are prepared by the host
DEVICE_LINK_BYTES = 2**30  # of the graphs of a call and of what arrives when, on CuPy likewise


class InFlightState:
    """What is in flight between two calls: `entries`, their weights (k,) in float64, and rows (..., k, d) like z.

    `rows` is None if only weights went over the links.
    """

    def __init__(self, entries: InFlight, omega: np.ndarray, rows: Array | None = None) -> None:
        self.entries, self.omega, self.rows = entries, omega, rows

    @staticmethod
    def empty() -> InFlightState:
        return InFlightState(InFlight.empty(), np.empty(0))

    def weights_alone(self) -> InFlightState:
        """The same without the vectors."""
        return InFlightState(self.entries, self.omega)

    @property
    def holds_rows(self) -> bool:
        """Whether vectors are in flight, so that the next call must have the same shape."""
        return self.rows is not None and self.omega.size > 0

    def rows_like(self, z: Array) -> Array:
        """The vectors in flight, zeros if there are none; ValueError unless they have the run axes and columns of z."""
        if self.rows is None or not self.holds_rows:
            xp = array_namespace(z)
            return xp.zeros((*z.shape[:-2], self.omega.size, z.shape[-1]), dtype=z.dtype, device=device(z))
        check_shape(z.shape, self.rows.shape)
        return self.rows


def check_shape(shape: Sequence[int], before: Sequence[int]) -> None:
    """Raise ValueError unless arrays of these shapes (..., n, d) have equal run axes and columns."""
    if (*shape[:-2], shape[-1]) != (*before[:-2], before[-1]):
        raise ValueError(
            f"z must have run axes {tuple(before[:-2])} and {before[-1]} columns, as the calls whose messages are in "
            f"flight, got shape {tuple(shape)}"
        )


class LossyCall(PreparedCalls):
    """One call of S steps after step `step`; omega (n,) and `state` are as left by the previous call."""

    weight_rule: WeightRule
    steps: int

    def __init__(
        self,
        net: Unreliable,
        step: int,
        omega: np.ndarray,
        state: InFlightState,
        like: Array,
        steps: int,
        weight_rule: WeightRule,
        divide: bool,
        robust: bool,
    ) -> None:
        super().__init__(like, steps, weight_rule, divide)
        self.net, self._step, self.robust = net, step, robust
        self._omega = weights_before(weight_rule, omega)
        self.remaining = state if weight_rule is WeightRule.CARRY else InFlightState.empty()
        self.mass = float(self._omega.sum() + self.remaining.omega.sum())  # of the weights before the call
        self.messages = 0

    def __call__(self, z: Array) -> Array:
        end, sent = self._step + self.steps, 0
        most = max(1, min(PAST_STEPS, PAST_BYTES // max(1, math.prod(z.shape) * host_dtype(z).itemsize)))
        while self._step < end:
            steps = min(most, end - self._step)
            plan = deliveries(self.net, self._step + 1, steps, self.robust, self.remaining.entries)
            before = np.concatenate([self.remaining.omega, self._omega])
            self._omega, omega = _mix_weights(plan.rows, plan.remaining_rows, before, self.net.n)
            mix_rows = _mix_on_host if is_numpy(z) else _mix_on_cuda if cuda.applies(z) else _mix_on_device
            z, rows = mix_rows(plan.rows, plan.remaining_rows, self.remaining.rows_like(z), z)
            self.remaining = InFlightState(plan.remaining, omega, rows)
            self._step += steps
            sent += plan.messages
        if self.weight_rule is not WeightRule.CARRY:
            self.remaining = InFlightState.empty()
        self.lost = 1.0 - float(self._omega.sum() + self.remaining.omega.sum()) / self.mass
        self.messages += sent
        self.used += 1
        if not self.divide:
            return z
        check_received(self._omega, self.net)
        return z / self.weights

    @property
    def weights(self) -> Array:
        return from_host(self._omega.astype(host_dtype(self.like))[:, None], like=self.like)

    @property
    def omega(self) -> np.ndarray:
        return self._omega


def _mix_weights(rows: list[Csr], remaining: Csr, omega: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """ω after the steps, and the weights in flight; omega holds those in flight before, then the clients'."""
    for graph in rows:
        omega = np.concatenate([omega, pull_vector_step(*graph, omega)])
    return omega[-n:], pull_vector_step(*remaining, omega)


def _mix_on_host(rows: list[Csr], remaining: Csr, waiting: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z after the steps, and the rows in flight, for NumPy arrays (..., k, d); leading axes join the columns."""
    n, k = z.shape[-2], waiting.shape[-2]
    shape = (*z.shape[:-2], -1, z.shape[-1])
    columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
    past = np.empty((k + (len(rows) + 1) * n, columns), dtype=z.dtype)
    past[:k], past[k : k + n] = (np.moveaxis(a, -2, 0).reshape(a.shape[-2], columns) for a in (waiting, z))
    for t, graph in enumerate(rows):
        end = k + (t + 1) * n
        pull_step(*graph, past[:end], past[end : end + n])
    in_flight = np.empty((remaining[0].size - 1, columns), dtype=z.dtype)
    pull_step(*remaining, past, in_flight)
    last = past[-n:].copy()

    def unfold(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a.reshape(len(a), *shape[:-2], shape[-1]), 0, -2)

    return unfold(last), unfold(in_flight)


def _mix_on_device(rows: list[Csr], remaining: Csr, waiting: Array, z: Array) -> tuple[Array, Array]:
    """As `_mix_on_host`, on any array library: take and add."""
    xp = array_namespace(z)
    past = xp.concat([waiting, z], axis=-2) if waiting.shape[-2] else z
    for graph in rows:
        z = _pull(graph, past)
        past = xp.concat([past, z], axis=-2)
    return z, _pull(remaining, past)


def _mix_on_cuda(rows: list[Csr], remaining: Csr, waiting: Array, z: Array) -> tuple[Array, Array]:
    """As `_mix_on_host`, on CuPy arrays: one kernel launch per step."""
    xp, n, k = array_namespace(z), z.shape[-2], waiting.shape[-2]
    lead, d = z.shape[:-2], z.shape[-1]
    past = xp.empty((*lead, k + (len(rows) + 1) * n, d), dtype=z.dtype, device=device(z))
    past[..., :k, :], past[..., k : k + n, :] = waiting, z
    omega = xp.zeros(past.shape[-2], dtype=xp.float64, device=device(z))  # weights are mixed on the host
    steps = cuda.send_rows(rows, z)
    for t in range(len(rows)):
        cuda.pull(steps.at(t), past, omega, out=past, row=k + (t + 1) * n)
    in_flight = past[..., :0, :]
    if remaining[0].size > 1:
        in_flight, _ = cuda.pull(cuda.send_rows([remaining], z).at(0), past, omega)
    return xp.asarray(past[..., -n:, :], copy=True), in_flight


class LateSteps(CudaSteps):
    """Calls on CuPy with nothing in flight before them, one kernel launch per step; `late` finds what arrives when."""

    def __init__(self, late: Callable[[cuda.Rows], cuda.Rows], *arguments: Any) -> None:
        self._late = late
        super().__init__(*arguments)

    def _prepare(self, graphs: cuda.Rows, omega: Array) -> None:
        self._deliveries, self._omega = self._late(graphs), omega

    def __call__(self, z: Array) -> Array:
        xp, n, S = array_namespace(z), self.n, self.steps
        columns = z if z.size else xp.zeros((n, 1), dtype=z.dtype, device=device(z))  # ω changes all the same
        past = xp.empty((*columns.shape[:-2], (S + 1) * n, columns.shape[-1]), dtype=z.dtype, device=device(z))
        omega = xp.ones((S + 1) * n, dtype=xp.float64, device=device(z))
        past[..., :n, :] = columns
        indptr, *entries = self._deliveries.at(self.used)
        for t in range(1, S + 1):
            graph = (indptr[(t - 1) * n : t * n + 1], *entries)
            end = slice(t * n, (t + 1) * n)
            cuda.pull(graph, past, omega, self.divide and t == S, past, t * n, omega[end])
        self._omega = omega[-n:]
        self.used += 1
        return xp.asarray(past[..., -n:, :], copy=True) if z.size else xp.zeros_like(z)


class LateProducts(CudaProducts):
    """Composed calls on CuPy with nothing in flight before them; `late` finds what arrives when."""

    def __init__(self, late: Callable[[cuda.Rows], cuda.Rows], *arguments: Any) -> None:
        self._late = late
        super().__init__(*arguments)

    def _products(self, graphs: cuda.Rows) -> Array:
        return cuda.compose_deliveries(self._late(graphs), self.steps, self.n, self.like)


def _pull(graph: Csr, past: Array) -> Array:
    """The product of a CSR matrix and past rows, on any array library."""
    xp, widths = array_namespace(past), np.diff(graph[0])
    width = int(widths.max(initial=0))
    if not width:
        return xp.zeros_like(past[..., : widths.size, :])
    senders, shares = padded_rows(*graph, width)
    taken, share = from_host(senders, like=past), from_host(shares.astype(host_dtype(past)), like=past)
    total = xp.zeros_like(past[..., :1, :])
    for e in range(width):
        total = total + share[:, e][:, None] * xp.take(past, taken[:, e], axis=-2)
    return total


SMALL = 32  # clients up to which composing is always used
ROUNDING = 1e-9  # share of the mass; no call loses that much by rounding


class Lossy(Simulated):
    """A channel over links that lose and delay messages, with all clients in this process.

    With weight rule RESET a call starts with nothing in flight, and what arrives after its end is discarded. With CARRY
    messages in flight arrive in later calls. A message is counted when it is sent, whether it arrives or not.

    Examples
    --------
    >>> net = hgp.networks.Unreliable(hgp.networks.FullyConnected(3), loss=0.1, delay=1)
    >>> isinstance(hgp.mixing.connect(net), hgp.mixing.Lossy)
    True
    """

    conserves_mass = False
    net: Unreliable

    def __init__(self, net: Unreliable, mode: str = "auto") -> None:
        super().__init__(net, mode)
        self.robust = False
        self._in_flight = InFlightState.empty()
        self._warned = False

    @property
    def drops_mass(self) -> bool:  # type: ignore[override]
        return not self.robust and self.net.loss > 0

    @property
    def in_flight(self) -> bool:  # type: ignore[override]
        self.flush()
        return bool(self._in_flight.entries.arrival.size)

    @property
    def rows_in_flight(self) -> bool:
        """Whether vectors are in flight, not only weights."""
        self.flush()
        return self._in_flight.holds_rows

    def use_running_sums(self) -> None:
        self.robust = True

    def drop_in_flight(self) -> None:
        self.flush()
        self._in_flight = InFlightState.empty()

    def matrices(self, steps: int, calls: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """P of the next calls with weight rule RESET, and their messages."""
        P, messages = np.empty((calls, self.n, self.n)), np.empty(calls, dtype=np.int64)
        first = self.net._offset + self.step + 1
        for part, W in chunks(self.net, self.step, steps, calls):
            links.products(W, steps, first, *self.net.rule, self.robust, P[part], messages[part])
            first += len(W)
        return P, messages

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        """Composing costs S n E on the host and n² d / 8 for the vectors, stepping S E d."""
        if weight_rule != WeightRule.RESET:
            if self.mode == "composed":
                raise ValueError(
                    f"mode must be 'auto' or 'stepping' if weights carry over, got 'composed': over {self.net!r} "
                    "messages arrive in later calls, so a call is not one matrix"
                )
            return False
        if self.mode != "auto":
            return self.mode == "composed"
        columns, sent = self._columns(z), steps * self.net.expected_edges
        return self.n <= SMALL or sent * self.n + self.n**2 * columns / 8 <= sent * columns

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:  # type: ignore[override]
        mixed = super().mix(z, steps, weight_rule)
        self._warn_of_loss(steps, weight_rule)
        return mixed

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:  # type: ignore[override]
        averaged = super().average(z, steps, weight_rule)
        self._warn_of_loss(steps, weight_rule)
        return averaged

    def _prepare(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool, count: int) -> PreparedCalls:
        if weight_rule is WeightRule.NONE:
            raise ValueError(
                f"net: {self.net!r} loses or delays messages, and without weights clients cannot tell how much of a "
                "sum is missing; use PushSum or RobustPushSum in place of Gossip"
            )
        return super()._prepare(z, steps, weight_rule, divide, count)

    def interval_mean(
        self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """Boxes over the last averages, since the oldest step of which a share is still in flight.

        With y_i(t) = z_i(t) / ω_i(t) after t steps, all mass is either with the clients or in flight, as shares
        W_ij(s) z_j(s − 1) of steps s. Sums and weights are both conserved, so

            n z̄ = Σ_i ω_i(S) y_i(S) + Σ_{in flight} W_ij(s) ω_j(s − 1) y_j(s − 1),
            n   = Σ_i ω_i(S)        + Σ_{in flight} W_ij(s) ω_j(s − 1):

        the mean is a convex combination of y_i(S) and of y_j(s − 1) for the steps s with shares in flight. Every
        message also carries its step number (one number more, counted), so receivers know which shares they miss.
        Max-consensus tells all clients the oldest of them; they have stored their averages since.
        """
        past, missing, sent = self.averages_since_missing(z, steps, weight_rule)
        self._sent += stamps(sent, z)
        oldest = -self.max_consensus(-missing[:, None], z, max_rounds)[0]
        return box(past, oldest)

    def averages_since_missing(
        self, z: Array, steps: int, weight_rule: WeightRule
    ) -> tuple[dict[int, Array], np.ndarray, int]:
        """({t: y(t)} since the oldest missing share, the oldest t each client misses, messages)."""
        if self.drops_mass or weight_rule is WeightRule.NONE:
            raise ValueError(f"net: {self.net!r} loses messages for good; use RobustPushSum")
        self.drop_in_flight()
        self._omega = np.ones(self.n)
        first, sent, held, past = self.step + 1, self.traffic.messages, z, {0: z}  # past[t] = y(t)
        for t in range(1, steps + 1):
            held = self.mix(held, 1, WeightRule.CARRY)
            past[t] = held / self.weights
            missing = self._missing(first, t)
            past = {s: y for s, y in past.items() if s >= missing.min()}
        sent = self.traffic.messages - sent
        self.drop_in_flight()
        return past, missing, sent

    def _missing(self, first: int, t: int) -> np.ndarray:
        """The oldest average of which each client misses a share after t steps, (n,); t if it misses none."""
        self.flush()
        oldest = np.full(self.n, float(t))
        np.minimum.at(oldest, self._in_flight.entries.receivers, self._in_flight.entries.sent_at - first)
        return oldest

    def _stepping(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool, count: int) -> PreparedCalls:
        if weight_rule is WeightRule.RESET and cuda.applies(z) and steps <= PAST_STEPS:
            sampler = self._device_sampler(z, weight_rule)
            links = 0 if sampler is None else 3 * cuda.EDGE_BYTES * steps * sampler.room
            past = steps * z.size * host_dtype(z).itemsize
            if sampler is not None and past <= DEVICE_PAST_BYTES and links <= DEVICE_LINK_BYTES:
                most = 2 * PAST_BYTES // links
                return self._cuda_calls(
                    False, sampler, z, steps, weight_rule, divide, min(count, max(1, min(64, most)))
                )
        before = (self._step, self.omega, self._in_flight)
        return LossyCall(self.net, *before, z, steps, weight_rule, divide, self.robust)

    def _cuda_calls(self, composed: bool, *drawn: Any) -> CudaCalls:
        _, like, steps, *_ = drawn
        first = self.net._offset + self._step + 1

        def late(sent: cuda.Rows) -> cuda.Rows:
            return cuda.deliveries(sent, steps, first, self.net.rule, self.robust, like)

        return (LateProducts if composed else LateSteps)(late, *self._drawn(*drawn))

    def flush(self) -> None:
        if self._calls is not None:
            self._in_flight = self._calls.remaining if isinstance(self._calls, LossyCall) else InFlightState.empty()
        super().flush()

    def _warn_of_loss(self, steps: int, weight_rule: WeightRule) -> None:
        """Warn at the first call that loses something."""
        if self._warned or not self.drops_mass:
            return
        lost = self._calls.lost if isinstance(self._calls, LossyCall) else 1.0 - float(self.omega.mean())
        if lost > ROUNDING:
            self._warned = True
            late = "" if weight_rule == WeightRule.CARRY else " or came after its end"
            warnings.warn(
                f"PushSum over {self.net!r} loses mass: {100 * lost:.2g} % of it was lost{late} in a call of {steps} "
                "steps, so that clients agree on something that is not the mean; RobustPushSum loses none",
                RuntimeWarning,
                stacklevel=outside(),
            )

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        """With CARRY, vectors in flight are dropped: they belong to calls that are not made."""
        self.flush()
        if weight_rule == WeightRule.CARRY and graphs:
            sent = self._sent
            self._in_flight = self._in_flight.weights_alone()
            self.mix(like[..., :0], graphs, weight_rule)
            self.flush()
            self._sent, self._in_flight = sent, self._in_flight.weights_alone()
        else:
            super().advance(graphs, weight_rule, like)


def stamps(messages: int, z: Array) -> Traffic:
    """Traffic of a step number in each of `messages` messages that are counted already."""
    return Traffic(0, messages, messages * host_dtype(z).itemsize, 0)


def box(past: dict[int, Array], oldest: float) -> tuple[Array, Array]:
    """(low, high) of the averages y(t), t ≥ oldest."""
    recent = [y for t, y in past.items() if t >= oldest]
    xp = array_namespace(recent[0])
    stacked = xp.stack(recent)
    return xp.min(stacked, axis=0), xp.max(stacked, axis=0)


@connect.register
def _(net: Unreliable, mode: str = "auto") -> Channel:
    return Simulated(net, mode) if net.is_reliable else Lossy(net, mode)
