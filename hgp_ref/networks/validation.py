"""Checks of graphs that come from a user: of `Schedule`, and of networks defined outside this package.

    W ≥ 0,   1ᵀW = 1ᵀ,   W_ii > 0 for all i,   every index inside its array.

Kernels do not check what they read, so these checks also protect memory. Integers of any width are accepted, and
weights of any precision: a column of float32 that sums to 1 within its own rounding is divided by its sum in float64.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels.graphs import Csr, rows_from_lists, scatter
from hgp_ref.philox import MAX_STEP
from hgp_ref.validation import GIB, memory

if TYPE_CHECKING:
    from hgp_ref.networks.base import Network

EPS = float(np.finfo(np.float64).eps)
PACKAGE = __name__.partition(".")[0]
DERIVED = ("mixing_matrix", "products", "edges", "union", "out_neighbours")  # from the methods in CHECKS
COMPARED_STEPS = 4  # of a period, with the same steps one and two periods later
COMPARED_CLIENTS = 256  # up to which dense matrices are compared with the rows


# Graphs


def lists(name: str, n: int, value: object, self_loops: bool, senders: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(indptr int64 (n + 1,), clients int32): clients[indptr[j] : indptr[j + 1]] is the sorted list of client j.

    With `senders`, these are the receivers of client j, and no list is empty.
    """
    indptr, clients = _parts(name, value, ("indptr", "clients"))
    indptr, clients = integers(f"{name}: indptr", indptr), integers(f"{name}: clients", clients)
    if indptr.size != n + 1:
        raise ValueError(f"{name}: indptr must have length n + 1 = {n + 1}, got {indptr.size}")
    if indptr[0] != 0:
        raise ValueError(f"{name}: indptr[0] must be 0, got {indptr[0]}")
    lengths = np.diff(indptr)
    if (lengths < 0).any():
        j = int(np.argmax(lengths < 0))
        raise ValueError(f"{name}: indptr must not decrease, got {indptr[j]}, {indptr[j + 1]} at {j}")
    if indptr[-1] != clients.size:
        raise ValueError(f"{name}: indptr must end with the length of clients, {clients.size}, got {indptr[-1]}")
    outside = (clients < 0) | (clients >= n)
    if outside.any():
        e = int(np.argmax(outside))
        raise ValueError(f"{name}: clients must be integers from 0 to {n - 1}, got {clients[e]} at {e}")
    owner = np.repeat(np.arange(n), lengths)
    unsorted = (np.diff(clients) <= 0) & (np.diff(owner) == 0)
    if unsorted.any():
        e = int(np.argmax(unsorted))
        raise ValueError(
            f"{name}: the list of client {owner[e]} must be sorted without repetition, got {clients[e + 1]} after "
            f"{clients[e]}"
        )
    if senders and (lengths == 0).any():
        raise ValueError(f"{name}: client {int(np.argmin(lengths))} must send to at least one client")
    if self_loops:
        missing = np.ones(n, dtype=bool)
        missing[clients[clients == owner]] = False
        if missing.any():
            raise ValueError(
                f"{name}: client {int(np.argmax(missing))} must be in its own list, a self-loop (or set self_loops = "
                "False in the class)"
            )
    return indptr, clients.astype(np.int32)


def rows(name: str, n: int, value: object, self_loops: bool) -> Csr:
    """W by rows: (indptr, senders, weights)."""
    indptr, senders, weights = _parts(name, value, ("indptr", "senders", "weights"))
    weights = _real_numbers(f"{name}: weights", weights, 1)
    indptr, senders = lists(name, n, (indptr, senders), self_loops, senders=False)
    if weights.size != senders.size:
        raise ValueError(
            f"{name}: weights must have one entry for each of the {senders.size} senders, got {weights.size}"
        )
    return column_stochastic(name, indptr, senders, weights, self_loops)


def column_stochastic(
    name: str, indptr: np.ndarray, senders: np.ndarray, weights: np.ndarray, self_loops: bool = True
) -> Csr:
    """The same rows in float64, with columns that sum to 1.

    A column of k entries may be off by k + 1 roundings of its dtype, as k numbers divided by their sum are.
    """
    n, unit = indptr.size - 1, _rounding(weights.dtype)
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    wrong = ~((weights >= 0) & (weights < np.inf))
    if wrong.any():
        raise ValueError(f"{name} must be finite and non-negative, got {weights[np.argmax(wrong)]}")
    sums, entries = np.bincount(senders, weights, n), np.bincount(senders[weights > 0], minlength=n)
    diagonal = np.zeros(n)
    loops = senders == np.repeat(np.arange(n), np.diff(indptr))
    diagonal[senders[loops]] = weights[loops]
    _check_columns(f"{name} ", sums, entries, diagonal, unit, self_loops)
    if unit == EPS:
        return indptr, senders, weights
    divisor = np.where(np.abs(sums - 1.0) > (entries + 1) * EPS, sums, 1.0)
    return indptr, senders, weights / divisor[senders]


def matrices(name: str, shape: tuple[int, int, int], value: object, self_loops: bool) -> np.ndarray:
    """W_s, W_{s+1}, …, (count, n, n) in float64."""
    W = _real_numbers(name, value, 3)
    if W.shape != shape:
        raise ValueError(f"{name} must have shape {shape} = (count, n, n), got {W.shape}")
    unit, W = _rounding(W.dtype), np.ascontiguousarray(W, dtype=np.float64)
    wrong = ~((W >= 0) & (W < np.inf))
    if wrong.any():
        first = int(np.argmax(wrong.any(axis=(1, 2))))
        raise ValueError(f"{name}: matrix {first} must be finite and non-negative, got {W[wrong][0]}")
    sums, entries, diagonals = W.sum(axis=1), np.count_nonzero(W, axis=1), np.diagonal(W, axis1=1, axis2=2)
    suspect = (np.abs(sums - 1.0) > (entries + 1) * unit) | (diagonals == 0)
    for t in np.flatnonzero(suspect.any(axis=1)):
        _check_columns(f"{name}: matrix {t} ", sums[t], entries[t], diagonals[t], unit, self_loops)
    return W if unit == EPS else W / W.sum(axis=1, keepdims=True)


def _check_columns(
    name: str, sums: np.ndarray, entries: np.ndarray, diagonal: np.ndarray, unit: float, self_loops: bool
) -> None:
    off = np.abs(sums - 1.0) > (entries + 1) * unit
    if off.any():
        j = int(np.argmax(off))
        raise ValueError(f"{name}must be column-stochastic: column {j} sums to {float(sums[j])!r}, not 1")
    if self_loops and not (diagonal > 0).all():
        raise ValueError(f"{name}must have a positive diagonal, got 0 at entry {int(np.argmin(diagonal > 0))}")


def _rounding(dtype: np.dtype) -> float:
    """The relative rounding error of numbers of this dtype, at least that of float64."""
    return max(float(np.finfo(dtype).eps), EPS) if dtype.kind == "f" else EPS


def _parts(name: str, value: object, parts: Sequence[str]) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or len(value) != len(parts):
        got = f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
        raise TypeError(f"{name} must be a tuple ({', '.join(parts)}), got {got}")
    return tuple(value)


def integers(name: str, value: object) -> np.ndarray:
    """A contiguous int64 vector."""
    numbers = np.asarray(value)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        raise TypeError(f"{name} must be a vector of integers, got an array {numbers.shape} of {numbers.dtype}")
    return np.ascontiguousarray(numbers, dtype=np.int64)


def _real_numbers(name: str, value: object, axes: int) -> np.ndarray:
    numbers = np.asarray(value)
    if numbers.ndim != axes or numbers.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must be an array of real numbers with {axes} axes, got an array {numbers.shape} of {numbers.dtype}"
        )
    return numbers


# Networks defined outside this package
#
# Their methods out_adjacency, csr and mixing_matrices are wrapped, and what they return is checked in every call. The
# first call on an object also compares these methods with each other, since averaging uses whichever is fastest. All
# other methods follow from them and may not be defined.


CHECKS: dict[str, Callable[..., Any]] = {
    "out_adjacency": lambda net, name, result, s: lists(name, net.n, result, net.self_loops),
    "csr": lambda net, name, result, s: rows(name, net.n, result, net.self_loops),
    "mixing_matrices": lambda net, name, result, first, count: matrices(
        name, (int(count), net.n, net.n), result, net.self_loops
    ),
}


def check_methods(cls: type, base: type) -> None:
    """Wrap the methods of a network class that come from outside this package, also from a mixin class."""
    defined_outside = {name for name in (*CHECKS, *DERIVED) if _is_outside(cls, name)}
    if not defined_outside:
        return
    for name in DERIVED:
        if name in defined_outside:
            raise TypeError(
                f"{cls.__name__} must not define {name}: it follows from out_adjacency, or from csr for weights other "
                "than 1 / out-degree"
            )
    for name, check in CHECKS.items():
        method = getattr(cls, name)
        if method is not getattr(base, name) and not hasattr(method, "checks_result"):
            setattr(cls, name, _checked(name, method, check))


def _is_outside(cls: type, name: str) -> bool:
    owner = next(c for c in cls.__mro__ if name in vars(c))
    return owner.__module__.partition(".")[0] != PACKAGE


def _checked(name: str, method: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Network, *args: Any, **options: Any) -> Any:
        arguments = inspect.signature(method).bind(self, *args, **options).args[1:] if options else args
        if not hasattr(getattr(self, "n", None), "__index__"):
            raise TypeError(f"{type(self).__name__} has no n; call super().__init__(n) in its __init__")
        self._step(arguments[0])
        label = f"{type(self).__name__}.{name}({', '.join(map(str, arguments))})"
        result = check(self, label, method(self, *args, **options), *arguments)
        if "_compared" not in vars(self):
            vars(self)["_compared"] = True
            _compare(self, arguments[0])
        return result

    checked.checks_result = True  # type: ignore[attr-defined]
    return checked


def _compare(net: Network, s: int) -> None:
    """Check that the methods describe the same graph at step s, and that `equal_shares` and `period` hold."""
    name = type(net).__name__
    period = None if net.period is None else validation.integer(f"{name}: period", net.period, 1)
    indptr, receivers = net.out_adjacency(s)
    csr = net.csr(s)
    begin, senders, shares = rows_from_lists(indptr, receivers, 1.0 / np.diff(indptr))
    if not (np.array_equal(begin, csr[0]) and np.array_equal(senders, csr[1])):
        raise ValueError(f"{name}: csr({s}) and out_adjacency({s}) must have the same edges")
    unequal = np.abs(csr[2] / shares - 1.0) > 4 * EPS
    if net.equal_shares and unequal.any():
        e = int(np.argmax(unequal))
        raise ValueError(
            f"{name}: equal_shares is True, so csr({s}) must give an edge of client {senders[e]} the weight "
            f"1 / out-degree = {shares[e]}, got {csr[2][e]}"
        )
    if net.n <= COMPARED_CLIENTS:
        W = np.zeros((net.n, net.n))
        scatter(*csr, W)
        gap = np.abs(net.mixing_matrices(s, 1)[0] - W)
        if gap.max() > net.n * EPS:
            i, j = np.unravel_index(np.argmax(gap), gap.shape)
            raise ValueError(f"{name}: mixing_matrices({s}, 1) and csr({s}) differ by {gap[i, j]} at [{i}, {j}]")
    validation.positive(f"{name}: expected_edges", net.expected_edges)
    if period is not None:
        _compare_periods(net, period)


def _compare_periods(net: Network, period: int) -> None:
    """Averaging composes the graphs of one period and uses them again."""
    for s in range(1, min(period, COMPARED_STEPS) + 1):
        for later in (s + period, s + 2 * period):
            if later > MAX_STEP - net._offset:
                continue
            a, b = net.csr(s), net.csr(later)
            if not all(map(np.array_equal, a[:2], b[:2])) or (np.abs(a[2] / b[2] - 1.0) > 4 * EPS).any():
                raise ValueError(
                    f"{type(net).__name__}: period is {period}, but the graphs of steps {s} and {later} differ; "
                    "period must be the number of graphs after which they repeat, or None"
                )


# Memory


def allocate(what: object, shape: tuple[int, ...], dtype: Any = np.float64, zero: bool = False) -> np.ndarray:
    """An array (..., n, n) for `what`, a network or its name; MemoryError with advice if it does not fit."""
    nbytes, available = math.prod(shape) * np.dtype(dtype).itemsize, memory()
    try:
        if available is not None and nbytes > available:
            raise MemoryError(f"{nbytes} bytes, and the machine has {available}")
        return np.zeros(shape, dtype) if zero else np.empty(shape, dtype)
    except MemoryError as error:
        n, steps = shape[-1], math.prod(shape[:-2])
        times = "" if steps == 1 else f" for each of {steps} steps"
        raise MemoryError(
            f"{what} needs n² = {n * n:,} entries of {np.dtype(dtype).name}{times}, {nbytes / GIB:.1f} GiB; for so "
            "many clients use a sparse network (RandomOut, SparseErdosRenyi, Schedule of edge lists) with csr or "
            "out_adjacency (in averaging: mode='stepping')"
        ) from error
