"""Checks and batched products shared by the built-in problems; array API standard operations only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, Namespace, array_namespace, device, from_host, get_backend, to_host

Shape = tuple[int, ...]


class Portable(ABC):
    """Keeps its array library at hand as `_xp`; a module cannot be pickled, so it is found again by `_like`."""

    _xp: Namespace

    @abstractmethod
    def _like(self) -> Array:
        """An array of the problem's library."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_xp"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._xp = array_namespace(self._like())


def check_argument(name: str, a: Array, like: Array, shape: Shape, meaning: str) -> Shape:
    """Leading run axes of `a`, whose trailing axes must be `shape` and whose library, device and dtype those of `like`.

    Looks at metadata only: no values are read, so nothing waits for a device.
    """
    if type(a) is not type(like):
        if isinstance(a, np.ma.MaskedArray | np.matrix):  # their products and sums are not those of arrays
            raise TypeError(f"{name}: needed a plain array, got {type(a).__module__}.{type(a).__name__}")
        try:
            same = array_namespace(a) is array_namespace(like)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        if not same:
            given, needed = (f"{type(v).__module__}.{type(v).__name__}" for v in (a, like))
            raise TypeError(f"{name}: {given} given, needed {needed} as the problem's data; problem.to(...) moves it")
    if a.dtype != like.dtype:
        raise TypeError(f"{name}: dtype {a.dtype} given, needed the problem's dtype {like.dtype}")
    if device(a) != device(like):
        raise TypeError(f"{name}: on device {device(a)}, needed the problem's device {device(like)}")
    if tuple(a.shape[-len(shape) :]) != shape:
        raise ValueError(
            f"{name}: shape {tuple(a.shape)} given, needed (..., {', '.join(map(str, shape))}) = (..., {meaning})"
        )
    return tuple(a.shape[: -len(shape)])


def check_batch(batch: Array, like: Array, n: int) -> Shape:
    """Leading run axes of `batch`, an integer array (..., n, b) with b >= 1 beside `like`."""
    try:
        xp = array_namespace(batch, like)
    except TypeError as error:
        raise TypeError(f"batch: {error}") from error
    if not xp.isdtype(batch.dtype, "signed integer"):
        raise TypeError(f"batch: dtype {batch.dtype} given, needed signed integers (instance indices, -1 = padding)")
    if device(batch) != device(like):
        raise TypeError(f"batch: on device {device(batch)}, needed the problem's device {device(like)}")
    if batch.ndim < 2 or batch.shape[-2] != n or batch.shape[-1] < 1:
        raise ValueError(
            f"batch: shape {tuple(batch.shape)} given, needed (..., {n}, b) = (..., n_clients, b) with b >= 1"
        )
    return tuple(batch.shape[:-2])


def run_axes(**leads: Shape) -> Shape:
    """The run axes that the named arguments' run axes broadcast to."""
    given = {lead for lead in leads.values() if lead}
    if len(given) <= 1:  # one kind of run axes, or none: what every step of a run meets
        return given.pop() if given else ()
    try:
        return np.broadcast_shapes(*given)
    except ValueError as error:
        listing = ", ".join(f"{name} has {lead}" for name, lead in leads.items())
        raise ValueError(f"leading run axes do not broadcast: {listing}") from error


def expand(a: Array, lead: Shape, trailing: int, *, xp: Namespace) -> Array:
    """`a` broadcast to the run axes `lead` in front of its last `trailing` axes."""
    if a.ndim - trailing == len(lead) and tuple(a.shape[: len(lead)]) == lead:
        return a
    return xp.broadcast_to(a, lead + tuple(a.shape[a.ndim - trailing :]))


def matmul_runs(
    matrix: Array, columns: Array, product: Callable[[Array, Array], Array] | None = None, *, xp: Namespace
) -> Array:
    """matrix_i columns_i for every client; run axes of `columns` become further columns of one product.

    One product per client with R times as many columns reads each matrix once, not R times. `product` multiplies
    stacks of matrices, xp.matmul by default.
    matrix (n, p, q) or (..., n, p, q); columns (..., n, q, c); result (..., n, p, c).
    """
    multiply = xp.matmul if product is None else product
    if matrix.ndim > 3 or columns.ndim == 3:
        return multiply(matrix, columns)
    lead, (n, q, c) = tuple(columns.shape[:-3]), tuple(columns.shape[-3:])
    runs = math.prod(lead)
    wide = xp.permute_dims(xp.reshape(columns, (runs, n, q, c)), (1, 2, 0, 3))  # (n, q, R, c)
    together = multiply(matrix, xp.reshape(wide, (n, q, runs * c)))  # (n, p, R c)
    p = together.shape[-2]
    narrow = xp.permute_dims(xp.reshape(together, (n, p, runs, c)), (2, 0, 1, 3))  # (R, n, p, c)
    return xp.reshape(narrow, (*lead, n, p, c))


def matvec(matrix: Array, u: Array, *, xp: Namespace) -> Array:
    """matrix_i u_i for every client and run.  # (..., n, p)"""
    return matmul_runs(matrix, u[..., None], xp=xp)[..., 0]


def chosen(clients: slice | Sequence[int] | np.ndarray, n: int) -> slice | np.ndarray:
    """`clients` of 0 .. n-1 as a slice or an array of different numbers, at least one."""
    if isinstance(clients, slice):
        numbers = range(n)[clients]
        if not numbers:
            raise ValueError(f"clients={clients} given, which is none of the {n} clients, needed at least one")
        return slice(numbers.start, numbers.stop) if numbers.step == 1 else np.array(numbers, dtype=np.int64)
    if not isinstance(clients, Sequence | np.ndarray) or isinstance(clients, str):
        raise TypeError(f"clients={clients!r} given ({type(clients).__name__}), needed a slice or a list of clients")
    if isinstance(clients, np.ndarray) and clients.ndim != 1:
        raise ValueError(f"clients: shape {clients.shape} given, needed a list of clients")
    given = [arguments.integer(f"clients[{k}]", i, 0, n - 1) for k, i in enumerate(clients)]
    if not given or len(set(given)) != len(given):
        raise ValueError(f"clients={clients!r} given, needed different clients, at least one")
    return np.array(given, dtype=np.int64)


def taker(clients: slice | np.ndarray) -> Callable[[Array], Array]:
    """A function that takes the rows of `clients` of an array: a view for a slice, a copy for numbers."""
    if isinstance(clients, slice):
        return lambda a: a[clients, ...]
    return lambda a: array_namespace(a).take(a, from_host(clients, like=a), axis=0)


def mover(target: Any, dtype: Any = None) -> Any:
    """A function that moves an array to `target`, a backend's name or an array to be beside; floats become `dtype`."""
    if dtype is not None:
        dtype = arguments.real_floating("dtype", dtype)
    try:
        backend = get_backend(target) if isinstance(target, str) else None
        if backend is None and target is not None:
            array_namespace(target)
    except (TypeError, ValueError) as error:
        raise type(error)(f"target: {error}") from error
    if target is None:
        raise TypeError("target=None given, needed the name of a library or an array")

    def move(a: Array) -> Array:
        host = to_host(a)
        if dtype is not None and np.issubdtype(host.dtype, np.floating):
            host = host.astype(dtype)
        return backend.asarray(host) if backend is not None else from_host(host, like=target)

    return move
