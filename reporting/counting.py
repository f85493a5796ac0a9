"""A problem that counts what its clients compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Counting:
    """A problem that counts products with the Hessian of each client; an explicit Hessian counts as d_x of them."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.products = problem, 0.0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.problem, name)
        return self.counted(value, lambda *_: self.problem.dim_x) if name == "hessian" and callable(value) else value

    def linearize(self, x: np.ndarray, lam: np.ndarray, *batch: Any) -> Any:
        return _CountingLinearization(self.problem.linearize(x, lam, *batch), self)

    def counted(self, function: Callable[..., Any], products: Callable[..., float]) -> Callable[..., Any]:
        """`function`, of which each call adds products(…)."""

        def called(*arguments: Any, **options: Any) -> Any:
            self.products += products(*arguments)
            return function(*arguments, **options)

        return called


class _CountingLinearization:
    def __init__(self, linearization: Any, counting: Counting) -> None:
        self._linearization, self._counting = linearization, counting

    def __getattr__(self, name: str) -> Any:  # `products` only if there is one
        value = getattr(self._linearization, name)
        return self._counting.counted(value, self._vectors) if name in ("hvp", "products") else value

    def _vectors(self, u: np.ndarray) -> float:
        """How many vectors of d_x each client multiplies."""
        problem = self._counting.problem
        return float(u.size) / (problem.n_clients * problem.dim_x)
