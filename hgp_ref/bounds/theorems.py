"""The paper's statements as printed: Theorems 1 and 2, Corollaries 1 and 2, Lemma 2; and Corollary 1 repaired.

Theorem 1 and its corollaries as printed, relative to ‖∂_x f‖, with ε̂ = (8√n/δ) τ^S and μ² = κ_λ² + κ_x² β²/α²:

    Theorem 1    (4μ/α)(1 + ε̂) √(2 log(c n (d_x + d_λ)/ϵ)) + 2β ε̂/(ηα²) + exp(−O(M)),   c = 2 (main text), 1 (proof)
    Corollary 1  2β ε̂/(ηα²) + exp(−O(M))                                                  exact Jacobians
    Corollary 2  (4C/α) √(1 + β²/α²) (1 + ε̂) √((2/b) log(n (d_x + d_λ)/ϵ)) + Corollary 1   batches of b

Their conditions are 0 < α < 1/η and S large enough, ε̂ ≤ ½ ηα/(1 − ηα); with samples also 0 < ϵ < 1. In the proof every
series but the truncation (B) has positive terms and is completed to infinity, so exp(−O(M)) is (β/α)(1 − ηα)^M. α is
the smallest singular value of the Hessians (of the samples if there are any) at the λ in use. The paper takes the
minimum over all λ, which only Theorem 2 needs.

α < 1/η is not enough: the proof uses ‖I − ηH‖ ≤ 1 − ηα, which needs η(α + L) ≤ 2. With it Corollary 2 holds with
C = √n κ/4, κ the largest deviation of a single instance (erratum 14). Corollary 1 repaired uses
ρ = max_i ‖I − ηH_i‖ < 1 and ε = max_m ε_m ≤ (1 − ρ)/(2ρ):

    ‖v − d‖/‖∂_x f‖ ≤ 2ηβε/(1 − ρ)² + ηβ ρ^M/(1 − ρ).

Derivation: ‖u^(j)‖ ≤ q^j ‖∂f‖ with q = ρ(1 + ε) ≤ (1 + ρ)/2. In the telescoped sum of bound A the terms of E_j u^(j)
add up to at most ε q^j (1 + ρ/(1 − ρ)), and Σ_j q^j ≤ 2/(1 − ρ). With ρ = 1 − ηα it is the printed corollary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref import validation
from hgp_ref.bounds.constants import ITERATIONS, Constants, SampleConstants, check_iterations
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable, probability, product
from hgp_ref.validation import Choice, Instance, Integer, Nonnegative, Number, Optional, checked

CONSTANTS = {"c": Instance(Constants), "iterations": ITERATIONS}
SAMPLES = {**CONSTANTS, "s": Instance(SampleConstants), "failure": Number()}
FORM = Choice("printed", "corrected")


@checked(**SAMPLES, text=Choice("main", "appendix"))
def theorem1(
    c: Constants,
    s: SampleConstants,
    failure: float,
    iterations: int | None = None,
    *,
    consensus: float | None = None,
    text: str = "main",
) -> Bound:
    """Theorem 1 as printed in the "main" text or in the "appendix", which differ in the logarithm.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> instances = [np.array([[[0.4]], [[0.6]]])] * 2
    >>> s = hgp.bounds.sample_constants(instances, instances, 1.0)
    >>> bound = hgp.bounds.theorem1(c, s, failure=0.1)
    >>> {name: f"{value:.1e}" for name, value in bound.terms.items()}
    {'noise': '7.5e+00', 'consensus': '0.0e+00', 'truncation': '7.8e-05'}
    """
    M, name = check_iterations(c, iterations), f"Theorem 1 ({text})"
    eps = realised_consensus(c, M, consensus)
    failed = first_failure({**printed_conditions(c.eta, s.alpha, eps), **probability(failure)})
    if failed:
        return not_applicable(name, failed)
    copies = 2 if text == "main" else 1
    mu = math.hypot(s.kappa_lam, s.kappa_x * s.beta / s.alpha)
    log_term = math.log(copies * c.n * (c.d_x + c.d_lam) / failure)
    noise = product(4, mu, 1 / s.alpha, 1 + eps, math.sqrt(2 * log_term), c.f_norm)
    terms = {"noise": noise, **_exact_terms(c, s.alpha, s.beta, eps, M)}
    return finite(Bound(name, sum(terms.values()), terms=terms))


@checked(**CONSTANTS)
def corollary1(c: Constants, iterations: int | None = None, *, consensus: float | None = None) -> Bound:
    """Corollary 1 as printed: the error with exact Jacobians.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> f"{hgp.bounds.corollary1(c).total:.2e}", hgp.bounds.corollary1(c, consensus=2.0).why
    ('1.35e-06', 'S large enough: eps = 2 <= eta alpha/(2(1 - eta alpha)) = 0.5')
    """
    M = check_iterations(c, iterations)
    eps = realised_consensus(c, M, consensus)
    failed = first_failure(printed_conditions(c.eta, c.sigma_min, eps))
    if failed:
        return not_applicable("Corollary 1", failed)
    terms = _exact_terms(c, c.sigma_min, c.beta_max, eps, M)
    return finite(Bound("Corollary 1", sum(terms.values()), terms=terms))


@checked(**SAMPLES, size=Integer(), C=Optional(Nonnegative()))
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
    """Corollary 2 as printed for batches of `size`; the constant C is max(κ_x, κ_λ) of single instances by default.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> instances = [np.array([[[0.4]], [[0.6]]])] * 2
    >>> s = hgp.bounds.sample_constants(instances, instances, 1.0)
    >>> [round(hgp.bounds.corollary2(c, s, size, failure=0.1).total, 3) for size in (1, 4)]
    [6.925, 3.463]
    """
    M = check_iterations(c, iterations)
    eps = realised_consensus(c, M, consensus)
    C = max(s.kappa_x, s.kappa_lam) if C is None else C
    failed = first_failure({**printed_conditions(c.eta, s.alpha, eps), **probability(failure)})
    if failed:
        return not_applicable("Corollary 2", failed)
    root = math.sqrt(2 / size * math.log(c.n * (c.d_x + c.d_lam) / failure))
    noise = product(4, C, math.hypot(1, s.beta / s.alpha), 1 / s.alpha, 1 + eps, root, c.f_norm)
    terms = {"noise": noise, **_exact_terms(c, s.alpha, s.beta, eps, M)}
    return finite(Bound("Corollary 2", sum(terms.values()), terms=terms))


@checked(**CONSTANTS)
def corollary1_repaired(c: Constants, iterations: int | None = None, *, consensus: float | None = None) -> Bound:
    """Corollary 1 with ρ in place of 1 − ηα; `consensus` bounds σ_max(E_m).

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> f"{hgp.bounds.corollary1_repaired(c).total:.2e}"
    '1.35e-06'
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


def realised_consensus(c: Constants, M: int, consensus: float | None = None) -> float:
    """ε̂: the argument `consensus`, by default max_m σ_max(E_m) over the first M calls."""
    if isinstance(consensus, float) and consensus == math.inf:  # of a worst case; the condition on S fails
        return math.inf
    return float(c.eps[:M].max()) if consensus is None else validation.nonnegative("consensus", consensus)


def _exact_terms(c: Constants, alpha: float, beta: float, eps: float, M: int) -> dict[str, float]:
    return {
        "consensus": product(2, beta, eps, 1 / c.eta, 1 / alpha, 1 / alpha, c.f_norm),
        "truncation": product(beta, 1 / alpha, (1 - c.eta * alpha) ** M, c.f_norm),
    }


# ------------------------------------------------------------------------------------------------------------ Theorem 2
#
# As printed, it adds a term in ‖x̂ − x‖ to Theorem 1 (or Corollary 1) at x̂:
#
#     {(2ν_g/α)(1 + β/α)(1 + ε̂) + (ν_f/‖∂_x f‖)(β/α)} ‖x̂ − x‖            relative to ‖∂_x f‖
#
# α = min_{λ,ξ} σ_min(∂²_x ĝ) and β = max_{λ,ξ} σ_max(∂²_{xλ} ĝ), as printed: over every λ, hence over every x(λ). With
# α at the current λ alone it fails, because the products of the proof sit at x̂: h″ = 1 − 0.9 min(|x|, 1), f = x, x̂ =
# 1 has the error 9 where α = h″(0) allows 3.6 and the printed α = 0.1 allows 198. Where ν_g > 0 the constants of one
# point cannot know it, and it must be given.
#
# The statement lacks the term (C) of its proof, ν_f ‖x̂ − x‖ for ∂_λ f, so that it fails where ∂_λ f depends on x:
# with g = (x − a)²/2 and f = λx it is 0 while the error is √n |x̂ − x|. Use `inexact` instead.


@checked(
    **CONSTANTS,
    nu_f=Nonnegative(),
    nu_g=Nonnegative(),
    distance=Nonnegative(),
    samples=Optional(Instance(SampleConstants)),
    failure=Number(),
    alpha=Optional(Nonnegative()),
    beta=Optional(Nonnegative()),
)
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
    """Theorem 2 as printed for ‖x̂ − x‖ = `distance`; with exact Jacobians unless `samples` are passed.

    Parameters
    ----------
    c : constants at the exact solution, as in the statement.
    nu_f, nu_g : constants of the paper's Assumption 4.
    samples, failure : for mini-batches, with probability ϵ.
    alpha, beta : the printed α and β, over every λ and ξ; needed if ν_g > 0. With ν_g = 0 those of `c` or `samples` are
        the same at every x.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> exact, inexact = (hgp.bounds.theorem2(c, nu_f=1.0, nu_g=0.0, distance=e).total for e in (0.0, 0.01))
    >>> round(inexact - exact, 6)
    0.01
    """
    M, eps = check_iterations(c, iterations), realised_consensus(c, iterations or c.iterations, consensus)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is None and nu_g > 0:
            why = f"{name}: its extreme over every lambda and sample, as the paper prints it (nu_g = {nu_g:.3g} > 0)"
            return not_applicable("Theorem 2", why)
    at_point = (c.sigma_min, c.beta_max) if samples is None else (samples.alpha, samples.beta)
    alpha, beta = at_point[0] if alpha is None else alpha, at_point[1] if beta is None else beta
    failed = first_failure({**printed_conditions(c.eta, alpha, eps), **probability(failure)})
    if failed:
        return not_applicable("Theorem 2", failed)
    if samples is None:
        base = corollary1(replace(c, sigma_min=alpha, beta=c.beta * 0 + beta), M, consensus=eps)
    else:
        base = theorem1(c, replace(samples, alpha=alpha, beta=beta), failure, M, consensus=eps, text="appendix")
    if base.total is None:
        return not_applicable("Theorem 2", base.why)
    by_g = product(2, nu_g, 1 / alpha, 1 + beta / alpha, 1 + eps, c.f_norm, distance)
    terms = {**base.terms, "inexact": by_g + product(nu_f, beta, 1 / alpha, distance)}
    return finite(Bound("Theorem 2", sum(terms.values()), terms=terms))


# ---------------------------------------------------------- worst-case constants of Push-Sum (Nedić and Olshevsky 2015)
#
# On B-strongly connected graphs,
#
#     δ = n^{−nB} (every entry of P 1 is at least δ),   τ = (1 − n^{−nB})^{1/B},   |E_ij| ≤ (8/δ) τ^{S−1} after S steps.
#
# Their Lemma 1 bounds the error after t + 1 steps by (8/δ) λ^t ‖y‖₁, hence the exponent S − 1. These constants are for
# display only: for n = 10 clients Theorem 1 needs about 3e11 steps with them. We store logarithms, because δ underflows
# for n around 140.


@dataclass(frozen=True)
class WorstCase:
    """log δ and log τ for n clients whose graphs are jointly strongly connected over every B steps.

    Attributes
    ----------
    n : number of clients.
    window : B.
    log_delta : log δ.
    log_tau : log τ.
    """

    n: int
    window: int
    log_delta: float
    log_tau: float

    @property
    def delta(self) -> float:
        """δ; 0 if it underflows."""
        return math.exp(self.log_delta)

    @property
    def tau(self) -> float:
        """τ; 1 if it rounds to 1."""
        return math.exp(self.log_tau)

    def entry(self, steps: int) -> float:
        """(8/δ) τ^{S−1} ≥ |E_ij|."""
        steps = validation.integer("steps", steps)
        return _exp(math.log(8) - self.log_delta + _power(self.log_tau, steps - 1))

    def printed(self, steps: int) -> float:
        """(8/δ) τ^S, the same with the exponent that the paper prints."""
        steps = validation.integer("steps", steps)
        return _exp(math.log(8) - self.log_delta + _power(self.log_tau, steps))

    def steps_needed(self, eta_alpha: float, *, factor: float | None = None) -> float:
        """Smallest S with (8 f/δ) τ^S ≤ ½ ηα/(1 − ηα): Theorem 1's condition on S, printed with f = √n.

        `factor` f is n by default, as in the corrected Lemma 2. The result is a float: it may be huge or infinite.
        """
        if not 0 < validation.number("eta_alpha", eta_alpha) < 1:
            raise ValueError(f"eta_alpha must be a number strictly between 0 and 1, got {eta_alpha}")
        f = float(self.n) if factor is None else validation.positive("factor", factor)
        log_needed = self.log_delta - math.log(16) - math.log(f) + math.log(eta_alpha / (1 - eta_alpha))
        if log_needed >= 0 or self.log_tau == -math.inf:
            return 1.0
        if self.log_tau == 0:
            return math.inf
        return max(1.0, math.ceil(log_needed / self.log_tau))


@checked(n=Integer(), window=Integer())
def worst_case(n: int, window: int = 1) -> WorstCase:
    """The constants for `n` clients and B = `window`.

    Examples
    --------
    >>> round(hgp.bounds.worst_case(3).log_delta, 4)
    -3.2958
    """
    log_delta = -n * window * math.log(n)
    delta = math.exp(log_delta)
    log_tau = -math.inf if delta == 1 else math.log1p(-delta) / window
    return WorstCase(n, window, log_delta, log_tau)


def _power(log_base: float, exponent: int) -> float:
    """log(base^exponent), with 0^0 = 1."""
    return 0.0 if exponent == 0 else exponent * log_base


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)


# -------------------------------------------------------------------------------------------------------------- Lemma 2
#
# The spectral norm of E = Θ̂ − Θ from a bound c on its entries:
#
#     printed    σ_max(E) ≤ √n c      with c = (8/δ) τ^S
#     corrected  σ_max(E) ≤ n c       with c = (8/δ) τ^{S−1}
#
# The printed proof uses ‖Ay‖_∞ ≤ σ_max(A) ‖y‖ in the wrong direction. ‖Ey‖₂ ≤ √n ‖Ey‖_∞ ≤ √n c ‖y‖₁ ≤ n c ‖y‖₂ does
# hold, and no smaller power of n is enough: E = c 11ᵀ has σ_max = n c. Errors of Push-Sum, whose rows sum to zero, come
# close: 0.999 n c for two cliques of 64 clients joined by one edge each way (erratum 2).


@checked(n=Integer(), form=FORM)
def lemma2(n: int, entry: float, form: str = "corrected") -> float:
    """The right-hand side for n clients and |E_ij| ≤ `entry`: √n·entry ("printed") or n·entry ("corrected").

    Examples
    --------
    >>> hgp.bounds.lemma2(4, 0.1), hgp.bounds.lemma2(4, 0.1, "printed")
    (0.4, 0.2)
    """
    if not isinstance(entry, float) or entry != math.inf:  # that of a worst case may overflow
        entry = validation.nonnegative("entry", entry)
    if form == "printed":
        return math.sqrt(n) * entry
    return n * entry


@checked(constants=Instance(WorstCase), steps=Integer(), form=FORM)
def lemma2_worst_case(constants: WorstCase, steps: int, form: str = "corrected") -> float:
    """(8√n/δ) τ^S as printed, or (8n/δ) τ^{S−1} as corrected, with the worst-case δ and τ.

    Examples
    --------
    >>> constants = hgp.bounds.worst_case(2)
    >>> [f"{hgp.bounds.lemma2_worst_case(constants, steps=100, form=form):.1e}" for form in ("printed", "corrected")]
    ['1.5e-11', '2.7e-11']
    """
    entry = constants.printed(steps) if form == "printed" else constants.entry(steps)
    return lemma2(constants.n, entry, form)


@checked(form=FORM)
def lemma2_realised(K: np.ndarray, form: str = "corrected") -> float:
    """The right-hand side with c the largest entry of |K − 11ᵀ/n|, for an averaging matrix K (n, n).

    Examples
    --------
    >>> K = hgp.exact.push_sum_matrix(hgp.networks.RandomDirected(n=4, seed=0), 5)
    >>> bool(np.linalg.norm(K - 0.25, 2) <= hgp.bounds.lemma2_realised(K))
    True
    """
    K = validation.real_array("K", K, (None, None), "(n, n)")
    n = len(K)
    K = validation.real_array("K", K, (n, n), "(n, n)")
    return lemma2(n, float(np.abs(K - 1 / n).max()), form)
