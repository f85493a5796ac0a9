"""Several averagings side by side along a leading run axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref.averaging.base import BLOCK_BYTES, Averaging, columns
from hgp_ref.averaging.blocks import Block, MatrixBlock, RunsBlock
from hgp_ref.averaging.traffic import Traffic
from hgp_ref.backend import Array


class Runs:
    """Averagings 1 .. R with the same number of clients; u is (R, n, d) and run r meets averaging r.

    Where all of them compose, their matrices are stacked and one batched product serves all runs.
    """

    def __init__(self, averagings: Sequence[Averaging]) -> None:
        clients = {a.n for a in averagings}
        if len(clients) != 1:
            raise ValueError(f"avg: averagings of {sorted(clients)} clients together, needed the same number")
        self.averagings = list(averagings)
        self.n = clients.pop()

    def block_size(self, like: Array) -> int:
        stacked = BLOCK_BYTES // (8 * len(self.averagings) * self.n * self.n)
        return max(1, min(stacked, *(a.block_size(like) for a in self.averagings)))

    def prepare(self, first: int, count: int, like: Array) -> Block:
        one = like[0, ...]
        if not all(a.composes(columns(one)) for a in self.averagings):
            return RunsBlock([a.prepare(first, count, one) for a in self.averagings])
        K, restart, messages = zip(*(a.matrices(first, count) for a in self.averagings), strict=True)
        return MatrixBlock(np.stack(K, axis=1), _stacked(restart, (count, self.n)), np.stack(messages, axis=1), like)

    def traffic(self, messages: np.ndarray, calls: int, like: Array) -> Traffic:
        parts = [a.traffic(messages[r], calls, like) for r, a in enumerate(self.averagings)]
        fields = ("messages", "floats", "bytes", "rounds")
        return Traffic(*(np.array([getattr(part, f) for part in parts]) for f in fields))


def _stacked(restart: Sequence[np.ndarray | None], shape: tuple[int, int]) -> np.ndarray | None:
    """The runs' restart weights side by side, ones where a run has none; None if no run has any."""
    if all(r is None for r in restart):
        return None
    return np.stack([np.ones(shape) if r is None else r for r in restart], axis=1)
