"""When what is sent over unreliable links is received, and from whom: a call of S steps as sums over past rows.

Client j holds z_j(t) before step t = 1, 2, ... and sends the share W_ij(t) z_j(t) to client i. Each share is *due* at
one step, at whose end the receiver adds it:

    z_i(t + 1) = Σ of all shares W_ij(s) z_j(s), s ≤ t, that are due at t.

Plain messages carry one share each, due when the message arrives, and never if it is lost. With running sums the
message j → i of step s carries σ_ij(s) = Σ_{r ≤ s} W_ij(r) z_j(r), the total of what j has sent to i so far, and the
receiver adds σ − ρ with ρ the last total it had from j; totals older than that are ignored. Shares that were lost are
made up for by the next message of the same edge: a share of step s is due at

    min { arrival of the message j → i of step r : r ≥ s, not lost }.

The total of the weights grows with every message and tells an old total from a new one, so that d + 1 numbers travel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgp_ref._kernels import links
from hgp_ref._kernels.graphs import Csr
from hgp_ref._kernels.links import LOST, NEVER, cover, group
from hgp_ref._kernels.mixing import padded_rows, pull_step, pull_vector_step
from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, is_numpy
from hgp_ref.errors import outside
from hgp_ref.mixing.channel import Channel, Traffic, WeightRule, connect
from hgp_ref.mixing.simulated import PreparedCalls, Simulated, check_heard, chunks, weights_before
from hgp_ref.networks import Unreliable

TABLE = 2**22  # pairs of clients, up to which a table with an entry for every pair is kept


@dataclass(frozen=True)
class InFlight:
    """What was sent and is not received yet: entry k goes from sender to receiver and is due at step due[k]."""

    senders: np.ndarray
    receivers: np.ndarray
    due: np.ndarray  # NEVER where no message that was sent carries it
    since: np.ndarray  # the first step whose share it holds

    @staticmethod
    def nothing() -> InFlight:
        return InFlight(*(np.empty(0, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Deliveries:
    """`steps` steps after step `first - 1`: which rows each step adds up, and what is under way at the end.

    Rows are numbered: those under way before, then the n clients before the first step, before the second, ...
    """

    rows: list[Csr]  # what clients hold after each of the steps, (n, rows so far)
    left: InFlight
    left_rows: Csr  # of each entry of `left`
    messages: int


def deliveries(net: Unreliable, first: int, steps: int, robust: bool, before: InFlight) -> Deliveries:
    """The deliveries of steps first .. first + steps - 1, with `before` under way."""
    n, waiting = net.n, before.due.size
    senders, receivers, shares = [before.senders], [before.receivers], [np.ones(waiting)]
    due, since, source = [np.maximum(before.due, first)], [before.since], [np.arange(waiting)]
    for k in range(steps):
        indptr, froms, weights, late = net.links(first + k)
        senders.append(froms)
        receivers.append(np.repeat(np.arange(n), np.diff(indptr)))
        shares.append(weights)
        due.append(np.where(late == LOST, NEVER, first + k + late))
        since.append(np.full(late.size, first + k))
        source.append(waiting + k * n + froms.astype(np.int64))
    j, i, share, at, sent, row = (np.concatenate(parts) for parts in (senders, receivers, shares, due, since, source))
    if robust:
        _cover(i * n + j, at, n)
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
    left, left_rows = _merged(*(part[waits] for part in (j, i, at, sent, row, share)))
    return Deliveries(rows, left, left_rows, int(np.count_nonzero(j[waiting:] != i[waiting:])))


def _cover(pair: np.ndarray, due: np.ndarray, n: int) -> None:
    """Running sums: everything on a pair is due with the first message sent no earlier than it."""
    pairs = n * n
    if pairs > TABLE:
        distinct, pair = np.unique(pair, return_inverse=True)
        pairs = distinct.size
    cover(pair, due, np.full(pairs, NEVER))


def _merged(
    j: np.ndarray, i: np.ndarray, due: np.ndarray, since: np.ndarray, row: np.ndarray, share: np.ndarray
) -> tuple[InFlight, Csr]:
    """One entry for each (receiver, sender, due): what waits for the same message is added up."""
    if not j.size:
        return InFlight.nothing(), (np.zeros(1, dtype=np.int64), row.astype(np.int32), share)
    order = np.lexsort((due, j, i))
    j, i, due = j[order], i[order], due[order]
    new = np.ones(order.size, dtype=bool)
    new[1:] = (np.diff(i) != 0) | (np.diff(j) != 0) | (due[1:] != due[:-1])
    starts = np.flatnonzero(new)
    indptr = np.append(starts, order.size).astype(np.int64)
    earliest = np.minimum.reduceat(since[order], starts)
    left = InFlight(j[starts].astype(np.int64), i[starts].astype(np.int64), due[starts], earliest)
    return left, (indptr, row[order].astype(np.int32), share[order])


# ----------------------------------------------------------------------------------------------------
# A call over unreliable links, step by step, on arrays of any library.


PAST_BYTES = 16 * 2**20  # of past rows that are kept at once; what is then still under way is added up by edge
PAST_STEPS = 32


class InFlightState:
    """What is under way between two calls: `entries`, their weights (k,) in float64, and rows (..., k, d) like z.

    Without `rows` they are zero: weights went over the links, but no vectors.
    """

    def __init__(self, entries: InFlight, omega: np.ndarray, rows: Array | None = None) -> None:
        self.entries, self.omega, self.rows = entries, omega, rows

    @staticmethod
    def nothing() -> InFlightState:
        return InFlightState(InFlight.nothing(), np.empty(0))

    def weights_alone(self) -> InFlightState:
        return InFlightState(self.entries, self.omega)

    @property
    def holds_rows(self) -> bool:
        """Whether vectors are among it, so that the next call must be one of the same shape."""
        return self.rows is not None and self.omega.size > 0

    def rows_like(self, z: Array) -> Array:
        if self.rows is None or not self.holds_rows:
            xp = array_namespace(z)
            return xp.zeros((*z.shape[:-2], self.omega.size, z.shape[-1]), dtype=z.dtype, device=device(z))
        check_shape(z.shape, self.rows.shape)
        return self.rows


def check_shape(shape: Sequence[int], before: Sequence[int]) -> None:
    """ValueError unless arrays of these shapes (..., n, d) agree in run axes and columns."""
    if (*shape[:-2], shape[-1]) != (*before[:-2], before[-1]):
        raise ValueError(
            f"z: shape {tuple(shape)} given, needed that of the calls before, of which messages are still under "
            f"way with shape {tuple(before)}"
        )


class LossyCall(PreparedCalls):
    """One call of S steps after step `step`; omega (n,) and `mail` are as the call before has left them."""

    weight_rule: WeightRule
    steps: Sequence[int]

    def __init__(
        self,
        net: Unreliable,
        step: int,
        omega: np.ndarray,
        mail: InFlightState,
        steps: int,
        weight_rule: WeightRule,
        like: Array,
        divide: bool,
        robust: bool,
    ) -> None:
        super().__init__((steps,), weight_rule, like, divide)
        self.net, self._step, self.robust = net, step, robust
        carried = weight_rule == WeightRule.CARRY
        self._omega, self.mail = weights_before(weight_rule, omega), mail if carried else InFlightState.nothing()
        self.mass = float(self._omega.sum() + self.mail.omega.sum())  # of the weights before the call
        self.messages: list[int] = []

    def __call__(self, z: Array) -> Array:
        end, sent = self._step + self.steps[0], 0
        most = max(1, min(PAST_STEPS, PAST_BYTES // max(1, math.prod(z.shape) * host_dtype(z).itemsize)))
        while self._step < end:
            steps = min(most, end - self._step)
            plan = deliveries(self.net, self._step + 1, steps, self.robust, self.mail.entries)
            weights = _weights(plan.rows, plan.left_rows, np.concatenate([self.mail.omega, self._omega]), self.net.n)
            mixed = _host_rows if is_numpy(z) else _device_rows
            z, rows = mixed(plan.rows, plan.left_rows, self.mail.rows_like(z), z)
            self._omega, self.mail = weights[0], InFlightState(plan.left, weights[1], rows)
            self._step += steps
            sent += plan.messages
        self.lost = (
            1.0 - float(self._omega.sum() + (self.weight_rule == WeightRule.CARRY) * self.mail.omega.sum()) / self.mass
        )
        if self.weight_rule != WeightRule.CARRY:
            self.mail = InFlightState.nothing()
        self.messages.append(sent)
        self.used += 1
        if not self.divide:
            return z
        check_heard(self._omega, repr(self.net))
        return z / self.weights_now()

    def weights_now(self) -> Array:
        return from_host(self._omega.astype(host_dtype(self.like))[:, None], like=self.like)

    @property
    def omega(self) -> np.ndarray:
        return self._omega


def _weights(rows: list[Csr], left: Csr, omega: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """ω after the steps, and that of what is left under way; omega holds what was under way, then the clients'."""
    for graph in rows:
        omega = np.concatenate([omega, pull_vector_step(*graph, omega)])
    return omega[-n:], pull_vector_step(*left, omega)


def _host_rows(rows: list[Csr], left: Csr, waiting: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for rows of NumPy arrays (..., k, d); leading axes join the columns."""
    n, k = z.shape[-2], waiting.shape[-2]
    shape = (*z.shape[:-2], -1, z.shape[-1])
    columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
    past = np.empty((k + (len(rows) + 1) * n, columns), dtype=z.dtype)
    past[:k], past[k : k + n] = (np.moveaxis(a, -2, 0).reshape(a.shape[-2], columns) for a in (waiting, z))
    for t, graph in enumerate(rows):
        end = k + (t + 1) * n
        pull_step(*graph, past[:end], past[end : end + n])
    kept = np.empty((left[0].size - 1, columns), dtype=z.dtype)
    pull_step(*left, past, kept)
    last = past[-n:].copy()

    def unfold(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a.reshape(len(a), *shape[:-2], shape[-1]), 0, -2)

    return unfold(last), unfold(kept)


def _device_rows(rows: list[Csr], left: Csr, waiting: Array, z: Array) -> tuple[Array, Array]:
    """The same on any library: take and add."""
    xp = array_namespace(z)
    past = xp.concat([waiting, z], axis=-2) if waiting.shape[-2] else z
    for graph in rows:
        z = _pulled(graph, past)
        past = xp.concat([past, z], axis=-2)
    return z, _pulled(left, past)


def _pulled(graph: Csr, past: Array) -> Array:
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


# ----------------------------------------------------------------------------------------------------
# Links that lose and delay: all clients in one process, over the graphs of an Unreliable network.
#
# A call is still linear in what clients hold, z ← P z and ω ← P ω with P ≥ 0, but columns of P no longer sum to one:
# what is lost or under way at its end is missing. Divided by the weights, K = diag(P 1)⁻¹ P is non-negative with rows
# that sum to one all the same, which is what bounds A and B rest on. That sums over clients are kept, by which C3 and
# C4
# place the mean among the averages of clients, is not so; `enclose` places it among those of the last few steps.
#
# Plain messages lose mass for good, and K tends to a matrix whose rows agree on something that is not the mean. Running
# sums (`use_running_sums`) lose none, and K tends to 11ᵀ/n; so it does where messages are late and none is lost.


FEW = 32  # clients up to which composing is taken in any case
ROUNDING = 1e-9  # of the mass, which no call loses by rounding


class Lossy(Simulated):
    """The graphs of `net`, whose messages are lost or late.

    Calls with fresh weights begin with nothing under way, and what arrives after their end is not added: it belongs to
    no other call. With carried weights what is under way goes on from call to call. A message is counted when it is
    sent, whether it arrives or not.

    Parameters
    ----------
    net : Unreliable
        Links that lose and delay.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

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
        self._mail = InFlightState.nothing()
        self._warned = False

    @property
    def drops_mass(self) -> bool:  # type: ignore[override]
        return not self.robust and self.net.loss > 0

    @property
    def in_flight(self) -> bool:  # type: ignore[override]
        self.flush()
        return bool(self._mail.entries.due.size)

    @property
    def rows_in_flight(self) -> bool:
        """Whether vectors are under way, not weights alone."""
        self.flush()
        return self._mail.holds_rows

    def use_running_sums(self) -> None:
        self.robust = True

    def drop_in_flight(self) -> None:
        self.flush()
        self._mail = InFlightState.nothing()

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """P of the next calls with fresh weights, and their messages."""
        P, messages = np.empty((len(steps), self.n, self.n)), np.empty(len(steps), dtype=np.int64)
        first = self.net.t + self.step + 1
        for part, W, S in chunks(self.net, self.step, steps):
            links.products(W, S, first, *self.net.rule, self.robust, P[part], messages[part])
            first += len(W)
        return P, messages

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        """One matrix a call costs S n E on the host and n² d / 8 on the vectors, stepping S E d."""
        if weight_rule != WeightRule.RESET:
            if self.mode == "composed":
                raise ValueError(
                    f"mode='composed' given, needed 'auto' or 'stepping': over {self.net!r} messages of one call with "
                    "carried weights arrive in later ones, so that no matrix tells what a call does"
                )
            return False
        if self.mode != "auto":
            return self.mode == "composed"
        columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
        sent = steps * self.net.expected_edges
        return self.n <= FEW or sent * self.n + self.n**2 * columns / 8 <= sent * columns

    def _call(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool) -> Array:
        if weight_rule is WeightRule.NONE:
            raise ValueError(
                f"net: {self.net!r} loses or delays messages, and without weights nobody can tell how much of a sum is "
                "missing; needed PushSum, or RobustPushSum, in place of Gossip"
            )
        mixed = super()._call(z, steps, weight_rule, divide)
        if self.drops_mass and not self._warned:
            self._warn(steps, weight_rule)
        return mixed

    def interval_mean(
        self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """Boxes over the last averages, from the oldest step on of which a share is still under way.

        With y_i(t) = z_i(t) / ω_i(t) after t steps, the sums of all clients are at the end with the clients, or under
        way: shares W_ij(s) z_j(s - 1) of steps s. Both sums and weights are conserved, so that

            n z̄ = Σ_i ω_i(S) y_i(S) + Σ_{under way} W_ij(s) ω_j(s - 1) y_j(s - 1),
            n   = Σ_i ω_i(S)        + Σ_{under way} W_ij(s) ω_j(s - 1):

        the mean is a convex combination of y_i(S) and of y_j(s - 1) for the steps s of which something is under way.
        Every message carries the number of its step as well (one number more, counted), so that receivers know which
        shares they miss; flooding makes the oldest of them known to all, who have kept their averages since.
        """
        past, missing, sent = self.averages_since_missing(z, steps, weight_rule)
        self._sent += stamps(sent, z)
        oldest = -self.max_consensus(-missing[:, None], z, max_rounds)[0]
        return box(past, oldest)

    def averages_since_missing(
        self, z: Array, steps: int, weight_rule: WeightRule
    ) -> tuple[dict[int, Array], np.ndarray, int]:
        """({t: y(t)}, the oldest t of which each client misses a share, messages) of a call that is made for `enclose`.

        The y(t) are those after the oldest one of all.
        """
        if self.drops_mass or weight_rule is WeightRule.NONE:
            raise ValueError(f"net: {self.net!r} loses sums for good, needed running sums: RobustPushSum")
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
        """After t steps, the oldest average of which each client misses a share, (n,); t where it misses none."""
        self.flush()
        oldest = np.full(self.n, float(t))
        np.minimum.at(oldest, self._mail.entries.receivers, self._mail.entries.since - first)
        return oldest

    def _stepping(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool) -> PreparedCalls:
        return LossyCall(self.net, self.step, self._omega, self._mail, steps, weight_rule, z, divide, self.robust)

    def flush(self) -> None:
        if self._calls is not None:
            self._mail = self._calls.mail if isinstance(self._calls, LossyCall) else InFlightState.nothing()
        super().flush()

    def _warn(self, steps: int, weight_rule: WeightRule) -> None:
        """Once, at the first call that loses something."""
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
        """Vectors that are under way are dropped where weights are carried: they belong to calls that are not made."""
        self.flush()
        if weight_rule == WeightRule.CARRY and graphs:
            sent = self._sent
            self._mail = self._mail.weights_alone()
            self.mix(like[..., :0], graphs, weight_rule)
            self.flush()
            self._sent, self._mail = sent, self._mail.weights_alone()
        else:
            super().advance(graphs, weight_rule, like)


def stamps(messages: int, z: Array) -> Traffic:
    """The number of its step, in so many messages that are counted already."""
    return Traffic(0, messages, messages * host_dtype(z).itemsize, 0)


def box(past: dict[int, Array], oldest: float) -> tuple[Array, Array]:
    """(low, high) of the averages y(t), t ≥ oldest."""
    kept = [y for t, y in past.items() if t >= oldest]
    xp = array_namespace(kept[0])
    return xp.min(xp.stack(kept), axis=0), xp.max(xp.stack(kept), axis=0)


@connect.register
def _(net: Unreliable, mode: str = "auto") -> Channel:
    return Simulated(net, mode) if net.in_time else Lossy(net, mode)
