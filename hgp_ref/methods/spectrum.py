"""What clients can find out before a run: extreme eigenvalues of Hessians, and how fast the network averages.

**Eigenvalues.** k steps of Lanczos give a (k, k) tridiagonal matrix whose eigenvalues lie inside the spectrum, the
extreme ones close to its ends. They are estimates from inside, so SAFETY widens the upper end where an algorithm must
not exceed it. Max-consensus makes the extremes over clients known to all of them.

**Contraction of the network.** Client i holds cos(1 + i²), which no network has as an eigenvector. After t rounds of
Push-Sum the range of the clients' averages, range(t) = max_i z_i/ω_i − min_i z_i/ω_i, is about C τ^t. All clients
learn it by max-consensus; range(0) they compute without messages. The range is measured after t = 6, 12, 24, ...
rounds, until it is below SETTLED · range(0). If this takes at most EARLY rounds, τ = (range(t)/range(0))^(1/t).
Otherwise

    τ = (range(t)/range(t/2))^(2/t).

This leaves out the first rounds, in which differences between neighbours vanish fast, while those across a large
network do not.

*Windows.* On a time-varying network one lucky graph can average exactly, which says nothing about later rounds. So the
first six rounds also measure short windows. Every WINDOW rounds a different client sets an indicator column to 1 (all
others to 0), and every client sets a counter column to 1. Their ratio tends to 1/n, so each client can compute its own
error. Each client takes the mean of its errors over the windows, and max-consensus the largest of these means; τ is at
least this error to the power 1/WINDOW. If a window reduced no error, because a client received no message, τ is at
least SETTLED^(1/t), where t counts the rounds of the long measurement.

*Weights.* A client that receives little has a small ω, and divides by it. Max-consensus gives the smallest ω at the end
of a window, and whenever the range is measured.

*Other columns* may travel in the messages of the windows. Columns of P sum to 1, so the mean of a column is at most the
largest of its averages, however few the rounds. Over unreliable links part of the sums is in flight, and columns of P
do not sum to 1. There the clients average these columns again by `channel.interval_mean`, over as many rounds as the
long run; its intervals contain the mean whatever is in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hgp_ref.backend import Array, array_namespace, from_host, host_dtype, host_float64
from hgp_ref.errors import NonFiniteError
from hgp_ref.methods.base import Curvature
from hgp_ref.mixing import Channel, Mixer

# Eigenvalues ----------------------------------------------------------------------------------------------------------

PRODUCTS = 30
SAFETY = 1.05  # on the largest eigenvalue that Lanczos finds
NOT_FINITE = "problem.hvp(u) must return finite values for finite u, got NaN or infinite values"


def range_over_clients(channel: Channel, linearization: Curvature, like: Array) -> tuple[float, float]:
    """Bounds on the spectrum of H̄ that clients can find: the extremes over all H_i, by Lanczos and max-consensus."""
    one = like[(*(0,) * (like.ndim - 2), ...)]  # (n, d): all runs share the Hessians
    low, high = extremes(linearization.hvp, start_rows(one))
    ends = np.stack([high, -low], axis=1)
    top = channel.max_consensus(np.where(np.isfinite(ends), ends, np.inf), like)  # all ranks learn of NaN on one
    if not np.isfinite(top).all():
        raise NonFiniteError(NOT_FINITE)
    return float(-top[1]), float(SAFETY * top[0])


def safe_step_size(name: str, channel: Channel, linearization: Curvature, like: Array, added: float = 0.0) -> float:
    """1 / L, with L the largest |eigenvalue| of any client's Hessian plus `added`, as the clients find it.

    Then ‖I − H_i/L‖ ≤ 1 for every client whose H_i is positive semi-definite.
    """
    low, high = range_over_clients(channel, linearization, like)
    L = max(abs(low), abs(high)) + added
    if not L > 0:
        raise ValueError(f"{name} must be given: the clients' Hessians are zero, so no step size follows from them")
    return 1.0 / L


def client_extremes(linearization: Curvature, like: Array) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest eigenvalue of each H_i by Lanczos, (n,) each."""
    low, high = extremes(linearization.hvp, start_rows(like))
    if not np.isfinite(low + high).all():
        raise NonFiniteError(NOT_FINITE)
    return low, high


def range_of_mean(channel: Channel, linearization: Curvature, like: Array) -> tuple[float, float]:
    """Smallest and largest eigenvalue of H̄ by Lanczos, for reports: this takes an observer of all clients."""
    xp = array_namespace(like)

    def mean_product(u: Array) -> Array:  # (1, d)
        return channel.mean_over_clients(linearization.hvp(xp.broadcast_to(u, like.shape) + xp.zeros_like(like)))

    low, high = extremes(mean_product, start_rows(like[:1, :]))
    return float(low[0]), float(high[0])


def extremes(
    product: Callable[[Array], Array], start: Array, steps: int = PRODUCTS, reorthogonalise: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest Ritz value of each of m symmetric operators by Lanczos; `product` maps rows (m, d).

    Without reorthogonalisation, rounding may repeat eigenvalues, which does not matter for the extreme ones. The result
    is NaN for an operator whose products are not finite. `product` then gets rows of zeros for it.
    """
    xp = array_namespace(start)
    previous, q = xp.zeros_like(start), start / row_norms(start)[..., None]
    beta = largest = xp.zeros_like(start[..., :1])
    tolerance = 100 * float(xp.finfo(start.dtype).eps)  # smaller β show an invariant subspace
    diagonal, off_diagonal, basis = list[Array](), list[Array](), q[:, None, :]
    for _ in range(min(steps, start.shape[-1])):
        z = product(q)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite products
            z = z - beta * previous
            alpha = xp.sum(q * z, axis=-1, keepdims=True)
            z = z - alpha * q
            if reorthogonalise:
                basis = xp.concat([basis, q[:, None, :]], axis=1) if diagonal else basis  # (m, k, d)
                for _ in range(2):  # the second pass removes what the first one left by rounding
                    z = z - (xp.matrix_transpose(basis) @ (basis @ z[..., None]))[..., 0]
            diagonal.append(alpha)
            beta = row_norms(z)[..., None]
            off_diagonal.append(beta)
            previous, q = q, z / xp.where(beta > 0, beta, xp.ones_like(beta))
            beta, q = (xp.where(xp.isfinite(a), a, xp.zeros_like(a)) for a in (beta, q))
            if reorthogonalise:  # a basis with normalised rounding errors would amplify them from step to step
                largest = xp.maximum(largest, xp.maximum(xp.abs(alpha), beta))
                q = xp.where(beta > tolerance * largest, q, xp.zeros_like(q))
    alphas, betas = (host_float64(xp.concat(parts, axis=-1)) for parts in (diagonal, off_diagonal))
    return extreme_ritz_values(alphas, betas, tolerance)


def row_norms(u: Array) -> Array:
    """‖u_i‖ of every client, (..., n), scaled so that squares neither overflow nor underflow."""
    xp = array_namespace(u)
    scale = xp.max(xp.abs(u), axis=-1, keepdims=True)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    return (xp.sqrt(xp.sum((u / scale) ** 2, axis=-1, keepdims=True)) * scale)[..., 0]


def extreme_ritz_values(alphas: np.ndarray, betas: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Extreme eigenvalues of tridiagonal matrices, each cut off where its β shows an invariant subspace."""
    low, high = np.empty(len(alphas)), np.empty(len(alphas))
    for i, (a, b) in enumerate(zip(alphas, betas, strict=True)):
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            low[i] = high[i] = np.nan
            continue
        ends = np.flatnonzero(b <= tolerance * max(np.abs(a).max(), b.max()))
        k = int(ends[0]) + 1 if ends.size else len(a)
        values = np.linalg.eigvalsh(np.diag(a[:k]) + np.diag(b[: k - 1], 1) + np.diag(b[: k - 1], -1))
        low[i], high[i] = values[0], values[-1]
    return low, high


def start_rows(like: Array) -> Array:
    """A starting vector without a preferred direction, the same for every client."""
    return repeated(np.cos(1.0 + np.arange(like.shape[-1], dtype=np.float64) ** 2), like.shape, like)


def repeated(a: np.ndarray, shape: tuple[int, ...], like: Array) -> Array:
    """Host `a` repeated to `shape`, in the library and dtype of `like`.

    It is contiguous however many clients there are: NumPy's order of summation follows the memory layout.
    """
    return from_host(np.array(np.broadcast_to(a, shape), dtype=host_dtype(like), order="C"), like=like)


# Contraction of the network -------------------------------------------------------------------------------------------

WINDOW, WINDOWS = 2, 3  # rounds of a window, and the number of windows
SETTLED = 0.02  # fraction of the first range at which τ is computed
UNCHANGED = 1e-6  # a window that reduces its error by less has reduced nothing
EARLY = 12  # rounds up to which C is taken to be 1
MOST_ROUNDS = 2**14  # clients that still differ then are taken to differ for ever


@dataclass(frozen=True)
class Mixing:
    """What clients have measured of their network. With a run axis, arrays have one more axis in front."""

    tau: float | np.ndarray  # contraction of a round; 0 if averages become exact
    smallest_weight: float | np.ndarray  # the smallest ω, at most 1
    rounds: int  # of the measurement
    upper_means: np.ndarray  # upper bounds on the means of the `averaged` columns, up to rounding, (k,)
    maxima: np.ndarray  # of the `maximised` columns, (l,)
    rounding: float = 0.0  # of `upper_means`, relative to the largest |entry| averaged


def measure_mixing(
    mixer: Mixer, like: Array, averaged: np.ndarray | None = None, maximised: np.ndarray | None = None
) -> Mixing:
    """Measure τ and ω of each run; columns `averaged` (n, k) and `maximised` (n, l) travel in the same messages."""
    like = mixer.for_each_run(like)
    channel, lead = mixer.channel, like.shape[:-2]
    averaged = np.zeros((like.shape[-2], 0)) if averaged is None else averaged
    maximised = np.zeros((like.shape[-2], 0)) if maximised is None else maximised
    k = averaged.shape[1]
    if channel.n == 1:
        means, maxima = (np.broadcast_to(a[0], (*lead, a.shape[1])) for a in (averaged, maximised))
        tau, omega = (np.zeros(lead), np.ones(lead)) if lead else (0.0, 1.0)
        return Mixing(tau, omega, 0, means, maxima)
    columns = np.concatenate([_pattern(channel.n)[channel.clients, None], averaged], axis=1)
    mixer.drop_in_flight()
    z, errors, weights = _windows(mixer, _for_runs(columns, like))
    y = host_float64(z / mixer.weights)
    known = np.broadcast_to(maximised, (*lead, *maximised.shape))
    top = channel.max_consensus(np.concatenate([y, -y[..., :1], errors, -weights, known], axis=-1), like)
    share = np.asarray(top[..., 0] + top[..., k + 1]) / np.ptp(_pattern(channel.n))
    error = np.minimum(top[..., k + 2], 1.0)
    tau, omega, rounds = _long_run(mixer, z[..., :1], share, -top[..., k + 3])
    window = np.where(error < 1.0 - UNCHANGED, error ** (1.0 / WINDOW), SETTLED ** (1.0 / rounds))
    means, steps = top[..., 1 : k + 1], WINDOW * WINDOWS
    if k and not channel.conserves_mass:
        steps = rounds
        means = channel.max_consensus(host_float64(channel.interval_mean(_for_runs(averaged, like), steps)[1]), like)
    rounding = averaging_rounding(channel, steps, float(np.finfo(host_dtype(like)).eps))
    measured = Mixing(np.maximum(tau, window), omega, rounds, means, top[..., k + 4 :], rounding)
    return measured if lead else replace(measured, tau=float(measured.tau), smallest_weight=float(omega))


def averaging_rounding(channel: Channel, steps: int, eps: float) -> float:
    """The rounding error of Push-Sum after `steps` steps, relative to the largest |number| averaged.

    S steps of sums over at most n clients, for values and weights: 2 S (n + 2) eps/2. One more of each if the steps are
    composed first. Columns of mixing matrices sum to 1 up to n eps/2, S times and for both. The division. Together at
    most 2 (S + 1)(n + 2) eps. Over links that delay messages, one step may add what n clients have sent in all S, n S
    numbers instead of n.
    """
    at_once = channel.n if channel.conserves_mass else channel.n * steps
    return 2 * (steps + 1) * (at_once + 2) * eps


def _pattern(n: int) -> np.ndarray:
    return np.cos(1.0 + np.arange(n) ** 2.0)


def _windows(mixer: Mixer, z: Array) -> tuple[Array, np.ndarray, np.ndarray]:
    """z after all windows; each client's mean error at their ends (1 at the start), and its smallest ω, (..., n, 1)."""
    channel, xp = mixer.channel, array_namespace(z)
    n, numbers = channel.n, np.arange(channel.n)
    errors, weights = np.zeros((*z.shape[:-1], 1)), np.ones((*z.shape[:-1], 1))
    for w in range(WINDOWS):
        indicator = np.stack([numbers == w % n, np.ones(n)], axis=1)[channel.clients]
        mixed = mixer.with_steps(WINDOW).push(xp.concat([z, _for_runs(indicator, z)], axis=-1))
        z = mixed[..., :-2]
        errors += np.abs(host_float64(mixed[..., -2:-1] / mixed[..., -1:]) - 1 / n) * n / (n - 1) / WINDOWS
        weights = np.minimum(weights, _host_weights(mixer, z))
    return z, errors, weights


def _host_weights(mixer: Mixer, z: Array) -> np.ndarray:
    """ω on the host, (..., n, 1)."""
    return host_float64(array_namespace(z).ones_like(z[..., :1]) * mixer.weights)


def _long_run(mixer: Mixer, z: Array, share: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """τ, the smallest ω and the number of rounds; `share` of the range of z is left after the windows."""
    t, previous = WINDOW * WINDOWS, np.ones_like(share)
    mixer.drop_in_flight()
    while np.any(share > SETTLED) and t < MOST_ROUNDS:
        z = mixer.with_steps(t).push(z)
        y = host_float64(z / mixer.weights)
        top = mixer.channel.max_consensus(np.concatenate([y, -y, -_host_weights(mixer, z)], axis=-1), z)
        previous, share = share, np.asarray(top[..., 0] + top[..., 1]) / np.ptp(_pattern(mixer.channel.n))
        t, omega = 2 * t, np.minimum(omega, -top[..., 2])
    if t <= EARLY:
        return np.minimum(share, 1.0) ** (1.0 / t), omega, t
    ratio = np.where(previous > 0, share / np.where(previous > 0, previous, 1.0), 0.0)
    return np.minimum(ratio, 1.0) ** (2.0 / t), omega, t


def _for_runs(rows: np.ndarray, like: Array) -> Array:
    """Rows (n, k) for every run, in the library and dtype of `like`."""
    return repeated(rows, (*like.shape[:-2], *rows.shape), like)
