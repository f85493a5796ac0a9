"""Errors and warnings that users may want to catch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

PACKAGE = __name__.partition(".")[0]


def outside() -> int:
    """The `stacklevel` at which a warning names the line of the user, outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


class DivergenceError(ArithmeticError):
    """An iteration grows instead of converging.

    Attributes
    ----------
    traffic : what training had sent; None for other iterations.
    steps : the steps or rounds of training, or the iterations of `hypergradient`, that had been made.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> try:
    ...     hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=100.0)
    ... except hgp.DivergenceError as error:
    ...     print(str(error)[:40])
    diverged: after 250 iterations the large
    """

    traffic: Any = None
    steps: int = 0


class ConvergenceWarning(RuntimeWarning):
    """A run ended before it converged, or before it met its tolerance.

    Examples
    --------
    >>> import warnings
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", hgp.ConvergenceWarning)
    ...     try:
    ...         hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), iterations=2, tol=1e-6)
    ...     except hgp.ConvergenceWarning as warning:
    ...         print(str(warning)[:52])
    not converged: tol=1e-06 was not met in 2 iterations
    """


_unmet: ContextVar[list[str] | None] = ContextVar("unmet tolerances", default=None)


def warn_unmet(message: str) -> None:
    """Warn at the line of the user that a tolerance was not met; inside `collect_unmet`, collect the message."""
    collected = _unmet.get()
    if collected is None:
        warnings.warn(f"not converged: {message}", ConvergenceWarning, stacklevel=outside())
    else:
        collected.append(message)


@contextmanager
def collect_unmet() -> Iterator[list[str]]:
    """Collect the messages of `warn_unmet` inside the block, so that a loop over many runs warns once."""
    collected: list[str] = []
    token = _unmet.set(collected)
    try:
        yield collected
    finally:
        _unmet.reset(token)


class NonFiniteError(DivergenceError, ValueError):
    """A result outside the range of floating-point numbers."""
