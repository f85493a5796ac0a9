"""The outer loop: train, estimate, update, repeat.

    x_k = x(λ_k),    v_k ≈ d_λ Σ_i f_i(x_k, λ_k),    λ_{k+1} = Π(update(λ_k, v_k)),    k = 0 .. K−1

A hyper-gradient that diverges or is not finite never reaches the update. It is estimated again with half the η, at most
RETRIES times; the smaller η is kept for later steps. If that does not help (or the method has no η), the step is
refused: λ and the state of the update do not change. After two refused steps in a row the loop ends.

If training diverges at the new λ, or the outer cost is not finite there, the step is halved, λ ← Π((λ_k + λ)/2), at
most HALVINGS times, after which the loop ends at λ_k.

With `log=True` in the update, all this applies to θ = log λ and to the hyper-gradient with respect to θ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, all_finite, array_namespace, detached, host_float64, to_host
from hgp_ref.bilevel.settings import Estimator, FunctionEstimator, Monitor, Trainer, copied
from hgp_ref.bilevel.trajectory import LoopState, OuterStep
from hgp_ref.bilevel.updates import Update
from hgp_ref.errors import DivergenceError
from hgp_ref.mixing import Channel
from hgp_ref.networks import Network
from hgp_ref.problems.base import FullProblem, check_lam

RETRIES = 4  # of an estimate that diverged, each with half the η
HALVINGS = 8  # of a step to a λ at which training fails


@dataclass
class Loop:
    """The settings of a loop, which do not change while it runs."""

    problem: FullProblem
    net: Network
    channel: Channel  # for sums over clients in reports, and for agreement between ranks
    train: Trainer
    estimate: Estimator | FunctionEstimator
    update: Update
    project: Callable[[Array], Array] | None
    monitor: Monitor | None
    log: bool

    @property
    def rounding_complete(self) -> bool | None:
        """Whether certificates include the rounding of the problem's own sums; None without certificates."""
        return None

    def begin(self, lam: Array) -> LoopState:
        """Train at λ_0."""
        update_state = self.update.start(lam)
        if not isinstance(update_state, tuple):
            raise TypeError(f"update.start must return a tuple, got {type(update_state).__name__}")
        state = LoopState(update_state=update_state)
        try:
            self.accept(state, lam, *self.evaluate(state, lam))
        except DivergenceError as error:
            raise DivergenceError(f"training failed at the first lam: {error}") from error
        return state

    def step(self, state: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, lam, before, training = state.k, state.lam[-1], state.traffic, state.training
        notes: list[str] = []
        est = self.estimate_here(state, notes, self.estimate)
        sent = state.traffic - before
        state.refused = state.refused + 1 if est is None else 0
        proposed = lam if est is None else self._proposed(state, lam, est.value)
        scale = self._move(state, lam, proposed, 0.0 if est is None else 1.0, notes)
        if state.refused == 2:
            state.stopped = "divergence"
        if notes:
            warnings.warn(f"outer step {k}: " + "; ".join(notes), RuntimeWarning, stacklevel=3)
        if state.k > k:
            norm, iterations = None if est is None else self.norm(est.value), int(getattr(est, "iterations", 0))
            state.steps.append(OuterStep(training, sent, norm, iterations, scale, "; ".join(notes)))

    def estimate_here(
        self, state: LoopState, notes: list[str], estimator: Estimator | FunctionEstimator, w0: Array | None = None
    ) -> Any:
        """The hyper-gradient at λ_k; None if all attempts diverged."""
        for _ in range(RETRIES + 1):
            try:
                return self.estimate_at(state, self.problem, state.x, state.lam[-1], estimator, w0)
            except DivergenceError as error:
                notes.append(f"hyper-gradient refused: {error}")
                if not estimator.can_shrink:
                    break
                state.shrink /= 2
        return None

    def estimate_at(
        self,
        state: LoopState,
        problem: FullProblem,
        x: Array,
        lam: Array,
        estimator: Estimator | FunctionEstimator,
        w0: Array | None = None,
    ) -> Any:
        """One attempt at (x, λ); DivergenceError if the estimate is not finite."""
        est = estimator.run(problem, x, lam, self.net, state, w0)
        if self.channel.any_rank(not all_finite(est.value)):
            raise DivergenceError("diverged: the hyper-gradient holds NaN or infinite values")
        return est

    def _move(self, state: LoopState, lam: Array, proposed: Array, scale: float, notes: list[str]) -> float:
        """Accept the proposed λ or, if training fails there, one on the way to it; the fraction of the step taken."""
        for _ in range(HALVINGS + 1):
            try:
                x, cost = self.evaluate(state, proposed)
            except DivergenceError as error:
                notes.append(f"{scale:g} of the step refused: {error}")
                proposed, scale = self.projected((lam + proposed) / 2), scale / 2
            else:
                self.accept(state, proposed, x, cost)
                return scale
        state.stopped = "divergence"
        return 0.0

    def _proposed(self, state: LoopState, lam: Array, v: Array) -> Array:
        """Π(update(λ, v)), with the next state of the update."""
        answer = self.update.step(state.update_state, copied(lam), copied(v))
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], tuple):
            raise TypeError(f"update.step must return (lam, state) with a tuple as state, got {type(answer).__name__}")
        proposed, state.update_state = answer
        _check_like(lam, "what update returned", proposed)
        validation.finite("what update returned", proposed)
        return self.projected(copied(proposed))

    def projected(self, lam: Array) -> Array:
        """Π(λ), or with log=True log Π(exp θ)."""
        if self.project is None:
            return detached(lam)
        allowed = apply_projection(self.project, self.as_lam(lam))
        validation.finite("what project returned", allowed)
        return log_of("project must return positive entries with log=True", allowed) if self.log else allowed

    def as_lam(self, variable: Array) -> Array:
        """λ, or with log=True exp θ."""
        return array_namespace(variable).exp(variable) if self.log else variable

    def evaluate(self, state: LoopState, lam: Array) -> tuple[Array, float]:
        """x and Σ f_i at λ; DivergenceError if they are not finite."""
        before = state.traffic
        x0 = state.x if self.train.warm_start and state.x is not None else self.train.x0
        x = self.train.run(self.problem, lam, self.net, x0, state, len(state.lam))
        if self.channel.any_rank(not all_finite(x)):
            raise DivergenceError("diverged: training returned NaN or infinite parameters")
        cost = self.outer_cost(x, lam, "training")
        state.training = state.traffic - before
        return x, cost

    def outer_cost(self, x: Array, lam: Array, after: str) -> float:
        """Σ f_i; DivergenceError if it is not finite."""
        cost = sum_over_clients(self.channel, self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after {after}")
        return cost

    def accept(self, state: LoopState, lam: Array, x: Array, cost: float) -> None:
        """Append λ, x and the outer cost there to the path."""
        state.append(lam, cost, state.traffic)
        state.x = x
        self.evaluate_metric(state)

    def evaluate_metric(self, state: LoopState) -> None:
        """Measure x at λ_k, and keep x if it is the best so far."""
        if self.monitor is None:
            return
        measured = self.monitor.measure(copied(state.x), copied(self.as_lam(state.lam[-1])))
        value = validation.number("measure(x, lam)", measured)
        local = self.channel.clients.stop - self.channel.clients.start
        if local != self.channel.n:  # clients in several processes: the mean over clients
            value = sum_over_clients(self.channel, np.full(local, value)) / self.channel.n
        state.measure.append(value)
        if state.measure[-1] < state.measure[state.best] or state.k == 0:
            state.best, state.best_x = state.k, state.x

    def norm(self, v: Array) -> float:
        """‖v‖ over all clients, without overflow."""
        v = host_float64(v)
        size = float(self.channel.max_over_clients(np.abs(v).max(axis=1)))
        return size * sum_over_clients(self.channel, np.sum((v / size) ** 2, axis=1)) ** 0.5 if size else 0.0


# ---- Shared with the loop of `hgp_ref.baselines`


def check_start(problem: FullProblem, lam: Array, x0: Array | None) -> Array:
    """A copy of λ_0, after checking λ_0 and x0."""
    check_lam(problem, lam)
    if x0 is not None:
        validation.same_kind(lam=lam, x0=x0)
        validation.shape("x0", x0, (problem.n_clients, problem.dim_x), "(n, d_x)", run_axes=False)
        validation.finite("x0", x0)
    return array_namespace(lam).asarray(detached(lam), copy=True)


def check_functions(project: object, callback: object) -> None:
    if project is not None:
        validation.check_signature("project", project, "lam")
    if callback is not None:
        validation.check_signature("callback", callback, "k", "lam", "x", "outer_cost")


def apply_projection(project: Callable[[Array], Array], lam: Array) -> Array:
    """Π(λ), after checking what the user's function returned."""
    projected = project(copied(lam))
    _check_like(lam, "what project returned", projected)
    return detached(projected)


def log_of(message: str, lam: Array) -> Array:
    """log λ; ValueError with this message unless all entries are positive."""
    xp = array_namespace(lam)
    if not bool(to_host(xp.all(lam > 0))):
        raise ValueError(message)
    return xp.log(lam)


def sum_over_clients(channel: Channel, values: Array) -> float:
    """The sum over all clients of values (n,)."""
    return float(channel.mean_over_clients(host_float64(values)[:, None])[0, 0]) * channel.n


def _check_like(lam: Array, name: str, array: Array) -> None:
    """TypeError or ValueError unless `array` has the kind and shape of λ."""
    validation.same_kind(lam=lam, **{name: array})
    validation.shape(name, array, tuple(lam.shape), "(n, d_lam)", run_axes=False)
