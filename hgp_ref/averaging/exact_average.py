"""The exact mean over clients: Θ itself."""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.base import Averaging
from hgp_ref.averaging.blocks import MeanBlock
from hgp_ref.backend import Array


class ExactAverage(Averaging):
    """Θ = 11ᵀ/n ⊗ I: every client gets the mean of all.

    As over a fully connected network in one step: n(n-1) messages of one vector each, one round a call.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.steps, self.net = arguments.integer("n", n), 1, None

    def composes(self, columns: int) -> bool:
        return self.n <= 1024

    def matrices(self, first: int, count: int) -> tuple[np.ndarray, None, np.ndarray]:
        sent = np.full(count, self.n * (self.n - 1))
        return np.full((count, self.n, self.n), 1.0 / self.n), None, sent

    def prepare(self, first: int, count: int, like: Array) -> MeanBlock:
        return MeanBlock(self.n)

    def __repr__(self) -> str:
        return f"ExactAverage({self.n})"
