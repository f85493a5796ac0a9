"""Theorem 1 and its corollaries as printed, and Corollary 1 repaired.

As printed, relative to ‖∂_x f‖ and with ε̂ standing for (8√n/δ) τ^S, μ² = κ_λ² + κ_x² β²/α²:

    Theorem 1    (4μ/α)(1 + ε̂) √(2 log(c n (d_x + d_λ)/ϵ)) + 2β ε̂/(ηα²) + exp(−O(M)),   c = 2 (main text), 1 (proof)
    Corollary 1  2β ε̂/(ηα²) + exp(−O(M))                                                  exact Jacobians
    Corollary 2  (4C/α) √(1 + β²/α²) (1 + ε̂) √((2/b) log(n (d_x + d_λ)/ϵ)) + Corollary 1   batches of b

under 0 < α < 1/η and S large enough, which is ε̂ ≤ ½ ηα/(1 − ηα). In the proof every series but the truncation
(B) has positive terms and is completed to infinity, so exp(−O(M)) is exactly (β/α)(1 − ηα)^M: no O(·) is left
here. α is the smallest singular value of the Hessians, over the samples where there are any, at the λ in use: the
printed minimum over all λ is not needed here (it is in Theorem 2).

α < 1/η is not enough: the proof uses ‖I − ηH‖ ≤ 1 − ηα, which needs η(α + L) ≤ 2. With it Corollary 2 holds with
C = √n κ/4, κ the largest deviation of a single instance (erratum 14). Corollary 1 repaired uses
ρ = max_i ‖I − ηH_i‖ < 1 and ε = max_m ε_m ≤ (1 − ρ)/(2ρ):

    ‖v − d‖/‖∂_x f‖ ≤ 2ηβε/(1 − ρ)² + ηβ ρ^M/(1 − ρ).

Derivation: ‖u^(j)‖ ≤ q^j ‖∂f‖ with q = ρ(1 + ε) ≤ (1 + ρ)/2; in the telescoped sum of bound A the terms of E_j
u^(j) add up to at most ε q^j (1 + ρ/(1 − ρ)), and Σ_j q^j ≤ 2/(1 − ρ). With ρ = 1 − ηα it is the printed one.
"""

from __future__ import annotations

import math

from hgp_ref import arguments
from hgp_ref.bounds.constants import Constants, check_iterations
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable
from hgp_ref.bounds.samples import SampleConstants
from hgp_ref.bounds.scaled import product


def theorem1(
    c: Constants,
    s: SampleConstants,
    failure: float,
    iterations: int | None = None,
    *,
    consensus: float | None = None,
    text: str = "main",
) -> Bound:
    """Theorem 1 as printed in the "main" text or in the "appendix"; `consensus` is ε̂, by default max ε_m.

    Parameters
    ----------
    c : Constants
        Of the problem and of the averaging calls.
    s : SampleConstants
        Of single instances.
    failure : float
        The probability ϵ.
    iterations : int, optional
        M; by default as many as there are calls in `c`.
    consensus : float, optional
        ε̂; by default the realised max ε_m.
    text : {"main", "appendix"}
        Which of the two printed logarithms.

    Returns
    -------
    Bound
        Not applicable, and why, where the printed conditions fail.

    Raises
    ------
    TypeError, ValueError
        `c`, `s` must be Constants and SampleConstants, `text` one of the two.

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
    >>> hgp.bounds.theorem1(c, s, failure=0.1).applicable
    True
    """
    M, name = check_iterations(c, iterations), f"Theorem 1 ({arguments.choice('text', text, ('main', 'appendix'))})"
    arguments.kind("s", s, SampleConstants)
    eps, failure = realised_consensus(c, M, consensus), arguments.number("failure", failure)
    failed = first_failure({**printed_conditions(c.eta, s.alpha, eps), **probability(failure)})
    if failed:
        return not_applicable(name, failed)
    copies = 2 if text == "main" else 1
    mu = math.hypot(s.kappa_lam, s.kappa_x * s.beta / s.alpha)
    log_term = math.log(copies * c.n * (c.d_x + c.d_lam) / failure)
    noise = product(4, mu, 1 / s.alpha, 1 + eps, math.sqrt(2 * log_term), c.f_norm)
    terms = {"noise": noise, **_exact_terms(c, s.alpha, s.beta, eps, M)}
    return finite(Bound(name, sum(terms.values()), terms=terms))


def corollary1(c: Constants, iterations: int | None = None, *, consensus: float | None = None) -> Bound:
    """Corollary 1 as printed; `consensus` is ε̂, by default the realised max ε_m.

    Parameters
    ----------
    c : Constants
        Of the problem and of the averaging calls.
    iterations : int, optional
        M; by default as many as there are calls in `c`.
    consensus : float, optional
        ε̂; by default the realised max ε_m.

    Returns
    -------
    Bound
        Not applicable, and why, where the printed conditions fail.

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
    >>> hgp.bounds.corollary1(c).applicable
    True
    """
    M = check_iterations(c, iterations)
    eps = realised_consensus(c, M, consensus)
    failed = first_failure(printed_conditions(c.eta, c.sigma_min, eps))
    if failed:
        return not_applicable("Corollary 1", failed)
    terms = _exact_terms(c, c.sigma_min, c.beta_max, eps, M)
    return finite(Bound("Corollary 1", sum(terms.values()), terms=terms))


def corollary2(
    c: Constants,
    s: SampleConstants,
    size: int,
    failure: float,
    iterations: int | None = None,
    *,
    consensus: float | None = None,
    C: float | None = None,
) -> Bound:
    """Corollary 2 as printed for batches of `size`; the constant C is max(κ_x, κ_λ) of single samples by default.

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
    consensus : float, optional
        ε̂; by default the realised max ε_m.
    C : float, optional
        The constant of the noise term; by default max(κ_x, κ_λ) of single instances.

    Returns
    -------
    Bound
        Not applicable, and why, where the printed conditions fail.

    Raises
    ------
    TypeError, ValueError
        `c`, `s` must be Constants and SampleConstants, `size` an integer ≥ 1, `C` a number ≥ 0.

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
    >>> hgp.bounds.corollary2(c, s, size=5, failure=0.1).applicable
    True
    """
    M = check_iterations(c, iterations)
    arguments.kind("s", s, SampleConstants)
    size, failure = arguments.integer("size", size), arguments.number("failure", failure)
    eps = realised_consensus(c, M, consensus)
    C = max(s.kappa_x, s.kappa_lam) if C is None else arguments.nonnegative("C", C)
    failed = first_failure({**printed_conditions(c.eta, s.alpha, eps), **probability(failure)})
    if failed:
        return not_applicable("Corollary 2", failed)
    root = math.sqrt(2 / size * math.log(c.n * (c.d_x + c.d_lam) / failure))
    noise = product(4, C, math.hypot(1, s.beta / s.alpha), 1 / s.alpha, 1 + eps, root, c.f_norm)
    terms = {"noise": noise, **_exact_terms(c, s.alpha, s.beta, eps, M)}
    return finite(Bound("Corollary 2", sum(terms.values()), terms=terms))


def corollary1_repaired(c: Constants, iterations: int | None = None, *, consensus: float | None = None) -> Bound:
    """Corollary 1 with ρ in place of 1 − ηα; `consensus` bounds σ_max(E_m), by default the realised max ε_m.

    Parameters
    ----------
    c : Constants
        Of the problem and of the averaging calls.
    iterations : int, optional
        M; by default as many as there are calls in `c`.
    consensus : float, optional
        A bound on σ_max(E_m); by default the realised one.

    Returns
    -------
    Bound
        Not applicable, and why, where ρ ≥ 1 or averaging is too rough.

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
    >>> hgp.bounds.corollary1_repaired(c).applicable
    True
    """
    M = check_iterations(c, iterations)
    eps = realised_consensus(c, M, consensus)
    rho, beta = c.rho, c.beta_max
    failed = first_failure(
        {
            f"rho < 1 (it is {rho:.3g})": rho < 1,
            f"eps <= (1 - rho)/(2 rho) (it is {eps:.3g})": 2 * rho * eps <= 1 - rho,
        }
    )
    if failed:
        return not_applicable("Corollary 1, repaired", failed)
    terms = {
        "consensus": product(2, c.eta, beta, eps, (1 - rho) ** -2, c.f_norm),
        "truncation": product(c.eta, beta, rho**M, 1 / (1 - rho), c.f_norm),
    }
    return finite(Bound("Corollary 1, repaired", sum(terms.values()), terms=terms))


def printed_conditions(eta: float, alpha: float, eps: float) -> dict[str, bool]:
    """0 < α < 1/η and the condition on S, written as one on ε̂."""
    ok = 0 < alpha < 1 / eta
    limit = 0.5 * eta * alpha / (1 - eta * alpha) if ok else math.nan
    return {
        f"0 < alpha < 1/eta (alpha = {alpha:.3g}, 1/eta = {1 / eta:.3g})": ok,
        f"S large enough: eps = {eps:.3g} <= eta alpha/(2(1 - eta alpha)) = {limit:.3g}": ok and eps <= limit,
    }


def realised_consensus(c: Constants, M: int, given: float | None = None) -> float:
    """ε̂: the `given` one, by default max_m σ_max(E_m) over the first M calls."""
    if isinstance(given, float) and given == math.inf:  # a worst case beyond floating point: the condition on S fails
        return math.inf
    return float(c.eps[:M].max()) if given is None else arguments.nonnegative("consensus", given)


def _exact_terms(c: Constants, alpha: float, beta: float, eps: float, M: int) -> dict[str, float]:
    return {
        "consensus": product(2, beta, eps, 1 / c.eta, 1 / alpha, 1 / alpha, c.f_norm),
        "truncation": product(beta, 1 / alpha, (1 - c.eta * alpha) ** M, c.f_norm),
    }


def probability(failure: float) -> dict[str, bool]:
    """0 < ϵ < 1."""
    return {f"0 < failure < 1 (it is {failure:.3g})": 0 < failure < 1}
