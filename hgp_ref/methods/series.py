"""The Neumann series, which is Algorithm 2 of the paper, and the Chebyshev semi-iteration."""

from __future__ import annotations

from dataclasses import dataclass

from hgp_ref import validation
from hgp_ref.backend import Array
from hgp_ref.methods.base import Curvature, Method, Start
from hgp_ref.methods.spectrum import range_over_clients
from hgp_ref.mixing import Mixer


class Neumann(Method):
    """w* = η Σ_m (I − ηH̄)^m ḡ, term by term: from u = ∂_x f, in each iteration

        ū = Θ̂ u,    p = η ū,    u ← ū − ∂²_x g p.

    With exact averaging and full batches it converges if 0 < η λ(H̄) < 2 for all eigenvalues.

    Parameters
    ----------
    eta : step size η.

    Raises
    ------
    TypeError, ValueError
        `eta` must be positive.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(1.0), iterations=300)
    >>> bool(np.allclose(est.value, hgp.exact.hypergradient(problem, x, lam)))
    True
    """

    def __init__(self, eta: float) -> None:
        self.eta = validation.positive("eta", eta)

    def init(self, start: Start) -> Array:
        return start.residual

    def step(self, u: Array, mixer: Mixer, derivatives: Curvature) -> tuple[Array, Array]:
        ubar = mixer.average(u)
        p = self.eta * ubar
        return p, mixer.carry(ubar) - derivatives.hvp(p)

    def residual(self, u: Array) -> Array:
        return u

    def carry(self, u: Array) -> Array:
        return u

    def __repr__(self) -> str:
        return f"Neumann(eta={self.eta:g})"


# ----------------------------------------------------------------------------------------------------
# The Chebyshev semi-iteration: as many messages per iteration as Algorithm 2, about √κ iterations instead of κ.


@dataclass(frozen=True)
class _ChebyshevState:
    r: Array  # ∂_x f − ∂²_x g w
    p: Array | None  # the last increment
    rho: float  # ρ_k of the recursion
    interval: tuple[float, float]  # (low, high), which contains the spectrum of H̄


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
        self.low = None if low is None else validation.positive("low", low)
        self.high = None if high is None else validation.positive("high", high)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low={low:g}, high={high:g} given, needed low <= high")

    def init(self, start: Start) -> _ChebyshevState:
        low, high = self._interval(start) if start.previous is None else start.previous.interval
        return _ChebyshevState(start.residual, None, 0.0, (low, high))

    def step(self, state: _ChebyshevState, mixer: Mixer, derivatives: Curvature) -> tuple[Array, _ChebyshevState]:
        low, high = state.interval
        c, h = (high + low) / 2, (high - low) / 2
        rhat = mixer.average(state.r)
        if state.p is None or h == 0:
            rho, p = h / c, rhat / c
        else:
            rho = 1 / (2 * c / h - state.rho)
            p = (2 * rho / h) * rhat + (rho * state.rho) * state.p
        r = mixer.carry(rhat) - derivatives.hvp(p)
        return p, _ChebyshevState(r, p, rho, state.interval)

    def residual(self, state: _ChebyshevState) -> Array:
        return state.r

    def _interval(self, start: Start) -> tuple[float, float]:
        """The interval given, its missing ends found by the clients."""
        low, high = self.low, self.high
        if low is None or high is None:
            least, most = range_over_clients(start.mixer.channel, start.derivatives(), start.residual)
            low, high = least if low is None else low, most if high is None else high
        if not 0 < low <= high:
            raise ValueError(
                f"low: the spectrum of the clients' Hessians reaches from {low:.3g} to {high:.3g}; Chebyshev needs "
                "0 < low <= high: give low, a lower bound of the spectrum of the mean Hessian"
            )
        return low, high

    def carry(self, state: _ChebyshevState) -> Array:
        return state.r

    def __repr__(self) -> str:
        return f"Chebyshev(low={self.low}, high={self.high})"
