"""Mini-batches looked at on the host: where their instances are, what each counts, and that they exist.

For client i with n_i valid entries in a mini-batch an entry counts 1/n_i, padding 0. All of this is known from the
drawn indices, so it is worked out on the host for many mini-batches at once and sent in three transfers; on the device
a mini-batch is then two gathers.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import (
    Array,
    Namespace,
    array_namespace,
    detached,
    device,
    from_host,
    host_dtype,
    is_numpy,
    to_host,
)
from hgp_ref.problems.base import FullProblem, Shape, matmul_runs, optional
from hgp_ref.problems.losses import Loss


@dataclass(frozen=True)
class PreparedBatch:
    """One mini-batch of every client, beside the data."""

    shape: Shape  # (..., n, b)
    flat: Array  # (..., n, b) rows of the features of all clients stacked
    index: Array  # (..., n, b) instance numbers, padding set to 0
    mean: Array  # (..., n, b) 1 / (number of valid entries), 0 for padding
    rows: np.ndarray | None  # (n,) how far a client's entries reach, on NumPy and unless to the end; else None


class PreparedBatches:
    """Entry [k, stream] of mini-batches (count, streams, ..., n, b) of clients with `counts` instances."""

    def __init__(self, batches: np.ndarray, counts: np.ndarray, offset: np.ndarray, like: Array) -> None:
        batches = np.asarray(batches)
        valid = batches >= 0
        require_existing(batches, counts)
        index = np.where(valid, batches, 0)
        number = np.sum(valid, axis=-1, keepdims=True)
        mean = (valid / np.maximum(number, 1)).astype(host_dtype(like))
        self._shape = tuple(batches.shape[2:])
        self._rows = widths(valid) if is_numpy(like) and not valid.all() else None  # (count, streams, n)
        self._flat, self._index, self._mean = (from_host(a, like=like) for a in (index + offset, index, mean))

    def __getitem__(self, key: tuple[int, int]) -> PreparedBatch:
        at = (*key, ...)
        rows = None if self._rows is None else self._rows[key]
        if rows is not None and np.all(rows == self._shape[-1]):
            rows = None
        return PreparedBatch(self._shape, self._flat[at], self._index[at], self._mean[at], rows)


def widths(valid: np.ndarray) -> np.ndarray:
    """One past each client's last valid entry in any run: what lies beyond is padding for the sake of others.

    valid (count, streams, ..., n, b); result (count, streams, n).
    """
    used = np.any(valid, axis=tuple(range(2, valid.ndim - 2)))  # (count, streams, n, b)
    return np.max(np.where(used, np.arange(1, valid.shape[-1] + 1), 0), axis=-1)


def require_existing(batches: np.ndarray, counts: np.ndarray) -> None:
    """ValueError unless every entry of batches (..., n, b) is -1 or one of its client's instances."""
    wrong = (batches < -1) | (batches >= counts[:, None])
    if wrong.any():
        client = int(np.argwhere(wrong)[0][-2])
        raise ValueError(
            f"batch must hold indices from 0 to {counts[client] - 1} or -1 for padding for client {client}, "
            f"got {batches[wrong][0]}"
        )


# ----------------------------------------------------------------------------------------------------
# Labelled instances of n clients, padded to the longest client, and the linear maps that they define.
#
# Client i holds N_i instances (rows of its feature matrix). They are stored as one array (n, N_max, d) whose padding
# rows have weight zero, so that none is dropped. `View` is what the costs see: all instances, or those of a mini-batch,
# with the weight of each in its client's mean. On NumPy a client's sums run over its own rows alone (see `RaggedRows`),
# so that they are the same bit for bit whoever else is in the array; elsewhere all clients are one batched product.


class RaggedRows:
    """Of (..., n, N, .) arrays, the first rows_i rows of client i."""

    def __init__(self, rows: np.ndarray) -> None:
        ends = [*(int(k) for k in np.flatnonzero(np.diff(rows)) + 1), len(rows)]
        starts = [0, *ends[:-1]]
        # clients start .. end-1 have k rows each; a client without rows has nothing to add
        parts = [(slice(a, b), slice(int(rows[a]))) for a, b in zip(starts, ends, strict=True) if rows[a] > 0]
        whole = slice(None)
        self._parts = [((..., a, whole, whole), (..., a, k, whole), (..., a, whole, k), (..., a, k)) for a, k in parts]

    def times(self, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """matrix_i columns_i, rows beyond a client's own zero.  # (..., n, N, c)"""
        lead = np.broadcast_shapes(matrix.shape[:-3], columns.shape[:-3])
        product = np.zeros((*lead, *matrix.shape[-3:-1], columns.shape[-1]), dtype=matrix.dtype)
        for every, rows, _, _ in self._parts:
            np.matmul(matrix[rows], columns[every], out=product[rows])
        return product

    def transposed_times(self, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """matrix_i columns_i where instances are the columns of matrix_i (..., n, p, N).  # (..., n, p, c)"""
        lead = np.broadcast_shapes(matrix.shape[:-3], columns.shape[:-3])
        product = np.zeros((*lead, *matrix.shape[-3:-1], columns.shape[-1]), dtype=columns.dtype)
        for every, rows, instances, _ in self._parts:
            np.matmul(matrix[instances], columns[rows], out=product[every])
        return product

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum over each client's own entries of (..., n, N).  # (..., n)"""
        sums = np.zeros(values.shape[:-1], dtype=values.dtype)
        for _, rows, _, entries in self._parts:
            sums[rows[:2]] = np.sum(values[entries], axis=-1)
        return sums


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
    def _own(self) -> RaggedRows | None:
        return None if self.rows is None else RaggedRows(self.rows)

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


# ----------------------------------------------------------------------------------------------------
# Data as users give them, arrays or lists of arrays: checked, padded to the longest client, labels encoded.


Data = Array | Sequence[Array]  # (n, N, ...), or n arrays (N_i, ...)


def read_instances(X: Data, y: Data, loss: Loss, names: tuple[str, str]) -> Instances:
    """Check features and labels, pad clients to equal length, encode the labels.

    All of it is copied: what a caller does with his arrays afterwards does not reach the problem.
    """
    features, counts = pad(names[0], X, 2)
    if hasattr(X, "shape"):
        features = array_namespace(features).asarray(features, copy=True)
    labels, label_counts = read_labels(names[1], y, features)
    if counts.shape != label_counts.shape:
        raise ValueError(f"{names[1]} must have {len(counts)} clients as {names[0]}, got {len(label_counts)}")
    for i in np.flatnonzero(counts != label_counts)[:1]:
        raise ValueError(f"{names[1]} must have {counts[i]} labels of client {i} as {names[0]}, got {label_counts[i]}")
    check_labels(names[1], labels, 2 if loss.logits == 1 else loss.logits)
    return Instances(features, loss.encode(labels, xp=array_namespace(labels)), counts)


def read_labels(name: str, y: Data, features: Array) -> tuple[Array, np.ndarray]:
    """Labels (n, N_max) as floats beside `features`, and how many each client has."""
    validation.dense(name, y)
    if not hasattr(y, "shape") and not isinstance(y, list | tuple):
        raise TypeError(f"{name} must be labels (n, N) or a list of n arrays (N_i,), got {type(y).__name__}")
    parts: list[Array] = [y] if hasattr(y, "shape") else list(y)
    for part in parts:
        validation.array(name, part)
        try:
            xp = array_namespace(part, features)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        if not xp.isdtype(part.dtype, ("bool", "integral", "real floating")):
            raise TypeError(f"{name} must hold numbers, got {part.dtype}")
        if device(part) != device(features):
            raise TypeError(f"{name} must be on the device {device(features)} of the features, got {device(part)}")
    cast = [xp.astype(part, features.dtype) for part in parts]
    return pad(name, cast[0] if hasattr(y, "shape") else cast, 1)


def check_labels(name: str, labels: Array, n_classes: int) -> None:
    """ValueError unless every label is a whole number from 0 to n_classes - 1."""
    xp = array_namespace(labels)
    good = (labels >= 0) & (labels <= n_classes - 1) & (labels == xp.floor(labels))
    if not bool(to_host(xp.all(good))):
        bad = to_host(labels)[~to_host(good)][0]
        valid = "0 or 1" if n_classes == 2 else f"whole numbers from 0 to {n_classes - 1}"
        raise ValueError(f"{name} must hold labels that are {valid}, got {bad}")


def pad(name: str, data: Data, ndim: int) -> tuple[Array, np.ndarray]:
    """An array (n, N, ...) as it is, or a sequence of n arrays (N_i, ...) padded with zeros; and the N_i."""
    validation.dense(name, data)
    form = "(n, N, d) or a list of n arrays (N_i, d)" if ndim == 2 else "(n, N) or a list of n arrays (N_i,)"
    if hasattr(data, "shape"):
        validation.same_kind(**{name: data})
        if len(data.shape) != ndim + 1 or data.shape[0] < 1 or 0 in data.shape[2:]:
            raise ValueError(f"{name} must have shape {form}, got {tuple(data.shape)}")
        parts, counts = None, np.full(data.shape[0], data.shape[1], dtype=np.int64)
    else:
        parts = list(data) if isinstance(data, Sequence) else []
        if not parts:
            raise ValueError(f"{name} must be {form}, got {type(data).__name__} without arrays")
        validation.same_kind(**{f"{name}[{i}]": part for i, part in enumerate(parts)})
        for i, part in enumerate(parts):
            if part.ndim != ndim or tuple(part.shape[1:]) != tuple(parts[0].shape[1:]) or 0 in part.shape[1:]:
                raise ValueError(f"{name} must have shape {form}, got {tuple(part.shape)} in {name}[{i}]")
        counts = np.array([part.shape[0] for part in parts], dtype=np.int64)
    for i in np.flatnonzero(counts == 0)[:1]:
        raise ValueError(f"{name} must have at least one instance for every client, got none for client {i}")
    padded = data if parts is None else _stack(parts, int(counts.max()))
    validation.finite(name, padded)
    return detached(padded), counts


def _stack(parts: list[Array], longest: int) -> Array:
    xp = array_namespace(parts[0])
    rows = []
    for part in parts:
        shape = (longest - part.shape[0], *part.shape[1:])
        rows.append(xp.concat([part, xp.zeros(shape, dtype=part.dtype, device=device(part))], axis=0))
    return xp.stack(rows, axis=0)


# ----------------------------------------------------------------------------------------------------
# A digest of the data that a problem holds: the same for equal data, whatever library or device they are on.
#
# A checkpoint belongs to one problem. Costs and gradients at one point tell most problems apart, but one changed label
# of 20,000 moves them by less than another machine's rounding may. Problems that hold their data therefore offer
# `data_digest()`, which a checkpoint keeps and compares exactly.


def digest(problem: object, *parts: Any) -> str:
    """SHA-256 of the class of `problem`, its public settings that are numbers or text, and `parts`.

    Parts are arrays of any library, `Instances`, text, numbers or None.
    """
    public = {name: value for name, value in vars(problem).items() if not name.startswith("_")}
    plain = sorted((name, value) for name, value in public.items() if isinstance(value, str | bool | int | float))
    total = hashlib.sha256(f"{type(problem).__name__} {plain}".encode())
    for part in parts:
        _add(total, part)
    return total.hexdigest()


def digest_of(problem: FullProblem) -> str | None:
    """What the problem says of its data; None where it does not."""
    own = optional(problem.wrapped, "data_digest")
    return own() if callable(own) else None


def _add(total: Any, part: Any) -> None:
    if isinstance(part, Instances):
        for each in (part.counts, part.all.features, part.all.targets):
            _add(total, each)
    elif hasattr(part, "shape"):
        host = np.ascontiguousarray(to_host(part))
        total.update(f"{host.dtype} {host.shape}".encode())
        total.update(host.data if host.size else b"")
    else:
        total.update(repr(part).encode())
