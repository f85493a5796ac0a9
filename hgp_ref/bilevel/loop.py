"""Train, estimate, update, repeat; and what is done when one of them fails.

    x_k = x(λ_k),    v_k ≈ d_λ Σ_i f_i(x_k, λ_k),    λ_{k+1} = Π(update(λ_k, v_k)),    k = 0 .. K−1

A hyper-gradient that diverges, or that is not finite, never reaches the update. It is estimated again with η halved,
at most RETRIES times; the smaller η stays. If that does not help (or there is no η) the step is refused: λ and the
state of the update stay as they are. After two refused steps in a row the loop ends.

A λ at which training diverges or the outer cost is not finite is not accepted: the step is halved, λ ← (λ_k + λ)/2, at
most HALVINGS times, after which the loop ends at λ_k.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, array_namespace, detached, host_float64
from hgp_ref.bilevel.clock import Clock
from hgp_ref.bilevel.inner import Train, trained
from hgp_ref.bilevel.outer import Estimator
from hgp_ref.bilevel.path import OuterStep
from hgp_ref.bilevel.updates import State, Update
from hgp_ref.channels import Channel
from hgp_ref.errors import DivergenceError
from hgp_ref.networks import Network
from hgp_ref.problems.normalised import Normalised

RETRIES = 4  # of an estimate that diverged, each with half the η
HALVINGS = 8  # of a step to a λ at which training fails


@dataclass
class Progress:
    """Where the loop stands: everything that its next step depends on, and what the path will hold."""

    clock: Clock
    state: State  # of the update
    lam: list[Array] = field(default_factory=list)  # λ_0 .. λ_k
    x: Array = None  # at λ_k
    outer_cost: list[float] = field(default_factory=list)
    floats: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    steps: list[OuterStep] = field(default_factory=list)
    training: Any = None  # traffic of the last training
    refused: int = 0  # steps in a row
    stopped: str = ""  # why, once it has


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

    def begin(self, lam: Array, seed: int) -> Progress:
        """Train at λ_0."""
        at = Progress(Clock(seed), self.update.start(lam))
        self._accept(at, lam, *self._evaluate(at, lam))
        return at

    def step(self, at: Progress) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, lam, before, trained_for = len(at.lam) - 1, at.lam[-1], at.clock.traffic, at.training
        trouble: list[str] = []
        est = self._estimate(at, trouble)
        spent = at.clock.traffic - before
        at.refused = at.refused + 1 if est is None else 0
        proposed = lam if est is None else self._proposed(at, lam, est.value)
        scale = self._move(at, lam, proposed, 0.0 if est is None else 1.0, trouble)
        if at.refused == 2:
            at.stopped = "divergence"
        if trouble:
            warnings.warn(f"outer step {k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=4)
        if len(at.lam) == k + 2:
            norm, iterations = None if est is None else self._norm(est.value), int(getattr(est, "iterations", 0))
            at.steps.append(OuterStep(trained_for, spent, norm, iterations, scale, "; ".join(trouble)))

    def _move(self, at: Progress, lam: Array, proposed: Array, scale: float, trouble: list[str]) -> float:
        """Accept the proposed λ or, where training fails, one on the way to it; the share of the step taken."""
        for _ in range(HALVINGS + 1):
            try:
                x, cost = self._evaluate(at, proposed)
            except DivergenceError as error:
                trouble.append(f"{scale:g} of the step refused: {error}")
                proposed, scale = (lam + proposed) / 2, scale / 2
            else:
                self._accept(at, proposed, x, cost)
                return scale
        at.stopped = "divergence"
        return 0.0

    def _proposed(self, at: Progress, lam: Array, v: Array) -> Array:
        """Π(update(λ, v)); the update's state moves on."""
        answer = self.update.step(at.state, lam, v)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(f"update: step returned {type(answer).__name__}, needed (lam, state)")
        proposed, at.state = answer
        if self.project is not None:
            proposed = self.project(array_namespace(lam).asarray(_like(lam, "update's λ", proposed), copy=True))
        return detached(_like(lam, "project's λ" if self.project else "update's λ", proposed))

    def _estimate(self, at: Progress, trouble: list[str]) -> Any:
        """The hyper-gradient at λ_k, None if all attempts diverged."""
        for _ in range(RETRIES + 1):
            try:
                return self.estimate(self.problem, self.net, at.x, at.lam[-1], at.clock, len(at.lam) - 1)
            except DivergenceError as error:
                trouble.append(f"hyper-gradient refused: {error}")
                if not self.estimate.can_shrink:
                    break
                self.estimate.shrinks /= 2
        return None

    def _evaluate(self, at: Progress, lam: Array) -> tuple[Array, float]:
        """x and Σ f_i at λ; DivergenceError where they are not finite."""
        before = at.clock.traffic
        x0 = at.x if self.warm_start and at.x is not None else self.x0
        x, _ = trained(self.train, self.problem, self.net, lam, x0, at.clock, len(at.lam))
        cost = self._total(self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after training")
        at.training = at.clock.traffic - before
        return x, cost

    def _accept(self, at: Progress, lam: Array, x: Array, cost: float) -> None:
        at.lam.append(lam)
        at.x = x
        at.outer_cost.append(cost)
        at.floats.append(int(at.clock.traffic.floats))
        at.rounds.append(int(at.clock.traffic.rounds))

    def _total(self, values: Array) -> float:
        """The sum over all clients of values (n,)."""
        return float(self.channel.mean_over_clients(host_float64(values)[:, None])[0, 0]) * self.channel.n

    def _norm(self, v: Array) -> float:
        return self._total(np.sum(host_float64(v) ** 2, axis=1)) ** 0.5


def _like(lam: Array, name: str, given: Array) -> Array:
    """`given`, which must be an array like λ."""
    arguments.same_kind(lam=lam, **{name: given})
    arguments.shape(name, given, tuple(lam.shape), "(n, d_lam)", run_axes=False)
    arguments.finite(name, given)
    return given
