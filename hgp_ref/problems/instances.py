"""Labelled instances of n clients, the linear maps that they define, and their mini-batches.

Client i holds N_i instances, the rows of its feature matrix. They are stored as one array (n, N_max, d) whose padding
rows have weight zero, or as `SparseRows`. A `View` is what the costs use: all instances, or those of a mini-batch, with
the weight of each in the mean of its client. On NumPy the sums of a client run over its own rows alone (`RaggedRows`),
so that they are the same bit for bit whichever clients share the array; elsewhere all clients are one batched product.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref import rounding, validation
from hgp_ref._kernels import cuda
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
from hgp_ref.philox import BATCHES, key
from hgp_ref.problems.base import FullProblem, Portable, Shape, matmul_runs, optional
from hgp_ref.problems.losses import Loss
from hgp_ref.problems.sparse import SparseRows, is_sparse, read_sparse, sparse_of_a_device


class RaggedRows:
    """Products with the first rows_i rows of client i, of arrays (..., n, N, ·)."""

    def __init__(self, rows: np.ndarray) -> None:
        ends = [*(int(k) for k in np.flatnonzero(np.diff(rows)) + 1), len(rows)]
        starts = [0, *ends[:-1]]
        # clients a … b−1 have k rows each; a client without rows contributes nothing
        groups = [(slice(a, b), slice(int(rows[a]))) for a, b in zip(starts, ends, strict=True) if rows[a] > 0]
        every = slice(None)
        self._groups = [
            ((..., a, every, every), (..., a, k, every), (..., a, every, k), (..., a, k)) for a, k in groups
        ]

    def times(self, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """matrix_i columns_i, with zero rows beyond rows_i.  # (..., n, N, c)"""
        lead = np.broadcast_shapes(matrix.shape[:-3], columns.shape[:-3])
        product = np.zeros((*lead, *matrix.shape[-3:-1], columns.shape[-1]), dtype=matrix.dtype)
        for whole, rows, _, _ in self._groups:
            np.matmul(matrix[rows], columns[whole], out=product[rows])
        return product

    def transposed_times(self, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """matrix_i columns_i, where instances are the columns of matrix_i (..., n, p, N).  # (..., n, p, c)"""
        lead = np.broadcast_shapes(matrix.shape[:-3], columns.shape[:-3])
        product = np.zeros((*lead, *matrix.shape[-3:-1], columns.shape[-1]), dtype=columns.dtype)
        for whole, rows, instances, _ in self._groups:
            np.matmul(matrix[instances], columns[rows], out=product[whole])
        return product

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of the first rows_i entries of (..., n, N).  # (..., n)"""
        sums = np.zeros(values.shape[:-1], dtype=values.dtype)
        for _, rows, _, entries in self._groups:
            sums[rows[:2]] = np.sum(values[entries], axis=-1)
        return sums


class View:
    """The instances that a cost averages over. All products with features and all sums over instances are here."""

    index: Array | None = None  # (..., n, N) instance numbers, 0 for padding; None for all instances

    features: Any  # (..., n, N, d), an array or `SparseRows`

    def __init__(self, features: Any, targets: Array, mean: Array, rows: np.ndarray | None) -> None:
        self.features = features
        self.like = array_of(features)
        self.on_cuda = cuda.applies(self.like)
        self.targets = targets  # (..., n, N, C), encoded by the loss
        self.mean = mean  # (..., n, N), 1 / (number of valid instances), 0 for padding
        self.rows = rows  # (n,) instances of each client, on NumPy if they differ; else None
        self.logits = int(targets.shape[-1])  # C

    @cached_property
    def _ragged(self) -> RaggedRows | None:
        return None if self.rows is None else RaggedRows(self.rows)

    @property
    def data(self) -> cuda.Data | None:
        """The features without gathering those of a mini-batch; None if they are sparse."""
        return None if isinstance(self.features, SparseRows) else cuda.Data(self.features, None)

    def forward(self, u: Array, *, xp: Namespace, joined: bool = True) -> Array:
        """The logits X_i U_i of every instance, with U_i the (d, C) matrix of u_i.  # (..., n, N, C)

        Without `joined`, each entry of the run axes is a product of its own, rounded as if it were alone.
        """
        U = xp.reshape(u, (*u.shape[:-1], self.features.shape[-1], self.logits))
        if isinstance(self.features, SparseRows):
            return self.features.times(U, xp=xp)
        if self._ragged is None and (U.ndim == 3 or self.features.ndim > 3):
            return self.features @ U
        multiply = xp.matmul if self._ragged is None else self._ragged.times
        return matmul_runs(self.features, U, multiply, xp=xp) if joined else multiply(self.features, U)

    def adjoint(self, r: Array, *, xp: Namespace, joined: bool = True) -> Array:
        """X_iᵀ R_i, flattened as u is.  # (..., n, d C)"""
        if isinstance(self.features, SparseRows):
            product = self.features.transposed_times(r, xp=xp)
        elif self.on_cuda and (joined or r.ndim == 3 or self.features.ndim > 3):
            product = self._adjoint_by_rows(r, xp=xp)
        elif self._ragged is None and (r.ndim == 3 or self.features.ndim > 3):
            product = xp.matrix_transpose(self.features) @ r
        else:
            multiply = xp.matmul if self._ragged is None else self._ragged.transposed_times
            transposed = xp.matrix_transpose(self.features)
            product = matmul_runs(transposed, r, multiply, xp=xp) if joined else multiply(transposed, r)
        return xp.reshape(product, (*product.shape[:-2], product.shape[-2] * product.shape[-1]))

    def _adjoint_by_rows(self, r: Array, *, xp: Namespace) -> Array:
        """X_iᵀ R_i as (R_iᵀ X_i)ᵀ: CuPy copies a transposed operand of a product, and R is smaller than X.

        # (..., n, d, C)
        """
        lead, (n, N, C) = tuple(r.shape[:-3]), tuple(r.shape[-3:])
        if self.features.ndim > 3 or not lead:
            rows = xp.matrix_transpose(r) @ self.features  # (..., n, C, d)
        else:  # runs are further rows of one product
            wide = xp.permute_dims(xp.reshape(r, (-1, n, N, C)), (1, 0, 3, 2))  # (n, R, C, N)
            together = xp.reshape(wide, (n, -1, N)) @ self.features  # (n, R C, d)
            rows = xp.permute_dims(xp.reshape(together, (n, -1, C, together.shape[-1])), (1, 0, 2, 3))
            rows = xp.reshape(rows, (*lead, n, C, together.shape[-1]))
        return xp.matrix_transpose(rows)

    def contract(self, left: Array, right: Array, *, xp: Namespace) -> Array:
        """The sum over instances of left_ik right_ikᵀ.  # (..., n, p, q)"""
        transposed = xp.matrix_transpose(left)
        return transposed @ right if self._ragged is None else self._ragged.transposed_times(transposed, right)

    def gram(self, blocks: Array, *, xp: Namespace) -> Array:
        """Σ_k X_ikᵀ X_ik ⊗ blocks_ik for blocks (..., n, N, C, C).  # (..., n, d C, d C)"""
        X, C = self.features, self.logits
        if isinstance(X, SparseRows):
            if is_numpy(blocks):
                return X.gram(blocks)
            X = X.outer(xp.ones_like(blocks[..., 0, :1]))  # the result is larger than this
        d_x, rows = int(X.shape[-1]) * C, []
        for c in range(C):
            right = X[..., :, None] * blocks[..., c, :][..., None, :]  # (..., n, N, d, C)
            right = xp.reshape(right, (*right.shape[:-2], d_x))
            rows.append(self.contract(X, right, xp=xp))  # (..., n, d, d_x)
        total = xp.stack(rows, axis=-2)  # (..., n, d, C, d_x)
        return xp.reshape(total, (*total.shape[:-3], d_x, d_x))

    def outer(self, r: Array, *, xp: Namespace) -> Array:
        """X_ikᵀ r_ik of every instance, flattened as u is, for r (..., n, N, C).  # (..., n, N, d C)"""
        if isinstance(self.features, SparseRows):
            return self.features.outer(r)
        products = self.features[..., :, None] * r[..., None, :]  # (..., n, N, d, C)
        return xp.reshape(products, (*products.shape[:-2], products.shape[-2] * self.logits))

    def row_norms(self) -> np.ndarray:
        """‖X_ik‖ on the host.  # (..., n, N)"""
        X = self.features
        return X.norms() if isinstance(X, SparseRows) else rounding.norms(to_host(X).astype(np.float64, copy=False))

    def total(self, values: Array, *, xp: Namespace) -> Array:
        """The sum over the instances of each client.  # (..., n)"""
        return xp.sum(values, axis=-1) if self._ragged is None else self._ragged.total(values)

    def pick(self, a: Array) -> Array:
        """The entries for these instances of an array (n, N, k) for all instances."""
        return a

    def of(self, clients: np.ndarray) -> View:
        """All instances of some of the clients (NumPy, not for mini-batches)."""
        rows = None if self.rows is None else self.rows[clients]
        return View(self.features[clients], self.targets[clients], self.mean[clients], rows)

    def only(self, clients: np.ndarray) -> View:
        """The same arrays with products for some clients only, zero for the others (NumPy)."""
        part = copy.copy(self)
        rows = np.full(self.features.shape[-3], self.features.shape[-2]) if self.rows is None else self.rows
        part.__dict__.pop("_ragged", None)
        part.rows = np.zeros_like(rows)
        part.rows[clients] = rows[clients]
        return part


class BatchView(View):
    """The instances of a mini-batch, gathered at their first use."""

    def __init__(self, whole: View, batch: PreparedBatch, xp: Namespace) -> None:
        self.mean, self.index, self.rows, self.logits = batch.mean, batch.index, batch.rows, whole.logits
        self._whole, self._batch, self._xp = whole, batch, xp
        self.like, self.on_cuda = whole.like, whole.on_cuda

    @property
    def data(self) -> cuda.Data | None:
        whole = self._whole.features
        return None if isinstance(whole, SparseRows) else cuda.Data(whole, self._batch.flat)

    @cached_property
    def features(self) -> Any:
        """Features of the batch.  # (..., n, b, d)"""
        whole = self._whole.features
        return whole.select(self.index, ~(self.mean == 0)) if isinstance(whole, SparseRows) else self.pick(whole)

    @cached_property
    def targets(self) -> Array:
        """Encoded labels of the batch.  # (..., n, b, C)"""
        return self.pick(self._whole.targets)

    def pick(self, a: Array) -> Array:
        """The entries for the batch of an array (n, N, k) for all instances.  # (..., n, b, k)"""
        xp = self._xp
        flat = xp.take(xp.reshape(a, (-1, a.shape[-1])), xp.reshape(self._batch.flat, (-1,)), axis=0)
        return xp.reshape(flat, (*self._batch.shape, a.shape[-1]))


class Instances:
    """The instances of every client with encoded labels; `counts` (n,) are their numbers."""

    def __init__(self, features: Any, targets: Array, counts: np.ndarray) -> None:
        (n, longest), like = features.shape[:2], array_of(features)
        self.counts = np.asarray(counts, dtype=np.int64)
        mask = np.arange(longest) < self.counts[:, None]
        mean = from_host((mask / self.counts[:, None]).astype(host_dtype(like)), like=like)
        ragged = is_numpy(like) and bool(np.any(self.counts < longest))
        self.all = View(features, targets, mean, self.counts if ragged else None)
        self._offset = longest * np.arange(n, dtype=np.int64)[:, None]  # (n, 1), first row in the flat features
        self._on_device = tuple(from_host(a, like=like) for a in (self.counts[:, None], self._offset))

    def select(self, batch: Array | PreparedBatch | None, *, xp: Namespace) -> View:
        """The instances of a mini-batch (..., n, b), or all of them.

        An index beyond a client's instances is a ValueError on NumPy. Elsewhere, where reading it would stop the
        device, it makes the results of the client NaN. A client whose entries are all padding has no data term.
        """
        if batch is None:
            return self.all
        prepared = batch if isinstance(batch, PreparedBatch) else self._prepare_one(batch, xp)
        return BatchView(self.all, prepared, xp)

    def prepare(self, batches: np.ndarray, like: Array) -> PreparedBatches:
        """Mini-batches (count, streams, ..., n, b), checked on the host and moved to the device of `like` at once."""
        return PreparedBatches(batches, self.counts, self._offset, like)

    def _prepare_one(self, batch: Array, xp: Namespace) -> PreparedBatch:
        if is_numpy(batch):
            return self.prepare(batch[None, None], self.all.like)[0, 0]
        counts, offset = self._on_device
        wrong = (batch < -1) | (batch >= counts)
        valid = batch >= 0
        index = xp.astype(xp.where(valid & ~wrong, batch, xp.zeros_like(batch)), offset.dtype)
        number = xp.sum(xp.astype(valid, self.all.mean.dtype), axis=-1, keepdims=True)
        weight = xp.where(wrong, xp.full_like(number, float("nan")), xp.astype(valid, number.dtype))
        mean = weight / xp.where(number > 0, number, xp.ones_like(number))
        return PreparedBatch(tuple(batch.shape), index + offset, index, mean, None)

    def restrict(self, clients: np.ndarray | slice, take: Callable[[Array], Array]) -> Instances:
        """The instances of some clients; `take` selects their rows of an array."""
        X = self.all.features
        features = X.restrict(clients) if isinstance(X, SparseRows) else take(X)
        return Instances(features, take(self.all.targets), self.counts[clients])

    def to(self, move: Callable[[Array], Array]) -> Instances:
        """The same instances with `move` applied to every array."""
        X = self.all.features
        features = X.to(move) if isinstance(X, SparseRows) else move(X)
        return Instances(features, move(self.all.targets), self.counts)


class InstanceProblem(Portable):
    """A problem with training and validation instances: its data, and copies with other data."""

    def __init__(self, train: Instances, val: Instances) -> None:
        self._train, self._val = train, val
        self._xp = validation.same_kind(X=train.all.like, X_val=val.all.like)
        if len(train.counts) != len(val.counts):
            raise ValueError(f"X_val must have {len(train.counts)} clients like X, got {len(val.counts)}")
        self.n_clients = len(train.counts)
        self.clients = np.arange(self.n_clients)  # their numbers in the problem that this one is a restriction of

    def _like(self) -> Array:
        return self._train.all.like

    @property
    def counts(self) -> np.ndarray:
        """Training instances of each client, on the host.  # (n,)"""
        return self._train.counts.copy()

    def prepare_batches(self, host_batches: np.ndarray, like: Array) -> PreparedBatches:
        """Mini-batches (count, streams, ..., n, b), checked on the host and moved to the device of `like` at once.

        Entry [k, stream] is a `batch` of this problem; using it is no more than a gather on the device.
        """
        return self._train.prepare(host_batches, like)

    def device_batches(self, size: int, replace: bool, like: Array) -> DeviceBatches | None:
        """Draws mini-batches on the device of `like`; None if the host draws them."""
        width = size if replace else min(size, int(self._train.counts.max()))
        if not cuda.applies(like) or (width > cuda.LARGEST_BATCH and not replace):
            return None
        return DeviceBatches(self._train, self.clients, width, replace, like)

    @property
    def validation_counts(self) -> np.ndarray:
        """Validation instances of each client, on the host.  # (n,)"""
        return self._val.counts.copy()

    def _with(self, change: Callable[[Array], Array], clients: slice | np.ndarray | None = None) -> Any:
        def changed(instances: Instances) -> Instances:
            return instances.to(change) if clients is None else instances.restrict(clients, change)

        other = copy.copy(self)
        other._train = changed(self._train)
        other._val = other._train if self._val is self._train else changed(self._val)
        return other


# --------------------------------------------------------------------------------------------------------- mini-batches
#
# For client i with n_i valid entries in a mini-batch an entry has the weight 1/n_i, padding 0. All of this follows from
# the drawn indices, so it is computed on the host for many mini-batches at once and moved in three transfers. On the
# device a mini-batch is then two gathers.


@dataclass(frozen=True)
class PreparedBatch:
    """One mini-batch of every client, on the device of the data."""

    shape: Shape  # (..., n, b)
    flat: Array  # (..., n, b) rows in the stacked features of all clients
    index: Array  # (..., n, b) instance numbers, 0 for padding
    mean: Array  # (..., n, b) 1 / (number of valid entries), 0 for padding
    rows: np.ndarray | None  # (n,) leading entries that include all valid ones, on NumPy if they differ from b

    def __getitem__(self, run: Any) -> PreparedBatch:
        """The mini-batch of one run."""
        parts = (self.flat[run], self.index[run], self.mean[run])
        return PreparedBatch(tuple(parts[0].shape), *parts, self.rows)


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
        self._rows = None  # (count, streams, n), one past the last valid entry of each client in any run
        if is_numpy(like) and not valid.all():
            used = np.any(valid, axis=tuple(range(2, valid.ndim - 2)))  # (count, streams, n, b)
            self._rows = np.max(np.where(used, np.arange(1, valid.shape[-1] + 1), 0), axis=-1)
        self._flat, self._index, self._mean = (from_host(a, like=like) for a in (index + offset, index, mean))

    @staticmethod
    def drawn(flat: Array, index: Array, mean: Array) -> PreparedBatches:
        """Mini-batches that the device has drawn."""
        batches = object.__new__(PreparedBatches)
        batches._shape, batches._rows = tuple(flat.shape[2:]), None
        batches._flat, batches._index, batches._mean = flat, index, mean
        return batches

    def __getitem__(self, key: tuple[int, int]) -> PreparedBatch:
        at = (*key, ...)
        rows = None if self._rows is None else self._rows[key]
        if rows is not None and np.all(rows == self._shape[-1]):
            rows = None
        return PreparedBatch(self._shape, self._flat[at], self._index[at], self._mean[at], rows)


class DeviceBatches:
    """Draws on the device the mini-batches of `width` entries that `batches.sample_batches` draws on the host."""

    def __init__(self, instances: Instances, clients: np.ndarray, width: int, replace: bool, like: Array) -> None:
        self._counts, self._clients = instances._on_device[0], from_host(np.asarray(clients, np.int64), like=like)
        self._longest = int(instances.all.features.shape[1])
        self._width, self._replace, self._like = width, replace, like

    def draw(self, seeds: Sequence[int], streams: int, first: int, count: int, run_axis: bool) -> PreparedBatches:
        """Batches first .. first + count − 1 of each stream and seed, (count, streams, [runs,] n, b)."""
        xp = array_namespace(self._like)
        shape = (count, streams, len(seeds), len(self._clients), self._width)
        dtypes = (xp.int64, xp.int64, self._like.dtype)
        parts = [xp.empty(shape, dtype=dtype, device=device(self._like)) for dtype in dtypes]
        for stream in range(streams):
            for run, seed in enumerate(seeds):
                rule = (self._longest, self._replace, first, BATCHES + stream, key(seed))
                out = (part[:, stream, run, ...] for part in parts)
                cuda.draw_batches(self._counts, self._clients, *rule, *out)
        return PreparedBatches.drawn(*(part if run_axis else part[:, :, 0, ...] for part in parts))


def require_existing(batches: np.ndarray, counts: np.ndarray) -> None:
    """ValueError unless every entry of batches (..., n, b) is -1 or one of its client's instances."""
    wrong = (batches < -1) | (batches >= counts[:, None])
    if wrong.any():
        client = int(np.argwhere(wrong)[0][-2])
        raise ValueError(
            f"batch must hold indices from 0 to {counts[client] - 1} or -1 for padding for client {client}, "
            f"got {batches[wrong][0]}"
        )


# -------------------------------------------------------------------------------------------------------- reading data


Data = Array | Sequence[Array]  # (n, N, ...), or n arrays (N_i, ...); features may be n sparse matrices of SciPy


def array_of(features: Any) -> Array:
    """The features, or the stored values of sparse ones: an array of their library, device and dtype."""
    return features.values if isinstance(features, SparseRows) else features


def read_instances(X: Data, y: Data, loss: Loss, names: tuple[str, str]) -> Instances:
    """Copies of features and labels after a check, padded to equal length, with encoded labels."""
    features, counts = read_features(names[0], X)
    if hasattr(X, "shape"):
        features = array_namespace(features).asarray(features, copy=True)
    labels, label_counts = read_labels(names[1], y, array_of(features))
    if counts.shape != label_counts.shape:
        raise ValueError(f"{names[1]} must have {len(counts)} clients like {names[0]}, got {len(label_counts)}")
    for i in np.flatnonzero(counts != label_counts)[:1]:
        raise ValueError(f"{names[1]} must have {counts[i]} labels of client {i} as {names[0]}, got {label_counts[i]}")
    if loss.n_classes is not None:
        check_labels(names[1], labels, loss.n_classes)
    return Instances(features, loss.encode(labels, xp=array_namespace(labels)), counts)


def read_features(name: str, X: Data) -> tuple[Any, np.ndarray]:
    """Features (n, N, d), padded, or sparse; and the number of instances of each client."""
    if is_sparse(X):
        return read_sparse(name, X)
    for part in X if isinstance(X, list | tuple) else (X,):
        if elsewhere := sparse_of_a_device(part):
            raise TypeError(
                f"{name} must be an array, or a list of arrays or of sparse matrices of SciPy, got {elsewhere}; "
                "problem.to(...) moves sparse features to a device"
            )
    return pad(name, X, 2)


def read_labels(name: str, y: Data, features: Array) -> tuple[Array, np.ndarray]:
    """Labels (n, N_max) in the library and dtype of `features`, and the number of each client."""
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
    """ValueError unless every label is an integer from 0 to n_classes − 1."""
    xp = array_namespace(labels)
    good = (labels >= 0) & (labels <= n_classes - 1) & (labels == xp.floor(labels))
    if not bool(to_host(xp.all(good))):
        bad = to_host(labels)[~to_host(good)][0]
        valid = "0 or 1" if n_classes == 2 else f"whole numbers from 0 to {n_classes - 1}"
        raise ValueError(f"{name} must hold labels that are {valid}, got {bad}")


def pad(name: str, data: Data, ndim: int) -> tuple[Array, np.ndarray]:
    """An array (n, N, ...) unchanged, or a sequence of n arrays (N_i, ...) padded with zeros; and the N_i."""
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


# -------------------------------------------------------------------------------------------------------------- digests
#
# A checkpoint belongs to one problem. Costs and gradients at one point distinguish most problems, but one changed label
# of 20,000 changes them by less than rounding on another machine does. Problems that hold their data therefore have a
# `data_digest()`, which a checkpoint stores and compares exactly.


def digest(problem: object, *parts: Any) -> str:
    """SHA-256 of the class of `problem`, its public settings that are numbers or text, and `parts`.

    Parts are arrays, `Instances`, text, numbers or None. Equal data have equal digests on every library and device.
    """
    public = {name: value for name, value in vars(problem).items() if not name.startswith("_")}
    plain = sorted((name, value) for name, value in public.items() if isinstance(value, str | bool | int | float))
    total = hashlib.sha256(f"{type(problem).__name__} {plain}".encode())
    for part in parts:
        _add(total, part)
    return total.hexdigest()


def digest_of(problem: FullProblem) -> str | None:
    """The `data_digest()` of a problem, or None if it has none."""
    data_digest = optional(problem.wrapped, "data_digest")
    return data_digest() if callable(data_digest) else None


def _add(total: Any, part: Any) -> None:
    if isinstance(part, Instances):
        X = part.all.features
        features = (X.d, X.values, X.columns, X.starts) if isinstance(X, SparseRows) else (X,)
        for array in (part.counts, *features, part.all.targets):
            _add(total, array)
    elif hasattr(part, "shape"):
        host = np.ascontiguousarray(to_host(part))
        total.update(f"{host.dtype} {host.shape}".encode())
        total.update(host.data if host.size else b"")
    else:
        total.update(repr(part).encode())
