"""Bounds on the error of the Neumann series (A, B) and of the Chebyshev iteration (F), from realised constants.

Bound A, `contracting_clients`: for every client, any S ≥ 1 and any M,

    ‖v_i − d_i‖ ≤ β_i [ η G∞ Σ_{j<M} γ_j ρ^j (1 + ρ g_{M−1−j}) + ρ̄^M ‖ḡ‖/ᾱ ],      g_k = Σ_{t<k} ρ̄^t.

Derivation. v_i − d_i = J_i (w* − w_i) with w = η Σ_m ū^(m), ū^(m) = Θ̂_m u^(m), u^(m+1) = (I − ηH) ū^(m). Write
T = (I − ηH)Θ and E_j = Θ̂_j − Θ. Telescoping, u^(m) − T^m ∂f = Σ_{j<m} T^{m−1−j} (I − ηH) E_j u^(j), and as
ΘT^k = (I − ηH̄)^k Θ,

    ū^(m) − ΘT^m ∂f = E_m u^(m) + Σ_{j<m} (I − ηH̄)^{m−1−j} Θ (I − ηH) E_j u^(j).

K_j is row-stochastic and non-negative, so max_i ‖u_i^(j)‖ ≤ ρ^j G∞ and max_i ‖(E_j u^(j))_i‖ ≤ γ_j ρ^j G∞; an
average of (I − ηH_i)(·)_i costs a factor ρ. Summing over m gives the first part. The second is the tail of the
exact-average series, H̄⁻¹ (I − ηH̄)^M ḡ, whose norm is at most ρ̄^M ‖ḡ‖/ᾱ.

The finite form does not need ρ < 1. With ρ < 1 and γ_j ≤ γ the first part is below η β_i γ G∞ /(1 − ρ)² for every M.
"""

from __future__ import annotations

import math

import numpy as np

from hgp_ref import validation
from hgp_ref.bounds.constants import ITERATIONS, Constants, check_iterations, geometric
from hgp_ref.bounds.result import (
    UNIT,
    Bound,
    conditions,
    consensus_and_disagreement,
    finite,
    first_failure,
    not_applicable,
    product,
)
from hgp_ref.rounding import norm
from hgp_ref.validation import Instance, Integer, Nonnegative, Number, checked


@checked(c=Instance(Constants), iterations=ITERATIONS)
def contracting_clients(c: Constants, iterations: int | None = None) -> Bound:
    """Bound A: the error of Algorithm 2 if every client contracts.

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
    failed = first_failure(conditions(c, "A"))
    if failed:
        return not_applicable("A", failed)
    consensus, tail = consensus_part(c, M), truncation(c, M, c.g_bar)
    terms = {"consensus": product(c.beta_norm, consensus), "truncation": product(c.beta_norm, tail)}
    per_client = np.array([product(b, consensus + tail) for b in c.beta.tolist()])
    return finite(Bound("A", product(c.beta_norm, consensus + tail), per_client, terms=terms))


def consensus_part(c: Constants, M: int, rho: float | None = None) -> float:
    """η G∞ Σ_{j<M} γ_j ρ^j (1 + ρ g_{M−1−j}): the effect of averaging errors on w; `rho` may be a larger rate."""
    rho = c.rho if rho is None else validation.nonnegative("rho", rho)
    j = np.arange(M)
    with np.errstate(over="ignore", invalid="ignore"):
        series = np.sum(c.gamma[:M] * rho**j * (1 + rho * geometric(c.rho_bar, M)[M - 1 - j]))
    return product(c.eta, c.G_inf, float(np.nan_to_num(series, nan=math.inf)))


def truncation(c: Constants, M: int, size: float) -> float:
    """ρ̄^M size/ᾱ: the error of w after M iterations with exact averages. The size is ‖ḡ‖, or a₀ for all clients."""
    try:
        return product(c.rho_bar**M, size, 1 / c.alpha_bar)
    except OverflowError:
        return math.inf


def floor(c: Constants) -> float:
    """√Σβ_i² η γ G∞ /(1 − ρ)² with γ the largest γ_j: a bound on the consensus part for every M; ∞ if ρ ≥ 1."""
    if c.rho >= 1:
        return math.inf
    return product(c.beta_norm, c.eta, float(c.gamma.max()), c.G_inf, (1 - c.rho) ** -2)


# -------------------------------------------------------------------------------------------------------------- bound B
#
# `convex_mean` needs only H̄ ≻ 0; the clients' Hessians may be indefinite. Start with a = a₀, s = s₀, F = 0 and for j =
# 0 … M−1
#
#     F += s [ε⊥_j (1 + ηζ g_{M−1−j}) + ε∥_j g_{M−j}],
#     (a, s) ← (ρ̄ (a + ε∥_j s) + ηζ ε⊥_j s,  ηζ (a + ε∥_j s) + ρ⊥ ε⊥_j s).
#
# Then ‖v − d‖ ≤ β [η F + ρ̄^M a₀/ᾱ] and ‖v_i − d_i‖ ≤ β_i [η F + ρ̄^M ‖ḡ‖/ᾱ].
#
# Derivation. a and s bound ‖Θu^(j)‖ and ‖(I − Θ)u^(j)‖. As K1 = 1, E_j = E_j (I − Θ): averaging leaves Θu alone
# up to Θ E_j u, of norm ≤ ε∥_j s, and shrinks disagreement to (I − Θ) E_j u, of norm ≤ ε⊥_j s. The step I − ηH
# maps consensus to consensus with norm ρ̄, disagreement to disagreement with norm ρ⊥, and one to the other with
# norm ηζ (H is symmetric): the recursion. In the telescoped sum of bound A, the term of E_j u^(j) splits into its
# consensus part e∥, which contributes Σ_{k<M−j} (I − ηH̄)^k e∥, and its disagreement part e⊥, which contributes
# itself and −η Σ_{k<M−1−j} (I − ηH̄)^k Θ H e⊥: the increments of F. Only K1 = 1 is used, not K ≥ 0.


@checked(c=Instance(Constants), iterations=ITERATIONS)
def convex_mean(c: Constants, iterations: int | None = None) -> Bound:
    """Bound B: the error of Algorithm 2 if only the mean Hessian is positive definite.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> bound = hgp.bounds.convex_mean(c)
    >>> bound.applicable, f"{bound.total:.2e}"
    (True, '1.35e-06')
    """
    M = check_iterations(c, iterations)
    failed = first_failure(conditions(c, "B"))
    if failed:
        return not_applicable("B", failed)
    consensus, tail = product(c.eta, averaging_sum(c, M)), truncation(c, M, c.a0)
    terms = {"consensus": product(c.beta_max, consensus), "truncation": product(c.beta_max, tail)}
    w_error = consensus + tail / np.sqrt(c.n)  # of any client; the tail is the same at every one
    per_client = np.array([product(b, w_error) for b in c.beta.tolist()])
    return finite(Bound("B", product(c.beta_max, consensus + tail), per_client, terms=terms))


def averaging_sum(c: Constants, M: int) -> float:
    """F of the recursion above after M calls; the inexact averages add η F to the bound on w."""
    g = geometric(c.rho_bar, M)
    j, unit = np.arange(M), max(c.a0, c.s0)
    if unit == 0:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        weights = c.eps_perp[:M] * (1 + c.eta * c.zeta * g[M - 1 - j]) + c.eps_par[:M] * g[M - j]
        F = np.sum(consensus_and_disagreement(c, M, unit)[1] * weights)
    return product(unit, float(np.nan_to_num(F, nan=math.inf)))


# -------------------------------------------------------------------------- the Chebyshev iteration with exact averages
#
#     ‖v − d‖ ≤ √Σβ_i² · 2q^M/(1 + q^{2M}) · ‖w*‖,    q = (√κ − 1)/(√κ + 1),   κ = b/a,   a ≤ λ(H̄) ≤ b.
#
# From w = 0, after M steps w* − w = p(H̄) w* with p of degree M, p(0) = 1 and sup_{[a,b]} |p| = 1/T_M((κ + 1)/(κ
# − 1)), which is 2q^M/(1 + q^{2M}); and ‖v_i − d_i‖ ≤ β_i ‖w* − w‖. With Push-Sum in place of the mean it is
# bound F (`chebyshev_push_sum`), or the bounds C of a finished run.


@checked(w_norm=Nonnegative(), low=Number(), high=Number(), iterations=Integer(0))
def chebyshev(
    beta: np.ndarray, w_norm: float, low: float, high: float, iterations: int, spectrum: tuple[float, float]
) -> Bound:
    """The bound after M = `iterations` with exact averages, for β_i (n,) and ‖w*‖.

    `low` and `high` are the interval that the method used, `spectrum` the smallest and largest eigenvalue of H̄.

    Examples
    --------
    >>> f"{hgp.bounds.chebyshev(np.ones(2), 1.0, 0.5, 2.0, iterations=10, spectrum=(0.5, 2.0)).total:.2e}"
    '4.79e-05'
    """
    beta = validation.real_array("beta", beta, (None,), "(n,)", low=0.0)
    smallest, largest = validation.real_array("spectrum", spectrum, (2,), "(2,)").tolist()
    failed = first_failure(
        {
            f"0 < low <= high (low = {low:.3g}, high = {high:.3g})": 0 < low <= high,
            f"low <= smallest eigenvalue of the mean Hessian {smallest:.3g}": low <= smallest,
            f"high >= largest eigenvalue of the mean Hessian {largest:.3g}": high >= largest,
        }
    )
    if failed:
        return not_applicable("Chebyshev", failed)
    factor = product(reduction(high / low, iterations), w_norm)
    per_client = np.array([product(b, factor) for b in beta.tolist()])
    return finite(Bound("Chebyshev", product(norm(beta), factor), per_client))


def reduction(kappa: float, iterations: int) -> float:
    """2q^M/(1 + q^{2M})."""
    root = math.sqrt(kappa)
    q = (root - 1) / (root + 1)
    return 2 * q**iterations / (1 + q ** (2 * iterations))


# -------------------------------------------------------------------------------------------------------------- bound F
#
# `chebyshev_push_sum`: the Chebyshev iteration with inexact averages; needs only H̄ ≻ 0. For an interval [low, high]
# around the spectrum of H̄ with centre c, half width h, σ = c/h, τ_k = T_k(σ), start with t = 0, s = s₀ and for k = 0 …
# M−1
#
#     i_k = ε∥_k s + ζ t,                          t ← a_k ε⊥_k s + b_k t,
#     s ← ε⊥_k s + ζ [δ_k a₀ + Σ_{j≤k} δ_kj i_j] + max_i ‖H_i‖ t.
#
# Then with F∥ = a₀/(ᾱ τ_M) + Σ_{j<M} χ_j i_j and F⊥ = Σ_k t_k (t after iteration k)
#
#     ‖v − d‖ ≤ β √(F∥² + F⊥²),        ‖v_i − d_i‖ ≤ β_i (F∥/√n + F⊥).
#
# Derivation. Write r̂_k = Θ̂_k r_k, p_k = a_k r̂_k + b_k p_{k−1}, w_{k+1} = w_k + p_k, r_{k+1} = r̂_k − H p_k and
# split: D_k = Θp_k, T_k = (I − Θ)p_k. As K1 = 1, r̂_k = Θr_k + e∥ + e⊥ with ‖e∥‖ ≤ ε∥_k s_k and ‖e⊥‖ ≤ ε⊥_k s_k, s_k =
# ‖(I − Θ)r_k‖. Disagreement: T_k = a_k e⊥ + b_k T_{k−1} (momentum carries it on unaveraged) and (I − Θ)r_{k+1} = e⊥ −
# (I − Θ)H (D_k + T_k), where ‖(I − Θ)HΘ‖ = ζ. Consensus: with R_k = Θr_k + e∥_k,
#
#     D_k = a_k R_k + b_k D_{k−1},     R_{k+1} = R_k − H̄ D_k + ι_{k+1},     ι_k = e∥_k − ΘH T_{k−1},   ‖ι_k‖ ≤ i_k:
#
# the exact iteration into which ι_j is injected at step j. All is linear: D_k = δ_k(H̄) Θ∂f + Σ_j δ_kj(H̄) ι_j, and
# Θw_M − w* = −T_M(Z)/τ_M w* + Σ_j χ_j(H̄) ι_j, where Z = (c − λ)/h runs through [−1, 1]. What remains are suprema over
# λ.
#
# An injection of 1 at step j finds p_{j−1} = 0, as if the residual had been 1 at j − 1 as well. Because of ρ_k =
# τ_k/τ_{k+1}, a_k = 2ρ_k/h, b_k = ρ_k ρ_{k−1} (a₀ is half of that) the residual y_k/τ_k obeys y_{k+1} = 2Z y_k −
# y_{k−1}, so that from y_j = τ_j, y_{j−1} = τ_{j−1} on, with m = k − j,
#
#     y_k = τ_j U_m(Z) − τ_{j−1} U_{m−1}(Z),
#
# which is τ_k at Z = σ. What it has added to w by step M is (1 − y_M/τ_M)/λ, a divided difference of y_M between σ and
# Z. (U_m(σ) − U_m(Z))/(σ − Z) = 2 Σ_{i<m} U_{m−1−i}(σ) U_i(Z) gives, summed with τ_j and −τ_{j−1},
#
#     χ_j = (2/(h τ_M)) Σ_{i<M−j} τ_{M−1−i} U_i(Z)       (for j = 0 the last term halved).
#
# Every coefficient is positive and |U_i(Z)| ≤ i + 1 = U_i(1), so the supremum is at Z = 1, λ = low:
#
#     sup |χ_j| = (1 − [τ_j + (M − j)(τ_j − τ_{j−1})]/τ_M)/low ≤ 1/low,      sup |χ_0| = (1 − 1/τ_M)/low.
#
# No injection is amplified beyond 1/low. The increments are differences of these sums,
#
#     δ_kj = (2/(h τ_k τ_{k+1})) [τ_j τ_k U_m(Z) − ½ Σ_{i<m} (τ_{i+2} − τ_i) U_i(Z)],      m = k − j, j ≥ 1,
#
# bounded by their value at Z = 1 with + in place of −; and δ_k = δ_k0 = (2/(h τ_k τ_{k+1})) (½ + Σ_{1≤i≤k} τ_i T_i(Z))
# has positive coefficients: its supremum (1/τ_k − 1/τ_{k+1})/low is attained. Nothing here is estimated numerically.
#
# Rounding. Let u = 2^−52 and let the computed quantities satisfy
#
#     r̂_k = Θ̂_k r_k + ρ_k,   p_k = a_k r̂_k + b_k p_{k−1} + π_k,   r_{k+1} = r̂_k − H p_k + σ_k,
#     ‖ρ_k‖ ≤ u S (n + 3) √n ‖r_k‖,    ‖π_k‖ ≤ u θ (a_k ‖r̂_k‖ + b_k ‖p_{k−1}‖),   θ = 1 + 6/(1 − q²),
#     ‖σ_k‖ ≤ u (‖r̂_k‖ + (d_x + 2)√d_x ‖H‖ ‖p_k‖) + ω ‖Θp_k‖.
#
# The first and the third are those of `rounding`. θ has the coefficients' own errors: ρ_k = 1/(2σ − ρ_{k−1}) passes a
# relative error on times ρ_k ρ_{k−1} ≤ q² and adds that of σ, so that it stays below 6 (u/2)/(1 − q²), and b_k has two
# of them. ω is how far the spectrum of H̄ may leave [low, high], which is known to 4 (n + d_x) u ‖H‖ only: a matrix
# with its spectrum inside acts in its place, and w* moves by ω a₀/(ᾱ low) at most. All enter the recursion above: ρ_k
# and σ_{k−1} are further parts of ι_k and e⊥_k, and π_k is one of T_k and, on consensus, an injection of π_k/a_k at
# step k that is taken back at step k + 1. The sizes are ‖p_k‖ ≤ ‖D_k‖ + ‖T_k‖ and ‖Θr_k‖ ≤ a₀/τ_k + Σ_{j<k} η_kj i_j +
# what is new in ι_k, where η_kj = ((k − j + 1) τ_j + (k − j) τ_{j−1})/τ_k ≥ |y_k/τ_k|. At last come the roundings of
# the sums w and v, of the product J_i w_i and of d. The difference to F without any of this is the term "rounding" of
# the total. As in `rounding`, products are taken to be as good as those of an explicit matrix, and f_lam and steps of
# `c` count.
#
# Only K_m 1 = 1 is used: Push-Sum with weights that are reset, gossip, exact averages (then F is `chebyshev`), any S_m.


@checked(c=Instance(Constants), iterations=ITERATIONS, low=Number(), high=Number())
def chebyshev_push_sum(c: Constants, low: float, high: float, iterations: int | None = None) -> Bound:
    """Bound F: the error of `methods.Chebyshev(low, high)` with inexact averages.

    The η of the constants does not matter.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> net, method = hgp.networks.RandomDirected(n=3, seed=1), hgp.methods.Chebyshev(0.09, 1.1)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 20), method=method, iterations=30)
    >>> H, J = hgp.exact.hessians(problem, x, lam), hgp.exact.jacobians(problem, x, lam)
    >>> f_x, K = hgp.exact.outer_gradients(problem, x, lam)[0], hgp.exact.push_sum_matrices(net, 20, 30)[0]
    >>> bound = hgp.bounds.chebyshev_push_sum(hgp.bounds.realised_constants(H, J, f_x, 1.0, K), 0.09, 1.1)
    >>> bool(np.linalg.norm(est.value - hgp.exact.hypergradient(problem, x, lam)) <= bound.total)
    True
    """
    M = check_iterations(c, iterations)
    margin = 8 * (c.n + c.d_x) * UNIT * max(abs(c.alpha), abs(c.L))  # the rounding error of ᾱ and L̄
    failed = first_failure(
        {
            f"0 < low <= high (low = {low:.3g}, high = {high:.3g})": 0 < low <= high,
            **conditions(c, "F"),
            f"low <= smallest eigenvalue of the mean Hessian {c.alpha_bar:.3g}": low - margin <= c.alpha_bar,
            f"high >= largest eigenvalue of the mean Hessian {c.L_bar:.3g}": high + margin >= c.L_bar,
        }
    )
    if failed:
        return not_applicable("F", failed)
    unit = max(c.a0, c.s0) or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        injected, disagreement, tail, _ = (product(unit, x) for x in _error_parts(c, low, high, M, unit, 0.0))
        injected_r, disagreement_r, tail_r, sums = (product(unit, x) for x in _error_parts(c, low, high, M, unit, UNIT))
    beta, outer = c.beta_max, 3 * UNIT * c.f_lam
    exact, rounded = math.hypot(injected + tail, disagreement), math.hypot(injected_r + tail_r, disagreement_r)
    terms = {"injected": product(beta, injected), "disagreement": product(beta, disagreement)}
    terms["truncation"] = product(beta, tail)
    total = product(beta, rounded) + product(beta, sums) + outer
    terms["rounding"] = math.inf if math.isinf(total) else total - product(beta, exact)
    w_error = (injected_r + tail_r) / math.sqrt(c.n) + disagreement_r  # of any client
    per_client = np.array([product(b, w_error) + product(beta, sums) + outer for b in c.beta.tolist()])
    return finite(Bound("F", total, per_client, terms=terms))


def _error_parts(
    c: Constants, low: float, high: float, M: int, unit: float, u: float
) -> tuple[float, float, float, float]:
    """Σ χ_j i_j, Σ t_k, a₀/(ᾱ τ_M) and the rounding of sums and products, in units of `unit`; infinite on overflow.

    `u` is 2^−52, or 0 for exact arithmetic. The letters are those of the derivation; D, p, r̂ are bounds on norms.
    """
    poly = Responses(low, high)
    H, a0, s, t = max(abs(c.alpha), abs(c.L)), c.a0 / unit, c.s0 / unit, 0.0
    averaging, products = u * c.steps * (c.n + 3) * math.sqrt(c.n), u * (c.d_x + 2) * math.sqrt(c.d_x)
    margin = 4 * (c.n + c.d_x) * UNIT * H
    outside = max(0.0, low - c.alpha_bar, c.L_bar + margin - high) if u else 0.0  # ω
    f_lam = c.f_lam / c.beta_max / unit if c.beta_max else 0.0
    injected, disagreement, w, sums = np.zeros(M), 0.0, 0.0, 0.0  # i_k; Σ t_k; ‖w_k‖; rounding of sums
    p = carried = 0.0  # ‖p_{k−1}‖; ‖σ_{k−1}‖ and what is taken back of π_{k−1}/a_{k−1}
    for k in range(M):
        a, b = poly.a(k), poly.b(k)
        new = c.zeta * t + carried  # of i_k, apart from averaging
        consensus = float(poly.residuals(k)[:k] @ injected[:k]) + poly.ratio(0, k) * a0 + new  # ‖Θr_k‖
        rho = averaging * (consensus + s)
        e_perp = c.eps_perp[k] * s + rho
        rhat = consensus + c.eps_par[k] * s + e_perp
        pi = u * poly.coefficient_errors * (a * rhat + b * p)
        injected[k] = c.eps_par[k] * s + new + rho + pi / a
        t = a * e_perp + b * t + pi
        D = poly.first_increment(k) * a0 + float(poly.increments(k) @ injected[: k + 1])
        p = D + t
        sigma = u * rhat + products * H * p + outside * D
        carried = pi / a + sigma
        s = e_perp + c.zeta * D + H * t + sigma
        disagreement += t
        w += p
        sums += min(u * (f_lam + 3 * w), 3 * p)
    tail = a0 / c.alpha_bar * poly.ratio(0, M)
    sums += products * w + (u + outside / low) * a0 / c.alpha_bar
    parts = (float(poly.sums(M) @ injected), disagreement, tail, sums)
    return tuple(math.inf if math.isnan(x) else float(x) for x in parts)  # type: ignore[return-value]


class Responses:
    """a_k, b_k and the suprema of the derivation, through q = (√κ − 1)/(√κ + 1): τ_k = (q^k + q^−k)/2."""

    def __init__(self, low: float, high: float) -> None:
        root = math.sqrt(high / low)
        self.low, self.centre, self.root, self.q = low, low / 2 + high / 2, root, (root - 1) / (root + 1)

    def ratio(self, i: int | np.ndarray, k: int) -> float | np.ndarray:
        """τ_i/τ_k for i ≤ k."""
        return self.q ** (k - i) * (1 + self.q ** (2 * i)) / (1 + self.q ** (2 * k))

    def _twice(self, i: int | np.ndarray, k: int) -> float | np.ndarray:
        """(2/h) τ_i/τ_{k+1} for i ≤ k; as h = 2cq/(1 + q²), without dividing by h, which may be 0."""
        q = self.q
        return (1 + q * q) / self.centre * q ** (k - i) * (1 + q ** (2 * i)) / (1 + q ** (2 * k + 2))

    @property
    def coefficient_errors(self) -> float:
        """θ of the derivation, 1 + 6/(1 − q²); 1 − q² = 4√κ/(√κ + 1)² does not cancel."""
        return 1 + 1.5 * (self.root + 1) ** 2 / self.root

    def residuals(self, k: int) -> np.ndarray:
        """η_kj ≥ |y_k/τ_k| for an injection at step j = 0 … k, (k + 1,); of the start for j = 0."""
        j = np.arange(k + 1)
        bounds = (k - j + 1) * self.ratio(j, k) + (k - j) * self.ratio(np.maximum(j - 1, 0), k)
        bounds[0] = self.ratio(0, k)
        return bounds

    def a(self, k: int) -> float:
        """a_k."""
        return float(self._twice(k, k)) / (1 if k else 2)

    def b(self, k: int) -> float:
        """b_k."""
        return float(self.ratio(k - 1, k + 1)) if k else 0.0

    def first_increment(self, k: int) -> float:
        """sup |δ_k| = (1/τ_k − 1/τ_{k+1})/low."""
        return float(self.ratio(0, k) * (1 - self.ratio(k, k + 1))) / self.low

    def increments(self, k: int) -> np.ndarray:
        """Bounds on |δ_kj| for j = 0 … k, (k + 1,)."""
        m = np.arange(k, -1, -1)  # k − j
        grown = np.where(m > 0, self._grown(k), 0.0)
        bounds = (m + 1) * self._twice(k - m, k) + grown
        bounds[0] = self.first_increment(k)
        return bounds

    def _grown(self, k: int) -> np.ndarray:
        """(1/(h τ_k τ_{k+1})) Σ_{i<m} (i + 1)(τ_{i+2} − τ_i) for m = k … 0, (k + 1,)."""
        i = np.arange(k)
        # τ_{i+2} − τ_i = 2 sinh(θ) sinh((i + 1)θ) with q = e^−θ; 2 sinh θ = (1 − q²)/q, h = 2cq/(1 + q²).
        q = self.q
        scale = (1 - q * q) * (1 + q * q) / (self.centre * (1 + q ** (2 * k)) * (1 + q ** (2 * k + 2)))
        terms = (i + 1) * q ** (2 * k - 2 - i) * (1 - q ** (2 * i + 2))
        return scale * np.concatenate([[0.0], np.cumsum(terms)])[::-1]

    def sums(self, M: int) -> np.ndarray:
        """sup |χ_j| for j = 0 … M−1, (M,)."""
        j = np.arange(M)
        y = self.ratio(j, M) + (M - j) * (self.ratio(j, M) - self.ratio(np.maximum(j - 1, 0), M))
        y[0] = self.ratio(0, M)
        return np.maximum(1 - y, 0.0) / self.low
