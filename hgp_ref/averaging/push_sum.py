"""Push-Sum, Algorithm 1: averaging over directed graphs by dividing sums through weights."""

from __future__ import annotations

import warnings

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.blocks import mix_weights
from hgp_ref.averaging.mixing import Mixing
from hgp_ref.networks import Network

DEBIAS = ("reset", "keep", "conserve")


class PushSum(Mixing):
    """Θ̂_m u = diag(P_m ω)⁻¹ P_m u with P_m = W_{(m+1)S} ... W_{mS+1}, column-stochastic.

    The weights ω before call m depend on `debias`:

    - "reset": ω = 1 at every call, as in Algorithm 1. Θ̂_m is row-stochastic, which is what the error bounds need.
    - "keep": ω = P_{m-1} ... P_0 1, while vectors restart from the divided values. Neither averages nor conserves:
      it is not covered by any bound and can diverge (erratum 25), hence a warning.
    - "conserve": the same ω, and the iteration restarts from z = ω ū, so that sums over clients are conserved. More
      accurate than "reset" where it converges; it can diverge for large η on sparse networks.

    A message carries d numbers and one weight.
    """

    floats_beside_vector = 1

    def __init__(self, net: Network, steps: int, debias: str = "reset", mode: str = "auto") -> None:
        super().__init__(net, steps, mode)
        arguments.choice("debias", debias, DEBIAS)
        if debias == "keep":
            warnings.warn(
                "debias='keep' divides by weights of earlier calls: not an average, covered by no bound, and it can "
                "diverge (see ERRATA, 25); use 'reset' or 'conserve'",
                RuntimeWarning,
                stacklevel=2,
            )
        self.debias = debias
        self._carried = (0, np.ones(self.n))  # (call, ω before it): where a run that goes on finds its weights

    def _products(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        swept = self.net.products(first * self.steps + 1, count, self.steps)
        return super()._products(first, count) if swept is None else swept

    def _debiased(self, first: int, P: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if self.debias == "reset":
            return P / P.sum(axis=2, keepdims=True), None
        omega = self._omega_before(first)
        after = np.empty(P.shape[:2])  # (count, n)
        for c in range(P.shape[0]):
            omega = after[c] = P[c] @ omega
        self._carried = (first + P.shape[0], omega)
        return P / after[:, :, None], after if self.debias == "conserve" else None

    def _weights_before(self, first: int) -> np.ndarray:
        return np.ones(self.n) if self.debias == "reset" else self._omega_before(first)

    def _omega_before(self, call: int) -> np.ndarray:
        """ω = P_{call-1} ... P_0 1, from the nearest call already known."""
        known, omega = self._carried if self._carried[0] <= call else (0, np.ones(self.n))
        for s in range(known * self.steps + 1, call * self.steps + 1):
            omega = mix_weights(self.net, s, omega)
        self._carried = (call, omega)
        return omega

    def __repr__(self) -> str:
        debias = "" if self.debias == "reset" else f", debias={self.debias!r}"
        return f"PushSum({self.net!r}, steps={self.steps}{debias})"
