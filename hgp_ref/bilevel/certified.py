"""Sums over clients and the outer cost, each between two numbers that clients find by themselves.

Sums. Push-Sum's outputs y_i of any numbers q_i have the mean of the q_i in their convex hull (see
`certificates.decentralised`; over links that delay a box takes the place of y_i), and maxima by flooding are exact, so
that after however few steps

    n min_i y_i ≤ Σ_i q_i ≤ n max_i y_i.

Distance. Flooding gives a box of the x_i with centre c, Push-Sum of ∂g_i(c) a bound G ≥ ‖mean_i ∂g_i(c)‖. Where the
mean inner cost is ᾱ-strongly convex, ‖c − x(λ)‖ ≤ G/ᾱ, hence ‖x_i − x(λ)‖ ≤ e_i = ‖x_i − c‖ + G/ᾱ.

Outer cost. ∂_x f_i is ν_fx-Lipschitz, so that |f_i(x(λ), λ_i) − f_i(x_i, λ_i)| ≤ t_i and

    Σ_i (f_i − t_i) ≤ F(λ) ≤ Σ_i (f_i + t_i),    t_i = ‖∂_x f_i(x_i)‖ e_i + ν_fx e_i²/2,

whose sides clients bound as sums. More steps and better training make the interval smaller, neither is needed for it to
hold. Rounding is on the safe side as in a certificate: costs and gradients are known to what the sizes of their terms
allow (`term_sizes`), which does not shrink where terms cancel. Those of a problem that does not tell the sizes are
taken as accurate to 4 (d_x + 4) eps relative to themselves, and the rounding of its own sums is not included.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import rounding as rigorous
from hgp_ref import validation
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.bilevel import loop as reasons
from hgp_ref.bilevel.loop import JUDGED, LOWER, UNKNOWN, Loop, LoopState, stationarity
from hgp_ref.bilevel.trajectory import OuterStep
from hgp_ref.bilevel.updates import GradientDescent
from hgp_ref.bounds.constants import known_lipschitz
from hgp_ref.certificates import certify
from hgp_ref.certificates.certification import common_constants
from hgp_ref.certificates.point import allowances
from hgp_ref.certificates.residuals import Conversation
from hgp_ref.errors import DivergenceError
from hgp_ref.mixing import Averaging
from hgp_ref.problems.base import Normalised
from hgp_ref.problems.lipschitz import Lipschitz


@dataclass(frozen=True)
class Interval:
    """A number between two others."""

    low: float
    high: float


def totals(talk: Conversation, *parts: np.ndarray) -> list[Interval]:
    """Σ_i of each of `parts`, (n,) numbers each."""
    blur, n = talk.rounding(), talk.n
    outputs = talk.average(*parts)
    extremes = talk.largest(*(y.high for y in outputs), *(-y.low for y in outputs), *map(np.abs, parts))
    tops, bottoms, sizes = (
        [float(a[0]) for a in extremes[k * len(parts) : (k + 1) * len(parts)]] for k in range(3)
    )  # bottoms hold −min
    return [
        Interval(n * (-bottom - blur * size), n * (top + blur * size))
        for top, bottom, size in zip(tops, bottoms, sizes, strict=True)
    ]


def outer_cost(problem: Normalised, x: Array, lam: Array, nu: Lipschitz, talk: Conversation) -> Interval:
    """F(λ), from x near x(λ) and constants with a strong convexity."""
    apart = distances(problem, x, lam, nu, talk)  # e
    f = host_float64(problem.outer_cost(x, lam))
    slopes = rigorous.norms(host_float64(problem.outer_grad(x, lam)[0]))
    known = allowances(problem, x, lam)
    if known is None:
        f_off, slopes_off = _accuracy(problem, x) * np.abs(f), _accuracy(problem, x) * slopes
    else:
        f_off, slopes_off = known.outer_cost(), known.outer_grad()[0]
    slack = 1 + rigorous.norm_accuracy(problem.dim_x)
    t = ((slopes + slopes_off) * apart + nu.nu_fx * apart**2 / 2 + f_off) * slack + 2 * rigorous.EPS * np.abs(f)
    below, above = totals(talk, f - t, f + t)
    return Interval(below.low, above.high)


def distances(problem: Normalised, x: Array, lam: Array, nu: Lipschitz, talk: Conversation) -> np.ndarray:
    """e_i ≥ ‖x_i − x(λ)‖, (n,)."""
    if nu.strong_convexity is None:
        raise ValueError("nu: no strong_convexity given, needed one that bounds how far x is from the inner solution")
    rows = host_float64(x)
    top, bottom = talk.largest(rows, -rows)  # bottom holds −min
    centre = (top / 2 - bottom / 2).astype(host_dtype(x))
    at = from_host(np.tile(centre, (len(rows), 1)), like=x)
    gradients = host_float64(problem.inner_grad(at, lam))
    sizes = rigorous.norms(gradients)
    known = allowances(problem, at, lam)
    off = _accuracy(problem, x) * sizes if known is None else known.inner_grad()
    (mean,) = talk.average(gradients)
    norm, most = talk.largest(rigorous.norms(mean.farthest), talk.rounding() * sizes + off)
    G = float(norm[0]) + float(most[0])
    slack = 1 + rigorous.norm_accuracy(problem.dim_x)
    return (rigorous.norms(rows - centre.astype(np.float64)) + G / nu.strong_convexity) * slack


def _accuracy(problem: Normalised, x: Array) -> float:
    """Of a problem that does not tell the sizes of its terms, relative to its answers."""
    return 4 * (problem.dim_x + 4) * float(np.finfo(host_dtype(x)).eps)


# ----------------------------------------------------------------------------------------------------
# What `optimise(certify=)` asks for.


OPTIONS = ("theta", "lipschitz")


@dataclass(frozen=True)
class Rule:
    """θ, and constants for problems that do not tell theirs."""

    theta: float = 0.5
    lipschitz: Lipschitz | None = None


def rule_of(certify: float | Mapping[str, Any] | None, estimate: Any, update: object) -> Rule | None:
    """What `optimise(certify=)` asks for; an error where steps cannot be certified."""
    if certify is None:
        return None
    given: dict[str, Any] = dict(certify) if isinstance(certify, Mapping) else {"theta": certify}
    for name in given:
        if name not in OPTIONS:
            raise ValueError(f"certify: {name!r} given, needed some of {', '.join(OPTIONS)}")
    theta = validation.number("certify", given.get("theta", 0.5), "a number strictly between 0 and 1")
    if not 0 < theta < 1:
        raise ValueError(f"certify={theta:g} given, needed a number strictly between 0 and 1")
    if given.get("lipschitz") is not None:
        validation.instance("certify['lipschitz']", given["lipschitz"], Lipschitz)
    if not isinstance(estimate, Mapping) or estimate.get("batch_size") is not None or estimate.get("iterations") == 0:
        raise ValueError("certify: needed keywords as estimate, without batch_size and with iterations >= 1")
    if not isinstance(update, GradientDescent):
        raise ValueError(f"certify: update={update!r} given, needed GradientDescent(lr), whose lr is the first γ")
    return Rule(theta, given.get("lipschitz"))


# ----------------------------------------------------------------------------------------------------
# A loop that knows F(λ_k) between two numbers, and can come to know it better.
#
# Further training corrects x by Newton's steps over means (`correction`), CORRECTIONS of them, and does so after every
# training from then on; with 4 S steps for each mean and M terms, twice as many each time that it is asked for again.
# What was raised stays raised. x, cost and measure at λ_k in the path are those after it: a callback has seen those
# before.


CORRECTIONS = 2  # of x, each time


@dataclass
class PreciseLoop(Loop):
    """`at.kept` holds γ, S, M, the last w, the care taken, the interval of F at λ_k, and the best λ before that."""

    rule: Rule = field(default_factory=Rule)

    @property
    def rounding_complete(self) -> bool | None:
        return not self.channel.any_rank(self.problem.term_sizes is None)

    def begin(self, lam: Array, seed: int) -> LoopState:
        at = super().begin(lam, seed)
        update: Any = self.update
        at.kept = {"gamma": update.lr, "S": validation.integer("estimate['steps']", self.estimate.steps),
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
                at.clock.pass_on(avg.traffic, 0)
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


# ----------------------------------------------------------------------------------------------------
# Which step length γ a certified step tries next.
#
# Let h and t be the widths of the intervals of F at λ and at λ⁺, g = (1 − θ) γ ‖D‖² the decrease that the direction is
# good for at first order. A step is seen to lower F where its decrease exceeds about h + t, so that r = (h + t)/g is to
# be small. Three answers are possible:
#
#     it has fallen       take the step;
#     it has not          γ is too long for certain, at any precision: take a shorter one;
#     they cannot tell    g grows with γ, h does not, t may (λ⁺ is where less is known: ᾱ falls, training starts farther
#                         away). With t = h + sγ a longer step has a smaller r as long as sγ < g: double γ where
#                         t − h < g, halve it elsewhere, and go on in that direction as long as r falls. Then turn once.
#
# Where training fails, or t > BLIND (h + g), nothing is known of F, and γ is halved, too. At one precision no γ is
# tried
# twice, none beyond one that is too long, and none that leads to a λ⁺ tried before (a corner of the set that λ is
# projected onto): the search has an end. It begins anew with a higher precision from the γ of the smallest r.


BLIND = 1e3  # how much wider the interval at λ⁺ may be


@dataclass
class StepLength:
    """The search for one step, from γ on."""

    gamma: float
    too_long: float = np.inf  # the smallest γ at which F has certainly not fallen as far as asked for
    tried: set[float] = field(default_factory=set)  # at this precision
    told: dict[float, float] = field(default_factory=dict)  # r by γ, of those that have one
    factor: float = 0.5  # which way it goes
    turned: bool = False
    exhausted: bool = False  # no γ is left to try at this precision

    def not_lower(self) -> None:
        """F has not fallen at γ."""
        self.too_long = min(self.too_long, self.gamma)
        self.failed()

    def failed(self) -> None:
        """There is no F at γ."""
        self.tried.add(self.gamma)
        if self.told:
            self._turn()
        self._ahead()

    def cannot_tell(self, h: float, t: float, g: float) -> None:
        """The intervals are too wide for γ."""
        if t > BLIND * (h + g) or not g:
            self.failed()
            return
        r = (h + t) / g
        if not self.told:
            self.factor = 2.0 if t - h < g else 0.5
        elif r >= min(self.told.values()):
            self._turn()
        self._note(r)

    def same(self) -> None:
        """γ leads to a λ⁺ that was tried."""
        if not self.told:
            self.failed()
        elif self.factor > 1:
            self._turn()
            self._ahead()
        else:  # the same decrease for half the γ
            self._note(self.told[min(self.told)] / 2)

    def sharper(self) -> None:
        """Begin anew, with a higher precision."""
        left = {gamma: r for gamma, r in self.told.items() if gamma < self.too_long}
        self.gamma = min(left, key=lambda gamma: left[gamma], default=min(self.gamma, self.too_long / 2))
        self.tried, self.told, self.turned, self.exhausted = set(), {}, False, False

    def _note(self, r: float) -> None:
        self.tried.add(self.gamma)
        self.told[self.gamma] = r
        self._ahead()

    def _turn(self) -> None:
        self.exhausted, self.turned, self.factor = self.turned, True, 1 / self.factor

    def _ahead(self) -> None:
        """Beyond those of which something is known, in the direction that is left."""
        while not self.exhausted:
            if not self.told:
                self.gamma /= 2
            else:
                self.gamma = 2 * max(self.told) if self.factor > 1 else min(self.told) / 2
            if self.gamma == 0:
                self.exhausted = True
            elif self.gamma not in self.tried and self.gamma < self.too_long:
                return
            elif self.told:
                self._turn()


# ----------------------------------------------------------------------------------------------------
# Outer steps that are certified to lower F(λ) = Σ_i f_i(x_i(λ), λ_i), by what clients can compute.
#
# Let ‖v − ∇F(λ)‖ ≤ θ‖D‖ for D = (λ − λ⁺)/γ, λ⁺ = Π(λ − γ v), and let ∇F be L-Lipschitz. A projection onto a convex set
# has ⟨v, λ − λ⁺⟩ ≥ ‖λ − λ⁺‖²/γ, hence
#
#     F(λ⁺) ≤ F(λ) − ⟨∇F, λ − λ⁺⟩ + L‖λ − λ⁺‖²/2 ≤ F(λ) − γ (1 − θ − Lγ/2) ‖D‖²
#
# (D = v without a projection). So every γ ≤ 2(1 − c)(1 − θ)/L lowers F by at least c (1 − θ) γ ‖D‖², c = DECREASE. L is
# not known; γ is halved until that decrease is seen. All of it from `intervals` and from the certificate that clients
# compute over the network:
#
# 1  estimate v from the last w on; ‖bound‖ ≤ θ‖D‖? If not, x is trained further where its part of the bound exceeds
# half
#    of θ‖D‖. Otherwise M is doubled, or S: the one that was doubled last if that has left at most GAIN of the bound.
# 2  λ⁺ and x⁺; is the upper end of F(λ⁺) below the lower end of F(λ) by the decrease? Then the step is taken, and γ is
#    doubled for the next one if it was the first one tried. Otherwise another γ is tried, by the rule of `step_length`.
#    Where that has come to its end, x and x⁺ are trained further, more steps are spent on sums, and it begins anew
#    (`precision`). F itself is the judge here: v only has to point down.
#
# The loop ends with "certificate" where 1 fails, with "resolution" where 2 does (no step tried can be seen to lower F,
# as
# well as training and sums can tell), with "divergence" where no v is finite or every training at a λ⁺ failed, and
# with "stationary" where D = 0; `path.note` says in words what stood in the way and what would help.


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
        at.clock.pass_on(avg.traffic, 0)
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
        if self.channel.any_rank(self._known(proposed) is None):
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
        return any(not self.channel.any_rank(not np.array_equal(host_float64(lam), host_float64(a))) for a in places)
