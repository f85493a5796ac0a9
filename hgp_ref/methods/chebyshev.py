"""The Chebyshev semi-iteration: as many messages per iteration as Algorithm 2, about √κ iterations instead of κ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array
from hgp_ref.methods.base import Curvature, Method
from hgp_ref.methods.spectrum import range_over_clients


@dataclass(frozen=True)
class _State:
    r: Array  # ∂_x f − ∂²_x g w
    p: Array | None  # the last increment
    rho: float  # ρ_k of the recursion
    centre: float  # of the interval; nan until it is known
    half: float  # its half width


class Chebyshev(Method):
    """For a spectrum of H̄ in [low, high] with centre c and half width h, from r = ∂_x f, in iteration k = 0, 1, ...

        r̂ = Θ̂ r,    p ← a_k r̂ + b_k p,    r ← r̂ − ∂²_x g p,
        ρ_0 = h/c,  ρ_k = 1 / (2c/h − ρ_{k-1}),    a_0 = 1/c,  b_0 = 0,    a_k = 2ρ_k/h,  b_k = ρ_k ρ_{k-1}.

    With exact averaging the error falls as 2q^M/(1 + q^{2M}), q = (√κ − 1)/(√κ + 1), κ = high/low (`bounds.chebyshev`).

    Parameters
    ----------
    low, high : bounds of the spectrum of H̄. Those that are None are found by the clients: each takes the extreme
        eigenvalues of its own ∂²_x g_i by Lanczos, on full batches also where steps use mini-batches, and flooding
        makes the extremes over clients known to all (its traffic is counted). Clients with eigenvalues that are not
        positive need `low`.

    Raises
    ------
    TypeError, ValueError
        `low` and `high` must be positive, low ≤ high.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> method = hgp.methods.Chebyshev(0.1, 1.0)  # eigenvalues of the mean Hessian lie between
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), method=method, iterations=50)
    >>> bool(np.allclose(est.value, hgp.exact.hypergradient(problem, x, lam)))
    True
    """

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = None if low is None else arguments.positive("low", low)
        self.high = None if high is None else arguments.positive("high", high)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low={low:g}, high={high:g} given, needed low <= high")

    def start(self, g: Array) -> _State:
        return _State(g, None, 0.0, float("nan"), float("nan"))

    def begin(self, state: _State, average: Mean, whole: Callable[[], Curvature]) -> _State:
        return self._with_interval(state, average, whole)

    def restart(self, state: _State, g: Array, w: Array, average: Mean, whole: Callable[[], Curvature]) -> _State:
        return replace(self.start(g), centre=state.centre, half=state.half)

    def step(self, state: _State, average: Mean, linearization: Curvature) -> tuple[Array, _State]:
        if math.isnan(state.centre):
            state = self._with_interval(state, average, lambda: linearization)
        c, h = state.centre, state.half
        rhat = average(state.r)
        if state.p is None or h == 0:
            rho, p = h / c, rhat / c
        else:
            rho = 1 / (2 * c / h - state.rho)
            p = (2 * rho / h) * rhat + (rho * state.rho) * state.p
        r = average.kept(rhat) - linearization.hvp(p)
        return p, _State(r, p, rho, c, h)

    def residual(self, state: _State) -> Array:
        return state.r

    def _with_interval(self, state: _State, average: Mean, whole: Callable[[], Curvature]) -> _State:
        low, high = self.low, self.high
        if low is None or high is None:
            least, most = range_over_clients(average.channel, whole(), state.r)
            low, high = least if low is None else low, most if high is None else high
        if not 0 < low <= high:
            raise ValueError(
                f"low: the spectrum of the clients' Hessians reaches from {low:.3g} to {high:.3g}; Chebyshev needs "
                "0 < low <= high: give low, a lower bound of the spectrum of the mean Hessian"
            )
        return replace(state, centre=(high + low) / 2, half=(high - low) / 2)

    def carry(self, state: _State) -> Array:
        return state.r

    def __repr__(self) -> str:
        return f"Chebyshev(low={self.low}, high={self.high})"
