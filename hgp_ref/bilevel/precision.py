"""A loop that knows F(λ_k) between two numbers, and can come to know it better.

Further training corrects x by Newton's steps over means (`correction`), CORRECTIONS of them, and does so after every
training from then on; with 4 S steps for each mean and M terms, twice as many each time that it is asked for again.
What was raised stays raised. x, cost and measure at λ_k in the path are those after it: a callback has seen those
before.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array, host_float64
from hgp_ref.bilevel.correction import stationarity
from hgp_ref.bilevel.intervals import Interval, outer_cost, totals
from hgp_ref.bilevel.loop import Loop
from hgp_ref.bilevel.loop_state import LoopState
from hgp_ref.bilevel.rule import Rule
from hgp_ref.bounds.lipschitz import known_lipschitz
from hgp_ref.certificates.conversation import Conversation
from hgp_ref.certificates.inputs import common_constants
from hgp_ref.errors import DivergenceError
from hgp_ref.problems.constants import Lipschitz

CORRECTIONS = 2  # of x, each time


@dataclass
class PreciseLoop(Loop):
    """`at.kept` holds γ, S, M, the last w, the care taken, the interval of F at λ_k, and the best λ before that."""

    rule: Rule = field(default_factory=Rule)

    @property
    def rounding_complete(self) -> bool | None:
        return not self.channel.anyone(self.problem.term_sizes is None)

    def begin(self, lam: Array, seed: int) -> LoopState:
        at = super().begin(lam, seed)
        update: Any = self.update
        at.kept = {"gamma": update.lr, "S": arguments.integer("estimate['steps']", self.estimate.steps),
                   "M": self.estimate.iterations, "care": 0, "w": None, "best": 0, "best_x": None}  # fmt: skip
        self._keep(at, self._interval(at, at.x, lam)[0])
        return at

    def accept(self, at: LoopState, lam: Array, x: Array, cost: float) -> None:
        at.kept |= {"best": at.best, "best_x": at.best_x}  # before this λ, whose x may change yet
        super().accept(at, lam, x, cost)

    def evaluate(self, at: LoopState, lam: Array, x0: Array | None = None) -> tuple[Array, float]:
        before = at.clock.traffic
        x, cost = super().evaluate(at, lam, x0)
        if not at.kept.get("care", 0):
            return x, cost
        x, cost = self._corrected(at, x, lam)
        at.training = at.clock.traffic - before
        return x, cost

    def _corrected(self, at: LoopState, x: Array, lam: Array) -> tuple[Array, float]:
        """x after Newton's steps over means, and Σ f_i there."""
        more = {"steps": 4 * at.kept["S"], "iterations": at.kept["M"] * 2 ** (at.kept["care"] - 1)}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "not converged")  # a share of p is enough
            for _ in range(CORRECTIONS):
                try:
                    p = self.estimate(stationarity(self.problem), self.net, x, lam, at.clock, at.k, at.shrink, more).w
                except DivergenceError:
                    break
                avg = self._averaging(at)
                x = avg.apply(x - p)
                at.clock.pass_on(avg.ledger, 0)
        cost = self.total(self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after corrections of x")
        return x, cost

    def _train_further(self, at: LoopState) -> None:
        """A better x at λ_k, and more steps for sums from now on; F's interval there only shrinks."""
        at.kept["care"] += 1
        lam = at.lam[-1]
        try:
            x, cost = self._corrected(at, at.x, lam)
            new, _ = self._interval(at, x, lam)
        except DivergenceError:  # x stays as it is
            return
        old = Interval(at.kept["low"], at.kept["high"])
        if new.high - new.low < old.high - old.low and (at.k == 0 or cost <= at.outer_cost[-2]):
            at.x, at.outer_cost[-1] = x, cost
            at.floats[-1], at.rounds[-1] = int(at.clock.traffic.floats), int(at.clock.traffic.rounds)
            if self.measure is not None:
                at.measure.pop()
                at.best, at.best_x = at.kept["best"], at.kept["best_x"]
                self.judge(at)
        self._keep(at, Interval(max(new.low, old.low), min(new.high, old.high)))

    def _keep(self, at: LoopState, interval: Interval) -> None:
        at.kept["low"], at.kept["high"] = interval.low, interval.high

    def _interval(self, at: LoopState, x: Array, lam: Array, moved: Array | None = None) -> tuple[Interval, float]:
        """F(λ), and an upper bound on ‖moved‖² where that is asked for."""
        talk = self._talk(at, lam)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            interval = outer_cost(self.problem, x, lam, self._constants(lam), talk)
        square = 0.0 if moved is None else totals(talk, np.sum(host_float64(moved) ** 2, axis=1))[0].high
        at.clock.pass_on(talk.traffic, 0)
        if not np.isfinite([interval.low, interval.high]).all():
            raise DivergenceError("diverged: the outer cost is beyond floating point")
        return interval, square

    def _talk(self, at: LoopState, like: Array) -> Conversation:
        return Conversation(self._averaging(at), 0, like)

    def _averaging(self, at: LoopState) -> Averaging:
        """For sums and certificates: 4 S steps, and twice as many with each care."""
        steps = 4 * at.kept["S"] * 2 ** at.kept["care"]
        return self.estimate.averaging(at.clock.net(self.net), steps)

    def _known(self, lam: Array) -> Lipschitz | None:
        """Constants with a strong convexity at λ, if there are any."""
        nu = self.rule.lipschitz
        if nu is None:
            nu = known_lipschitz(self.problem.given, lam)
            if self.channel.clients != slice(0, self.channel.n):  # each process knows those of its clients
                nu = common_constants(nu, self.channel)
        return None if nu is None or nu.strong_convexity is None else nu

    def _constants(self, lam: Array) -> Lipschitz:
        nu = self._known(lam)
        if nu is None:
            raise ValueError(
                "certify: the problem tells no Lipschitz constants with a strong convexity at this λ (as it does with "
                "positive L2 rates), needed them from problem.lipschitz(lam), or certify=dict(theta=, lipschitz=)"
            )
        return nu
