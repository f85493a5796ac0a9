"""Errors that users may want to catch, and where warnings belong."""

from __future__ import annotations

import sys
from typing import Any

PACKAGE = __name__.partition(".")[0]


def outside() -> int:
    """The `stacklevel` at which a warning names the caller's own line, through however many functions of ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


class DivergenceError(ArithmeticError):
    """An iteration grows instead of converging.

    Attributes
    ----------
    traffic : what was sent until then, where training says so; None elsewhere.
    steps : how many steps, or rounds, training had made; iterations of `hypergradient`, where it stopped by itself.

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


class NonFiniteError(DivergenceError, ValueError):
    """A result that has left the range of floating point."""
