"""Gossip of Hessians: the estimator of GBDSBO, which sends d_x² numbers a message."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hgp_ref import arguments
from hgp_ref.averaging import Mean, exchange
from hgp_ref.averaging.talks import Talk
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.methods.base import Curvature, Method
from hgp_ref.methods.rules import require_balanced

ENTRIES = 2**23  # numbers in the unit vectors of one product, at most


@dataclass(frozen=True)
class _State:
    own: Array  # ∂_x f_i, (..., n, d_x)
    h: Array  # of its mean
    V: Array | None  # of the mean Hessian, (..., n, d_x²)
    w: Array
    seen: Curvature | None  # of which H was formed
    H: Array | None


class HessianGossip(Method):
    """GBDSBO at a fixed point (Yang et al. 2022, arXiv 2206.10870): clients estimate the mean gradient and
    the mean Hessian by damped gossip and invert what they have got by a Neumann polynomial of degree b,

        h ← (1 − β) W h + β ∂_x f_i,    V ← (1 − β) W V + β H_i,    w_i = (1/ℓ) Σ_{j ≤ b} (I − V_i/ℓ)^j h_i.

    Class Global, with a bias that shrinks with β where clients differ, h = β (I − (1 − β) W)⁻¹ ∂_x f in the limit, and
    the polynomial's, (1 − λ/ℓ)^{b+1}. A message carries V, d_x² numbers, and h. ∂_λ f_i and J_i stay at home because
    λ_i belongs to client i here; `hgp.bilevel.gbdsbo(shared=True)` sends them, too. The paper's b independent V_j of
    b mini-batches are one and the same on full batches and sent once, which is to the method's advantage.

    Parameters
    ----------
    step : β in (0, 1].
    ell : ℓ >= the largest eigenvalue of any client's Hessian.
    terms : degree b of the polynomial.

    Raises
    ------
    TypeError, ValueError
        `step` must lie in (0, 1], `ell` be positive, `terms` an integer ≥ 1.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> avg = hgp.Gossip(hgp.networks.StaticUndirected(n=4, seed=1), steps=1)
    >>> truth = hgp.exact.hypergradient(problem, x, lam)
    >>> def error(step):
    ...     method = hgp.methods.HessianGossip(step, ell=1.0, terms=200)
    ...     est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=int(40 / step))
    ...     return np.linalg.norm(est.value - truth)
    >>> bool(error(0.01) < 0.2 * error(0.1))
    True
    """

    def __init__(self, step: float, ell: float, terms: int) -> None:
        self.beta = arguments.positive("step", step)
        if self.beta > 1:
            raise ValueError(f"step={step!r} given, needed a number in (0, 1]")
        self.ell = arguments.positive("ell", ell)
        self.terms = arguments.integer("terms", terms, 1, arguments.LONGEST)

    def start(self, g: Array) -> _State:
        return _State(g, g, None, array_namespace(g).zeros_like(g), None, None)

    def begin(self, state: _State, average: Mean, whole: Callable[[], Curvature]) -> _State:
        require_balanced(repr(self), average)
        return state

    def step(self, state: _State, average: Mean, linearization: Curvature) -> tuple[Array, _State]:
        H = state.H if state.seen is linearization else hessians(linearization, state.own)
        V = H if state.V is None else state.V
        ((h, V),) = exchange(average, damped(self.beta, (state.h, V), (state.own, H)))
        w = inverse_times(V, h, self.ell, self.terms)
        return w - state.w, _State(state.own, h, V, w, linearization, H)

    def __repr__(self) -> str:
        return f"HessianGossip(step={self.beta:g}, ell={self.ell:g}, terms={self.terms})"


def damped(beta: float, held: tuple[Array, ...], own: tuple[Array, ...]) -> Talk:
    """s ← (1 − β) W s + β d for each of the arrays s that are held, d what a client sees itself."""
    mixed = yield held
    return tuple((1 - beta) * s + beta * d for s, d in zip(mixed, own, strict=True))


def inverse_times(V: Array, h: Array, ell: float, terms: int) -> Array:
    """(1/ℓ) Σ_{j ≤ terms} (I − V_i/ℓ)^j h_i, V (..., n, d²)."""
    xp, d = array_namespace(h), h.shape[-1]
    matrices = xp.reshape(V, (*V.shape[:-1], d, d))
    a = h
    for _ in range(terms):
        a = h + a - xp.matmul(matrices, a[..., None])[..., 0] / ell
    return a / ell


def hessians(linearization: Curvature, like: Array) -> Array:
    """H_i of every client by products with unit vectors, flattened.  # (..., n, d_x²)"""
    return flattened(unit_products(linearization.hvp, like))


def unit_products(product: Callable[[Array], Array], like: Array) -> Array:
    """(d, ..., n, k) from rows u ↦ A_i u_i: entry [j] is A_i e_j at every client; like (..., n, d).

    Unit vectors go as a run axis, at most ENTRIES numbers at a time.
    """
    xp, d = array_namespace(like), like.shape[-1]
    unit = xp.reshape(xp.eye(d, dtype=like.dtype, device=device(like)), (d, *(1,) * (like.ndim - 1), d))
    most = max(1, ENTRIES // max(1, math.prod(like.shape)))
    parts = [product(unit[j : min(j + most, d), ...] + xp.zeros_like(like)[None, ...]) for j in range(0, d, most)]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def flattened(columns: Array) -> Array:
    """(..., n, k d) from (d, ..., n, k): A_i by rows."""
    xp = array_namespace(columns)
    A = xp.moveaxis(columns, 0, -1)
    return xp.reshape(A, (*A.shape[:-2], A.shape[-2] * A.shape[-1]))
