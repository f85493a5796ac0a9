"""Is this a graph? Lists, rows and matrices that come from outside, put into the form that kernels believe.

    P >= 0,   1^T P = 1^T,   P_ii > 0 for all i,   every index inside its array.

Integers of any width are taken, and weights of any precision: what a column of float32 misses of 1 is divided out in
float64, and what it misses beyond its own rounding is refused. A fault is named by the first place that has it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import validation
from hgp_ref._kernels import faults
from hgp_ref._kernels.graphs import Csr, rows_from_lists, scatter
from hgp_ref.validation import GIB, memory

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


# ----------------------------------------------------------------------------------------------------
# Networks of one's own: what their methods return is looked at before a kernel believes it.
#
# A method of a class outside this package is replaced by
#
#     result -> validity.check(result),
#
# one pass over the graph, which is small beside drawing it. At the first question to an object its methods are also
# compared with each other, because averaging takes whichever is the fastest.


if TYPE_CHECKING:
    from hgp_ref.networks.base import Network

PACKAGE = __name__.partition(".")[0]
COMPARED_STEPS = 4  # of a period, with the same ones one and two periods later
COMPARED = 256  # with at most so many clients, matrices are compared with the rows


def guard(cls: type, base: type) -> None:
    """Check what those methods of `cls` return that come from outside this package, be it from a mixin class."""
    if any(_outside(_owner(cls, name)) for name in CHECKS):
        for name, check in CHECKS.items():
            method = getattr(cls, name)
            if method is not getattr(base, name) and not hasattr(method, "checks_result"):
                setattr(cls, name, _checked(name, method, check))


def _owner(cls: type, name: str) -> type:
    """The class that the method comes from."""
    return next(one for one in cls.__mro__ if name in vars(one))


def _outside(cls: type) -> bool:
    return cls.__module__.partition(".")[0] != PACKAGE


def _checked(name: str, method: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Network, *args: Any, **options: Any) -> Any:
        asked = inspect.signature(method).bind(self, *args, **options).args[1:] if options else args
        if not hasattr(getattr(self, "n", None), "__index__"):
            raise TypeError(f"{type(self).__name__}: n is not set, needed super().__init__(n) in __init__")
        self._step(asked[0])
        label = f"{type(self).__name__}.{name}({', '.join(map(str, asked))})"
        answer = check(self, label, asked, method(self, *args, **options))
        if "_compared" not in vars(self):
            vars(self)["_compared"] = True
            _compare(self, asked[0])
        return answer

    checked.checks_result = True  # type: ignore[attr-defined]
    return checked


def _out_lists(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return lists(label, net.n, answer, net.self_loops)


def _csr(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return rows(label, net.n, answer, net.self_loops)


def _matrix(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return matrices(label, (1, net.n, net.n), np.asarray(answer)[np.newaxis], net.self_loops)[0]


def _matrices(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return matrices(label, (int(asked[1]), net.n, net.n), answer, net.self_loops)


def _products(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    if answer is None:
        return None
    _, calls, steps = asked
    product, messages = parts(label, answer, ("products", "messages"))
    product = matrices(label, (int(calls), net.n, net.n), product, net.self_loops, roundings=int(steps))
    messages = whole_numbers(f"{label}: messages", messages, np.int64)
    if messages.size != calls:
        raise ValueError(f"{label}: {messages.size} numbers of messages given, needed {calls}")
    return product, messages


def _pairs(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return pairs(label, net.n, answer)


def _neighbours(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return clients(label, net.n, answer)


CHECKS: dict[str, Callable[..., Any]] = {
    "out_adjacency": _out_lists,
    "csr": _csr,
    "mixing_matrix": _matrix,
    "mixing_matrices": _matrices,
    "products": _products,
    "edges": _pairs,
    "union": _pairs,
    "out_neighbours": _neighbours,
}


def _compare(net: Network, s: int) -> None:
    """The rows, the lists, the promise of equal shares and the matrices of step s speak of one P(s)."""
    name = type(net).__name__
    period = None if net.period is None else validation.integer(f"{name}: period", net.period, 1)
    indptr, receivers = net.out_adjacency(s)
    indptr_rows, senders, weights = net.csr(s)
    begin, listed, shares = rows_from_lists(indptr, receivers, 1.0 / np.diff(indptr))
    if not (np.array_equal(begin, indptr_rows) and np.array_equal(listed, senders)):
        raise ValueError(f"{name}: csr({s}) and out_adjacency({s}) have different edges, needed the same graph")
    unequal = np.abs(weights / shares - 1.0) > 4 * EPS
    if net.equal_shares and unequal.any():
        at = int(np.argmax(unequal))
        raise ValueError(
            f"{name}: equal_shares is True, but csr({s}) gives weight {weights[at]} to an edge of client "
            f"{senders[at]}, needed 1 / outdegree = {shares[at]}"
        )
    if net.n <= COMPARED:
        rows = np.zeros((net.n, net.n))
        scatter(indptr_rows, senders, weights, rows)
        gap = np.abs(net.mixing_matrices(s, 1)[0] - rows)
        if gap.max() > net.n * EPS:
            i, j = np.unravel_index(np.argmax(gap), gap.shape)
            raise ValueError(f"{name}: mixing_matrices({s}, 1) and csr({s}) differ by {gap[i, j]} at [{i}, {j}]")
    validation.positive(f"{name}: expected_edges", net.expected_edges)
    if period is not None:
        _compare_periods(net, period)


def _compare_periods(net: Network, period: int) -> None:
    """Averaging composes the graphs of one period and uses them again: later ones must be the same."""
    for s in range(1, min(period, COMPARED_STEPS) + 1):
        for later in (s + period, s + 2 * period):
            if later > net._last_step:
                continue
            here, there = net.csr(s), net.csr(later)
            if not all(map(np.array_equal, here[:2], there[:2])) or (np.abs(here[2] / there[2] - 1.0) > 4 * EPS).any():
                raise ValueError(
                    f"{type(net).__name__}: period is {period}, but the graphs of steps {s} and {later} differ; "
                    "period must be the number of graphs after which they repeat, or None"
                )


# ----------------------------------------------------------------------------------------------------
# Room for arrays of n x n entries, or an error that says how much they need and which networks do without.


def allocate(what: object, shape: tuple[int, ...], dtype: Any = np.float64, zero: bool = False) -> np.ndarray:
    """An array (..., n, n) for `what`, a network or its name; MemoryError with advice if there is no room for it."""
    needed, there = math.prod(shape) * np.dtype(dtype).itemsize, memory()
    try:
        if there is not None and needed > there:
            raise MemoryError(f"{needed} bytes, and the machine has {there}")
        return np.zeros(shape, dtype) if zero else np.empty(shape, dtype)
    except MemoryError as error:
        n, steps = shape[-1], math.prod(shape[:-2])
        times = "" if steps == 1 else f" for each of {steps} steps"
        raise MemoryError(
            f"{what}: n² = {n * n:,} entries of {np.dtype(dtype).name}{times} needed, {needed / GIB:.1f} GiB; for so "
            "many clients take a sparse network (RandomOut, SparseErdosRenyi, Schedule of edge lists), by csr or "
            "out_adjacency (in averaging: mode='stepping')"
        ) from error
