"""Array libraries by name, and assertions on the values, dtype, library and device of a result."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np
import pytest

CUPY = "cupy" if os.environ.get("HGP_REF_TEST_CUPY") == "1" else "cupy-double"
LIBRARIES = ["numpy", "array_api_strict", CUPY, "torch", "jax"]


@dataclass(frozen=True)
class Library:
    """An array library under test; the ways to and from the host are its own, not the package's."""

    name: str
    xp: Any
    device: Any

    @property
    def backend(self) -> str:
        """The name by which the package knows it."""
        return self.name.removesuffix("-double")

    def asarray(self, host: Any, dtype: str | None = None) -> Any:
        host = np.array(host, dtype=dtype)
        return host if self.name == "numpy" else self.xp.asarray(host, device=self.device)

    def to_numpy(self, x: Any) -> np.ndarray:
        if self.name == "array_api_strict":
            return np.asarray(x.to_device(self.xp.Device("CPU_DEVICE")))
        return x.get() if self.name.startswith("cupy") else np.asarray(x)

    def __repr__(self) -> str:
        return self.name


def open_library(name: str) -> Library:
    """The library called `name`, on a device where implicit transfers are refused if it has one; or a visible skip."""
    if name == "numpy":
        return Library(name, compat.array_namespace(np.empty(0)), "cpu")
    if name.startswith("cupy"):
        device = importlib.import_module("cupy").cuda.Device(0)
        return Library(name, importlib.import_module("array_api_compat.cupy"), device)
    module = pytest.importorskip(name, reason=f"{name} not exercised: it is not installed (extra of the same name)")
    if name == "array_api_strict":
        return Library(name, module, module.Device("device1"))
    if name == "torch":
        return Library(name, importlib.import_module("array_api_compat.torch"), module.device("cpu"))
    module.config.update("jax_enable_x64", True)
    return Library(name, importlib.import_module("jax.numpy"), module.devices("cpu")[0])


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
