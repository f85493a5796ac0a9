"""Array libraries and devices; the only place where data move between host and device.

Public functions take the array library from their arguments (`array_namespace`). A library is chosen by name only where
arrays are made (`get_backend`). Arrays move between host and device through `to_host` and `from_host`, and data of the
user through `Backend.asarray`, nowhere else: tests count the transfers here. No other file names CuPy.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Annotated, Any

import array_api_compat as compat
import numpy as np

__all__ = ["Backend", "array_namespace", "device", "from_host", "get_backend", "to_host"]

Array = Annotated[Any, "an array of any library that follows the array API standard"]
Namespace = Any  # the module with its functions

EXTRAS = {"cupy": "gpu", "torch": "torch", "jax": "jax", "array_api_strict": "test"}


# Libraries by name ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backend:
    """An array library chosen by name, and the device on which it makes arrays.

    Attributes
    ----------
    name : of the library.
    xp : its array-API namespace.
    device : where arrays are made; None for the library's default.

    Examples
    --------
    >>> hgp.backend.get_backend("numpy").name
    'numpy'
    """

    name: str
    xp: Namespace
    device: Any

    def asarray(self, a: Any, dtype: str | None = None) -> Array:
        """Host data `a` as an array of this library; `dtype` is a name such as "float32" (None keeps that of `a`)."""
        try:
            host = np.array(a, dtype=dtype)
        except (TypeError, ValueError, RuntimeError, OverflowError, SyntaxError) as error:
            raise TypeError(
                f"a must be data on the host, got {type(a).__name__} with dtype={dtype!r}: {error}"
            ) from error
        if self.name == "numpy":
            return host
        placed = self.xp.asarray(host, device=self.device)
        if str(host.dtype) not in str(placed.dtype):
            raise TypeError(
                f"{self.name} made {placed.dtype} of {host.dtype}; for 64 bits JAX needs "
                "jax.config.update('jax_enable_x64', True)"
            )
        return placed


def get_backend(name: str) -> Backend:
    """The array library called `name`: "numpy", "cupy", "torch", "jax" or "array_api_strict".

    Raises
    ------
    ImportError
        The library is not installed; the message names the extra that installs it.
    RuntimeError
        CuPy finds no usable GPU.

    Examples
    --------
    >>> hgp.backend.get_backend("numpy").asarray([1, 2], "float32").dtype
    dtype('float32')
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of an array library, got {name!r} ({type(name).__name__})")
    if name == "numpy":
        return Backend(name, compat.array_namespace(np.empty(0)), "cpu")
    if name not in EXTRAS:
        raise ValueError(f"backend name must be one of {', '.join(map(repr, ['numpy', *EXTRAS]))}, got {name!r}")
    try:
        library = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"backend {name!r} is not installed: pip install 'hgp_ref[{EXTRAS[name]}]'") from error
    if name == "cupy":
        _require_gpu(library)
    if name == "array_api_strict":  # its second device refuses every implicit transfer, as a GPU would
        empty = library.empty(0, device=library.Device("device1"))
    elif name == "jax":
        empty = importlib.import_module("jax.numpy").empty(0)
    else:
        empty = library.empty(0)
    return Backend(name, compat.array_namespace(empty), device(empty))


def _require_gpu(cupy: Any) -> None:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises its own CUDARuntimeError, which cannot be named without importing it
        raise RuntimeError(f"CuPy is installed but finds no usable GPU: {error}") from error
    if count < 1:
        raise RuntimeError("CuPy is installed but finds no usable GPU: 0 CUDA devices")


# Library, device and dtype of an array --------------------------------------------------------------------------------


def array_namespace(*arrays: Array) -> Namespace:
    """The array library of all `arrays`; None is skipped, Python and NumPy scalars are refused.

    Examples
    --------
    >>> hgp.backend.array_namespace(np.ones(2)).__name__.split(".")[-1]
    'numpy'
    """
    present = [a for a in arrays if a is not None]
    for a in present:
        if not compat.is_array_api_obj(a) or isinstance(a, np.generic):
            raise TypeError(f"arrays must be arrays of a library (NumPy, CuPy, PyTorch, JAX, ...), got {_type(a)}")
    try:
        return compat.array_namespace(*present)
    except TypeError as error:
        names = ", ".join(sorted(set(map(_type, present))))
        raise TypeError(f"arrays of several libraries together: {names}; move them to one") from error


def device(x: Array) -> Any:
    """The device of `x`, as its library names it; "cpu" for NumPy.

    Examples
    --------
    >>> hgp.backend.device(np.ones(2))
    'cpu'
    """
    if isinstance(x, np.ndarray):
        return "cpu"  # the fast path: this is called in every product
    try:
        return compat.device(x)
    except AttributeError as error:
        raise _no_array("x", x) from error


def host_dtype(x: Array) -> np.dtype:
    """The NumPy dtype with the same name as the dtype of `x`."""
    try:
        return x.dtype if isinstance(x.dtype, np.dtype) else np.dtype(str(x.dtype).rsplit(".", 1)[-1])
    except (AttributeError, TypeError) as error:
        raise _no_array("x", x) from error


def is_numpy(x: Array) -> bool:
    """Whether `x` is a host NumPy array, for which there are compiled fast paths."""
    return isinstance(x, np.ndarray)


def addressable(x: Array) -> bool:
    """Whether other libraries, such as MPI, may read and write the memory of `x`: NumPy, CuPy, PyTorch."""
    if isinstance(x, np.generic) or not compat.is_array_api_obj(x):
        raise _no_array("x", x)
    return isinstance(x, np.ndarray) or compat.is_torch_array(x) or compat.is_cupy_array(x)


def detached(x: Array) -> Array:
    """`x` without the graph of PyTorch's automatic differentiation; the memory is shared."""
    return x.detach() if compat.is_torch_array(x) else x


def synchronize(x: Array) -> None:
    """Wait until the device of `x` has finished its work, so that other libraries may read the memory of `x`."""
    if compat.is_torch_array(x):
        if x.is_cuda:
            importlib.import_module("torch").cuda.synchronize(x.device)
    elif hasattr(device(x), "synchronize"):
        device(x).synchronize()


def _no_array(name: str, x: Any) -> TypeError:
    return TypeError(f"{name} must be an array, got {_type(x)}")


def _type(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__name__}"


# Between host and device ----------------------------------------------------------------------------------------------


def to_host(x: Array) -> np.ndarray:
    """The values of `x` as a NumPy array on the host; memory is shared where that is possible.

    Examples
    --------
    >>> hgp.backend.to_host(np.ones(2))
    array([1., 1.])
    """
    if isinstance(x, np.ndarray):
        return x
    if compat.is_torch_array(x):
        return x.detach().cpu().numpy()
    if compat.is_jax_array(x):
        return np.asarray(x)
    if not compat.is_array_api_obj(x):
        raise _no_array("x", x)
    xp = compat.array_namespace(x)
    if hasattr(xp, "asnumpy"):  # CuPy and libraries with its names
        return xp.asnumpy(x)
    host = xp.__array_namespace_info__().default_device()
    return np.asarray(compat.to_device(x, host))


def from_host(a: np.ndarray, *, like: Array) -> Array:
    """The host array `a` with its dtype, in the library and on the device of `like`.

    The result may share memory with `a` where host and device are the same.

    Examples
    --------
    >>> hgp.backend.from_host(np.ones(2), like=np.zeros(1))
    array([1., 1.])
    """
    try:
        a = np.asarray(a)
    except (TypeError, ValueError, RuntimeError) as error:  # arrays on a device raise errors of their own
        raise TypeError(f"a must be an array on the host, got {type(a).__name__}: {error}") from error
    if isinstance(like, np.ndarray):
        return a
    if not compat.is_array_api_obj(like) or isinstance(like, np.generic):
        raise _no_array("like", like)
    xp = compat.array_namespace(like)
    if compat.is_torch_array(like):  # torch would share memory with the host array, and warns of read-only ones
        return xp.asarray(a.copy(), device=device(like))
    return xp.asarray(a, device=device(like))


def host_float64(x: Array) -> np.ndarray:
    """The values of `x` in float64 on the host, in memory of their own."""
    host = to_host(x)
    if host.dtype.kind not in "fiub":
        raise TypeError(f"x must hold real numbers, got {host.dtype}")
    return np.array(host, dtype=np.float64)


def scalar(x: Array) -> float:
    """The value of an array with one element, on the host."""
    host = to_host(x)
    if host.size != 1 or host.dtype.kind not in "biuf":
        raise ValueError(f"x must be one real number, got {host.dtype} of shape {host.shape}")
    return float(host.reshape(()))


def all_finite(x: Array) -> bool:
    """Whether no entry of `x` is NaN or infinite; one scalar moves to the host."""
    if not compat.is_array_api_obj(x) or isinstance(x, np.generic):
        raise _no_array("x", x)
    xp = compat.array_namespace(x)
    try:
        return bool(to_host(xp.all(xp.isfinite(x))))
    except TypeError as error:
        raise TypeError(f"x must be an array of numbers, got {x.dtype}") from error
