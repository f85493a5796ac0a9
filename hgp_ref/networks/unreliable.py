"""Unreliable: links that lose and delay messages, and clients that sleep.

At step s client j sends the share W_s[i, j] of its value to client i. The message is lost with probability `loss`.
Otherwise it arrives at the end of step s + q, q uniform on 0 .. delay. A sleeping client sends nothing, and nobody
sends to it. What would go there remains with the sender, so that weights do not accumulate at sleeping clients:

    W_s[i, j] = 0 if i ≠ j and one of them sleeps,   W_s[j, j] = 1 − Σ_{i ≠ j} W_s[i, j].

Messages sent before a client fell asleep still arrive. Self-loops are neither lost nor delayed. Loss and delay are pure
functions of (seed, step, edge), sleep of (seed, interval of steps, client).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hgp_ref import philox, validation
from hgp_ref._kernels import links
from hgp_ref._kernels.cuda import DeviceRule, Sleepers
from hgp_ref._kernels.graphs import Csr, rows_from_lists
from hgp_ref.networks.base import Edges, Network, ShiftedNetwork
from hgp_ref.philox import MAX_STEP
from hgp_ref.validation import Count, Instance, Probability, Seed, checked

SCALE = 2**32

Intervals = tuple[tuple[int, int, int], ...]


@checked(net=Instance(Network), loss=Probability(), delay=Count(0), seed=Seed(), stretch=Count(1))
class Unreliable(Network):
    """The graphs of `net` over links that lose and delay messages, with clients that sleep.

    `edges`, `csr`, `mixing_matrix` and the other methods of a network describe what is sent. `delays` gives the loss
    and delay of each message, `asleep` the sleeping clients, and `delivered_edges` the edges whose messages arrive.
    All depend on the step of the original network: `Unreliable(net.after(t), ...)` is `Unreliable(net, ...).after(t)`.

    Parameters
    ----------
    net : any network but an Unreliable one.
    loss : probability that a message is lost, a multiple of 2⁻³².
    delay : messages that are not lost are delayed by 0 .. delay steps, with equal probability.
    sleep : probability that a client sleeps; or a list of (client, first step, last step).
    seed : of loss, delay and sleep.
    stretch : with a probability, clients sleep for whole intervals of so many steps: step s belongs to interval
        (s − 1 + b_j) div stretch of client j, with a random offset b_j for each client.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> net = hgp.networks.Unreliable(hgp.networks.RandomOut(n=4, k=1, seed=1), loss=0.2, delay=2, seed=3)
    >>> net.delays(5).tolist()  # one for each edge of net.csr(5): steps late, -1 if lost
    [0, 1, -1, 0, 0, 1, 1, 0]
    """

    def __init__(
        self,
        net: Network,
        loss: float = 0.1,
        delay: int = 3,
        sleep: float | Sequence[tuple[int, int, int]] = 0.0,
        seed: int = 0,
        stretch: int = 1,
    ) -> None:
        self.net, self._offset = _without_view(net)
        super().__init__(self.net.n, seed)
        self.loss, self.delay, self.stretch = loss, delay, stretch
        self.sleep = _sleep_intervals(sleep, self.n) if _listed(sleep) else validation.probability("sleep", sleep)
        self.equal_shares, self.self_loops = self.net.equal_shares and not self.sleep, self.net.self_loops
        self.nodes = self.net.nodes
        self.is_reliable = self.loss == 0 and self.delay == 0
        self.period = self.net.period if self.is_reliable and not self.sleep else None
        self._key = philox.key(seed)

    @property
    def rule(self) -> tuple[Any, ...]:
        """The arguments of `_kernels.links` that describe loss and delay."""
        return philox.LINKS, *self._key, _threshold(self.loss), np.uint64(self.delay + 1)

    @property
    def expected_edges(self) -> float:
        awake = 1.0 - self.sleep if isinstance(self.sleep, float) else 1.0
        return self.n + (self.net.expected_edges - self.n) * awake**2

    def after(self, t: int) -> Unreliable:
        t = validation.integer("t", t, 0, MAX_STEP - 1 - self._offset)
        view = copy.copy(self)
        view._offset = self._offset + t
        return view if t else self

    def asleep(self, s: int) -> np.ndarray:
        """Which clients sleep at step s, (n,) booleans."""
        step, out = self._step(s), np.zeros(self.n, dtype=np.bool_)
        if not isinstance(self.sleep, float):
            out[[client for client, first, last in self.sleep if first <= step <= last]] = True
        elif self.sleep > 0:
            rule = (np.uint64(self.stretch), philox.SLEEP, *self._key, _threshold(self.sleep))
            links.asleep_at(step, *rule, out)
        return out

    def delays(self, s: int) -> np.ndarray:
        """The delay of the message of each edge of csr(s), in steps, int64; −1 if it is lost, 0 for self-loops."""
        indptr, senders, _ = self.csr(s)
        return self._delays(s, indptr, senders)

    def links(self, s: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """csr(s) and delays(s) together: (indptr, senders, weights, delays)."""
        graph = self.csr(s)
        return *graph, self._delays(s, *graph[:2])

    def _delays(self, s: int, indptr: np.ndarray, senders: np.ndarray) -> np.ndarray:
        delays = np.empty(senders.size, dtype=np.int64)
        links.message_delays(indptr, senders, self._step(s), *self.rule, delays)
        return delays

    def csr(self, s: int) -> Csr:
        graph, asleep = self.net.csr(self._step(s)), self.asleep(s)
        return links.keep_from_sleepers(*graph, asleep) if asleep.any() else graph

    def out_adjacency(self, s: int) -> Edges:
        if not self.asleep(s).any():
            return self.net.out_adjacency(self._step(s))
        indptr, receivers, _ = rows_from_lists(*self.csr(s)[:2], 1.0)
        return indptr, receivers

    def device_sampler(self) -> DeviceRule | None:
        graphs = self.net.device_sampler() if type(self) is Unreliable else None
        if graphs is None or isinstance(graphs, Sleepers) or not self.sleep:
            return graphs
        threshold, intervals = (_threshold(self.sleep), ()) if isinstance(self.sleep, float) else (0, self.sleep)
        listed = np.array(intervals, dtype=np.int64).reshape(-1, 3)
        return Sleepers(graphs, listed, int(threshold), self.stretch, philox.SLEEP, self._key)

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        W = self.net.mixing_matrices(*self._steps(first, count))
        if self.sleep:
            W = W.copy()
            for k in range(len(W)):
                links.keep_from_sleepers_dense(W[k], self.asleep(first + k))
        return W

    def delivered_edges(self, first: int, count: int) -> Edges:
        self._steps(first, validation.integer("count", count, 0, validation.LONGEST))
        pairs = [np.empty((2, 0), dtype=np.int64)]
        for s in range(first, first + count):
            indptr, senders, _, delays = self.links(s)
            arrives = delays >= 0
            receivers = np.repeat(np.arange(self.n, dtype=np.int64), np.diff(indptr))
            pairs.append(np.stack([senders[arrives], receivers[arrives]]))
        both = np.concatenate(pairs, axis=1)
        return both[0], both[1]

    def _layout(self) -> tuple[np.ndarray, tuple[float, float] | None]:
        return self.net._layout()

    def _arguments(self) -> dict[str, Any]:
        sleep = self.sleep if isinstance(self.sleep, float) else list(self.sleep)
        arguments = {"net": self.net, "loss": self.loss, "delay": self.delay, "sleep": sleep, "seed": self.seed}
        return arguments if self.stretch == 1 else arguments | {"stretch": self.stretch}

    def __repr__(self) -> str:
        return super().__repr__() + (f".after({self._offset})" if self._offset else "")


def _without_view(net: Network) -> tuple[Network, int]:
    """The original of a view `net.after(t)`, and t."""
    if net.clients != slice(0, net.n):
        raise ValueError(
            f"net must be a network that is not distributed, got {net!r}; make it Unreliable first, then spread that"
        )
    inner, t = (net.net, net._offset) if isinstance(net, ShiftedNetwork) else (net, 0)
    if isinstance(inner, Unreliable):
        raise ValueError(
            f"net must not be Unreliable itself, got {net!r}; specify loss, delay and sleep once (losses p and q "
            "combine to p + q − pq)"
        )
    return inner, t


def _threshold(p: float) -> np.uint64:
    """p · 2³²: 32 random bits are below it with probability p; exact for 0 and 1."""
    return np.uint64(min(max(round(p * SCALE), p > 0), SCALE - (p < 1)))


def _listed(sleep: object) -> bool:
    return isinstance(sleep, Iterable) and not isinstance(sleep, str | bytes) and getattr(sleep, "ndim", 1) > 0


def _sleep_intervals(sleep: Any, n: int) -> Intervals:
    """`sleep` as a tuple of (client, first step, last step)."""
    read = []
    for k, interval in enumerate(sleep):
        if not _listed(interval) or len(interval) != 3:
            raise ValueError(f"sleep[{k}] must be (client, first step, last step), got {interval!r}")
        client = validation.integer(f"sleep[{k}]: client", interval[0], 0, n - 1)
        first = validation.integer(f"sleep[{k}]: first step", interval[1], 1, MAX_STEP)
        read.append((client, first, validation.integer(f"sleep[{k}]: last step", interval[2], first, MAX_STEP)))
    return tuple(read)
