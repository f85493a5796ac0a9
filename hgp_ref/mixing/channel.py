"""Channels: all communication between clients goes over one, and it counts what it carries.

A channel holds its position t in the network's sequence of graphs. With W_s the mixing matrix of graph s, a call of S
steps multiplies by the next S matrices,

    z ← P z,    ω ← P ω,    P = W_{t+S} ... W_{t+1},

and an average divides the sums by the weights, z_i / ω_i. Channels differ in where clients are and how links behave
(one process, MPI ranks, unreliable links); nothing above them knows which one is in use.

Max-consensus is the other operation. In every round each client replaces its numbers by the largest of its own and
those it receives. After R rounds client i holds the maximum over all clients that can reach it along these graphs, so
rounds go on until all clients hold the global maximum. Clients cannot detect that moment; a deployment fixes a number
of rounds that is large enough. Lost numbers are sent again in the next round, so the maximum is exact over unreliable
links too. Minima are maxima of negatives.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import singledispatch
from typing import Any

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.backend import Array, array_namespace, class_name, computes_on_device, host_dtype, host_float64, is_numpy
from hgp_ref.networks import Network, Unreliable
from hgp_ref.results import Numbers, Result
from hgp_ref.validation import Integer, Nonnegative, Positive, checked

FIELDS = ("messages", "floats", "bytes", "rounds")


@dataclass(frozen=True)
class Traffic(Result):
    """Communication of a run, summed over clients. With a run axis every field is an array.

    Attributes
    ----------
    messages : vectors sent, each with its Push-Sum weight if there is one, over edges that are not self-loops.
    floats, bytes : numbers in these messages, and their size.
    rounds : steps of the network; in one round all clients send at once.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(3)
    >>> est = hgp.hypergradient(hgp.problems.Quadratic.random(3, 4, 2), np.zeros((3, 4)), np.zeros((3, 2)),
    ...     hgp.PushSum(net, steps=1), eta=1.0, iterations=10)
    >>> est.traffic.rounds, est.traffic.messages, est.traffic.floats
    (10, 60, 300)
    >>> est.traffic.seconds(latency=0.02, bandwidth=1e6, uplinks=3)
    0.2008
    """

    messages: Numbers = 0
    floats: Numbers = 0
    bytes: Numbers = 0
    rounds: Numbers = 0

    def __add__(self, other: Traffic) -> Traffic:
        messages, floats = self.messages + other.messages, self.floats + other.floats
        return Traffic(messages, floats, self.bytes + other.bytes, self.rounds + other.rounds)

    def __sub__(self, other: Traffic) -> Traffic:
        messages, floats = self.messages - other.messages, self.floats - other.floats
        return Traffic(messages, floats, self.bytes - other.bytes, self.rounds - other.rounds)

    @checked(latency=Nonnegative(), bandwidth=Positive(), uplinks=Integer(1))
    def seconds(self, latency: float, bandwidth: float, uplinks: int = 1) -> Numbers:
        """The time that the messages take, in seconds, for given properties of the links:

            rounds · latency + bytes / (uplinks · bandwidth).

        Rounds are synchronous: one begins when all messages of the one before have arrived. An uplink sends its
        messages one after the other, and each arrives `latency` seconds after it was sent. Computation, receiving, and
        messages that are sent again are not included.

        - uplinks=1: all clients share one medium. This is exact for that medium.
        - uplinks=n: each client has its own uplink. This is exact if all clients send equally many bytes in each round,
          as in regular graphs. Otherwise it is a lower bound, because a round lasts as long as its busiest client;
          uplinks=1 is then an upper bound.

        Parameters
        ----------
        latency : seconds.
        bandwidth : bytes per second of one uplink.
        """
        return self.rounds * latency + self.bytes / (uplinks * bandwidth)

    @staticmethod
    def of(messages: int, floats_per_message: int, itemsize: int, rounds: int) -> Traffic:
        """Traffic of `messages` messages of `floats_per_message` numbers of `itemsize` bytes each."""
        floats = int(messages) * floats_per_message
        return Traffic(int(messages), floats, floats * itemsize, int(rounds))

    @staticmethod
    def side_by_side(runs: Sequence[Traffic]) -> Traffic:
        """The traffic of several runs, stacked along a run axis."""
        return Traffic(*(np.array([getattr(run, f) for run in runs]) for f in FIELDS))

    def one_line(self) -> str:
        """One line for a summary; of several runs, the largest of each number."""
        messages, floats, size, rounds = (int(np.max(getattr(self, f))) for f in FIELDS)
        most = " (at most, a run)" if np.ndim(self.messages) else ""
        return f"{messages:,} messages, {floats:,} floats, {size:,} bytes in {rounds:,} rounds{most}"

    def of_run(self, r: int) -> Traffic:
        """The traffic of run r."""
        return Traffic(*(int(getattr(self, f)[r]) for f in FIELDS))

    def per_run(self, lead: tuple[int, ...]) -> Traffic:
        """Split the traffic of equal runs that shared one channel; `lead` is the shape of the run axes."""
        runs = int(np.prod(lead, dtype=np.int64))
        shares = (self.messages // runs, self.floats // runs, self.bytes // runs, self.rounds)
        return Traffic(*(np.full(lead, share) for share in shares)) if lead else self


class WeightRule(Enum):
    """What happens to Push-Sum's weights ω at the start of a call."""

    RESET = "reset"  # ω = 1, as in Algorithm 1
    CARRY = "carry"  # ω as the previous call left it
    NONE = "none"  # no weights travel: the mixing matrices must be doubly stochastic, P 1 = 1


# Methods of channels that compute with arrays, on the device of those that they are called with.
ON_DEVICE = {"mix", "average", "interval_mean", "continue_weights", "max_over_clients", "mean_over_clients"}


def _enter_devices(kind: type) -> None:
    for name in ON_DEVICE & vars(kind).keys():
        setattr(kind, name, computes_on_device(vars(kind)[name]))


class Channel(ABC):
    """A channel between n clients, at a position in a sequence of graphs.

    A subclass implements `mix` and `max_consensus`, calls `count` for every step, and updates `step` and `weights`.
    It may override the other members to be faster, not different.

    n          number of clients
    clients    the clients whose rows this process holds, as a slice; all by default
    step       graphs used so far
    weights    ω after the last call, (..., n, 1), in the library and dtype of z; None before the first call
    traffic    what was sent since the channel was opened

    Examples
    --------
    >>> channel = hgp.mixing.connect(hgp.networks.RandomDirected(n=3, seed=0))
    >>> isinstance(channel, hgp.mixing.Channel), channel.step
    (True, 0)
    """

    def __init_subclass__(cls, enters: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        if enters:
            _enter_devices(cls)

    def __init__(self, n: int, clients: slice | None = None) -> None:
        self.n = n
        self.clients = slice(0, n) if clients is None else clients
        self._sent = Traffic()

    step: int = 0
    last_step: int | None = None  # graphs after this one are not expected to be used; a channel need not prepare them
    weights: Array = None
    conserves_mass = True  # Σ_i (P z)_i = Σ_i z_i: everything that is sent in a call arrives in it
    drops_mass = False  # some of it never arrives
    in_flight = False  # something that was sent may still arrive in the next call
    together = False  # one message carries all leading axes of z; otherwise they are separate runs

    @property
    def traffic(self) -> Traffic:
        return self._sent

    @property
    def omega(self) -> np.ndarray:
        """The mixing weights ω after the last call, (..., n), as float64 on the host; ones before the first call."""
        return np.ones(self.n) if self.weights is None else host_float64(self.weights)[..., 0]

    @abstractmethod
    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        """The sums P z over the next `steps` graphs, z (..., n, d); `weights` becomes P ω."""

    @abstractmethod
    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """The maxima of the columns of host `values` (n, k) over all clients, exact; sent in the dtype of `like`."""

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        """P z, divided by ω unless the rule is NONE: each client's estimate of the mean of the rows of z."""
        mixed = self.mix(z, steps, weight_rule)
        return mixed if weight_rule is WeightRule.NONE else mixed / self.weights

    def interval_mean(
        self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """(low, high), like z: the mean of the rows of z lies in the hull of the clients' boxes [low_i, high_i].

        If sums are conserved, the mean is a convex combination Σ_i (ω_i / n) y_i of the averages y; low and high are y.
        """
        y = self.average(z, steps, weight_rule)
        return y, y

    def matrices(self, steps: int, calls: int = 1) -> tuple[np.ndarray, np.ndarray] | None:
        """P of the next calls of `steps` graphs each, (calls, n, n) on the host, and how many messages each sends.

        None if P is not available. Does not advance the channel.
        """
        return None

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        """Whether multiplying the graphs of a call first is cheaper; False unless `matrices` is available."""
        return False

    def drop_in_flight(self) -> None:
        """Drop messages that have not arrived yet, because other vectors follow. Weights stay."""
        return None

    def continue_weights(self, weights: Array) -> None:
        """Take the weights ω of an earlier run, (..., n, 1), as those before the next call."""
        self.weights = weights

    def use_running_sums(self) -> None:
        """Send running sums instead of single messages from now on; no effect on reliable links."""
        return None

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        """Skip `graphs` graphs as if calls had used them: moves the position, and the weights if they carry over."""
        if weight_rule != WeightRule.CARRY:
            self.step += graphs
        elif graphs:
            before = self.traffic
            self.mix(like[..., :0], graphs, weight_rule)
            self._sent = before

    def count(self, messages: int, z: Array, weight_rule: WeightRule, rounds: int = 1) -> None:
        """Add `messages` messages, each a row of z, to the traffic; once for each entry of the run axes.

        If leading axes travel `together`, a message carries the rows of all of them and one weight.
        """
        runs, columns = message_size(z, self.together)
        floats = columns + (weight_rule is not WeightRule.NONE)
        self._sent += Traffic.of(messages * runs, floats, host_dtype(z).itemsize, rounds)

    def check_client_ids(self, client_ids: np.ndarray) -> None:
        """Raise ValueError unless `client_ids` are the clients of this process. A no-op in a single process."""
        return None

    def check_same_on_all_ranks(self, what: str, **settings: object) -> None:
        """Check that all ranks were called with the same settings. A no-op in a single process."""
        return None

    # Reductions for reports and stopping rules. They are not part of what clients send, and not counted.

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank, so that a run stops on all ranks or on none."""
        return flag

    def max_over_clients(self, a: Array) -> np.ndarray:
        """max_i a_i over all clients, a (..., n); float64 on the host."""
        return host_float64(array_namespace(a).max(a, axis=-1))

    def mean_over_clients(self, a: Array) -> Array:
        """The mean over all clients of the rows of a (..., n, d), as one row (..., 1, d).

        NumPy's order of summation follows the memory layout, so the layout is made the same on all ranks.
        """
        a = np.ascontiguousarray(a) if is_numpy(a) else a
        return array_namespace(a).mean(a, axis=-2, keepdims=True)


_enter_devices(Channel)


def message_size(z: Array, together: bool) -> tuple[int, int]:
    """Messages that one row of z (..., n, d) takes, and the numbers in each, without a weight."""
    leading = math.prod(z.shape[:-2])
    return (1, leading * z.shape[-1]) if together else (leading, z.shape[-1])


@singledispatch
def connect(net: Network, mode: str = "auto") -> Channel:
    """A channel over the graphs of `net`, starting with the first.

    `mode` is "composed" (multiply the graphs of a call first), "stepping", or "auto" for the cheaper one. Register a
    channel for a new kind of network with `connect.register(kind)`.

    Examples
    --------
    >>> hgp.mixing.connect(hgp.networks.RandomDirected(n=3, seed=0)).n
    3
    """
    raise TypeError(f"net must be a network of hgp_ref.networks, got {class_name(net)}")


def messages_of(net: Network, indptr: np.ndarray, neighbours: np.ndarray) -> int:
    """The edges of a graph that are not self-loops; `neighbours` are the receivers by sender, or vice versa."""
    if net.self_loops:  # one per client
        return neighbours.size - net.n
    clients = np.repeat(np.arange(net.n), np.diff(indptr))
    return int(np.count_nonzero(clients != neighbours))


# Max-consensus


def max_consensus(
    net: Network | None, values: np.ndarray, first_step: int, max_rounds: int | None = None
) -> tuple[np.ndarray, int, int]:
    """(maxima (k,), rounds, messages) of the columns of `values` (n, k), over graphs first_step, first_step + 1, …

    `net=None` is a complete graph. Raises ValueError if the maxima do not reach all clients within `max_rounds`
    (default: the larger of 1000 and 2n), or if a whole period of a periodic network makes no progress.
    """
    n = len(values) if net is None else net.n
    if net is None or n == 1:
        return values.max(axis=0), min(1, n - 1), n * (n - 1)
    limit = max(1000, 2 * n) if max_rounds is None else max_rounds
    messages, rounds_without_progress = 0, 0
    in_flight: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # (receivers, values) by step of arrival
    held = np.ascontiguousarray(values, dtype=np.float64)
    top = held.max(axis=0)
    for rounds in range(limit + 1):
        behind = np.any(held != top, axis=1)
        if not behind.any():
            return top, rounds, messages
        if net.period is not None and rounds_without_progress >= net.period:
            break
        before = held
        if isinstance(net, Unreliable) and not net.is_reliable:
            held, sent = _unreliable_maxima(net, first_step + rounds, held, in_flight)
        else:
            indptr, senders, _ = net.csr(first_step + rounds)
            held, sent = row_maxima(indptr, senders, held), messages_of(net, indptr, senders)
        messages += sent
        rounds_without_progress = rounds_without_progress + 1 if np.array_equal(before, held) else 0
    missing = np.flatnonzero(behind)
    raise ValueError(
        f"max-consensus does not reach {len(missing)} of {n} clients (the first: {net._names_of(missing)}) within "
        f"{rounds} rounds from step {first_step}: the graphs are not jointly strongly connected there, or max_rounds "
        "is too small"
    )


def _unreliable_maxima(
    net: Unreliable, s: int, held: np.ndarray, in_flight: dict[int, list[tuple[np.ndarray, np.ndarray]]]
) -> tuple[np.ndarray, int]:
    """The values after graph s and its messages, over links that lose and delay; `in_flight` is updated."""
    indptr, senders, _, delays = net.links(s)
    receivers = np.repeat(np.arange(net.n), np.diff(indptr))
    for delay in np.unique(delays[delays >= 0]).tolist():
        edges = delays == delay
        in_flight.setdefault(s + delay, []).append((receivers[edges], held[senders[edges]]))
    held = held.copy()
    for to, values in in_flight.pop(s, []):
        np.maximum.at(held, to, values)
    return held, messages_of(net, indptr, senders)


@njit(cache=True, nogil=True)
def row_maxima(indptr, senders, held):
    """The largest of what each client holds and receives, (n, k)."""
    out = held.copy()
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = senders[e]
            for c in range(held.shape[1]):
                if held[j, c] > out[i, c]:
                    out[i, c] = held[j, c]
    return out


# Exact means: a complete graph, and a server


STACKED_CLIENTS = 1024  # up to which the (n, n) matrix of the mean is stacked with those of other runs


class AllToAll(Channel):
    """Every client sends to every other: n(n − 1) messages per step, and one step is the exact mean. No weights.

    Examples
    --------
    >>> isinstance(hgp.ExactAverage(3).connect(), hgp.mixing.AllToAll)
    True
    """

    @property
    def messages_per_step(self) -> int:
        return self.n * (self.n - 1)

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.NONE) -> Array:
        xp = array_namespace(z)
        self.step += steps
        self.count(steps * self.messages_per_step, z, WeightRule.NONE, steps)
        return xp.broadcast_to(self.mean_over_clients(z), z.shape) + xp.zeros_like(z)

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        top, rounds, _ = max_consensus(None, values, self.step + 1)
        self.step += rounds
        self._sent += Traffic.of(rounds * self.messages_per_step, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def matrices(self, steps: int, calls: int = 1) -> tuple[np.ndarray, np.ndarray]:
        return np.full((calls, self.n, self.n), 1.0 / self.n), np.full(calls, steps * self.messages_per_step)

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.NONE) -> bool:
        return self.n <= STACKED_CLIENTS


class ParameterServer(AllToAll):
    """The exact mean through a server: n messages to it and n back, in one round.

    Examples
    --------
    >>> isinstance(hgp.mixing.ServerAverage(3).connect(), hgp.mixing.ParameterServer)
    True
    """

    @property
    def messages_per_step(self) -> int:
        return 2 * self.n
