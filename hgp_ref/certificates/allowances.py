"""What rounding may do to the answers of a problem, client by client, from the sizes of the terms that it adds."""

from __future__ import annotations

from typing import Any

import numpy as np

from hgp_ref import arguments, rigorous
from hgp_ref.backend import Array, host_dtype
from hgp_ref.certificates.answers import host_copy
from hgp_ref.problems.normalised import Normalised
from hgp_ref.problems.term_sizes import TermSizes, allowance

NOT_INCLUDED = "the rounding of the problem's own sums is not included: it offers no term_sizes(x, lam)"
INCLUDED = (
    "the rounding of the problem's own sums is included: sums in any order, products rounded in the dtype of x, exp "
    "and log accurate to 4 units in the last place, gradual underflow"
)


class Allowances:
    """|computed − exact| of a problem's answers at (x, λ): norms of each client's row, (n,), from above."""

    def __init__(self, problem: Normalised, x: Array, lam: Array) -> None:
        if problem.term_sizes is None:
            raise ValueError(f"problem: {type(problem.given).__name__} offers no term_sizes(x, lam), needed here")
        given: Any = problem.term_sizes(x, lam)
        if not isinstance(given, TermSizes):
            raise TypeError(
                f"problem: term_sizes(x, lam) returned {type(given).__name__}, needed hgp_ref.problems.TermSizes"
            )
        self._sizes: TermSizes = given
        roundings = arguments.integer("problem: term_sizes(x, lam).roundings", given.roundings, 1, arguments.LONGEST)
        self.factor = allowance(roundings, float(np.finfo(host_dtype(x)).eps))
        if not np.isfinite(self.factor):
            raise ValueError(
                f"problem: sums of {roundings} roundings in {host_dtype(x)} may be off by more than they are; needed a "
                "dtype with more digits"
            )
        n, d, k = problem.n_clients, problem.dim_x, problem.dim_lam
        self._shapes = {"x": (n, d), "lam": (n, k), "cost": (n,)}

    def outer_grad(self) -> tuple[np.ndarray, np.ndarray]:
        """Of ∂_x f_i and of ∂_λ f_i."""
        along_x, along_lam = self._sizes.outer_grad
        return self._norms("outer_grad[0]", along_x, "x"), self._norms("outer_grad[1]", along_lam, "lam")

    def inner_grad(self) -> np.ndarray:
        """Of ∂_x g_i."""
        return self._norms("inner_grad", self._sizes.inner_grad, "x")

    def outer_cost(self) -> np.ndarray:
        """Of f_i."""
        return self.factor * self._host("outer_cost", self._sizes.outer_cost, "cost")

    def hvp(self, u: Array) -> np.ndarray:
        """Of H_i u_i."""
        return self._norms("hvp(u)", self._sizes.hvp(u), "x")

    def cross(self, u: Array) -> np.ndarray:
        """Of J_i u_i."""
        return self._norms("cross(u)", self._sizes.cross(u), "lam")

    def _host(self, name: str, given: Array, kind: str) -> np.ndarray:
        full = f"term_sizes(x, lam).{name}"
        host = host_copy(full, given, self._shapes[kind])
        if np.any(host < 0):
            raise ValueError(f"problem: {full} has negative entries, needed sizes >= 0")
        return host

    def _norms(self, name: str, given: Array, kind: str) -> np.ndarray:
        host = self._host(name, given, kind)
        return self.factor * rigorous.norms(host) * (1 + rigorous.norm_accuracy(host.shape[-1]))


def allowances(problem: Normalised, x: Array, lam: Array) -> Allowances | None:
    """Those of a problem that knows the sizes of its terms; None of one that does not."""
    return None if problem.term_sizes is None else Allowances(problem, x, lam)
