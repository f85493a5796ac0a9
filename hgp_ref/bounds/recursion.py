"""The recursion of bound B: how large the consensus and the disagreement of u can be before each call.

    (a, s) ← (ρ̄ (a + ε∥_j s) + ηζ ε⊥_j s,  ηζ (a + ε∥_j s) + ρ⊥ ε⊥_j s),      a = a₀, s = s₀.

a ≥ ‖Θu^(j)‖ and s ≥ ‖(I − Θ)u^(j)‖; why is said in `convexity`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hgp_ref.bounds.constants import Constants


def consensus_and_disagreement(c: Constants, M: int, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """a and s before the calls 0 … M−1, (M,) each, in units of `unit` > 0."""
    a, s = c.a0 / unit, c.s0 / unit
    consensus, disagreement = np.empty(M), np.empty(M)
    coupling = c.eta * c.zeta
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(M):
            consensus[j], disagreement[j] = a, s
            along, across = a + c.eps_par[j] * s, c.eps_perp[j] * s
            a, s = c.rho_bar * along + coupling * across, coupling * along + c.rho_perp * across
    return consensus, disagreement
