"""Labelled instances of n clients, padded to the longest client, and the linear maps that they define.

Client i holds N_i instances (rows of its feature matrix). They are stored as one array (n, N_max, d) whose padding
rows have weight zero, so that none is dropped. `View` is what the costs see: all instances, or those of a mini-batch,
with the weight of each in its client's mean. On NumPy a client's sums run over its own rows alone (see `own_rows`),
so that they are the same bit for bit whoever else is in the array; elsewhere all clients are one batched product.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property

import numpy as np

from hgp_ref.backend import Array, Namespace, from_host, host_dtype, is_numpy
from hgp_ref.problems.arrays import matmul_runs
from hgp_ref.problems.own_rows import OwnRows
from hgp_ref.problems.prepared import PreparedBatch, PreparedBatches


class View:
    """Instances that a cost averages over: the only place where features meet vectors and instances are summed."""

    index: Array | None = None  # (..., n, N) instance numbers, padding set to 0; None for all instances

    def __init__(self, features: Array, targets: Array, mean: Array, rows: np.ndarray | None) -> None:
        self.features = features  # (..., n, N, d)
        self.targets = targets  # (..., n, N, C), encoded by the loss
        self.mean = mean  # (..., n, N), 1 / (number of valid instances), 0 for padding
        self.rows = rows  # (n,) how many rows are a client's own, on NumPy and unless all are; else None
        self.logits = int(targets.shape[-1])  # C

    @cached_property
    def _own(self) -> OwnRows | None:
        return None if self.rows is None else OwnRows(self.rows)

    def forward(self, u: Array, *, xp: Namespace) -> Array:
        """Logits of every instance, features_i U_i with U_i the (d, C) matrix of u_i.  # (..., n, N, C)"""
        U = xp.reshape(u, (*u.shape[:-1], self.features.shape[-1], self.logits))
        return matmul_runs(self.features, U, xp.matmul if self._own is None else self._own.times, xp=xp)

    def adjoint(self, r: Array, *, xp: Namespace) -> Array:
        """features_i^T R_i, flattened as u is.  # (..., n, d C)"""
        product = matmul_runs(xp.matrix_transpose(self.features), r, self._transposed_times(xp), xp=xp)
        return xp.reshape(product, (*product.shape[:-2], product.shape[-2] * product.shape[-1]))

    def contract(self, left: Array, right: Array, *, xp: Namespace) -> Array:
        """left_i^T right_i, the sum over instances of left_ik right_ik^T.  # (..., n, p, q)"""
        return self._transposed_times(xp)(xp.matrix_transpose(left), right)

    def total(self, values: Array, *, xp: Namespace) -> Array:
        """Sum over the instances of each client.  # (..., n)"""
        return xp.sum(values, axis=-1) if self._own is None else self._own.total(values)

    def _transposed_times(self, xp: Namespace) -> Callable[[Array, Array], Array]:
        return xp.matmul if self._own is None else self._own.transposed_times

    def pick(self, a: Array) -> Array:
        """What belongs to these instances in an array (n, N, k) of all: here itself."""
        return a

    def of(self, clients: np.ndarray) -> View:
        """All instances of some of the clients (NumPy, not of a mini-batch)."""
        rows = None if self.rows is None else self.rows[clients]
        return View(self.features[clients], self.targets[clients], self.mean[clients], rows)

    def only(self, clients: np.ndarray) -> View:
        """The same arrays, looked at for some clients only: products of the others are zero (NumPy, unequal rows)."""
        part = copy.copy(self)
        own = np.full(self.features.shape[-3], self.features.shape[-2]) if self.rows is None else self.rows
        part.__dict__.pop("_own", None)
        part.rows = np.zeros_like(own)
        part.rows[clients] = own[clients]
        return part


class BatchView(View):
    """Instances of a mini-batch, gathered when they are first asked for."""

    def __init__(self, whole: View, batch: PreparedBatch, xp: Namespace) -> None:
        self.mean, self.index, self.rows, self.logits = batch.mean, batch.index, batch.rows, whole.logits
        self._whole, self._batch, self._xp = whole, batch, xp

    @cached_property
    def features(self) -> Array:
        """Features of the batch.  # (..., n, b, d)"""
        return self.pick(self._whole.features)

    @cached_property
    def targets(self) -> Array:
        """Encoded labels of the batch.  # (..., n, b, C)"""
        return self.pick(self._whole.targets)

    def pick(self, a: Array) -> Array:
        """Entries of the batch from an array (n, N, k) of all instances.  # (..., n, b, k)"""
        xp = self._xp
        flat = xp.take(xp.reshape(a, (-1, a.shape[-1])), xp.reshape(self._batch.flat, (-1,)), axis=0)
        return xp.reshape(flat, (*self._batch.shape, a.shape[-1]))


class Instances:
    """The instances of every client with encoded labels; `counts` (n,) says how many each client has."""

    def __init__(self, features: Array, targets: Array, counts: np.ndarray) -> None:
        n, longest = features.shape[:2]
        self.counts = np.asarray(counts, dtype=np.int64)
        mask = np.arange(longest) < self.counts[:, None]
        mean = from_host((mask / self.counts[:, None]).astype(host_dtype(features)), like=features)
        ragged = is_numpy(features) and bool(np.any(self.counts < longest))
        self.all = View(features, targets, mean, self.counts if ragged else None)
        self._offset = longest * np.arange(n, dtype=np.int64)[:, None]  # (n, 1), first row in the flat features
        self._there = tuple(from_host(a, like=features) for a in (self.counts[:, None], self._offset))

    def select(self, batch: Array | PreparedBatch | None, *, xp: Namespace) -> View:
        """The instances of a mini-batch (..., n, b), or all of them.

        An index beyond a client's instances is a ValueError on NumPy; elsewhere, where looking would stop the device,
        it makes the client's results NaN. A client whose entries are all padding has no data term.
        """
        if batch is None:
            return self.all
        ready = batch if isinstance(batch, PreparedBatch) else self._prepare_one(batch, xp)
        return BatchView(self.all, ready, xp)

    def prepare(self, batches: np.ndarray, like: Array) -> PreparedBatches:
        """Mini-batches (count, streams, ..., n, b), looked at on the host and taken to the device of `like` at once."""
        return PreparedBatches(batches, self.counts, self._offset, like)

    def _prepare_one(self, batch: Array, xp: Namespace) -> PreparedBatch:
        if is_numpy(batch):
            return self.prepare(batch[None, None], self.all.features)[0, 0]
        limit, offset = self._there
        wrong = (batch < -1) | (batch >= limit)
        valid = batch >= 0
        index = xp.astype(xp.where(valid & ~wrong, batch, xp.zeros_like(batch)), offset.dtype)
        number = xp.sum(xp.astype(valid, self.all.mean.dtype), axis=-1, keepdims=True)
        weight = xp.where(wrong, xp.full_like(number, float("nan")), xp.astype(valid, number.dtype))
        mean = weight / xp.where(number > 0, number, xp.ones_like(number))
        return PreparedBatch(tuple(batch.shape), index + offset, index, mean, None)

    def restrict(self, clients: np.ndarray | slice, take: Callable[[Array], Array]) -> Instances:
        """The instances of some clients; `take` picks their rows of an array."""
        return Instances(take(self.all.features), take(self.all.targets), self.counts[clients])

    def to(self, move: Callable[[Array], Array]) -> Instances:
        """The same instances moved by `move`."""
        return Instances(move(self.all.features), move(self.all.targets), self.counts)
