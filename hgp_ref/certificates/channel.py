"""The network as clients use it for a certificate: averaging calls and flooding on successive graphs."""

from __future__ import annotations

import numpy as np

from hgp_ref.averaging import Averaging, Traffic
from hgp_ref.backend import Array, from_host, host_dtype, to_host
from hgp_ref.certificates.flooding import flood_max


class Channel:
    """`average` and `largest`, one after the other on graphs not used before, and the `traffic` of both."""

    def __init__(self, avg: Averaging, first_call: int, like: Array, max_rounds: int | None = None) -> None:
        self.avg, self.like, self.max_rounds = avg, like, max_rounds
        self.step = first_call * avg.steps + 1  # next graph to be used
        self.traffic = Traffic()

    def average(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Push-Sum outputs of `parts`, (n,) or (n, k) each, in one call; (n, 1) or (n, k) each."""
        flat = [p.reshape(len(p), -1) for p in parts]
        u = np.concatenate(flat, axis=1).astype(host_dtype(self.like))
        call = -(-(self.step - 1) // self.avg.steps)  # the first whole call among graphs not used yet
        before = self.avg.ledger
        averaged = to_host(self.avg.apply(from_host(u, like=self.like), call=call)).astype(np.float64)
        sent = self.avg.ledger
        self.traffic += Traffic(
            sent.messages - before.messages,
            sent.floats - before.floats,
            sent.bytes - before.bytes,
            sent.rounds - before.rounds,
        )
        self.step = (call + 1) * self.avg.steps + 1
        return np.split(averaged, _ends(flat), axis=1)

    def largest(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Maxima over all clients of each of `parts` (n,) or (n, k), exact; (1,) or (k,) each."""
        flat = [p.reshape(len(p), -1) for p in parts]
        top, rounds, messages = flood_max(self.avg.net, np.concatenate(flat, axis=1), self.step, self.max_rounds)
        self.step += rounds
        self.traffic += Traffic.of(messages, len(top), host_dtype(self.like).itemsize, rounds)
        return np.split(top, _ends(flat))

    def rounding(self) -> float:
        """Rounding of `average` relative to the largest of what it averages.

        S steps of sums over at most n clients, for values and weights: 2 S (n + 2) eps/2; one more of each where the
        steps are composed first; columns of mixing matrices that sum to 1 up to n eps/2, S times and for both; the
        division. Together at most 2 (S + 1)(n + 2) eps.
        """
        eps = float(np.finfo(host_dtype(self.like)).eps)
        return 2 * (self.avg.steps + 1) * (self.avg.n + 2) * eps


def _ends(flat: list[np.ndarray]) -> np.ndarray:
    """Where each part ends but the last."""
    return np.cumsum([p.shape[1] for p in flat])[:-1]
