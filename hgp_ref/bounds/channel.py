"""The network as clients use it for a certificate: averaging calls and flooding on successive graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref.averaging import Traffic
from hgp_ref.backend import from_host, host_dtype, to_host
from hgp_ref.channels.flooding import flood_max


class Channel:
    """The network as the clients use it: averaging calls and flooding, one after the other on successive graphs."""

    def __init__(self, avg: Any, first_call: int, like: Any, max_rounds: int | None) -> None:
        self.avg, self.like, self.max_rounds = avg, like, max_rounds
        self.step = first_call * avg.steps + 1  # next graph to be used
        self.traffic = Traffic()

    def average(self, *parts: np.ndarray) -> np.ndarray:
        """Push-Sum outputs of the columns of `parts` side by side, (n, k)."""
        u = np.concatenate([p.reshape(len(p), -1) for p in parts], axis=1).astype(host_dtype(self.like))
        call = -(-(self.step - 1) // self.avg.steps)  # the first whole call among graphs not used yet
        before = self.avg.ledger
        found = to_host(self.avg.apply(from_host(u, like=self.like), call=call)).astype(np.float64)
        sent = self.avg.ledger
        self.traffic += Traffic(
            sent.messages - before.messages,
            sent.floats - before.floats,
            sent.bytes - before.bytes,
            sent.rounds - before.rounds,
        )
        self.step = (call + 1) * self.avg.steps + 1
        return found

    def largest(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Maxima over all clients of each of `parts` (n,) or (n, k), exact."""
        flat = [p.reshape(len(p), -1) for p in parts]
        top, rounds, messages = flood_max(self.avg.net, np.concatenate(flat, axis=1), self.step, self.max_rounds)
        self.step += rounds
        self.traffic += Traffic.of(messages, len(top), host_dtype(self.like).itemsize, rounds)
        return np.split(top, np.cumsum([p.shape[1] for p in flat])[:-1])
