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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgp_ref import rounding
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.bilevel.loop import Estimator, Loop, LoopState
from hgp_ref.bilevel.trajectory import OuterStep
from hgp_ref.bilevel.updates import CertifiedDescent
from hgp_ref.bounds.constants import known_lipschitz
from hgp_ref.certificates import certify
from hgp_ref.certificates.certification import common_constants
from hgp_ref.certificates.point import rounding_errors
from hgp_ref.certificates.residuals import NetworkReductions
from hgp_ref.errors import DivergenceError
from hgp_ref.mixing import Averaging
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.problems.transforms import InnerGradientProblem


@dataclass(frozen=True)
class Interval:
    """A number between two others."""

    low: float
    high: float


def totals(reductions: NetworkReductions, *parts: np.ndarray) -> list[Interval]:
    """Σ_i of each of `parts`, (n,) numbers each."""
    blur, n = reductions.rounding, reductions.n
    outputs = reductions.means(*parts)
    extremes = reductions.maxima(*(y.high for y in outputs), *(-y.low for y in outputs), *map(np.abs, parts))
    tops, bottoms, sizes = (
        [float(a[0]) for a in extremes[k * len(parts) : (k + 1) * len(parts)]] for k in range(3)
    )  # bottoms hold −min
    return [
        Interval(n * (-bottom - blur * size), n * (top + blur * size))
        for top, bottom, size in zip(tops, bottoms, sizes, strict=True)
    ]


def outer_cost(problem: FullProblem, x: Array, lam: Array, nu: Lipschitz, reductions: NetworkReductions) -> Interval:
    """F(λ), from x near x(λ) and constants with a strong convexity."""
    apart = distances(problem, x, lam, nu, reductions)  # e
    f = host_float64(problem.outer_cost(x, lam))
    slopes = rounding.norms(host_float64(problem.outer_grad(x, lam)[0]))
    known = rounding_errors(problem, x, lam)
    if known is None:
        f_off, slopes_off = _accuracy(problem, x) * np.abs(f), _accuracy(problem, x) * slopes
    else:
        f_off, slopes_off = known.outer_cost, known.f_x
    slack = 1 + rounding.norm_accuracy(problem.dim_x)
    t = ((slopes + slopes_off) * apart + nu.nu_fx * apart**2 / 2 + f_off) * slack + 2 * rounding.EPS * np.abs(f)
    below, above = totals(reductions, f - t, f + t)
    return Interval(below.low, above.high)


def distances(problem: FullProblem, x: Array, lam: Array, nu: Lipschitz, reductions: NetworkReductions) -> np.ndarray:
    """e_i ≥ ‖x_i − x(λ)‖, (n,)."""
    if nu.strong_convexity is None:
        raise ValueError("nu must have a strong_convexity, which bounds the distance of x from the inner solution")
    rows = host_float64(x)
    top, bottom = reductions.maxima(rows, -rows)  # bottom holds −min
    centre = (top / 2 - bottom / 2).astype(host_dtype(x))
    points = from_host(np.tile(centre, (len(rows), 1)), like=x)
    gradients = host_float64(problem.inner_grad(points, lam))
    sizes = rounding.norms(gradients)
    known = rounding_errors(problem, points, lam)
    off = _accuracy(problem, x) * sizes if known is None else known.inner_grad
    (mean,) = reductions.means(gradients)
    norm, most = reductions.maxima(rounding.norms(mean.max_abs), reductions.rounding * sizes + off)
    G = float(norm[0]) + float(most[0])
    slack = 1 + rounding.norm_accuracy(problem.dim_x)
    return (rounding.norms(rows - centre.astype(np.float64)) + G / nu.strong_convexity) * slack


def _accuracy(problem: FullProblem, x: Array) -> float:
    """Of a problem that does not tell the sizes of its terms, relative to its answers."""
    return 4 * (problem.dim_x + 4) * float(np.finfo(host_dtype(x)).eps)


# ---- Newton corrections of x
#
#     x ← Θ̂ (x − p),    p ≈ (Σ_k H_k)⁻¹ Σ_k ∂g_k(x)
#
# p is the w of the hyper-gradient's method for a problem whose outer gradient is ∂_x g. If p is accurate to a fraction
# r, each correction reduces the gradient to that fraction. (SGP over changing graphs reduces it in proportion to the
# learning rate, so that half of it costs twice the steps.)


# ---- A loop that knows an interval of F(λ_k), and can make it smaller
#
# A refinement corrects x by CORRECTIONS Newton steps, now and after every later training. Averages for sums and
# certificates take 4 S steps, twice as many after each refinement; so do the terms M of a correction. The path holds x,
# cost and measure at λ_k after refinements, a callback sees those before.


CORRECTIONS = 2  # Newton steps, each time


@dataclass
class PreciseLoop(Loop):
    """`state.extra` holds γ, S, M, the last w, the refinements, the interval of F at λ_k, and the best λ before it."""

    update: CertifiedDescent
    estimate: Estimator

    @property
    def rounding_complete(self) -> bool | None:
        return not self.channel.any_rank(self.problem.term_sizes is None)

    def begin(self, lam: Array) -> LoopState:
        state = super().begin(lam)
        state.extra = {"gamma": self.update.lr, "S": self.estimate.averaging_steps, "M": self.estimate.iterations,
                       "refinements": 0, "w": None, "best": 0, "best_x": None}  # fmt: skip
        self._keep(state, self._interval(state, state.x, lam)[0])
        return state

    def accept(self, state: LoopState, lam: Array, x: Array, cost: float) -> None:
        state.extra |= {"best": state.best, "best_x": state.best_x}  # before this λ, whose x may change yet
        super().accept(state, lam, x, cost)

    def evaluate(self, state: LoopState, lam: Array, x0: Array | None = None) -> tuple[Array, float]:
        before = state.budget.traffic
        x, cost = super().evaluate(state, lam, x0)
        if not state.extra.get("refinements", 0):
            return x, cost
        x, cost = self._corrected(state, x, lam)
        state.training = state.budget.traffic - before
        return x, cost

    def _corrected(self, state: LoopState, x: Array, lam: Array) -> tuple[Array, float]:
        """x after Newton's steps over means, and Σ f_i there."""
        changes = {"averaging_steps": 4 * state.extra["S"],
                   "iterations": state.extra["M"] * 2 ** (state.extra["refinements"] - 1)}  # fmt: skip
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "not converged")  # a fraction of p is enough
            gradient_problem: Any = InnerGradientProblem(self.problem)
            for _ in range(CORRECTIONS):
                try:
                    p = self.estimated(state, gradient_problem, x, lam, changes).w
                except DivergenceError:
                    break
                avg = self._averaging(state)
                x = avg.apply(x - p)
                state.budget.consume(avg.traffic, 0)
        cost = self.total(self.problem.outer_cost(x, lam))
        if not np.isfinite(cost):
            raise DivergenceError(f"diverged: the outer cost is {cost} after corrections of x")
        return x, cost

    def _refine(self, state: LoopState) -> None:
        """Correct x at λ_k, and take more steps for sums from now on; the interval of F there can only shrink."""
        state.extra["refinements"] += 1
        lam = state.lam[-1]
        try:
            x, cost = self._corrected(state, state.x, lam)
            new, _ = self._interval(state, x, lam)
        except DivergenceError:  # x stays as it is
            return
        old = Interval(state.extra["low"], state.extra["high"])
        if new.high - new.low < old.high - old.low and (state.k == 0 or cost <= state.outer_cost[-2]):
            state.x, state.outer_cost[-1] = x, cost
            state.floats[-1], state.rounds[-1] = int(state.budget.traffic.floats), int(state.budget.traffic.rounds)
            if self.monitor is not None:
                state.measure.pop()
                state.best, state.best_x = state.extra["best"], state.extra["best_x"]
                self.evaluate_metric(state)
        self._keep(state, Interval(max(new.low, old.low), min(new.high, old.high)))

    def _keep(self, state: LoopState, interval: Interval) -> None:
        state.extra["low"], state.extra["high"] = interval.low, interval.high

    def _interval(self, state: LoopState, x: Array, lam: Array, moved: Array | None = None) -> tuple[Interval, float]:
        """F(λ), and an upper bound on ‖moved‖² where that is asked for."""
        reductions = self._reductions(state, lam)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            interval = outer_cost(self.problem, x, lam, self._constants(lam), reductions)
        square = 0.0 if moved is None else totals(reductions, np.sum(host_float64(moved) ** 2, axis=1))[0].high
        state.budget.consume(reductions.traffic, 0)
        if not np.isfinite([interval.low, interval.high]).all():
            raise DivergenceError("diverged: the outer cost is beyond floating point")
        return interval, square

    def _reductions(self, state: LoopState, like: Array) -> NetworkReductions:
        return NetworkReductions(self._averaging(state), 0, like)

    def _averaging(self, state: LoopState) -> Averaging:
        """For sums and certificates: 4 S steps, and twice as many with each care."""
        steps = 4 * state.extra["S"] * 2 ** state.extra["refinements"]
        return self.estimate.averaging(state.budget.remaining(self.net), steps)

    def _known(self, lam: Array) -> Lipschitz | None:
        """Constants with a strong convexity at λ, if there are any."""
        nu = self.update.lipschitz
        if nu is None:
            nu = known_lipschitz(self.problem.wrapped, lam)
            if self.channel.clients != slice(0, self.channel.n):  # each process knows those of its clients
                nu = common_constants(nu, self.channel)
        return None if nu is None or nu.strong_convexity is None else nu

    def _constants(self, lam: Array) -> Lipschitz:
        nu = self._known(lam)
        if nu is None:
            raise ValueError(
                "CertifiedDescent needs Lipschitz constants with a strong convexity at this λ, from "
                "problem.lipschitz(lam) (as built-in problems with positive L2 rates have) or from "
                "CertifiedDescent(lipschitz=)"
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
    ratios: dict[float, float] = field(default_factory=dict)  # r by γ
    factor: float = 0.5  # which way it goes
    turned: bool = False
    exhausted: bool = False  # no γ is left to try at this precision

    def no_descent(self) -> None:
        """F has not fallen at γ."""
        self.too_long = min(self.too_long, self.gamma)
        self.failed()

    def failed(self) -> None:
        """There is no F at γ."""
        self.tried.add(self.gamma)
        if self.ratios:
            self._turn()
        self._ahead()

    def cannot_tell(self, h: float, t: float, g: float) -> None:
        """The intervals are too wide for γ."""
        if t > BLIND * (h + g) or not g:
            self.failed()
            return
        r = (h + t) / g
        if not self.ratios:
            self.factor = 2.0 if t - h < g else 0.5
        elif r >= min(self.ratios.values()):
            self._turn()
        self._note(r)

    def same(self) -> None:
        """γ leads to a λ⁺ that was tried."""
        if not self.ratios:
            self.failed()
        elif self.factor > 1:
            self._turn()
            self._ahead()
        else:  # the same decrease for half the γ
            self._note(self.ratios[min(self.ratios)] / 2)

    def sharper(self) -> None:
        """Begin anew, with a higher precision."""
        left = {gamma: r for gamma, r in self.ratios.items() if gamma < self.too_long}
        self.gamma = min(left, key=lambda gamma: left[gamma], default=min(self.gamma, self.too_long / 2))
        self.tried, self.ratios, self.turned, self.exhausted = set(), {}, False, False

    def _note(self, r: float) -> None:
        self.tried.add(self.gamma)
        self.ratios[self.gamma] = r
        self._ahead()

    def _turn(self) -> None:
        self.exhausted, self.turned, self.factor = self.turned, True, 1 / self.factor

    def _ahead(self) -> None:
        """Beyond those of which something is known, in the direction that is left."""
        while not self.exhausted:
            if not self.ratios:
                self.gamma /= 2
            else:
                self.gamma = 2 * max(self.ratios) if self.factor > 1 else min(self.ratios) / 2
            if self.gamma == 0:
                self.exhausted = True
            elif self.gamma not in self.tried and self.gamma < self.too_long:
                return
            elif self.ratios:
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


LOWER, NOT_LOWER, UNKNOWN = "lower", "not lower", "unknown"  # outcomes of a trial, besides error messages
DECREASE = 0.1  # c
GAIN = 0.75  # a bound that doubling M leaves above this share of itself is the averaging's
LIMIT = 12  # raises for one hyper-gradient
TRIALS = 40  # of one step
FAILURES = 9  # of training in a row: γ is not to blame
MOST_REFINEMENTS = 6


@dataclass
class CertifiedLoop(PreciseLoop):
    """The loop with certified steps."""

    def step(self, state: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, before, training = state.k, state.budget.traffic, state.training
        trouble: list[str] = []
        est, bound = self._direction(state, trouble)
        spent = state.budget.traffic - before
        scale = 0.0 if state.stopped else self._descend(state, est.value, trouble)
        if trouble:
            warnings.warn(f"outer step {k}: " + "; ".join(trouble), RuntimeWarning, stacklevel=3)
        if not state.stopped:
            state.steps.append(
                OuterStep(
                    train=training,
                    estimate=spent,
                    gradient_norm=self.norm(est.value),
                    iterations=int(state.extra["M"]),
                    scale=scale,
                    note="; ".join(trouble),
                    bound=bound,
                    averaging_steps=int(state.extra["S"]),
                    interval=(state.extra["low"], state.extra["high"]),
                )
            )

    # 1: a direction whose error is small enough

    def _direction(self, state: LoopState, trouble: list[str]) -> tuple[Any, float]:
        last: tuple[str, float] | None = None  # what was raised, and the bound before that
        for _ in range(LIMIT):
            est = self._series(state, trouble)
            if est is None:
                state.stopped = "divergence"
                return None, np.inf
            bound, inner, needed = self._bounds(state, est)
            if state.stopped or bound <= needed:
                return est, bound
            if inner > needed / 2 and state.extra["refinements"] < MOST_REFINEMENTS:
                self._refine(state)
                last = None
                continue
            if inner > needed:  # neither M nor S would help
                break
            name = "M" if last is None else last[0]
            if last is not None and bound > GAIN * last[1]:
                name = "S" if name == "M" else "M"
            state.extra[name], last = 2 * state.extra[name], (name, bound)
        state.stopped, state.note = "certificate", describe_bound_failure(state.extra, bound, inner, needed)
        return est, bound

    def _series(self, state: LoopState, trouble: list[str]) -> Any:
        changes = {"averaging_steps": state.extra["S"], "iterations": state.extra["M"], "w0": state.extra["w"]}
        est = self._estimate(state, trouble, changes)
        if est is not None:
            state.extra["w"] = est.w
        return est

    def _bounds(self, state: LoopState, est: Any) -> tuple[float, float, float]:
        """Upper bounds on ‖v − ∇F‖ and on the part of it that training is to blame for, and θ‖D‖ from below."""
        lam = state.lam[-1]
        nu = self._constants(lam)
        avg = self._averaging(state)
        certificate = certify(self.problem.wrapped, state.x, lam, est, avg, lipschitz=nu, first_call=0,
                       strong_convexity=nu.strong_convexity)  # fmt: skip
        state.budget.consume(avg.traffic, 0)
        errors, inner = certificate.decentralised_bound, certificate.decentralised_inexact
        if errors is None or inner is None:  # x is too far off for a bound at x(λ)
            return np.inf, np.inf, 1.0
        gamma = state.extra["gamma"]
        moved = host_float64(lam - self.projected(lam - gamma * est.value)) / gamma
        slack = self._slack(lam)
        reductions = self._reductions(state, lam)
        squares = totals(reductions, errors**2, inner**2, np.sum(moved**2, axis=1))
        state.budget.consume(reductions.traffic, 0)
        if squares[2].high <= 0:
            state.stopped = "stationary"
        error, blame = (max(square.high, 0.0) ** 0.5 * (1 + slack) for square in squares[:2])
        return error, blame, self.update.theta * max(squares[2].low, 0.0) ** 0.5 * (1 - slack)

    @staticmethod
    def _slack(lam: Array) -> float:
        """Relative rounding of a difference of two λ, of the sum of its squares and of the root."""
        return (lam.shape[-1] + 16) * float(np.finfo(host_dtype(lam)).eps)

    # 2: a step that is seen to lower F

    def _descend(self, state: LoopState, v: Array, trouble: list[str]) -> float:
        """Accept a λ at which F is certainly lower; the γ of it, 0 if there is none."""
        lam, search = state.lam[-1], StepLength(state.extra["gamma"])
        outcomes, tried = list[str](), list[Array]()  # what became of each trial; λ⁺ at this precision
        while len(outcomes) < TRIALS and not state.stopped:
            gamma, proposed = search.gamma, self.projected(lam - search.gamma * v)
            outcomes.append(self._try(state, search, proposed))
            if outcomes[-1] == LOWER:
                state.extra["gamma"] = 2 * gamma if len(outcomes) == 1 else gamma
                return gamma
            if outcomes[-1] not in (NOT_LOWER, UNKNOWN):
                trouble.append(f"γ = {gamma:.2g} refused: {outcomes[-1]}")
                if len(outcomes) == FAILURES and not {NOT_LOWER, UNKNOWN} & {*outcomes}:
                    state.stopped = "divergence"
            tried.append(proposed)
            while not search.exhausted and self._among(tried, self.projected(lam - search.gamma * v)):
                search.same()
            if search.exhausted:
                if state.extra["refinements"] == MOST_REFINEMENTS:
                    break
                self._refine(state)
                search.sharper()
                tried.clear()
        state.stopped, state.note = (
            state.stopped or "resolution",
            describe_no_descent(state.extra, self.norm(v), outcomes),
        )
        return 0.0

    def _try(self, state: LoopState, search: StepLength, proposed: Array) -> str:
        """What became of the proposed λ: LOWER (it is accepted), NOT_LOWER, UNKNOWN, or why training failed."""
        lam = state.lam[-1]
        if self.channel.any_rank(self._known(proposed) is None):
            search.failed()
            return UNKNOWN
        try:
            x, cost = self.evaluate(state, proposed)
            there, moved = self._interval(state, x, proposed, lam - proposed)
        except DivergenceError as error:
            search.failed()
            return str(error)
        here, gain = Interval(state.extra["low"], state.extra["high"]), (1 - self.update.theta) * moved / search.gamma
        needed = DECREASE * gain * (1 + self._slack(lam))
        lacks = max(there.high - (here.low - needed), cost - state.outer_cost[-1])
        if lacks <= 0:
            self.accept(state, proposed, x, cost)
            self._keep(state, there)
            return LOWER
        if there.low > here.high - needed:
            search.no_descent()
        else:
            search.cannot_tell(here.high - here.low, there.high - there.low, gain)
        return NOT_LOWER

    def _among(self, tried: list[Array], lam: Array) -> bool:
        """Whether λ is one of those that were tried, for all clients."""
        return any(not self.channel.any_rank(not np.array_equal(host_float64(lam), host_float64(a))) for a in tried)


# ---- Explanations in `path.note`


def describe_bound_failure(extra: Mapping[str, Any], bound: float, inner: float, needed: float) -> str:
    """Why the error bound of the hyper-gradient stayed above θ‖D‖; `inner` is the part that is due to x."""
    text = f"the bound on the error of the hyper-gradient is {bound:.2g}, but a step needs {needed:.2g} = θ‖D‖"
    if not np.isfinite(bound):
        return f"{text}: x is too far from x(λ) for a bound; train longer, or with a smaller rate"
    if inner > needed / 2:
        return (
            f"{text}; {inner:.2g} of it is due to x, which was corrected {extra['refinements']} times: train longer or "
            "with a smaller rate, take a larger θ, or keep λ (project=) from where the inner cost is hardly convex"
        )
    return (
        f"{text}; {inner:.2g} of it is due to x, the rest to the series with S = {extra['S']} and M = {extra['M']}: "
        "start from larger ones, or take a faster method"
    )


def describe_no_descent(extra: Mapping[str, Any], norm: float, outcomes: Sequence[str]) -> str:
    """Why no trial was certified to lower F; `outcomes` holds NOT_LOWER, UNKNOWN or an error message for each."""
    failures = [outcome for outcome in outcomes if outcome not in (NOT_LOWER, UNKNOWN)]
    if len(failures) == len(outcomes):
        return f"training failed at all {len(outcomes)} λ⁺ that were tried. The last time: {failures[-1]}"
    text = (
        f"F(λ) lies between {extra['low']:.10g} and {extra['high']:.10g}, and none of {len(outcomes)} steps tried (the "
        f"first with γ = {extra['gamma']:.2g}, ‖v‖ = {norm:.2g}) was certified to lower it: "
    )
    if failures:
        text += f"at {len(failures)} of them training failed ({failures[-1]}); "
    unknown = sum(outcome == UNKNOWN for outcome in outcomes)
    if unknown:
        return (
            f"{text}{unknown} of them led to where the problem has no known strong convexity; keep λ away from there, "
            "by log=True or project="
        )
    return (
        f"{text}the possible decrease is below the resolution with x corrected {extra['refinements']} times; train "
        "longer or with a smaller rate, or start from larger S and M"
    )
