"""The Neumann series: Algorithm 2 of the paper."""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array
from hgp_ref.methods.base import Curvature, Method


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

    def __init__(self, eta: float = 1.0) -> None:
        self.eta = arguments.positive("eta", eta)

    def start(self, g: Array) -> Array:
        return g

    def step(self, u: Array, average: Mean, linearization: Curvature) -> tuple[Array, Array]:
        ubar = average(u)
        p = self.eta * ubar
        return p, average.kept(ubar) - linearization.hvp(p)

    def residual(self, u: Array) -> Array:
        return u

    def carry(self, u: Array) -> Array:
        return u

    def __repr__(self) -> str:
        return f"Neumann(eta={self.eta:g})"
