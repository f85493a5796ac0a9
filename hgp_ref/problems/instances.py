"""Labelled instances of n clients, padded to the longest client, and the linear maps that they define.

Client i holds N_i instances (rows of its feature matrix). They are stored as one array (n, N_max, d) whose padding
rows have weight zero, so that clients of unequal size are one batched product and none is dropped. `View` is what the
costs see: all instances, or those of a mini-batch, with the weight of each in its client's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import array_namespace, device, from_host, host_dtype, is_numpy, to_host
from hgp_ref.problems.arrays import Shape, matmul_runs
from hgp_ref.problems.losses import Loss

Array = Any


@dataclass(frozen=True)
class View:
    """Instances that a cost averages over: the only place where features meet vectors."""

    features: Array  # (..., n, N, d)
    targets: Array  # (..., n, N, C), encoded by the loss
    mean: Array  # (..., n, N), 1 / (number of valid instances), 0 for padding
    index: Array | None  # (..., n, N) instance numbers, padding set to 0; None for all instances

    def forward(self, u: Array, *, xp: Any) -> Array:
        """Logits of every instance, features_i U_i with U_i the (d, C) matrix of u_i.  # (..., n, N, C)"""
        d, c = self.features.shape[-1], self.targets.shape[-1]
        return matmul_runs(self.features, xp.reshape(u, (*u.shape[:-1], d, c)), xp=xp)

    def adjoint(self, r: Array, *, xp: Any) -> Array:
        """features_i^T R_i, flattened as u is.  # (..., n, d C)"""
        product = matmul_runs(xp.matrix_transpose(self.features), r, xp=xp)
        return xp.reshape(product, (*product.shape[:-2], product.shape[-2] * product.shape[-1]))


class Instances:
    """The instances of every client with encoded labels; `counts` (n,) says how many each client has."""

    def __init__(self, features: Array, targets: Array, counts: np.ndarray) -> None:
        n, longest = features.shape[:2]
        self.counts = np.asarray(counts, dtype=np.int64)
        mask = np.arange(longest) < self.counts[:, None]
        mean = from_host((mask / self.counts[:, None]).astype(host_dtype(features)), like=features)
        self.all = View(features, targets, mean, None)
        self._limit = from_host(self.counts[:, None], like=features)  # (n, 1)
        self._offset = from_host(longest * np.arange(n, dtype=np.int64)[:, None], like=features)  # (n, 1)

    def select(self, batch: Array | None, *, xp: Any) -> View:
        """The instances of a mini-batch (..., n, b), or all of them.

        An index beyond a client's instances is a ValueError on NumPy; elsewhere, where looking would stop the device,
        it makes the client's results NaN. A client whose entries are all padding has no data term.
        """
        if batch is None:
            return self.all
        wrong = (batch < -1) | (batch >= self._limit)
        if is_numpy(batch) and wrong.any():
            client = int(np.argwhere(wrong)[0][-2])
            raise ValueError(
                f"batch: client {client} has {self.counts[client]} instances, needed indices from 0 to "
                f"{self.counts[client] - 1} or -1 for padding, got {batch[wrong][0]}"
            )
        valid = batch >= 0
        index = xp.astype(xp.where(valid & ~wrong, batch, xp.zeros_like(batch)), self._offset.dtype)
        number = xp.sum(xp.astype(valid, self.all.mean.dtype), axis=-1, keepdims=True)
        weight = xp.where(wrong, xp.full_like(number, float("nan")), xp.astype(valid, number.dtype))
        mean = weight / xp.where(number > 0, number, xp.ones_like(number))
        rows = xp.reshape(index + self._offset, (-1,))
        return View(_rows(self.all.features, rows, batch.shape, xp), _rows(self.all.targets, rows, batch.shape, xp),
                    mean, index)  # fmt: skip

    def to(self, move: Any) -> Instances:
        """The same instances moved by `move`."""
        return Instances(move(self.all.features), move(self.all.targets), self.counts)


def _rows(a: Array, rows: Array, shape: Shape, xp: Any) -> Array:
    flat = xp.take(xp.reshape(a, (-1, a.shape[-1])), rows, axis=0)
    return xp.reshape(flat, (*shape, a.shape[-1]))


def read_instances(X: Any, y: Any, loss: Loss, names: tuple[str, str]) -> Instances:
    """Check features and labels, pad clients to equal length, encode the labels."""
    features, counts = pad(names[0], X, 2)
    labels, label_counts = read_labels(names[1], y, features)
    if counts.shape != label_counts.shape:
        raise ValueError(
            f"{names[1]}: labels of {len(label_counts)} clients given, needed {len(counts)} as in {names[0]}"
        )
    for i in np.flatnonzero(counts != label_counts)[:1]:
        raise ValueError(f"{names[1]}: client {i} has {label_counts[i]} labels, needed {counts[i]} as in {names[0]}")
    check_labels(names[1], labels, 2 if loss.logits == 1 else loss.logits)
    return Instances(features, loss.encode(labels, xp=array_namespace(labels)), counts)


def read_labels(name: str, y: Any, features: Array) -> tuple[Array, np.ndarray]:
    """Labels (n, N_max) as floats beside `features`, and how many each client has."""
    parts = [y] if hasattr(y, "shape") else list(y)
    for part in parts:
        try:
            xp = array_namespace(part, features)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        if device(part) != device(features):
            raise TypeError(f"{name}: on device {device(part)}, needed the features' device {device(features)}")
    cast = [xp.astype(part, features.dtype) for part in parts]
    return pad(name, cast[0] if hasattr(y, "shape") else cast, 1)


def check_labels(name: str, labels: Array, n_classes: int) -> None:
    """ValueError unless every label is a whole number from 0 to n_classes - 1."""
    xp = array_namespace(labels)
    good = (labels >= 0) & (labels <= n_classes - 1) & (labels == xp.floor(labels))
    if not bool(to_host(xp.all(good))):
        bad = to_host(labels)[~to_host(good)][0]
        needed = "0 or 1" if n_classes == 2 else f"whole numbers from 0 to {n_classes - 1}"
        raise ValueError(f"{name}: label {bad} given, needed {needed}")


def pad(name: str, data: Any, ndim: int) -> tuple[Array, np.ndarray]:
    """An array (n, N, ...) as it is, or a sequence of n arrays (N_i, ...) padded with zeros; and the N_i."""
    form = "(n, N, d) or a list of n arrays (N_i, d)" if ndim == 2 else "(n, N) or a list of n arrays (N_i,)"
    if hasattr(data, "shape"):
        arguments.same_kind(**{name: data})
        if data.ndim != ndim + 1 or data.shape[0] < 1 or 0 in data.shape[2:]:
            raise ValueError(f"{name}: shape {tuple(data.shape)} given, needed {form}")
        parts, counts = None, np.full(data.shape[0], data.shape[1], dtype=np.int64)
    else:
        parts = list(data) if isinstance(data, Sequence) else []
        if not parts:
            raise ValueError(f"{name}: {type(data).__name__} without arrays given, needed {form}")
        arguments.same_kind(**{f"{name}[{i}]": part for i, part in enumerate(parts)})
        for i, part in enumerate(parts):
            if part.ndim != ndim or tuple(part.shape[1:]) != tuple(parts[0].shape[1:]) or 0 in part.shape[1:]:
                raise ValueError(f"{name}[{i}]: shape {tuple(part.shape)} given, needed {form}")
        counts = np.array([part.shape[0] for part in parts], dtype=np.int64)
    for i in np.flatnonzero(counts == 0)[:1]:
        raise ValueError(f"{name}: client {i} has no instances, needed at least one for every client")
    padded = data if parts is None else _stack(parts, int(counts.max()))
    arguments.finite(name, padded)
    return padded, counts


def _stack(parts: list[Array], longest: int) -> Array:
    xp = array_namespace(parts[0])
    rows = []
    for part in parts:
        shape = (longest - part.shape[0], *part.shape[1:])
        rows.append(xp.concat([part, xp.zeros(shape, dtype=part.dtype, device=device(part))], axis=0))
    return xp.stack(rows, axis=0)
