"""All clients in one process.

A call multiplies z by P = W_{t+S} ... W_{t+1} in one of two ways, whichever is cheaper:

    composed    multiply the S matrices first, in float64 on the host; then z ← P z, one product per call
    stepping    z ← W_s z for s = t + 1, …, t + S along sparse graphs; nothing larger than z is stored

An iterative method makes the same call again and again. So a channel prepares the graphs of several calls at once:
1, 4, 16, … of them, as long as calls do not change, and drops those that are not made. If it knows how many graphs a
run may use (`last_step`), it prepares no more, and starts with 16 calls. Their number never changes a result.

On CuPy arrays, a step is one kernel launch, and the device draws the graphs of built-in random networks itself
(`_kernels.cuda`). Then the weights ω and the number of messages are on the device, and the host reads them on request.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels import cuda
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
from hgp_ref.backend import (
    Array,
    array_namespace,
    computes_on_device,
    device,
    from_host,
    host_dtype,
    host_float64,
    is_numpy,
    on_device_of,
    to_host,
)
from hgp_ref.mixing.channel import Channel, Traffic, WeightRule, connect, max_consensus, message_size, messages_of
from hgp_ref.networks import Network

T = TypeVar("T")
Steps = int | tuple[int, ...]  # of one channel, or of each of several along a run axis
Rules = WeightRule | tuple[WeightRule, ...]

MODES = ("auto", "composed", "stepping")
GROWTH = 4  # each block of prepared calls has so many times the calls of the block before
FIRST_CALLS = 16  # of the first block, if `last_step` is known
MOST_CALLS = 1024  # of a block
BLOCK_BYTES = 16 * 2**20  # of the matrices of a block (one call is always prepared)
BLOCK_WORK = 2**20  # multiply-adds per run to compose the matrices of a block: a millisecond or two, maybe wasted
DEVICE_ENTRIES = 2**23  # of the matrices that a GPU draws and multiplies at once
DEVICE_BYTES = 2**28  # of the graphs that a GPU draws at once for a call (those of one step are always drawn)
CHUNK_BYTES = 2**20  # of the matrices drawn before they are multiplied; they should fit in the cache


# Blocks of prepared calls


class PreparedCalls(ABC):
    """Up to `count` successive calls of `steps` graphs each, on arrays like `like`; `used` of them were made.

    With `divide`, a call returns averages instead of sums. With a run axis, `steps` and `weight_rule` are tuples.
    """

    count: float = 1  # math.inf if calls need no preparation
    together = False  # as in `Channel`
    messages: Any  # of the calls made so far, as a number or (runs,); leading axes of z count as one
    after: Any = None  # ω after each call, (calls, ..., n), in float64 on the host; None if only the device knows it

    def __init__(self, like: Array, steps: Steps, weight_rule: Rules, divide: bool) -> None:
        self.key = (steps, weight_rule, divide, like.shape, like.dtype)
        self.like, self.steps, self.weight_rule, self.divide = like, steps, weight_rule, divide
        self.used = 0
        self._weights: Array = None

    @abstractmethod
    def __call__(self, z: Array) -> Array:
        """Make the next call."""

    @property
    def weights(self) -> Array:
        """ω after the last call, (..., n, 1), in the library of z. Those of all calls are transferred at once."""
        if self._weights is None:
            self._weights = from_host(self.after.astype(host_dtype(self.like))[..., None], like=self.like)
        return self._weights[self.used - 1, ...]

    @property
    def omega(self) -> np.ndarray:
        """ω after the last call, (..., n), as float64 on the host."""
        return self.after[self.used - 1]

    @property
    def final_omega(self) -> Array:
        """ω after the last call, on the host or on the device, wherever it is."""
        return self.omega

    @property
    def traffic(self) -> Traffic:
        """What the calls made so far have sent."""
        copies, columns = message_size(self.like, self.together)

        def of_run(messages: Any, steps: int, rule: WeightRule) -> Traffic:
            floats = columns + (rule is not WeightRule.NONE)
            return Traffic.of(messages, floats, host_dtype(self.like).itemsize, self.used * steps)

        if isinstance(self.steps, tuple):
            runs = zip(self.messages, self.steps, self.weight_rule, strict=True)  # type: ignore[arg-type]
            return Traffic.side_by_side([of_run(*run) for run in runs])
        return of_run(self.messages * copies, self.steps, self.weight_rule)  # type: ignore[arg-type]


@lru_cache
def _entering(kind: type[PreparedCalls]) -> type[PreparedCalls]:
    """The same kind of calls, made on the device of their arrays."""
    return type(kind.__name__, (kind,), {"__call__": computes_on_device(kind.__call__)})


class PreparedChannel(Channel, enters=False):  # `_next_block` sees to it, so that calls on NumPy cost no more
    """A channel that makes calls from blocks of prepared ones; a subclass implements `_prepare`.

    `step`, `traffic` and `omega` are stored as of the start of the block; the calls made since are added when they are
    read. `flush` closes the block.
    """

    _calls: PreparedCalls | None = None
    _like: Array = None  # what was mixed last
    _omega: Array  # ω before the block, on the host or on the device

    @abstractmethod
    def _prepare(self, z: Array, steps: Any, weight_rule: Any, divide: bool, count: int) -> PreparedCalls:
        """A block of at most `count` calls, and at least one."""

    def mix(self, z: Array, steps: Steps, weight_rule: Rules = WeightRule.RESET) -> Array:
        calls = self._calls
        if calls is None or calls.key != (steps, weight_rule, False, z.shape, z.dtype) or calls.used == calls.count:
            calls = self._next_block(z, steps, weight_rule, False)
        return calls(z)

    def average(self, z: Array, steps: Steps, weight_rule: Rules = WeightRule.RESET) -> Array:
        calls = self._calls
        if calls is None or calls.key != (steps, weight_rule, True, z.shape, z.dtype) or calls.used == calls.count:
            calls = self._next_block(z, steps, weight_rule, True)
        return calls(z)

    def _next_block(self, z: Array, steps: Any, weight_rule: Any, divide: bool) -> PreparedCalls:
        """Prepare GROWTH times as many calls as last time, if all were made and this one is like them; else one."""
        last, on_cuda = self._calls, cuda.applies(z)
        key: tuple[Any, ...] = (steps, weight_rule, divide, z.shape, z.dtype)
        if on_cuda:
            key = (*key, device(z))  # callers do not compare it, so that every call comes here
            if last is not None and last.key == key and last.used < last.count:
                return last
        if last is not None:
            count = int(GROWTH * last.count) if last.key == key and last.used == last.count else 1
        else:
            count = FIRST_CALLS if self._like is None and self.last_step is not None else 1
        self.flush()
        self._like = z
        with on_device_of(z):
            try:
                self._calls = self._prepare(z, steps, weight_rule, divide, count)
            except Exception:
                if count == 1:
                    raise
                self._calls = self._prepare(z, steps, weight_rule, divide, 1)  # a later call raises when it is made
        if on_cuda:
            self._calls.__class__, self._calls.key = _entering(type(self._calls)), key
        self._calls.together = self.together
        return self._calls

    def flush(self) -> None:
        """Close the block: add its traffic, keep the weights that it left."""
        if self._calls is not None:
            calls, self._calls = self._calls, None
            if calls.used:
                self._add_traffic(calls)
                self._omega = calls.final_omega

    def _add_traffic(self, calls: PreparedCalls) -> None:
        self._sent += calls.traffic

    def _columns(self, z: Array) -> int:
        """The columns by which a call is composed or not: of one leading entry if they travel together.

        Each entry is then rounded as if it travelled alone.
        """
        return z.shape[-1] if self.together else math.prod(z.shape[:-2]) * z.shape[-1]

    def continue_weights(self, weights: Array) -> None:
        self.flush()
        self._like, self._omega = weights, host_float64(weights)[..., 0]

    @property
    def weights(self) -> Array:
        if self._like is None:
            return None
        with on_device_of(self._like):
            return self._weights()

    def _weights(self) -> Array:
        if self._calls is not None and self._calls.used:
            return self._calls.weights
        if not isinstance(self._omega, np.ndarray):
            return array_namespace(self._omega).astype(self._omega, self._like.dtype)[..., None]
        return from_host(self._omega.astype(host_dtype(self._like))[..., None], like=self._like)

    @property
    def omega(self) -> np.ndarray:
        return to_host(self._omega) if self._calls is None or not self._calls.used else self._calls.omega

    @property
    def traffic(self) -> Traffic:
        return self._sent if self._calls is None else self._sent + self._calls.traffic


def calls_at_once(n: int, steps: int, runs: int = 1) -> int:
    """How many composed calls of n clients may be prepared together, in each of so many runs."""
    work = steps * n * n + (steps - 1) * n * n * n // DENSE_SPEEDUP
    return max(1, min(MOST_CALLS, BLOCK_BYTES // (8 * runs * n * n), BLOCK_WORK // work))


def weights_before(weight_rule: WeightRule, omega: np.ndarray) -> np.ndarray:
    """ω before a call: carried over from the previous call for CARRY, else 1."""
    return omega if weight_rule is WeightRule.CARRY else np.ones_like(omega)


def check_balanced(omega: np.ndarray, steps: int, net: Network | str) -> None:
    """Raise ValueError unless ω = P 1 is 1 up to rounding, as for doubly stochastic matrices; `net` is named in it."""
    off = float(np.abs(omega - 1.0).max(initial=0.0))
    if off > balance_tolerance(omega.shape[-1], steps):
        raise ValueError(
            "net must have doubly stochastic matrices for Gossip, but the sum of a row of a product of "
            f"{steps} matrices of {net} differs from 1 by {off:.2g}; use PushSum"
        )


def balance_tolerance(n: int, steps: int) -> float:
    """How far rows of a product of doubly stochastic matrices may be from 1: n + 2 roundings per factor."""
    return 4 * (n + 2) * steps * float(np.finfo(np.float64).eps)


def check_received(omega: np.ndarray, net: Network | str) -> None:
    """Raise ValueError if a client's weight is 0: it received nothing, not even from itself."""
    if not omega.all():
        client = int(np.argwhere(omega == 0)[0][-1])
        raise ValueError(
            f"net: client {client} receives no message in a call over {net} and has no self-loop, so its Push-Sum "
            "weight is zero; use more steps per call or add self-loops"
        )


# Composing: products are computed in float64 on the host, divided by the weights, and transferred at once


class ComposedCalls(PreparedCalls):
    """Calls as products with P (calls, runs, n, n); `omega` (runs, n) are the weights before the first.

    Without `run_axis` there is one run, whose axis z does not have. P repeats after `distinct` calls, if given.
    """

    def __init__(
        self,
        P: np.ndarray,
        messages: np.ndarray,
        omega: np.ndarray,
        like: Array,
        steps: Steps,
        weight_rule: Rules,
        divide: bool,
        net: Network | str,
        run_axis: bool,
        distinct: int | None = None,
    ) -> None:
        super().__init__(like, steps, weight_rule, divide)
        self.count, self._messages = len(P), messages
        rules, S = (weight_rule, steps) if run_axis else ((weight_rule,), (steps,))
        after = _weights_after(P, omega, rules, S, net)  # type: ignore[arg-type]
        weighted = divide and WeightRule.CARRY in rules  # type: ignore[operator]
        self._distinct = len(P) if distinct is None or weighted else min(distinct, len(P))
        K = P[: self._distinct] / after[: self._distinct, ..., None] if divide else P[: self._distinct]
        self.after, K = (after, K) if run_axis else (after[:, 0], K[:, 0])
        self._K = from_host(np.ascontiguousarray(K, dtype=host_dtype(like)), like=like)

    def __call__(self, z: Array) -> Array:
        K = self._K[self.used % self._distinct, ...]
        self.used += 1
        return K @ z

    @property
    def messages(self) -> Any:
        return self._messages[: self.used].sum(axis=0)


def _weights_after(
    P: np.ndarray, omega: np.ndarray, rules: Sequence[WeightRule], steps: Sequence[int], net: Network | str
) -> np.ndarray:
    """ω after each call, (calls, runs, n): P 1, P times ω of the call before, or 1 where no weights travel."""
    after = P.sum(axis=-1)
    for r, rule in enumerate(rules):
        if rule is WeightRule.NONE:
            check_balanced(after[:, r], steps[r], net)
            after[:, r] = 1.0
        elif rule is WeightRule.CARRY:
            weights = omega[r]
            for c in range(len(P)):
                weights = after[c, r] = P[c, r] @ weights
    check_received(after, net)
    return after


def products(net: Network, step: int, steps: int, calls: int) -> tuple[np.ndarray, np.ndarray]:
    """P (calls, n, n) and messages (calls,) of successive calls of `steps` graphs each, after graph `step`."""
    composed = net.products(step + 1, calls, steps)
    if composed is not None:
        return composed
    P, messages = np.empty((calls, net.n, net.n)), np.empty(calls, dtype=np.int64)
    for part, W in chunks(net, step, steps, calls):
        P[part], messages[part] = compose(W, steps, net.expected_edges), count_messages(W, steps)
    return P, messages


def chunks(net: Network, step: int, steps: int, calls: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Pairs of a slice of calls and W of all their graphs: at most CHUNK_BYTES of W, but at least one call."""
    most = max(1, CHUNK_BYTES // (8 * steps * net.n**2))
    for begin in range(0, calls, most):
        end = min(calls, begin + most)
        yield slice(begin, end), net.mixing_matrices(step + begin * steps + 1, (end - begin) * steps)


def composing_pays(net: Network, steps: int, columns: int) -> bool:
    """Whether composing is cheaper than stepping.

    With E edges per step and d columns, composing costs S n² + (S − 1) n min(E, n²/8) on the host plus n² d / 8 for the
    vectors; stepping costs S E d. Up to 32 clients, overhead dominates and composing is used.
    """
    n, edges = net.n, net.expected_edges
    dense = n * n / DENSE_SPEEDUP
    return n <= 32 or steps * n * n + (steps - 1) * n * min(edges, dense) + dense * columns <= steps * edges * columns


# Stepping. On NumPy, graphs are drawn as they are used. For other libraries the graphs of a block are drawn together,
# padded to rows of equal width and transferred at once; a step is then `take` and `add`.


class HostCalls(PreparedCalls):
    """Any number of calls on NumPy arrays over the graphs of `net` after graph `step`; `omega` (n,) before them."""

    count = math.inf
    steps: int
    weight_rule: WeightRule

    def __init__(
        self, net: Network, step: int, omega: np.ndarray, like: Array, steps: int, weight_rule: WeightRule, divide: bool
    ) -> None:
        super().__init__(like, steps, weight_rule, divide)
        self.net, self._step, self._omega = net, step, omega
        self.messages = 0

    def __call__(self, z: np.ndarray) -> np.ndarray:
        omega = weights_before(self.weight_rule, self._omega)
        folded = np.moveaxis(z, -2, 0)  # (n, ..., d): leading axes join the columns
        held = np.ascontiguousarray(folded).reshape(self.net.n, -1)
        free: np.ndarray | None = None  # a buffer that is no longer needed
        sent = 0
        for s in range(self._step + 1, self._step + self.steps + 1):
            out = empty_like(held) if free is None else free
            messages, omega = mix_step(self.net, s, held, out, omega)
            held, free = out, None if np.may_share_memory(held, z) else held
            sent += messages
        if self.weight_rule is WeightRule.NONE:
            check_balanced(omega, self.steps, self.net)
        elif self.divide:
            check_received(omega, self.net)
            held /= omega.astype(held.dtype)[:, None]
        self._omega = omega
        self._step += self.steps
        self.used += 1
        self.messages += sent
        return np.moveaxis(held.reshape(folded.shape), 0, -2)

    @property
    def weights(self) -> np.ndarray:
        return self._omega.astype(self.like.dtype)[:, None]

    @property
    def omega(self) -> np.ndarray:
        return self._omega


def graphs_of_calls(net: Network, step: int, steps: int, count: int) -> tuple[list[list[Csr]], list[int]]:
    """The graphs after graph `step` of each of `count` calls, and how many messages each call sends."""
    graphs = [[net.csr(step + c * steps + s + 1) for s in range(steps)] for c in range(count)]
    return graphs, [sum(messages_of(net, *graph[:2]) for graph in call) for call in graphs]


def weights_along(graphs: list[list[Csr]], omega: np.ndarray, weight_rule: WeightRule, net: Network) -> np.ndarray:
    """ω after each call, (calls, n), on the host."""
    after = []
    for call in graphs:
        omega = weights_before(weight_rule, omega)
        for graph in call:
            omega = pull_vector_step(*graph, omega)
        if weight_rule is WeightRule.NONE:
            check_balanced(omega, len(call), net)
        check_received(omega, net)
        after.append(omega)
    return np.stack(after)


class DeviceCalls(PreparedCalls):
    """`count` stepping calls on any array library; what `HostCalls` does as it goes is prepared at the start."""

    steps: int
    weight_rule: WeightRule

    def __init__(
        self,
        net: Network,
        step: int,
        omega: np.ndarray,
        like: Array,
        steps: int,
        weight_rule: WeightRule,
        divide: bool,
        count: int,
    ) -> None:
        super().__init__(like, steps, weight_rule, divide)
        self.count = count
        graphs, self._messages = graphs_of_calls(net, step, steps, count)
        self.width = max(int(np.diff(graph[0]).max()) for call in graphs for graph in call)
        rows = [[padded_rows(*graph, self.width) for graph in call] for call in graphs]
        self._senders = from_host(np.stack([[r[0] for r in call] for call in rows]), like=like)  # (calls, S, n, width)
        shares = np.stack([[r[1] for r in call] for call in rows]).astype(host_dtype(like))
        self._shares = from_host(shares, like=like)
        self.after = weights_along(graphs, omega, weight_rule, net)

    def __call__(self, z: Array) -> Array:
        xp = array_namespace(z)
        for s in range(self.steps):
            total = xp.zeros_like(z)
            for k in range(self.width):
                share = self._shares[self.used, s, :, k][:, None]
                total = total + share * xp.take(z, self._senders[self.used, s, :, k], axis=-2)
            z = total
        self.used += 1
        return z / self.weights if self.divide and self.weight_rule is not WeightRule.NONE else z

    @property
    def messages(self) -> int:
        return sum(self._messages[: self.used])


class CudaCalls(PreparedCalls):
    """Calls on CuPy arrays over `graphs` of the device; `messages` of each call, or None to count the edges there.

    `omega` (n,) are the weights before the first call, on the host or on the device.
    """

    steps: int
    weight_rule: WeightRule

    def __init__(
        self,
        graphs: cuda.Rows,
        omega: Array,
        like: Array,
        steps: int,
        weight_rule: WeightRule,
        divide: bool,
        count: int,
        messages: list[int] | None,
    ) -> None:
        super().__init__(like, steps, weight_rule, divide)
        self.count, self._messages, self._ends = count, messages, graphs.indptr[:, -1]
        self.n = int(graphs.indptr.shape[1]) - 1
        if weight_rule is WeightRule.CARRY and device(omega) != device(like):
            omega = from_host(to_host(omega), like=like)
        self._prepare(graphs, omega)

    @abstractmethod
    def _prepare(self, graphs: cuda.Rows, omega: Array) -> None: ...

    @property
    def omega(self) -> np.ndarray:
        return to_host(self.final_omega)

    @property
    def uncounted(self) -> Array | None:
        """The messages of the calls made so far as a number on the device; None if the host knows it."""
        if self._messages is not None:
            return None
        rounds = self.used * self.steps
        with on_device_of(self.like):
            return array_namespace(self.like).sum(self._ends[:rounds]) - rounds * self.n  # without self-loops

    @property
    def messages(self) -> int:
        return int(to_host(self.uncounted)) if self._messages is None else sum(self._messages[: self.used])


class CudaSteps(CudaCalls):
    """Stepping calls on CuPy arrays, one kernel launch per step."""

    first = 0  # the graph of the first step; graphs repeat

    def _prepare(self, graphs: cuda.Rows, omega: Array) -> None:
        xp = array_namespace(self.like)
        self._graphs = graphs
        self._ones = xp.ones(self.n, dtype=xp.float64, device=device(self.like))
        self._omega = omega

    def __call__(self, z: Array) -> Array:
        z = array_namespace(z).asarray(z, order="C")
        omega = self._omega if self.weight_rule is WeightRule.CARRY else self._ones
        divide = self.divide and self.weight_rule is not WeightRule.NONE
        for s in range(self.steps):
            z, omega = cuda.pull(self._graph(s), z, omega, divide and s == self.steps - 1)
        self._omega = omega
        self.used += 1
        return z

    def _graph(self, s: int) -> tuple[Array, Array, Array]:
        period = int(self._graphs.indptr.shape[0])
        return self._graphs.at((self.first + self.used * self.steps + s) % period)

    @property
    def weights(self) -> Array:
        return array_namespace(self._omega).astype(self._omega, self.like.dtype, copy=False)[:, None]

    @property
    def final_omega(self) -> Array:
        return self._omega if self.after is None else self.after[self.used - 1]


class CudaBlocks(CudaSteps):
    """One call of many steps: `draw(s, steps)` draws graphs from step s of the call on, a block of steps at a time."""

    def __init__(self, draw: Callable[[int, int], cuda.Rows], block: int, *arguments: Any) -> None:
        self._draw, self._block = draw, block
        super().__init__(*arguments)

    def _graph(self, s: int) -> tuple[Array, Array, Array]:
        if s and s % self._block == 0:
            del self._graphs  # the pool then reuses its memory
            self._graphs = self._draw(s, min(self._block, self.steps - s))
            self._ends = array_namespace(self._ends).concat([self._ends, self._graphs.indptr[:, -1]])
        return self._graphs.at(s % self._block)


class CudaProducts(CudaCalls):
    """Composed calls on CuPy arrays. The device multiplies the graphs that it has drawn, in float64 as on the host."""

    def _prepare(self, graphs: cuda.Rows, omega: Array) -> None:
        xp, P = array_namespace(self.like), self._products(graphs)
        carry = self.weight_rule is WeightRule.CARRY
        self._after = cuda.carry_weights(P, omega) if carry else xp.sum(P, axis=-1)
        self._K = xp.astype(P / self._after[..., None] if self.divide else P, self.like.dtype, copy=False)

    def _products(self, graphs: cuda.Rows) -> Array:
        W = cuda.dense_matrices(graphs, int(self.count), self.steps, self.like)
        P = W[0, ...]
        for s in range(1, self.steps):
            P = W[s, ...] @ P
        return P

    def __call__(self, z: Array) -> Array:
        K = self._K[self.used, ...]
        self.used += 1
        return K @ z

    @property
    def weights(self) -> Array:
        if self._weights is None:
            self._weights = array_namespace(self.like).astype(self._after, self.like.dtype, copy=False)[..., None]
        return self._weights[self.used - 1, ...]

    @property
    def final_omega(self) -> Array:
        return self._after[self.used - 1, ...]


def mix_step(net: Network, s: int, z: np.ndarray, out: np.ndarray, omega: np.ndarray) -> tuple[int, np.ndarray]:
    """out = W_s z; returns the number of messages and W_s ω.

    If all senders split equally, their lists of receivers are used as they are drawn, else rows with weights.
    """
    if net.equal_shares:
        lists = net.out_adjacency(s)
        push_step(*lists, z, out)
        return messages_of(net, *lists), push_vector_step(*lists, omega)
    graph = net.csr(s)
    pull_step(*graph, z, out)
    return messages_of(net, *graph[:2]), pull_vector_step(*graph, omega)


# The channels


class Simulated(PreparedChannel):
    """A channel over the graphs of `net` with all clients in this process. Leading axes of z use the same graphs.

    Examples
    --------
    >>> channel = hgp.mixing.Simulated(hgp.networks.FullyConnected(2))
    >>> channel.n
    2
    """

    def __init__(self, net: Network, mode: str = "auto") -> None:
        super().__init__(net.n)
        self.net, self.mode = net, validation.choice("mode", mode, MODES)
        self._step = 0  # before the block
        self._omega = np.ones(net.n)
        self._static: tuple[int, np.ndarray, np.ndarray] | None = None  # steps, P and messages of a static graph
        self._sampler: cuda.Sampler | None = None
        self._sampler_of: Any = None  # the device for which it was made
        self._periodic: cuda.Rows | None = None  # the graphs of a period, on the device
        # messages on the device, by runs, size of messages and device
        self._uncounted: dict[tuple[int, int, int, str], Array] = {}

    @property
    def step(self) -> int:  # type: ignore[override]
        return self._step if self._calls is None else self._step + self._calls.used * self._calls.steps  # type: ignore[operator]

    def _prepare(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool, count: int) -> PreparedCalls:
        if self.last_step is not None and self.last_step - self._step >= steps:
            count = min(count, (self.last_step - self._step) // steps)
        if self.composes(z, steps, weight_rule):
            count = min(count, calls_at_once(self.n, 1 if self.net.period == 1 else steps))
            sampler = self._device_sampler(z, weight_rule)
            if sampler is not None and count * steps * self.n**2 <= DEVICE_ENTRIES:
                return self._cuda_calls(True, sampler, z, steps, weight_rule, divide, count)
            P, messages = self.matrices(steps, count)
            omega, period = to_host(self._omega)[None], self.net.period
            distinct = None if period is None else period // math.gcd(period, steps)
            return ComposedCalls(
                P[:, None], messages, omega, z, steps, weight_rule, divide, self.net, run_axis=False, distinct=distinct
            )
        return self._stepping(z, steps, weight_rule, divide, count)

    def _stepping(self, z: Array, steps: int, weight_rule: WeightRule, divide: bool, count: int) -> PreparedCalls:
        """The next calls, stepping."""
        if is_numpy(z):
            return HostCalls(self.net, self._step, self._omega, z, steps, weight_rule, divide)
        if cuda.applies(z):
            return self._stepping_on_cuda(z, steps, weight_rule, divide, count)
        most = max(1, min(64, 2 * BLOCK_BYTES // (32 * steps * int(self.net.expected_edges))))
        return DeviceCalls(self.net, self._step, self._omega, z, steps, weight_rule, divide, min(count, most))

    def _stepping_on_cuda(
        self, z: Array, steps: int, weight_rule: WeightRule, divide: bool, count: int
    ) -> PreparedCalls:
        sampler, net = self._device_sampler(z, weight_rule), self.net
        edges = int(net.expected_edges) if sampler is None else sampler.room
        count = min(count, max(1, min(64, 2 * BLOCK_BYTES // (cuda.EDGE_BYTES * steps * edges))))
        if sampler is not None:
            drawn = sampler, z, steps, weight_rule, divide
            block = max(1, DEVICE_BYTES // (cuda.EDGE_BYTES * edges))
            if steps <= block:
                return self._cuda_calls(False, *drawn, count)
            (first, _), rows_from = net._steps(self._step + 1, steps), sampler.rows
            return CudaBlocks(lambda s, steps: rows_from(first + s, steps), block, *self._drawn(*drawn, 1, block))
        graphs, messages = graphs_of_calls(net, self._step, steps, count)
        before = self.omega if weight_rule is WeightRule.CARRY else np.ones(self.n)
        after = weights_along(graphs, before, weight_rule, net)
        if net.period is None or net.period * edges * cuda.EDGE_BYTES > 2 * BLOCK_BYTES:
            rows = cuda.send_rows([graph for call in graphs for graph in call], z)
        else:
            if self._periodic is None or device(self._periodic.indptr) != device(z):
                self._periodic = cuda.send_rows([net.csr(s) for s in range(1, net.period + 1)], z)
            rows = self._periodic
        calls = CudaSteps(rows, self._omega, z, steps, weight_rule, divide, count, messages)
        calls.first, calls.after = self._step if rows is self._periodic else 0, after
        return calls

    def _device_sampler(self, z: Array, weight_rule: WeightRule) -> cuda.Sampler | None:
        """What draws graphs on the device of z; None if the host must draw them, or check the weights (NONE)."""
        if is_numpy(z) or weight_rule is WeightRule.NONE or not cuda.applies(z):
            return None
        if self._sampler_of != device(z):
            rule = self.net.device_sampler()
            self._sampler, self._sampler_of = None if rule is None else rule.on(z), device(z)
        return self._sampler

    def _cuda_calls(self, composed: bool, *drawn: Any) -> CudaCalls:
        """Calls over graphs drawn on the device; `drawn` are the arguments of `_drawn`."""
        return (CudaProducts if composed else CudaSteps)(*self._drawn(*drawn))

    def _drawn(
        self,
        sampler: cuda.Sampler,
        z: Array,
        steps: int,
        weight_rule: WeightRule,
        divide: bool,
        count: int,
        block: int | None = None,
    ) -> tuple[Any, ...]:
        """The arguments of `CudaCalls`, with the graphs of all calls, or of a block of steps, drawn on the device."""
        first, graphs = self.net._steps(self._step + 1, count * steps)
        per_step = sampler.messages
        messages = None if per_step is None else [steps * per_step] * count
        return sampler.rows(first, block or graphs), self._omega, z, steps, weight_rule, divide, count, messages

    def _add_traffic(self, calls: PreparedCalls) -> None:
        if not isinstance(calls, CudaCalls) or calls.uncounted is None:
            return super()._add_traffic(calls)
        copies, columns = message_size(calls.like, calls.together)
        kind = copies, columns + 1, host_dtype(calls.like).itemsize, str(device(calls.like))
        before = self._uncounted.get(kind)
        with on_device_of(calls.like):
            self._uncounted[kind] = calls.uncounted if before is None else before + calls.uncounted
        self._sent += Traffic.of(0, 0, 0, calls.used * calls.steps)

    @property
    def traffic(self) -> Traffic:
        for (runs, floats, itemsize, _), messages in self._uncounted.items():
            self._sent += Traffic.of(runs * int(to_host(messages)), floats, itemsize, 0)
        self._uncounted = {}
        return super().traffic

    def flush(self) -> None:
        step = self.step
        super().flush()
        self._step = step

    def matrices(self, steps: int, calls: int = 1) -> tuple[np.ndarray, np.ndarray]:
        if self.net.period != 1:
            return products(self.net, self.step, steps, calls)
        if self._static is None or self._static[0] != steps:
            self._static = (steps, *products(self.net, self.step, steps, 1))
        _, P, messages = self._static
        return np.broadcast_to(P, (calls, *P.shape[1:])), np.broadcast_to(messages, calls)

    def composes(self, z: Array, steps: int, weight_rule: WeightRule = WeightRule.RESET) -> bool:
        if self.mode != "auto":
            return self.mode == "composed"
        return composing_pays(self.net, steps, self._columns(z))

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.flush()
        top, rounds, messages = max_consensus(self.net, values, self._step + 1, max_rounds)
        self._step += rounds
        self._sent += Traffic.of(messages, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def advance(self, graphs: int, weight_rule: WeightRule, like: Array) -> None:
        self.flush()
        if weight_rule is WeightRule.CARRY and graphs:
            self._like = like
            self._omega = to_host(self._omega)
            for s in range(self._step + 1, self._step + graphs + 1):
                if self.net.equal_shares:
                    self._omega = push_vector_step(*self.net.out_adjacency(s), self._omega)
                else:
                    self._omega = pull_vector_step(*self.net.csr(s), self._omega)
        self._step += graphs


@connect.register
def _(net: Network, mode: str = "auto") -> Channel:
    return Simulated(net, mode)


class Runs(PreparedChannel):
    """Several channels along a run axis: z is (R, n, d), and run r uses channel r.

    `steps` and `weight_rule` of a call have one entry per run, or are shared by all. If all channels compose, their
    matrices are stacked and one batched product serves all runs; otherwise channels are called one by one.

    This is not `Simulated` with a run axis, because channels of different kinds (exact averages, unreliable links,
    ranks) may run side by side, and stacking them needs only their matrices.

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
            raise ValueError(f"avg: all averagings must have the same number of clients, got {sorted(clients)}")
        super().__init__(clients.pop(), channels[0].clients)
        self.channels = list(channels)
        self.last_step = max((c.last_step for c in channels if c.last_step is not None), default=None)
        self._stacked: bool | None = None  # decided by the first call
        self._omega = np.ones((len(self.channels), self.n))
        self._sent = Traffic.side_by_side([Traffic()] * len(self.channels))

    def _each(self, value: T | tuple[T, ...]) -> tuple[T, ...]:
        """One entry per run."""
        return value if isinstance(value, tuple) else (value,) * len(self.channels)

    def _prepare(self, z: Array, steps: Steps, weight_rule: Rules, divide: bool, count: int) -> PreparedCalls:
        S, rules = self._each(steps), self._each(weight_rule)
        if self._stacked is None:
            pairs = zip(self.channels, S, strict=True)
            self._stacked = all(channel.conserves_mass and channel.composes(z[0, ...], s) for channel, s in pairs)
        if not self._stacked:
            return CallsOneByOne(self.channels, z, steps, weight_rule, divide)
        count = min(count, calls_at_once(self.n, max(S), len(S)))
        for channel, s in zip(self.channels, S, strict=True):
            if channel.last_step is not None and channel.last_step - channel.step >= s:
                count = min(count, (channel.last_step - channel.step) // s)
        every = [channel.matrices(s, count) for channel, s in zip(self.channels, S, strict=True)]
        P, messages = (np.stack(parts, axis=1) for parts in zip(*every, strict=True))
        calls = ComposedCalls(P, messages, self._omega, z, S, rules, divide, "one of the networks", run_axis=True)
        calls.key = (steps, weight_rule, divide, z.shape, z.dtype)
        return calls

    @property
    def traffic(self) -> Traffic:
        return super().traffic + Traffic.side_by_side([c.traffic for c in self.channels])

    @property
    def step(self) -> Any:  # type: ignore[override]
        """The position of every channel, (R,)."""
        stacked = isinstance(self._calls, ComposedCalls)
        used = [self._calls.used * s for s in self._calls.steps] if stacked else 0  # type: ignore[union-attr]
        return np.array([channel.step for channel in self.channels]) + used

    def flush(self) -> None:
        calls = self._calls
        if calls is None:
            return
        self._omega, self._calls = self.omega, None
        self._sent += calls.traffic
        if isinstance(calls, ComposedCalls):
            for channel, S in zip(self.channels, self._each(calls.steps), strict=True):
                channel.advance(calls.used * S, WeightRule.RESET, calls.like)

    def advance(self, graphs: Steps, weight_rule: Rules, like: Array) -> None:
        self.flush()
        pairs = zip(self.channels, self._each(graphs), self._each(weight_rule), strict=True)
        for r, (channel, passed, rule) in enumerate(pairs):
            channel.advance(passed, rule, like[r, ...])
        self._omega = np.stack([channel.omega for channel in self.channels])

    def continue_weights(self, weights: Array) -> None:
        super().continue_weights(weights)
        for r, channel in enumerate(self.channels):
            channel.continue_weights(weights[r, ...])

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
        """Maxima of `values` (n, k) shared by all runs, (k,), or of (R, n, k) per run, (R, k)."""
        self.flush()
        of_run = np.broadcast_to(values, (len(self.channels), *values.shape[-2:]))
        top = np.stack([c.max_consensus(of_run[r], like[r, ...], max_rounds) for r, c in enumerate(self.channels)])
        return top if values.ndim == 3 else top[0]

    def check_client_ids(self, client_ids: np.ndarray) -> None:
        self.channels[0].check_client_ids(client_ids)

    def check_same_on_all_ranks(self, what: str, **settings: object) -> None:
        self.channels[0].check_same_on_all_ranks(what, **settings)

    def any_rank(self, flag: bool) -> bool:
        return self.channels[0].any_rank(flag)

    def max_over_clients(self, a: Array) -> np.ndarray:
        return self.channels[0].max_over_clients(a)

    def mean_over_clients(self, a: Array) -> Array:
        return self.channels[0].mean_over_clients(a)


class CallsOneByOne(PreparedCalls):
    """Calls of several channels, one channel after the other."""

    count = math.inf

    def __init__(self, channels: list[Channel], like: Array, steps: Steps, weight_rule: Rules, divide: bool) -> None:
        super().__init__(like, steps, weight_rule, divide)
        self.channels = channels

    def __call__(self, z: Array) -> Array:
        rows = []
        for r, channel in enumerate(self.channels):
            S = self.steps[r] if isinstance(self.steps, tuple) else self.steps
            rule = self.weight_rule[r] if isinstance(self.weight_rule, tuple) else self.weight_rule
            rows.append((channel.average if self.divide else channel.mix)(z[r, ...], S, rule))
        self.used += 1
        return array_namespace(z).stack(rows)

    @property
    def weights(self) -> Array:
        xp = array_namespace(self.like)
        each = [channel.weights for channel in self.channels]
        return xp.stack([xp.ones_like(self.like[r, :, :1]) if w is None else w for r, w in enumerate(each)])

    @property
    def omega(self) -> np.ndarray:
        return np.stack([channel.omega for channel in self.channels])

    @property
    def traffic(self) -> Traffic:
        return Traffic()  # the channels count
