"""Outer steps that are certified to lower F(λ) = Σ_i f_i(x_i(λ), λ_i), by what clients can compute.

Let ‖v − ∇F(λ)‖ ≤ θ‖D‖ for D = (λ − λ⁺)/γ, λ⁺ = Π(λ − γ v), and let ∇F be L-Lipschitz. A projection onto a convex set
has ⟨v, λ − λ⁺⟩ ≥ ‖λ − λ⁺‖²/γ, hence

    F(λ⁺) ≤ F(λ) − ⟨∇F, λ − λ⁺⟩ + L‖λ − λ⁺‖²/2 ≤ F(λ) − γ (1 − θ − Lγ/2) ‖D‖²

(D = v without a projection). So every γ ≤ 2(1 − c)(1 − θ)/L lowers F by at least c (1 − θ) γ ‖D‖², c = DECREASE. L is
not known; γ is halved until that decrease is seen. All of it from `intervals` and from the certificate that clients
compute over the network:

1  estimate v from the last w on; ‖bound‖ ≤ θ‖D‖? If not, x is trained further where its part of the bound exceeds half
   of θ‖D‖. Otherwise M is doubled, or S: the one that was doubled last if that has left at most GAIN of the bound.
2  λ⁺ and x⁺; is the upper end of F(λ⁺) below the lower end of F(λ) by the decrease? Then the step is taken, and γ is
   doubled for the next one if it was the first one tried. If it is certain that F has not fallen so far, γ is halved
   (also where training fails, or nothing is known of the strong convexity).
   If the intervals are too wide to tell, γ is doubled, since more is gained then; where that has failed already, x and
   x⁺ are trained further and more steps are spent on sums. F itself is the judge here: v only has to point down.

Further training corrects x by Newton's steps over means (`correction`), CORRECTIONS of them, and does so after every
training from then on; with 4 S steps for each mean and M terms, twice as many each time that it is asked for again.
What was raised stays raised.

The loop ends with "certificate" where 1 fails, with "resolution" where 2 does (the decrease that is left is smaller
than what training and sums can resolve) and with "stationary" where D = 0; `path.note` says in words what stood in the
way and what would help.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging import Averaging
from hgp_ref.backend import Array, host_float64
from hgp_ref.bilevel import reasons
from hgp_ref.bilevel.correction import stationarity
from hgp_ref.bilevel.intervals import Interval, outer_cost, totals
from hgp_ref.bilevel.loop import Loop
from hgp_ref.bilevel.path import OuterStep
from hgp_ref.bilevel.progress import Progress
from hgp_ref.bilevel.rule import Rule
from hgp_ref.bounds.lipschitz import known_lipschitz
from hgp_ref.certificates import certify
from hgp_ref.certificates.conversation import Conversation
from hgp_ref.certificates.inputs import common_constants
from hgp_ref.errors import DivergenceError
from hgp_ref.problems.constants import Lipschitz

DECREASE = 0.1  # c
GAIN = 0.75  # a bound that doubling M leaves above this share of itself is the averaging's
LIMIT = 12  # raises for one hyper-gradient
TRIALS = 24  # of one step
MOST_CARE = 6  # how often further training is asked for
CORRECTIONS = 2  # of x, each time


@dataclass
class CertifiedLoop(Loop):
    """The loop with certified steps. `at.kept` holds γ, S, M, the care taken and the interval of F at λ_k."""

    rule: Rule = field(default_factory=Rule)

    def begin(self, lam: Array, seed: int) -> Progress:
        at = super().begin(lam, seed)
        update: Any = self.update
        at.kept = {"gamma": update.lr, "S": arguments.integer("estimate['steps']", self.estimate.steps),
                   "M": self.estimate.iterations, "care": 0, "w": None}  # fmt: skip
        self._keep(at, self._interval(at, at.x, lam)[0])
        return at

    def step(self, at: Progress) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        before, training = at.clock.traffic, at.training
        trouble: list[str] = []
        est, bound = self._direction(at, trouble)
        spent = at.clock.traffic - before
        scale = 0.0 if at.stopped else self._descend(at, est.value)
        if trouble:
            warnings.warn(f"outer step {at.k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=3)
        if not at.stopped:
            at.steps.append(
                OuterStep(
                    train=training,
                    estimate=spent,
                    gradient_norm=self.norm(est.value),
                    iterations=int(at.kept["M"]),
                    scale=scale,
                    note="; ".join(trouble),
                    bound=bound,
                    averaging_steps=int(at.kept["S"]),
                    interval=(at.kept["low"], at.kept["high"]),
                )
            )

    # 1: a direction whose error is small enough

    def _direction(self, at: Progress, trouble: list[str]) -> tuple[Any, float]:
        last: tuple[str, float] | None = None  # what was raised, and the bound before that
        for _ in range(LIMIT):
            est = self._series(at, trouble)
            if est is None:
                at.stopped = "divergence"
                return None, np.inf
            bound, inner, needed = self._judged(at, est)
            if at.stopped or bound <= needed:
                return est, bound
            if inner > needed / 2 and at.kept["care"] < MOST_CARE:
                self._train_further(at)
                last = None
                continue
            if inner > needed:  # neither M nor S would help
                break
            name = "M" if last is None else last[0]
            if last is not None and bound > GAIN * last[1]:
                name = "S" if name == "M" else "M"
            at.kept[name], last = 2 * at.kept[name], (name, bound)
        at.stopped, at.note = "certificate", reasons.too_rough(at.kept, bound, inner, needed)
        return est, bound

    def _series(self, at: Progress, trouble: list[str]) -> Any:
        more = {"steps": at.kept["S"], "iterations": at.kept["M"], "w0": at.kept["w"]}
        est = self._estimate(at, trouble, more)
        if est is not None:
            at.kept["w"] = est.w
        return est

    def _judged(self, at: Progress, est: Any) -> tuple[float, float, float]:
        """Upper bounds on ‖v − ∇F‖ and on the part of it that training is to blame for, and θ‖D‖ from below."""
        lam = at.lam[-1]
        nu = self._constants(lam)
        avg = self._averaging(at)
        told = certify(self.problem.given, at.x, lam, est, avg, lipschitz=nu, first_call=0,
                       strong_convexity=nu.strong_convexity)  # fmt: skip
        at.clock.pass_on(avg.ledger, 0)
        errors, inner = told.decentralised_bound, told.decentralised_inexact
        if errors is None or inner is None:  # x is too far off for a bound at x(λ)
            return np.inf, np.inf, 1.0
        gamma = at.kept["gamma"]
        moved = host_float64(lam - self.projected(lam - gamma * est.value)) / gamma
        talk = self._talk(at, lam)
        squares = totals(talk, errors**2, inner**2, np.sum(moved**2, axis=1))
        at.clock.pass_on(talk.traffic, 0)
        if squares[2].high <= 0:
            at.stopped = "stationary"
        error, blame = (max(square.high, 0.0) ** 0.5 for square in squares[:2])
        return error, blame, self.rule.theta * max(squares[2].low, 0.0) ** 0.5

    # 2: a step that is seen to lower F

    def _descend(self, at: Progress, v: Array) -> float:
        """Accept a λ at which F is certainly lower; the γ of it, 0 if there is none."""
        lam, first, failed, unknown = at.lam[-1], True, np.inf, 0  # the smallest γ that has failed
        for _ in range(TRIALS):
            gamma = at.kept["gamma"]
            proposed = self.projected(lam - gamma * v)
            try:
                if self.channel.anyone(self._known(proposed) is None):
                    unknown += 1
                    raise DivergenceError("nothing can be certified at the proposed λ")
                x, cost = self.evaluate(at, proposed)
                there, moved = self._interval(at, x, proposed, lam - proposed)
            except DivergenceError:
                at.kept["gamma"], first, failed = gamma / 2, False, gamma
                continue
            here, needed = Interval(at.kept["low"], at.kept["high"]), DECREASE * (1 - self.rule.theta) * moved / gamma
            if there.high <= here.low - needed and cost <= at.outer_cost[-1]:
                self.accept(at, proposed, x, cost)
                self._keep(at, there)
                at.kept["gamma"] = 2 * gamma if first else gamma
                return gamma
            first = False
            if there.low > here.high - needed:
                at.kept["gamma"], failed = gamma / 2, gamma
            elif 2 * gamma < failed:  # they cannot tell
                at.kept["gamma"] = 2 * gamma
            elif at.kept["care"] < MOST_CARE:
                self._train_further(at)
            else:
                break
        at.stopped, at.note = "resolution", reasons.not_lower(at.kept, self.norm(v), unknown)
        return 0.0

    # What both need

    def evaluate(self, at: Progress, lam: Array, x0: Array | None = None) -> tuple[Array, float]:
        before = at.clock.traffic
        x, cost = super().evaluate(at, lam, x0)
        if not at.kept.get("care", 0):
            return x, cost
        x, cost = self._corrected(at, x, lam)
        at.training = at.clock.traffic - before
        return x, cost

    def _corrected(self, at: Progress, x: Array, lam: Array) -> tuple[Array, float]:
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

    def _train_further(self, at: Progress) -> None:
        """A better x at λ_k, and more steps for sums from now on; F's interval there only shrinks."""
        at.kept["care"] += 1
        lam = at.lam[-1]
        x, cost = self._corrected(at, at.x, lam)
        new, _ = self._interval(at, x, lam)
        old = Interval(at.kept["low"], at.kept["high"])
        if new.high - new.low < old.high - old.low and (at.k == 0 or cost <= at.outer_cost[-2]):
            at.x, at.outer_cost[-1] = x, cost
            at.floats[-1], at.rounds[-1] = int(at.clock.traffic.floats), int(at.clock.traffic.rounds)
        self._keep(at, Interval(max(new.low, old.low), min(new.high, old.high)))

    def _keep(self, at: Progress, interval: Interval) -> None:
        at.kept["low"], at.kept["high"] = interval.low, interval.high

    def _interval(self, at: Progress, x: Array, lam: Array, moved: Array | None = None) -> tuple[Interval, float]:
        """F(λ), and an upper bound on ‖moved‖² where that is asked for."""
        talk = self._talk(at, lam)
        interval = outer_cost(self.problem, x, lam, self._constants(lam), talk)
        square = 0.0 if moved is None else totals(talk, np.sum(host_float64(moved) ** 2, axis=1))[0].high
        at.clock.pass_on(talk.traffic, 0)
        if not np.isfinite([interval.low, interval.high]).all():
            raise DivergenceError("diverged: the outer cost is beyond floating point")
        return interval, square

    def _talk(self, at: Progress, like: Array) -> Conversation:
        return Conversation(self._averaging(at), 0, like)

    def _averaging(self, at: Progress) -> Averaging:
        """For sums and certificates: 4 S steps, and twice as many with each care."""
        steps = 4 * at.kept["S"] * 2 ** at.kept["care"]
        return self.estimate.averaging(at.clock.net(self.net), steps)

    def _known(self, lam: Array) -> Lipschitz | None:
        """Constants with a strong convexity at λ, if there are any."""
        nu = known_lipschitz(self.problem.given, lam) if self.rule.lipschitz is None else self.rule.lipschitz
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
