"""All clients in one process: graphs are composed or stepped through, whichever is cheaper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, host_dtype, is_numpy
from hgp_ref.channels.base import CARRIED, FRESH, Channel, Weights, connect
from hgp_ref.channels.calls import PreparedCalls
from hgp_ref.channels.composed import ComposedCalls
from hgp_ref.channels.flooding import flood_max
from hgp_ref.channels.products import composing_pays, products
from hgp_ref.channels.stepping import DeviceCalls, HostCalls, step_weights
from hgp_ref.channels.traffic import Traffic
from hgp_ref.networks import Network

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
    >>> channel = hgp.channels.Simulated(hgp.networks.FullyConnected(2))
    >>> channel.n
    2
    """

    def __init__(self, net: Network, mode: str = "auto") -> None:
        super().__init__(net.n)
        self.net, self.mode = net, arguments.choice("mode", mode, MODES)
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

    def mix(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        return self._call(z, steps, weights, False)

    def average(self, z: Array, steps: int, weights: Weights = FRESH) -> Array:
        return self._call(z, steps, weights, True)

    def _call(self, z: Array, steps: int, weights: Weights, divide: bool) -> Array:
        calls = self._calls
        if calls is None or not calls.serves(z, steps, weights, divide):
            calls = self._prepare(z, steps, weights, divide)
        mixed = calls(z)
        self.step += steps
        self._made += self._made < len(self._ahead) and self._ahead[self._made] == steps
        return mixed

    def _prepare(self, z: Array, steps: int, weights: Weights, divide: bool) -> PreparedCalls:
        self.settle()
        self._closed = None
        if self.composes(z, steps, weights):
            ahead = self.upcoming(steps, calls_at_once(self.n))
            P, messages = self.matrices(ahead)
            self._calls = ComposedCalls(P, messages, self._omega, ahead, weights, z, divide, repr(self.net))
        else:
            self._calls = self._stepping(z, steps, weights, divide)
        return self._calls

    def _stepping(self, z: Array, steps: int, weights: Weights, divide: bool) -> PreparedCalls:
        """The next calls where they are not composed."""
        if is_numpy(z):
            ahead = self.upcoming(steps, MOST_CALLS)
            return HostCalls(self.net, self.step, self._omega, ahead, weights, z, divide)
        most = max(1, min(64, 2 * BLOCK_BYTES // (32 * steps * int(self.net.expected_edges))))
        ahead = self.upcoming(steps, most)
        alike = next((k for k, S in enumerate(ahead) if steps != S), len(ahead))
        return DeviceCalls(self.net, self.step, self._omega, ahead[:alike], weights, z, divide).take_over()

    def settle(self) -> None:
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

    def composes(self, z: Array, steps: int, weights: Weights = FRESH) -> bool:
        if self.mode != "auto":
            return self.mode == "composed"
        columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
        return composing_pays(self.net, steps, columns)

    def largest(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.settle()
        top, rounds, messages = flood_max(self.net, values, self.step + 1, max_rounds)
        self.step += rounds
        self._sent += Traffic.of(messages, values.shape[1], host_dtype(like).itemsize, rounds)
        return top

    def skip(self, graphs: int, weights: Weights, like: Array) -> None:
        self.settle()
        if weights == CARRIED:
            self._omega = step_weights(self.net, self.step, graphs, self._omega)
        self.step += graphs


@connect.register
def _(net: Network, mode: str = "auto") -> Channel:
    return Simulated(net, mode)
