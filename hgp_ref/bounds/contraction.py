"""Bound A, `contracting_clients`: every client contracts; per client, any S ≥ 1, any M.

    ‖v_i − d_i‖ ≤ β_i [ η G∞ Σ_{j<M} γ_j ρ^j (1 + ρ g_{M−1−j}) + ρ̄^M ‖ḡ‖/ᾱ ],      g_k = Σ_{t<k} ρ̄^t.

Derivation. v_i − d_i = J_i (w* − w_i) with w = η Σ_m ū^(m), ū^(m) = Θ̂_m u^(m), u^(m+1) = (I − ηH) ū^(m). Write
T = (I − ηH)Θ and E_j = Θ̂_j − Θ. Telescoping, u^(m) − T^m ∂f = Σ_{j<m} T^{m−1−j} (I − ηH) E_j u^(j), and as
ΘT^k = (I − ηH̄)^k Θ,

    ū^(m) − ΘT^m ∂f = E_m u^(m) + Σ_{j<m} (I − ηH̄)^{m−1−j} Θ (I − ηH) E_j u^(j).

K_j is row-stochastic and non-negative, so max_i ‖u_i^(j)‖ ≤ ρ^j G∞ and max_i ‖(E_j u^(j))_i‖ ≤ γ_j ρ^j G∞; an
average of (I − ηH_i)(·)_i costs a factor ρ. Summing over m gives the first part. The second is the tail of the
exact-average series, H̄⁻¹ (I − ηH̄)^M ḡ, whose norm is at most ρ̄^M ‖ḡ‖/ᾱ.

The finite form needs no ρ < 1; with ρ < 1 and γ_j ≤ γ the first part stays below η β_i γ G∞ /(1 − ρ)² for every
M.
"""

from __future__ import annotations

import math

import numpy as np

from hgp_ref import arguments
from hgp_ref.bounds.constants import Constants, check_iterations, geometric, row_stochastic
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable
from hgp_ref.bounds.scaled import product


def contracting_clients(c: Constants, iterations: int | None = None) -> Bound:
    """Bound A after `iterations` (default: all) of the averaging calls in `c`.

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
    >>> bool(np.linalg.norm(v - hgp.exact.hypergradient(problem, x, lam)) <= hgp.bounds.contracting_clients(c).total)
    True
    """
    M = check_iterations(c, iterations)
    failed = first_failure(conditions(c))
    if failed:
        return not_applicable("A", failed)
    consensus, tail = consensus_part(c, M), truncation(c, M)
    terms = {"consensus": product(c.beta_norm, consensus), "truncation": product(c.beta_norm, tail)}
    per_client = np.array([product(b, consensus + tail) for b in c.beta.tolist()])
    return finite(Bound("A", product(c.beta_norm, consensus + tail), per_client, terms=terms))


def conditions(c: Constants) -> dict[str, bool]:
    """What A needs: H̄ ≻ 0 and weights reset at every call."""
    return {
        f"alpha_bar > 0 (it is {c.alpha_bar:.3g})": c.alpha_bar > 0,
        f"rows of K sum to 1 (off by {c.row_sum_error:.3g})": row_stochastic(c),
        f"K is non-negative (smallest entry {c.smallest_entry:.3g})": c.smallest_entry >= 0,
    }


def consensus_part(c: Constants, M: int, rho: float | None = None) -> float:
    """η G∞ Σ_{j<M} γ_j ρ^j (1 + ρ g_{M−1−j}): how far averaging errors move w; `rho` may be a larger rate."""
    rho = c.rho if rho is None else arguments.nonnegative("rho", rho)
    j = np.arange(M)
    with np.errstate(over="ignore", invalid="ignore"):
        series = np.sum(c.gamma[:M] * rho**j * (1 + rho * geometric(c.rho_bar, M)[M - 1 - j]))
    return product(c.eta, c.G_inf, float(np.nan_to_num(series, nan=math.inf)))


def truncation(c: Constants, M: int) -> float:
    """ρ̄^M ‖ḡ‖/ᾱ: what exact averaging still misses after M iterations."""
    try:
        return product(c.rho_bar**M, c.g_bar, 1 / c.alpha_bar)
    except OverflowError:
        return math.inf


def floor(c: Constants) -> float:
    """√Σβ_i² η γ G∞ /(1 − ρ)² with γ the largest γ_j: a bound on the consensus part for every M; ∞ if ρ ≥ 1."""
    if c.rho >= 1:
        return math.inf
    return product(c.beta_norm, c.eta, float(c.gamma.max()), c.G_inf, (1 - c.rho) ** -2)
