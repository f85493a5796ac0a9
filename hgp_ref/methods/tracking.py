"""Gradient tracking and iterative refinement: errors fall to rounding although averages are short.

Tracking (Push-DIGing) conserves the sum of the clients' gradients; `Refined` restarts another method on its residual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hgp_ref._kernels import cuda
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype
from hgp_ref.methods.base import Curvature, Derivatives, Method, Start, entry
from hgp_ref.methods.spectrum import measure_mixing, range_over_clients
from hgp_ref.mixing import Mixer
from hgp_ref.mixing.averaging import read_steps
from hgp_ref.results import Result
from hgp_ref.validation import Count, Instance, Optional, Positive, checked


@dataclass(frozen=True)
class TrackingState(Result):
    y: Array  # tracked gradient: Σ_i y_i = Σ_i (H_i w_i − ∂_x f_i)
    w0: Array  # w at the start
    step: float | Array  # η; with a run axis one for each run, (runs, 1, 1)
    u: Array | None = None  # ω w; None before the first step
    w: Array | None = None  # u/ω
    Hw: Array | None = None  # H (w − w0)
    omega: Array | float = 1.0

    @property
    def residual(self) -> Array:
        return -self.y / self.omega  # y is a sum over clients


class Tracking(Method):
    """Gradient tracking (Push-DIGing): gradient descent on Σ_i ½ wᵀH_i w − ∂_x f_iᵀ w.

    With P of each call, from u = w = 0, ω = 1 and y = −∂_x f,

        u ← P(u − η y),    ω ← P ω,    w⁺ = u/ω,    y ← P y + H w⁺ − H w,    w ← w⁺.

    Columns of P sum to 1, so Σ_i y_i = Σ_i (H_i w_i − ∂_x f_i) always. Where clients agree and y = 0, w is w* whatever
    P: there is no floor in S, and S = 1 suffices. No client need be convex, only H̄ ≻ 0. For small η over graphs that
    repeat, the error falls as (1 − ηᾱ + O(η²))^m. A message carries two vectors and one weight.

    A large η diverges, and the limit depends on the network (0.02/L on a ring of ten clients, with L = max_i ‖H_i‖). A
    run on full batches whose y is larger at its end than at half time raises DivergenceError.

    With mini-batches the products of successive iterations also differ by their noise. This leaves an error in
    proportion to w − w0, which `Refined` reduces.

    Parameters
    ----------
    step : η. If None the clients find it before the first step (which counts as traffic):

            η = (1 − τ^S) min(ω, 1 − τ^S) / L,

        with L by Lanczos and max-consensus, τ the contraction of one round of Push-Sum and ω the smallest weight
        (`hgp_ref.methods.spectrum`), and S the fewest steps of a call. Why: let W have an eigenvalue τ e^{iφ}, and let
        H_i = λ ± ζ around a mean λ. The mean error, the disagreement of w and the disagreement of y follow the map

            (a, Δ, δ) ← (a − η(λa + ζΔ),  τe^{iφ}(Δ − ηδ),  τe^{iφ}δ + λ(Δ⁺ − Δ) + ζ(a⁺ − a)).

        For all 0 ≤ ζ ≤ λ ≤ L and all φ it is stable at η = (1 − τ)²/L, at three times that for τ ≥ 0.7, and at 1/L for
        τ ≤ 0.1 (`python -m verification tracking`). The map has weights 1. A client that receives little moves by
        η y_i/ω_i, hence the factor ω. This is a rule, not a proof: later graphs may leave a client without messages for
        longer than those measured, and its ω halves in each of them, which may amplify rounding errors for a while.

    Examples
    --------
    One step of the network per call, where Algorithm 2 has an error of a third:

    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> x, lam = np.ones((3, 4)), np.zeros((3, 2))
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=1), steps=1)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.Tracking(), iterations=2000)
    >>> bool(np.abs(est.value - hgp.exact.hypergradient(problem, x, lam)).max() < 1e-11)
    True
    """

    steady = True
    remedy = "take a smaller step, or more averaging steps per call"

    @checked(step=Optional(Positive()))
    def __init__(self, step: float | None = None) -> None:
        self.step_size = step

    def init(self, start: Start) -> TrackingState:
        if start.previous is not None:
            step = start.previous.step
        elif self.step_size is not None:
            step = self.step_size
        else:
            step = safe_step(start.mixer, start.derivatives.full(), start.residual)
        return TrackingState(-start.residual, start.w, step)

    def resume(self, state: TrackingState, start: Start) -> TrackingState:
        return TrackingState(state.y, start.w, state.step)

    def step(self, state: TrackingState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, TrackingState]:
        xp, d = array_namespace(state.y), state.y.shape[-1]
        if state.u is None:
            mixer.drop_in_flight()
            state = replace(state, u=mixer.weights * state.w0, w=state.w0, Hw=xp.zeros_like(state.w0))
        if cuda.applies(state.y) and isinstance(state.step, float):
            message = cuda.tracking_message(state.u, state.step, state.y)
        else:
            message = xp.concat([state.u - state.step * state.y, state.y], axis=-1)
        mixed = mixer.push(message)
        u, omega = mixed[..., :d], mixer.weights
        w = u / omega
        Hw = derivatives.hvp(w - state.w0)
        y = mixed[..., d:] + (Hw - state.Hw)
        return w - state.w, replace(state, y=y, u=u, w=w, Hw=Hw, omega=omega)

    def __repr__(self) -> str:
        return f"Tracking(step={self.step_size})"


def safe_step(mixer: Mixer, curvature: Curvature, like: Array) -> float | Array:
    """(1 − τ^S) min(ω, 1 − τ^S) / L; with a run axis one for each run, (runs, 1, 1)."""
    low, high = range_over_clients(mixer.channel, curvature, like)
    L = max(abs(low), abs(high))
    if not L > 0:
        raise ValueError(f"step must be given: the clients' Hessians have no eigenvalue above {L:g}")
    steps = np.array([np.min(a.steps) for a in mixer.averagings], dtype=np.float64)
    mixing = measure_mixing(mixer, like)
    gap = 1.0 - np.asarray(mixing.tau) ** (steps if np.ndim(mixing.tau) else steps[0])
    eta = gap * np.minimum(gap, mixing.smallest_weight) / L
    if not np.all(eta > 0):
        raise ValueError("step must be given: averages over this network do not converge to the mean")
    return float(eta) if eta.ndim == 0 else from_host(eta.astype(host_dtype(like))[:, None, None], like=like)


@dataclass(frozen=True)
class RefinedState(Result):
    inner: Any  # state of the method that is refined
    w0: Array  # w at the start
    residual0: Array  # ∂_x f − H w0
    w: Array
    length: int  # iterations of a cycle
    cycles: int
    m: int = 0  # iterations made

    @property
    def residual(self) -> Any:
        return entry(self.inner, "residual")

    @property
    def may_stop(self) -> bool:
        """In the last cycle. Before it, the residual of the equation that a cycle solves may be small, but not r."""
        return self.m > (self.cycles - 1) * self.length


class Refined(Method):
    """Iterative refinement: `method`, restarted on its residual.

    Each cycle but the first begins with

        w ← Θ̂ w,    r = ∂_x f − H w on full batches,

    and solves H̄ δ = mean r from δ = 0. The error of `method` is proportional to the right-hand side, so the noise of
    mini-batches and the disagreement between clients shrink from cycle to cycle. Only r − mean r does not shrink. The
    first average of a cycle must remove it, so that one takes `steps` steps, like the average of w.

    Parameters
    ----------
    cycles : number of cycles; a run of M iterations has ⌈M/cycles⌉ in each. `tol` applies to the last one.
    steps : steps of the averages at a restart, more than in between; a sequence has those of the first, second, ...
        restart, and its last entry repeats.

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

    @checked(method=Instance(Method), cycles=Count())
    def __init__(self, method: Method, cycles: int = 4, steps: Any = 40) -> None:
        self.method, self.cycles, self.steps = method, cycles, read_steps(steps)

    def init(self, start: Start) -> RefinedState:
        length = -(-start.iterations // self.cycles)
        previous = None if start.previous is None else start.previous.inner
        inner = self.method.init(start._replace(iterations=length, previous=previous))
        return RefinedState(inner, start.w, start.residual, start.w, length, self.cycles)

    def resume(self, state: RefinedState, start: Start) -> RefinedState:
        length = -(-start.iterations // self.cycles)
        inner = self.method.resume(state.inner, start._replace(iterations=length))
        return RefinedState(inner, start.w, start.residual, start.w, length, self.cycles)

    def step(self, state: RefinedState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, RefinedState]:
        if state.m and state.m % state.length == 0:
            return self._restart(state, mixer, derivatives)
        p, inner = self.method.step(state.inner, mixer, derivatives)
        return p, replace(state, inner=inner, w=state.w + p, m=state.m + 1)

    def _restart(self, state: RefinedState, mixer: Mixer, derivatives: Derivatives) -> tuple[Array, RefinedState]:
        """The first step of a cycle: average w, compute the residual there, and start `method` from it."""
        cycle = state.m // state.length
        longer = mixer.with_steps(self.steps if isinstance(self.steps, int) else self.steps[:cycle][-1])
        w = longer.average(mixer.carry(state.w))
        r = state.residual0 - derivatives.full().hvp(w - state.w0)
        inner = self.method.init(Start(r, w, mixer, derivatives, state.length, previous=state.inner))
        p, inner = self.method.step(inner, longer, derivatives)
        return (w - state.w) + p, replace(state, inner=inner, w=w + p, m=state.m + 1)

    def __repr__(self) -> str:
        return f"Refined({self.method!r}, cycles={self.cycles}, steps={self.steps})"


def innermost(method: Method) -> Method:
    """The method that is refined, or `method` itself."""
    while isinstance(method, Refined):
        method = method.method
    return method
