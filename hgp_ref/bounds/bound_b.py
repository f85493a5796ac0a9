"""Bound B: no client needs to be convex; only H̄ ≻ 0.

Start with a = a₀, s = s₀, F = 0 and for j = 0 … M−1

    F += s [ε⊥_j (1 + ηζ g_{M−1−j}) + ε∥_j g_{M−j}],
    (a, s) ← (ρ̄ (a + ε∥_j s) + ηζ ε⊥_j s,  ηζ (a + ε∥_j s) + ρ⊥ ε⊥_j s).

Then ‖v − d‖ ≤ β [η F + ρ̄^M a₀/ᾱ] and ‖v_i − d_i‖ ≤ β_i [η F + ρ̄^M ‖ḡ‖/ᾱ].

Derivation. a and s bound ‖Θu^(j)‖ and ‖(I − Θ)u^(j)‖. As K1 = 1, E_j = E_j (I − Θ): averaging leaves Θu alone
up to Θ E_j u, of norm ≤ ε∥_j s, and shrinks disagreement to (I − Θ) E_j u, of norm ≤ ε⊥_j s. The step I − ηH
maps consensus to consensus with norm ρ̄, disagreement to disagreement with norm ρ⊥, and one to the other with
norm ηζ (H is symmetric): the recursion. In the telescoped sum of bound A, the term of E_j u^(j) splits into its
consensus part e∥, which contributes Σ_{k<M−j} (I − ηH̄)^k e∥, and its disagreement part e⊥, which contributes
itself and −η Σ_{k<M−1−j} (I − ηH̄)^k Θ H e⊥: the increments of F. Only K1 = 1 is used, not K ≥ 0.
"""

from __future__ import annotations

import math

import numpy as np

from .constants import Constants, check_iterations, geometric, row_stochastic
from .result import Bound, finite, first_failure, not_applicable


def bound_b(c: Constants, iterations: int | None = None) -> Bound:
    """Bound B after `iterations` (default: all) of the averaging calls in `c`."""
    M = check_iterations(c, iterations)
    failed = first_failure(
        {
            f"alpha_bar > 0 (it is {c.alpha_bar:.3g})": c.alpha_bar > 0,
            f"rows of K sum to 1 (off by {c.row_sum_error:.3g})": row_stochastic(c),
        }
    )
    if failed:
        return not_applicable("B", failed)
    consensus, tail = c.eta * averaging_sum(c, M), truncation(c, M)
    terms = {"consensus": c.beta_max * consensus, "truncation": c.beta_max * tail}
    per_client = c.beta * (consensus + tail / np.sqrt(c.n))  # the tail is the same at every client
    return finite(Bound("B", c.beta_max * (consensus + tail), per_client, terms=terms))


def averaging_sum(c: Constants, M: int) -> float:
    """F after M calls."""
    g = geometric(c.rho_bar, M)
    j = np.arange(M)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = c.eps_perp[:M] * (1 + c.eta * c.zeta * g[M - 1 - j]) + c.eps_par[:M] * g[M - j]
        F = np.sum(disagreement(c, M) * weights)
    return float(np.nan_to_num(F, nan=math.inf))


def disagreement(c: Constants, M: int) -> np.ndarray:
    """s before each of the calls 0 … M−1: bounds on ‖(I − Θ)u^(j)‖, (M,)."""
    a, s, seen = c.a0, c.s0, np.empty(M)
    coupling = c.eta * c.zeta
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(M):
            seen[j] = s
            along, across = a + c.eps_par[j] * s, c.eps_perp[j] * s
            a, s = c.rho_bar * along + coupling * across, coupling * along + c.rho_perp * across
    return seen


def truncation(c: Constants, M: int) -> float:
    """ρ̄^M a₀/ᾱ, for all clients together."""
    try:
        return c.rho_bar**M * c.a0 / c.alpha_bar
    except OverflowError:
        return math.inf
