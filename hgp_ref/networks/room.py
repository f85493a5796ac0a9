"""Room for arrays of n x n entries, or an error that says how much they need and which networks do without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hgp_ref.memory import GIB, memory


def allocate(what: object, shape: tuple[int, ...], dtype: Any = np.float64, zero: bool = False) -> np.ndarray:
    """An array (..., n, n) for `what`, a network or its name; MemoryError with advice if there is no room for it."""
    needed, there = math.prod(shape) * np.dtype(dtype).itemsize, memory()
    try:
        if there is not None and needed > there:
            raise MemoryError(f"{needed} bytes, and the machine has {there}")
        return np.zeros(shape, dtype) if zero else np.empty(shape, dtype)
    except MemoryError as error:
        n, steps = shape[-1], math.prod(shape[:-2])
        times = "" if steps == 1 else f" for each of {steps} steps"
        raise MemoryError(
            f"{what}: n² = {n * n:,} entries of {np.dtype(dtype).name}{times} needed, {needed / GIB:.1f} GiB; for so "
            "many clients take a sparse network (RandomOut, SparseErdosRenyi, Schedule of edge lists), by csr or "
            "out_lists (in averaging: mode='stepping')"
        ) from error
