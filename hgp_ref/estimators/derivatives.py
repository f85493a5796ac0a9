"""The second derivatives that each iteration of Algorithm 2 uses: one linearization for all, or one per mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.backend import Array, array_namespace, from_host
from hgp_ref.problems.batches import sample_batches


class FullBatch:
    """The point does not move: linearized once, applied M times."""

    constant = True

    def __init__(self, problem: Any, x: Array, lam: Array, runs: int | None) -> None:
        one = problem.linearize(x, lam)
        self._broadcasts = getattr(problem, "broadcasts", False)
        loops = runs is not None and not self._broadcasts
        self.linearization = RunByRun([one] * (runs or 0)) if loops else one

    def prepare(self, first: int, count: int) -> None:
        return None

    def at(self, m: int) -> tuple[Any, Any]:
        """Linearizations for v and for u."""
        return self.linearization, self.linearization

    def crosses(self, many: Sequence[Array]) -> Array:
        """∂²_{xλ} g w for each w of `many`, (..., M, n, d_lam): one product where the problem broadcasts."""
        xp = array_namespace(many[0])
        if self._broadcasts:
            return self.linearization.cross(xp.stack(many, axis=-3))
        return xp.stack([self.linearization.cross(w) for w in many], axis=-3)


@dataclass
class MiniBatch:
    """Samples ξ̂ for v and, unless shared, ξ̂̂ for u, drawn by counters: those of iteration m do not depend on M."""

    problem: Any
    x: Array
    lam: Array
    size: int
    seeds: Sequence[int]
    with_runs: bool
    shared: bool
    replace: bool
    constant = False

    def prepare(self, first: int, count: int) -> None:
        """Draw the batches of iterations first .. first+count-1 and take them to the device in one transfer."""
        streams = (0,) if self.shared else (0, 1)
        drawn = [
            [
                sample_batches(self.problem.counts, self.size, seed, first, count, stream=stream, replace=self.replace)
                for seed in self.seeds
            ]
            for stream in streams
        ]
        batches = np.moveaxis(np.asarray(drawn), 2, 0)  # (count, streams, runs, n, b)
        self._batches = from_host(batches if self.with_runs else batches[:, :, 0], like=self.x)

    def at(self, m: int) -> tuple[Any, Any]:
        for_v = self._linearize(self._batches[m, 0, ...])
        return for_v, for_v if self.shared else self._linearize(self._batches[m, 1, ...])

    def _linearize(self, batch: Array) -> Any:
        if not self.with_runs or getattr(self.problem, "broadcasts", False):
            return self.problem.linearize(self.x, self.lam, batch=batch)
        return RunByRun([self.problem.linearize(self.x, self.lam, batch=batch[r, ...]) for r in range(batch.shape[0])])


class RunByRun:
    """Linearizations of a problem that knows no run axis, one for each entry of it."""

    def __init__(self, linearizations: Sequence[Any]) -> None:
        self.linearizations = linearizations

    def hvp(self, u: Array) -> Array:
        return array_namespace(u).stack([lin.hvp(u[r, ...]) for r, lin in enumerate(self.linearizations)])

    def cross(self, u: Array) -> Array:
        return array_namespace(u).stack([lin.cross(u[r, ...]) for r, lin in enumerate(self.linearizations)])
