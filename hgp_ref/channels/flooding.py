"""Maxima over all clients by flooding: exact, over the same directed graphs, without any weights.

In every round each client replaces its numbers by the largest among its own and those it hears. After R rounds
client i holds the maximum over everybody who can reach it along the graphs of these rounds in order; when that
is everybody for all i, each holds the maximum itself. Minima are maxima of negatives.

How many rounds that takes is found on the realised graphs: flooding goes on until every client holds the global
maximum. Clients cannot see that moment themselves; a deployment fixes any number of rounds that is at least as
large. Over links that lose and delay it is the same: a number that was lost is sent again in the next round, one that
is late is still some client's, so that the maximum is exact once it has reached everybody, after more rounds.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.channels.messages import messages_of
from hgp_ref.compiled import njit
from hgp_ref.networks import Network, Unreliable


def flood_max(
    net: Network | None, values: np.ndarray, first_step: int, max_rounds: int | None = None
) -> tuple[np.ndarray, int, int]:
    """(maxima (k,), rounds, messages) of the rows of `values` (n, k), over graphs first_step, first_step + 1, …

    `net` None stands for everybody hearing everybody. ValueError if the maxima do not reach all clients within
    `max_rounds` (default: the larger of 1000 and 2n), or in a whole period of a periodic network without any progress.
    """
    n = len(values)
    top = values.max(axis=0)
    if net is None or n == 1:
        return top, min(1, n - 1), n * (n - 1)
    limit = max(1000, 2 * n) if max_rounds is None else max_rounds
    hear = _Late(net) if isinstance(net, Unreliable) and not net.in_time else _InTime(net)
    messages, stalled = 0, 0
    held = np.ascontiguousarray(values, dtype=np.float64)
    for rounds in range(limit + 1):
        behind = np.any(held != top, axis=1)
        if not behind.any():
            return top, rounds, messages
        if net.period is not None and stalled >= net.period:
            break
        heard, sent = hear(first_step + rounds, held)
        messages += sent
        stalled = stalled + 1 if np.array_equal(heard, held) else 0
        held = heard
    missing = np.flatnonzero(behind)
    raise ValueError(
        f"max-consensus does not reach {len(missing)} of {n} clients (the first: {missing[:5].tolist()}) within "
        f"{rounds} rounds from step {first_step}: the graphs are not jointly strongly connected there, or max_rounds "
        "is too small"
    )


class _InTime:
    """What clients hold after a round in which every message arrives, and how many were sent."""

    def __init__(self, net: Network) -> None:
        self.net = net

    def __call__(self, step: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        indptr, senders, _ = self.net.csr(step)
        return _hear(indptr, senders, held), messages_of(self.net, indptr, senders)


class _Late:
    """The same where messages are lost or late."""

    def __init__(self, net: Unreliable) -> None:
        self.net = net
        self.underway: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # by the step at which it arrives

    def __call__(self, step: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        indptr, senders, _, late = self.net.links(step)
        receivers = np.repeat(np.arange(self.net.n), np.diff(indptr))
        for q in np.unique(late[late >= 0]).tolist():
            which = late == q
            self.underway.setdefault(step + q, []).append((receivers[which], held[senders[which]]))
        heard = held.copy()
        for to, values in self.underway.pop(step, []):
            np.maximum.at(heard, to, values)
        return heard, messages_of(self.net, indptr, senders)


@njit(cache=True, nogil=True)
def _hear(indptr, senders, held):
    """Row by row the largest of what a client holds and what it hears, (n, k)."""
    out = held.copy()
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = senders[e]
            for c in range(held.shape[1]):
                if held[j, c] > out[i, c]:
                    out[i, c] = held[j, c]
    return out
