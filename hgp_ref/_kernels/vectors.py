"""Rows times weights in vector registers, written as LLVM vectors of w columns from column c on.

    pull:  out[row, c : c + w]           =  Σ_{begin ≤ e < end} weights[e] z[indices[e], c : c + w]
    push:  out[indices[e], c : c + w]    += weight z[row, c : c + w]      for begin ≤ e < end

LLVM's own vectoriser cannot keep the sum (or the row that is pushed) in registers: it cannot know that `out` is not
part of `z`, so it loads and stores at every edge and checks for overlap before each short loop. "A vector of w lanes"
removes both. Arrays are C-contiguous; indices are int32, not negative.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

WIDE, LINE, NARROW = 256, 64, 16  # bytes of a block of columns: eight AVX2 registers, a cache line, an SSE register


class _Code:
    """What both kinds of instructions need: places of blocks, spread weights, and a loop over edges."""

    def __init__(self, width: int, context: Any, builder: Any, kind: Any) -> None:
        from llvmlite import ir  # Numba's own compiler, needed when code is generated and not when it is loaded

        self.ir, self.builder, self.context = ir, builder, context
        self.number, self.align = context.get_value_type(kind), kind.bitwidth // 8
        self.lanes = width // self.align
        self.vector = ir.VectorType(self.number, self.lanes)

    def array(self, kind: Any, value: Any) -> Any:
        """An argument as an array with `data` and `shape`."""
        from numba.np.arrayobj import make_array

        return make_array(kind)(self.context, self.builder, value)

    def place(self, array: Any, row: Any, column: Any) -> Any:
        """Where the block array[row, column : column + lanes] is."""
        columns = self.builder.extract_value(array.shape, 1)
        first = self.builder.gep(array.data, [self.builder.add(self.builder.mul(row, columns), column)])
        return self.builder.bitcast(first, self.vector.as_pointer())

    def load(self, array: Any, row: Any, column: Any) -> Any:
        return self.builder.load(self.place(array, row, column), align=self.align)

    def times(self, weight: Any, block: Any) -> Any:
        """weight * block, the weight rounded to the block's precision first."""
        if weight.type != self.number:
            weight = self.builder.fptrunc(weight, self.number)
        nothing, zero = self.ir.Constant(self.vector, self.ir.Undefined), self.ir.IntType(32)(0)
        mask = self.ir.Constant(self.ir.VectorType(zero.type, self.lanes), [0] * self.lanes)
        spread = self.builder.shuffle_vector(self.builder.insert_element(nothing, weight, zero), nothing, mask)
        return self.builder.fmul(spread, block, flags=("contract",))

    def plus(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=("contract",))

    def loop(self, begin: Any, end: Any, start: Any, body: Any) -> Any:
        """state = start; for e in begin .. end-1: state = body(e, state); the state after it."""
        builder = self.builder
        before, head = builder.block, builder.append_basic_block("edges")
        inside, after = builder.append_basic_block("edge"), builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        e, state = builder.phi(begin.type), builder.phi(start.type)
        builder.cbranch(builder.icmp_signed("<", e, end), inside, after)
        builder.position_at_end(inside)
        following = body(e, state), builder.add(e, begin.type(1))
        builder.branch(head)
        for phi, first, again in ((state, start, following[0]), (e, begin, following[1])):
            phi.add_incoming(first, before)
            phi.add_incoming(again, inside)
        builder.position_at_end(after)
        return state


def _pull(width: int) -> Any:
    @intrinsic
    def pull(typing, indices, weights, z, out, begin, end, row, column):
        def generate(context, builder, signature, arguments):
            code = _Code(width, context, builder, signature.args[2].dtype)
            made = (code.array(kind, a) for kind, a in zip(signature.args[:4], arguments[:4], strict=True))
            (senders, shares, source, target), (first, last, i, c) = made, arguments[4:]

            def edge(e: Any, total: Any) -> Any:
                j = builder.zext(builder.load(builder.gep(senders.data, [e])), e.type)
                weight = builder.load(builder.gep(shares.data, [e]))
                return code.plus(total, code.times(weight, code.load(source, j, c)))

            zero = code.ir.Constant(code.vector, [0.0] * code.lanes)
            total = code.loop(first, last, zero, edge)
            builder.store(total, code.place(target, i, c), align=code.align)
            return context.get_dummy_value()

        return types.void(indices, weights, z, out, *[types.intp] * 4), generate

    return pull


def _push(width: int) -> Any:
    @intrinsic
    def push(typing, indices, weight, z, out, begin, end, row, column):
        def generate(context, builder, signature, arguments):
            code = _Code(width, context, builder, signature.args[2].dtype)
            receivers, source, target = (code.array(signature.args[k], arguments[k]) for k in (0, 2, 3))
            first, last, j, c = arguments[4:]
            sent = code.times(arguments[1], code.load(source, j, c))

            def edge(e: Any, state: Any) -> Any:
                i = builder.zext(builder.load(builder.gep(receivers.data, [e])), e.type)
                block = code.place(target, i, c)
                builder.store(code.plus(builder.load(block, align=code.align), sent), block, align=code.align)
                return state

            code.loop(first, last, first, edge)
            return context.get_dummy_value()

        return types.void(indices, types.float64, z, out, *[types.intp] * 4), generate

    return push


pull_wide, pull_line, pull_narrow = _pull(WIDE), _pull(LINE), _pull(NARROW)
push_wide, push_line, push_narrow = _push(WIDE), _push(LINE), _push(NARROW)
