"""Successive calls of a simulated channel, prepared together for arrays of one kind."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels.graphs import Csr
from hgp_ref._kernels.mixing import (
    DENSE_SPEEDUP,
    compose,
    count_messages,
    empty_like,
    padded_rows,
    pull_step,
    pull_vector_step,
    push_step,
    push_vector_step,
)
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, is_numpy
from hgp_ref.mixing.channel import Channel, Traffic, WeightRule, connect, max_consensus, messages_of
from hgp_ref.networks import Network
from hgp_ref.networks.base import Edges

Steps = int | tuple[int, ...]  # of one channel, or of each of several along a run axis
Rules = WeightRule | tuple[WeightRule, ...]


class PreparedCalls(ABC):
    """Calls of `steps` graphs each, in order; `used` of them were made.

    With several channels along a run axis, the entries of `steps` and `weight_rule` are tuples.
    """

    messages: Sequence[int] | np.ndarray  # of each call made, (calls,) or (calls, runs)

    def __init__(self, steps: Sequence[Steps], weight_rule: Rules, like: Array, divide: bool) -> None:
        self.steps, self.weight_rule, self.divide = steps, weight_rule, divide
        self.like, self.shape, self.dtype = like, like.shape, like.dtype
        self.used = 0

    def serves(self, z: Array, steps: Steps, weight_rule: Rules, divide: bool) -> bool:
        """Whether the next call is the one that is asked for."""
        if self.used == len(self.steps) or divide is not self.divide or z.shape != self.shape or z.dtype != self.dtype:
            return False
        foreseen = self.steps[self.used]
        return (foreseen is steps or foreseen == steps) and (
            weight_rule is self.weight_rule or weight_rule == self.weight_rule
        )

    @abstractmethod
    def __call__(self, z: Array) -> Array:
        """Make the next call."""

    @abstractmethod
    def weights_now(self) -> Array:
        """ω after the last call made, (..., n, 1) beside z."""

    @property
    @abstractmethod
    def omega(self) -> np.ndarray:
        """The same on the host, in float64, (..., n)."""

    def traffic(self) -> Traffic:
        """What the calls made so far have carried; with a run axis, fields are arrays."""
        if isinstance(self.weight_rule, tuple):
            messages = np.asarray(self.messages)[: self.used].reshape(self.used, len(self.weight_rule)).sum(axis=0)
            rounds = (
                np.array(self.steps[: self.used], dtype=np.int64).reshape(self.used, len(self.weight_rule)).sum(axis=0)
            )
            runs = zip(messages, self.weight_rule, rounds, strict=True)
            return Traffic.side_by_side([self._traffic(int(m), rule, int(s), 1) for m, rule, s in runs])
        sent = int(sum(self.messages[: self.used]))
        rounds = int(np.sum(self.steps[: self.used]))
        return self._traffic(sent, self.weight_rule, rounds, math.prod(self.shape[:-2]))

    def _traffic(self, messages: int, weight_rule: WeightRule, rounds: int, runs: int) -> Traffic:
        floats = self.shape[-1] + (weight_rule is not WeightRule.NONE)
        return Traffic.of(messages * runs, floats, host_dtype(self.like).itemsize, rounds)


class ForeseenCalls(PreparedCalls):
    """Calls whose weights are known beforehand: `after` (calls, ..., n) is ω after each of them."""

    after: np.ndarray
    _beside: Array | None = None  # the same beside z, from the first question on

    def weights_now(self) -> Array:
        if self._beside is None:
            self._beside = from_host(self.after.astype(host_dtype(self.like))[..., None], like=self.like)
        return self._beside[self.used - 1, ...]

    @property
    def omega(self) -> np.ndarray:
        return self.after[self.used - 1]


def check_balanced(omega: np.ndarray, steps: int, name: str) -> None:
    """ValueError unless ω = P 1 is 1 up to rounding, as it is where all matrices of P are doubly stochastic."""
    off = float(np.abs(omega - 1.0).max(initial=0.0))
    if off > balance_tolerance(omega.shape[-1], steps):
        raise ValueError(
            f"net: Gossip needs doubly-stochastic matrices, but a row of a product of {steps} matrices of {name} "
            f"misses 1 by {off:.2g}; use PushSum"
        )


def balance_tolerance(n: int, steps: int) -> float:
    """How far rows of a product of doubly-stochastic matrices may be from 1: n + 2 roundings for each factor."""
    return 4 * (n + 2) * steps * float(np.finfo(np.float64).eps)


def check_heard(omega: np.ndarray, name: str) -> None:
    """ValueError if some client's weight is 0: it has heard nobody, itself included, and has nothing to divide."""
    if not omega.all():
        client = int(np.argwhere(omega == 0)[0][-1])
        raise ValueError(
            f"net: client {client} hears nobody over all graphs of a call of {name}, so that its weight is 0: "
            "needed self-loops, or more steps a call"
        )


def weights_before(weight_rule: WeightRule, omega: np.ndarray) -> np.ndarray:
    """ω before a call: as it was left where it is carried, 1 otherwise."""
    return np.ones_like(omega) if weight_rule is WeightRule.NONE or weight_rule == WeightRule.RESET else omega


# ----------------------------------------------------------------------------------------------------
# Calls that step through sparse graphs one by one: nothing larger than z is kept.
#
# On NumPy arrays graphs are drawn as they are needed. On other libraries those of many calls are drawn together, padded
# to rows of equal width and taken to the device in one transfer each for senders, shares and weights; a step is then
# take and add only.


class SteppingCalls(PreparedCalls):
    """Calls over the graphs of `net`, the first from graph step + 1 on; omega (n,) are the weights before it."""

    steps: Sequence[int]
    weight_rule: WeightRule

    def __init__(
        self,
        net: Network,
        step: int,
        omega: np.ndarray,
        steps: Sequence[int],
        weight_rule: WeightRule,
        like: Array,
        divide: bool,
    ) -> None:
        super().__init__(steps, weight_rule, like, divide)
        self.net, self._step, self._omega = net, step, omega
        self.messages: list[int] = []


class HostCalls(SteppingCalls):
    """Calls on NumPy arrays."""

    def __call__(self, z: np.ndarray) -> np.ndarray:
        S = self.steps[self.used]
        omega = weights_before(self.weight_rule, self._omega)
        folded = np.moveaxis(z, -2, 0)  # (n, ..., d): leading axes join the columns
        held = np.ascontiguousarray(folded).reshape(self.net.n, -1)
        free: np.ndarray | None = None  # what the step before the last has left
        sent = 0
        for s in range(self._step + 1, self._step + S + 1):
            out = empty_like(held) if free is None else free
            messages, omega = mix(self.net, s, held, out, omega)
            held, free = out, None if np.may_share_memory(held, z) else held
            sent += messages
        if self.weight_rule is WeightRule.NONE:
            check_balanced(omega, S, repr(self.net))
        elif self.divide:
            check_heard(omega, repr(self.net))
            held /= omega.astype(held.dtype)[:, None]
        self._omega = omega
        self._step += S
        self.used += 1
        self.messages.append(sent)
        return np.moveaxis(held.reshape(folded.shape), 0, -2)

    def weights_now(self) -> np.ndarray:
        return self._omega.astype(self.like.dtype)[:, None]

    @property
    def omega(self) -> np.ndarray:
        return self._omega


class DeviceCalls(ForeseenCalls, SteppingCalls):
    """Calls of equally many steps on any library; their graphs go to the device of `like` together."""

    def take_over(self) -> DeviceCalls:
        """Draw the graphs of all calls and send them."""
        net, like, S = self.net, self.like, self.steps[0]
        first = [self._step + c * S + 1 for c in range(len(self.steps))]
        graphs = [[net.csr(s) for s in range(begin, begin + S)] for begin in first]
        self.messages = [sum(messages_of(net, *graph[:2]) for graph in call) for call in graphs]
        self.width = max(int(np.diff(graph[0]).max()) for call in graphs for graph in call)
        rows = [[padded_rows(*graph, self.width) for graph in call] for call in graphs]
        self._senders = from_host(np.stack([[r[0] for r in call] for call in rows]), like=like)  # (calls, S, n, width)
        shares = np.stack([[r[1] for r in call] for call in rows]).astype(host_dtype(like))
        self._shares = from_host(shares, like=like)
        self.after = self._following(graphs, self._omega, repr(net))  # (calls, n)
        return self

    def _following(self, graphs: list[list[Csr]], omega: np.ndarray, name: str) -> np.ndarray:
        after = []
        for call in graphs:
            omega = weights_before(self.weight_rule, omega)
            for graph in call:
                omega = pull_vector_step(*graph, omega)
            if self.weight_rule is WeightRule.NONE:
                check_balanced(omega, len(call), name)
            check_heard(omega, name)
            after.append(omega)
        return np.stack(after)

    def __call__(self, z: Array) -> Array:
        xp = array_namespace(z)
        for s in range(self._senders.shape[1]):
            total = xp.zeros_like(z)
            for k in range(self.width):
                share = self._shares[self.used, s, :, k][:, None]
                total = total + share * xp.take(z, self._senders[self.used, s, :, k], axis=-2)
            z = total
        self.used += 1
        return z / self.weights_now() if self.divide and self.weight_rule is not WeightRule.NONE else z


def mix(net: Network, s: int, z: np.ndarray, out: np.ndarray, omega: np.ndarray) -> tuple[int, np.ndarray]:
    """out = W_s z; the number of messages, and W_s ω."""
    return mix_along(net, drawn(net, s), z, out, omega)


def drawn(net: Network, s: int) -> Edges | Csr:
    """Graph s as a step takes it: lists of receivers where every sender splits equally, else rows with weights."""
    return net.out_lists(s) if net.equal_shares else net.csr(s)


def mix_along(
    net: Network, graph: Edges | Csr, z: np.ndarray, out: np.ndarray, omega: np.ndarray
) -> tuple[int, np.ndarray]:
    """The same for a graph of `net` that was `drawn`."""
    if len(graph) == 2:
        push_step(*graph, z, out)
        return messages_of(net, *graph), push_vector_step(*graph, omega)
    pull_step(*graph, z, out)
    return messages_of(net, *graph[:2]), pull_vector_step(*graph, omega)


def step_weights(net: Network, step: int, steps: int, omega: np.ndarray) -> np.ndarray:
    """W_{step+S} ... W_{step+1} ω, (n,)."""
    for s in range(step + 1, step + steps + 1):
        omega = push_vector_step(*net.out_lists(s), omega) if net.equal_shares else pull_vector_step(*net.csr(s), omega)
    return omega


# ----------------------------------------------------------------------------------------------------
# Calls whose graphs are multiplied first: z meets one (n, n) matrix a call, whatever the number of steps.
#
# The products of many calls are prepared on the host in float64, divided by the weights they give, and taken to the
# device of z in one transfer. Several channels along a run axis are one stack of matrices.


class ComposedCalls(ForeseenCalls):
    """Calls of one channel, P (calls, n, n), or of several, P (calls, runs, n, n); omega (..., n) before the first."""

    def __init__(
        self,
        P: np.ndarray,
        messages: np.ndarray,
        omega: np.ndarray,
        steps: Sequence[Steps],
        weight_rule: Rules,
        like: Array,
        divide: bool,
        name: str,
    ) -> None:
        super().__init__(steps, weight_rule, like, divide)
        self.messages = messages
        self.after = _following(P, weight_rule, omega, steps, name)  # (calls, [runs,] n)
        K = P / self.after[..., None] if divide and weight_rule is not WeightRule.NONE else P
        self._K = from_host(np.ascontiguousarray(self.here(K), dtype=host_dtype(like)), like=like)

    def here(self, K: np.ndarray) -> np.ndarray:
        """What of the matrices (calls, ..., n, n) serves the clients in this process."""
        return K

    def __call__(self, z: Array) -> Array:
        K = self._K[self.used, ...]
        self.used += 1
        return K @ z


def _following(P: np.ndarray, weight_rule: Rules, omega: np.ndarray, steps: Sequence[Steps], name: str) -> np.ndarray:
    """ω after each call: P 1, P times ω of the call before, or 1 where no weights travel."""
    if isinstance(weight_rule, tuple) and set(weight_rule) == {WeightRule.RESET}:
        after = P.sum(axis=-1)  # all runs at once
        check_heard(after, name)
        return after
    if isinstance(weight_rule, tuple):
        each = zip(weight_rule, zip(*steps, strict=True), omega, strict=True)
        return np.stack([_following(P[:, r], rule, om, S, name) for r, (rule, S, om) in enumerate(each)], axis=1)
    after = P.sum(axis=2)
    if weight_rule is WeightRule.NONE:
        check_balanced(after, int(np.max(steps)), name)
        return np.ones_like(after)
    if weight_rule != WeightRule.RESET:
        for c in range(P.shape[0]):
            omega = after[c] = P[c] @ omega
    check_heard(after, name)
    return after


# ----------------------------------------------------------------------------------------------------
# P = W_{t+S} ... W_{t+1} for each of several successive calls, as dense matrices on the host.


CHUNK_BYTES = 2**20  # matrices drawn at once before they are multiplied: they stay in a cache


def products(net: Network, step: int, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """P (calls, n, n) and messages (calls,) of calls of `steps` graphs each, the first of them graph step + 1."""
    parts = []
    for S, group in groupby(steps):
        calls = len(list(group))
        swept = net.products(step + 1, calls, S)
        parts.append(_multiplied(net, step, calls, S) if swept is None else swept)
        step += calls * S
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([P for P, _ in parts]), np.concatenate([messages for _, messages in parts])


def _multiplied(net: Network, step: int, calls: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """A network that never changes is composed once."""
    n, distinct = net.n, 1 if net.period == 1 else calls
    P, messages = np.empty((calls, n, n)), np.empty(calls, dtype=np.int64)
    for part, W, _ in chunks(net, step, (S,) * distinct):
        P[part], messages[part] = compose(W, S, net.expected_edges), count_messages(W, S)
    P[distinct:], messages[distinct:] = P[0], messages[0]
    return P, messages


def chunks(net: Network, step: int, steps: Sequence[int]) -> Iterator[tuple[slice, np.ndarray, int]]:
    """Which calls, W of all their graphs, and the S that they share: CHUNK_BYTES of W at a time, at least one call."""
    call = 0
    for S, group in groupby(steps):
        end, most = call + len(list(group)), max(1, CHUNK_BYTES // (8 * S * net.n**2))
        while call < end:
            calls = min(most, end - call)
            yield slice(call, call + calls), net.mixing_matrices(step + 1, calls * S), S
            call, step = call + calls, step + calls * S


def composing_pays(net: Network, steps: int, columns: int) -> bool:
    """Whether one product per call is cheaper than stepping.

    With E edges a step and d columns, composing first costs S n² + (S-1) n min(E, n²/8) on the host and n² d / 8 on the
    vectors, stepping costs S E d. Up to 32 clients composing is taken in any case: there the calls themselves cost
    more than what they compute.
    """
    n, edges = net.n, net.expected_edges
    dense = n * n / DENSE_SPEEDUP
    return n <= 32 or steps * n * n + (steps - 1) * n * min(edges, dense) + dense * columns <= steps * edges * columns


# ----------------------------------------------------------------------------------------------------
# All clients in one process: graphs are composed or stepped through, whichever is cheaper.


MODES = ("auto", "composed", "stepping")
BLOCK_BYTES = 16 * 2**20  # matrices prepared at once, at most (one call is always prepared)
MOST_CALLS = 256  # calls prepared at once, at most


def calls_at_once(n: int, runs: int = 1) -> int:
    """How many composed calls of n clients to prepare together, in each of so many runs."""
    return max(1, min(MOST_CALLS, BLOCK_BYTES // (8 * runs * n * n)))


class Simulated(Channel):
    """The graphs of `net`, with all clients at hand.

    mode="auto" composes where that is cheaper (`products.composing_pays`). Graphs of calls that were foreseen are
    prepared together, as far as BLOCK_BYTES allows.

    Parameters
    ----------
    net : Network
        Who hears whom.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made.

    Raises
    ------
    TypeError, ValueError
        `mode` must be one of the three.

    Examples
    --------
    >>> channel = hgp.mixing.Simulated(hgp.networks.FullyConnected(2))
    >>> channel.n
    2
    """

    def __init__(self, net: Network, mode: str = "auto") -> None:
        super().__init__(net.n)
        self.net, self.mode = net, validation.choice("mode", mode, MODES)
        self._calls: PreparedCalls | None = None
        self._closed: PreparedCalls | None = None  # the last ones, until others are prepared: they know the weights
        self._ahead: Sequence[int] = ()  # steps of the calls foreseen, of which _made were made
        self._made = 0
        self._omega = np.ones(net.n)  # ω before the calls prepared now

    @property
    def weights(self) -> Array:
        calls = self._closed if self._calls is None else self._calls
        return None if calls is None else calls.weights_now()

    @property
    def omega(self) -> np.ndarray:
        return self._omega if self._calls is None or not self._calls.used else self._calls.omega

    @property
    def traffic(self) -> Traffic:
        return self._sent if self._calls is None else self._sent + self._calls.traffic()

    def foresee(self, steps: Sequence[int]) -> None:
        self._ahead, self._made = steps, 0

    def mix(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        return self._call(z, steps, weight_rule, False)

    def average(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> Array:
        return self._call(z, steps, weight_rule, True)

    def _call(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool) -> Array:
        calls = self._calls
        if calls is None or not calls.serves(z, steps, weight_rule, divide):
            calls = self._prepare(z, steps, weight_rule, divide)
        mixed = calls(z)
        self.step += steps
        self._made += self._made < len(self._ahead) and self._ahead[self._made] == steps
        return mixed

    def _prepare(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool) -> PreparedCalls:
        self.flush()
        self._closed = None
        if self.composes(z, steps, weight_rule):
            ahead = self.upcoming(steps, calls_at_once(self.n))
            P, messages = self.matrices(ahead)
            self._calls = ComposedCalls(P, messages, self._omega, ahead, weight_rule, z, divide, repr(self.net))
        else:
            self._calls = self._stepping(z, steps, weight_rule, divide)
        return self._calls

    def _stepping(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool) -> PreparedCalls:
        """The next calls where they are not composed."""
        if is_numpy(z):
            ahead = self.upcoming(steps, MOST_CALLS)
            return HostCalls(self.net, self.step, self._omega, ahead, weight_rule, z, divide)
        most = max(1, min(64, 2 * BLOCK_BYTES // (32 * steps * int(self.net.expected_edges))))
        ahead = self.upcoming(steps, most)
        alike = next((k for k, S in enumerate(ahead) if steps != S), len(ahead))
        return DeviceCalls(self.net, self.step, self._omega, ahead[:alike], weight_rule, z, divide).take_over()

    def flush(self) -> None:
        """Close the calls prepared before: what they have carried, and where they have left the weights."""
        if self._calls is not None:
            self._sent, self._omega = self.traffic, self.omega
            self._calls, self._closed = None, self._calls

    def upcoming(self, steps: int, most: int) -> Sequence[int]:
        """The steps of the next calls, at most so many: those foreseen if the first is as foreseen, else one call."""
        ahead = self._ahead[self._made : self._made + most]
        return ahead if ahead and ahead[0] == steps else (steps,)

    def matrices(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        return products(self.net, self.step, steps)

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        if self.mode != "auto":
            return self.mode == "composed"
        columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
        return composing_pays(self.net, steps, columns)

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.flush()
        top, rounds, messages = max_consensus(self.net, values, self.step + 1, max_rounds)
        self.step += rounds
        self._sent += Traffic.of(messages, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        self.flush()
        if weight_rule == WeightRule.CARRY:
            self._omega = step_weights(self.net, self.step, graphs, self._omega)
        self.step += graphs


@connect.register
def _(net: Network, mode: str = "auto") -> Channel:
    return Simulated(net, mode)


# ----------------------------------------------------------------------------------------------------
# Several channels side by side along a leading run axis.


T = TypeVar("T")


class Runs(Channel):
    """Channels 1 .. R of the same clients; z is (R, n, d) and run r goes over channel r.

    `steps` and `weight_rule` of a call are tuples with an entry for each run, or one for all of them. Where all
    channels compose at the first call, their matrices are stacked and one batched product serves all runs; otherwise
    they are asked one by one.

    Parameters
    ----------
    channels : sequence of Channel
        One for each run.

    Raises
    ------
    ValueError
        The channels are of different numbers of clients.

    Examples
    --------
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> runs = hgp.mixing.Runs([hgp.mixing.connect(net), hgp.mixing.connect(net.after(10))])
    >>> runs.n
    3
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        clients = {c.n for c in channels}
        if len(clients) != 1:
            raise ValueError(f"avg: averagings of {sorted(clients)} clients together, needed the same number")
        super().__init__(clients.pop(), channels[0].clients)
        self.channels = list(channels)
        self._ahead: Sequence[tuple[int, ...]] = ()  # steps of the calls foreseen, of which _made were made
        self._made = 0
        self._stacked: bool | None = None
        self._calls: ComposedCalls | None = None
        self._closed: ComposedCalls | None = None  # the last ones, until others are prepared: they know the weights
        self._omega = np.ones((len(self.channels), self.n))  # before the calls prepared now
        self._sent = Traffic.side_by_side([Traffic()] * len(self.channels))

    @property
    def weights(self) -> Array:
        calls = self._closed if self._calls is None else self._calls
        if calls is not None:
            return calls.weights_now()
        parts = [c.weights for c in self.channels]
        like = next((part for part in parts if part is not None), None)
        if like is None:
            return None
        xp = array_namespace(like)
        return xp.stack([xp.ones_like(like) if part is None else part for part in parts])

    @property
    def traffic(self) -> Traffic:
        stacked = self._sent if self._calls is None else self._sent + self._calls.traffic()
        return stacked + Traffic.side_by_side([c.traffic for c in self.channels])

    def foresee(self, steps: Sequence[Steps]) -> None:
        self._ahead, self._made = [self._each(S) for S in steps], 0
        if self._stacked is False:
            self._tell_each()

    def _tell_each(self) -> None:
        """Each channel its own steps of what was foreseen."""
        for channel, ahead in zip(self.channels, zip(*self._ahead, strict=True), strict=True):
            channel.foresee(ahead)

    def mix(self, z: Array, steps: Steps, weight_rule: Rules = WeightRule.RESET) -> Array:
        return self._call(z, self._each(steps), self._each(weight_rule), False)

    def average(self, z: Array, steps: Steps, weight_rule: Rules = WeightRule.RESET) -> Array:
        return self._call(z, self._each(steps), self._each(weight_rule), True)

    def _each(self, asked: T | tuple[T, ...]) -> tuple[T, ...]:
        """An entry for each run."""
        return asked if isinstance(asked, tuple) else (asked,) * len(self.channels)

    def _call(self, z: Array, steps: tuple[int, ...], weight_rule: tuple[WeightRule, ...], divide: bool) -> Array:
        if self._stacked is None:
            asked = zip(self.channels, steps, strict=True)
            self._stacked = all(channel.conserves_mass and channel.composes(z[0, ...], S) for channel, S in asked)
            if not self._stacked and self._ahead:
                self._tell_each()
        if not self._stacked:
            return self._one_by_one(z, steps, weight_rule, divide)
        calls = self._calls
        if calls is None or not calls.serves(z, steps, weight_rule, divide):
            calls = self._prepare(z, steps, weight_rule, divide)
        self._made += self._made < len(self._ahead) and self._ahead[self._made] == steps
        return calls(z)

    def _one_by_one(self, z: Array, steps: tuple[int, ...], weight_rule: tuple[WeightRule, ...], divide: bool) -> Array:
        asked = zip(self.channels, steps, weight_rule, strict=True)
        rows = [(c.average if divide else c.mix)(z[r, ...], S, rule) for r, (c, S, rule) in enumerate(asked)]
        return array_namespace(z).stack(rows)

    def _prepare(
        self, z: Array, steps: tuple[int, ...], weight_rule: tuple[WeightRule, ...], divide: bool
    ) -> ComposedCalls:
        self.flush()
        self._closed = None
        most = calls_at_once(self.n, len(self.channels))
        ahead = self._ahead[self._made : self._made + most]
        ahead = ahead if ahead and ahead[0] == steps else (steps,)
        each = [c.matrices(S) for c, S in zip(self.channels, zip(*ahead, strict=True), strict=True)]
        P, messages = (np.stack(parts, axis=1) for parts in zip(*each, strict=True))
        name = "one of the networks"
        self._calls = ComposedCalls(P, messages, self._omega, ahead, weight_rule, z, divide, name)
        return self._calls

    def flush(self) -> None:
        """Close the calls prepared before: clocks, what they have carried, where they have left the weights."""
        if self._calls is None or not self._calls.used:
            return
        self._sent = self._sent + self._calls.traffic()
        self._omega = self._calls.omega
        for channel, S in zip(self.channels, zip(*self._calls.steps[: self._calls.used], strict=True), strict=True):
            channel.step += sum(S)
        self._calls, self._closed = None, self._calls

    def advance(self, graphs: Steps, weight_rule: Rules, like: Array) -> None:
        self.flush()
        asked = zip(self.channels, self._each(graphs), self._each(weight_rule), strict=True)
        for r, (channel, passed, rule) in enumerate(asked):
            channel.advance(passed, rule, like[r, ...])
        self._omega = np.stack([channel.omega for channel in self.channels])

    @property
    def conserves_mass(self) -> bool:  # type: ignore[override]
        return all(channel.conserves_mass for channel in self.channels)

    @property
    def drops_mass(self) -> bool:  # type: ignore[override]
        return any(channel.drops_mass for channel in self.channels)

    @property
    def in_flight(self) -> bool:  # type: ignore[override]
        return any(channel.in_flight for channel in self.channels)

    def drop_in_flight(self) -> None:
        for channel in self.channels:
            channel.drop_in_flight()

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        """Maxima of (n, k) that all runs share, (k,), or of (R, n, k), those of each run, (R, k)."""
        self.flush()
        of_run = np.broadcast_to(values, (len(self.channels), *values.shape[-2:]))
        top = np.stack([c.max_consensus(of_run[r], like[r, ...], max_rounds) for r, c in enumerate(self.channels)])
        return top if values.ndim == 3 else top[0]

    def check_client_ids(self, numbers: np.ndarray) -> None:
        self.channels[0].check_client_ids(numbers)

    def check_same_on_all_ranks(self, what: str, **settings: object) -> None:
        self.channels[0].check_same_on_all_ranks(what, **settings)

    def any_rank(self, flag: bool) -> bool:
        return self.channels[0].any_rank(flag)

    def max_over_clients(self, a: Array) -> np.ndarray:
        return self.channels[0].max_over_clients(a)

    def mean_over_clients(self, a: Array) -> Array:
        return self.channels[0].mean_over_clients(a)
