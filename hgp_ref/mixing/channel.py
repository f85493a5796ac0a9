"""What a run sends: messages, floats, bytes and rounds."""

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
from hgp_ref.backend import Array, array_namespace, host_dtype, host_float64, is_numpy
from hgp_ref.networks import Network, Unreliable
from hgp_ref.results import Result

FIELDS = ("messages", "floats", "bytes", "rounds")


@dataclass(frozen=True)
class Traffic(Result):
    """Communication of a run, summed over clients.

    A message is one vector, with its Push-Sum weight where there is one, over one edge that is not a self-loop.
    A round is one step of the network, in which all clients send at once. With a run axis every field is an array.

    Parameters
    ----------
    messages : messages between clients.
    floats : numbers in them.
    bytes : bytes in them.
    rounds : steps of the network.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(3)
    >>> est = hgp.hypergradient(hgp.problems.Quadratic.random(3, 4, 2), np.zeros((3, 4)), np.zeros((3, 2)),
    ...     hgp.PushSum(net, steps=1), iterations=10)
    >>> est.traffic.rounds, est.traffic.messages, est.traffic.floats
    (10, 60, 300)
    """

    messages: Any = 0
    floats: Any = 0
    bytes: Any = 0
    rounds: Any = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f) + getattr(other, f) for f in FIELDS))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f) - getattr(other, f) for f in FIELDS))

    @staticmethod
    def of(messages: int, floats_per_message: int, itemsize: int, rounds: int) -> Traffic:
        """Traffic of `messages` messages of `floats_per_message` numbers of `itemsize` bytes in `rounds` rounds.

        Parameters
        ----------
        messages : between clients.
        floats_per_message : numbers in each.
        itemsize : bytes of a number.
        rounds : steps of the network.

        Returns
        -------
        Traffic.
        """
        floats = int(messages) * floats_per_message
        return Traffic(int(messages), floats, floats * itemsize, int(rounds))

    @staticmethod
    def side_by_side(runs: Sequence[Traffic]) -> Traffic:
        """The traffic of several runs along a run axis.

        Parameters
        ----------
        runs : the traffic of each.

        Returns
        -------
        Traffic whose fields are arrays (runs,).
        """
        return Traffic(*(np.array([getattr(run, f) for run in runs]) for f in FIELDS))

    def in_words(self) -> str:
        """One line for a summary; of several runs, the largest of each number.

        Returns
        -------
        str, such as "60 messages, 300 floats, 2,400 bytes in 10 rounds".
        """
        messages, floats, size, rounds = (int(np.max(getattr(self, f))) for f in FIELDS)
        most = " (at most, a run)" if np.ndim(self.messages) else ""
        return f"{messages:,} messages, {floats:,} floats, {size:,} bytes in {rounds:,} rounds{most}"

    def of_run(self, r: int) -> Traffic:
        """The traffic of run r.

        Parameters
        ----------
        r : its number.

        Returns
        -------
        Traffic of plain numbers.
        """
        return Traffic(*(int(getattr(self, f)[r]) for f in FIELDS))

    def per_run(self, lead: tuple[int, ...]) -> Traffic:
        """The traffic of each of the runs `lead`, alike, that went over one channel together.

        Parameters
        ----------
        lead : shape of the run axes.

        Returns
        -------
        Traffic whose fields are arrays of that shape.
        """
        runs = int(np.prod(lead, dtype=np.int64))
        shares = (self.messages // runs, self.floats // runs, self.bytes // runs, self.rounds)
        return Traffic(*(np.full(lead, share) for share in shares)) if lead else self


# ----------------------------------------------------------------------------------------------------
# A channel: the only way in which one client's numbers reach another.
#
# n clients talk over the graphs of a network, one after the other. A channel keeps the clock (which graph is next),
# mixes what clients hold along these graphs, and counts what it carries. With W_s the mixing matrix of graph s, a call
# of S steps after t graphs takes
#
#     z ← P z,    ω ← P ω,    P = W_{t+S} ... W_{t+1},    and, where the sums are divided by the weights,    z_i / ω_i.
#
# What is built on it (averagings, methods, training, certificates) does not know whether all clients live in this
# process, whether graphs are composed before they meet z, or whether links lose messages.


class WeightRule(Enum):
    """What happens to Push-Sum's weights ω at the start of a call."""

    RESET = "reset"  # ω = 1, as in Algorithm 1
    CARRY = "carry"  # ω as the previous call left it
    NONE = "none"  # no weights travel: the mixing matrices must be doubly stochastic, P 1 = 1


class Channel(ABC):
    """n clients, of whom `clients` live in this process, over successive graphs.

    A subclass provides `mix` and `largest`; it calls `count` for every step it carries and keeps `step` and `weights`
    up to date. The rest follows from these and may be overridden by something faster, not different.

    n          clients in all
    clients    which of them are the rows of the arrays here
    step       graphs used so far
    weights    ω after the last call, (..., n, 1), in the library and dtype of z
    traffic    what was carried since the channel was opened

    Parameters
    ----------
    n : int
        Clients.
    clients : slice, optional
        Those whose rows are here; all by default.

    Examples
    --------
    >>> channel = hgp.mixing.connect(hgp.networks.RandomDirected(n=3, seed=0))
    >>> isinstance(channel, hgp.mixing.Channel), channel.step
    (True, 0)
    """

    def __init__(self, n: int, clients: slice | None = None) -> None:
        self.n = n
        self.clients = slice(0, n) if clients is None else clients
        self.step = 0
        self._sent = Traffic()

    weights: Array = None  # before any call
    conserves_mass = True  # whether Σ_i (P z)_i = Σ_i z_i: all that is sent in a call is received in it
    drops_mass = False  # whether some of it is never received, in no later call either
    in_flight = False  # whether something that was sent may still arrive in the next call

    @property
    def traffic(self) -> Traffic:
        return self._sent

    @property
    def omega(self) -> np.ndarray:
        """ω after the last call on the host, (..., n), in float64; 1 before any."""
        return np.ones(self.n) if self.weights is None else host_float64(self.weights)[..., 0]

    @abstractmethod
    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        """The sums P z over the next `steps` graphs, z (..., n, d); `self.weights` becomes P ω (see WeightRule).

        Parameters
        ----------
        z : (..., n, d), or the rows of this process's clients.
        steps : graphs of the call.
        weight_rule : RESET, CARRY or NONE.

        Returns
        -------
        array like z.
        """

    @abstractmethod
    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """Maxima over all clients of the columns of host `values` (n, k), exact, by flooding; sent as dtype of like.

        Parameters
        ----------
        values : (n, k) on the host.
        like : an array in whose dtype they travel.
        max_rounds : after how many steps to give up.

        Returns
        -------
        (k,) on the host, the same for everybody.
        """

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        """P z, divided by ω where weights travel: client i's estimate of the mean of the rows of z.

        Parameters
        ----------
        z : (..., n, d).
        steps : graphs of the call.
        weight_rule : RESET, CARRY or NONE.

        Returns
        -------
        array like z.
        """
        mixed = self.mix(z, steps, weight_rule)
        return mixed if weight_rule is WeightRule.NONE else mixed / self.weights

    def interval_mean(
        self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET, max_rounds: int | None = None
    ) -> tuple[Array, Array]:
        """(low, high) like z: the mean of the rows of z lies in the hull of the clients' boxes [low_i, high_i].

        Where sums are kept it is the convex combination Σ_i (ω_i / n) y_i of the averages y, and both are y.
        """
        y = self.average(z, steps, weight_rule)
        return y, y

    def foresee(self, steps: Sequence[int]) -> None:
        """A hint: the numbers of steps of the calls to come, so that their graphs may be prepared together."""
        return None

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | None:
        """P of the next calls, (calls, n, n) on the host, and how many messages each carries; None if it cannot tell.

        Looks ahead only: the clock stays.
        """
        return None

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        """Whether z is better met by one matrix a call; only where `matrices` can tell."""
        return False

    def drop_in_flight(self) -> None:
        """Other vectors come next: what is still under way of those before is dropped; clients' weights stay."""
        return None

    def use_running_sums(self) -> None:
        """From now on messages carry totals of what was sent along an edge; where nothing is lost, nothing changes."""
        return None

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        """Let `graphs` graphs pass as if their calls had been made: the clock, and weights that are carried."""
        if weight_rule != WeightRule.CARRY:
            self.step += graphs
        elif graphs:
            before = self.traffic
            self.mix(like[..., :0], graphs, weight_rule)
            self._sent = before

    def count(self, messages: int, z: Array, weight_rule: WeightRule, rounds: int = 1) -> None:
        """Add `messages` messages of rows of z to the traffic, once for each entry of its run axes.

        Parameters
        ----------
        messages : how many.
        z : rows of which they carry.
        weight_rule : whether a weight goes with each.
        rounds : steps that this took.
        """
        runs = math.prod(z.shape[:-2])
        floats = z.shape[-1] + (weight_rule is not WeightRule.NONE)
        self._sent += Traffic.of(messages * runs, floats, host_dtype(z).itemsize, rounds)

    def check_client_ids(self, numbers: np.ndarray) -> None:
        """A problem whose clients have these `numbers` is to be solved here; ValueError if they are not the clients."""
        return None

    def check_same_on_all_ranks(self, what: str, **settings: object) -> None:
        """Everybody must have been told the same: a channel between processes compares, before anything is sent."""
        return None

    # What someone who sees all clients reads off, for reports and to stop runs; not part of what clients send.

    def any_rank(self, flag: bool) -> bool:
        """Whether some process says so: a run stops everywhere or nowhere.

        Parameters
        ----------
        flag : of this process.

        Returns
        -------
        bool, the same in every process.
        """
        return flag

    def max_over_clients(self, a: Array) -> np.ndarray:
        """max_i a_i over all clients, a (..., n); on the host, float64.

        Parameters
        ----------
        a : (..., n).

        Returns
        -------
        (...,) on the host.
        """
        return host_float64(array_namespace(a).max(a, axis=-1))

    def mean_over_clients(self, a: Array) -> Array:
        """The mean over all clients of the rows of a (..., n, d), as one row (..., 1, d).

        On NumPy the order of its sums follows the memory, so that is made the same for whoever holds the rows.

        Parameters
        ----------
        a : (..., n, d).

        Returns
        -------
        (..., 1, d).
        """
        a = np.ascontiguousarray(a) if is_numpy(a) else a
        return array_namespace(a).mean(a, axis=-2, keepdims=True)


@singledispatch
def connect(net: Network, mode: str = "auto") -> Channel:
    """A channel over the graphs of `net`, from the first on.

    Kinds of networks that need another channel than the simulation register theirs: `connect.register(kind)`. `mode`
    is "auto", "composed" or "stepping"; a channel that cannot compose refuses "composed".

    Parameters
    ----------
    net : Network
        Who hears whom.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

    Returns
    -------
    Channel
        At its first graph.

    Raises
    ------
    TypeError
        `net` is no network.

    Examples
    --------
    >>> hgp.mixing.connect(hgp.networks.RandomDirected(n=3, seed=0)).n
    3
    """
    raise TypeError(f"net: needed a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")


# ----------------------------------------------------------------------------------------------------
# How many messages a graph carries: its edges that are not self-loops.


def messages_of(net: Network, indptr: np.ndarray, others: np.ndarray) -> int:
    """The messages of a graph of `net`, from its lists by sender or by receiver."""
    if net.self_loops:  # everybody has one
        return others.size - net.n
    own = np.repeat(np.arange(net.n), np.diff(indptr))
    return int(np.count_nonzero(own != others))


# ----------------------------------------------------------------------------------------------------
# Maxima over all clients by flooding: exact, over the same directed graphs, without any weights.
#
# In every round each client replaces its numbers by the largest among its own and those it hears. After R rounds
# client i holds the maximum over everybody who can reach it along the graphs of these rounds in order; when that
# is everybody for all i, each holds the maximum itself. Minima are maxima of negatives.
#
# How many rounds that takes is found on the realised graphs: flooding goes on until every client holds the global
# maximum. Clients cannot see that moment themselves; a deployment fixes any number of rounds that is at least as
# large. Over links that lose and delay it is the same: a number that was lost is sent again in the next round, one that
# is late is still some client's, so that the maximum is exact once it has reached everybody, after more rounds.


class MaxConsensus:
    """What flooding asks of its surroundings: here all clients are in one process."""

    def __init__(self, net: Network) -> None:
        self.net = net

    def top(self, values: np.ndarray) -> np.ndarray:
        """The maxima of the columns over all clients, (k,)."""
        return values.max(axis=0)

    def hear(self, s: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        """What clients hold after graph s, and its messages."""
        indptr, senders, _ = self.net.csr(s)
        return hear(indptr, senders, held), messages_of(self.net, indptr, senders)

    def any_rank(self, flag: bool) -> bool:
        """Whether some process says so."""
        return flag

    def everybody(self, flags: np.ndarray) -> np.ndarray:
        """The flags of all clients, (n,), from those of the clients here."""
        return flags


class UnreliableMaxConsensus(MaxConsensus):
    """The same where messages are lost or late."""

    net: Unreliable

    def __init__(self, net: Unreliable) -> None:
        super().__init__(net)
        self.in_flight: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # by the step at which it arrives

    def hear(self, s: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        indptr, senders, _, late = self.net.links(s)
        receivers = np.repeat(np.arange(self.net.n), np.diff(indptr))
        for q in np.unique(late[late >= 0]).tolist():
            which = late == q
            self.in_flight.setdefault(s + q, []).append((receivers[which], held[senders[which]]))
        heard = held.copy()
        for to, values in self.in_flight.pop(s, []):
            np.maximum.at(heard, to, values)
        return heard, messages_of(self.net, indptr, senders)


def max_consensus(
    net: Network | None,
    values: np.ndarray,
    first_step: int,
    max_rounds: int | None = None,
    around: MaxConsensus | None = None,
) -> tuple[np.ndarray, int, int]:
    """(maxima (k,), rounds, messages) of the rows of `values` (n, k), over graphs first_step, first_step + 1, …

    `net` None stands for everybody hearing everybody. ValueError if the maxima do not reach all clients within
    `max_rounds` (default: the larger of 1000 and 2n), or in a whole period of a periodic network without any progress.
    """
    n = len(values) if net is None else net.n
    if net is None or n == 1:
        return values.max(axis=0), min(1, n - 1), n * (n - 1)
    if around is None:
        around = UnreliableMaxConsensus(net) if isinstance(net, Unreliable) and not net.in_time else MaxConsensus(net)
    limit = max(1000, 2 * n) if max_rounds is None else max_rounds
    messages, stalled = 0, 0
    held = np.ascontiguousarray(values, dtype=np.float64)
    top = around.top(held)
    for rounds in range(limit + 1):
        behind = np.any(held != top, axis=1)
        if not around.any_rank(bool(behind.any())):
            return top, rounds, messages
        if net.period is not None and stalled >= net.period:
            break
        heard, carried = around.hear(first_step + rounds, held)
        messages += carried
        stalled = 0 if around.any_rank(not np.array_equal(heard, held)) else stalled + 1
        held = heard
    missing = np.flatnonzero(around.everybody(behind))
    raise ValueError(
        f"max-consensus does not reach {len(missing)} of {n} clients (the first: {missing[:5].tolist()}) within "
        f"{rounds} rounds from step {first_step}: the graphs are not jointly strongly connected there, or max_rounds "
        "is too small"
    )


@njit(cache=True, nogil=True)
def hear(indptr, senders, held):
    """Row by row the largest of what a client holds and what it hears, (n, k)."""
    out = held.copy()
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = senders[e]
            for c in range(held.shape[1]):
                if held[j, c] > out[i, c]:
                    out[i, c] = held[j, c]
    return out


# ----------------------------------------------------------------------------------------------------
# Everybody hears everybody: one step is the exact mean.


FEW = 1024  # clients whose matrix of means is worth stacking with others


class AllToAll(Channel):
    """n(n-1) messages of one vector each in every step; no weights are needed, and one step does what many do.

    Parameters
    ----------
    n : int
        Clients.
    clients : slice, optional
        Those whose rows are here; all by default.

    Examples
    --------
    >>> isinstance(hgp.ExactAverage(3).connect(), hgp.mixing.AllToAll)
    True
    """

    @property
    def messages_a_step(self) -> int:
        return self.n * (self.n - 1)

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.NONE) -> Array:
        xp = array_namespace(z)
        self.step += steps
        self.count(steps * self.messages_a_step, z, WeightRule.NONE, steps)
        return xp.broadcast_to(self.mean_over_clients(z), z.shape) + xp.zeros_like(z)

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        top, rounds, _ = max_consensus(None, values, self.step + 1)
        self.step += rounds
        self._sent += Traffic.of(rounds * self.messages_a_step, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        P = np.full((len(steps), self.n, self.n), 1.0 / self.n)
        return P, np.array(steps, dtype=np.int64) * self.messages_a_step

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.NONE) -> bool:
        return self.n <= FEW


# ----------------------------------------------------------------------------------------------------
# A server in the middle: everybody sends it a vector and gets the mean back.


class ParameterServer(AllToAll):
    """The exact mean in one round: n messages to the server and n back, where everybody to everybody takes n(n-1).

    Parameters
    ----------
    n : int
        Clients.
    clients : slice, optional
        Those whose rows are here; all by default.

    Examples
    --------
    >>> isinstance(hgp.mixing.ServerAverage(3).connect(), hgp.mixing.ParameterServer)
    True
    """

    @property
    def messages_a_step(self) -> int:
        return 2 * self.n
