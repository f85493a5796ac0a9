"""A block of w bytes of a row, held in vector registers: what Numba's own loops cannot be made to keep there.

    zeros(z, w)               0, as a block of z's numbers
    load(z, i, c, w)          z[i, c : c + lanes],  lanes = w / itemsize
    fetch(z, i, c, w)         asks for the cache lines of that block, which changes nothing but the time of a later load
    store(block, z, i, c)     z[i, c : c + lanes] = block
    times(number, block)      number · block, the number rounded to the block's precision first
    plus(a, b)                a + b

LLVM cannot know that the rows which a kernel writes are not among those it reads. A loop of Numba therefore loads and
stores the row it sums into at every edge, after a test for overlap. A sum that is a *value* of the program stays in
registers by itself. Every operation rounds once and no two are contracted into one, so that a number comes out the
same bit for bit as from a loop over single numbers, in whatever block it was.

Arrays are C-contiguous and (n, d); indices are not checked and not negative.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic, models, register_model

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
    """Numba's `intrinsic`, which hands over widths as literals; what it makes is called with other arguments."""
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
        spread = builder.shuffle_vector(builder.insert_element(nothing, number, zero), nothing, everywhere)
        return builder.fmul(spread, vector)

    return block(block.dtype, block), generate


@_instruction
def plus(typing, a, b):
    """a + b."""
    return a(a, b), lambda context, builder, signature, arguments: builder.fadd(*arguments)
