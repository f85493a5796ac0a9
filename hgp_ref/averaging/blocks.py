"""A block of successive calls of an averaging, prepared for the device of the array it will meet.

Graphs are drawn on the host. A block draws those of many calls at once and takes them to the device in one transfer;
the iteration then asks `block.apply(m, u)` for m = 0, 1, ... within the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hgp_ref._kernels.mixing import empty_like, padded_rows, pull_step, pull_vector_step, push_step, push_vector_step
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype
from hgp_ref.networks import Network


class Block(Protocol):
    """Calls m = 0 .. count-1 of one averaging, or of several along a leading run axis."""

    def apply(self, m: int, u: Array) -> Array:
        """Θ̂_m u, for u of shape (..., n, d)."""

    def restart(self, m: int) -> Array | None:
        """What multiplies ū where the next iterate starts: None for 1, else the kept weights ω (..., n, 1)."""

    def messages(self, m: int) -> int | np.ndarray:
        """How many edges that are not self-loops call m used (an array along the run axis)."""


class MatrixBlock:
    """Composed calls: Θ̂_m is one (n, n) matrix, or (runs, n, n), and touches u once whatever the number of steps."""

    def __init__(self, K: np.ndarray, restart: np.ndarray | None, messages: np.ndarray, like: Array) -> None:
        dtype = host_dtype(like)
        self._K = from_host(np.ascontiguousarray(K, dtype=dtype), like=like)  # (count, [runs,] n, n)
        self._restart = None if restart is None else from_host(restart.astype(dtype)[..., None], like=like)
        self._messages = messages

    def apply(self, m: int, u: Array) -> Array:
        return self._K[m, ...] @ u

    def restart(self, m: int) -> Array | None:
        return None if self._restart is None else self._restart[m, ...]

    def messages(self, m: int) -> int | np.ndarray:
        return self._messages[m]


class MeanBlock:
    """The exact mean over clients."""

    def __init__(self, n: int) -> None:
        self.n = n

    def apply(self, m: int, u: Array) -> Array:
        xp = array_namespace(u)
        return xp.broadcast_to(xp.mean(u, axis=-2, keepdims=True), u.shape) + xp.zeros_like(u)

    def restart(self, m: int) -> Array | None:
        return None

    def messages(self, m: int) -> int:
        return self.n * (self.n - 1)


class HostSteppingBlock:
    """Calls that step through sparse graphs drawn one by one, on NumPy arrays: nothing larger than u is kept.

    `omega` is Push-Sum's weight before the block's first call, None where nothing is divided (doubly stochastic).
    Unless `debias` is "reset" the weights go on from call to call, so calls are to be asked in order.
    """

    def __init__(self, net: Network, steps: int, first: int, omega: np.ndarray | None, debias: str) -> None:
        self.net, self.steps, self.first = net, steps, first
        self.omega, self.debias = omega, debias
        self._sent = 0
        self._restart: np.ndarray | None = None

    def apply(self, m: int, u: np.ndarray) -> np.ndarray:
        omega = self.omega
        folded = np.moveaxis(u, -2, 0)  # (n, ..., d): leading axes join the columns
        z = np.ascontiguousarray(folded).reshape(self.net.n, -1)
        free: np.ndarray | None = None  # what the step before the last left
        self._sent = 0
        for s in _steps_of_call(self.first + m, self.steps):
            out = empty_like(z) if free is None else free
            edges, omega = _mix(self.net, s, z, out, omega)
            z, free = out, None if np.may_share_memory(z, u) else z
            self._sent += edges - self.net.n
        if omega is not None:
            divisor = omega.astype(u.dtype)[:, None]
            z /= divisor
            self._restart = divisor if self.debias == "conserve" else None
        if self.debias != "reset":
            self.omega = omega
        return np.moveaxis(z.reshape(folded.shape), 0, -2)

    def restart(self, m: int) -> np.ndarray | None:
        return self._restart

    def messages(self, m: int) -> int:
        return self._sent


class DeviceSteppingBlock:
    """Calls that step through sparse graphs on any library: rows padded to equal width, then take and add only.

    The graphs of all calls of the block go to the device in one transfer each for senders, weights and divisors.
    """

    def __init__(
        self, net: Network, steps: int, first: int, count: int, omega: np.ndarray | None, debias: str, like: Array
    ) -> None:
        graphs = [[net.csr(s) for s in _steps_of_call(first + c, steps)] for c in range(count)]
        self._sent = [sum(g[1].size - net.n for g in call) for call in graphs]
        self.width = max(int(np.diff(g[0]).max()) for call in graphs for g in call)
        rows = [[padded_rows(*g, self.width) for g in call] for call in graphs]
        dtype = host_dtype(like)
        self._senders = from_host(np.stack([[r[0] for r in call] for call in rows]), like=like)  # (count, S, n, width)
        self._weights = from_host(np.stack([[r[1] for r in call] for call in rows]).astype(dtype), like=like)
        self._divisors, self.debias = None, debias
        if omega is not None:
            reset = debias == "reset"
            divisors = [_carried([call], omega)[0] for call in graphs] if reset else _carried(graphs, omega)
            self._divisors = from_host(np.stack(divisors).astype(dtype)[..., None], like=like)  # (count, n, 1)

    def apply(self, m: int, u: Array) -> Array:
        xp = array_namespace(u)
        for s in range(self._senders.shape[1]):
            total = xp.zeros_like(u)
            for k in range(self.width):
                total = total + self._weights[m, s, :, k][:, None] * xp.take(u, self._senders[m, s, :, k], axis=-2)
            u = total
        return u if self._divisors is None else u / self._divisors[m, ...]

    def restart(self, m: int) -> Array | None:
        return self._divisors[m, ...] if self._divisors is not None and self.debias == "conserve" else None

    def messages(self, m: int) -> int:
        return self._sent[m]


def _mix(
    net: Network, s: int, z: np.ndarray, out: np.ndarray, omega: np.ndarray | None
) -> tuple[int, np.ndarray | None]:
    """out = W_s z; the number of edges, and W_s ω."""
    if net.equal_shares:
        lists = net.out_lists(s)
        push_step(*lists, z, out)
        return lists[1].size, None if omega is None else push_vector_step(*lists, omega)
    graph = net.csr(s)
    pull_step(*graph, z, out)
    return graph[1].size, None if omega is None else pull_vector_step(*graph, omega)


def mix_weights(net: Network, s: int, omega: np.ndarray) -> np.ndarray:
    """W_s ω for Push-Sum's weights ω."""
    if net.equal_shares:
        return push_vector_step(*net.out_lists(s), omega)
    return pull_vector_step(*net.csr(s), omega)


def _steps_of_call(call: int, steps: int) -> range:
    return range(call * steps + 1, (call + 1) * steps + 1)


def _carried(calls: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]], omega: np.ndarray) -> list[np.ndarray]:
    """ω after each of the calls, stepping through their graphs."""
    after = []
    for call in calls:
        for graph in call:
            omega = pull_vector_step(*graph, omega)
        after.append(omega)
    return after


class RunsBlock:
    """Several blocks side by side, one along each entry of a leading run axis."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks

    def apply(self, m: int, u: Array) -> Array:
        return array_namespace(u).stack([b.apply(m, u[r, ...]) for r, b in enumerate(self.blocks)])

    def restart(self, m: int) -> Array | None:
        parts = [b.restart(m) for b in self.blocks]
        if all(part is None for part in parts):
            return None
        like = next(part for part in parts if part is not None)
        xp = array_namespace(like)
        return xp.stack([xp.ones_like(like) if part is None else part for part in parts])

    def messages(self, m: int) -> np.ndarray:
        return np.array([b.messages(m) for b in self.blocks])
