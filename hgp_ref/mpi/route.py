"""Which rows go where: what one exchange between ranks carries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Block = tuple[int, int, int]  # rank, first row, end


@dataclass(frozen=True)
class Route:
    """Rows that leave this rank, and rows that come in: those of one rank are one block, and one message."""

    step: int  # of the network, for messages
    sends: np.ndarray  # rows of z to be sent, those for one rank after those for the rank before
    to: tuple[Block, ...]  # which of them go to which rank
    come: tuple[Block, ...]  # which of the rows that come in are from which rank, counted from 0

    @property
    def elsewhere(self) -> int:
        """How many rows come in."""
        return self.come[-1][2] if self.come else 0


def blocks(where: np.ndarray) -> tuple[Block, ...]:
    """Ranks with at least one row, and which; rank q has rows where[q] .. where[q+1]-1."""
    return tuple((q, int(where[q]), int(where[q + 1])) for q in np.flatnonzero(np.diff(where)).tolist())


def everything(starts: np.ndarray, rank: int, step: int) -> Route:
    """All rows to all ranks; rank q has clients starts[q] .. starts[q+1]-1."""
    m, others = int(starts[rank + 1] - starts[rank]), [q for q in range(starts.size - 1) if q != rank]
    ends = np.cumsum([starts[q + 1] - starts[q] for q in others], dtype=np.int64)
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    come = tuple((q, int(begins[k]), int(ends[k])) for k, q in enumerate(others))
    to = tuple((q, k * m, (k + 1) * m) for k, q in enumerate(others))
    return Route(step, np.tile(np.arange(m), len(others)), to, come)
