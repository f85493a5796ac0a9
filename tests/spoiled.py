"""A problem some of whose derivatives are NaN."""

from __future__ import annotations

import numpy as np


class Spoiled:
    """`problem` with NaN in the calls first .. last of hvp (the first is 1; last 0: none, None: no end).

    With `gradient` every inner gradient is NaN.
    """

    def __init__(self, problem, first: int, last: int | None = None, gradient: bool = False) -> None:
        self.problem, self.first, self.last, self.calls, self.gradient = problem, first, last, 0, gradient
        self.n_clients, self.dim_x, self.dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
        self.outer_grad, self.clients = problem.outer_grad, getattr(problem, "clients", None)

    def inner_grad(self, x, lam, batch=None):
        return self.problem.inner_grad(x, lam) * (np.nan if self.gradient else 1.0)

    def linearize(self, x, lam, batch=None):
        outer, own = self, self.problem.linearize(x, lam)

        class At:
            cross = own.cross

            def hvp(self, u):
                outer.calls += 1
                wrong = outer.first <= outer.calls and (outer.last is None or outer.calls <= outer.last)
                return own.hvp(u) * (np.nan if wrong else 1.0)

        return At()
