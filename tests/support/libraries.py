"""Array libraries by name, and assertions on the values, dtype, library and device of a result."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np
import pytest

USES_CUPY = os.environ.get("HGP_REF_TEST_CUPY") == "1"  # on a GPU, or on the CPU with the rig of tests/cupy_on_cpu
DEVICE = os.environ.get("HGP_REF_TEST_DEVICE")  # as in hgp.backend.get_backend, for libraries that have accelerators
LIBRARIES = ["numpy", "array_api_strict", *(["cupy"] if USES_CUPY else []), "torch", "jax"]
# JAX compiles every operation for every shape. On JAX, tests of code that all libraries share are slow tests.
JAX_SLOW = [pytest.param(name, marks=pytest.mark.slow) if name == "jax" else name for name in LIBRARIES]


@dataclass(frozen=True)
class Library:
    """An array library under test; the ways to and from the host are its own, not the package's."""

    name: str
    xp: Any
    device: Any

    @property
    def backend(self) -> str:
        """The name by which the package knows it."""
        return self.name

    def asarray(self, host: Any, dtype: str | None = None) -> Any:
        host = np.array(host, dtype=dtype)
        return host if self.name == "numpy" else self.xp.asarray(host, device=self.device)

    def to_numpy(self, x: Any) -> np.ndarray:
        if self.name == "array_api_strict":
            return np.asarray(x.to_device(self.xp.Device("CPU_DEVICE")))
        if self.name == "torch":
            return np.asarray(x.detach().cpu())
        return x.get() if self.name == "cupy" else np.asarray(x)

    def __repr__(self) -> str:
        return self.name


def open_library(name: str) -> Library:
    """The library called `name`, on a device where implicit transfers are refused if it has one; or a visible skip."""
    if name == "numpy":
        return Library(name, compat.array_namespace(np.empty(0)), "cpu")
    if name == "cupy":
        if not USES_CUPY:
            pytest.skip("CuPy not exercised: make test-cupy runs it on the CPU")
        device = importlib.import_module("cupy").cuda.Device(int(DEVICE or 0))
        return Library(name, importlib.import_module("array_api_compat.cupy"), device)
    module = pytest.importorskip(name, reason=f"{name} not exercised: it is not installed (extra of the same name)")
    if name == "array_api_strict":
        return Library(name, module, module.Device("device1"))
    if name == "torch":
        device = f"cuda:{DEVICE}" if DEVICE and module.cuda.is_available() else "cpu"
        return Library(name, importlib.import_module("array_api_compat.torch"), module.device(device))
    module.config.update("jax_enable_x64", True)
    accelerated = DEVICE and module.default_backend() != "cpu"
    device = module.devices()[int(DEVICE or 0)] if accelerated else module.devices("cpu")[0]
    return Library(name, importlib.import_module("jax.numpy"), device)


def need_factorisations(lib: Library) -> None:
    """Skip on the rig, which has no cuSOLVER: `solve` and `eigh` of CuPy need a GPU."""
    if lib.name == "cupy" and importlib.util.find_spec("cupy_on_cpu") and os.environ.get("RIG_OFF") != "1":
        pytest.skip("solve and eigh of CuPy not exercised: the rig has no cuSOLVER")


def eps(dtype: Any) -> float:
    """Machine epsilon of a floating-point dtype of any library."""
    return float(np.finfo(str(dtype).rsplit(".", 1)[-1]).eps)


def rtol(dtype: Any) -> float:
    """4 sqrt(eps): for results of iterations and of sums in another order."""
    return 4 * eps(dtype) ** 0.5


def identity_rtol(dtype: Any) -> float:
    """1000 eps: for two ways of computing the same thing."""
    return 1000 * eps(dtype)


def assert_same(actual: Any, expected: np.ndarray, lib: Library, rtol: float | None = None) -> None:
    """`actual` belongs to `lib`, on its device, with dtype, shape and values of the host array `expected`.

    The error allowed is `rtol` (default 1000 eps of the dtype) of the largest expected entry; integers are exact.
    """
    expected = np.asarray(expected)
    assert compat.is_array_api_obj(actual) and not isinstance(actual, np.generic), f"not an array: {type(actual)}"
    assert compat.array_namespace(actual) is lib.xp, f"{type(actual)} is not of {lib.xp.__name__}"
    assert compat.device(actual) == lib.device, f"on {compat.device(actual)}, expected {lib.device}"
    assert str(actual.dtype).rsplit(".", 1)[-1] == str(expected.dtype), f"{actual.dtype}, expected {expected.dtype}"
    assert tuple(actual.shape) == expected.shape, f"shape {tuple(actual.shape)}, expected {expected.shape}"
    host = lib.to_numpy(actual)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(host, expected)
        return
    assert_close(host, expected, identity_rtol(expected.dtype) if rtol is None else rtol)


def assert_close(actual: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    """max |actual − expected| <= rtol max |expected|, of host arrays."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * np.max(np.abs(expected), initial=0.0))
