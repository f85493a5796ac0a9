"""Unreliable links simulated message by message, with the totals σ and ρ themselves: no delivery times, no matrices."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hgp_ref.networks import Unreliable

Edge = tuple[int, int]  # receiver, sender


@dataclass
class Links:
    """What clients hold (rows, with the weight as last column) and every message that is in flight."""

    net: Unreliable
    rows: np.ndarray  # (n, d + 1)
    robust: bool
    step: int = 0
    sent: int = 0
    sigma: dict[Edge, np.ndarray] = field(default_factory=dict)  # totals at the sender
    rho: dict[Edge, np.ndarray] = field(default_factory=dict)  # the last total at the receiver
    mail: list[tuple[int, Edge, np.ndarray]] = field(default_factory=list)  # arrival, edge, what is written in it

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            self._send()
            self._receive()

    def _send(self) -> None:
        W, indptr, senders = self.net.mixing_matrix(self.step), *self.net.csr(self.step)[:2]
        late = self.net.delays(self.step)
        before, self.rows = self.rows, (np.diag(W)[:, None] * self.rows).astype(self.rows.dtype)
        for i in range(self.net.n):
            for e in range(indptr[i], indptr[i + 1]):
                j = int(senders[e])
                if i != j:
                    self.sent += 1
                    share = (W[i, j] * before[j]).astype(before.dtype)
                    self.sigma[i, j] = self.sigma.get((i, j), 0.0) + share
                    if late[e] >= 0:
                        written = self.sigma[i, j].copy() if self.robust else share
                        self.mail.append((self.step + int(late[e]), (i, j), written))

    def _receive(self) -> None:
        for arrival, edge, written in self.mail:
            if arrival != self.step:
                continue
            last = self.rho.get(edge, np.zeros_like(written)) if self.robust else np.zeros_like(written)
            if written[-1] > last[-1]:  # a total of weights that is not larger is an old one
                self.rows[edge[0]] += written - last
                self.rho[edge] = written
        self.mail = [message for message in self.mail if message[0] > self.step]


def open_links(net: Unreliable, z: np.ndarray, robust: bool, after: int = 0) -> Links:
    """Links with ω = 1 and nothing in flight, after so many steps."""
    return Links(net, np.concatenate([z, np.ones((net.n, 1), z.dtype)], axis=1), robust, after)
