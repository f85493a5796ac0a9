"""Problems as users may write them: one that reuses its arrays, and one whose derivatives become NaN."""

from __future__ import annotations

import numpy as np


class Reuses:
    """The problem `inner`, without its closed forms and constants, returning every result in the same array.

    The protocol allows this.
    """

    def __init__(self, inner):
        self.inner, self.arrays = inner, {}
        self.n_clients, self.dim_x, self.dim_lam = inner.n_clients, inner.dim_x, inner.dim_lam

    def _answer(self, name, a):
        array = self.arrays.setdefault(name, np.empty_like(a))
        array[...] = a
        return array

    def inner_cost(self, x, lam, batch=None):
        return self._answer("cost", self.inner.inner_cost(x, lam))

    def inner_grad(self, x, lam, batch=None):
        return self._answer("x", self.inner.inner_grad(x, lam))

    def outer_cost(self, x, lam):
        return self._answer("cost", self.inner.outer_cost(x, lam))

    def outer_grad(self, x, lam):
        f_x, f_lam = self.inner.outer_grad(x, lam)
        return self._answer("x", f_x), self._answer("lam", f_lam)

    def linearize(self, x, lam, batch=None):
        lin, answer = self.inner.linearize(x, lam), self._answer

        class At:
            def hvp(self, u):
                return answer("x", lin.hvp(u))

            def cross(self, u):
                return answer("lam", lin.cross(u))

        return At()


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
        outer, derivatives = self, self.problem.linearize(x, lam)

        class At:
            cross = derivatives.cross

            def hvp(self, u):
                outer.calls += 1
                wrong = outer.first <= outer.calls and (outer.last is None or outer.calls <= outer.last)
                return derivatives.hvp(u) * (np.nan if wrong else 1.0)

        return At()
