"""Every function of the backend on every array library: results, errors and their messages."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import array_api_compat as compat
import numpy as np
import pytest
from support.libraries import LIBRARIES, assert_same, open_library

from hgp_ref import backend, validation

FLOATS = ["float32", "float64"]
DTYPES = [*FLOATS, "int64", "int32", "bool"]


def host_array(dtype: str) -> np.ndarray:
    return np.arange(-3, 9).reshape(3, 4).astype(dtype)


@pytest.fixture(params=LIBRARIES, scope="module")
def xp(request):
    """Every library, JAX too: `backend` has code for each of them."""
    return open_library(request.param)


@pytest.fixture
def other(xp):
    """A host array for every library but NumPy, and an array of another library for NumPy."""
    if xp.name == "numpy":
        return importlib.import_module("array_api_strict").ones((2, 3))
    return np.ones((2, 3))


# Namespaces


def test_namespace_comes_from_the_arrays(xp):
    a, b = xp.asarray(np.ones(3)), xp.asarray(np.ones(2, dtype="float32"))
    assert backend.array_namespace(a) is xp.xp
    assert backend.array_namespace(None, a, None, b) is xp.xp


def test_mixed_namespaces_are_refused_by_name(xp, other):
    a = xp.asarray(np.ones((2, 3)))
    with pytest.raises(TypeError, match="arrays must come from one library") as caught:
        backend.array_namespace(a, other)
    for given in (a, other):
        assert type(given).__name__ in str(caught.value)


@pytest.mark.parametrize("wrong", [1.0, [1.0, 2.0], "x", np.float64(1.0), object()], ids=lambda x: type(x).__name__)
def test_what_is_no_array_is_refused(wrong):
    with pytest.raises(TypeError, match=f"must be arrays of a library.*{type(wrong).__name__}"):
        backend.array_namespace(wrong)


def test_device_is_that_of_the_array(xp):
    assert backend.device(xp.asarray(np.ones(3))) == xp.device


def test_only_numpy_is_numpy(xp):
    assert backend.is_numpy(xp.asarray(np.ones(3))) is (xp.name == "numpy")


# Host and device


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_keeps_values_dtype_and_device(xp, dtype):
    host, like = host_array(dtype), xp.asarray(np.ones(1))
    there = backend.from_host(host, like=like)
    assert_same(there, host, xp)
    back = backend.to_host(there)
    assert type(back) is np.ndarray and back.dtype == host.dtype
    np.testing.assert_array_equal(back, host)


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1, 2)])
def test_round_trip_of_odd_shapes(xp, shape):
    host = np.ones(shape)
    assert_same(backend.from_host(host, like=xp.asarray(np.ones(1))), host, xp)
    assert backend.to_host(xp.asarray(host)).shape == shape


def test_read_only_and_strided_host_arrays_go_over(xp):
    host = np.arange(12.0).reshape(3, 4)[:, ::-2]
    host.flags.writeable = False
    assert_same(backend.from_host(host, like=xp.asarray(np.ones(1))), host, xp)


def test_numpy_arrays_pass_through():
    host = np.ones(3)
    assert backend.to_host(host) is host
    assert backend.from_host(host, like=np.ones(2)) is host


@pytest.mark.parametrize("wrong", [1.0, [1.0], None], ids=repr)
def test_only_arrays_come_to_the_host(wrong):
    with pytest.raises(TypeError, match="must be an array"):
        backend.to_host(wrong)


def test_tensors_under_differentiation_come_to_the_host():
    torch = pytest.importorskip("torch", reason="torch not exercised: it is not installed")
    tensor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(backend.to_host(2 * tensor), 2 * np.ones(3))


def test_one_number_comes_to_the_host(xp):
    assert backend.scalar(xp.asarray(np.full((1, 1), 2.5))) == 2.5
    assert isinstance(backend.scalar(xp.asarray(np.asarray(2.5))), float)
    with pytest.raises(ValueError):
        backend.scalar(xp.asarray(np.ones(2)))


def test_each_crossing_is_one_transfer(counted):
    like = backend.get_backend("cupy").asarray(np.ones(1))
    counted.reset()
    there = backend.from_host(np.ones((4, 5), dtype="float32"), like=like)
    assert (counted.to_device, counted.to_device_bytes, counted.to_host) == (1, 80, 0)
    backend.to_host(there), backend.scalar(there[0, 0]), validation.finite("x", there)
    assert (counted.to_device, counted.to_host, counted.to_host_bytes) == (1, 3, 80 + 4 + 1)


# A library by name


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_made_on_the_named_device(xp, dtype):
    made = backend.get_backend(xp.backend)
    host = host_array(dtype)
    assert (made.name, made.xp, made.device) == (xp.backend, xp.xp, xp.device)
    assert_same(made.asarray(host), host, xp)
    assert_same(made.asarray(host.tolist(), dtype=dtype), host, xp)
    assert_same(made.asarray(host_array("int64"), dtype="float32"), host_array("float32"), xp)


def test_made_arrays_do_not_share_memory_with_what_they_came_from(xp):
    host = np.ones(3)
    made = backend.get_backend(xp.backend).asarray(host)
    host[0] = 7
    assert_same(made, np.ones(3), xp)


def test_unknown_library():
    libraries = "'numpy', 'cupy', 'torch', 'jax', 'array_api_strict'"
    with pytest.raises(ValueError, match=f"backend name must be one of {libraries}, got 'tensorflow'"):
        backend.get_backend("tensorflow")


@pytest.mark.parametrize(("name", "extra"), sorted(backend.EXTRAS.items()))
def test_a_missing_library_names_the_extra(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, name, None)  # what Python does for a module that cannot be imported
    with pytest.raises(ImportError, match=re.escape(f"pip install 'hgp_ref[{extra}]'")) as caught:
        backend.get_backend(name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_the_extras_exist():
    settings = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert {*backend.EXTRAS.values(), "cuda12"} <= set(tomllib.loads(settings)["project"]["optional-dependencies"])


def no_devices() -> int:
    return 0


def no_driver() -> int:
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")


@pytest.mark.cupy
@pytest.mark.parametrize(("count", "reason"), [(no_devices, "0 CUDA devices"), (no_driver, "InsufficientDriver")])
def test_cupy_without_a_gpu_raises_one_line(monkeypatch, count, reason):
    runtime = importlib.import_module("cupy").cuda.runtime
    monkeypatch.setattr(runtime, "getDeviceCount", count)
    with pytest.raises(RuntimeError, match=f"CuPy is installed but finds no usable GPU: .*{reason}") as caught:
        backend.get_backend("cupy")
    assert "\n" not in str(caught.value)


def test_the_real_cupy_is_found_or_its_absence_explained():
    code = "from hgp_ref.backend import get_backend; print(get_backend('cupy').asarray([1.0]).device)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if run.returncode == 0:
        return
    last = run.stderr.strip().splitlines()[-1]
    assert "CuPy is installed but finds no usable GPU" in last or "hgp_ref[cuda13]" in last
    pytest.skip(f"CuPy not exercised: {last}")


def test_jax_in_32_bits_is_not_silent():
    pytest.importorskip("jax", reason="jax not exercised: it is not installed")
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from hgp_ref.backend import get_backend\n"
        "jax = get_backend('jax')\n"
        "print(jax.asarray([1.0], dtype='float32').dtype)\n"
        "jax.asarray([1.0], dtype='float64')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "float32"
    assert "TypeError" in run.stderr and "jax_enable_x64" in run.stderr


# Checks of arguments


@pytest.mark.parametrize("dtype", FLOATS)
def test_arrays_that_agree_pass(xp, dtype):
    a = xp.asarray(np.ones((2, 3)), dtype=dtype)
    assert validation.same_kind(x=a, lam=a) is xp.xp


def test_mixed_libraries_are_named(xp, other):
    with pytest.raises(TypeError, match=r"mixed array libraries: x is .*, lam is .*"):
        validation.same_kind(x=xp.asarray(np.ones((2, 3))), lam=other)


def test_mixed_dtypes_are_named(xp):
    x, lam = xp.asarray(np.ones(3)), xp.asarray(np.ones(3), dtype="float32")
    with pytest.raises(TypeError, match=r"mixed dtypes: x is .*float64, lam is .*float32"):
        validation.same_kind(x=x, lam=lam)


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_numbers_must_be_floating_point(xp, dtype):
    with pytest.raises(TypeError, match=f"lam must hold real floating-point numbers, got .*{dtype}"):
        validation.same_kind(x=xp.asarray(np.ones(3)), lam=xp.asarray(np.ones(3), dtype=dtype))


@pytest.mark.parametrize("wrong", [1.0, [1.0], np.float64(1)], ids=repr)
def test_what_is_no_array_is_named(wrong):
    with pytest.raises(TypeError, match=f"lam must be an array, got .*{type(wrong).__name__}"):
        validation.same_kind(x=np.ones(3), lam=wrong)


@pytest.mark.parametrize("name", [1, "1", "cuda:1"])
def test_a_number_is_a_gpu_of_torch(name):
    torch = pytest.importorskip("torch")
    assert backend._read_device("torch", torch, name, 0) == torch.device("cuda:1")


def test_mixed_devices_are_named():
    strict = pytest.importorskip("array_api_strict")
    here, there = (strict.ones(3, device=strict.Device(name)) for name in ("CPU_DEVICE", "device1"))
    with pytest.raises(TypeError, match=r"mixed devices: x is .*CPU_DEVICE.*, lam is .*device1"):
        validation.same_kind(x=here, lam=there)


@pytest.mark.cupy
def test_mixed_gpus_are_named():
    cupy = importlib.import_module("cupy")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with cupy.cuda.Device(0):
        here = cupy.ones(3)
    with cupy.cuda.Device(1):
        there = cupy.ones(3)
    with pytest.raises(TypeError, match=r"mixed devices: x is .*0.*, lam is .*1"):
        validation.same_kind(x=here, lam=there)


def test_shapes_are_checked_at_the_end(xp):
    a = xp.asarray(np.ones((5, 2, 3)))
    validation.shape("x", a, (2, 3), "(n, d_x)")
    with pytest.raises(ValueError, match=re.escape("x must have shape (..., 2, 4) = (n, d_x), got (5, 2, 3)")):
        validation.shape("x", a, (2, 4), "(n, d_x)")
    with pytest.raises(ValueError, match="lam must have shape"):
        validation.shape("lam", xp.asarray(np.ones(3)), (2, 3), "(n, d_lam)")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_must_be_finite(xp, dtype, bad):
    host = np.ones((2, 3))
    validation.finite("x", xp.asarray(host, dtype=dtype))
    host[1, 2] = bad
    with pytest.raises(ValueError, match="x must not contain NaN or infinite values"):
        validation.finite("x", xp.asarray(host, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtype_of_the_host(xp, dtype):
    x = xp.asarray(np.ones(2), dtype=dtype)
    assert backend.host_dtype(x) == np.dtype(dtype)


@pytest.mark.cupy
def test_cupy_is_what_the_wrapper_sees():
    x = backend.get_backend("cupy").asarray(np.ones(2))
    assert compat.is_cupy_array(x) and type(x).__module__ == "cupy"
