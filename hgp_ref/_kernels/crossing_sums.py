"""Sums over the edges that `crossing` finds, in parts that follow the senders' order.

A receiver adds its senders in increasing order, beginning from 0, and every product and sum rounds once: whether they
are pushed or pulled, in one part or in several, the sums are those of `mixing.pull_step` and `mixing.push_step`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref._kernels import registers
from hgp_ref._kernels.crossing import Heard, Pulled
from hgp_ref._kernels.mixing import NARROW, WIDE, within
from hgp_ref._kernels.registers import LINE
from hgp_ref.compiled import njit
from hgp_ref.threads import over_rows


def add_heard(places: np.ndarray, heard: Heard, z: np.ndarray, out: np.ndarray) -> None:
    """out[i] += weight · z[places[k]] for the edges of the k-th sender, one sender after the other.

    From out = 0 and senders in increasing order these are the sums of `mixing.pull_step`, bit for bit.
    """
    _, where, here, weights = heard
    over_rows(_add_blocks, out.shape[0], here.size * z.shape[1], places, where, here, weights, z, out)


def _add_block(width: int) -> Any:
    """`width` bytes of what stands in row j, from column c on, to the rows of its receivers."""

    @njit(cache=False, nogil=True, forceinline=True)
    def block(receivers, weights, z, out, first, last, j, c):
        sent = registers.load(z, j, c, width)
        for e in range(first, last):
            i = np.uint32(receivers[np.uint64(e)])
            added = registers.times(weights[np.uint64(e)], sent)
            registers.store(registers.plus(registers.load(out, i, c, width), added), out, i, c)

    return block


_add_wide, _add_line, _add_narrow = (_add_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _add_blocks(begin, end, places, where, receivers, weights, z, out):
    """Rows begin .. end-1 of out, in blocks of columns, and what few columns are left one by one."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    for k in range(places.size):
        j, first, last = places[k], where[k], where[k + 1]
        if end - begin < out.shape[0]:
            first, last = within(receivers, first, last, begin, end)
        c = 0
        while c + wide <= d:
            _add_wide(receivers, weights, z, out, first, last, j, c)
            c += wide
        while c + line <= d:
            _add_line(receivers, weights, z, out, first, last, j, c)
            c += line
        while c + narrow <= d:
            _add_narrow(receivers, weights, z, out, first, last, j, c)
            c += narrow
        for b in range(c, d):
            sent = z[j, b]
            for e in range(first, last):
                out[np.uint64(np.uint32(receivers[np.uint64(e)])), b] += z.dtype.type(weights[np.uint64(e)]) * sent


def pull_part(
    rows: np.ndarray, first: np.ndarray, last: np.ndarray, graph: Pulled, z: np.ndarray, out: np.ndarray, fresh: bool
) -> None:
    """out[i] = Σ over the edges first[i] .. last[i]-1 of weight · z[place] for the rows i that are listed.

    From 0 where `fresh`, from what out[i] holds elsewhere: the sums of `mixing.pull_step`, bit for bit, where the parts
    of a row come in order.
    """
    if not rows.size:
        return
    work = int(graph.places.size * z.shape[1] * rows.size / max(1, out.shape[0]))
    over_rows(_pull_part, rows.size, work, rows, first, last, graph.places, graph.weights, z, out, fresh)


def _pull_block(width: int) -> Any:
    """`width` bytes of row i of the result, from column c on."""

    @njit(cache=False, nogil=True, forceinline=True)
    def block(places, weights, z, out, first, last, i, c, fresh):
        total = registers.zeros(z, width) if fresh else registers.load(out, i, c, width)
        for e in range(first, last):
            edge = np.uint64(e)
            sent = registers.load(z, np.uint32(places[edge]), c, width)
            total = registers.plus(total, registers.times(weights[edge], sent))
        registers.store(total, out, i, c)

    return block


_pull_wide, _pull_line, _pull_narrow = (_pull_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _pull_part(begin, end, rows, first, last, places, weights, z, out, fresh):
    """In blocks of columns, and what few columns are left one by one: no block is added to twice."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    for k in range(begin, end):
        i = rows[k]
        a, b = first[i], last[i]
        c = 0
        while c + wide <= d:
            _pull_wide(places, weights, z, out, a, b, i, c, fresh)
            c += wide
        while c + line <= d:
            _pull_line(places, weights, z, out, a, b, i, c, fresh)
            c += line
        while c + narrow <= d:
            _pull_narrow(places, weights, z, out, a, b, i, c, fresh)
            c += narrow
        for column in range(c, d):
            total = z.dtype.type(0) if fresh else out[i, column]
            for e in range(a, b):
                edge = np.uint64(e)
                total += z.dtype.type(weights[edge]) * z[np.uint32(places[edge]), column]
            out[i, column] = total
