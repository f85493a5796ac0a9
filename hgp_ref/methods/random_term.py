"""One term of the Neumann series, drawn at random: FedIHGP of FedNest."""

from __future__ import annotations

from dataclasses import dataclass

from hgp_ref import arguments, philox
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array, array_namespace
from hgp_ref.methods.base import Curvature, Method


@dataclass(frozen=True)
class _State:
    w: Array
    p: Array  # the last increment, or ∂_x f before the first
    m: int


class RandomTerm(Method):
    """FedIHGP of FedNest (Tarzanagh et al. 2022): with N' uniform on 0 .. N−1, the same for all clients,

        w ← (N/ℓ) Θ̂ ∂_x f,    then N' times    w ← Θ̂ (w − (1/ℓ) ∂²_x g w),

    so that with exact averaging E w = (1/ℓ) Σ_{k<N} (I − H̄/ℓ)^k ḡ, N terms of the Neumann series with η = 1/ℓ, for
    (N + 1)/2 averages instead of N; a single draw is off by its variance, however large N is. Iterations after the
    (N' + 1)-th add nothing and send nothing; give the run `iterations=N`.

    Parameters
    ----------
    terms, ell : N and ℓ >= the largest eigenvalue of any client's Hessian.
    seed, draw : N' is number `draw` of the sequence of `seed`.

    Raises
    ------
    TypeError, ValueError
        `terms` must be an integer ≥ 1, `ell` positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> draws = [hgp.methods.RandomTerm(8, ell=1.0, draw=k) for k in range(50)]
    >>> sorted({method.last for method in draws})
    [0, 1, 2, 3, 4, 5, 6, 7]
    >>> avg = hgp.averaging.ServerAverage(4)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=draws[0], iterations=8)
    >>> est.traffic.rounds == draws[0].last + 1
    True
    """

    def __init__(self, terms: int, ell: float, seed: int = 0, draw: int = 0) -> None:
        self.terms, self.ell = arguments.integer("terms", terms, 1, arguments.LONGEST), arguments.positive("ell", ell)
        self.seed, self.draw = philox.check_seed(seed), arguments.integer("draw", draw, 0, philox.MAX_STEP)
        words = philox.philox4x32(0, 0, *philox.step_words(self.draw, philox.TERMS), *philox.key(self.seed))
        self.last = int(philox.below(words[0], words[1], self.terms))  # N'

    def start(self, g: Array) -> _State:
        return _State(array_namespace(g).zeros_like(g), g, 0)

    def step(self, state: _State, average: Mean, linearization: Curvature) -> tuple[Array, _State]:
        if state.m == 0:
            w = (self.terms / self.ell) * average(state.p)
        elif state.m <= self.last:
            w = average(state.w - linearization.hvp(state.w) / self.ell)
        else:
            w = state.w
        p = w - state.w
        return p, _State(w, p, state.m + 1)

    def residual(self, state: _State) -> Array:
        return state.p if state.m == 0 else (self.ell / self.terms) * state.p

    def __repr__(self) -> str:
        return f"RandomTerm(terms={self.terms}, ell={self.ell:g}, seed={self.seed}, draw={self.draw})"
