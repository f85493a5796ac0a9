"""Limits of the machine: reading, random updates and dense products, measured in the same run as the programs."""

from __future__ import annotations

import numpy as np
from numba import njit

from hgp_ref._kernels import mixing as registers
from hgp_ref._kernels.mixing import LINE


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def read(rows: np.ndarray) -> float:
    """One pass over an array of rows: the sum of its elements, four rows at a time, which is faster than one."""
    m, d = rows.shape
    total = rows.dtype.type(0)
    for i in range(0, m - 3, 4):
        a, b, c, e = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for k in range(d):
            total += (a[k] + b[k]) + (c[k] + e[k])
    for i in range(m - m % 4, m):
        for k in range(d):
            total += rows[i, k]
    return total


@njit(cache=True, nogil=True)
def update_random_rows(order: np.ndarray, source: np.ndarray, out: np.ndarray) -> None:
    """out[order[e]] += source[e] for rows of a cache line: the least work of a sparse step, edge by edge."""
    for e in range(order.size):
        i, added = np.uint32(order[e]), registers.load(source, e % source.shape[0], 0, LINE)
        registers.store(registers.plus(registers.load(out, i, 0, LINE), added), out, i, 0)


@njit(cache=True, nogil=True)
def update_random_numbers(order: np.ndarray, out: np.ndarray) -> None:
    """The same for single numbers, as Push-Sum's weights are."""
    for e in range(order.size):
        out[np.uint32(order[e])] += 1.0


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A dense product: 2 m k n floating-point operations."""
    return a @ b
