"""Which array library, and the only door between host and device.

Public functions of the package take the namespace from their arguments (`array_namespace`); a library is chosen by
name only where arrays are made (`get_backend`). Arrays cross between host and device through `to_host` and
`from_host`, host data of the caller's through `Backend.asarray`, and nowhere else, so that whoever counts transfers
counts them here. No other file names CuPy.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np

Array = Any  # an array of any library that speaks the array API standard
Namespace = Any  # its module of functions

EXTRAS = {"cupy": "gpu", "torch": "torch", "jax": "jax", "array_api_strict": "test"}


# What an array says of itself: its library, its device, its dtype, its memory


def array_namespace(*arrays: Array) -> Namespace:
    """The one array library that all `arrays` belong to; None is skipped, Python and NumPy scalars are refused.

    Parameters
    ----------
    *arrays : arrays
        Of one library.

    Returns
    -------
    module
        Its functions.

    Raises
    ------
    TypeError
        One of them is no array, or they belong to several libraries.

    Examples
    --------
    >>> hgp.backend.array_namespace(np.ones(2)).__name__.split(".")[-1]
    'numpy'
    """
    given = [a for a in arrays if a is not None]
    for a in given:
        if not compat.is_array_api_obj(a) or isinstance(a, np.generic):
            raise TypeError(
                "arrays must be arrays of a library (NumPy, CuPy, PyTorch, JAX, ...), "
                f"got {type(a).__module__}.{type(a).__name__}"
            )
    try:
        return compat.array_namespace(*given)
    except TypeError as error:
        names = sorted({f"{type(a).__module__}.{type(a).__name__}" for a in given})
        raise TypeError(f"arrays of several libraries together: {', '.join(names)}; move them to one") from error


def device(x: Array) -> Any:
    """The device that `x` lives on.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    What its library calls it; "cpu" for NumPy.

    Raises
    ------
    TypeError
        `x` is no array.

    Examples
    --------
    >>> hgp.backend.device(np.ones(2))
    'cpu'
    """
    if isinstance(x, np.ndarray):
        return "cpu"  # asked in every product, so no detour
    try:
        return compat.device(x)
    except AttributeError as error:
        raise _no_array("x", x) from error


def host_dtype(x: Array) -> np.dtype:
    """The NumPy dtype with the same name as the dtype of `x`.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    numpy.dtype

    Raises
    ------
    TypeError
        `x` is no array.

    Examples
    --------
    >>> hgp.backend.host_dtype(np.ones(2, dtype=np.float32))
    dtype('float32')
    """
    try:
        return x.dtype if isinstance(x.dtype, np.dtype) else np.dtype(str(x.dtype).rsplit(".", 1)[-1])
    except (AttributeError, TypeError) as error:
        raise _no_array("x", x) from error


def is_numpy(x: Array) -> bool:
    """Whether `x` is a host NumPy array, for which Numba fast paths may stand in.

    Parameters
    ----------
    x : anything.

    Returns
    -------
    bool

    Examples
    --------
    >>> hgp.backend.is_numpy(np.ones(2)), hgp.backend.is_numpy([1.0])
    (True, False)
    """
    return isinstance(x, np.ndarray)


def addressable(x: Array) -> bool:
    """Whether others than its library may read and write the memory of `x`, as MPI does: NumPy, CuPy, PyTorch.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        `x` is no array.

    Examples
    --------
    >>> hgp.backend.addressable(np.ones(2))
    True
    """
    if isinstance(x, np.generic) or not compat.is_array_api_obj(x):
        raise _no_array("x", x)
    return isinstance(x, np.ndarray) or compat.is_torch_array(x) or compat.is_cupy_array(x)


def detached(x: Array) -> Array:
    """`x` without the graph that PyTorch's automatic differentiation may keep behind it; the memory is shared.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    array
        `x` itself but for PyTorch.

    Examples
    --------
    >>> hgp.backend.detached(np.ones(2))
    array([1., 1.])
    """
    return x.detach() if compat.is_torch_array(x) else x


def settle(x: Array) -> None:
    """Wait until the device of `x` has done what it was asked for, so that others than its library may read memory.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    None

    Examples
    --------
    >>> hgp.backend.settle(np.ones(2))  # NumPy has done it already
    """
    if compat.is_torch_array(x):
        if x.is_cuda:
            importlib.import_module("torch").cuda.synchronize(x.device)
    elif hasattr(device(x), "synchronize"):
        device(x).synchronize()


def _no_array(name: str, x: Any) -> TypeError:
    return TypeError(f"{name} must be an array, got {type(x).__module__}.{type(x).__name__}")


# The door between host and device


def to_host(x: Array) -> np.ndarray:
    """A host NumPy array with the values of `x`: the only way from a device to the host.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    numpy.ndarray
        Sharing memory where that is possible.

    Raises
    ------
    TypeError
        `x` is no array.

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
    if hasattr(xp, "asnumpy"):  # CuPy and those who follow its names
        return xp.asnumpy(x)
    home = xp.__array_namespace_info__().default_device()
    return np.asarray(compat.to_device(x, home))


def from_host(a: np.ndarray, *, like: Array) -> Array:
    """The host array `a`, dtype kept, in the library and on the device of `like`: the only way to a device.

    The result may share memory with `a` where host and device are the same.

    Parameters
    ----------
    a : numpy.ndarray
        Values.
    like : array
        Whose library and device is wanted.

    Returns
    -------
    array
        With the dtype of `a`.

    Raises
    ------
    TypeError
        `a` is not on the host, or `like` is no array.

    Examples
    --------
    >>> hgp.backend.from_host(np.ones(2), like=np.zeros(1))
    array([1., 1.])
    """
    try:
        a = np.asarray(a)
    except (TypeError, ValueError, RuntimeError) as error:  # arrays that live on a device refuse in their own way
        raise TypeError(f"a must be an array on the host, got {type(a).__name__}: {error}") from error
    if isinstance(like, np.ndarray):
        return a
    if not compat.is_array_api_obj(like) or isinstance(like, np.generic):
        raise _no_array("like", like)
    xp = compat.array_namespace(like)
    if compat.is_torch_array(like):  # torch shares memory with the host array otherwise, and dislikes read-only ones
        return xp.asarray(a.copy(), device=device(like))
    return xp.asarray(a, device=device(like))


def host_float64(x: Array) -> np.ndarray:
    """A host array of its own with the values of `x` in float64.

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    numpy.ndarray
        In float64, sharing no memory.

    Raises
    ------
    TypeError
        `x` holds no real numbers.

    Examples
    --------
    >>> hgp.backend.host_float64(np.ones(2, dtype=np.float32)).dtype
    dtype('float64')
    """
    host = to_host(x)
    if host.dtype.kind not in "fiub":
        raise TypeError(f"x must hold real numbers, got {host.dtype}")
    return np.array(host, dtype=np.float64)


def scalar(x: Array) -> float:
    """The value of an array with one element, on the host.

    Parameters
    ----------
    x : array
        With one element.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        `x` is not one real number.

    Examples
    --------
    >>> hgp.backend.scalar(np.array([[2.0]]))
    2.0
    """
    host = to_host(x)
    if host.size != 1 or host.dtype.kind not in "biuf":
        raise ValueError(f"x must be one real number, got {host.dtype} of shape {host.shape}")
    return float(host.reshape(()))


def all_finite(x: Array) -> bool:
    """Whether no entry of `x` is NaN or infinite (one scalar goes to the host).

    Parameters
    ----------
    x : array
        Of any library, on any device.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        `x` is no array of numbers.

    Examples
    --------
    >>> hgp.backend.all_finite(np.array([1.0, np.inf]))
    False
    """
    if not compat.is_array_api_obj(x) or isinstance(x, np.generic):
        raise _no_array("x", x)
    xp = compat.array_namespace(x)
    try:
        return bool(to_host(xp.all(xp.isfinite(x))))
    except TypeError as error:
        raise TypeError(f"x must be an array of numbers, got {x.dtype}") from error


# A library chosen by name, where arrays are made


@dataclass(frozen=True)
class Backend:
    """An array library chosen by name, and the device on which it makes arrays.

    Attributes
    ----------
    name : of the library.
    xp : its array-API namespace.
    device : where arrays are made; None for the library's own choice.

    Examples
    --------
    >>> hgp.backend.get_backend("numpy").name
    'numpy'
    """

    name: str
    xp: Namespace
    device: Any

    def asarray(self, a: Any, dtype: str | None = None) -> Array:
        """Host data `a` as an array of this library; `dtype` is a name such as "float32" (None keeps that of `a`).

        Parameters
        ----------
        a : what NumPy can read.
        dtype : name of a dtype.

        Returns
        -------
        array of this library, on its device.
        """
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

    A library that is not installed raises ImportError with the extra that brings it; CuPy without a usable GPU
    raises RuntimeError.

    Parameters
    ----------
    name : str
        "numpy", "cupy", "torch", "jax" or "array_api_strict".

    Returns
    -------
    Backend
        With `asarray` for host data.

    Raises
    ------
    TypeError
        `name` is no name.
    ValueError
        No such library is known.
    ImportError
        It is not installed; the message says which extra brings it.
    RuntimeError
        CuPy finds no GPU.

    Examples
    --------
    >>> hgp.backend.get_backend("numpy").asarray([1, 2], "float32").dtype
    dtype('float32')
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of a library, got {name!r} ({type(name).__name__})")
    if name == "numpy":
        return Backend(name, compat.array_namespace(np.empty(0)), "cpu")
    if name not in EXTRAS:
        raise ValueError(
            f"name={name!r} given: backend={name!r} is unknown; choose one of {', '.join(['numpy', *EXTRAS])}"
        )
    library = _import(name)
    if name == "cupy":
        _require_gpu(library)
        empty = library.empty(0)
    elif name == "array_api_strict":  # its second device refuses every implicit transfer, as a GPU would
        empty = library.empty(0, device=library.Device("device1"))
    elif name == "jax":
        empty = importlib.import_module("jax.numpy").empty(0)
    else:
        empty = library.empty(0)
    return Backend(name, compat.array_namespace(empty), device(empty))


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"backend {name!r} is not installed: pip install 'hgp_ref[{EXTRAS[name]}]'") from error


def _require_gpu(cupy: Any) -> None:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises its own CUDARuntimeError, which cannot be named without importing it
        raise RuntimeError(f"CuPy is installed but finds no usable GPU: {error}") from error
    if count < 1:
        raise RuntimeError("CuPy is installed but finds no usable GPU: 0 CUDA devices")
