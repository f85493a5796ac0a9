"""Corrections of x by Newton's steps over means, for training that is left with a bias.

    x ← Θ̂ (x − p),    p ≈ (Σ_k H_k)⁻¹ Σ_k ∂g_k(x)

p is the w of Algorithm 2 (or whichever method estimates hyper-gradients) for a problem whose outer gradient is ∂_x g.
If p is right up to a share r, the gradient that is left falls to that share each time; with SGP over changing graphs it
falls as the learning rate, so that half of it costs twice the steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hgp_ref.backend import Array, array_namespace
from hgp_ref.problems import as_problem
from hgp_ref.problems.normalised import Normalised
from hgp_ref.problems.term_sizes import TermSizes


class Stationarity:
    """The problem with f = g, of which only ∂_x is used."""

    broadcasts = True

    def __init__(self, problem: Normalised) -> None:
        self.n_clients, self.dim_x, self.dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
        self.clients = problem.clients
        self.inner_cost = self.outer_cost = problem.inner_cost
        self.inner_grad, self.linearize, self.counts = problem.inner_grad, problem.linearize, problem.counts
        self._told = problem.term_sizes
        self.term_sizes = None if self._told is None else self._term_sizes

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """∂_x g_i, and 0 along λ."""
        return self.inner_grad(x, lam), array_namespace(lam).zeros_like(lam)

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """Those of g in the place of f, and none along λ."""
        told: Any = self._told
        sizes = told(x, lam)
        along = array_namespace(lam).zeros_like(lam)
        return replace(sizes, outer_cost=sizes.inner_cost, outer_grad=(sizes.inner_grad, along))


def stationarity(problem: Normalised) -> Any:
    """`problem` as one whose w is Newton's step."""
    return as_problem(Stationarity(problem))
