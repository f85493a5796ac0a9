"""Products and sums over each client's own rows, for NumPy arrays in which clients of unequal size are padded.

Zeros appended to a sum do not change its value, but they change the order in which BLAS and NumPy add, and with it the
last bit. Here client i's product has N_i rows whatever the padding, and is made by the very call that a batched product
makes for it where all clients are of one size. Neighbours of equal size still share a call.
"""

from __future__ import annotations

import numpy as np


class OwnRows:
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
