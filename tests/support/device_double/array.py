"""`cupy.ndarray` as a person without a GPU can have it: values that the host cannot reach by accident.

The memory is a NumPy array that nothing outside this package touches. What CuPy refuses is refused with CuPy's words,
what makes CuPy wait for the device is counted. Stricter than CuPy in two places, where CuPy would copy without a
word: host arrays and lists are refused as indices, and host arrays as the right-hand side of an assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from .operations import operations

CONVERSION = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)


@dataclass
class Transfers:
    """How often, and how many bytes, went over the bus; a wait for one number counts as a transfer to the host."""

    to_device: int = 0
    to_device_bytes: int = 0
    to_host: int = 0
    to_host_bytes: int = 0

    def up(self, nbytes: int) -> None:
        self.to_device += 1
        self.to_device_bytes += nbytes

    def down(self, nbytes: int) -> None:
        self.to_host += 1
        self.to_host_bytes += nbytes

    def reset(self) -> None:
        self.to_device = self.to_device_bytes = self.to_host = self.to_host_bytes = 0

    @property
    def number(self) -> int:
        return self.to_device + self.to_host

    @property
    def nbytes(self) -> int:
        return self.to_device_bytes + self.to_host_bytes


transfers = Transfers()


class Device:
    """`cupy.cuda.Device`: a number, and a context that makes it current."""

    current = 0

    def __init__(self, device=None):
        self.id = Device.current if device is None else int(device)
        self._outer: list[int] = []

    def __int__(self):
        return self.id

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    def __enter__(self):
        self._outer.append(Device.current)
        Device.current = self.id
        return self

    def __exit__(self, *error):
        Device.current = self._outer.pop()

    def use(self):
        Device.current = self.id

    def synchronize(self):
        """Nothing runs behind the caller's back here."""


class ndarray:
    __slots__ = ("_device", "_memory")
    __hash__ = None
    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        self._memory, self._device = np.empty(shape, dtype, order), Device.current

    def __array__(self, dtype=None):
        raise TypeError(CONVERSION)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        """NumPy functions and scalars that meet a device array hand over to CuPy's function of the same name."""
        import cupy

        if method != "__call__" or not hasattr(cupy, ufunc.__name__):
            return NotImplemented
        return getattr(cupy, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        import cupy

        if func.__module__ != "numpy" or not hasattr(cupy, func.__name__):
            return NotImplemented
        return getattr(cupy, func.__name__)(*args, **kwargs)

    # What the shape tells without asking the device

    dtype = property(lambda self: self._memory.dtype)
    ndim = property(lambda self: self._memory.ndim)
    size = property(lambda self: self._memory.size)
    nbytes = property(lambda self: self._memory.nbytes)
    itemsize = property(lambda self: self._memory.itemsize)
    strides = property(lambda self: self._memory.strides)
    device = property(lambda self: Device(self._device))

    @property
    def shape(self):
        return self._memory.shape

    @shape.setter
    def shape(self, shape):
        view = self._memory.reshape(shape)
        if self.size and not np.shares_memory(view, self._memory):
            raise AttributeError("incompatible shape")
        self._memory = view

    @property
    def flags(self):
        flags = self._memory.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous, owndata=flags.owndata)

    @property
    def __cuda_array_interface__(self):
        """Where the numbers lie, for libraries that read device memory themselves, such as a CUDA-aware MPI."""
        memory = self._memory
        return {
            "shape": memory.shape, "typestr": memory.dtype.str, "descr": memory.dtype.descr, "version": 3,
            "strides": None if memory.flags.c_contiguous else memory.strides, "data": (memory.ctypes.data, False),
            "stream": 1,
        }  # fmt: skip

    T = property(lambda self: wrap(self._memory.T))
    mT = property(lambda self: wrap(np.swapaxes(self._memory, -1, -2)))
    real = property(lambda self: wrap(self._memory.real))
    imag = property(lambda self: wrap(self._memory.imag))

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    # What waits for the device

    def get(self, stream=None, order="C", out=None, blocking=True):
        transfers.down(self.nbytes)
        if out is None:
            return np.array(self._memory, order=order)
        out[...] = self._memory
        return out

    def set(self, arr, stream=None):
        transfers.up(arr.nbytes)
        self._memory[...] = arr

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __complex__(self):
        return complex(self.get())

    def __repr__(self):
        return repr(self.get())

    __str__ = __repr__

    def __format__(self, spec):
        return format(self.get().item() if self.ndim == 0 else self.get(), spec)

    # Indexing

    def __getitem__(self, key):
        key, masked = unwrap_key(key)
        if masked:
            transfers.down(8)  # the size of the result is data
        if any(isinstance(part, np.ndarray) for part in (key if isinstance(key, tuple) else (key,))):
            operations.launch("getitem")  # gathered; a slice launches nothing
        return wrap(unwrap(self)[key])

    def __setitem__(self, key, value):
        operations.launch("setitem")
        unwrap(self)[unwrap_key(key)[0]] = unwrap(value)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()


def wrap(host):
    """A device array around `host`, which must not be reachable from outside; NumPy scalars become 0-d arrays."""
    made = object.__new__(ndarray)
    made._memory, made._device = np.asarray(host), Device.current
    return made


def unwrap(x):
    """The memory of an operand. Python and NumPy scalars pass; host arrays do not."""
    if isinstance(x, ndarray):
        if x._device != Device.current:
            raise ValueError(
                f"The device where the array resides ({x._device}) is different from the current device "
                f"({Device.current}). Peer access is unavailable between these devices."
            )
        return x._memory
    if isinstance(x, (list, tuple)):
        return type(x)(unwrap(part) for part in x)
    if hasattr(x, "__array__") and not isinstance(x, (np.generic, type)):
        raise TypeError(f"Unsupported type {type(x)}")
    return x


def unwrap_key(key):
    """The index with device arrays unwrapped, and whether it holds a mask."""
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, list):
            raise TypeError(f"Unsupported type {type(part)}: an index from the host is a transfer, make it explicit")
    masked = any(isinstance(part, ndarray) and part.dtype == np.bool_ for part in parts)
    found = tuple(unwrap(part) for part in parts)
    return (found if isinstance(key, tuple) else found[0]), masked
