"""The Neumann series of each client alone: the Local hyper-gradient of MDBO and VRDBO."""

from __future__ import annotations

from hgp_ref import arguments
from hgp_ref.averaging import Mean
from hgp_ref.backend import Array
from hgp_ref.methods.base import Curvature, Method


class LocalNeumann(Method):
    """w_i = η Σ_m (I − ηH_i)^m ∂_x f_i → H_i⁻¹ ∂_x f_i: from u = ∂_x f, p = η u, u ← u − ∂²_x g p; nothing is sent.

    This is what MDBO and VRDBO (Gao et al. 2022) take for w*, with η = 1/ℓ: (J/ℓ) Π_{j ≤ J̃} (I − H_i(ζ_j)/ℓ) ∂_x f_i
    with J̃ uniform on 0 .. J−1, whose mean over J̃ are the first J terms. Its class is Local: it equals the Global
    hyper-gradient where all clients have equal costs, and is off by J_i (H_i⁻¹ ∂_x f_i − w*) where they do not
    (`exact.local_hypergradient`), whatever the network.

    Parameters
    ----------
    eta : step size η, 1/ℓ of the papers.

    Raises
    ------
    TypeError, ValueError
        `eta` must be positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> est = hgp.hypergradient(
    ...     problem, x, lam, hgp.ExactAverage(4), method=hgp.methods.LocalNeumann(1.0), iterations=300)
    >>> bool(np.abs(est.value - hgp.exact.local_hypergradient(problem, x, lam)).max() < 1e-10)
    True
    >>> est.traffic.messages
    0
    """

    def __init__(self, eta: float = 1.0) -> None:
        self.eta = arguments.positive("eta", eta)

    def start(self, g: Array) -> Array:
        return g

    def step(self, u: Array, average: Mean, linearization: Curvature) -> tuple[Array, Array]:
        p = self.eta * u
        return p, u - linearization.hvp(p)

    def residual(self, u: Array) -> Array:
        return u

    def __repr__(self) -> str:
        return f"LocalNeumann(eta={self.eta:g})"
