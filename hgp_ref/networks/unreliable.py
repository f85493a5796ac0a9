"""Unreliable: a network whose links lose messages and deliver late, and whose clients sleep.

At step s client j sends P(s)[i, j] of what it has to client i. That message is lost with probability `loss`, and
otherwise arrives at the end of step s + q, q uniform on 0 .. delay. A client asleep sends nothing, and nobody sends to
it: what would have gone there stays with the sender, so that the weight of all does not pile up with those who sleep,

    P(s)[i, j] = 0 if i ≠ j and one of them sleeps,   P(s)[j, j] = 1 - Σ_{i ≠ j} P(s)[i, j].

Messages that were sent before it fell asleep still arrive. What a client keeps for itself is neither lost nor late. All
this is a pure function of (seed, step, edge) and of (seed, stretch of steps, client).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hgp_ref import philox, validation
from hgp_ref._kernels import links
from hgp_ref._kernels.graphs import Csr, rows_from_lists
from hgp_ref.networks.base import Edges, Network, ShiftedNetwork
from hgp_ref.philox import MAX_STEP
from hgp_ref.validation import Count, Instance, Probability, Seed, checked

SCALE = 2**32

Naps = tuple[tuple[int, int, int], ...]


@checked(net=Instance(Network), loss=Probability(), delay=Count(0), seed=Seed(), stretch=Count(1))
class Unreliable(Network):
    """The graphs of `net`, with messages that are lost or late and clients that sleep.

    What the methods of every network tell (`edges`, `csr`, `mixing_matrix`, ...) is what is sent; `delays` tells what
    becomes of it, `asleep` who sleeps, and `delivered_edges` over which edges something arrives. The fates of messages
    follow the clock of the network itself: `Unreliable(net.after(t), ...)` is `Unreliable(net, ...).after(t)`.

    Parameters
    ----------
    net : the network that is meant, any but an Unreliable one.
    loss : probability that a message is lost, in multiples of 2^-32.
    delay : a message that is not lost is late by 0 .. delay steps, all equally probable.
    sleep : probability that a client sleeps; or who sleeps when, a list of (client, first step, last step).
    seed : of losses, delays and sleep.
    stretch : with a probability, clients sleep for whole stretches of so many steps: step s belongs to stretch
        (s - 1 + b_j) div stretch of client j, which begins its stretches b_j steps earlier, drawn once for each client.

    Raises
    ------
    TypeError, ValueError
        `loss` and `sleep` must be probabilities (or `sleep` stretches of steps), `delay` an integer ≥ 0.

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
        self.net, self.t = _without_view(net)
        super().__init__(self.net.n, seed)
        self.loss, self.delay, self.stretch = loss, delay, stretch
        self.sleep = _naps(sleep, self.n) if _listed(sleep) else validation.probability("sleep", sleep)
        self.equal_shares, self.self_loops = self.net.equal_shares and not self.sleep, self.net.self_loops
        self.period = self.net.period if self.is_reliable and not self.sleep else None
        self._key = philox.key(seed)

    @property
    def is_reliable(self) -> bool:
        return self.loss == 0 and self.delay == 0

    @property
    def rule(self) -> tuple[Any, ...]:
        """What kernels of `_kernels.links` need to know of losses and delays."""
        return philox.LINKS, *self._key, _threshold(self.loss), np.uint64(self.delay + 1)

    @property
    def expected_edges(self) -> float:
        awake = 1.0 - self.sleep if isinstance(self.sleep, float) else 1.0
        return self.n + (self.net.expected_edges - self.n) * awake**2

    def after(self, t: int) -> Unreliable:
        t = validation.integer("t", t, 0, self._last_step - 1)
        view = copy.copy(self)
        view.t = self.t + t
        return view if t else self

    def asleep(self, s: int) -> np.ndarray:
        """(n,) booleans: who sleeps at step s.

        Parameters
        ----------
        s : the step, from 1.

        Returns
        -------
        (n,) booleans.
        """
        step, out = self._at(s), np.zeros(self.n, dtype=np.bool_)
        if not isinstance(self.sleep, float):
            out[[client for client, first, last in self.sleep if first <= step <= last]] = True
        elif self.sleep > 0:
            rule = (np.uint64(self.stretch), philox.SLEEP, *self._key, _threshold(self.sleep))
            links.asleep_at(step, *rule, out)
        return out

    def delays(self, s: int) -> np.ndarray:
        """By how many steps the message of each edge of csr(s) is late, int64; -1 if it is lost, 0 for self-loops.

        Parameters
        ----------
        s : the step, from 1.

        Returns
        -------
        (edges,) int64.
        """
        indptr, senders, _ = self.csr(s)
        return self._delays(s, indptr, senders)

    def links(self, s: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """csr(s) and delays(s) together: (indptr, senders, weights, delays).

        Parameters
        ----------
        s : the step, from 1.

        Returns
        -------
        (indptr, senders, weights, delays).
        """
        graph = self.csr(s)
        return *graph, self._delays(s, *graph[:2])

    def _delays(self, s: int, indptr: np.ndarray, senders: np.ndarray) -> np.ndarray:
        late = np.empty(senders.size, dtype=np.int64)
        links.message_delays(indptr, senders, self._at(s), *self.rule, late)
        return late

    def csr(self, s: int) -> Csr:
        graph, asleep = self.net.csr(self._at(s)), self.asleep(s)
        return links.keep_from_sleepers(*graph, asleep) if asleep.any() else graph

    def out_adjacency(self, s: int) -> Edges:
        if not self.asleep(s).any():
            return self.net.out_adjacency(self._at(s))
        indptr, receivers, _ = rows_from_lists(*self.csr(s)[:2], 1.0)
        return indptr, receivers

    def mixing_matrices(self, first: int, count: int) -> np.ndarray:
        first, count = self._stretch(first, count)
        W = self.net.mixing_matrices(self.t + first, count)
        if self.sleep:
            W = W.copy()
            for k in range(count):
                links.keep_from_sleepers_dense(W[k], self.asleep(first + k))
        return W

    def delivered_edges(self, first: int, count: int) -> Edges:
        first, count = self._stretch(first, validation.integer("count", count, 0, validation.LONGEST))
        pairs = [np.empty((2, 0), dtype=np.int64)]
        for s in range(first, first + count):
            indptr, senders, _, late = self.links(s)
            arrives = late >= 0
            receivers = np.repeat(np.arange(self.n, dtype=np.int64), np.diff(indptr))
            pairs.append(np.stack([senders[arrives], receivers[arrives]]))
        both = np.concatenate(pairs, axis=1)
        return both[0], both[1]

    @property
    def _last_step(self) -> int:
        return MAX_STEP - self.t

    def _at(self, s: int) -> int:
        return self.t + self._step(s)

    def _arguments(self) -> dict[str, Any]:
        sleep = self.sleep if isinstance(self.sleep, float) else list(self.sleep)
        given = {"net": self.net, "loss": self.loss, "delay": self.delay, "sleep": sleep, "seed": self.seed}
        return given if self.stretch == 1 else given | {"stretch": self.stretch}

    def __repr__(self) -> str:
        return super().__repr__() + (f".after({self.t})" if self.t else "")


def _without_view(net: Network) -> tuple[Network, int]:
    """The network behind `net`, and how many of its steps have passed."""
    if net.clients != slice(0, net.n):
        raise ValueError(
            f"net={net!r} given, needed a network all of whose clients are in this process: make "
            "it Unreliable first, then spread that"
        )
    inner, t = (net.net, net.t) if isinstance(net, ShiftedNetwork) else (net, 0)
    if isinstance(inner, Unreliable):
        raise ValueError(
            f"net={net!r} given, needed a network that is not Unreliable itself: give loss, delay and sleep once "
            "(two losses p and q are one of p + q - pq)"
        )
    return inner, t


def _threshold(p: float) -> np.uint64:
    """p · 2^32, so that a 32-bit word is below it with probability p; 0 and 1 are meant exactly."""
    return np.uint64(min(max(round(p * SCALE), p > 0), SCALE - (p < 1)))


def _listed(sleep: object) -> bool:
    return isinstance(sleep, Iterable) and not isinstance(sleep, str | bytes) and getattr(sleep, "ndim", 1) > 0


def _naps(sleep: Any, n: int) -> Naps:
    """Who sleeps when, as a tuple of (client, first, last)."""
    read = []
    for k, nap in enumerate(sleep):
        if not _listed(nap) or len(nap) != 3:
            raise ValueError(f"sleep[{k}]={nap!r} given, needed (client, first step, last step)")
        client = validation.integer(f"sleep[{k}]: client", nap[0], 0, n - 1)
        first = validation.integer(f"sleep[{k}]: first step", nap[1], 1, MAX_STEP)
        read.append((client, first, validation.integer(f"sleep[{k}]: last step", nap[2], first, MAX_STEP)))
    return tuple(read)
