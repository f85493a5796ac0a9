"""Gradient tracking (Push-DIGing): the error falls to rounding however few steps a call takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype
from hgp_ref.methods.base import Curvature, Method
from hgp_ref.methods.spectrum import mixing, range_over_clients
from hgp_ref.mixing import Mixer
from hgp_ref.mixing.averaging import read_steps


@dataclass(frozen=True)
class _TrackingState:
    y: Array  # follows ∂²_x g w − ∂_x f: the same sum over clients at all times
    w0: Array | None  # where the run began; None for 0
    u: Array | None = None  # ω w; None before the first step
    w: Array | None = None  # u/ω
    bent: Array | None = None  # ∂²_x g (w − w₀)
    omega: Array | float = 1.0
    step: float | Array | None = None  # η; with a run axis perhaps one for each run, (runs, 1, 1)


class Tracking(Method):
    """Gradient descent on Σ_i ½ wᵀH_i w − ∂_x f_iᵀ w whose gradient is tracked: with P of each call, from u = w = 0,
    ω = 1 and y = −∂_x f,

        u ← P(u − η y),    ω ← P ω,    w⁺ = u/ω,    y ← P y + ∂²_x g w⁺ − ∂²_x g w,    w ← w⁺.

    Columns of P sum to 1, so Σ_i y_i = Σ_i (∂²_x g_i w_i − ∂_x f_i) always. Where clients agree and y = 0, w is w*
    itself, whatever P: there is no floor in S, S = 1 suffices. No client need be convex, only H̄ ≻ 0: for small η over
    graphs that repeat, the error falls as (1 − ηᾱ + O(η²))^m. A message carries two vectors and one weight.

    Too large an η diverges, and how large that is depends on the network (a ring of ten clients: 0.02/L, with L =
    max_i ‖∂²_x g_i‖). A run on full batches whose y is larger at its end than at half time raises DivergenceError.

    With mini-batches the products of successive iterations differ by their noise as well, which then leaves a floor in
    proportion to w − w₀; `Refined` brings it down.

    Parameters
    ----------
    step : η. If None the clients find a safe one before the first step, whose traffic is counted:

            η = (1 − τ^S) min(ω, 1 − τ^S) / L,

        with L from Lanczos and flooding (`spectrum`), τ how much a round of Push-Sum shrinks the spread of their
        averages and ω the smallest weight (`mixing`), S the smallest number of steps of any call. Why: let W have an
        eigenvalue τ e^{iφ} and H_i = λ ± ζ around a mean λ. Consensus, disagreement of w and disagreement of y then
        follow the map

            (a, Δ, δ) ← (a − η(λa + ζΔ),  τe^{iφ}(Δ − ηδ),  τe^{iφ}δ + λ(Δ⁺ − Δ) + ζ(a⁺ − a)),

        which for all 0 ≤ ζ ≤ λ ≤ L and all φ is stable at (1 − τ)²/L, at three times that where τ ≥ 0.7, and at 1/L
        where τ ≤ 0.1 (`python -m verification tracking`). It has weights of 1; a client that hears few moves by
        η y_i/ω_i, hence the ω. That is a rule, not a proof: graphs to come may leave a client deaf for longer than
        those that were seen, its ω falls by half in each of them, and errors at the level of rounding may then be
        blown up for a while.

    Raises
    ------
    TypeError, ValueError
        `step` must be positive or None.

    Examples
    --------
    One step of the network a call, where Algorithm 2 keeps an error of a third:

    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), steps=1)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.Tracking(), iterations=2000)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-11)
    True
    """

    transients = False
    conserves = True
    remedy = "take a smaller step, or more steps of the averaging a call"

    def __init__(self, step: float | None = None) -> None:
        self.given = None if step is None else validation.positive("step", step)

    def start(self, g: Array) -> _TrackingState:
        return _TrackingState(y=-g, w0=None, step=self.given)

    def start_from(self, g: Array, w: Array) -> _TrackingState:
        return _TrackingState(y=-g, w0=w, step=self.given)

    def begin(self, state: _TrackingState, mixer: Mixer, whole: Callable[[], Curvature]) -> _TrackingState:
        return state if state.step is not None else replace(state, step=safe_step(mixer, whole(), state.y))

    def restart(
        self, state: _TrackingState, g: Array, w: Array, mixer: Mixer, whole: Callable[[], Curvature]
    ) -> _TrackingState:
        return _TrackingState(y=-g, w0=w, step=state.step)

    def step(self, state: _TrackingState, mixer: Mixer, linearization: Curvature) -> tuple[Array, _TrackingState]:
        xp, d = array_namespace(state.y), state.y.shape[-1]
        if state.step is None:
            state = self.begin(state, mixer, lambda: linearization)
        if state.u is None:
            mixer.drop_in_flight()
            w = xp.zeros_like(state.y) if state.w0 is None else state.w0
            state = replace(state, u=mixer.weights * w, w=w, bent=xp.zeros_like(w))
        mixed = mixer.push(xp.concat([state.u - state.step * state.y, state.y], axis=-1))
        u, omega = mixed[..., :d], mixer.weights
        w = u / omega
        bent = linearization.hvp(w if state.w0 is None else w - state.w0)
        y = mixed[..., d:] + (bent - state.bent)
        return w - state.w, replace(state, y=y, u=u, w=w, bent=bent, omega=omega)

    def residual(self, state: _TrackingState) -> Array:
        return -state.y / state.omega  # a mean of what clients hold, where y is a sum

    def carry(self, state: _TrackingState) -> Array:
        return -state.y

    def __repr__(self) -> str:
        return f"Tracking(step={self.given})"


def safe_step(mixer: Mixer, whole: Curvature, like: Array) -> float | Array:
    """(1 − τ^S) min(ω, 1 − τ^S) / L, one for each run where there are several, (runs, 1, 1)."""
    low, high = range_over_clients(mixer.channel, whole, like)
    L = max(abs(low), abs(high))
    if not L > 0:
        raise ValueError(f"step: the clients' Hessians have no eigenvalue above {L:g}, so that none is safe: give step")
    least = np.array([np.min(a.steps) for a in mixer.averagings], dtype=np.float64)
    seen = mixing(mixer, like)
    gap = 1.0 - np.asarray(seen.tau) ** (least if like.ndim > 2 else least[0])
    eta = gap * np.minimum(gap, seen.lightest) / L
    if not np.all(eta > 0):
        raise ValueError("step: averages over this network do not become equal, so that no step is safe; give step")
    return float(eta) if eta.ndim == 0 else from_host(eta.astype(host_dtype(like))[:, None, None], like=like)


# ----------------------------------------------------------------------------------------------------
# Iterative refinement: another method, restarted on what it has left over.


@dataclass(frozen=True)
class _RefinedState:
    inner: Any  # of the method that is refined
    g: Array  # ∂_x f − ∂²_x g w₀
    w0: Array | float
    w: Array | float  # w₀ and all increments
    whole: Callable[[], Curvature] | None = None
    m: int = 0  # iterations made


class Refined(Method):
    """Cycles of `method`. Each but the first begins with a better average of w and the residual there,

        w ← Θ̂ w,    r = ∂_x f − ∂²_x g w on full batches,

    and solves H̄ δ = mean r from δ = 0. `method` errs in proportion to what it is given: its increments, and with them
    the noise of mini-batches and the disagreement between clients, shrink from cycle to cycle. What does not shrink is
    r − mean r, which the first average of a cycle must remove: it takes `steps` steps, as does that of w.

    Parameters
    ----------
    method : any method.
    cycles : how many; a run of M iterations has ⌈M/cycles⌉ in each.
        With `tol`, the last cycle ends once so little is left.
    steps : steps of the averages at a restart, larger than those in between; a sequence gives those of the first,
        second, ... restart, and its last entry is repeated.

    Raises
    ------
    TypeError, ValueError
        `method` must be a method, `cycles` and `steps` integers ≥ 1.

    Examples
    --------
    Calls of four steps, six of forty at three restarts:

    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), steps=4)
    >>> method = hgp.methods.Refined(hgp.methods.Chebyshev(), cycles=4, steps=40)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=100)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-6)
    True
    """

    def __init__(self, method: Method, cycles: int = 4, steps: Any = 40) -> None:
        if not isinstance(method, Method):
            given = f"{type(method).__module__}.{type(method).__name__}"
            raise TypeError(f"method: {given} given, needed a method of hgp_ref.methods")
        self.method, self.cycles = method, validation.integer("cycles", cycles, 1, validation.LONGEST)
        self.steps = read_steps(steps)
        self.length: int | None = None  # iterations of a cycle, once a run is known

    @property
    def transients(self) -> bool:  # type: ignore[override]
        return self.method.transients

    @property
    def conserves(self) -> bool:  # type: ignore[override]
        return self.method.conserves

    @property
    def remedy(self) -> str:  # type: ignore[override]
        return self.method.remedy

    def for_run(self, iterations: int) -> Refined:
        other = copy.copy(self)
        other.length = -(-iterations // self.cycles)
        other.method = self.method.for_run(other.length)
        return other

    def start(self, g: Array) -> _RefinedState:
        return _RefinedState(self.method.start(g), g, 0.0, 0.0)

    def start_from(self, g: Array, w: Array) -> _RefinedState:
        return _RefinedState(self.method.start_from(g, w), g, w, w)

    def begin(self, state: _RefinedState, mixer: Mixer, whole: Callable[[], Curvature]) -> _RefinedState:
        return replace(state, inner=self.method.begin(state.inner, mixer, whole), whole=whole)

    def restart(
        self, state: _RefinedState, g: Array, w: Array, mixer: Mixer, whole: Callable[[], Curvature]
    ) -> _RefinedState:
        return _RefinedState(self.method.restart(state.inner, g, w, mixer, whole), g, w, w, whole)

    def step(self, state: _RefinedState, mixer: Mixer, linearization: Curvature) -> tuple[Array, _RefinedState]:
        length = self.length or 1
        if state.m and state.m % length == 0:
            return self._restarted(state, mixer, linearization, state.m // length)
        p, inner = self.method.step(state.inner, mixer, linearization)
        return p, replace(state, inner=inner, w=state.w + p, m=state.m + 1)

    def _restarted(
        self, state: _RefinedState, mixer: Mixer, linearization: Curvature, restart: int
    ) -> tuple[Array, _RefinedState]:
        """The first step of a cycle, and what the average of w has moved."""
        better = mixer.with_steps(self.steps if isinstance(self.steps, int) else self.steps[:restart][-1])
        w = better.average(mixer.carry(state.w))
        whole = state.whole or (lambda: linearization)
        r = state.g - whole().hvp(w - state.w0)
        inner = self.method.restart(state.inner, r, w, mixer, whole)
        p, inner = self.method.step(inner, better, linearization)
        return (w - state.w) + p, replace(state, inner=inner, w=w + p, m=state.m + 1)

    def residual(self, state: _RefinedState) -> Array | None:
        return self.method.residual(state.inner)

    def may_end(self, state: _RefinedState) -> bool:
        """In the last cycle: in those before, little may be left of what the method solves for, but not of r."""
        return state.m > (self.cycles - 1) * (self.length or 1)

    def carry(self, state: _RefinedState) -> Array | None:
        return self.method.carry(state.inner)

    def resume(self, g: Array, w: Array, carried: Array) -> _RefinedState:
        return _RefinedState(self.method.resume(g, w, carried), g, w, w)

    def __repr__(self) -> str:
        return f"Refined({self.method!r}, cycles={self.cycles}, steps={self.steps})"
