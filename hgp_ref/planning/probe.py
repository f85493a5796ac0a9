"""Measurements before a plan: the spectra of the clients' Hessians, and how fast their network averages.

1. Every client computes the extreme eigenvalues of its H_i by Lanczos, without messages.
2. Rounds of scalars (`methods.spectrum`) give τ, the contraction of a round of Push-Sum, and bounds on
   mean_i λ_min(H_i) ≤ ᾱ and mean_i λ_max(H_i) ≥ L̄. Max-consensus gives max_i ‖H_i‖, max_i ‖∂_x f_i‖ and max_i ‖J_i‖.
3. `refine_spectrum`: a few steps of Lanczos on H̄, from a vector that all clients know. Each step averages H_i q over
   enough rounds to leave about ACCURATE of the disagreement. With Ritz values θ_1 … θ_k and their residuals e_1, e_k
   (|β_k| times the last entry of their vectors), k as large as that disagreement allows (`_ritz`), the interval is

       [CAREFUL · √(θ_1 · max(θ_1 − e_1, low of step 2, θ_1/100)),  min(θ_k + max(e_k, m), high of step 2)],

   a compromise between certain and measured values. m = θ_k (log d / (k − 1))² / 10 is about what Lanczos misses in one
   of twenty random matrices. ζ is the largest ‖H_i q − H̄q‖.

   If step 2 gives no positive lower bound, averaged products might show the clients' disagreement instead of a
   spectrum. Clients therefore first average qᵀH_i q for one common vector q, over more and more rounds, until the
   interval that contains qᵀH̄q excludes 0. If it is negative, or still contains 0 after MOST_ROUNDS rounds or at the
   level of rounding, ValueError says that there is no plan.

Over reliable links clients look for a spanning tree first (`probe_tree`). Along it, means are exact, and the scalars of
step 2 take 2(n − 1) messages each for means and maxima.

A few graphs of a few clients say little about τ: 12/n rounds with τ = PRIOR are added to the measured ones.

What is certain: step 2 encloses the means of the Lanczos values, rounding included, also over unreliable links. Lanczos
values lie inside the spectrum. They are the extreme eigenvalues up to rounding if d_x is at most the 30 products and
the start is not orthogonal to their eigenvectors; otherwise they are estimates. Everything else is an estimate, good
enough to choose a plan, whose run is certified afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64
from hgp_ref.methods.spectrum import (
    MOST_ROUNDS,
    SAFETY,
    averaging_rounding,
    client_extremes,
    measure_mixing,
    row_norms,
    start_rows,
)
from hgp_ref.mixing import Mixer, SpanningTree, Traffic, TreeAverage, TreeChannel, push_sum_for, start_averaging
from hgp_ref.networks import Network
from hgp_ref.problems.base import FullProblem
from hgp_ref.results import Result

ACCURATE = 0.05  # share of the disagreement left in an averaged product with H̄
NOISE = 5.0  # largest asymmetry of T, in multiples of its smallest Ritz value; if that is negative, its inverse
ROUNDED = 16 * float(np.finfo(np.float64).eps)  # asymmetry of T per product, relative to its size, from rounding alone
CAREFUL = 0.9  # factor on the lower end, because overestimating it costs more than underestimating
MOST_PRODUCTS = 8  # with H̄
CHECKED_GRAPHS = 100  # in which every client must be reached
PROBES = 4  # products behind the estimate of ‖J_i‖
PRIOR = 0.5  # guess of τ before any measurement
NOT_CONVEX = (
    "problem: the mean inner cost must be strongly convex at x, but its Hessian was not found to be positive definite"
)
FAST, SLOWEST = 1e-6, 1 - 1e-9  # τ is clipped to this range


@dataclass(frozen=True)
class Diagnostics(Result):
    """Estimates of a problem's spectrum at a point and of a network's mixing; see `hgp_ref.planning.probe`.

    Attributes
    ----------
    low : lower end of the spectrum of H̄; not positive if unknown.
    high : upper end of the spectrum of H̄.
    largest : max_i ‖H_i‖.
    zeta : how far clients' Hessians are apart, ‖(I − Θ)HΘ‖.
    tau : contraction of a round of Push-Sum; 0 for exact means along a spanning tree.
    size : max_i ‖J_i‖ max_i ‖∂_x f_i‖; size/low bounds v − ∂_λ f. None for relative targets.
    products : with H̄ in `refine_spectrum`; 0 without it.
    traffic : of the measurements.
    client_low : a lower bound on mean_i λ_min(H_i), from step 2.
    """

    low: float
    high: float
    largest: float
    zeta: float
    tau: float
    size: float | None
    products: int
    traffic: Traffic
    client_low: float = math.nan

    @property
    def graphs(self) -> int:
        """How many graphs the measurements used."""
        return int(self.traffic.rounds)

    def rounds_to(self, share: float) -> int:
        """Rounds of Push-Sum, at least 1, after which `share` (0 to 1) of a disagreement is left."""
        share = validation.between("share", share, 1e-300, 1.0)
        return max(1, math.ceil(math.log(share) / math.log(min(max(self.tau, FAST), SLOWEST))))


def probe(problem: FullProblem, x: Array, lam: Array, net: Network, with_size: bool) -> tuple[Diagnostics, Mixer]:
    """Steps 1 and 2, and the averaging they used; `with_size` for absolute targets."""
    mixer = start_averaging([push_sum_for(net, 1)], problem.n_clients, x, CHECKED_GRAPHS)
    averaged, sizes = _client_columns(problem, x, lam, mixer, with_size)
    mixing = measure_mixing(mixer, x, averaged, sizes)
    tau = _with_prior(float(mixing.tau), mixing.rounds, net.n)
    return _diagnostics(mixing.upper_means, mixing.maxima, mixing.rounding, tau, mixer), mixer


def probe_tree(
    problem: FullProblem, x: Array, lam: Array, net: Network, with_size: bool
) -> tuple[Diagnostics, Mixer, SpanningTree]:
    """The same over a spanning tree: its means are exact, so that τ need not be measured. Finds the tree first."""
    mixer = start_averaging([TreeAverage(net)], problem.n_clients, x, 1)
    averaged, sizes = _client_columns(problem, x, lam, mixer, with_size)
    means = host_float64(mixer.average(from_host(averaged.astype(host_dtype(x)), like=x)))[0]
    top = mixer.channel.max_consensus(sizes, x)
    rounding = averaging_rounding(mixer.channel, 1, float(np.finfo(host_dtype(x)).eps))
    assert isinstance(mixer.channel, TreeChannel)
    return _diagnostics(means, top, rounding, 0.0, mixer), mixer, mixer.channel.tree(x)


def _client_columns(
    problem: FullProblem, x: Array, lam: Array, mixer: Mixer, with_size: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What clients find out alone: −λ_min and λ_max of H_i, to be averaged, and sizes of which the maxima are taken."""
    mixer.channel.check_client_ids(problem.clients)
    linearization = problem.linearize(x, lam)
    low, high = client_extremes(linearization, x)
    sizes = [SAFETY * np.maximum(np.abs(low), np.abs(high))]
    if with_size:
        f_x = problem.outer_grad(x, lam)[0]
        sizes += [host_float64(row_norms(f_x)), _cross_norms(linearization.cross, x)]
    above = np.where(high > 0, SAFETY * high, high / SAFETY)
    return np.stack([-low, above], axis=1), np.stack(sizes, axis=1)


def _diagnostics(means: np.ndarray, top: np.ndarray, rounding: float, tau: float, mixer: Mixer) -> Diagnostics:
    """Diagnostics from bounds on the means of −λ_min and λ_max, and the maxima `top` over clients."""
    rounded = rounding * float(top[0])
    least = -float(means[0]) - rounded
    return Diagnostics(
        low=least,
        high=float(means[1]) + rounded,
        largest=float(top[0]),
        zeta=float(top[0]) / 2 - min(least, float(top[0])) / 2,
        tau=tau,
        size=float(top[1]) * float(top[2]) if len(top) > 1 else None,
        products=0,
        traffic=mixer.channel.traffic,
        client_low=least,
    )


def _with_prior(tau: float, rounds: int, n: int) -> float:
    """The geometric mean of τ over the measured rounds and of PRIOR over 12/n more; τ itself for a single client."""
    weight = 12 / n
    measured = rounds * math.log(max(tau, FAST))
    return tau if n == 1 else math.exp((measured + weight * math.log(PRIOR)) / (rounds + weight))


def _cross_norms(cross: Callable[[Array], Array], x: Array) -> np.ndarray:
    """Estimates of ‖J_i‖, (n,): the largest ‖J_i z‖/‖z‖ over a few vectors, times √d / 2 where d is large."""
    xp = array_namespace(x)
    rows = start_rows(x)
    vectors = [xp.roll(rows, k, axis=-1) for k in range(PROBES)]
    gains = [host_float64(row_norms(cross(z)) / row_norms(z)) for z in vectors]
    return np.max(gains, axis=0) * max(1.0, math.sqrt(x.shape[-1]) / 2)


def products_worth(known: Diagnostics, d: int) -> int:
    """How many products with H̄ to average: about half of what Chebyshev needs for a factor e, at least 2."""
    kappa = known.high / known.low if known.low > 0 else MOST_PRODUCTS**2 * 4.0
    return min(d, MOST_PRODUCTS, max(2, round(math.sqrt(kappa) / 2)))


def refine_spectrum(known: Diagnostics, mixer: Mixer, problem: FullProblem, x: Array, lam: Array) -> Diagnostics:
    """Step 3: Lanczos on the mean Hessian.

    `methods.spectrum.extremes` takes products with one symmetric matrix. Averaged products are not: clients disagree,
    so we form all of T = (q_jᵀ y_k) for every client, and its asymmetry tells `_ritz` how many products to trust.
    """
    k, steps = products_worth(known, x.shape[-1]), known.rounds_to(ACCURATE)
    xp, hvp = array_namespace(x), problem.linearize(x, lam).hvp
    rows = start_rows(x)
    Q, Y, apart = [rows / row_norms(rows)[..., None]], [], []
    if not known.low > 0:
        steps = _rounds_until_positive(mixer, xp.sum(Q[0] * hvp(Q[0]), axis=-1), steps, known.largest, x)
    longer = mixer.with_steps(steps)
    beta = xp.zeros_like(x[..., :1])
    for _ in range(k):
        Hq = hvp(Q[-1])
        y = longer.average(Hq)
        Y.append(y)
        apart.append(host_float64(row_norms(Hq - y)))
        z = y
        for _ in range(2):  # the second pass removes what the first one left by rounding
            for q in Q:
                z = z - xp.sum(q * z, axis=-1, keepdims=True) * q
        beta = row_norms(z)[..., None]
        Q.append(z / xp.where(beta > 0, beta, xp.ones_like(beta)))
    T = np.stack([[host_float64(xp.sum(q * y, axis=-1)) for q in Q[:k]] for y in Y])  # (k, k, n)
    theta, residuals, used = _ritz(np.moveaxis(T, -1, 0), host_float64(beta)[:, 0])
    missed = 0.1 * (math.log(x.shape[-1]) / np.maximum(used - 1, 0.1)) ** 2 * theta[:, 1]
    top = theta[:, 1] + np.maximum(residuals[:, 1], missed)
    columns = np.stack([theta[:, 0], theta[:, 0] - residuals[:, 0], top, np.max(apart, axis=0)], axis=1)
    first, first_certain, high, zeta = mixer.channel.max_consensus(columns, x).tolist()
    first = min(first, known.high)  # known.high is certain; averaged products are not, least of all over lossy links
    certain = max(known.low, first_certain, 0.0)
    low = known.low
    if first > 0:  # two square roots, so that products stay within range
        low = CAREFUL * math.sqrt(first) * math.sqrt(max(min(certain, first), first / 100))
    return replace(
        known,
        low=low,
        high=min(known.high, max(high, low)),
        zeta=zeta,
        products=k,
        traffic=mixer.channel.traffic,
    )


def _rounds_until_positive(mixer: Mixer, quotients: Array, steps: int, largest: float, like: Array) -> int:
    """Rounds after which averages of the `quotients` qᵀH_i q, (n,), show that qᵀH̄q > 0; ValueError if they do not."""
    channel, values = mixer.channel, host_float64(quotients)[:, None]
    rows = from_host(np.ascontiguousarray(values, dtype=host_dtype(like)), like=like)
    eps = float(np.finfo(host_dtype(like)).eps)
    while True:
        least, most = (host_float64(end) for end in channel.interval_mean(rows, steps))
        top, bottom = channel.max_consensus(np.concatenate([most, -least], axis=1), like).tolist()  # bottom holds −min
        rounded = averaging_rounding(channel, steps, eps) * largest
        low, high = -bottom - rounded, top + rounded
        if low > 0:
            return steps
        if high <= 0:
            raise ValueError(f"{NOT_CONVEX}: it has an eigenvalue of {high:.3g} or less")
        if max(abs(top), abs(bottom)) <= 2 * rounded or steps >= MOST_ROUNDS:
            raise ValueError(
                f"{NOT_CONVEX}: for a vector q of length 1 the mean of qᵀHq lies in [{low:.3g}, {high:.3g}] after "
                f"{steps} rounds, which contains 0; clients' Hessians have norms up to {largest:.3g}"
            )
        steps = min(2 * steps, MOST_ROUNDS)


def _ritz(T: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Extreme Ritz values of each client's T (k, k) and their residuals, (n, 2) each, and the size of the part used.

    T is symmetric but for the disagreement of averages. We use its largest leading part in which the asymmetry is
    small compared with the smallest Ritz value, or in which that is negative beyond doubt.
    """
    n, k, _ = T.shape
    values, residuals, used = np.empty((n, 2)), np.empty((n, 2)), np.empty(n)
    for i in range(n):
        for j in range(k, 0, -1):
            part = T[i, :j, :j]
            theta, vectors = np.linalg.eigh((part + part.T) / 2)
            asymmetry = np.linalg.norm(part - part.T, 2) / 2
            if asymmetry <= ROUNDED * k * np.abs(theta).max():  # of exact means: only rounding
                theta = np.where(np.abs(theta) <= ROUNDED * k * np.abs(theta).max(), 0.0, theta)
                break
            if NOISE * theta[0] >= asymmetry or -theta[0] >= NOISE * asymmetry:
                break
        next_beta = beta[i] if j == k else T[i, j - 1, j]
        values[i], residuals[i], used[i] = theta[[0, -1]], np.abs(next_beta * vectors[-1, [0, -1]]), j
    return values, residuals, used
