"""What clients find out before a plan: of their Hessians, of their network, and what that costs.

1. Every client takes the extreme eigenvalues of its own H_i by Lanczos. No message.
2. One conversation of scalars (`methods.mixing`): τ, the contraction of a round of Push-Sum; bounds of mean_i
   λ_min(H_i) ≤ ᾱ and of mean_i λ_max(H_i) ≥ L̄; by flooding max_i ‖H_i‖, max_i ‖∂_x f_i‖ and max_i ‖J_i‖.
3. In a pilot, a few steps of Lanczos on H̄ itself, from a vector that everybody knows: each is one average of H_i q over
   so many rounds that about ACCURATE of its disagreement is left. With Ritz values θ_1 … θ_k and the residuals e_1, e_k
   that they leave (|β_k| times the last entry of their vectors), k as large as that disagreement allows (`_ritz`), the
   interval becomes

       [CAREFUL · √(θ_1 · max(θ_1 − e_1, what 2. gave, θ_1/100)),  min(θ_k + max(e_k, m), what 2. gave)],

   between what is certain and what was seen; m = θ_k (log d / (k − 1))² / 10, about what Lanczos misses in one of
   twenty random matrices; and ζ is the largest ‖H_i q − H̄q‖.

   Where 2. gives no positive lower bound, a check comes first: the clients average qᵀH_i q for one vector q that all
   of them know, over more and more rounds, until the interval that contains qᵀH̄q excludes 0. If it is not positive,
   or not told from 0 after MOST_ROUNDS rounds or at the level of rounding, there is no plan, and the error says so:
   averaged products would otherwise show their disagreement in place of a spectrum.

A few graphs of a few clients say little of τ: 12/n rounds that leave UNKNOWN each are added to what was seen.

What is certain. Step 2 encloses the means of what Lanczos found, rounding included, over links that lose and delay as
well (`methods.mixing`). Lanczos finds eigenvalues from inside the spectrum: the extreme ones up to rounding where d_x
is at most its 30 products and its start is not orthogonal to their eigenvectors, estimates beyond. Everything else is
an estimate: good enough to choose by, and certified after the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64
from hgp_ref.methods.spectrum import (
    MOST_ROUNDS,
    SAFETY,
    averaging_rounding,
    client_extremes,
    row_norms,
    start_rows,
    watch_mixing,
)
from hgp_ref.mixing import Mixer, Traffic, push_sum_for, start_averaging
from hgp_ref.networks import Network
from hgp_ref.problems.base import Normalised
from hgp_ref.results import Result

ACCURATE = 0.05  # share of the disagreement that is left in an average of the pilot
NOISE = 5.0  # times its smallest Ritz value may be what T lacks of symmetry
CAREFUL = 0.9  # of the lower end, whose overestimate costs more than an underestimate
MOST_PRODUCTS = 8  # of H̄ in a pilot
LOOKED_AT = 100  # graphs in which clients that are cut off are looked for
PROBES = 4  # products with J_i behind ‖J_i‖
UNKNOWN = 0.5  # what a round is taken to leave before anything was seen
NOT_CONVEX = "problem: the mean inner cost must be strongly convex at x, which its Hessian does not show"
FAST, SLOWEST = 1e-6, 1 - 1e-9  # τ below which averages are taken to be exact, and the largest that is reckoned with


@dataclass(frozen=True)
class Found(Result):
    """What is known of a problem at a point and of a network; estimates, see `hgp_ref.planning.probe`.

    Attributes
    ----------
    low : of the spectrum of H̄; not positive where nothing is known.
    high : the other end of it.
    largest : max_i ‖H_i‖.
    zeta : how far clients' Hessians are apart, ‖(I − Θ)HΘ‖.
    tau : contraction of a round of Push-Sum.
    size : max_i ‖J_i‖ max_i ‖∂_x f_i‖: with 1/low, how large v − ∂_λ f may be; None if not asked for.
    products : of H̄ in the pilot; 0 without.
    traffic : what finding it took.
    own_low : below mean_i λ_min(H_i), which is what clients know without a pilot.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> plan = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=3, seed=1), target=1e-3)
    >>> 0 < plan.found.low <= plan.found.high, 0 <= plan.found.tau < 1, plan.found.traffic.rounds > 0
    (True, True, True)
    """

    low: float
    high: float
    largest: float
    zeta: float
    tau: float
    size: float | None
    products: int
    traffic: Traffic
    own_low: float = math.nan

    @property
    def graphs(self) -> int:
        """How many graphs were used."""
        return int(self.traffic.rounds)

    def rounds_to(self, share: float) -> int:
        """Rounds of Push-Sum that leave `share` of a disagreement, at least 1.

        Parameters
        ----------
        share : in (0, 1).

        Returns
        -------
        int.
        """
        share = validation.between("share", share, 1e-300, 1.0)
        return max(1, math.ceil(math.log(share) / math.log(min(max(self.tau, FAST), SLOWEST))))


def find(problem: Normalised, x: Array, lam: Array, net: Network, with_size: bool) -> tuple[Found, Mixer]:
    """Steps 1 and 2, and the mean over whose channel they were made; sizes only where the target is absolute."""
    linearization = problem.linearize(x, lam)
    gradient = problem.outer_grad(x, lam)[0]
    mixer = start_averaging([push_sum_for(net, 1)], problem.n_clients, x, LOOKED_AT)
    mixer.channel.check_client_ids(problem.clients)
    low, high = client_extremes(linearization, x)
    sizes = host_float64(row_norms(gradient))
    extreme = np.maximum(np.abs(low), np.abs(high))
    scales = [sizes, _cross_norms(linearization.cross, x)] if with_size else []
    flooded = np.stack([SAFETY * extreme, *scales], axis=1)
    above = np.where(high > 0, SAFETY * high, high / SAFETY)
    mixing = watch_mixing(mixer, x, np.stack([-low, above], axis=1), flooded)
    top = mixing.flooded
    rounded = mixing.rounding * float(top[0])
    least = -float(mixing.most[0]) - rounded
    known = Found(
        low=least,
        high=float(mixing.most[1]) + rounded,
        largest=float(top[0]),
        zeta=float(top[0]) / 2 - min(least, float(top[0])) / 2,
        tau=_with_prior(float(mixing.tau), mixing.rounds, net.n),
        size=float(top[1]) * float(top[2]) if with_size else None,
        products=0,
        traffic=mixer.channel.traffic,
        own_low=least,
    )
    return known, mixer


def _with_prior(tau: float, rounds: int, n: int) -> float:
    """τ over the rounds that were seen, and UNKNOWN over 12/n more; of a single client nothing is unknown."""
    weight = 12 / n
    seen = rounds * math.log(max(tau, FAST))
    return tau if n == 1 else math.exp((seen + weight * math.log(UNKNOWN)) / (rounds + weight))


def _cross_norms(cross: object, x: Array) -> np.ndarray:
    """Estimates of ‖J_i‖, (n,): the largest ‖J_i z‖/‖z‖ over a few vectors, times √d / 2 where d is large."""
    xp = array_namespace(x)
    rows = start_rows(x)
    seen = [
        host_float64(row_norms(cross(z)) / row_norms(z))  # type: ignore[operator]
        for z in (xp.roll(rows, k, axis=-1) for k in range(PROBES))
    ]
    return np.max(seen, axis=0) * max(1.0, math.sqrt(x.shape[-1]) / 2)


def products_worth(known: Found, d: int) -> int:
    """How many products of H̄ a pilot takes: about half of what Chebyshev needs for a factor e, 2 at least."""
    kappa = known.high / known.low if known.low > 0 else MOST_PRODUCTS**2 * 4.0
    return min(d, MOST_PRODUCTS, max(2, round(math.sqrt(kappa) / 2)))


def pilot(known: Found, mixer: Mixer, problem: Normalised, x: Array, lam: Array) -> Found:
    """Step 3."""
    k, steps = products_worth(known, x.shape[-1]), known.rounds_to(ACCURATE)
    xp, hvp = array_namespace(x), problem.linearize(x, lam).hvp
    rows = start_rows(x)
    Q, Y, apart = [rows / row_norms(rows)[..., None]], [], []
    if not known.low > 0:
        steps = _rounds_to_tell(mixer, xp.sum(Q[0] * hvp(Q[0]), axis=-1), steps, known.largest, x)
    better = mixer.with_steps(steps)
    beta = xp.zeros_like(x[..., :1])
    for _ in range(k):
        bent = hvp(Q[-1])
        y = better.average(bent)
        Y.append(y)
        apart.append(host_float64(row_norms(bent - y)))
        z = y
        for _ in range(2):  # orthogonal to all before, once more for what rounding leaves
            for q in Q:
                z = z - xp.sum(q * z, axis=-1, keepdims=True) * q
        beta = row_norms(z)[..., None]
        Q.append(z / xp.where(beta > 0, beta, xp.ones_like(beta)))
    T = np.stack([[host_float64(xp.sum(q * y, axis=-1)) for q in Q[:k]] for y in Y])  # (k, k, n)
    theta, left, used = _ritz(np.moveaxis(T, -1, 0), host_float64(beta)[:, 0])
    missed = 0.1 * (math.log(x.shape[-1]) / np.maximum(used - 1, 0.1)) ** 2 * theta[:, 1]
    top = theta[:, 1] + np.maximum(left[:, 1], missed)
    flooded = np.stack([theta[:, 0], theta[:, 0] - left[:, 0], top, np.max(apart, axis=0)], axis=1)
    first, sure, high, zeta_most = (float(a) for a in mixer.channel.max_consensus(flooded, x))
    first = min(first, known.high)  # which is certain; averages of the pilot may be off, most over lossy links
    certain = max(known.low, sure, 0.0)
    low = known.low
    if first > 0:  # two square roots, so that products stay within range
        low = CAREFUL * math.sqrt(first) * math.sqrt(max(min(certain, first), first / 100))
    return replace(
        known,
        low=low,
        high=min(known.high, max(high, low)),
        zeta=zeta_most,
        products=k,
        traffic=mixer.channel.traffic,
    )


def _rounds_to_tell(mixer: Mixer, own: Array, steps: int, largest: float, like: Array) -> int:
    """Rounds after which the averages of qᵀH_i q (`own`, (n,)) tell that qᵀH̄q is positive; ValueError if they do not.

    qᵀH̄q lies between the smallest and the largest of what `enclose` returns, up to rounding.
    """
    channel, values = mixer.channel, host_float64(own)[:, None]
    rows = from_host(np.ascontiguousarray(values, dtype=host_dtype(like)), like=like)
    eps = float(np.finfo(host_dtype(like)).eps)
    while True:
        box = [host_float64(end) for end in channel.interval_mean(rows, steps)]
        top, bottom = (float(a) for a in channel.max_consensus(np.concatenate([box[1], -box[0]], axis=1), like))
        rounded = averaging_rounding(channel, steps, eps) * largest
        low, high = -bottom - rounded, top + rounded
        if low > 0:
            return steps
        if high <= 0:
            raise ValueError(f"{NOT_CONVEX}: it has an eigenvalue of {high:.3g} or less")
        if max(abs(top), abs(bottom)) <= 2 * rounded or steps >= MOST_ROUNDS:
            raise ValueError(
                f"{NOT_CONVEX}: for a vector q of length 1 the mean of qᵀHq lies in [{low:.3g}, {high:.3g}] after "
                f"{steps} rounds, which is not told from 0, where clients' Hessians are up to {largest:.3g}"
            )
        steps = min(2 * steps, MOST_ROUNDS)


def _ritz(T: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each client's T (k, k): extreme Ritz values and their residuals, (n, 2) each, and how much of T was used.

    That is the largest leading part, symmetric but for the disagreement of averages, which that does not outweigh.
    """
    n, k, _ = T.shape
    values, left, used = np.empty((n, 2)), np.empty((n, 2)), np.empty(n)
    for i in range(n):
        for j in range(k, 0, -1):
            part = T[i, :j, :j]
            theta, vectors = np.linalg.eigh((part + part.T) / 2)
            if NOISE * theta[0] >= np.linalg.norm(part - part.T, 2) / 2:
                break
        after = beta[i] if j == k else T[i, j - 1, j]
        values[i], left[i], used[i] = theta[[0, -1]], np.abs(after * vectors[-1, [0, -1]]), j
    return values, left, used


# ----------------------------------------------------------------------------------------------------
# How fast gradient tracking converges, by a model with two groups of clients.
#
# Let a call shrink disagreement by τ^S with a phase e^{iφ} (directed graphs turn it), and let clients' Hessians be λ ±
# ζ.
# The mean a of w, half the difference Δ of w between the groups and half the difference δ of y then follow
#
#     a⁺ = a − η(λa + ζΔ),     Δ⁺ = τ^S e^{iφ} (Δ − ηδ),     δ⁺ = τ^S e^{iφ} δ + λ(Δ⁺ − Δ) + ζ(a⁺ − a),
#
# because the mean of y is λa + ζΔ at all times. The largest |eigenvalue| over λ in [low, high], ζ and φ is the rate.
# For
# graphs that repeat, `exact.tracking_rate` is exact; the model agrees with it where they mix evenly
# (`python -m verification tracking`), and needs no graph.


PHASES = (0.0, 0.5)
STEPS = (1, 2, 3, 4)  # S that are compared
SAFE = 2.5  # a step is taken only if the model is stable at so many times it: graphs that differ are not the model
WAVERING = 2.0  # first error over ‖w*‖ and what unequal graphs cost


@dataclass(frozen=True)
class Pace:
    """A step size, its S, and the model's factor per call."""

    step: float
    S: int
    rate: float

    def iterations(self, target: float) -> int:
        """Calls to a relative error of `target`."""
        return max(1, math.ceil(math.log(WAVERING / target) / -math.log(max(self.rate, 1e-6))))


def rates(
    steps: np.ndarray, low: float, high: float, zeta: float, tau: float, phases: Sequence[float] = PHASES
) -> np.ndarray:
    """The model's rate for each step size, (len(steps),)."""
    lam = np.geomspace(low, high, 5) if high > low else np.array([high])
    turned = tau * np.exp(1j * np.array(phases))
    e, L, z, t = (a.ravel() for a in np.meshgrid(steps, lam, np.array([0.0, zeta]), turned, indexing="ij"))
    zero, one = np.zeros_like(t), np.ones_like(t)
    a = np.stack([one - e * L, -e * z, zero], axis=-1)
    apart = np.stack([zero, t, -t * e], axis=-1)
    tracked = np.stack([zero, zero, t], axis=-1) + L[:, None] * (apart - np.array([0, 1, 0]))
    tracked = tracked + z[:, None] * (a - np.array([1, 0, 0]))
    radius = np.abs(np.linalg.eigvals(np.stack([a, apart, tracked], axis=1))).max(axis=1)
    return radius.reshape(len(steps), -1).max(axis=1)


def best_pace(known: Found, target: float) -> Pace | None:
    """The step and S with the least S · iterations; None where the model is stable for none."""
    grid = np.geomspace(1e-3, 2.0, 40) / known.high
    paces = []
    for S in STEPS:
        rate = rates(grid, known.low, known.high, known.zeta, known.tau**S)
        safe = rates(SAFE * grid, known.low, known.high, known.zeta, known.tau**S) < 1
        if not safe.any():
            continue
        k = int(np.argmin(np.where(safe, rate, np.inf)))
        if rate[k] < 1:
            paces.append(Pace(float(grid[k]), S, float(rate[k])))
    return min(paces, key=lambda pace: pace.S * pace.iterations(target), default=None)
