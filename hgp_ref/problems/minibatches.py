"""The mini-batches of a run, drawn by counters in chunks: batch m does not depend on how long the run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array
from hgp_ref.memory import room
from hgp_ref.philox import MAX_STEP
from hgp_ref.problems.batches import sample_batches
from hgp_ref.problems.normalised import Normalised

CHUNK_BYTES = 16 * 2**20  # instance numbers drawn and moved at once, at most (one batch always is)
MOST = 256  # batches drawn at once, at most


class MiniBatches:
    """Batches 0 .. total-1 of `size` instances of every client, `streams` of them independent of each other.

    With `runs` there is one batch for each of the seeds along a leading axis. `first` is the number of the first batch
    in its seed's sequence, so that a later run may go on where an earlier one ended. They are asked for in order.
    """

    def __init__(
        self,
        problem: Normalised,
        size: int,
        seeds: Sequence[int],
        total: int,
        like: Array,
        *,
        runs: bool = False,
        streams: int = 1,
        replace: bool = False,
        first: int = 0,
    ) -> None:
        if problem.counts is None:
            raise ValueError(f"batch_size={size!r} given, but the problem has no `counts` (instances per client)")
        self.counts = problem.counts
        self.problem, self.seeds, self.total, self.like = problem, seeds, total, like
        self.size, self.runs, self.streams, self.replace = (
            arguments.integer("batch_size", size, 1, 2**31 - 1),
            runs,
            streams,
            replace,
        )
        self.first = arguments.integer("first_batch", first, 0, MAX_STEP - total)
        room(f"batch_size={size}", streams * len(seeds) * problem.n_clients * (self.size if replace else 1))
        numbers = streams * len(seeds) * problem.n_clients * min(self.size, int(problem.counts.max()))
        self._most = max(1, min(MOST, CHUNK_BYTES // (8 * numbers)))
        self._begin, self._end = 0, 0  # which batches are at hand
        self._prepared: Any = None

    def at(self, m: int) -> tuple[Array, ...]:
        """Batch m of each stream, in the form that the problem takes as `batch`."""
        if not self._begin <= m < self._end:
            self._begin, self._end = m, min(self.total, m + self._most)
            self._prepared = self.problem.prepare_batches(self._draw(m, self._end - m), like=self.like)
        return tuple(self._prepared[m - self._begin, stream] for stream in range(self.streams))

    def _draw(self, m: int, count: int) -> np.ndarray:
        """(count, streams, [runs,] n, b)."""
        drawn = [
            [
                sample_batches(
                    self.counts,
                    self.size,
                    seed,
                    self.first + m,
                    count,
                    stream,
                    self.replace,
                    clients=self.problem.clients,
                )
                for seed in self.seeds
            ]
            for stream in range(self.streams)
        ]
        batches = np.moveaxis(np.asarray(drawn), 2, 0)  # (count, streams, runs, n, b)
        return batches if self.runs else batches[:, :, 0]
