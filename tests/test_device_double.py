"""The double refuses what CuPy refuses, counts transfers, and has CuPy's names and keywords."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import array_api_compat as compat
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.libraries import CUPY, open_library

pytestmark = pytest.mark.skipif(CUPY == "cupy", reason="the real CuPy is in its place")

RECORD = Path(__file__).parent / "support" / "device_double" / "record.py"


@pytest.fixture
def cupy(transfers):
    import cupy

    return cupy


@pytest.fixture
def x(cupy):
    return cupy.arange(6.0).reshape(2, 3)


def test_names_and_keywords_are_those_of_the_installed_cupy():
    run = subprocess.run([sys.executable, str(RECORD), "--check"], capture_output=True, text=True)
    if run.returncode == 3:
        pytest.skip(f"CuPy not exercised: {run.stdout.strip()}")
    assert run.returncode == 0, run.stdout + run.stderr


def test_comparison_of_names_sees_a_wrong_keyword_and_a_name_that_is_not_there():
    sys.path.insert(0, str(RECORD.parent))
    try:
        from record import differences
    finally:
        sys.path.remove(str(RECORD.parent))
    real = {"functions": {"take": "a, indices", "sum": "a"}, "lacks": ["vecdot"]}
    assert differences({"functions": {"take": "a, indices"}, "lacks": []}, real) == []
    recorded = {"functions": {"take": "a, indices, mode='raise'", "roundest": "a"}, "lacks": ["sum"]}
    assert len(differences(recorded, real)) == 3


def test_only_recorded_names_are_offered(cupy):
    from support.device_double import NAMES

    types = {"dtype", "finfo", "iinfo", "ndarray", "linalg", "fft", "cuda"}
    known = set().union(*(NAMES[part] for part in ("functions", "ufuncs", "types", "constants")), types)
    assert {n for n in dir(cupy) if not n.startswith("_")} <= known
    members = set(NAMES["methods"]) | set(NAMES["attributes"]) | set(NAMES["special"]) | set(dir(object))
    assert {n for n in dir(cupy.ndarray) if n not in members} == {"_device", "_memory"}


def test_the_names_that_cupy_lacks_are_missing(cupy, x):
    from support.device_double import NAMES

    assert set(NAMES["lacks"]) >= {
        "vecdot", "exp(where=)", "take(mode=)", "einsum(out=)", "multiply.at", "random.PCG64",
        "random.Generator.choice", "random.Generator.permutation", "random.Generator.normal",
    }  # fmt: skip
    for missing in ("vecdot", "unstack", "random"):  # device random numbers are not offered at all
        assert not hasattr(cupy, missing)
    assert not hasattr(cupy.multiply, "at")
    assert not hasattr(x, "to_device")
    for call in (
        lambda: cupy.exp(x, where=x > 1),
        lambda: cupy.take(x, cupy.asarray(0), mode="wrap"),
        lambda: cupy.einsum("ij->i", x, out=x),
        lambda: cupy.zeros(3, device=cupy.cuda.Device(0)),
        lambda: x.sum(axis=0, where=x > 1),
        lambda: cupy.linalg.norm(x, where=x > 1),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
    with pytest.raises(TypeError, match="integer"):
        range(cupy.asarray(2))


def test_the_host_cannot_read_it_by_accident(x):
    message = r"Implicit conversion to a NumPy array is not allowed\. Please use `\.get\(\)` to construct"
    for read in (
        lambda: np.asarray(x),
        lambda: np.array([x, x]),
        lambda: np.zeros((2, 3)).__setitem__(..., x),
        lambda: np.vstack(list(map(np.atleast_1d, [np.asarray(row) for row in x]))),
    ):
        with pytest.raises(TypeError, match=message):
            read()
    with pytest.raises(TypeError):
        memoryview(x)
    assert not isinstance(x, np.ndarray)
    assert not hasattr(x, "__array_interface__")


def test_host_arrays_are_refused_as_operands_and_scalars_are_not(cupy, x):
    host = np.ones(3)
    for mix in (
        lambda: x + host,
        lambda: host + x,
        lambda: host @ x.T,
        lambda: x == host,
        lambda: cupy.add(x, host),
        lambda: cupy.where(x > 1, x, host),
        lambda: cupy.concatenate([x, host[None]]),
        lambda: x.dot(host),
        lambda: x[np.array([0, 1])],
        lambda: x.__setitem__(0, host),
        lambda: x.__iadd__(host),
    ):
        with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy\.ndarray'>"):
            mix()
    for scalar in (2, 2.0, np.float64(2), True):
        assert type(scalar * x) is type(x * scalar) is cupy.ndarray
        assert_array_equal((scalar * x).get(), float(scalar) * np.arange(6.0).reshape(2, 3))


@pytest.mark.skipif(np.__version__ < "2", reason="the double promotes as the NumPy that computes for it")
def test_dtypes_promote_as_in_numpy_2(cupy):
    single = cupy.ones(3, dtype="float32")
    assert (2.5 * single).dtype == np.float32
    assert (np.float64(2.5) * single).dtype == np.float64
    assert (cupy.asarray(2.5) * single).dtype == np.float64
    assert cupy.zeros(2, dtype=None).dtype == np.float64
    assert cupy.sum(single).dtype == np.float32 and type(cupy.sum(single)) is cupy.ndarray


def test_no_memory_is_shared_with_the_host(cupy):
    host = np.ones(3)
    x = cupy.asarray(host)
    host[0] = 7
    back = x.get()
    back[1] = 7
    assert_array_equal(x.get(), np.ones(3))
    view = x[:2]
    view += 1  # as in CuPy, views share device memory
    assert_array_equal(x.get(), [2, 2, 1])


def test_transfers_are_counted_with_their_bytes(cupy, transfers):
    x = cupy.asarray(np.ones((2, 3)))
    y = x @ x.T + 2 * cupy.zeros((2, 2))
    y[0, 0] = 1.5
    assert (transfers.to_device, transfers.to_device_bytes, transfers.to_host) == (1, 48, 0)
    cupy.asnumpy(y), y.get(), float(y[0, 0]), bool(y[0, 0] > 1), int(y[0, 0]), y[0, 0].item(), y.tolist(), repr(y)
    assert (transfers.to_host, transfers.to_host_bytes) == (8, 4 * 32 + 8 + 1 + 8 + 8)
    transfers.reset()
    y[y > 1], cupy.nonzero(y), cupy.unique(y)  # the size of the result is data
    assert (transfers.number, transfers.nbytes) == (3, 24)


def test_arrays_of_another_device_are_refused(cupy, x):
    with cupy.cuda.Device(1), pytest.raises(ValueError, match="different from the current device"):
        x + 1
    with cupy.cuda.Device(1):
        assert cupy.ones(2).device == cupy.cuda.Device(1) != x.device
    assert cupy.cuda.Device().id == 0


def test_a_gpu_raises_no_floating_point_warnings(cupy):
    assert np.isinf((cupy.ones(1) / cupy.zeros(1)).get()[0])


def test_the_real_wrapper_of_array_api_compat_runs_on_it(cupy, x):
    lib = open_library(CUPY)
    assert compat.array_namespace(x) is lib.xp
    assert lib.xp.__name__ == "array_api_compat.cupy"
    assert compat.is_cupy_array(x) and not compat.is_numpy_array(x)
    assert compat.device(x) == cupy.cuda.Device(0)
    host = x.get()
    functions = {
        "vecdot": lambda xp, a: xp.vecdot(a, a),
        "matrix_transpose": lambda xp, a: xp.matrix_transpose(a),
        "cumulative_sum": lambda xp, a: xp.cumulative_sum(a, axis=1, include_initial=True),
        "std": lambda xp, a: xp.std(a, axis=0, correction=1),
        "clip": lambda xp, a: xp.clip(a, 1.0, 3.0),
        "sort": lambda xp, a: xp.sort(a, axis=0, descending=True),
        "take": lambda xp, a: xp.take(a, xp.asarray([2, 0]), axis=1),
        "take_along_axis": lambda xp, a: xp.take_along_axis(a, xp.asarray([[1], [0]]), axis=1),
        "unstack": lambda xp, a: xp.unstack(a)[1],
        "vector_norm": lambda xp, a: xp.linalg.vector_norm(a, axis=-1),
        "solve": lambda xp, a: xp.linalg.solve(xp.eye(2), a),
        "astype": lambda xp, a: xp.astype(a, xp.float32),
        "where": lambda xp, a: xp.where(a > 2, a, 0.0),
        "reshape": lambda xp, a: xp.reshape(a, (3, 2)),
        "tensordot": lambda xp, a: xp.tensordot(a, a, axes=([0], [0])),
        "argmax": lambda xp, a: xp.argmax(a, axis=1, keepdims=True),
    }
    numpy = compat.array_namespace(host)
    for name, function in functions.items():
        expected = function(numpy, host)
        found = function(lib.xp, x)
        assert found.dtype == expected.dtype, name
        assert_array_equal(found.get(), expected, err_msg=name)
