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


class Flooded:
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

    def anyone(self, flag: bool) -> bool:
        """Whether some process says so."""
        return flag

    def everybody(self, flags: np.ndarray) -> np.ndarray:
        """The flags of all clients, (n,), from those of the clients here."""
        return flags


class LateFlooded(Flooded):
    """The same where messages are lost or late."""

    net: Unreliable

    def __init__(self, net: Unreliable) -> None:
        super().__init__(net)
        self.underway: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # by the step at which it arrives

    def hear(self, s: int, held: np.ndarray) -> tuple[np.ndarray, int]:
        indptr, senders, _, late = self.net.links(s)
        receivers = np.repeat(np.arange(self.net.n), np.diff(indptr))
        for q in np.unique(late[late >= 0]).tolist():
            which = late == q
            self.underway.setdefault(s + q, []).append((receivers[which], held[senders[which]]))
        heard = held.copy()
        for to, values in self.underway.pop(s, []):
            np.maximum.at(heard, to, values)
        return heard, messages_of(self.net, indptr, senders)


def flood_max(
    net: Network | None,
    values: np.ndarray,
    first_step: int,
    max_rounds: int | None = None,
    around: Flooded | None = None,
) -> tuple[np.ndarray, int, int]:
    """(maxima (k,), rounds, messages) of the rows of `values` (n, k), over graphs first_step, first_step + 1, …

    `net` None stands for everybody hearing everybody. ValueError if the maxima do not reach all clients within
    `max_rounds` (default: the larger of 1000 and 2n), or in a whole period of a periodic network without any progress.
    """
    n = len(values) if net is None else net.n
    if net is None or n == 1:
        return values.max(axis=0), min(1, n - 1), n * (n - 1)
    if around is None:
        around = LateFlooded(net) if isinstance(net, Unreliable) and not net.in_time else Flooded(net)
    limit = max(1000, 2 * n) if max_rounds is None else max_rounds
    messages, stalled = 0, 0
    held = np.ascontiguousarray(values, dtype=np.float64)
    top = around.top(held)
    for rounds in range(limit + 1):
        behind = np.any(held != top, axis=1)
        if not around.anyone(bool(behind.any())):
            return top, rounds, messages
        if net.period is not None and stalled >= net.period:
            break
        heard, carried = around.hear(first_step + rounds, held)
        messages += carried
        stalled = 0 if around.anyone(not np.array_equal(heard, held)) else stalled + 1
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
