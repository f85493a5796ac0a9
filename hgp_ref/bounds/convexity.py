"""Bound B, `convex_mean`: no client needs to be convex; only H̄ ≻ 0.

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

from hgp_ref.bounds.constants import Constants, check_iterations, geometric, row_stochastic
from hgp_ref.bounds.recursion import consensus_and_disagreement
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable
from hgp_ref.bounds.scaled import product


def convex_mean(c: Constants, iterations: int | None = None) -> Bound:
    """Bound B after `iterations` (default: all) of the averaging calls in `c`.

    Parameters
    ----------
    c : Constants
        Of the problem and of the averaging calls.
    iterations : int, optional
        M; by default as many as there are calls in `c`.

    Returns
    -------
    Bound
        `total` bounds ‖v − d‖ and `per_client` ‖v_i − d_i‖; not applicable where H̄ is not positive definite.

    Raises
    ------
    TypeError, ValueError
        `c` must be Constants, `iterations` at most as many calls as they hold.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> c = hgp.bounds.realised_constants(H, J, f_x, 1.0, K)
    >>> v = hgp.exact.estimate(problem, x, lam, K, eta=1.0)
    >>> bool(np.linalg.norm(v - hgp.exact.hypergradient(problem, x, lam)) <= hgp.bounds.convex_mean(c).total)
    True
    """
    M = check_iterations(c, iterations)
    failed = first_failure(
        {
            f"alpha_bar > 0 (it is {c.alpha_bar:.3g})": c.alpha_bar > 0,
            f"rows of K sum to 1 (off by {c.row_sum_error:.3g})": row_stochastic(c),
        }
    )
    if failed:
        return not_applicable("B", failed)
    consensus, tail = product(c.eta, averaging_sum(c, M)), truncation(c, M)
    terms = {"consensus": product(c.beta_max, consensus), "truncation": product(c.beta_max, tail)}
    own = consensus + tail / np.sqrt(c.n)  # the tail is the same at every client
    per_client = np.array([product(b, own) for b in c.beta.tolist()])
    return finite(Bound("B", product(c.beta_max, consensus + tail), per_client, terms=terms))


def averaging_sum(c: Constants, M: int) -> float:
    """F after M calls."""
    g = geometric(c.rho_bar, M)
    j, unit = np.arange(M), max(c.a0, c.s0)
    if unit == 0:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        weights = c.eps_perp[:M] * (1 + c.eta * c.zeta * g[M - 1 - j]) + c.eps_par[:M] * g[M - j]
        F = np.sum(consensus_and_disagreement(c, M, unit)[1] * weights)
    return product(unit, float(np.nan_to_num(F, nan=math.inf)))


def truncation(c: Constants, M: int) -> float:
    """ρ̄^M a₀/ᾱ, for all clients together."""
    try:
        return product(c.rho_bar**M, c.a0, 1 / c.alpha_bar)
    except OverflowError:
        return math.inf
