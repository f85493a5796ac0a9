"""One step of a sparse mixing matrix on host arrays: pulled along its rows, or pushed along its columns.

    pull:  out[i, :] = Σ_e weights[e] z[indices[e], :]    over the edges indptr[i] ≤ e < indptr[i+1] of receiver i
    push:  out[i, :] = Σ_j z[j, :] / outdegree(j)         over the senders j that have i among their receivers

Pulling takes any weights, as CSR. Pushing is for networks whose senders split equally, and takes the lists of receivers
as they are drawn: no sort by receiver, no weights. A receiver adds its senders in their order, beginning from 0, and
every product and sum rounds once: its row is the same bit for bit whether it is computed alone, in a range, or by any
of several threads, and pushed or pulled (senders in increasing order). `pull_rows` and `push_rows` say this in loops.
What runs holds blocks of columns in registers: the loops take 1.3 to 3 times as long when pulling, up to twice as long
when pushing short rows, as `python -m benchmarks mixing` measures.

`out` holds the rows of receivers begin, begin + 1, ...; z may hold more rows or fewer. Both are contiguous, (·, d).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref._kernels import registers
from hgp_ref._kernels.registers import LINE
from hgp_ref.compiled import njit
from hgp_ref.threads import over_rows

WIDE, NARROW = 256, 16  # bytes of a block of columns, beside a cache line: eight AVX2 registers, an SSE register
AHEAD = 8  # edges between asking for a wide block and adding it: rows of z lie anywhere, and not in a cache near by


def empty_like(z: np.ndarray) -> np.ndarray:
    """An uninitialised array for the result of a step; it begins at a cache line, so rows lie in as few as they can.

    NumPy's own begin 16 bytes after one: a row of 64 bytes is then two lines, and slower by half.
    """
    room = np.empty(z.nbytes + LINE, dtype=np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + z.nbytes].view(z.dtype).reshape(z.shape)


def pull_step(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, z: np.ndarray, out: np.ndarray, begin: int = 0
) -> None:
    """out[i - begin] = Σ over the senders j of row i of weights[i, j] z[j], for as many rows i as out has; CSR."""
    own = indptr[begin : begin + out.shape[0] + 1]
    over_rows(_pull_blocks, out.shape[0], int(own[-1] - own[0]) * z.shape[1], own, indices, weights, z, out)


@njit(cache=True, nogil=True)
def pull_rows(begin, end, indptr, indices, weights, z, out):
    """Rows begin .. end-1 of a step, the definition."""
    for i in range(begin, end):
        out[i] = 0
        for e in range(indptr[i], indptr[i + 1]):
            weight, j = z.dtype.type(weights[e]), np.uint32(indices[e])
            for c in range(z.shape[1]):
                out[i, c] += weight * z[j, c]


def _pull_block(width: int) -> Any:
    """`width` bytes of a row i of the result, from column c on."""
    wide = width >= WIDE

    @njit(cache=False, nogil=True, forceinline=True)
    def block(indices, weights, z, out, first, last, i, c):
        total = registers.zeros(z, width)
        for e in range(first, last):
            edge = np.uint64(e)
            if wide:
                later = np.uint64(min(e + AHEAD, indices.size - 1))
                registers.fetch(z, np.uint32(indices[later]), c, width)
            sent = registers.load(z, np.uint32(indices[edge]), c, width)
            total = registers.plus(total, registers.times(weights[edge], sent))
        registers.store(total, out, i, c)

    return block


_pull_wide, _pull_line, _pull_narrow = (_pull_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _pull_blocks(begin, end, indptr, indices, weights, z, out):
    """`pull_rows` in blocks of columns; the last block may overlap the one before, fewer columns go one by one."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    for i in range(begin, end):
        first, last = indptr[i], indptr[i + 1]
        c = 0
        while c + wide <= d:
            _pull_wide(indices, weights, z, out, first, last, i, c)
            c += wide
        if wide <= d and c + line < d:  # one wide block takes as long as two narrower ones
            _pull_wide(indices, weights, z, out, first, last, i, d - wide)
            c = d
        while c + line <= d:
            _pull_line(indices, weights, z, out, first, last, i, c)
            c += line
        while c < d and narrow <= d:
            _pull_narrow(indices, weights, z, out, first, last, i, min(c, d - narrow))
            c += narrow
        for b in range(c, d):
            total = z.dtype.type(0)
            for e in range(first, last):
                edge = np.uint64(e)
                total += z.dtype.type(weights[edge]) * z[np.uint32(indices[edge]), b]
            out[i, b] = total


def pull_vector_step(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    omega: np.ndarray,
    begin: int = 0,
    end: int | None = None,
) -> np.ndarray:
    """Entries begin .. end-1 (all by default) of W ω for a vector ω, in float64: Push-Sum's weights."""
    own = indptr[begin:] if end is None else indptr[begin : end + 1]
    out = np.empty(own.size - 1, dtype=omega.dtype)
    over_rows(_pull_vector, out.size, int(own[-1] - own[0]), own, indices, weights, omega, out)
    return out


@njit(cache=True, nogil=True)
def _pull_vector(begin, end, indptr, indices, weights, omega, out):
    for i in range(begin, end):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weights[e] * omega[np.uint32(indices[e])]
        out[i] = total


def push_step(indptr: np.ndarray, receivers: np.ndarray, z: np.ndarray, out: np.ndarray, begin: int = 0) -> None:
    """out[i - begin] = Σ over the senders j that reach i of z[j] / outdegree(j), from every sender's sorted receivers.

    No matrix by rows is needed: what a sender holds is read once and added to its receivers' rows.
    """
    over_rows(_push_blocks, out.shape[0], receivers.size * z.shape[1], indptr, receivers, z, out, begin)


@njit(cache=True, nogil=True, inline="always")
def within(receivers, first, last, begin, end):
    """Which of the sorted receivers[first : last] lie in begin .. end-1."""
    while first < last and receivers[first] < begin:
        first += 1
    while last > first and receivers[last - 1] >= end:
        last -= 1
    return first, last


@njit(cache=True, nogil=True)
def push_rows(begin, end, indptr, receivers, z, out, offset):
    """Rows begin .. end-1 of `out`, those of receivers offset + begin .. offset + end-1: the definition."""
    out[begin:end] = 0
    for j in range(z.shape[0]):
        share = z.dtype.type(1.0 / (indptr[j + 1] - indptr[j]))
        first, last = within(receivers, indptr[j], indptr[j + 1], offset + begin, offset + end)
        for e in range(first, last):
            i = np.uint64(receivers[e] - offset)
            for c in range(z.shape[1]):
                out[i, c] += share * z[j, c]


def _push_block(width: int) -> Any:
    """`width` bytes of what sender j holds, from column c on, to the rows of its receivers."""

    @njit(cache=False, nogil=True, forceinline=True)
    def block(receivers, share, z, out, first, last, j, c, offset):
        sent = registers.times(share, registers.load(z, j, c, width))
        c -= offset * out.shape[1]  # in `out` receiver i begins that many rows earlier
        for e in range(first, last):
            i = np.uint32(receivers[np.uint64(e)])
            registers.store(registers.plus(registers.load(out, i, c, width), sent), out, i, c)

    return block


_push_wide, _push_line, _push_narrow = (_push_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _push_blocks(begin, end, indptr, receivers, z, out, offset):
    """`push_rows` in blocks of columns, and what few columns are left one by one."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    out[begin:end] = 0
    for j in range(z.shape[0]):
        first, last = indptr[j], indptr[j + 1]
        share = 1.0 / (last - first)
        if end - begin < z.shape[0]:
            first, last = within(receivers, first, last, offset + begin, offset + end)
        c = 0
        while c + wide <= d:
            _push_wide(receivers, share, z, out, first, last, j, c, offset)
            c += wide
        while c + line <= d:
            _push_line(receivers, share, z, out, first, last, j, c, offset)
            c += line
        while c + narrow <= d:
            _push_narrow(receivers, share, z, out, first, last, j, c, offset)
            c += narrow
        for b in range(c, d):
            sent = z.dtype.type(share) * z[j, b]
            for e in range(first, last):
                out[np.uint64(np.uint32(receivers[np.uint64(e)]) - offset), b] += sent


def push_vector_step(
    indptr: np.ndarray, receivers: np.ndarray, omega: np.ndarray, begin: int = 0, end: int | None = None
) -> np.ndarray:
    """Entries begin .. end-1 (all by default) of W ω for a vector ω, in float64, where every sender splits equally."""
    out = np.empty((omega.size if end is None else end) - begin, dtype=omega.dtype)
    over_rows(_push_vector, out.size, receivers.size, indptr, receivers, omega, out, begin)
    return out


@njit(cache=True, nogil=True)
def _push_vector(begin, end, indptr, receivers, omega, out, offset):
    out[begin:end] = 0.0
    for j in range(omega.size):
        first, last = indptr[j], indptr[j + 1]
        share = (1.0 / (last - first)) * omega[j]  # as pulled, bit for bit
        if end - begin < omega.size:
            first, last = within(receivers, first, last, offset + begin, offset + end)
        for e in range(first, last):
            out[np.uint64(np.uint32(receivers[np.uint64(e)]) - offset)] += share


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
