"""The module `cupy`, from the table of its names: NumPy computes, recorded signatures decide what is accepted."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np

from .array import Device, Transfers, ndarray, transfers, unwrap, wrap
from .operations import operations

NAMES = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))

# The size of the result is data: CuPy waits for the device before it can go on.
WAITS = {
    "nonzero", "argwhere", "flatnonzero", "extract", "compress", "bincount", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "intersect1d", "setdiff1d", "setxor1d", "union1d",
}  # fmt: skip
# NumPy answers these with a Python bool, CuPy with an array that stays on the device.
STAYS = {"allclose", "array_equal", "array_equiv"}
BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
COMPARE = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def signature(parameters: str) -> inspect.Signature:
    """The recorded parameters as a signature that can be bound."""
    return inspect.signature(eval(f"lambda {parameters}: None"))


def result(x, name=""):
    """Device arrays for everything NumPy computed."""
    if isinstance(x, (np.ndarray, np.generic)) or (isinstance(x, bool) and name in STAYS):
        return wrap(x)
    if isinstance(x, (tuple, list)):
        parts = [result(part) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def on_device(name: str, parameters: str, numpy_function, module: str = "cupy"):
    """CuPy's function `name`: its signature, NumPy's arithmetic, device arrays in and out."""
    accepted = signature(parameters)

    def function(*args, **kwargs):
        try:
            accepted.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{module}.{name}: {error}") from None
        out = kwargs.get("out")
        host_args, host_kwargs = [unwrap(a) for a in args], {k: unwrap(v) for k, v in kwargs.items()}
        if name in WAITS:
            transfers.down(8)
        with np.errstate(all="ignore"):  # a GPU raises no floating-point warnings
            found = numpy_function(*host_args, **host_kwargs)
        if isinstance(out, ndarray):
            operations.launch(name)
        else:
            operations.after(name, [host_args, host_kwargs], found)
        return out if isinstance(out, ndarray) else result(found, name)

    function.__name__, function.__qualname__, function.__module__ = name, name, module
    function.__signature__ = accepted
    return function


# To the device and back


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    if isinstance(obj, ndarray):
        new = dtype is not None and np.dtype(dtype) != obj.dtype
        if not copy and not new and ndmin <= obj.ndim and obj._device == Device.current:
            return obj
        operations.launch("copy")
        return wrap(np.array(obj._memory, dtype=dtype, copy=True, order=order, ndmin=ndmin))
    if isinstance(obj, (list, tuple)) and any(isinstance(part, ndarray) for part in obj):
        operations.launch("stack")
        return wrap(np.array([unwrap(part) for part in obj], dtype=dtype, order=order, ndmin=ndmin))
    host = np.array(obj, dtype=dtype, copy=True, order=order, ndmin=ndmin)
    if host.dtype.kind not in "biufc":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    transfers.up(host.nbytes)
    return wrap(host)


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order or "K")


def ascontiguousarray(a, dtype=None):
    return array(a, dtype, False, "C")


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    if isinstance(a, ndarray):
        return a.get(stream=stream, order=order, out=out, blocking=blocking)
    return np.asarray(a, order=order)


BY_HAND = {
    "array": array,
    "asarray": asarray,
    "asanyarray": asarray,
    "ascontiguousarray": ascontiguousarray,
    "asnumpy": asnumpy,
}


# CuPy has the names of the array API standard; NumPy before 2 calls some of the same functions and types otherwise.
OLD_NUMPY = {
    "bool": "bool_", "long": "int_", "ulong": "uint", "concat": "concatenate", "permute_dims": "transpose",
    "trapezoid": "trapz", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "pow": "power",
}  # fmt: skip


def _numpy(name: str):
    """NumPy's function, type or constant of that name in the standard; None if this NumPy has none."""
    found = vars(np).get(name)  # getattr would warn for np.bool
    return vars(np).get(OLD_NUMPY.get(name, "")) if found is None else found


def get_device_count() -> int:
    return 2


def build() -> dict[str, ModuleType]:
    """The modules by the names under which they are imported."""
    cupy, linalg, fft, cuda = (ModuleType(n) for n in ("cupy", "cupy.linalg", "cupy.fft", "cupy.cuda"))
    cupy.__version__, cupy.__path__ = NAMES["cupy"], []
    for name, parameters in (NAMES["functions"] | NAMES["ufuncs"]).items():
        if name in BY_HAND:
            setattr(cupy, name, BY_HAND[name])
        elif (function := _numpy(name)) is not None:
            setattr(cupy, name, on_device(name, parameters, function))
    for part, source in ((linalg, np.linalg), (fft, np.fft)):
        for name, parameters in NAMES[part.__name__.split(".")[1]].items():
            if hasattr(source, name):
                setattr(part, name, on_device(name, parameters, getattr(source, name), part.__name__))
    linalg.LinAlgError = np.linalg.LinAlgError
    linalg.__all__ = [name for name in vars(linalg) if not name.startswith("_")]
    for name in (*NAMES["types"], *NAMES["constants"], "dtype", "finfo", "iinfo"):
        if (constant := _numpy(name)) is not None:
            setattr(cupy, name, constant)
    cupy.ndarray, cupy.linalg, cupy.fft, cupy.cuda = ndarray, linalg, fft, cuda
    _equip(cupy)
    cuda.__path__, cuda.Device = [], Device
    cuda.device, cuda.runtime = ModuleType("cupy.cuda.device"), ModuleType("cupy.cuda.runtime")
    cuda.device.Device, cuda.runtime.getDeviceCount = Device, get_device_count
    cuda.is_available = lambda: cuda.runtime.getDeviceCount() > 0
    return {m.__name__: m for m in (cupy, linalg, fft, cuda, cuda.device, cuda.runtime)}


def _equip(cupy: ModuleType) -> None:
    """Methods and operators of the array class, from the same table."""
    ndarray.__module__ = "cupy"
    for name, parameters in NAMES["methods"].items():
        if (
            hasattr(np.ndarray, name)
            and name not in vars(ndarray)
            and name not in {"dump", "dumps", "tofile", "tobytes"}
        ):
            setattr(ndarray, name, on_device(name, parameters, functools.partial(_method, name), "cupy.ndarray"))
    for name, ufunc in (COMPARE | UNARY | BINARY).items():
        setattr(ndarray, f"__{name}__", _operator(getattr(cupy, ufunc)))
    for name, ufunc in BINARY.items():
        function = getattr(cupy, ufunc)
        setattr(ndarray, f"__r{name}__", _operator(function, reflected=True))
        if name != "matmul":  # CuPy has no __imatmul__: x @= y makes a new array
            setattr(ndarray, f"__i{name}__", _operator(function, in_place=True))


def _method(name, memory, *args, **kwargs):
    if name == "astype":  # CuPy's casting=None and subok=None are NumPy's defaults
        kwargs = {k: v for k, v in kwargs.items() if v is not None}
    if name == "view":
        return memory.view(*args, **kwargs)
    return getattr(memory, name)(*args, **kwargs)


def _operator(function, *, reflected=False, in_place=False):
    def operate(self, *other):
        if other and not isinstance(other[0], (ndarray, bool, int, float, complex, np.generic)):
            raise TypeError(f"Unsupported type {type(other[0])}")
        args = (*other, self) if reflected else (self, *other)
        return function(*args, out=self) if in_place else function(*args)

    return operate


def install() -> Transfers:
    """Put the double where `import cupy` finds it; returns the count of its transfers."""
    for name, module in build().items():
        module.__spec__ = ModuleSpec(name, None, is_package=hasattr(module, "__path__"))
        sys.modules[name] = module
    return transfers
