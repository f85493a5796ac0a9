"""The error of mini-batch runs: with high probability (D), and in mean square (E).

Bound D, `minibatch_tail`: for mini-batches of size b, with probability at least 1 − ϵ,

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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from hgp_ref import validation
from hgp_ref.bounds import result
from hgp_ref.bounds.constants import ITERATIONS, Constants, SampleConstants, check_iterations, check_samples, geometric
from hgp_ref.bounds.result import Bound, conditions, finite, first_failure, not_applicable, power_of_two, product
from hgp_ref.bounds.series import consensus_part, truncation
from hgp_ref.validation import Boolean, Choice, Instance, Integer, Number, Positive, checked


@checked(
    c=Instance(Constants),
    s=Instance(SampleConstants),
    size=Integer(),
    failure=Number(),
    iterations=ITERATIONS,
    form=Choice("azuma", "bernstein"),
    shared=Boolean(),
)
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
    """Bound D: the error with batches of `size` instances, failing with probability at most `failure`.

    `form` is "azuma", with suprema, or "bernstein", with variances. `shared` says whether one batch serves both v and
    u. `total` holds with probability 1 − ϵ, and so does each entry of `per_client`.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> instances = [np.array([[[0.4]], [[0.6]]])] * 2
    >>> s = hgp.bounds.sample_constants(instances, instances, 1.0)
    >>> [round(hgp.bounds.minibatch_tail(c, s, size, failure=0.1).total, 3) for size in (1, 4)]
    [0.53, 0.265]
    """
    M = check_iterations(c, iterations)
    name = f"D ({form})"
    failed = first_failure({**result.probability(failure), **conditions(c, "D")})
    if failed:
        return not_applicable(name, failed)
    base = consensus_part(c, M, rho=max(s.rho, c.rho)) + truncation(c, M, c.g_bar)
    noise = _noise(c, s, size, failure, M, form, shared, J_norm=c.J_stacked, clients=c.n)
    terms = {"noise": noise, "bias": product(c.beta_norm, base)}
    per_client = np.array(
        [_noise(c, s, size, failure, M, form, shared, J_norm=b, clients=1) + product(b, base) for b in c.beta.tolist()]
    )
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
    """The largest increment of one sample from its deviations for v and u: the larger one, or both if aligned."""
    return for_v + for_u if shared else np.maximum(for_v, for_u)


def sum_of_squares(
    scale: np.ndarray, for_v: float, for_u: np.ndarray, size: int, n: int, clients: int, shared: bool
) -> float:
    """Σ over iterations, clients and samples of squared increments (bounds or variances).

    ε_x of all n clients counts, ε_λ of `clients` of them; in a shared batch the samples of these do both.
    """
    if shared:
        per_sample = clients * (for_v + for_u) ** 2 + (n - clients) * for_u**2
    else:
        per_sample = clients * for_v**2 + n * for_u**2
    return float(np.sum(scale**2 * size * per_sample))


# -------------------------------------------------------------------------------------------------------------- bound E
#
# `mean_square_error`: the exact mean-square error of a mini-batch run, from second moments,
#
#     E v = v of the run with exact Jacobians, hence    E‖v_i − d_i‖² = ‖E v_i − d_i‖² + Σ_m E‖D_i^(m)‖².
#
# Derivation. ū^(m) is fixed by the batches before m, and the batches of iteration m have mean H and J: E ū^(m)
# follows the exact recursion and E[Ĵ^(m) ū^(m)] = J E ū^(m). The deviation v − E v is the sum of the martingale
# differences
#
#     D^(m) = −η ε_λ^(m) ū^(m) + η² J Q_{m+1} ε_x^(m) ū^(m),     Q_m = Θ̂_m + Q_{m+1} (I − ηH) Θ̂_m,   Q_M = 0,
#
# where Q_m maps u^(m) to its part in Σ_{k≥m} ū^(k); they are uncorrelated. With C_m = E[u^(m) u^(m)ᵀ] and U =
# Θ̂_m C_m Θ̂_mᵀ,
#
#     C_{m+1} = (I − ηH) U (I − ηH) + η² blockdiag_i(Cov_i(U_ii)),
#     Cov_i(U) = c_i mean_s (H_i^(s) − H_i) U (H_i^(s) − H_i),
#
# because batches of different clients are independent. The mean of b of N_i instances has c_i = 1/b with
# replacement and (N_i − b)/((N_i − 1) b) without, 0 if the batch holds them all. If one batch serves v and u, ε_λ
# and ε_x of the same client are correlated and the cross term is added. Holds for any matrices K_m.


@dataclass(frozen=True)
class MeanSquareError:
    """E‖v_i − d_i‖² = bias² + variance, each (n,).

    Attributes
    ----------
    bias : ‖E v_i − d_i‖.
    variance : E‖v_i − E v_i‖².
    """

    bias: np.ndarray
    variance: np.ndarray

    @property
    def per_client(self) -> np.ndarray:
        """E‖v_i − d_i‖², (n,)."""
        return self.bias**2 + self.variance

    @property
    def total(self) -> float:
        """E‖v − d‖²."""
        return float(self.per_client.sum())


@checked(eta=Positive(), size=Integer(), replace=Boolean(), shared=Boolean())
def mean_square_error(
    H_samples: Sequence[np.ndarray],
    J_samples: Sequence[np.ndarray],
    f_x: np.ndarray,
    eta: float,
    matrices: Sequence[np.ndarray],
    size: int,
    *,
    replace: bool = False,
    shared: bool = False,
) -> MeanSquareError:
    """The mean-square error over all draws of batches of `size`, with the samples of `sample_derivatives`.

    `replace` says whether batches are drawn with replacement, `shared` whether one batch serves both v and u.

    Examples
    --------
    >>> instances = [np.array([[[0.4]], [[0.6]]])] * 2
    >>> K = [np.full((2, 2), 0.5)] * 20
    >>> error = hgp.bounds.mean_square_error(instances, instances, np.ones((2, 1)), 1.0, K, size=1)
    >>> error.bias.round(6), error.variance.round(4)
    (array([1.e-06, 1.e-06]), array([0.0201, 0.0201]))
    """
    f_x = validation.real_array("f_x", f_x, (None, None), "(n, d_x)")
    H_samples, J_samples = check_samples(H_samples, J_samples, *f_x.shape)
    n = len(f_x)
    K = validation.real_array("matrices", matrices, (None, n, n), "(M, n, n)")
    unit_f, unit_J = power_of_two(f_x), max(power_of_two(a) for a in J_samples)
    unit_H = max(power_of_two(a) for a in H_samples)
    f_x, eta = f_x / unit_f, eta * unit_H
    H_samples, J_samples = [a / unit_H for a in H_samples], [a / unit_J for a in J_samples]
    with np.errstate(over="ignore", invalid="ignore"):
        error = _mean_square(H_samples, J_samples, f_x, eta, K, size, replace, shared)
        factor = unit_J / unit_H * unit_f
        bias, variance = factor * error.bias, factor * factor * error.variance
    lost = factor == 0 or (factor * factor == 0 and error.variance.any())
    if lost or not np.isfinite([bias**2, variance]).all():
        raise ValueError(
            f"f_x, J_samples, H_samples, eta: the mean square of v, of the order of ({factor:.1e})², leaves the "
            "floating-point range; use other units, or a smaller eta if the series diverges"
        )
    return MeanSquareError(bias, variance)


def _mean_square(
    H_samples: Sequence[np.ndarray],
    J_samples: Sequence[np.ndarray],
    f_x: np.ndarray,
    eta: float,
    matrices: np.ndarray,
    size: int,
    replace: bool,
    shared: bool,
) -> MeanSquareError:
    """The recursions above."""
    n, d = f_x.shape
    H_dev = [a - a.mean(axis=0) for a in H_samples]  # (N_i, d, d) each
    J_dev = [a - a.mean(axis=0) for a in J_samples]
    H = block_diag(*(a.mean(axis=0) for a in H_samples))
    J = block_diag(*(a.mean(axis=0) for a in J_samples))
    factor = [sampling_factor(len(a), size, replace) for a in H_samples]
    step, Thetas = np.eye(n * d) - eta * H, [np.kron(K, np.eye(d)) for K in matrices]
    Q = _future(Thetas, step)
    C = np.outer(f_x.ravel(), f_x.ravel())  # E[u uᵀ]
    variance = np.zeros(n)
    for m, Theta_m in enumerate(Thetas):
        U = _blocks(Theta_m @ C @ Theta_m.T, n)  # (n, d, d), diagonal blocks
        cov = [f * np.einsum("sab,bc,sdc->ad", a, u, a) / len(a) for f, a, u in zip(factor, H_dev, U, strict=True)]
        B = eta * eta * (J @ Q[m + 1]).reshape(n, -1, n * d)  # (n, d_lam, nd), maps ε_x ū to v_i
        variance += _increments(B, U, cov, H_dev, J_dev, factor, eta, shared)
        C = step @ Theta_m @ C @ Theta_m.T @ step + eta * eta * block_diag(*cov)
    return MeanSquareError(_bias(H, J, f_x, eta, Q[0]), variance)


def sampling_factor(count: int, size: int, replace: bool) -> float:
    """c with Cov(mean of a batch) = c · Cov(one instance)."""
    if replace:
        return 1 / size
    return 0.0 if size >= count else (count - size) / ((count - 1) * size)


def _increments(
    B: np.ndarray,
    U: np.ndarray,
    cov: list[np.ndarray],
    H_dev: list[np.ndarray],
    J_dev: list[np.ndarray],
    factor: list[float],
    eta: float,
    shared: bool,
) -> np.ndarray:
    """E‖D_i^(m)‖² of one iteration, (n,)."""
    S = block_diag(*cov)
    squares = np.einsum("iab,bc,iac->i", B, S, B)
    d = U.shape[-1]
    for i, (a, h) in enumerate(zip(J_dev, H_dev, strict=True)):
        squares[i] += eta * eta * factor[i] * np.einsum("sab,bc,sac->", a, U[i], a) / len(a)
        if shared:
            both = factor[i] * np.einsum("sab,bc,sdc->ad", h, U[i], a) / len(a)  # E[ε_x U ε_λᵀ]
            squares[i] -= 2 * eta * np.trace(B[i, :, i * d : (i + 1) * d] @ both)
    return squares


def _future(Thetas: list[np.ndarray], step: np.ndarray) -> list[np.ndarray]:
    """Q_0 … Q_M."""
    Q = [np.zeros_like(step)]
    for Theta_m in reversed(Thetas):
        Q.append(Theta_m + Q[-1] @ step @ Theta_m)
    return Q[::-1]


def _bias(H: np.ndarray, J: np.ndarray, f_x: np.ndarray, eta: float, Q: np.ndarray) -> np.ndarray:
    """‖J_i (w* − E w_i)‖ with E w = η Q_0 ∂_x f, (n,)."""
    n = len(f_x)
    w_star = np.linalg.solve(_blocks(H, n).sum(axis=0), f_x.sum(axis=0))
    missing = np.tile(w_star, n) - eta * Q @ f_x.ravel()
    return np.linalg.norm((J @ missing).reshape(n, -1), axis=1)


def _blocks(A: np.ndarray, n: int) -> np.ndarray:
    """The n diagonal blocks of a square A, (n, d, d)."""
    d = len(A) // n
    return np.stack([A[i * d : (i + 1) * d, i * d : (i + 1) * d] for i in range(n)])
