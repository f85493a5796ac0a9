"""Is this a graph? Lists, rows and matrices that come from outside, put into the form that kernels believe.

    P >= 0,   1^T P = 1^T,   P_ii > 0 for all i,   every index inside its array.

Integers of any width are taken, and weights of any precision: what a column of float32 misses of 1 is divided out in
float64, and what it misses beyond its own rounding is refused. A fault is named by the first place that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgp_ref._kernels import faults
from hgp_ref._kernels.lists import Csr

EPS = float(np.finfo(np.float64).eps)
SELF_LOOP = "a self-loop of every client (or self_loops = False in the class, if that is meant)"


def rounding(dtype: np.dtype | type) -> float:
    """The unit to which numbers of this dtype can be trusted in float64."""
    return max(float(np.finfo(dtype).eps), EPS) if np.dtype(dtype).kind == "f" else EPS


def lists(name: str, n: int, given: object, loops: bool, whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(indptr int64 (n + 1,), clients int32) of `given`, or an error; see `faults.of_lists`."""
    indptr, clients = parts(name, given, ("indptr", "clients"))
    indptr = whole_numbers(f"{name}: indptr", indptr, np.int64)
    if indptr.size != n + 1:
        raise ValueError(f"{name}: indptr of length {indptr.size} given, needed n + 1 = {n + 1}")
    narrow = whole_numbers(f"{name}: clients", clients, np.int32, n)
    kind, place = faults.of_lists(indptr, narrow, loops, whole)
    if kind != faults.NONE:
        raise ValueError(f"{name}: {_fault_of_lists(kind, place, n, indptr, np.asarray(clients))}")
    return indptr, narrow


def _fault_of_lists(kind: int, place: int, n: int, indptr: np.ndarray, clients: np.ndarray) -> str:
    messages = {
        faults.START: lambda: f"indptr[0] = {indptr[0]} given, needed 0",
        faults.FALLING: lambda: f"indptr falls from {indptr[place]} to {indptr[place + 1]} at {place}, needed no fall",
        faults.END: lambda: f"indptr ends with {indptr[-1]}, needed the number of clients listed, {clients.size}",
        faults.RANGE: lambda: f"client {clients[place]} listed at {place}, needed 0 .. {n - 1}",
        faults.ORDER: lambda: f"{clients[place]} listed after {clients[place - 1]}, needed lists sorted, none twice",
        faults.EMPTY: lambda: f"client {place} sends to nobody, needed at least itself",
        faults.LOOP: lambda: f"client {place} is missing in its own list, needed {SELF_LOOP}",
    }
    return messages[kind]()


def rows(name: str, n: int, given: object, loops: bool) -> Csr:
    """P by rows: (indptr, senders, weights) of `given`, or an error."""
    indptr, senders, weights = parts(name, given, ("indptr", "senders", "weights"))
    weights = _real_numbers(f"{name}: weights", weights, 1)
    indptr, senders = lists(name, n, (indptr, senders), loops, whole=False)
    if weights.size != senders.size:
        raise ValueError(f"{name}: {weights.size} weights given, needed one for each of the {senders.size} senders")
    return column_stochastic(name, indptr, senders, weights, loops)


def column_stochastic(
    name: str, indptr: np.ndarray, senders: np.ndarray, weights: np.ndarray, loops: bool = True
) -> Csr:
    """The same rows in float64, columns off by the rounding of a lower precision divided by their sums."""
    n, unit = indptr.size - 1, rounding(weights.dtype)
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    sums, entries = np.zeros(n), np.zeros(n, dtype=np.int64)
    kind, place = faults.of_weights(indptr, senders, weights, loops, unit, sums, entries)
    if kind == faults.NUMBER:
        raise ValueError(f"{name} must be finite and non-negative, got {weights[place]}")
    if kind != faults.NONE:
        raise ValueError(f"{name} {_fault_of_column(kind, place, sums)}")
    if unit == EPS:
        return indptr, senders, weights
    divisor = np.where(np.abs(sums - 1.0) > (entries + 1) * EPS, sums, 1.0)
    return indptr, senders, weights / divisor[senders]


def matrices(name: str, shape: tuple[int, int, int], given: object, loops: bool, roundings: int = 1) -> np.ndarray:
    """P(s), P(s + 1), ... as `given`, or an error; `roundings` times as far off as one matrix may be."""
    W = _real_numbers(name, given, 3)
    if W.shape != shape:
        raise ValueError(f"{name}: shape {W.shape} given, needed {shape} = (count, n, n)")
    unit, W = rounding(W.dtype), np.ascontiguousarray(W, dtype=np.float64)
    kind, t, place = faults.of_matrices(W, loops, unit * roundings)
    if kind == faults.NUMBER:
        raise ValueError(f"{name}: matrix {t} must be finite and non-negative, got {W[t].reshape(-1)[place]}")
    if kind != faults.NONE:
        raise ValueError(f"{name}: matrix {t} {_fault_of_column(kind, place, W[t].sum(axis=0))}")
    return W if unit == EPS else W / W.sum(axis=1, keepdims=True)


def _fault_of_column(kind: int, place: int, sums: np.ndarray) -> str:
    if kind == faults.SUM:
        return f"must be column-stochastic: column {place} sums to {float(sums[place])!r}, not 1"
    return f"must have a positive diagonal (every client hears itself): entry {place} is 0"


def pairs(name: str, n: int, given: object) -> tuple[np.ndarray, np.ndarray]:
    """(senders, receivers) int64 of `given`, or an error."""
    senders, receivers = parts(name, given, ("senders", "receivers"))
    senders, receivers = clients(f"{name}: senders", n, senders), clients(f"{name}: receivers", n, receivers)
    if senders.size != receivers.size:
        raise ValueError(f"{name}: {senders.size} senders and {receivers.size} receivers given, needed equally many")
    return senders, receivers


def clients(name: str, n: int, given: object) -> np.ndarray:
    """Client numbers, int64, or an error."""
    numbers = whole_numbers(name, given, np.int64)
    outside = np.flatnonzero((numbers < 0) | (numbers >= n))
    if outside.size:
        raise ValueError(f"{name}: client {numbers[outside[0]]} given, needed 0 .. {n - 1}")
    return numbers


def parts(name: str, given: object, needed: Sequence[str]) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list) or len(given) != len(needed):
        got = f"{type(given).__name__} of {len(given)}" if isinstance(given, tuple | list) else type(given).__name__
        raise TypeError(f"{name}: {got} given, needed a tuple ({', '.join(needed)})")
    return tuple(given)


def whole_numbers(name: str, given: object, dtype: np.dtype | type, below: int | None = None) -> np.ndarray:
    """`given` as a contiguous vector of integers; with `below`, those outside 0 .. below - 1 become -1 where cast."""
    numbers = np.asarray(given)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        raise TypeError(f"{name}: array {numbers.shape} of {numbers.dtype} given, needed a vector of integers")
    if below is not None and numbers.dtype != dtype:
        numbers = np.where((numbers >= 0) & (numbers < below), numbers, -1)
    return np.ascontiguousarray(numbers, dtype=dtype)


def _real_numbers(name: str, given: object, axes: int) -> np.ndarray:
    numbers = np.asarray(given)
    if numbers.ndim != axes or numbers.dtype.kind not in "fiub":
        raise TypeError(
            f"{name}: array {numbers.shape} of {numbers.dtype} given, needed real numbers along {axes} axes"
        )
    return numbers
