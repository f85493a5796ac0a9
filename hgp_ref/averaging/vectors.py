"""Weighted sums of rows in vector registers, written as LLVM vectors.

    out[row, c : c + w] = Σ_{begin ≤ e < end} weights[e] z[indices[e], c : c + w]

LLVM's own vectoriser cannot keep such a sum in registers: it cannot know that `out` is not part of `z`, so it loads and
stores the sum at every edge and checks for overlap before each short loop. Saying "a vector of w lanes" removes both.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

WIDE, NARROW = 256, 64  # bytes of a block of columns: eight AVX2 registers, and one cache line


def _row_sum(width: int) -> Any:
    """The intrinsic for blocks of `width` bytes; arrays are C-contiguous, indices int32 and not negative."""

    @intrinsic
    def row_sum(typing, indices, weights, z, out, begin, end, row, column):
        arrays = (indices, weights, z, out)
        return types.void(*arrays, *[types.intp] * 4), lambda *generate: _generate(width, *generate)

    return row_sum


def _generate(width: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    from llvmlite import ir  # part of Numba

    indices, weights, z, out = (
        make_array(kind)(context, builder, a) for kind, a in zip(signature.args[:4], arguments[:4], strict=True)
    )
    begin, end, row, column = arguments[4:]
    bits = signature.args[2].dtype.bitwidth
    number, intp, lanes = context.get_value_type(signature.args[2].dtype), begin.type, 8 * width // bits
    vector, lane = ir.VectorType(number, lanes), ir.VectorType(ir.IntType(32), lanes)
    columns = builder.extract_value(z.shape, 1)

    def block_of(array: Any, i: Any) -> Any:
        place = builder.gep(array.data, [builder.add(builder.mul(i, columns), column)])
        return builder.bitcast(place, vector.as_pointer())

    before, head = builder.block, builder.append_basic_block("edges")
    body, after = builder.append_basic_block("edge"), builder.append_basic_block("store")
    builder.branch(head)

    builder.position_at_end(head)  # e = begin, total = 0; while e < end:
    e, total = builder.phi(intp), builder.phi(vector)
    builder.cbranch(builder.icmp_signed("<", e, end), body, after)

    builder.position_at_end(body)  # total += weights[e] * z[indices[e], column:]; e += 1
    j = builder.zext(builder.load(builder.gep(indices.data, [e])), intp)
    weight = builder.load(builder.gep(weights.data, [e]))
    weight = weight if weight.type == number else builder.fptrunc(weight, number)
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, weight, ir.IntType(32)(0))
    spread = builder.shuffle_vector(first, nothing, ir.Constant(lane, [0] * lanes))
    term = builder.fmul(spread, builder.load(block_of(z, j), align=bits // 8), flags=("contract",))
    more, following = builder.fadd(total, term, flags=("contract",)), builder.add(e, intp(1))
    builder.branch(head)
    for phi, start, again in ((e, begin, following), (total, ir.Constant(vector, [0.0] * lanes), more)):
        phi.add_incoming(start, before)
        phi.add_incoming(again, body)

    builder.position_at_end(after)
    builder.store(total, block_of(out, row), align=bits // 8)
    return context.get_dummy_value()


row_sum_wide = _row_sum(WIDE)
row_sum_narrow = _row_sum(NARROW)
