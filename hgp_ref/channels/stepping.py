"""Calls that step through sparse graphs one by one: nothing larger than z is kept.

On NumPy arrays graphs are drawn as they are needed. On other libraries those of many calls are drawn together, padded
to rows of equal width and taken to the device in one transfer each for senders, shares and weights; a step is then
take and add only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref._kernels.mixing import empty_like, padded_rows, pull_step, pull_vector_step, push_step, push_vector_step
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype
from hgp_ref.channels.base import BALANCED, Weights
from hgp_ref.channels.calls import ForeseenCalls, PreparedCalls, check_balanced, check_heard, weights_before
from hgp_ref.channels.messages import messages_of
from hgp_ref.networks import Network
from hgp_ref.networks.base import Csr, Edges


class SteppingCalls(PreparedCalls):
    """Calls over the graphs of `net`, the first from graph step + 1 on; omega (n,) are the weights before it."""

    steps: Sequence[int]
    weights: Weights

    def __init__(
        self,
        net: Network,
        step: int,
        omega: np.ndarray,
        steps: Sequence[int],
        weights: Weights,
        like: Array,
        divide: bool,
    ) -> None:
        super().__init__(steps, weights, like, divide)
        self.net, self._step, self._omega = net, step, omega
        self.messages: list[int] = []


class HostCalls(SteppingCalls):
    """Calls on NumPy arrays."""

    def __call__(self, z: np.ndarray) -> np.ndarray:
        S = self.steps[self.used]
        omega = weights_before(self.weights, self._omega)
        folded = np.moveaxis(z, -2, 0)  # (n, ..., d): leading axes join the columns
        held = np.ascontiguousarray(folded).reshape(self.net.n, -1)
        free: np.ndarray | None = None  # what the step before the last has left
        sent = 0
        for s in range(self._step + 1, self._step + S + 1):
            out = empty_like(held) if free is None else free
            messages, omega = mix(self.net, s, held, out, omega)
            held, free = out, None if np.may_share_memory(held, z) else held
            sent += messages
        if self.weights is BALANCED:
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
            omega = weights_before(self.weights, omega)
            for graph in call:
                omega = pull_vector_step(*graph, omega)
            if self.weights is BALANCED:
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
        return z / self.weights_now() if self.divide and self.weights is not BALANCED else z


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
