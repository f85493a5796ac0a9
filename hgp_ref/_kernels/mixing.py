"""One step of a sparse mixing matrix on host arrays: pulled along its rows, or pushed along its columns.

Pulling takes any weights, as CSR. Pushing is for networks whose senders split equally, and takes the lists of receivers
as they are drawn: no sort by receiver, no weights. Each thread has receivers of its own, and every receiver adds its
senders in order, so both give the same sums whatever the number of threads.
"""

from __future__ import annotations

import numpy as np

from hgp_ref._kernels.vectors import (
    LINE,
    NARROW,
    WIDE,
    pull_line,
    pull_narrow,
    pull_wide,
    push_line,
    push_narrow,
    push_wide,
)
from hgp_ref.compiled import njit
from hgp_ref.threads import over_rows


def empty_like(z: np.ndarray) -> np.ndarray:
    """An uninitialised array for the result of a step; it begins at a cache line, so rows lie in as few as they can.

    NumPy's own begin 16 bytes after one: a row of 64 bytes is then two lines, and slower by half.
    """
    room = np.empty(z.nbytes + LINE, dtype=np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + z.nbytes].view(z.dtype).reshape(z.shape)


def pull_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out[i] = Σ over the senders j of row i of weights[i, j] z[j]; CSR, z and out contiguous, (n, d)."""
    kernel = _pull_rows if z.shape[1] * z.itemsize >= NARROW else pull_rows_plain
    over_rows(kernel, z.shape[0], indices.size * z.shape[1], indptr, indices, weights, z, out)


@njit(cache=True, nogil=True)
def pull_rows_plain(begin, end, indptr, indices, weights, z, out):
    """Rows begin .. end-1 of a step: the definition, and the way for few columns."""
    for i in range(begin, end):
        for c in range(z.shape[1]):
            total = z.dtype.type(0)
            for e in range(indptr[i], indptr[i + 1]):
                total += z.dtype.type(weights[e]) * z[np.uint32(indices[e]), c]
            out[i, c] = total


@njit(cache=True, nogil=True)
def _pull_rows(begin, end, indptr, indices, weights, z, out):
    """The same in blocks of columns that stay in registers; the last block may overlap the one before."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    for i in range(begin, end):
        first, last = indptr[i], indptr[i + 1]
        c = 0
        while c + wide <= d:
            pull_wide(indices, weights, z, out, first, last, i, c)
            c += wide
        while c + line <= d:
            pull_line(indices, weights, z, out, first, last, i, c)
            c += line
        while c < d:
            pull_narrow(indices, weights, z, out, first, last, i, min(c, d - narrow))
            c += narrow


def pull_vector_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """W ω for a vector ω, in float64: Push-Sum's weights."""
    out = np.empty_like(omega)
    over_rows(_pull_vector_rows, omega.size, indices.size, indptr, indices, weights, omega, out)
    return out


@njit(cache=True, nogil=True)
def _pull_vector_rows(begin, end, indptr, indices, weights, omega, out):
    for i in range(begin, end):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weights[e] * omega[np.uint32(indices[e])]
        out[i] = total


def push_step(indptr: np.ndarray, receivers: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out[i] = Σ over the senders j that reach i of z[j] / outdegree(j), from the receivers of every sender, sorted.

    No matrix by rows is needed: what a sender holds is read once and added to its receivers' rows.
    """
    blocks = z.shape[1] * z.itemsize >= NARROW
    over_rows(_push_rows if blocks else push_rows_plain, z.shape[0], receivers.size * z.shape[1],
              indptr, receivers, z, out)  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def _within(receivers, first, last, begin, end):
    """Which of the sorted receivers[first : last] lie in begin .. end-1."""
    while first < last and receivers[first] < begin:
        first += 1
    while last > first and receivers[last - 1] >= end:
        last -= 1
    return first, last


@njit(cache=True, nogil=True)
def push_rows_plain(begin, end, indptr, receivers, z, out):
    """Rows begin .. end-1 of a step: the definition, and the way for few columns."""
    out[begin:end] = 0
    for j in range(z.shape[0]):
        share = z.dtype.type(1.0 / (indptr[j + 1] - indptr[j]))
        first, last = _within(receivers, indptr[j], indptr[j + 1], begin, end)
        for e in range(first, last):
            for c in range(z.shape[1]):
                out[np.uint32(receivers[e]), c] += share * z[j, c]


@njit(cache=True, nogil=True)
def _push_rows(begin, end, indptr, receivers, z, out):
    """The same in blocks of columns that stay in registers, and what few columns are left one by one."""
    n, d = z.shape
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    out[begin:end] = 0
    for j in range(n):
        first, last = indptr[j], indptr[j + 1]
        share = 1.0 / (last - first)
        if end - begin < n:
            first, last = _within(receivers, first, last, begin, end)
        c = 0
        while c + wide <= d:
            push_wide(receivers, share, z, out, first, last, j, c)
            c += wide
        while c + line <= d:
            push_line(receivers, share, z, out, first, last, j, c)
            c += line
        while c + narrow <= d:
            push_narrow(receivers, share, z, out, first, last, j, c)
            c += narrow
        for b in range(c, d):
            for e in range(first, last):
                out[np.uint32(receivers[e]), b] += z.dtype.type(share) * z[j, b]


def push_vector_step(indptr: np.ndarray, receivers: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """W ω for a vector ω, in float64, where every sender splits equally."""
    out = np.empty_like(omega)
    over_rows(_push_vector_rows, omega.size, receivers.size, indptr, receivers, omega, out)
    return out


@njit(cache=True, nogil=True)
def _push_vector_rows(begin, end, indptr, receivers, omega, out):
    out[begin:end] = 0.0
    for j in range(omega.size):
        first, last = indptr[j], indptr[j + 1]
        share = omega[j] / (last - first)
        if end - begin < omega.size:
            first, last = _within(receivers, first, last, begin, end)
        for e in range(first, last):
            out[np.uint32(receivers[e])] += share


@njit(cache=True, nogil=True)
def padded_rows(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """A CSR matrix as (n, width) senders and weights, short rows padded by weight 0: for libraries without CSR."""
    n = indptr.shape[0] - 1
    senders = np.zeros((n, width), dtype=np.int64)
    padded = np.zeros((n, width))
    for i in range(n):
        for k in range(indptr[i + 1] - indptr[i]):
            senders[i, k] = indices[indptr[i] + k]
            padded[i, k] = weights[indptr[i] + k]
    return senders, padded
