"""Theorem 2 as printed: Theorem 1 (or Corollary 1) at x̂ plus a term in ‖x̂ − x‖.

    {(2ν_g/α)(1 + β/α)(1 + ε̂) + (ν_f/‖∂_x f‖)(β/α)} ‖x̂ − x‖            relative to ‖∂_x f‖

α = min_{λ,ξ} σ_min(∂²_x ĝ) and β = max_{λ,ξ} σ_max(∂²_{xλ} ĝ), as printed: over every λ, hence over every x(λ). With α
at the current λ alone it fails, because the products of the proof sit at x̂: h″ = 1 − 0.9 min(|x|, 1), f = x, x̂ = 1 has
the error 9 where α = h″(0) allows 3.6 and the printed α = 0.1 allows 198. Where ν_g > 0 the constants of one point
cannot know it, and it must be given.

The statement lacks the term (C) of its proof, ν_f ‖x̂ − x‖ for ∂_λ f, so that it fails where ∂_λ f depends on x:
with g = (x − a)²/2 and f = λx it is 0 while the error is √n |x̂ − x|. Use `inexact` instead.
"""

from __future__ import annotations

from dataclasses import replace

from hgp_ref import arguments
from hgp_ref.bounds.constants import Constants, check_iterations
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable
from hgp_ref.bounds.samples import SampleConstants
from hgp_ref.bounds.scaled import product
from hgp_ref.bounds.theorem_1 import corollary1, printed_conditions, probability, realised_consensus, theorem1


def theorem2(
    c: Constants,
    nu_f: float,
    nu_g: float,
    distance: float,
    iterations: int | None = None,
    *,
    samples: SampleConstants | None = None,
    failure: float = 0.1,
    consensus: float | None = None,
    alpha: float | None = None,
    beta: float | None = None,
) -> Bound:
    """Theorem 2 as printed for ‖x̂ − x‖ = `distance`; with exact Jacobians unless `samples` are given.

    `c` are constants at the exact solution, as in the statement; ν_f and ν_g as in the paper's Assumption 4. `alpha`
    and `beta` are the printed α and β, over every λ and ξ; with ν_g = 0 those of `c` or `samples` are the same at
    every x.

    Parameters
    ----------
    c : Constants
        At the exact solution.
    nu_f, nu_g : float
        Constants of the paper's Assumption 4.
    distance : float
        ‖x̂ − x‖.
    iterations : int, optional
        M; by default as many as there are calls in `c`.
    samples, failure : SampleConstants, optional, and float
        For mini-batches, with probability ϵ.
    consensus : float, optional
        ε̂; by default the realised max ε_m.
    alpha, beta : float, optional
        The printed α and β, over every λ and ξ.

    Returns
    -------
    Bound
        Not applicable, and why, where the printed conditions fail.

    Raises
    ------
    TypeError, ValueError
        Constants must be numbers ≥ 0, `samples` SampleConstants or None.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, _ = hgp.exact.outer_gradients(problem, x, lam)
    >>> K, _ = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 10, calls=50)
    >>> c = hgp.bounds.realised_constants(H, J, f_x, 1.0, K)
    >>> hgp.bounds.theorem2(c, nu_f=1.0, nu_g=0.0, distance=0.01).applicable
    True
    """
    M, eps = check_iterations(c, iterations), realised_consensus(c, iterations or c.iterations, consensus)
    nu_f, nu_g = arguments.nonnegative("nu_f", nu_f), arguments.nonnegative("nu_g", nu_g)
    distance, failure = arguments.nonnegative("distance", distance), arguments.number("failure", failure)
    if samples is not None:
        arguments.kind("samples", samples, SampleConstants)
    here = (c.sigma_min, c.beta_max) if samples is None else (samples.alpha, samples.beta)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is None and nu_g > 0:
            words = f"{name}: its extreme over every lambda and sample, as the paper prints it (nu_g = {nu_g:.3g} > 0)"
            return not_applicable("Theorem 2", words)
    alpha = here[0] if alpha is None else arguments.nonnegative("alpha", alpha)
    beta = here[1] if beta is None else arguments.nonnegative("beta", beta)
    failed = first_failure({**printed_conditions(c.eta, alpha, eps), **probability(failure)})
    if failed:
        return not_applicable("Theorem 2", failed)
    base = _at_one_point(c, samples, alpha, beta, eps, failure, M)
    if base.total is None:
        return not_applicable("Theorem 2", base.why)
    moved = product(2, nu_g, 1 / alpha, 1 + beta / alpha, 1 + eps, c.f_norm, distance)
    terms = {**base.terms, "inexact": moved + product(nu_f, beta, 1 / alpha, distance)}
    return finite(Bound("Theorem 2", sum(terms.values()), terms=terms))


def _at_one_point(
    c: Constants, samples: SampleConstants | None, alpha: float, beta: float, eps: float, failure: float, M: int
) -> Bound:
    """Corollary 1, or Theorem 1 of the appendix with `samples`, with the given α and β."""
    if samples is None:
        return corollary1(replace(c, sigma_min=alpha, beta=c.beta * 0 + beta), M, consensus=eps)
    return theorem1(c, replace(samples, alpha=alpha, beta=beta), failure, M, consensus=eps, text="appendix")
