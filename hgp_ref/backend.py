"""Array libraries and devices; the only place where data move between host and device.

Public functions take the array library from their arguments (`array_namespace`). A library is chosen by name only where
arrays are made (`get_backend`). Arrays move between host and device through `to_host` and `from_host`, and data of the
user through `Backend.asarray`, nowhere else: tests count the transfers here. No other file names CuPy.
"""

from __future__ import annotations

import functools
import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import array_api_compat as compat
import numpy as np

__all__ = ["Backend", "array_namespace", "device", "from_host", "get_backend", "to_host"]

Array = Annotated[Any, "an array of any library that follows the array API standard"]
Namespace = Any  # the module with its functions
T = TypeVar("T")

# How to turn off TF32, which rounds the factors of products of float32 matrices on a GPU.
TF32_OFF = {
    "cupy": "unset CUPY_TF32",
    "torch": 'torch.set_float32_matmul_precision("highest")',
    "jax": 'jax.config.update("jax_default_matmul_precision", "float32")',
}
EXTRAS = {"cupy": "cuda13", "torch": "torch", "jax": "jax", "array_api_strict": "test"}


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
        placed = _place(self.xp, host, self.device)
        if str(host.dtype) not in str(placed.dtype):
            raise TypeError(
                f"{self.name} converted {host.dtype} to {placed.dtype}; for 64-bit numbers JAX needs "
                "jax.config.update('jax_enable_x64', True)"
            )
        return placed


def get_backend(name: str, device: Any = None) -> Backend:
    """The array library called `name`: "numpy", "cupy", "torch", "jax" or "array_api_strict".

    Parameters
    ----------
    device : where arrays are made. By default the library's current device. A number k is the k-th accelerator:
        cupy.cuda.Device(k), torch.device("cuda:k") or jax.devices()[k]. Text is what the library calls the device, such
        as "cuda:1" or "cpu". A device of the library is taken as it is.

    Raises
    ------
    ImportError
        The library is not installed; the message names the extra that installs it.
    RuntimeError
        CuPy finds no usable GPU.
    ValueError
        There is no such device.

    Examples
    --------
    >>> hgp.backend.get_backend("numpy").asarray([1, 2], "float32").dtype
    dtype('float32')
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of an array library, got {name!r} ({type(name).__name__})")
    if name == "numpy":
        if device not in (None, "cpu"):
            raise ValueError(f"device must be 'cpu' for NumPy, got {device!r}")
        return Backend(name, compat.array_namespace(np.empty(0)), "cpu")
    if name not in EXTRAS:
        raise ValueError(f"backend name must be one of {', '.join(map(repr, ['numpy', *EXTRAS]))}, got {name!r}")
    try:
        library = importlib.import_module(name)
    except ImportError as error:
        other = " (cuda12 with a driver for CUDA 12)" if name == "cupy" else ""
        raise ImportError(f"backend {name!r} is not installed: pip install 'hgp_ref[{EXTRAS[name]}]'{other}") from error
    gpus = _gpus(library) if name == "cupy" else 0
    if name == "array_api_strict" and device is None:
        device = "device1"  # it refuses every implicit transfer, as a GPU would
    try:
        chosen = None if device is None else _read_device(name, library, device, gpus)
        if name == "cupy":
            with chosen or NO_CHANGE:
                empty = library.empty(0)
        else:
            empty = (importlib.import_module("jax.numpy") if name == "jax" else library).empty(0, device=chosen)
    except (TypeError, ValueError, RuntimeError, AssertionError, IndexError) as error:  # as the libraries please
        raise ValueError(f"device must be a device of {name}, got {device!r}: {error}") from error
    return Backend(name, compat.array_namespace(empty), compat.device(empty))


def _gpus(cupy: Any) -> int:
    """The number of GPUs that CuPy finds; RuntimeError if there is none."""
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises its own CUDARuntimeError, which cannot be named without importing it
        raise RuntimeError(f"CuPy is installed but finds no usable GPU: {error}") from error
    if count < 1:
        raise RuntimeError("CuPy is installed but finds no usable GPU: 0 CUDA devices")
    return count


def _read_device(name: str, library: Any, device: Any, gpus: int) -> Any:
    """The device of the library that `device`, a number, text or a device, stands for."""
    number = None
    if isinstance(device, int | np.integer) and not isinstance(device, bool):
        number = int(device)
    elif isinstance(device, str) and device.rpartition(":")[2].isdigit():
        number = int(device.rpartition(":")[2])
    if name == "cupy":
        if number is None and not isinstance(device, library.cuda.Device):
            raise TypeError("it must be a number, 'cuda:k' or a cupy.cuda.Device")
        chosen = device if number is None else library.cuda.Device(number)
        if not 0 <= chosen.id < gpus:
            raise ValueError(f"there are {gpus} GPUs")
        return chosen
    if name == "torch":
        return library.device(f"cuda:{number}" if str(device) == str(number) else device)
    if name == "jax":
        if not isinstance(device, str) and number is None:
            return device
        platform = device.rpartition(":")[0] or device if isinstance(device, str) and device != str(number) else None
        return library.devices(platform)[number or 0]
    return library.Device(device) if isinstance(device, str) else device


def hardware(backend: Backend) -> list[str]:
    """Lines about the device of CuPy and PyTorch on a GPU: name, memory, CUDA; empty for others."""
    library = sys.modules.get(backend.name)
    if backend.name == "cupy" and library is not None:
        runtime = library.cuda.runtime
        properties = runtime.getDeviceProperties(backend.device.id)
        versions = [divmod(v // 10, 100) for v in (runtime.runtimeGetVersion(), runtime.driverGetVersion())]
        free, total = runtime.memGetInfo()
        return [
            f"{properties['name'].decode()}, compute capability {properties['major']}.{properties['minor']}, "
            f"{total / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB free, {properties['multiProcessorCount']} "
            f"multiprocessors; CUDA runtime {versions[0][0]}.{versions[0][1]}, driver {versions[1][0]}.{versions[1][1]}"
        ]
    if backend.name == "torch" and library is not None and backend.device.type == "cuda":
        properties = library.cuda.get_device_properties(backend.device)
        return [f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB of memory; CUDA {library.version.cuda}"]
    return []


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
        if not is_array(a):
            raise TypeError(f"arrays must be arrays of a library (NumPy, CuPy, PyTorch, JAX, ...), got {class_name(a)}")
    try:
        return compat.array_namespace(*present)
    except TypeError as error:
        names = ", ".join(sorted(set(map(class_name, present))))
        raise TypeError(f"arrays must come from one library, got {names}") from error


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


def on_device_of(*values: Any) -> AbstractContextManager[Any]:
    """A context in which the device of the first CuPy array among `values` is CuPy's current device.

    Of a list or tuple the first entry counts.

    CuPy makes new arrays on the current device, whatever the device of the operands. Other libraries compute where
    their arrays are; for them the context does nothing.
    """
    if "cupy" in sys.modules:
        for value in values:
            first = value[0] if isinstance(value, list | tuple) and value else value
            if compat.is_cupy_array(first):
                return first.device
    return NO_CHANGE


NO_CHANGE = nullcontext()


def elsewhere(*values: Any) -> Array | None:
    """The first CuPy array among `values`, if it is on another device than CuPy's current one; otherwise None."""
    if "cupy" in sys.modules:
        for value in values:
            if compat.is_cupy_array(value):
                return value if value.device.id != type(value.device)().id else None
    return None


def computes_on_device(function: T) -> T:
    """A decorator: the device of the first CuPy array among the arguments is CuPy's current device during a call."""
    call: Any = function

    @functools.wraps(call)
    def on_device(*args: Any, **options: Any) -> Any:
        if "cupy" not in sys.modules:
            return call(*args, **options)
        with on_device_of(*args, *options.values()):
            return call(*args, **options)

    return on_device  # type: ignore[return-value]


def host_dtype(x: Array) -> np.dtype:
    """The NumPy dtype with the same name as the dtype of `x`."""
    try:
        return x.dtype if isinstance(x.dtype, np.dtype) else np.dtype(str(x.dtype).rsplit(".", 1)[-1])
    except (AttributeError, TypeError) as error:
        raise _no_array("x", x) from error


def is_numpy(x: Array) -> bool:
    """Whether `x` is a host NumPy array, for which there are compiled fast paths."""
    return isinstance(x, np.ndarray)


def is_array(x: Any) -> bool:
    """Whether `x` is an array of some library; NumPy scalars are not."""
    return bool(compat.is_array_api_obj(x)) and not isinstance(x, np.generic)


def addressable(x: Array) -> bool:
    """Whether other libraries, such as MPI, may read and write the memory of `x`: NumPy, CuPy, PyTorch."""
    if not is_array(x):
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
    return TypeError(f"{name} must be an array, got {class_name(x)}")


def class_name(x: object) -> str:
    """Module and name of the class of `x`, for messages."""
    return f"{type(x).__module__}.{type(x).__name__}"


def add_at(out: Array, index: Array, values: Array) -> Array:
    """`out` (k, …) with values[j] added to row index[j] for every j; NumPy, CuPy, PyTorch and JAX.

    The order of additions on a GPU is not determined, so neither is the rounding of the result.
    """
    if isinstance(out, np.ndarray):
        np.add.at(out, index, values)
        return out
    if compat.is_torch_array(out):
        return out.index_add_(0, index, values)
    if compat.is_jax_array(out):
        return out.at[index].add(values)
    if compat.is_cupy_array(out):
        array_namespace(out).add.at(out, index, values)
        return out
    raise TypeError(f"sparse features need arrays of NumPy, CuPy, PyTorch or JAX, got {class_name(out)}")


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
    if not is_array(like):
        raise _no_array("like", like)
    if compat.is_torch_array(like):  # torch would share memory with the host array, and warns of read-only ones
        a = a.copy()
    return _place(compat.array_namespace(like), a, device(like))


def _place(xp: Namespace, a: np.ndarray, where: Any) -> Array:
    """The host array `a` on the device `where`; TypeError if the library has no such dtype."""
    try:
        return xp.asarray(a, device=where)
    except (TypeError, ValueError) as error:  # CuPy raises ValueError
        library = xp.__name__.removeprefix("array_api_compat.").partition(".")[0]
        raise TypeError(f"a must have a dtype that {library} supports, got {a.dtype}") from error


def unit_vectors(k: int, like: Array) -> Array:
    """The k-th unit vector in every row of an array like `like` (n, d), made on its device."""
    xp = compat.array_namespace(like)
    row = xp.astype(xp.arange(like.shape[-1], device=device(like)) == k, like.dtype)
    return xp.zeros_like(like) + row


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
    if not is_array(x):
        raise _no_array("x", x)
    xp = compat.array_namespace(x)
    try:
        return bool(to_host(xp.all(xp.isfinite(x))))
    except TypeError as error:
        raise TypeError(f"x must be an array of numbers, got {x.dtype}") from error
