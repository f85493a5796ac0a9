"""Networks of one's own: what their methods return is looked at before a kernel believes it.

A method of a class outside this package is replaced by

    result -> validity.check(result),

one pass over the graph, which is small beside drawing it. At the first question to an object its methods are also
compared with each other, because averaging takes whichever is the fastest.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hgp_ref import arguments
from hgp_ref._kernels.lists import rows_from_lists, scatter
from hgp_ref.networks import validity

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
    return validity.lists(label, net.n, answer, net.self_loops)


def _csr(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return validity.rows(label, net.n, answer, net.self_loops)


def _matrix(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return validity.matrices(label, (1, net.n, net.n), np.asarray(answer)[np.newaxis], net.self_loops)[0]


def _matrices(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return validity.matrices(label, (int(asked[1]), net.n, net.n), answer, net.self_loops)


def _products(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    if answer is None:
        return None
    _, calls, steps = asked
    product, messages = validity.parts(label, answer, ("products", "messages"))
    product = validity.matrices(label, (int(calls), net.n, net.n), product, net.self_loops, roundings=int(steps))
    messages = validity.whole_numbers(f"{label}: messages", messages, np.int64)
    if messages.size != calls:
        raise ValueError(f"{label}: {messages.size} numbers of messages given, needed {calls}")
    return product, messages


def _pairs(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return validity.pairs(label, net.n, answer)


def _neighbours(net: Network, label: str, asked: tuple[Any, ...], answer: Any) -> Any:
    return validity.clients(label, net.n, answer)


CHECKS: dict[str, Callable[..., Any]] = {
    "out_lists": _out_lists,
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
    period = None if net.period is None else arguments.integer(f"{name}: period", net.period, 1)
    indptr, receivers = net.out_lists(s)
    indptr_rows, senders, weights = net.csr(s)
    begin, listed, shares = rows_from_lists(indptr, receivers, 1.0 / np.diff(indptr))
    if not (np.array_equal(begin, indptr_rows) and np.array_equal(listed, senders)):
        raise ValueError(f"{name}: csr({s}) and out_lists({s}) have different edges, needed the same graph")
    unequal = np.abs(weights / shares - 1.0) > 4 * validity.EPS
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
        if gap.max() > net.n * validity.EPS:
            i, j = np.unravel_index(np.argmax(gap), gap.shape)
            raise ValueError(f"{name}: mixing_matrices({s}, 1) and csr({s}) differ by {gap[i, j]} at [{i}, {j}]")
    arguments.positive(f"{name}: expected_edges", net.expected_edges)
    if period is not None:
        _compare_periods(net, period)


def _compare_periods(net: Network, period: int) -> None:
    """Averaging composes the graphs of one period and uses them again: later ones must be the same."""
    for s in range(1, min(period, COMPARED_STEPS) + 1):
        for later in (s + period, s + 2 * period):
            if later > net._last_step:
                continue
            here, there = net.csr(s), net.csr(later)
            if (
                not all(map(np.array_equal, here[:2], there[:2]))
                or (np.abs(here[2] / there[2] - 1.0) > 4 * validity.EPS).any()
            ):
                raise ValueError(
                    f"{type(net).__name__}: period is {period}, but the graphs of steps {s} and {later} differ; "
                    "period must be the number of graphs after which they repeat, or None"
                )
