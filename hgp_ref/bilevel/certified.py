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
   doubled for the next one if it was the first one tried. Otherwise another γ is tried, by the rule of `step_length`.
   Where that has come to its end, x and x⁺ are trained further, more steps are spent on sums, and it begins anew
   (`precision`). F itself is the judge here: v only has to point down.

The loop ends with "certificate" where 1 fails, with "resolution" where 2 does (no step tried can be seen to lower F, as
well as training and sums can tell), with "divergence" where no v is finite or every training at a λ⁺ failed, and
with "stationary" where D = 0; `path.note` says in words what stood in the way and what would help.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.bilevel import reasons
from hgp_ref.bilevel.intervals import Interval, totals
from hgp_ref.bilevel.loop_state import LoopState
from hgp_ref.bilevel.path import OuterStep
from hgp_ref.bilevel.precision import PreciseLoop
from hgp_ref.bilevel.reasons import JUDGED, LOWER, UNKNOWN
from hgp_ref.bilevel.step_length import StepLength
from hgp_ref.certificates import certify
from hgp_ref.errors import DivergenceError

DECREASE = 0.1  # c
GAIN = 0.75  # a bound that doubling M leaves above this share of itself is the averaging's
LIMIT = 12  # raises for one hyper-gradient
TRIALS = 40  # of one step
FAILURES = 9  # of training in a row: γ is not to blame
MOST_CARE = 6  # how often further training is asked for


@dataclass
class CertifiedLoop(PreciseLoop):
    """The loop with certified steps."""

    def step(self, at: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, before, training = at.k, at.clock.traffic, at.training
        trouble: list[str] = []
        est, bound = self._direction(at, trouble)
        spent = at.clock.traffic - before
        scale = 0.0 if at.stopped else self._descend(at, est.value, trouble)
        if trouble:
            warnings.warn(f"outer step {k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=3)
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

    def _direction(self, at: LoopState, trouble: list[str]) -> tuple[Any, float]:
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

    def _series(self, at: LoopState, trouble: list[str]) -> Any:
        more = {"steps": at.kept["S"], "iterations": at.kept["M"], "w0": at.kept["w"]}
        est = self._estimate(at, trouble, more)
        if est is not None:
            at.kept["w"] = est.w
        return est

    def _judged(self, at: LoopState, est: Any) -> tuple[float, float, float]:
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
        slack = self._slack(lam)
        talk = self._talk(at, lam)
        squares = totals(talk, errors**2, inner**2, np.sum(moved**2, axis=1))
        at.clock.pass_on(talk.traffic, 0)
        if squares[2].high <= 0:
            at.stopped = "stationary"
        error, blame = (max(square.high, 0.0) ** 0.5 * (1 + slack) for square in squares[:2])
        return error, blame, self.rule.theta * max(squares[2].low, 0.0) ** 0.5 * (1 - slack)

    @staticmethod
    def _slack(lam: Array) -> float:
        """Relative rounding of a difference of two λ, of the sum of its squares and of the root."""
        return (lam.shape[-1] + 16) * float(np.finfo(host_dtype(lam)).eps)

    # 2: a step that is seen to lower F

    def _descend(self, at: LoopState, v: Array, trouble: list[str]) -> float:
        """Accept a λ at which F is certainly lower; the γ of it, 0 if there is none."""
        lam, search = at.lam[-1], StepLength(at.kept["gamma"])
        seen, places = list[str](), list[Array]()  # what became of each trial; λ⁺ at this precision
        while len(seen) < TRIALS and not at.stopped:
            gamma, proposed = search.gamma, self.projected(lam - search.gamma * v)
            seen.append(self._tried(at, search, proposed))
            if seen[-1] == LOWER:
                at.kept["gamma"] = 2 * gamma if len(seen) == 1 else gamma
                return gamma
            if seen[-1] not in (JUDGED, UNKNOWN):
                trouble.append(f"γ = {gamma:.2g} refused: {seen[-1]}")
                if len(seen) == FAILURES and not {JUDGED, UNKNOWN} & {*seen}:
                    at.stopped = "divergence"
            places.append(proposed)
            while not search.exhausted and self._among(places, self.projected(lam - search.gamma * v)):
                search.same()
            if search.exhausted:
                if at.kept["care"] == MOST_CARE:
                    break
                self._train_further(at)
                search.sharper()
                places.clear()
        at.stopped, at.note = at.stopped or "resolution", reasons.not_lower(at.kept, self.norm(v), seen)
        return 0.0

    def _tried(self, at: LoopState, search: StepLength, proposed: Array) -> str:
        """What became of the proposed λ: LOWER (it is accepted), JUDGED, UNKNOWN, or why training failed."""
        lam = at.lam[-1]
        if self.channel.anyone(self._known(proposed) is None):
            search.failed()
            return UNKNOWN
        try:
            x, cost = self.evaluate(at, proposed)
            there, moved = self._interval(at, x, proposed, lam - proposed)
        except DivergenceError as error:
            search.failed()
            return str(error)
        here, gain = Interval(at.kept["low"], at.kept["high"]), (1 - self.rule.theta) * moved / search.gamma
        needed = DECREASE * gain * (1 + self._slack(lam))
        lacks = max(there.high - (here.low - needed), cost - at.outer_cost[-1])
        if lacks <= 0:
            self.accept(at, proposed, x, cost)
            self._keep(at, there)
            return LOWER
        if there.low > here.high - needed:
            search.not_lower()
        else:
            search.cannot_tell(here.high - here.low, there.high - there.low, gain)
        return JUDGED

    def _among(self, places: list[Array], lam: Array) -> bool:
        """Whether λ is one of those that were tried, for all clients."""
        return any(not self.channel.anyone(not np.array_equal(host_float64(lam), host_float64(a))) for a in places)
