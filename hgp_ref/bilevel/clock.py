"""Which graph and which mini-batch come next: what one part of the loop has used, the next does not use again."""

from __future__ import annotations

from dataclasses import dataclass, field

from hgp_ref.channels import Traffic
from hgp_ref.networks import Network


@dataclass
class Clock:
    """What training and estimates together have sent so far, and how many mini-batches they have drawn."""

    seed: int
    traffic: Traffic = field(default_factory=Traffic)
    batches: int = 0

    def net(self, net: Network) -> Network:
        """`net` from the first graph on that was not used yet; a round is a graph."""
        return net.after(int(self.traffic.rounds))

    def pass_on(self, sent: Traffic, batches: int) -> None:
        """After a part that sent so much and drew so many mini-batches."""
        self.traffic += sent
        self.batches += int(batches)
