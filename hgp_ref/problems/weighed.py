"""The costs of a problem with weights on the inner ones: what clients minimise together is Σ_i c_i g_i.

    x(λ) = argmin_x Σ_i c_i g_i(x, λ_i),    d_{λ_i} Σ_k f_k = ∂_λ f_i − c_i J_i (Σ_k c_k H_k)⁻¹ Σ_k ∂_x f_k,

so that c_i g_i takes the place of g_i with all its derivatives, and f_i stays. Means of models by training size, as in
FedAvg, go with c_i = n N_i / Σ_k N_k.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.problems.digests import digest, digest_of
from hgp_ref.problems.normalised import as_problem
from hgp_ref.problems.prepared import PreparedBatch
from hgp_ref.problems.protocol import FullLinearization, Problem
from hgp_ref.problems.term_sizes import TermSizes, scaled

Batch = Array | PreparedBatch | None


class Weighed:
    """`inner` with c_i g_i in place of g_i, for weights c (n,) > 0 on the host."""

    broadcasts = True

    def __init__(self, inner: Problem, weights: np.ndarray) -> None:
        self._inner, self._c = as_problem(inner), np.asarray(weights, dtype=np.float64)
        self.n_clients, self.dim_x, self.dim_lam = self._inner.n_clients, self._inner.dim_x, self._inner.dim_lam
        self.counts, self.clients = self._inner.counts, self._inner.clients
        self.outer_cost, self.outer_grad = self._inner.outer_cost, self._inner.outer_grad
        self.prepare_batches = self._inner.prepare_batches
        self.term_sizes = None if self._inner.term_sizes is None else self._term_sizes

    def inner_cost(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """c_i g_i.  # (n,)"""
        return self._weights(x)[:, 0] * self._inner.inner_cost(x, lam, batch)

    def inner_grad(self, x: Array, lam: Array, batch: Batch = None) -> Array:
        """c_i ∂_x g_i.  # (n, d_x)"""
        return self._weights(x) * self._inner.inner_grad(x, lam, batch)

    def linearize(self, x: Array, lam: Array, batch: Batch = None) -> WeighedLinearization:
        """c_i ∂²_x g_i and c_i ∂²_{xλ} g_i."""
        return WeighedLinearization(self._inner.linearize(x, lam, batch), self._weights(x))

    def _term_sizes(self, x: Array, lam: Array) -> TermSizes:
        """c_i times those of g_i, and two roundings of the results: of c_i and of the product."""
        told: Any = self._inner.term_sizes
        sizes, c = told(x, lam), self._weights(x)
        K, cost, gradient = sizes.roundings, self._inner.inner_cost(x, lam), self._inner.inner_grad(x, lam)
        return replace(
            sizes,
            inner_cost=scaled(c[:, 0], sizes.inner_cost, 3, K, cost),
            inner_grad=scaled(c, sizes.inner_grad, 3, K, gradient),
            hvp=lambda u: scaled(c, sizes.hvp(u), 3, K),
            cross=lambda u: scaled(c, sizes.cross(u), 3, K),
        )

    def data_digest(self) -> str | None:
        """SHA-256 of the problem's data and the weights, None where it does not say; see `digests`."""
        inner = digest_of(self._inner)
        return None if inner is None else digest(self, inner, self._c)

    def _weights(self, like: Array) -> Array:
        return from_host(self._c.astype(host_dtype(like))[:, None], like=like)  # (n, 1)


class WeighedLinearization:
    """Second derivatives at a fixed point, times c (n, 1)."""

    def __init__(self, inner: FullLinearization, c: Array) -> None:
        self._inner, self._c = inner, c

    def hvp(self, u: Array) -> Array:
        """c_i ∂²_x g_i u_i.  # (n, d_x)"""
        return self._c * self._inner.hvp(u)

    def cross(self, u: Array) -> Array:
        """c_i ∂²_{xλ} g_i u_i.  # (n, d_λ)"""
        return self._c * self._inner.cross(u)

    def products(self, u: Array) -> tuple[Array, Array]:
        """Both."""
        bent, crossed = self._inner.products(u)
        return self._c * bent, self._c * crossed

    def on(self, batch: Any) -> WeighedLinearization:
        """The same point on a mini-batch, of a problem whose linearization can."""
        inner: Any = self._inner
        return WeighedLinearization(inner.on(batch), self._c)
