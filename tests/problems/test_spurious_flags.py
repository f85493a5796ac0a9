"""A warning that means nothing: "invalid value encountered in matmul" of finite matrices with a finite product.

OpenBLAS's float32 product of a matrix of five columns with a vector calculates with whatever lies on the stack in lanes
whose results it throws away (0.3.31 with AVX-512, where the number of rows is 2 or 3 more than a multiple of 4). If
that happens to be a signalling NaN, such as half an address, the processor raises its flag, and NumPy warns. Here the
stack is filled with them beforehand: flag or not, products are the same to the bit.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import hgp_ref as hgp

SIGNALLING = 0x7FA00000  # as a float32
FILL = """
define void @fill(i32 %value) noinline optnone {
entry:
  %stack = alloca [16384 x i32]
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%next, %loop]
  %place = getelementptr [16384 x i32], ptr %stack, i32 0, i32 %k
  store volatile i32 %value, ptr %place
  %next = add i32 %k, 1
  %more = icmp slt i32 %next, 16384
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


@pytest.fixture(scope="module")
def fill():
    """fill(value): write the 32-bit pattern over 64 kB of stack below the caller."""
    llvm = pytest.importorskip("llvmlite.binding")
    if llvm.llvm_version_info < (15,):
        pytest.skip(f"LLVM {llvm.llvm_version_info} does not know pointers without a type")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(FILL)
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(engine.get_function_address("fill"))
    function.engine = engine  # lives as long as its code
    return function


def product(A, b):
    """A b, and whether NumPy says that something in it was invalid."""
    flags = []
    with np.errstate(invalid="call", call=lambda kind, flag: flags.append(kind)):
        return A @ b, bool(flags)


def test_products_do_not_depend_on_stack_contents(fill, record_property):
    rng, flagged = np.random.default_rng(0), []
    for dtype in (np.float32, np.float64):
        for rows in range(1, 34):
            for columns in range(1, 18):
                A, b = rng.normal(size=(rows, columns)).astype(dtype), rng.normal(size=(columns, 1)).astype(dtype)
                fill(0)
                clean, flag = product(A, b)
                assert not flag
                fill(SIGNALLING)
                dirty, flag = product(A, b)
                assert np.isfinite(dirty).all() and np.array_equal(clean, dirty)
                flagged += [(np.dtype(dtype).name, rows, columns)] if flag else []
    record_property("flagged", flagged)  # with the OpenBLAS named above: float32, rows = 2, 3, 6, 7, …, 5 columns


def test_derivatives_do_not_either(fill):
    rng = np.random.default_rng(1)
    sizes = [3, 9, 6, 12, 7]
    X, X_val = ([rng.normal(size=(k, 5)).astype(np.float32) for k in sizes] for _ in range(2))
    y, y_val = ([rng.integers(0, 2, k).astype(np.float32) for k in sizes] for _ in range(2))
    problem = hgp.problems.LogisticRegression(X, y, X_val, y_val)
    x, lam = rng.normal(size=(5, 5)).astype(np.float32), np.full((5, problem.dim_lam), 0.1, np.float32)
    with np.errstate(invalid="ignore"):
        found = []
        for pattern in (0, SIGNALLING):
            fill(pattern)
            gradient = problem.inner_grad(x, lam)
            fill(pattern)
            found.append((gradient, problem.linearize(x, lam).hvp(x)))
    for clean, dirty in zip(*found, strict=True):
        assert np.isfinite(clean).all() and np.array_equal(clean, dirty)
