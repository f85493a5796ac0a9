"""One step of mixing along a sparse graph, and products of small dense mixing matrices.

For `mixing.simulated`, `mixing.unreliable` and `mpi.channel`. With W the mixing matrix of a graph, z (n, d), and N(i)
the clients from which i receives:

    pull_step    out_i = Σ_{j ∈ N(i)} W_ij z_j               any weights, as CSR by receiver
    push_step    out_i = Σ_{j ∈ N(i)} z_j / outdegree(j)     equal weights, from the receivers of each sender as drawn
    compose      P_c = W_{(c+1)S} … W_{cS+1}                 for calls c = 0, 1, … of S graphs
    products     the same for small dense random graphs, which are drawn and multiplied in one pass

What must not change: a receiver adds its senders in increasing order, starting from 0, and every product and every sum
rounds once (no fused multiply-add). So a row has the same bits whether it is computed alone, by any of several threads,
pushed or pulled, and whatever the number of columns. `pull_rows` and `push_rows` are this definition as plain loops.
The kernels in use sum blocks of columns in vector registers. They take 1/3 to 3/4 of the time of the plain loops
(`python -m benchmarks mixing`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, models, register_model

from hgp_ref._kernels.graphs import TILE, fill, weigh
from hgp_ref._numba import njit, over_rows

# Vector registers: a block of w bytes of a row as a value of the program.
#
#     zeros(z, w)               0, as a block of numbers of z's dtype
#     load(z, i, c, w)          z[i, c : c + lanes],  lanes = w / itemsize
#     fetch(z, i, c, w)         prefetch the cache lines of that block
#     store(block, z, i, c)     z[i, c : c + lanes] = block
#     times(number, block)      number · block, the number rounded to the block's precision first
#     plus(a, b)                a + b
#
# LLVM cannot know that the rows a kernel writes are not among those it reads. A loop in Numba therefore loads and
# stores the row it sums into at every edge. A sum that is a value of the program stays in registers. Arrays are
# C-contiguous, (n, d); indices are not checked. `_place` uses internals of Numba (numba.np.arrayobj).

LINE = 64  # bytes of a cache line


class Block(types.Type):
    """The type of `lanes` numbers of a row."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Block({dtype}, {lanes})")


@register_model(Block)
class _Vector(models.PrimitiveModel):
    """An LLVM vector."""

    def __init__(self, dmm: Any, kind: Block) -> None:
        from llvmlite import ir  # Numba's own compiler

        super().__init__(dmm, kind, ir.VectorType(dmm.lookup(kind.dtype).get_value_type(), kind.lanes))


def _instruction(generator: Any) -> Any:
    """Numba's `intrinsic`, with widths as literals."""
    return intrinsic(prefer_literal=True)(generator)


def _of(z: Any, width: Any) -> Block:
    return Block(z.dtype, width.literal_value // (z.dtype.bitwidth // 8))


def _place(context: Any, builder: Any, kind: Any, vector: Any, z: Any, row: Any, column: Any) -> Any:
    """Where the block that begins at z[row, column] lies."""
    from numba.np.arrayobj import make_array

    array = make_array(kind)(context, builder, z)
    begin = builder.add(builder.mul(row, builder.extract_value(array.shape, 1)), column)
    return builder.bitcast(builder.gep(array.data, [begin]), vector.as_pointer())


@_instruction
def zeros(typing, z, width):
    """A block of zeros of z's numbers."""

    def generate(context, builder, signature, arguments):
        return context.get_constant_null(signature.return_type)

    return _of(z, width)(z, width), generate


@_instruction
def load(typing, z, row, column, width):
    """z[row, column : column + lanes]."""

    def generate(context, builder, signature, arguments):
        vector = context.get_value_type(signature.return_type)
        place = _place(context, builder, signature.args[0], vector, *arguments[:3])
        return builder.load(place, align=signature.return_type.dtype.bitwidth // 8)

    return _of(z, width)(z, types.intp, types.intp, width), generate


@_instruction
def fetch(typing, z, row, column, width):
    """Ask for the cache lines of z[row, column : column + lanes]."""

    def generate(context, builder, signature, arguments):
        from llvmlite import ir

        vector = ir.VectorType(ir.IntType(8), LINE)
        place = _place(context, builder, signature.args[0], vector, *arguments[:3])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for line in range(max(1, width.literal_value // LINE)):
            address = builder.bitcast(builder.gep(place, [number(line)]), byte)
            builder.call(prefetch, [address, number(0), number(3), number(1)])  # to read, into every cache, data
        return context.get_dummy_value()

    return types.void(z, types.intp, types.intp, width), generate


@_instruction
def store(typing, block, z, row, column):
    """z[row, column : column + lanes] = block."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[1], arguments[0].type, *arguments[1:])
        builder.store(arguments[0], place, align=signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(block, z, types.intp, types.intp), generate


@_instruction
def times(typing, number, block):
    """number · block."""

    def generate(context, builder, signature, arguments):
        from llvmlite import ir

        number, vector = arguments
        zero, nothing = ir.IntType(32)(0), ir.Constant(vector.type, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(zero.type, vector.type.count), None)
        repeated = builder.shuffle_vector(builder.insert_element(nothing, number, zero), nothing, everywhere)
        return builder.fmul(repeated, vector)

    return block(block.dtype, block), generate


@_instruction
def plus(typing, a, b):
    """a + b."""
    return a(a, b), lambda context, builder, signature, arguments: builder.fadd(*arguments)


# One step of mixing. z and out are contiguous.


WIDE, NARROW = 256, 16  # bytes of blocks of columns, besides LINE: eight AVX2 registers, an SSE register
AHEAD = 8  # edges between the prefetch of a wide block and its use


def empty_like(z: np.ndarray) -> np.ndarray:
    """An uninitialised array like z that begins at a cache line.

    NumPy's arrays begin 16 bytes after one; a row of 64 bytes then covers two lines, and a step takes half as long
    again.
    """
    buffer = np.empty(z.nbytes + LINE, dtype=np.uint8)
    begin = -buffer.ctypes.data % LINE
    return buffer[begin : begin + z.nbytes].view(z.dtype).reshape(z.shape)


def pull_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out_i = Σ_j W_ij z_j for the rows i of a CSR matrix; a part of its indptr gives a part of the rows."""
    edges = int(indptr[-1] - indptr[0])
    over_rows(_pull_blocks, out.shape[0], edges * z.shape[1], indptr, indices, weights, z, out)


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
        total = zeros(z, width)
        for e in range(first, last):
            edge = np.uint64(e)
            if wide:
                later = np.uint64(min(e + AHEAD, indices.size - 1))
                fetch(z, np.uint32(indices[later]), c, width)
            sent = load(z, np.uint32(indices[edge]), c, width)
            total = plus(total, times(weights[edge], sent))
        store(total, out, i, c)

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


def pull_vector_step(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """W ω for a vector ω in float64, by rows as `pull_step`: Push-Sum's weights."""
    out = np.empty(indptr.size - 1, dtype=omega.dtype)
    over_rows(_pull_vector, out.size, int(indptr[-1] - indptr[0]), indptr, indices, weights, omega, out)
    return out


@njit(cache=True, nogil=True)
def _pull_vector(begin, end, indptr, indices, weights, omega, out):
    for i in range(begin, end):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weights[e] * omega[np.uint32(indices[e])]
        out[i] = total


def push_step(indptr: np.ndarray, receivers: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out_i = Σ_j z_j / outdegree(j) over the senders j of i, from the sorted receivers of every sender.

    The row of a sender is read once and added to the rows of its receivers.
    """
    over_rows(_push_blocks, out.shape[0], receivers.size * z.shape[1], indptr, receivers, z, out)


@njit(cache=True, nogil=True, inline="always")
def within(receivers, first, last, begin, end):
    """Which of the sorted receivers[first : last] lie in begin .. end-1."""
    while first < last and receivers[first] < begin:
        first += 1
    while last > first and receivers[last - 1] >= end:
        last -= 1
    return first, last


@njit(cache=True, nogil=True)
def push_rows(begin, end, indptr, receivers, z, out):
    """Rows begin .. end-1 of a step, the definition."""
    out[begin:end] = 0
    for j in range(z.shape[0]):
        share = z.dtype.type(1.0 / (indptr[j + 1] - indptr[j]))
        first, last = within(receivers, indptr[j], indptr[j + 1], begin, end)
        for e in range(first, last):
            i = np.uint64(receivers[e])
            for c in range(z.shape[1]):
                out[i, c] += share * z[j, c]


def _push_block(width: int) -> Any:
    """Add `width` bytes of the row of sender j, from column c on, to the rows of its receivers."""

    @njit(cache=False, nogil=True, forceinline=True)
    def block(receivers, share, z, out, first, last, j, c):
        sent = times(share, load(z, j, c, width))
        for e in range(first, last):
            i = np.uint32(receivers[np.uint64(e)])
            store(plus(load(out, i, c, width), sent), out, i, c)

    return block


_push_wide, _push_line, _push_narrow = (_push_block(width) for width in (WIDE, LINE, NARROW))


@njit(cache=True, nogil=True)
def _push_blocks(begin, end, indptr, receivers, z, out):
    """`push_rows` in blocks of columns; the last few columns go one by one."""
    d = z.shape[1]
    wide, line, narrow = WIDE // z.itemsize, LINE // z.itemsize, NARROW // z.itemsize
    out[begin:end] = 0
    for j in range(z.shape[0]):
        first, last = indptr[j], indptr[j + 1]
        share = 1.0 / (last - first)
        if end - begin < z.shape[0]:
            first, last = within(receivers, first, last, begin, end)
        c = 0
        while c + wide <= d:
            _push_wide(receivers, share, z, out, first, last, j, c)
            c += wide
        while c + line <= d:
            _push_line(receivers, share, z, out, first, last, j, c)
            c += line
        while c + narrow <= d:
            _push_narrow(receivers, share, z, out, first, last, j, c)
            c += narrow
        for b in range(c, d):
            sent = z.dtype.type(share) * z[j, b]
            for e in range(first, last):
                out[np.uint64(np.uint32(receivers[np.uint64(e)])), b] += sent


def push_vector_step(indptr: np.ndarray, receivers: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """W ω for a vector ω in float64, where every sender splits equally."""
    out = np.empty(omega.size, dtype=omega.dtype)
    over_rows(_push_vector, out.size, receivers.size, indptr, receivers, omega, out)
    return out


@njit(cache=True, nogil=True)
def _push_vector(begin, end, indptr, receivers, omega, out):
    out[begin:end] = 0.0
    for j in range(omega.size):
        first, last = indptr[j], indptr[j + 1]
        share = (1.0 / (last - first)) * omega[j]  # rounds as in `_pull_vector`
        if end - begin < omega.size:
            first, last = within(receivers, first, last, begin, end)
        for e in range(first, last):
            out[np.uint64(np.uint32(receivers[np.uint64(e)]))] += share


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


# Products of the mixing matrices of a call


DENSE_SPEEDUP = 8  # a multiply-add of a dense product takes about 1/8 of one in a sparse step


def compose(W: np.ndarray, steps: int, edges: float) -> np.ndarray:
    """P_c = W[(c+1)S-1] ... W[cS] for each call c; W is (calls * S, n, n), the result (calls, n, n).

    Dense matrices are multiplied by BLAS, all calls at once; where fewer than one entry in DENSE_SPEEDUP is an edge
    (`edges` expected in each), skipping the others is cheaper.
    """
    n = W.shape[-1]
    W = W.reshape(-1, steps, n, n)
    if DENSE_SPEEDUP * edges < n * n:
        return compose_edges(W)
    P = W[:, 0]
    for s in range(1, steps):
        P = W[:, s] @ P
    return P


@njit(cache=True, nogil=True)
def compose_edges(W: np.ndarray) -> np.ndarray:
    """The products of `compose` along edges, P[i, :] += W[i, k] P[k, :]: n nnz(W) per step; W is (calls, S, n, n)."""
    calls, steps, n, _ = W.shape
    P = W[:, 0].copy()
    old = np.empty((n, n))
    for c in range(calls):
        new = P[c]
        for s in range(1, steps):
            old[:] = new
            new[:] = 0.0
            for i in range(n):
                for k in range(n):
                    weight = W[c, s, i, k]
                    if weight != 0.0:
                        for j in range(n):
                            new[i, j] += weight * old[k, j]
    return P


@njit(cache=True, nogil=True)
def count_messages(W: np.ndarray, steps: int) -> np.ndarray:
    """The number of edges that are not self-loops in each call, for W of shape (calls * S, n, n)."""
    n = W.shape[1]
    messages = np.empty(W.shape[0] // steps, dtype=np.int64)
    flat = W.reshape(W.size)
    for c in range(messages.size):
        edges = 0
        for e in range(c * steps * n * n, (c + 1) * steps * n * n):
            edges += flat[e] != 0.0
        for t in range(c * steps, (c + 1) * steps):
            for i in range(n):
                edges -= W[t, i, i] != 0.0
        messages[c] = edges
    return messages


# Small dense random graphs: step s of up to TILE calls is drawn at once (these graphs are S steps apart) and multiplies
# the products of these calls. LLVM vectorises over calls. No single matrix is written to memory.


CLIENTS = 8  # up to which this is faster than `compose`


@njit(cache=True, nogil=True)
def products(last, floor, symmetric, stream, k0, k1, first, steps, out, messages):
    """P_c = W_{first+(c+1)S−1} … W_{first+cS} into out (calls, n, n), and the number of messages of call c."""
    n, calls = last.shape[0], out.shape[0]
    bits = np.empty((4, TILE), np.uint32)
    adjacency = np.empty((n, n, TILE), np.uint8)
    degree, share = np.empty(TILE, np.int32), np.empty(TILE, np.float64)
    weight, product = np.empty((n, n, TILE), np.float64), np.empty((2, n, n, TILE), np.float64)
    edges = np.empty(TILE, np.int64)
    for begin in range(0, calls, TILE):
        lanes = min(TILE, calls - begin)
        edges[:] = -n * steps
        for s in range(steps):
            fill(last, floor, symmetric, stream, k0, k1, first + begin * steps + s, steps, lanes, bits, adjacency)
            if s == 0:
                weigh(adjacency, lanes, degree, share, product[0])
            else:
                weigh(adjacency, lanes, degree, share, weight)
                _multiply(weight, product[(s - 1) % 2], lanes, product[s % 2])
            _count(adjacency, lanes, edges)
        last_product = product[(steps - 1) % 2]
        for t in range(lanes):
            messages[begin + t] = edges[t]
            for i in range(n):
                for j in range(n):
                    out[begin + t, i, j] = last_product[i, j, t]


@njit(cache=True, nogil=True)
def _multiply(a, b, lanes, out):
    """out = a b for each call of a tile."""
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            for t in range(lanes):
                out[i, j, t] = a[i, 0, t] * b[0, j, t]
            for k in range(1, n):
                for t in range(lanes):
                    out[i, j, t] += a[i, k, t] * b[k, j, t]


@njit(cache=True, nogil=True)
def _count(adjacency, lanes, edges):
    n = adjacency.shape[0]
    for i in range(n):
        for j in range(n):
            for t in range(lanes):
                edges[t] += adjacency[i, j, t]
