"""The rig itself: CuPy on it against NumPy, and the rules of a GPU that it enforces."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

rig = pytest.importorskip("cupy_on_cpu", reason="needs the rig: make test-cupy")
cp = pytest.importorskip("cupy")

pytestmark = pytest.mark.cupy

REVERSAL = r"""extern "C" __global__ void reversal(double* a, int n) {
  extern __shared__ double s[];
  int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  a[t] = s[n - 1 - t];
}"""


def in_python(code: str, **settings: str) -> subprocess.CompletedProcess:
    """`code` in a process of its own with these settings of the rig."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RIG_") or k == "RIG_HOME"}
    prelude = "import numpy as np, cupy as cp, cupy_on_cpu as rig\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + code], env=environment | settings, capture_output=True, text=True
    )


def printed(code: str, **settings: str) -> str:
    run = in_python(code, **settings)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


# CuPy against NumPy ---------------------------------------------------------------------------------------------------


def data(dtype):
    rng = np.random.default_rng(0)
    whole = np.dtype(dtype).kind == "i"
    A, B = ((rng.integers(-5, 6, (7, 5)) + (0 if whole else 0.5)).astype(dtype) for _ in range(2))
    T = (rng.integers(-3, 4, (3, 4, 5)) if whole else rng.standard_normal((3, 4, 5))).astype(dtype)
    return A, B, T, rng.integers(0, 7, 11)


OPERATIONS = {
    "sum": lambda xp, A, B, T, i: A.sum(),
    "sum of columns": lambda xp, A, B, T, i: A.sum(axis=0),
    "sum of rows": lambda xp, A, B, T, i: A.sum(axis=1, keepdims=True),
    "product": lambda xp, A, B, T, i: A.prod(axis=1),
    "mean": lambda xp, A, B, T, i: A.mean(axis=0),
    "matmul": lambda xp, A, B, T, i: A @ B.T,
    "matrix times vector": lambda xp, A, B, T, i: A @ B[0],
    "batched matmul": lambda xp, A, B, T, i: T @ xp.swapaxes(T, -1, -2),
    "batched matrix times vector": lambda xp, A, B, T, i: (T @ T[:, 0, :, None])[..., 0],
    "einsum": lambda xp, A, B, T, i: xp.einsum("nij,nj->ni", T, T[:, 0]),
    "tensordot": lambda xp, A, B, T, i: xp.tensordot(T, T, axes=([1, 2], [1, 2])),
    "dot": lambda xp, A, B, T, i: xp.dot(A[0], B[0]),
    "outer": lambda xp, A, B, T, i: xp.outer(A[0], B[0]),
    "take": lambda xp, A, B, T, i: xp.take(A, i, axis=0),
    "where": lambda xp, A, B, T, i: xp.where(A.real > 0, A, B),
    "broadcast": lambda xp, A, B, T, i: T * T[0, 0] + T[:, :, :1],
    "integer index": lambda xp, A, B, T, i: A[i, i % 5],
    "boolean index": lambda xp, A, B, T, i: A[A.real > 0],
    "slices": lambda xp, A, B, T, i: T[..., None, 1:, ::2],
    "concatenate": lambda xp, A, B, T, i: xp.concatenate([A, B], axis=1),
    "stack": lambda xp, A, B, T, i: xp.stack([A, B]),
    "cumulative sum": lambda xp, A, B, T, i: xp.cumsum(A, axis=0),
    "cumulative sum, flat": lambda xp, A, B, T, i: xp.cumsum(A),
    "sort": lambda xp, A, B, T, i: xp.sort(A, axis=1),
    "argsort": lambda xp, A, B, T, i: xp.argsort(A.ravel(), kind="stable"),
    "unique": lambda xp, A, B, T, i: xp.unique(A),
    "nonzero": lambda xp, A, B, T, i: xp.nonzero(A)[0],
    "transpose": lambda xp, A, B, T, i: xp.ascontiguousarray(T.transpose(2, 0, 1)),
    "largest": lambda xp, A, B, T, i: xp.abs(A).max(axis=1),
    "where largest": lambda xp, A, B, T, i: xp.abs(A).argmax(axis=1),
    "any": lambda xp, A, B, T, i: (A == 0).any(axis=1),
    "all": lambda xp, A, B, T, i: (A != 0).all(),
    "cast": lambda xp, A, B, T, i: A.astype("complex64"),
    "roll": lambda xp, A, B, T, i: xp.roll(T, 1, axis=1),
    "repeat": lambda xp, A, B, T, i: xp.repeat(A, 3, axis=1),
}
FUNCTIONS = "exp log1p tanh sqrt sin cos arctan expm1 floor rint sign isfinite reciprocal square abs log cbrt".split()
FUNCTIONS_OF_TWO = "maximum minimum logaddexp power hypot arctan2 copysign fmod remainder".split()


def assert_equal(found, expected, name, ulps):
    expected = np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
    rtol = ulps * (np.finfo(expected.dtype).eps if expected.dtype.kind in "fc" else 0)
    bound = rtol * np.max(np.abs(expected), initial=1.0) if rtol else 0
    np.testing.assert_allclose(cp.asnumpy(found), expected, rtol=rtol, atol=bound, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "complex128"])
def test_operations_agree_with_numpy(dtype):
    host = data(dtype)
    device = [cp.asarray(a) for a in host]
    for name, operation in OPERATIONS.items():
        assert_equal(operation(cp, *device), operation(np, *host), name, 100)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_agree_with_numpy(dtype):
    T = np.abs(data(dtype)[2]) + np.asarray(0.25, dtype)
    for name in FUNCTIONS:
        assert_equal(getattr(cp, name)(cp.asarray(T)), getattr(np, name)(T), name, 100)
    for name in FUNCTIONS_OF_TWO:
        operands = T + 1, T[::-1] + 1
        assert_equal(getattr(cp, name)(*map(cp.asarray, operands)), getattr(np, name)(*operands), name, 100)


def test_sums_of_many_blocks_agree_with_numpy():
    many, wide = np.random.default_rng(0).standard_normal(100_000), np.random.default_rng(1).standard_normal((300, 130))
    assert_equal(cp.asarray(many).sum(), many.sum(), "sum", 1e6)
    assert_equal(cp.cumsum(cp.asarray(many)), np.cumsum(many), "cumsum", 1e6)
    assert_equal(cp.nonzero(cp.asarray(many) > 0)[0], np.nonzero(many > 0)[0], "nonzero", 0)
    assert_equal(cp.asarray(wide).sum(axis=0), wide.sum(axis=0), "columns", 1e4)
    assert_equal(cp.asarray(wide).T @ cp.asarray(wide), wide.T @ wide, "gemm", 1e4)


def test_writes_agree_with_numpy():
    z = cp.zeros((4, 3))
    z[cp.asarray([0, 2]), 1:] = cp.asarray([[1.0, 2], [3, 4]])
    z[:, 0] += 5
    z[cp.asarray([True, False, False, True])] = -1
    assert_array_equal(z.get(), [[-1, -1, -1], [5, 0, 0], [5, 3, 4], [-1, -1, -1]])
    sums = cp.zeros(7)
    cp.add.at(sums, cp.asarray([1, 1, 2, 6, 1]), cp.asarray([1.0, 2, 3, 4, 5]))
    assert_array_equal(sums.get(), [0, 8, 3, 0, 0, 0, 4])


def test_barriers_and_shared_memory():
    x = cp.arange(4.0)
    cp.RawKernel(REVERSAL, "reversal")((1,), (4,), (x, np.int32(4)), shared_mem=32)
    assert_array_equal(x.get(), [3, 2, 1, 0])


# Host and device ------------------------------------------------------------------------------------------------------


def test_host_arrays_are_refused_on_the_device():
    x = cp.arange(4.0)
    for mix in (lambda: np.asarray(x), lambda: x + np.arange(4.0), lambda: cp.dot(x, np.arange(4.0))):
        with pytest.raises(TypeError):
            mix()


def test_host_code_that_reads_device_memory_ends_with_a_message():
    read = "import ctypes; x = cp.ones(4); print(ctypes.cast(x.data.ptr, ctypes.POINTER(ctypes.c_double))[0])"
    run = in_python(read)
    assert run.returncode < 0 and "device memory accessed by host code" in run.stderr
    assert printed(read, RIG_STRICT="0") == "1.0"


def test_host_pointers_are_refused_by_kernels(capfd):
    host = (ctypes.c_double * 4)()
    kernel = cp.RawKernel(REVERSAL, "reversal")
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="ILLEGAL_ADDRESS"):
        kernel((1,), (4,), (np.uint64(ctypes.addressof(host)), np.int32(4)), shared_mem=32)
    assert "argument 0" in capfd.readouterr().err


def test_fresh_memory_is_nan():
    assert printed("print(np.isnan(cp.empty(1000).get()).all())") == "True"


def test_two_devices():
    code = """
with cp.cuda.Device(1):
    x = cp.ones(3)
print(cp.cuda.runtime.getDeviceCount(), x.device.id, (x.copy()).device.id, cp.cuda.Device().id)
"""
    assert printed(code, RIG_DEVICES="2") == "2 1 0 0"
    run = in_python(code + "x + cp.ones(3)", RIG_DEVICES="2", RIG_PEER="0")
    assert run.returncode == 1 and "different from the current device" in run.stderr
    assert in_python("cp.cuda.Device(1).use()").returncode == 1


ORDER = r"""
text = 'extern "C" __global__ void f(int* n, int* a) { a[blockIdx.x * 4 + threadIdx.x] = atomicAdd(n, 1); }'
k = cp.RawKernel(text, "f")
a = cp.zeros(8, dtype="int32")
k((2,), (4,), (cp.zeros(1, dtype="int32"), a))
print(a.get().tolist())
"""


def test_order_of_threads():
    assert printed(ORDER) == str(list(range(8)))
    assert printed(ORDER, RIG_ORDER="reverse") == str(list(range(8))[::-1])


FUSED = r"""
text = 'extern "C" __global__ void f(double* r, double a, double b, double c) { r[threadIdx.x] = %s; }'
a = 1 + 2.0**-30
for expression in ("a * b + c", "__dadd_rn(__dmul_rn(a, b), c)"):
    r = cp.zeros(1)
    cp.RawKernel(text % expression, "f")((1,), (1,), (r, a, a, -(1 + 2.0**-29)))
    print(float(r[0]) != 0)
"""


def test_fused_multiply_add():
    assert printed(FUSED).split() == ["False", "False"]
    with open("/proc/cpuinfo") as file:
        if "fma" not in file.read():
            pytest.skip("this processor has no fused multiply-add")
    assert printed(FUSED, RIG_FMA="1").split() == ["True", "False"]


def test_one_call_per_thread_gives_the_same():
    code = "x = cp.arange(1000.0); print(float((cp.exp(-x) * 2 + x).sum()))"
    assert printed(code) == printed(code, RIG_FAITHFUL="1") == printed(code, RIG_ORDER="reverse")


def test_tensor_cores_round_float32_products():
    code = """
a = cp.full((2, 2), 1 + 2.0**-12, dtype="float32")
print(float((a @ cp.eye(2, dtype="float32"))[0, 0]) == 1.0)
"""
    assert printed(code) == "False"
    assert printed(code, CUPY_TF32="1") == "True"


WRITE = """
cp.cuda.set_allocator(None)
write = cp.RawKernel('extern "C" __global__ void f(double* a, long long at) { a[at] = 1; }', "f")
a, one = cp.zeros(5), cp.zeros(1)
write((1,), (1,), (a, np.int64(4)))
print(a.sum(), (2 * a)[::2].sum(), cp.asarray(np.arange(3, dtype="int8")).sum())
"""


def test_an_access_beyond_an_array_is_found_with_guards():
    assert printed(WRITE, RIG_GUARD="1") == "1.0 2.0 3"
    beyond = WRITE + "write((1,), (1,), (a, np.int64(5)))"
    assert in_python(beyond).returncode == 0
    guarded = in_python(beyond, RIG_GUARD="1")
    assert guarded.returncode < 0 and "accessed in kernel f" in guarded.stderr


def test_kernels_reach_other_devices_only_if_they_may():
    elsewhere = WRITE + "with cp.cuda.Device(1): write((1,), (1,), (a, np.int64(0)))"
    assert in_python(elsewhere, RIG_DEVICES="2").returncode == 0
    apart = in_python(elsewhere, RIG_DEVICES="2", RIG_PEER="0")
    assert apart.returncode == 1 and "on another device" in apart.stderr


# Messages and counters ------------------------------------------------------------------------------------------------


def test_barrier_that_some_threads_never_reach(capfd):
    text = r"""extern "C" __global__ void f() {
      if (threadIdx.x) __syncthreads(); else __syncwarp(3); }"""
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="TIMEOUT"):
        cp.RawKernel(text, "f")((1,), (2,), ())
    assert "wait for each other for ever" in capfd.readouterr().err


def test_limits_of_a_launch():
    kernel = cp.RawKernel('extern "C" __global__ void f(int* a) {}', "f")
    x = cp.zeros(1, dtype="int32")
    for grid, block in (((1, 65536), (1,)), ((1,), (1025,))):
        with pytest.raises(cp.cuda.driver.CUDADriverError, match="INVALID_VALUE"):
            kernel(grid, block, (x,))


def test_missing_functions_say_their_names(capfd):
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="NotSupported"):
        cp.cuda.runtime.deviceGetDefaultMemPool(0)
    assert "is not implemented" in capfd.readouterr().err


def test_sources_that_do_not_compile_raise():
    with pytest.raises(cp.cuda.compiler.CompileException):
        cp.RawKernel('extern "C" __global__ void f() { nonsense; }', "f")((1,), (1,), ())


def test_counters():
    host = np.ones((2, 3))
    rig.reset()
    x = cp.asarray(host)
    y = 2 * x + 1
    z = y @ y.T
    z.get(), float(z[0, 0])
    counted = rig.counters()
    assert (counted["h2d"], counted["h2d_bytes"]) == (1, 48)
    assert (counted["d2h"], counted["d2h_bytes"]) == (2, 40)
    assert counted["launches"] + counted["blas"] == sum(rig.kernels().values()) == 3  # *, +, gemm
    rig.reset()
    assert not any(rig.counters().values()) and not rig.kernels()


def test_rig_can_be_turned_off():
    patched = "import sys; print(any(type(finder).__name__ == '_Finder' for finder in sys.meta_path))"
    environment = dict(os.environ)
    for off in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", patched], env=environment | {"RIG_OFF": off}, capture_output=True, text=True
        )
        assert run.stdout.strip() == str(off == "0")
