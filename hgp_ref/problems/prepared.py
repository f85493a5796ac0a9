"""Mini-batches looked at on the host: where their instances are, what each counts, and that they exist.

For client i with n_i valid entries in a mini-batch an entry counts 1/n_i, padding 0. All of this is known from the
drawn indices, so it is worked out on the host for many mini-batches at once and sent in three transfers; on the device
a mini-batch is then two gathers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype, is_numpy
from hgp_ref.problems.arrays import Shape


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
            f"batch: client {client} has {counts[client]} instances, needed indices from 0 to "
            f"{counts[client] - 1} or -1 for padding, got {batches[wrong][0]}"
        )
