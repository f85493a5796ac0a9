"""Theorem 2 as printed: Theorem 1 (or Corollary 1) at x̂ plus a term in ‖x̂ − x‖.

    {(2ν_g/α)(1 + β/α)(1 + ε̂) + (ν_f/‖∂_x f‖)(β/α)} ‖x̂ − x‖            relative to ‖∂_x f‖

It drops the term (C) of its own proof, ν_f ‖x̂ − x‖ for ∂_λ f, so that it fails where ∂_λ f depends on x: with
g = (x − a)²/2 and f = λx it is 0 while the error is √n |x̂ − x|. Use `inexact` instead.
"""

from __future__ import annotations

from .constants import Constants, check_iterations
from .result import Bound, first_failure, not_applicable
from .samples import SampleConstants
from .theorem1 import corollary1, printed_conditions, realised_consensus, theorem1


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
) -> Bound:
    """Theorem 2 as printed for ‖x̂ − x‖ = `distance`; with exact Jacobians unless `samples` are given.

    `c` are constants at the exact solution, as in the statement; ν_f and ν_g as in the paper's Assumption 4.
    """
    M = check_iterations(c, iterations)
    eps = realised_consensus(c, M) if consensus is None else consensus
    alpha, beta = (c.sigma_min, c.beta_max) if samples is None else (samples.alpha, samples.beta)
    failed = first_failure(printed_conditions(c.eta, alpha, eps))
    if failed:
        return not_applicable("Theorem 2", failed)
    if samples is None:
        base = corollary1(c, M, consensus=eps)
    else:
        base = theorem1(c, samples, failure, M, consensus=eps, text="appendix")
    if base.total is None:
        return not_applicable("Theorem 2", base.why)
    slope = 2 * nu_g / alpha * (1 + beta / alpha) * (1 + eps) * c.f_norm + nu_f * beta / alpha
    terms = {**base.terms, "inexact": slope * distance}
    return Bound("Theorem 2", sum(terms.values()), terms=terms)
