"""Epochs in mini-batches: each client goes once through its own instances, b at a time, in an order drawn anew.

Client i takes ceil(N_i / b) steps in an epoch, the last of them with what is left over; clients with fewer instances
are done earlier and rest until the next epoch. Orders are a pure function of (seed, epoch, client).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, from_host
from hgp_ref.philox import MAX_STEP
from hgp_ref.problems.batches import sample_epochs
from hgp_ref.problems.normalised import Normalised

Step = tuple[Array | None, Array | None]  # the mini-batch, and who takes part (n, 1) booleans; None: all


class Epochs:
    """The steps of each epoch of `problem` in batches of `size` (None: one step on all instances)."""

    def __init__(self, problem: Normalised, size: int | None, seed: int, like: Array, first: int = 0) -> None:
        self.problem, self.seed, self.like = problem, seed, like
        self.first = arguments.integer("first_epoch", first, 0, MAX_STEP)
        if size is not None:
            self.size = arguments.integer("batch_size", size, 1, 2**31 - 1)
            if problem.counts is None:
                raise ValueError(f"batch_size={size!r} given, but the problem has no `counts` (instances per client)")
        self.full = size is None

    def steps(self, epoch: int) -> Iterator[Step]:
        """Mini-batches of epoch number `epoch`, from 0, and who still takes part."""
        if self.full or self.problem.counts is None:
            yield None, None
            return
        orders = sample_epochs(
            self.problem.counts, self.seed, self.first + epoch, 1, clients=self.problem.clients
        )  # (1, n, N)
        size, (_, n, longest) = min(self.size, orders.shape[2]), orders.shape
        number = -(-longest // size)
        padded = np.pad(orders[0], ((0, 0), (0, number * size - longest)), constant_values=-1)
        batches = np.moveaxis(padded.reshape(n, number, size), 1, 0)  # (number, n, b)
        prepared = self.problem.prepare_batches(np.ascontiguousarray(batches[:, None]), like=self.like)
        for k in range(number):
            there = batches[k, :, :1] >= 0  # (n, 1)
            yield prepared[k, 0], None if there.all() else from_host(there, like=self.like)
