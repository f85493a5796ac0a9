"""Bound D, `minibatch_tail`: mini-batches of size b, with probability at least 1 − ϵ.

    ‖v − d‖ ≤ noise + √Σβ_i² [A's consensus part with ρ the supremum over samples + ρ̄^M ‖ḡ‖/ᾱ]

With ℓ = log(2/ϵ), y_m = η g_{M−1−m} ‖[J_1; …; J_n]‖/n and per-sample κ's or σ's,

    azuma       noise = √(2ℓ Σ_m η² n ρ^{2m} G∞² k_m²/b),                            k_m² = κ_λ² + y_m² κ_x²
    bernstein   noise = cℓ/3 + √((cℓ/3)² + 2V²ℓ),  V² = Σ_m η² n ρ^{2m} G∞² k_m²/b,   k_m² = σ_λ² + y_m² σ_x²,
                c = max_m (η/b) ρ^m G∞ max(κ_λ, y_m κ_x).

When one batch serves both v and u, the two deviations of one sample may align: k_m = κ_λ + y_m κ_x (or with σ)
and c = max_m (η/b) ρ^m G∞ (κ_λ + y_m κ_x) instead.

Derivation. Let ε_λ, ε_x be the deviations of the batch Jacobians and Hessians. As in bound A, but with noise,

    v − d = −η Σ_m ε_λ^(m) ū^(m) + η² Σ_m J G_m mean_k(ε_{x,k}^(m) ū_k^(m)) + [A's terms],

where A's terms have J and H of the full data and G_m = Σ_{k<M−1−m} (I − ηH̄)^k has norm ≤ g_{M−1−m}. Whatever
was drawn, ‖ū_i^(m)‖ ≤ ρ^m G∞ when ρ is the supremum over samples; hence A's terms are bounded surely. Given the
past, ū^(m) is fixed and every sample of every client has mean zero: a martingale in Euclidean space whose
increments, one per sample, have norm at most (η/b) ρ^m G∞ κ_λ (for v) and (η/b) ρ^m G∞ y_m κ_x (for u; the
average over clients is the 1/n in y_m). There are n b of each per iteration. Pinelis (1994) gives P(‖Σ‖ ≥ r) ≤
2 exp(−r²/(2Σc²)), and Bernstein's form 2 exp(−r²/(2(V² + cr/3))), with no factor of dimension. Sampling without
replacement inside a batch does no harm: both inequalities bound the mean of cosh(t‖x + Σ‖), a convex function
of the batch sum, which is no larger without replacement (Hoeffding 1963, Theorem 4, Jensen). A client whose
batch holds all its instances has no noise at all.

For client i alone ‖[J]‖/n becomes β_i/n, and only its own ε_λ counts: k_m² = κ_λ² + (η g_{M−1−m} β_i κ_x)²/n
without the factor n in the sum. Each of these n bounds holds with probability 1 − ϵ; all at once with 1 − nϵ.
"""

from __future__ import annotations

import math

import numpy as np

from hgp_ref import arguments
from hgp_ref.bounds.constants import Constants, check_iterations, geometric
from hgp_ref.bounds.contraction import conditions, consensus_part, truncation
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable
from hgp_ref.bounds.samples import SampleConstants
from hgp_ref.bounds.scaled import product


def minibatch_tail(
    c: Constants,
    s: SampleConstants,
    size: int,
    failure: float,
    iterations: int | None = None,
    *,
    form: str = "azuma",
    shared: bool = False,
) -> Bound:
    """Bound D for batches of `size` instances, failing with probability at most `failure`.

    `shared`: whether one batch serves both v and u. `form`: "azuma" or "bernstein".

    Parameters
    ----------
    c : Constants
        Of the problem and of the averaging calls.
    s : SampleConstants
        Of single instances.
    size : int
        Instances b in a batch.
    failure : float
        The probability ϵ.
    iterations : int, optional
        M; by default as many as there are calls in `c`.
    form : {"azuma", "bernstein"}
        With suprema, or with variances.
    shared : bool
        Whether one batch serves both v and u.

    Returns
    -------
    Bound
        `total` holds with probability 1 − ϵ, and so does each entry of `per_client`.

    Raises
    ------
    TypeError, ValueError
        `c`, `s` must be Constants and SampleConstants, `size` an integer ≥ 1, `form` one of the two.

    Examples
    --------
    >>> data = hgp.data.synthetic_mixture(n_clients=3, n_train=20, seed=0)
    >>> problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    >>> lam = np.full((3, 6), 0.1)
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> c = hgp.bounds.realised_constants(H, J, f_x, 1.0, K)
    >>> Hs, Js = hgp.bounds.sample_derivatives(problem, x, lam)
    >>> s = hgp.bounds.sample_constants(Hs, Js, 1.0)
    >>> bound = hgp.bounds.minibatch_tail(c, s, size=10, failure=0.1)
    >>> bound.applicable, sorted(bound.terms)
    (True, ['bias', 'noise'])
    """
    M = check_iterations(c, iterations)
    arguments.kind("s", s, SampleConstants)
    size, failure = arguments.integer("size", size), arguments.number("failure", failure)
    form, shared = arguments.choice("form", form, ("azuma", "bernstein")), arguments.boolean("shared", shared)
    name = f"D ({form})"
    failed = first_failure({f"0 < failure < 1 (it is {failure:.3g})": 0 < failure < 1, **conditions(c)})
    if failed:
        return not_applicable(name, failed)
    base = consensus_part(c, M, rho=max(s.rho, c.rho)) + truncation(c, M)
    noise = _noise(c, s, size, failure, M, form, shared, J_norm=c.J_stacked, clients=c.n)
    own = [_noise(c, s, size, failure, M, form, shared, J_norm=b, clients=1) for b in c.beta.tolist()]
    terms = {"noise": noise, "bias": product(c.beta_norm, base)}
    per_client = np.array([noise_i + product(b, base) for noise_i, b in zip(own, c.beta.tolist(), strict=True)])
    return finite(Bound(name, noise + terms["bias"], per_client, terms=terms))


def _noise(
    c: Constants,
    s: SampleConstants,
    size: int,
    failure: float,
    M: int,
    form: str,
    shared: bool,
    *,
    J_norm: float,
    clients: int,
) -> float:
    """Deviation of the martingale; `clients` = n counts every client's ε_λ, 1 that of a single one.

    In units of η G∞ κ, κ the largest deviation that occurs, so that squares stay in the range.
    """
    log_term = math.log(2) - math.log(failure)
    with np.errstate(over="ignore", invalid="ignore"):
        y = c.eta * geometric(c.rho_bar, M)[M - 1 - np.arange(M)] * J_norm / c.n  # (M,)
        unit = max(s.kappa_lam, s.sigma_lam, float(np.max(y)) * max(s.kappa_x, s.sigma_x))
        if unit == 0 or c.G_inf == 0:
            return 0.0
        decay = max(s.rho, c.rho) ** np.arange(M) / size  # (M,) of one sample
        for_v, for_u = s.kappa_lam / unit, y * (s.kappa_x / unit)
        if form == "azuma":
            squares = sum_of_squares(decay, for_v, for_u, size, c.n, clients, shared)
            return product(float(np.sqrt(2 * log_term * squares)), c.eta, c.G_inf, unit)
        variance = sum_of_squares(decay, s.sigma_lam / unit, y * (s.sigma_x / unit), size, c.n, clients, shared)
        third = float(np.max(decay * combine(for_v, for_u, shared))) * log_term / 3
        return product(float(third + np.sqrt(third**2 + 2 * variance * log_term)), c.eta, c.G_inf, unit)


def combine(for_v: float, for_u: np.ndarray, shared: bool) -> np.ndarray:
    """The largest increment of one sample in units of `scale`: either deviation alone, or both aligned."""
    return for_v + for_u if shared else np.maximum(for_v, for_u)


def sum_of_squares(
    scale: np.ndarray, for_v: float, for_u: np.ndarray, size: int, n: int, clients: int, shared: bool
) -> float:
    """Σ over iterations, clients and samples of squared increments (bounds or variances).

    ε_x of all n clients always counts, ε_λ of `clients` of them; in a shared batch the client's own samples do both.
    """
    if shared:
        per_sample = clients * (for_v + for_u) ** 2 + (n - clients) * for_u**2
    else:
        per_sample = clients * for_v**2 + n * for_u**2
    return float(np.sum(scale**2 * size * per_sample))
