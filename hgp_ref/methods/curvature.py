"""Preconditioned tracking: gradient tracking in which every client also solves with its own Hessian.

What travels is as in `Tracking`; what a client computes between two messages is not. With P_i = H_i + δ_i I a client
replaces its direction y_i/ω_i by P_i⁻¹ y_i/ω_i. The number of iterations then depends on how much clients differ, and
not on the condition number of H̄ (docs/theory/curvature.md).

*Local solves* (`local_solver`). Up to FACTORISED dimensions every client has its explicit Hessian and the factorisation
H_i = V Λ Vᵀ, made once per run on the host: a solve is two products of size d for any δ_i. In more dimensions a solve
is a fixed Chebyshev polynomial of P_i, a number of Hessian-vector products. Both are linear in y and have no transfers.

*Shifts and steps* (`Adaptation`). Every client adapts δ_i and γ_i to what it sees, without a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, host_float64
from hgp_ref.errors import NonFiniteError
from hgp_ref.methods.base import Curvature, Derivatives, Method, Start
from hgp_ref.methods.spectrum import NOT_FINITE, SAFETY, extremes, repeated, row_norms, start_rows
from hgp_ref.mixing import Channel, Mixer
from hgp_ref.problems.base import matvec
from hgp_ref.results import Result
from hgp_ref.validation import Count, Nonnegative, Optional, Positive, checked

# Local solves ---------------------------------------------------------------------------------------------------------

FACTORISED = 512  # dimensions up to which Hessians are factorised
MOST_ENTRIES = 2**26  # of all clients' Hessians together, for factorisations: 512 MiB in float64
DEGREE = 16  # of the polynomial, by default


class LocalSolver(ABC):
    """(H_i + δ_i I)⁻¹ at every client, or a positive definite approximation of it."""

    degree: int  # of the polynomial; 0 for a factorisation
    low: Array  # smallest eigenvalue of H_i, (..., n, 1)
    high: Array  # largest |eigenvalue|
    mean: Array  # mean |eigenvalue|
    least: Array  # the smallest shift of which a solve is accurate

    @abstractmethod
    def solve(self, z: Array, shift: Array) -> Array:
        """P_i⁻¹ z_i with P_i = H_i + shift_i I."""

    @cached_property
    def base(self) -> Array:
        """The part of a shift that makes P_i definite, and the solve accurate."""
        xp = array_namespace(self.low)
        return xp.maximum(xp.maximum(-DEFINITE * self.low, xp.zeros_like(self.low)), self.least)

    @cached_property
    def unit(self) -> Array:
        """The unit of shifts; not 0."""
        xp = array_namespace(self.low)
        unit = xp.maximum(xp.abs(self.low), SMALLEST * self.mean)
        return xp.where(unit > 0, unit, xp.ones_like(unit))

    @cached_property
    def range(self) -> tuple[Array, Array]:
        """The smallest and the largest shift above `base`; without an upper limit where H_i = 0."""
        xp = array_namespace(self.high)
        most = xp.where(self.high > 0, MOST * self.high, xp.full_like(self.high, np.inf))
        return LEAST * self.unit, most


class Factorised(LocalSolver):
    """Solves by H_i = V Λ Vᵀ.

    Parameters
    ----------
    H : (..., n, d, d), symmetric, in float64 on the host.
    like : an array with the library, device and dtype of what is solved for.
    """

    degree = 0

    def __init__(self, H: np.ndarray, like: Array) -> None:
        values, vectors = np.linalg.eigh((H + np.swapaxes(H, -1, -2)) / 2)
        dtype = host_dtype(like)

        def move(a: np.ndarray) -> Array:
            return from_host(np.ascontiguousarray(a, dtype=dtype), like=like)

        self._values, self._vectors = move(values), move(vectors)  # (..., n, d), (..., n, d, d)
        self._transposed = move(np.swapaxes(vectors, -1, -2))
        size = np.abs(values)
        self.low, self.high = move(values[..., :1]), move(size.max(axis=-1, keepdims=True))
        self.mean = move(size.mean(axis=-1, keepdims=True))
        self.least = move(np.maximum(-values[..., :1], 0.0))

    def solve(self, z: Array, shift: Array) -> Array:
        xp = array_namespace(z)
        return matvec(self._vectors, matvec(self._transposed, z, xp=xp) / (self._values + shift), xp=xp)


class Polynomial(LocalSolver):
    """Solves by K steps of Chebyshev's iteration from 0: p = q(P_i) z with q of degree K − 1.

    With the spectrum of P_i in [a, b], 1 − λ q(λ) = T_K((θ − λ)/ς) / T_K(θ/ς), θ = (a + b)/2, ς = (b − a)/2: the
    relative error is at most 2 exp(−2K √(a/b)), and q > 0 on all of (−∞, b]. Shifts are kept so large that b/a ≤ K², so
    this is at most 2e⁻² = 0.28.

    Parameters
    ----------
    low, high : (..., n, 1), bounds on the spectrum of H_i.
    """

    def __init__(self, product: Callable[[Array], Array], low: Array, high: Array, degree: int) -> None:
        xp = array_namespace(low)
        self._product, self.degree, self.low = product, degree, low
        self.high = xp.maximum(xp.abs(low), xp.abs(high))
        self.mean = self.high / 8  # not known; a guess sets the unit in which shifts start
        self.least = xp.maximum((self.high - degree**2 * low) / (degree**2 - 1), xp.zeros_like(low))

    def solve(self, z: Array, shift: Array) -> Array:
        xp = array_namespace(z)
        theta = (self.low + self.high) / 2 + shift
        spread = xp.maximum((self.high - self.low) / 2, 1e-3 * theta)
        rho = spread / theta
        p = step = z / theta
        r = z
        for _ in range(self.degree - 1):
            r = r - (self._product(step) + shift * step)
            rho_next = 1 / (2 * theta / spread - rho)
            step = rho_next * rho * step + (2 * rho_next / spread) * r
            p, rho = p + step, rho_next
        return p


def local_solver(
    curvature: Curvature, hessians: Callable[[], Array], like: Array, channel: Channel, degree: int | None
) -> LocalSolver:
    """A factorisation if d is small and `degree` is None, else a polynomial. Raises ValueError unless H_i = H_iᵀ.

    `hessians` returns explicit H_i (..., n, d, d). Whether they are used depends on the number of all clients, so that
    ranks and one process choose alike.
    """
    d = like.shape[-1]
    entries = channel.n * int(np.prod(like.shape[:-2])) * d * d
    if degree is None and d <= FACTORISED and entries <= MOST_ENTRIES:
        H = host_float64(hessians())
        _check_finite(H, channel)
        check_symmetric_matrices(H, like, channel)
        return Factorised(H, like)
    low, high = _extremes(curvature, like)
    _check_finite(low + high, channel)
    check_symmetric_products(curvature, like, channel)
    margin = (SAFETY - 1.0) * (high - low)  # Ritz values lie inside the spectrum

    def move(values: np.ndarray) -> Array:
        return from_host(np.ascontiguousarray(values[..., None], dtype=host_dtype(like)), like=like)

    return Polynomial(curvature.hvp, move(low - margin), move(high + margin), DEGREE if degree is None else degree)


def explicit_hessians(product: Callable[[Array], Array], like: Array) -> Array:
    """H_i (..., n, d, d) by products with the d unit vectors."""
    xp, d = array_namespace(like), like.shape[-1]
    identity = xp.eye(d, dtype=like.dtype, device=device(like))
    units = (xp.broadcast_to(identity[k, :], like.shape) + xp.zeros_like(like) for k in range(d))
    return xp.stack([product(unit) for unit in units], axis=-1)


def _extremes(curvature: Curvature, like: Array) -> tuple[np.ndarray, np.ndarray]:
    """Extreme Ritz values of every H_i, (..., n)."""
    xp, shape = array_namespace(like), tuple(like.shape)
    rows = (-1, shape[-1])
    low, high = extremes(
        lambda u: xp.reshape(curvature.hvp(xp.reshape(u, shape)), rows), xp.reshape(start_rows(like), rows)
    )
    return low.reshape(shape[:-1]), high.reshape(shape[:-1])


def _other_rows(like: Array) -> Array:
    return repeated(np.sin(2.0 + np.arange(like.shape[-1], dtype=np.float64) ** 2), like.shape, like)


def _check_finite(values: np.ndarray, channel: Channel) -> None:
    if channel.any_rank(not np.isfinite(values).all()):
        raise NonFiniteError(NOT_FINITE)


def check_symmetric_matrices(H: Array, like: Array, channel: Channel) -> None:
    """Raise ValueError if H_i − H_iᵀ exceeds √eps of H_i, (..., n, d, d), for any client."""
    H = host_float64(H)
    size, skew = (np.max(np.abs(a), axis=(-1, -2)) for a in (H, H - np.swapaxes(H, -1, -2)))
    _check_symmetric(skew, size, like, channel, "|H - H^T| up to {:.3g}, with entries up to {:.3g}")


def check_symmetric_products(curvature: Curvature, like: Array, channel: Channel) -> None:
    """Raise ValueError if aᵀH_i b − bᵀH_i a exceeds √eps of its terms for two vectors a and b."""
    a, b = start_rows(like), _other_rows(like)
    Ha, Hb = curvature.hvp(a), curvature.hvp(b)
    size = host_float64(row_norms(a) * row_norms(Hb) + row_norms(b) * row_norms(Ha))
    skew = np.abs(host_float64(array_namespace(like).sum(a * Hb - b * Ha, axis=-1)))
    _check_symmetric(skew, size, like, channel, "|a^T H b - b^T H a| = {:.3g}, of terms up to {:.3g}")


def first_run(like: Array) -> Array:
    """The rows of the first run, (n, d): all runs share the Hessians."""
    return like[(*(0,) * (like.ndim - 2), ...)]


def _check_symmetric(skew: np.ndarray, size: np.ndarray, like: Array, channel: Channel, found: str) -> None:
    """Raise ValueError if `skew` exceeds √eps of `size`, (..., n), for any client; `found` says what both are."""
    excess = skew - np.sqrt(np.finfo(host_dtype(like)).eps) * size
    text = "the Hessian of client {} must be symmetric, got " + found
    _refuse(excess, channel, lambda i, k: text.format(i, skew[k], size[k]))


def _refuse(excess: np.ndarray, channel: Channel, message: Callable[[int, tuple[Any, ...]], str]) -> None:
    """Raise ValueError on all ranks if `excess` (..., n) is positive for any client; the worst one is named."""
    if channel.any_rank(bool(np.any(excess > 0))):
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        if excess[worst] > 0:
            raise ValueError(message(channel.clients.start + int(worst[-1]), worst))
        raise ValueError("a client of another rank has a Hessian that is refused; see the message of that rank")


# Shifts and steps -----------------------------------------------------------------------------------------------------

TARGET = 0.5  # correlation of successive residuals at which shifts stay as they are
GAIN = 0.3  # of ln δ, per unit of correlation
FIRST_GAIN, GAIN_DECAY = 1.0, 0.8  # added to the gain in the first iteration, and its factor from one to the next
FIRST_STEP = 0.45
FIRST_SHIFT = 1.0  # in units of the smallest |eigenvalue|
SMALLEST = 3e-3  # this unit is at least so many times the mean |eigenvalue|
DEFINITE = 1.1  # shift of an indefinite client, in units of −λ_min
LEAST, MOST = 1e-3, 10.0  # of a shift: in units of the smallest, and of the largest |eigenvalue|
DIFFERENCE_GAIN = 0.2  # of ln δ, per unit of the logarithm of the relative difference between clients
LARGEST_DIFFERENCE = 20.0  # that counts
FROZEN = 1.5  # growth of the residual from which shifts do not fall
GROWN, PATIENCE = 16.0, 4  # growth of the residual, and iterations, after which a step is cut
CUT, RAISE = 0.7, 2.0


@dataclass(frozen=True)
class Adaptation(Result):
    """Shifts and steps of all clients, with what their rule remembers; arrays (..., n, 1).

    With z_t = y_i/ω_i, p_t = P_i⁻¹ z_t and s_t = z_tᵀ p_t, client i alone computes the correlation

        c_t = z_{t−1}ᵀ p_t / √(s_{t−1} s_t)

    of successive residuals, between −1 and 1. It is small or negative where δ_i is too small and clients overshoot, and
    close to 1 where δ_i is too large and progress is slow. Let b_i be the part of δ_i that makes P_i definite. Then
    ln (δ_i − b_i) moves by (GAIN + FIRST_GAIN GAIN_DECAY^t) (TARGET − c_t), but does not fall while s_t is above FROZEN
    times its smallest value so far. If s_t grows to GROWN times that value, at most once in PATIENCE iterations, γ_i is
    cut and δ_i − b_i doubled.

    After the messages of an iteration client i also compares what the others did with what it did itself. If clients
    agreed, z would have changed by H̄ Δw, and by H_i Δw if the others were like client i. The relative difference is

        r_t = ‖z_{t+1} − z_t − H_i Δw_i‖_{P_i⁻¹} / ‖Δw_i‖_{P_i}.

    Where r_t and r_{t−1} are both above 1, ln (δ_i − b_i) grows by DIFFERENCE_GAIN ln min(r_t, r_{t−1}), of which at
    most LARGEST_DIFFERENCE counts. δ_i − b_i stays between LEAST and MOST times the sizes of H_i.

    The constants were chosen on problems and networks that no reported number uses.
    """

    shift: Array  # δ_i
    step: Array  # γ_i
    z: Array | None = None  # of the last iteration, (..., n, d)
    size: Array | None = None  # √s of the last iteration
    best: Array | None = None  # the smallest √s so far
    since: Array | None = None  # iterations since γ_i was cut
    difference: Array | None = None  # r of the last iteration
    extra: float = FIRST_GAIN  # gain of this iteration beyond GAIN


def first_adaptation(solver: LocalSolver, like: Array, shift: float | None, step: float | None) -> Adaptation:
    """δ_i and γ_i before the first iteration; `shift` and `step` if they are given."""
    xp = array_namespace(like)
    ones = xp.ones_like(like[..., :1])
    delta = FIRST_SHIFT * solver.unit + solver.base if shift is None else shift
    return Adaptation(delta * ones, (FIRST_STEP if step is None else step) * ones)


def adapt(
    now: Adaptation, solver: LocalSolver, z: Array, shift: bool, step: bool, hold: Array | None = None
) -> tuple[Array, Adaptation]:
    """p = P⁻¹ z, and the next shifts and steps; `shift` and `step` tell which of them are adapted.

    The step that belongs to p is that of the result: a cut applies at once. Where `hold` is true, shifts do not fall.
    """
    xp = array_namespace(z)
    p = solver.solve(z, now.shift)
    if not (shift or step):
        return p, now
    zeros = xp.zeros_like(now.shift)
    size = xp.sqrt(xp.maximum(xp.sum(z * p, axis=-1, keepdims=True), zeros))
    if now.z is None:
        return p, replace(now, z=z, size=size, best=size, since=zeros, extra=GAIN_DECAY * now.extra)
    assert now.since is not None
    delta, gamma, since = now.shift, now.step, now.since + 1
    grown = (size > GROWN**0.5 * now.best) & (since >= PATIENCE)
    if shift:
        scale = now.size * size
        safe = xp.where(scale > 0, scale, xp.ones_like(scale))
        c = xp.where(scale > 0, xp.sum(now.z * p, axis=-1, keepdims=True) / safe, zeros + TARGET)
        c = xp.minimum(xp.maximum(c, zeros - 1), zeros + 1)
        h = (GAIN + now.extra) * (TARGET - c)
        above = size > FROZEN**0.5 * now.best
        h = xp.where((h < 0) & (above if hold is None else above | hold), zeros, h)
        base, (least, most) = solver.base, solver.range
        factor = xp.exp(h) * xp.where(grown, zeros + RAISE, zeros + 1)
        delta = base + xp.minimum(xp.maximum((delta - base) * factor, least), most)
    if step:
        gamma = xp.where(grown, CUT * gamma, gamma)
    best = xp.where(grown, size, xp.minimum(now.best, size))
    since = xp.where(grown, zeros, since)
    return p, Adaptation(delta, gamma, z, size, best, since, now.difference, GAIN_DECAY * now.extra)


def compare(now: Adaptation, solver: LocalSolver, z: Array, dw: Array, Hdw: Array) -> Adaptation:
    """Raise shifts where the residual z changed otherwise than by the client's own H_i Δw_i, after an iteration."""
    xp = array_namespace(z)
    zeros = xp.zeros_like(now.shift)
    a = z - now.z - Hdw
    square = xp.sum(dw * dw, axis=-1, keepdims=True)
    along = xp.maximum(xp.sum(dw * Hdw, axis=-1, keepdims=True), -0.9 * now.shift * square)
    change = xp.maximum(xp.sum(a * solver.solve(a, now.shift), axis=-1, keepdims=True), zeros)
    length = along + now.shift * square
    r = xp.sqrt(change / xp.where(length > 0, length, zeros + 1))
    r = xp.where(length > 0, r, zeros)
    both = r if now.difference is None else xp.minimum(r, now.difference)
    factor = xp.minimum(xp.maximum(both, zeros + 1), zeros + LARGEST_DIFFERENCE) ** DIFFERENCE_GAIN
    shift = solver.base + xp.minimum((now.shift - solver.base) * factor, solver.range[1])
    return replace(now, shift=xp.where(both > 1, shift, now.shift), difference=r)


def check_shift(solver: LocalSolver, shift: float | None, channel: Channel) -> None:
    """Raise ValueError if the given shift leaves P_i indefinite at a client."""
    if shift is not None:
        low, high = host_float64(solver.low)[..., 0], host_float64(solver.high)[..., 0]
        excess = np.finfo(host_dtype(solver.low)).eps * high - (low + shift)
        text = "shift must be above {0:.6g} for client {2}, whose Hessian has the eigenvalue {1:.6g}, got {3:g}"
        _refuse(excess, channel, lambda i, k: text.format(-low[k], low[k], i, shift))


# The method -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreconditionedTrackingState(Result):
    y: Array  # tracked gradient: Σ_i y_i = Σ_i (H_i w_i − ∂_x f_i)
    w0: Array  # w at the start
    adaptation: Adaptation
    degree: int  # of the polynomial that solves; 0 for a factorisation
    u: Array | None = None  # ω w; None before the first step
    w: Array | None = None  # u/ω
    Hw: Array | None = None  # H (w − w0)
    omega: Array | float = 1.0

    @property
    def residual(self) -> Array:
        return -self.y / self.omega  # y is a sum over clients


class PreconditionedTracking(Method):
    """Gradient tracking with a local solve: fewer messages for more local work.

    With P_i = H_i + δ_i I, P of each call, and from u = w = 0, ω = 1, y = −∂_x f,

        u ← P(u − γ ω P_i⁻¹(y_i/ω_i)),    ω ← P ω,    w⁺ = u/ω,    y ← P y + H w⁺ − H w,    w ← w⁺.

    Columns of P sum to 1, so Σ_i y_i = Σ_i (H_i w_i − ∂_x f_i) whatever the P_i are. Where clients agree and y = 0, w
    is w*: the limit is exact for any S, and S = 1 suffices on networks that mix well. The P_i may differ between
    clients and change at any time. With exact averages and similar clients the rate does not depend on the condition
    number of H̄ (docs/theory/curvature.md). A message carries two vectors and one weight, as in `Tracking`.

    Clients find δ_i and γ_i themselves, without messages (`hgp_ref.methods.curvature.Adaptation`). This is a rule
    without a proof of convergence. It keeps the invariant, so the limit of a run that converges is exact. Clients whose
    Hessians differ very much need as many messages as with `Tracking`. If a client's Hessian is a thousandth of the
    others' or less, but not 0, the run may diverge; give a `shift` of about 0.3 times their size. On rings and other
    networks that mix slowly, use S ≈ ln 0.5/ln τ steps per call, with the contraction τ of one step.

    Up to 512 dimensions each client factorises its explicit Hessian once. In more dimensions, or if n d² > 2²⁶, a solve
    is a polynomial of `degree` Hessian-vector products; `est.state.degree` tells which (0 for a factorisation). An
    iteration makes one product and two solves, the second one to adapt δ_i.

    With mini-batches, products H w are sampled and solves are not. P_i⁻¹ amplifies the noise along weak directions, and
    the rule takes noise for disagreement: `Tracking` leaves a smaller error, by 2 to 20 times where it was measured.

    Parameters
    ----------
    shift : δ, the same for every client; it must exceed −λ_min(H_i) of every client. None to adapt it.
    step : γ; None to adapt it.
    degree : of the polynomial; None for a factorisation where d is small.

    Examples
    --------
    A condition number of 1000, one step of the network per call:

    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1, condition=1000)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), steps=1)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.PreconditionedTracking(), iterations=150)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-10)
    True
    """

    remedy = "take a larger shift, a smaller step, or more steps of the averaging a call"

    @checked(shift=Optional(Nonnegative()), step=Optional(Positive()), degree=Optional(Count(2)))
    def __init__(self, shift: float | None = None, step: float | None = None, degree: int | None = None) -> None:
        self.shift, self.step_size, self.degree = shift, step, degree
        self.progress = 2.0 if shift is None or step is None else 1.0

    def init(self, start: Start) -> PreconditionedTrackingState:
        solver = self._solver(start.mixer.channel, start.derivatives, start.residual)
        if start.previous is not None:
            forgotten = dict.fromkeys(("z", "size", "best", "since", "difference"))
            adaptation = replace(start.previous.adaptation, **forgotten)
        else:
            check_shift(solver, self.shift, start.mixer.channel)
            adaptation = first_adaptation(solver, start.residual, self.shift, self.step_size)
        return PreconditionedTrackingState(-start.residual, start.w, adaptation, solver.degree)

    def resume(self, state: PreconditionedTrackingState, start: Start) -> PreconditionedTrackingState:
        start.mixer.continue_weights(state.omega)
        adaptation = state.adaptation
        if self.shift is not None:
            solver = self._solver(start.mixer.channel, start.derivatives, start.residual)
            check_shift(solver, self.shift, start.mixer.channel)
            adaptation = replace(adaptation, shift=self.shift * array_namespace(state.y).ones_like(adaptation.shift))
        if self.step_size is not None:
            adaptation = replace(adaptation, step=self.step_size * array_namespace(state.y).ones_like(adaptation.step))
        return replace(state, adaptation=adaptation)

    def step(
        self, state: PreconditionedTrackingState, mixer: Mixer, derivatives: Derivatives
    ) -> tuple[Array, PreconditionedTrackingState]:
        xp, d = array_namespace(state.y), state.y.shape[-1]
        if state.u is None:
            mixer.drop_in_flight()
            omega = mixer.weights
            state = replace(state, u=omega * state.w0, w=state.w0, Hw=xp.zeros_like(state.w0), omega=omega)
        solver = self._solver(mixer.channel, derivatives, state.y)
        p, adaptation = adapt(
            state.adaptation, solver, state.y / state.omega, self.shift is None, self.step_size is None
        )
        u_next = state.u - adaptation.step * state.omega * p
        mixed = mixer.push(xp.concat([u_next, state.y], axis=-1))
        u, omega = mixed[..., :d], mixer.weights
        w = u / omega
        Hw = derivatives.hvp(w - state.w0)
        y, dw = mixed[..., d:] + (Hw - state.Hw), w - state.w
        if self.shift is None:
            adaptation = compare(adaptation, solver, y / omega, dw, Hw - state.Hw)
        return dw, replace(state, y=y, u=u, w=w, Hw=Hw, omega=omega, adaptation=adaptation)

    def _solver(self, channel: Channel, derivatives: Derivatives, like: Array) -> LocalSolver:
        """The local solver of this run, made in its first iteration; all runs of a run axis share the Hessians."""
        key = ("local solver", self.degree)
        if key not in derivatives.cache:
            one, full = first_run(like), derivatives.full()
            derivatives.cache[key] = local_solver(full, derivatives.hessians, one, channel, self.degree)
        return derivatives.cache[key]

    def __repr__(self) -> str:
        degree = "" if self.degree is None else f", degree={self.degree}"
        return f"PreconditionedTracking(shift={self.shift}, step={self.step_size}{degree})"
