"""Derivatives where a bilevel method stands, on full batches or on the next mini-batch."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hgp_ref.backend import Array, array_namespace
from hgp_ref.methods.hessian_gossip import unit_products
from hgp_ref.problems.minibatches import MiniBatches
from hgp_ref.problems.normalised import Normalised
from hgp_ref.problems.protocol import FullLinearization


class Point:
    """∂_x f, ∂_λ f, u ↦ H u and u ↦ J u at (x, λ), each computed when it is first asked for."""

    def __init__(self, problem: Normalised, x: Array, lam: Array, batch: Array | None) -> None:
        self.problem, self.x, self.lam, self.batch = problem, x, lam, batch

    @cached_property
    def outer(self) -> tuple[Array, Array]:
        """∂_x f and ∂_λ f.  # (n, d_x), (n, d_lam)"""
        return self.problem.outer_grad(self.x, self.lam)

    @cached_property
    def lin(self) -> FullLinearization:
        """Second derivatives of g."""
        return self.problem.linearize(self.x, self.lam, **self._batch)

    def jacobians(self) -> Array:
        """J_i: the problem's closed form, or products with unit vectors.  # (n, d_lam, d_x)"""
        if self.problem.jacobian is not None:
            return self.problem.jacobian(self.x, self.lam, **self._batch)
        return array_namespace(self.x).moveaxis(unit_products(self.lin.cross, self.x), 0, -1)

    def inner_grad(self, x: Array) -> Array:
        """∂_x g at another x.  # (n, d_x)"""
        return self.problem.inner_grad(x, self.lam, **self._batch)

    def at(self, x: Array, lam: Array) -> Point:
        """Another point, on the same mini-batch."""
        return Point(self.problem, x, lam, self.batch)

    def lam_gap(self, x: Array, z: Array, nodes: int) -> Array:
        """∂_λ g(x) − ∂_λ g(z) = ∫₀¹ J(z + t (x − z)) (x − z) dt, by Gauss–Legendre quadrature.  # (n, d_lam)

        Exact where ∂_λ g_i is a polynomial in x of degree 2 · nodes: a problem offers J, not ∂_λ g.
        """
        t, weight = np.polynomial.legendre.leggauss(nodes)
        parts = [
            float(w) / 2 * self.at(z + (1 + float(s)) / 2 * (x - z), self.lam).lin.cross(x - z)
            for s, w in zip(t, weight, strict=True)
        ]
        return sum(parts[1:], parts[0])

    @property
    def _batch(self) -> dict[str, Array]:
        return {} if self.batch is None else {"batch": self.batch}


class Points:
    """The points of a run; with mini-batches `next` draws one after the other, at most `total` of them."""

    def __init__(
        self, problem: Normalised, like: Array, batch_size: int | None = None, seed: int = 0, total: int = 1
    ) -> None:
        self.problem, self.drawn = problem, 0
        self.batches = None if batch_size is None else MiniBatches(problem, batch_size, [seed], total, like)

    def next(self, x: Array, lam: Array) -> Point:
        """The point (x, λ), on a mini-batch that was not used yet."""
        batch = None if self.batches is None else self.batches.at(self.drawn)[0]
        self.drawn += 1
        return Point(self.problem, x, lam, batch)
