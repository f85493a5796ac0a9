"""Polynomial methods: the Neumann series (Algorithm 2 of the paper) and the Chebyshev semi-iteration.

With H̄ = mean_i H_i and ḡ = mean_i ∂_x f_i, w* = H̄⁻¹ ḡ is a series in H̄. Clients add up its terms with averages Θ̂ in
place of exact means, from r = ∂_x f:

    Neumann      r̄ = Θ̂ r,    p = η r̄,              r ← r̄ − H p
    Chebyshev    r̄ = Θ̂ r,    p ← a_k r̄ + b_k p,    r ← r̄ − H p
"""

from __future__ import annotations

from dataclasses import dataclass

from hgp_ref.backend import Array
from hgp_ref.methods.base import Derivatives, Method, Start
from hgp_ref.methods.spectrum import range_over_clients
from hgp_ref.mixing import Mixer
from hgp_ref.results import Result
from hgp_ref.validation import Optional, Positive, checked


@dataclass(frozen=True)
class NeumannState(Result):
    residual: Array


class Neumann(Method):
    """The Neumann series w* = η Σ_m (I − ηH̄)^m ḡ, term by term: Algorithm 2 of the paper.

    From r = ∂_x f,

        r̄ = Θ̂ r,    p = η r̄,    r ← r̄ − H p.

    With exact averages and full batches it converges if and only if 0 < η λ < 2 for every eigenvalue λ of H̄.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(1.0), iterations=300)
    >>> bool(np.allclose(est.value, hgp.exact.hypergradient(problem, x, lam)))
    True
    """

    @checked(eta=Positive())
    def __init__(self, eta: float) -> None:
        self.eta = eta

    def init(self, start: Start) -> NeumannState:
        return NeumannState(start.residual)

    def step(self, state: NeumannState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, NeumannState]:
        r = mixer.average(state.residual)
        p = self.eta * r
        return p, NeumannState(mixer.carry(r) - derivatives.hvp(p))

    def __repr__(self) -> str:
        return f"Neumann(eta={self.eta:g})"


@dataclass(frozen=True)
class ChebyshevState(Result):
    residual: Array
    p: Array | None  # the last increment
    rho: float  # ρ_k of the recursion
    low: float  # the interval that contains the spectrum of H̄
    high: float


class Chebyshev(Method):
    """The Chebyshev semi-iteration: the messages of Algorithm 2 per iteration, about √κ iterations instead of κ.

    For a spectrum of H̄ in [low, high] with centre c and half width h, from r = ∂_x f, in iteration k = 0, 1, ...

        r̄ = Θ̂ r,    p ← a_k r̄ + b_k p,    r ← r̄ − H p,
        ρ_0 = h/c,  ρ_k = 1 / (2c/h − ρ_{k-1}),    a_0 = 1/c,  b_0 = 0,    a_k = 2ρ_k/h,  b_k = ρ_k ρ_{k-1}.

    With exact averaging the error falls as 2q^M/(1 + q^{2M}), q = (√κ − 1)/(√κ + 1), κ = high/low (`bounds.chebyshev`).

    Parameters
    ----------
    low, high : bounds of the spectrum of H̄. If one is None the clients find it: each computes the extreme eigenvalues
        of its own Hessian by Lanczos on full batches, and the network the extremes over clients (which counts as
        traffic). `low` must be given if a client has an eigenvalue <= 0.

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

    @checked(low=Optional(Positive()), high=Optional(Positive()))
    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low, self.high = low, high
        if low is not None and high is not None and low > high:
            raise ValueError(f"low must be at most high, got low={low:g}, high={high:g}")

    def init(self, start: Start) -> ChebyshevState:
        low, high = self.low, self.high
        if start.previous is not None:
            low, high = start.previous.low, start.previous.high
        elif low is None or high is None:
            least, greatest = range_over_clients(start.mixer.channel, start.derivatives.full(), start.residual)
            low, high = least if low is None else low, greatest if high is None else high
        if not 0 < low <= high:
            raise ValueError(
                f"low must be given, a lower bound on the spectrum of the mean Hessian: the clients' Hessians have "
                f"eigenvalues from {low:.3g} to {high:.3g}, but Chebyshev needs 0 < low <= high; "
                "hgp.problems.Damped(problem, mu) adds mu to all"
            )
        return ChebyshevState(start.residual, None, 0.0, low, high)

    def step(self, state: ChebyshevState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, ChebyshevState]:
        c, h = (state.high + state.low) / 2, (state.high - state.low) / 2
        r = mixer.average(state.residual)
        if state.p is None or h == 0:
            rho, p = h / c, r / c
        else:
            rho = 1 / (2 * c / h - state.rho)
            p = (2 * rho / h) * r + (rho * state.rho) * state.p
        r = mixer.carry(r) - derivatives.hvp(p)
        return p, ChebyshevState(r, p, rho, state.low, state.high)

    def __repr__(self) -> str:
        return f"Chebyshev(low={self.low}, high={self.high})"
