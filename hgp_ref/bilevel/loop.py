"""Train, estimate, update, repeat; and what is done when one of them fails.

    x_k = x(λ_k),    v_k ≈ d_λ Σ_i f_i(x_k, λ_k),    λ_{k+1} = Π(update(λ_k, v_k)),    k = 0 .. K−1

A hyper-gradient that diverges, or that is not finite, never reaches the update. It is estimated again with η halved,
at most RETRIES times; the smaller η stays. If that does not help (or there is no η) the step is refused: λ and the
state of the update stay as they are. After two refused steps in a row the loop ends.

A λ at which training diverges or the outer cost is not finite is not accepted: the step is halved, λ ← Π((λ_k + λ)/2),
at most HALVINGS times, after which the loop ends at λ_k.

With log=True all this is done to θ = log λ, problem and hyper-gradients being those of θ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, detached, host_float64, to_host
from hgp_ref.bilevel.clock import Clock
from hgp_ref.bilevel.estimator import Estimator
from hgp_ref.bilevel.inner import Train, own, trained
from hgp_ref.bilevel.loop_state import LoopState
from hgp_ref.bilevel.path import OuterStep
from hgp_ref.bilevel.updates import Update
from hgp_ref.channels import Channel
from hgp_ref.errors import DivergenceError
from hgp_ref.networks import Network
from hgp_ref.problems.normalised import Normalised

RETRIES = 4  # of an estimate that diverged, each with half the η
NOTHING: Mapping[str, Any] = MappingProxyType({})
HALVINGS = 8  # of a step to a λ at which training fails


@dataclass
class Loop:
    """The parts of the loop, which do not change while it runs."""

    problem: Normalised
    net: Network
    channel: Channel  # for reports: totals over clients
    train: Train
    estimate: Estimator
    update: Update
    project: Callable[[Array], Array] | None
    warm_start: bool
    x0: Array | None
    measure: Callable[[Array, Array], float] | None
    log: bool

    @property
    def rounding_complete(self) -> bool | None:
        """Whether what is certified includes the rounding of the problem's own sums; None where nothing is."""
        return None

    def begin(self, lam: Array, seed: int) -> LoopState:
        """Train at λ_0."""
        state = self.update.start(lam)
        if not isinstance(state, tuple):
            raise TypeError(f"update: start returned {type(state).__name__}, needed a tuple")
        at = LoopState(Clock(seed), state)
        try:
            self.accept(at, lam, *self.evaluate(at, lam))
        except DivergenceError as error:
            raise DivergenceError(f"lam: no training at λ_0, {error}") from error
        return at

    def step(self, at: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, lam, before, trained_for = at.k, at.lam[-1], at.clock.traffic, at.training
        trouble: list[str] = []
        est = self._estimate(at, trouble)
        spent = at.clock.traffic - before
        at.refused = at.refused + 1 if est is None else 0
        proposed = lam if est is None else self._proposed(at, lam, est.value)
        scale = self._move(at, lam, proposed, 0.0 if est is None else 1.0, trouble)
        if at.refused == 2:
            at.stopped = "divergence"
        if trouble:
            warnings.warn(f"outer step {k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=3)
        if at.k > k:
            norm, iterations = None if est is None else self.norm(est.value), int(getattr(est, "iterations", 0))
            at.steps.append(OuterStep(trained_for, spent, norm, iterations, scale, "; ".join(trouble)))

    def _estimate(self, at: LoopState, trouble: list[str], more: Mapping[str, Any] = NOTHING) -> Any:
        """The hyper-gradient at λ_k, with other S, M or w0 if given; None if all attempts diverged."""
        for _ in range(RETRIES + 1):
            try:
                return self.estimate(self.problem, self.net, at.x, at.lam[-1], at.clock, at.k, at.shrink, more)
            except DivergenceError as error:
                trouble.append(f"hyper-gradient refused: {error}")
                if not self.estimate.can_shrink:
                    break
                at.shrink /= 2
        return None

    def _move(self, at: LoopState, lam: Array, proposed: Array, scale: float, trouble: list[str]) -> float:
        """Accept the proposed λ or, where training fails, one on the way to it; the share of the step taken."""
        for _ in range(HALVINGS + 1):
            try:
                x, cost = self.evaluate(at, proposed)
            except DivergenceError as error:
                trouble.append(f"{scale:g} of the step refused: {error}")
                proposed, scale = self.projected((lam + proposed) / 2), scale / 2
            else:
                self.accept(at, proposed, x, cost)
                return scale
        at.stopped = "divergence"
        return 0.0

    def _proposed(self, at: LoopState, lam: Array, v: Array) -> Array:
        """Π(update(λ, v)); the update's state moves on."""
        answer = self.update.step(at.state, own(lam), own(v))
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], tuple):
            raise TypeError(f"update: step returned {type(answer).__name__}, needed (lam, state) with a tuple as state")
        proposed, at.state = answer
        return self.projected(own(_like(lam, "what update returned", proposed)))

    def projected(self, lam: Array) -> Array:
        """Π(λ), or with log=True log Π(exp θ)."""
        if self.project is None:
            return detached(lam)
        xp = array_namespace(lam)
        allowed = _like(lam, "what project returned", self.project(xp.asarray(self.as_lam(lam), copy=True)))
        if not self.log:
            return detached(allowed)
        if not bool(to_host(xp.all(allowed > 0))):
            raise ValueError("project: returned entries that are not positive, needed λ > 0 with log=True")
        return xp.log(detached(allowed))

    def as_lam(self, variable: Array) -> Array:
        """λ of what the loop moves."""
        return array_namespace(variable).exp(variable) if self.log else variable

    def evaluate(self, at: LoopState, lam: Array, x0: Array | None = None) -> tuple[Array, float]:
        """x and Σ f_i at λ, from x0 or where the loop starts; DivergenceError where they are not finite."""
        before = at.clock.traffic
        if x0 is None:
            x0 = at.x if self.warm_start and at.x is not None else self.x0
        x = trained(self.train, self.problem, self.net, lam, x0, at.clock, len(at.lam))
        cost = self.total(self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after training")
        at.training = at.clock.traffic - before
        return x, cost

    def accept(self, at: LoopState, lam: Array, x: Array, cost: float) -> None:
        """λ and x with all that is known of them."""
        at.lam.append(lam)
        at.x = x
        at.outer_cost.append(cost)
        at.floats.append(int(at.clock.traffic.floats))
        at.rounds.append(int(at.clock.traffic.rounds))
        if self.measure is not None:
            self.judge(at)

    def judge(self, at: LoopState) -> None:
        """Measure x at λ_k; is it the best so far?"""
        assert self.measure is not None
        xp = array_namespace(at.x)
        told = self.measure(xp.asarray(at.x, copy=True), xp.asarray(self.as_lam(at.lam[-1]), copy=True))
        at.measure.append(self._everywhere(arguments.number("measure(x, lam)", told)))
        if at.measure[-1] < at.measure[at.best] or at.k == 0:
            at.best, at.best_x = at.k, at.x

    def _everywhere(self, told: float) -> float:
        """What the measure says of all clients: where they live in several processes, the mean over clients."""
        held = self.channel.clients.stop - self.channel.clients.start
        return told if held == self.channel.n else self.total(np.full(held, told)) / self.channel.n

    def total(self, values: Array) -> float:
        """The sum over all clients of values (n,)."""
        return float(self.channel.mean_over_clients(host_float64(values)[:, None])[0, 0]) * self.channel.n

    def norm(self, v: Array) -> float:
        """‖v‖ over all clients, of any size."""
        v = host_float64(v)
        size = float(self.channel.max_over_clients(np.abs(v).max(axis=1)))
        return size * self.total(np.sum((v / size) ** 2, axis=1)) ** 0.5 if size else 0.0


def _like(lam: Array, name: str, given: Array) -> Array:
    """`given`, which must be an array like λ."""
    arguments.same_kind(lam=lam, **{name: given})
    arguments.shape(name, given, tuple(lam.shape), "(n, d_lam)", run_axes=False)
    arguments.finite(name, given)
    return given
