"""Outer steps that are certified to lower F(λ) = Σ_i f_i(x_i(λ), λ_i), from what clients can compute.

Descent. Let ‖v − ∇F(λ)‖ ≤ θ‖D‖ for D = (λ − λ⁺)/γ, λ⁺ = Π(λ − γ v), and let ∇F be L-Lipschitz. A projection onto a
convex set has ⟨v, λ − λ⁺⟩ ≥ ‖λ − λ⁺‖²/γ, hence

    F(λ⁺) ≤ F(λ) − ⟨∇F, λ − λ⁺⟩ + L‖λ − λ⁺‖²/2 ≤ F(λ) − γ (1 − θ − Lγ/2) ‖D‖²

(D = v without a projection). So every γ ≤ 2(1 − c)(1 − θ)/L lowers F by at least c (1 − θ) γ ‖D‖², c = DECREASE. L is
not known. An outer step has two parts:

1. Direction. Estimate v, starting from the last w, until its certificate is at most θ‖D‖. If the error of x is more
   than half of θ‖D‖, correct x. Otherwise double M or S: the one that was doubled last if the bound then fell to at
   most GAIN of itself, else the other one.
2. Length. Train at λ⁺ and compare the intervals of F(λ⁺) and F(λ). Accept λ⁺ if F is certain to have fallen by the
   decrease above, and double γ for the next step if this was the first one tried. Otherwise try another γ
   (`StepLength`). If no γ is left, correct x, take more rounds for sums, and search again.

The loop ends with "certificate" if 1 fails, "resolution" if 2 fails, "divergence" if no v is finite or every training
failed, and "stationary" if D = 0. `path.note` explains what prevented a step and what would help.

Sums. Push-Sum's outputs y_i of any numbers q_i have the mean of the q_i in their convex hull (over links that delay, a
box takes the place of y_i). Max-consensus is exact. So after any number of rounds

    n min_i y_i ≤ Σ_i q_i ≤ n max_i y_i.

Distance. Max-consensus gives a box of the x_i with centre c, and Push-Sum of ∂g_i(c) a bound G ≥ ‖mean_i ∂g_i(c)‖. If
the mean inner cost is ᾱ-strongly convex, ‖c − x(λ)‖ ≤ G/ᾱ, hence ‖x_i − x(λ)‖ ≤ e_i = ‖x_i − c‖ + G/ᾱ.

Outer cost. ∂_x f_i is ν_fx-Lipschitz, so |f_i(x(λ), λ_i) − f_i(x_i, λ_i)| ≤ t_i and

    Σ_i (f_i − t_i) ≤ F(λ) ≤ Σ_i (f_i + t_i),    t_i = ‖∂_x f_i(x_i)‖ e_i + ν_fx e_i²/2.

More rounds and better training make the interval smaller, but it holds without them. Rounding is included as in a
certificate: costs and gradients are accurate to what the sizes of their terms allow (`term_sizes`). Those of a problem
without `term_sizes` are taken as accurate to 4 (d_x + 4) eps relative to themselves, without the rounding of its own
sums.

Corrections of x are Newton steps over means,

    x ← Θ̂ (x − p),    p ≈ (Σ_k H_k)⁻¹ Σ_k ∂g_k(x),

where p is the w of the hyper-gradient's method for a problem whose outer gradient is ∂_x g. If p is accurate to a
fraction r, each correction reduces the gradient to that fraction. (SGP over changing graphs reduces it in proportion to
the learning rate, so that half of it costs twice the steps.)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hgp_ref import rounding
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.bilevel.loop import Loop
from hgp_ref.bilevel.settings import Estimator
from hgp_ref.bilevel.trajectory import CertifiedState, LoopState, OuterStep
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

DECREASE = 0.1  # c
GAIN = 0.75  # if the bound stays above this fraction of itself, doubling M (or S) did not help
CORRECTIONS = 2  # Newton steps of a refinement
MOST_REFINEMENTS = 6
MOST_ESTIMATES = 12  # of one direction
TRIALS = 40  # of one step
FAILURES = 9  # trainings in a row that fail before the loop ends
WIDEST = 1e3  # how much wider than at λ the interval at λ⁺ may be


# ---- Intervals


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


def totals(reductions: NetworkReductions, *parts: np.ndarray) -> list[Interval]:
    """Intervals of Σ_i of each of `parts`, (n,) numbers each."""
    n, error = reductions.n, reductions.rounding
    means = reductions.means(*parts)
    maxima = reductions.maxima(*(y.high for y in means), *(-y.low for y in means), *map(np.abs, parts))
    values = np.array([float(a[0]) for a in maxima]).reshape(3, -1)
    return [
        Interval(n * (-minus_low - error * size), n * (high + error * size))
        for high, minus_low, size in values.T.tolist()
    ]


def outer_cost(problem: FullProblem, x: Array, lam: Array, nu: Lipschitz, reductions: NetworkReductions) -> Interval:
    """An interval of F(λ), from x near x(λ) and constants with a strong convexity."""
    e = distances(problem, x, lam, nu, reductions)
    f = host_float64(problem.outer_cost(x, lam))
    slopes = rounding.norms(host_float64(problem.outer_grad(x, lam)[0]))
    errors = rounding_errors(problem, x, lam)
    if errors is None:
        f_error, slopes_error = _accuracy(problem, x) * np.abs(f), _accuracy(problem, x) * slopes
    else:
        f_error, slopes_error = errors.outer_cost, errors.f_x
    slack = 1 + rounding.norm_accuracy(problem.dim_x)
    t = ((slopes + slopes_error) * e + nu.nu_fx * e**2 / 2 + f_error) * slack + 2 * rounding.EPS * np.abs(f)
    below, above = totals(reductions, f - t, f + t)
    return Interval(below.low, above.high)


def distances(problem: FullProblem, x: Array, lam: Array, nu: Lipschitz, reductions: NetworkReductions) -> np.ndarray:
    """e_i ≥ ‖x_i − x(λ)‖, (n,)."""
    if nu.strong_convexity is None:
        raise ValueError("nu must have a strong_convexity, which bounds the distance of x from the inner solution")
    rows = host_float64(x)
    high, minus_low = reductions.maxima(rows, -rows)
    centre = (high / 2 - minus_low / 2).astype(host_dtype(x))
    points = from_host(np.tile(centre, (len(rows), 1)), like=x)
    gradients = host_float64(problem.inner_grad(points, lam))
    sizes = rounding.norms(gradients)
    errors = rounding_errors(problem, points, lam)
    error = _accuracy(problem, x) * sizes if errors is None else errors.inner_grad
    (mean,) = reductions.means(gradients)
    norm, largest_error = reductions.maxima(rounding.norms(mean.max_abs), reductions.rounding * sizes + error)
    G = float(norm[0]) + float(largest_error[0])
    slack = 1 + rounding.norm_accuracy(problem.dim_x)
    return (rounding.norms(rows - centre.astype(np.float64)) + G / nu.strong_convexity) * slack


def _accuracy(problem: FullProblem, x: Array) -> float:
    """The relative accuracy that is assumed of a problem without `term_sizes`."""
    return 4 * (problem.dim_x + 4) * float(np.finfo(host_dtype(x)).eps)


# ---- The search for γ


@dataclass
class StepLength:
    """The step length γ that a certified step tries next.

    Let h and t be the widths of the intervals of F at λ and at λ⁺, and g = (1 − θ) γ ‖D‖² the decrease at first order.
    A decrease is visible if it exceeds about h + t, so r = (h + t)/g should be small. A trial has three outcomes:

        F has fallen        take the step;
        it has not          γ is too long, at any precision: take a shorter one;
        undecided           g grows with γ, h does not, t may (λ⁺ may be where ᾱ is smaller and training starts farther
                            away). With t = h + sγ a longer step has a smaller r as long as sγ < g. So double γ if
                            t − h < g, else halve it, and continue in that direction as long as r falls. Then reverse,
                            once.

    If training fails, or t > WIDEST (h + g), nothing is known of F, and γ is halved. At one precision no γ is tried
    twice, none beyond one that is too long, and none that leads to a λ⁺ tried before (such as a corner of the set that
    λ is projected onto). So the search ends. With a higher precision it restarts from the γ of the smallest r.
    """

    gamma: float
    too_long: float = np.inf  # the smallest γ at which F has certainly not fallen enough
    tried: set[float] = field(default_factory=set)  # at this precision
    ratios: dict[float, float] = field(default_factory=dict)  # r by γ
    factor: float = 0.5  # 2 while γ grows
    reversed: bool = False
    exhausted: bool = False  # no γ is left to try at this precision

    def no_descent(self) -> None:
        """F has not fallen at γ."""
        self.too_long = min(self.too_long, self.gamma)
        self.failed()

    def failed(self) -> None:
        """Nothing is known of F at γ."""
        self.tried.add(self.gamma)
        if self.ratios:
            self._reverse()
        self._next()

    def undecided(self, h: float, t: float, g: float) -> None:
        """The intervals are too wide for γ."""
        if t > WIDEST * (h + g) or not g:
            self.failed()
            return
        r = (h + t) / g
        if not self.ratios:
            self.factor = 2.0 if t - h < g else 0.5
        elif r >= min(self.ratios.values()):
            self._reverse()
        self._add(r)

    def repeated(self) -> None:
        """γ leads to a λ⁺ that was tried."""
        if not self.ratios:
            self.failed()
        elif self.factor > 1:
            self._reverse()
            self._next()
        else:  # the same decrease for half the γ
            self._add(self.ratios[min(self.ratios)] / 2)

    def restart(self) -> None:
        """Search again, with a higher precision."""
        ratios = {gamma: r for gamma, r in self.ratios.items() if gamma < self.too_long}
        self.gamma = min(ratios, key=lambda gamma: ratios[gamma], default=min(self.gamma, self.too_long / 2))
        self.tried, self.ratios, self.reversed, self.exhausted = set(), {}, False, False

    def _add(self, r: float) -> None:
        self.tried.add(self.gamma)
        self.ratios[self.gamma] = r
        self._next()

    def _reverse(self) -> None:
        self.exhausted, self.reversed, self.factor = self.reversed, True, 1 / self.factor

    def _next(self) -> None:
        """Move γ beyond those with a known r, in the current direction."""
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
                self._reverse()


# ---- The loop


LOWER, NOT_LOWER, UNKNOWN = "lower", "not lower", "unknown"  # outcomes of a trial, besides error messages


@dataclass
class CertifiedLoop(Loop):
    """The loop with certified steps.

    A refinement corrects x by CORRECTIONS Newton steps, now and after every later training. Averages for sums and
    certificates take 4 S rounds, twice as many after each refinement; so do the terms M of a correction. The path holds
    x, cost and measure at λ_k after refinements. A callback is called before them.
    """

    update: CertifiedDescent
    estimate: Estimator

    @property
    def rounding_complete(self) -> bool | None:
        return not self.channel.any_rank(self.problem.term_sizes is None)

    def begin(self, lam: Array) -> LoopState:
        state = super().begin(lam)
        state.certified = CertifiedState(self.update.lr, self.estimate.averaging_steps, self.estimate.iterations)
        state.certified.interval, _ = self._interval(state, state.x, lam)
        return state

    def step(self, state: LoopState) -> None:
        """From λ_k to λ_{k+1}, or to a reason to stop."""
        k, before, training = state.k, state.traffic, state.training
        notes: list[str] = []
        est, bound = self._direction(state, notes)
        sent = state.traffic - before
        scale = 0.0 if state.stopped else self._descend(state, est.value, notes)
        if notes:
            warnings.warn(f"outer step {k}: " + "; ".join(notes), RuntimeWarning, stacklevel=3)
        if not state.stopped:
            c, norm, note = state.certified, self.norm(est.value), "; ".join(notes)
            interval = (c.interval[0], c.interval[1])
            state.steps.append(OuterStep(training, sent, norm, int(c.M), scale, note, bound, int(c.S), interval))

    # 1: a direction whose error is small enough

    def _direction(self, state: LoopState, notes: list[str]) -> tuple[Any, float]:
        """v with ‖v − ∇F‖ ≤ θ‖D‖, and the bound; otherwise `state.stopped` is set."""
        c = state.certified
        last: tuple[str, float] | None = None  # what was doubled, and the bound before that
        for _ in range(MOST_ESTIMATES):
            estimator = replace(self.estimate, averaging_steps=c.S, iterations=c.M)
            est = self.estimate_here(state, notes, estimator, w0=c.w)
            if est is None:
                state.stopped = "divergence"
                return None, np.inf
            c.w = est.w
            bound, inner, allowed = self._bounds(state, est)
            if state.stopped or bound <= allowed:
                return est, bound
            if inner > allowed / 2 and c.refinements < MOST_REFINEMENTS:
                self._refine(state)
                last = None
                continue
            if inner > allowed:  # neither M nor S would help
                break
            name = "M" if last is None else last[0]
            if last is not None and bound > GAIN * last[1]:
                name = "S" if name == "M" else "M"
            setattr(c, name, 2 * getattr(c, name))
            last = name, bound
        state.stopped, state.note = "certificate", describe_bound_failure(c, bound, inner, allowed)
        return est, bound

    def _bounds(self, state: LoopState, est: Any) -> tuple[float, float, float]:
        """Upper bounds on ‖v − ∇F‖ and on the part of it that is due to x, and a lower bound on θ‖D‖."""
        lam, gamma = state.lam[-1], state.certified.gamma
        nu, avg = self._constants(lam), self._averaging(state)
        certificate = certify(self.problem.wrapped, state.x, lam, est, avg, lipschitz=nu, first_call=0,
                              strong_convexity=nu.strong_convexity)  # fmt: skip
        state.consume(avg.traffic, 0)
        errors, inner = certificate.decentralised_bound, certificate.decentralised_inexact
        if errors is None or inner is None:  # x is too far off for a bound at x(λ)
            return np.inf, np.inf, 1.0
        D = host_float64(lam - self.projected(lam - gamma * est.value)) / gamma
        reductions = NetworkReductions(self._averaging(state), 0, lam)
        squares = totals(reductions, errors**2, inner**2, np.sum(D**2, axis=1))
        state.consume(reductions.traffic, 0)
        if squares[2].high <= 0:
            state.stopped = "stationary"
        slack = self._slack(lam)
        total, inner_part = (max(square.high, 0.0) ** 0.5 * (1 + slack) for square in squares[:2])
        return total, inner_part, self.update.theta * max(squares[2].low, 0.0) ** 0.5 * (1 - slack)

    # 2: a step that is certain to lower F

    def _descend(self, state: LoopState, v: Array, notes: list[str]) -> float:
        """Accept a λ at which F is certainly lower; its γ, or 0 if there is none."""
        lam, search = state.lam[-1], StepLength(state.certified.gamma)
        outcomes, tried = list[str](), list[Array]()  # of each trial; λ⁺ at this precision
        while len(outcomes) < TRIALS and not state.stopped:
            gamma, proposed = search.gamma, self.projected(lam - search.gamma * v)
            outcomes.append(self._try(state, search, proposed))
            if outcomes[-1] == LOWER:
                state.certified.gamma = 2 * gamma if len(outcomes) == 1 else gamma
                return gamma
            if outcomes[-1] not in (NOT_LOWER, UNKNOWN):
                notes.append(f"γ = {gamma:.2g} refused: {outcomes[-1]}")
                if len(outcomes) == FAILURES and not {NOT_LOWER, UNKNOWN} & {*outcomes}:
                    state.stopped = "divergence"
            tried.append(proposed)
            while not search.exhausted and self._among(tried, self.projected(lam - search.gamma * v)):
                search.repeated()
            if search.exhausted:
                if state.certified.refinements == MOST_REFINEMENTS:
                    break
                self._refine(state)
                search.restart()
                tried.clear()
        state.stopped = state.stopped or "resolution"
        state.note = describe_no_descent(state.certified, self.norm(v), outcomes)
        return 0.0

    def _try(self, state: LoopState, search: StepLength, proposed: Array) -> str:
        """The outcome at the proposed λ: LOWER (it is accepted), NOT_LOWER, UNKNOWN, or why training failed."""
        lam = state.lam[-1]
        if self.channel.any_rank(self._known_constants(proposed) is None):
            search.failed()
            return UNKNOWN
        try:
            x, cost = self.evaluate(state, proposed)
            after, square = self._interval(state, x, proposed, lam - proposed)
        except DivergenceError as error:
            search.failed()
            return str(error)
        before, gain = Interval(*state.certified.interval), (1 - self.update.theta) * square / search.gamma
        decrease = DECREASE * gain * (1 + self._slack(lam))
        if max(after.high - (before.low - decrease), cost - state.outer_cost[-1]) <= 0:
            self.accept(state, proposed, x, cost)
            state.certified.interval = after
            return LOWER
        if after.low > before.high - decrease:
            search.no_descent()
        else:
            search.undecided(before.width, after.width, gain)
        return NOT_LOWER

    def _among(self, tried: list[Array], lam: Array) -> bool:
        """Whether λ is one of those that were tried, for all clients."""
        return any(not self.channel.any_rank(not np.array_equal(host_float64(lam), host_float64(a))) for a in tried)

    # Corrections of x, and intervals

    def accept(self, state: LoopState, lam: Array, x: Array, cost: float) -> None:
        state.certified.best, state.certified.best_x = state.best, state.best_x  # before this λ, whose x may change
        super().accept(state, lam, x, cost)

    def evaluate(self, state: LoopState, lam: Array) -> tuple[Array, float]:
        before = state.traffic
        x, cost = super().evaluate(state, lam)
        if not state.certified.refinements:
            return x, cost
        x, cost = self._corrected(state, x, lam)
        state.training = state.traffic - before
        return x, cost

    def _corrected(self, state: LoopState, x: Array, lam: Array) -> tuple[Array, float]:
        """x after Newton steps over means, and Σ f_i there."""
        c = state.certified
        estimator = replace(self.estimate, averaging_steps=4 * c.S, iterations=c.M * 2 ** (c.refinements - 1))
        gradient_problem: Any = InnerGradientProblem(self.problem)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "not converged")  # a fraction of p is enough
            for _ in range(CORRECTIONS):
                try:
                    p = self.estimate_at(state, gradient_problem, x, lam, estimator).w
                except DivergenceError:
                    break
                avg = self._averaging(state)
                x = avg.apply(x - p)
                state.consume(avg.traffic, 0)
        return x, self.outer_cost(x, lam, "corrections of x")

    def _refine(self, state: LoopState) -> None:
        """Correct x at λ_k, and take more rounds for sums from now on. The interval of F there can only shrink."""
        lam, c = state.lam[-1], state.certified
        c.refinements += 1
        try:
            x, cost = self._corrected(state, state.x, lam)
            new, _ = self._interval(state, x, lam)
        except DivergenceError:  # x stays as it is
            return
        old = Interval(*c.interval)
        if new.width < old.width and (state.k == 0 or cost <= state.outer_cost[-2]):
            state.x, state.outer_cost[-1] = x, cost
            state.floats[-1], state.rounds[-1] = int(state.traffic.floats), int(state.traffic.rounds)
            if self.monitor is not None:
                state.measure.pop()
                state.best, state.best_x = c.best, c.best_x
                self.evaluate_metric(state)
        c.interval = Interval(max(new.low, old.low), min(new.high, old.high))

    def _interval(self, state: LoopState, x: Array, lam: Array, step: Array | None = None) -> tuple[Interval, float]:
        """An interval of F(λ), and an upper bound on ‖step‖²."""
        reductions = NetworkReductions(self._averaging(state), 0, lam)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            interval = outer_cost(self.problem, x, lam, self._constants(lam), reductions)
        square = 0.0 if step is None else totals(reductions, np.sum(host_float64(step) ** 2, axis=1))[0].high
        state.consume(reductions.traffic, 0)
        if not np.isfinite(interval).all():
            raise DivergenceError("diverged: the outer cost is beyond floating point")
        return interval, square

    def _averaging(self, state: LoopState) -> Averaging:
        """For sums and certificates."""
        steps = 4 * state.certified.S * 2**state.certified.refinements
        return self.estimate.averaging(state.remaining(self.net), steps)

    @staticmethod
    def _slack(lam: Array) -> float:
        """Relative rounding of a difference of two λ, of the sum of its squares and of the root."""
        return (lam.shape[-1] + 16) * float(np.finfo(host_dtype(lam)).eps)

    def _known_constants(self, lam: Array) -> Lipschitz | None:
        """Constants with a strong convexity at λ, if there are any."""
        nu = self.update.lipschitz
        if nu is None:
            nu = known_lipschitz(self.problem.wrapped, lam)
            if self.channel.clients != slice(0, self.channel.n):  # each process knows those of its clients
                nu = common_constants(nu, self.channel)
        return None if nu is None or nu.strong_convexity is None else nu

    def _constants(self, lam: Array) -> Lipschitz:
        nu = self._known_constants(lam)
        if nu is None:
            raise ValueError(
                "CertifiedDescent needs Lipschitz constants with a strong convexity at this λ, from "
                "problem.lipschitz(lam) (as built-in problems with positive L2 rates have) or from "
                "CertifiedDescent(lipschitz=)"
            )
        return nu


# ---- Explanations in `path.note`


def describe_bound_failure(c: CertifiedState, bound: float, inner: float, allowed: float) -> str:
    """Why the error bound of the hyper-gradient stayed above θ‖D‖; `inner` is the part that is due to x."""
    text = f"the bound on the error of the hyper-gradient is {bound:.2g}, but a step needs {allowed:.2g} = θ‖D‖"
    if not np.isfinite(bound):
        return f"{text}: x is too far from x(λ) for a bound; train longer, or with a smaller rate"
    if inner > allowed / 2:
        return (
            f"{text}; {inner:.2g} of it is due to x, which was corrected {c.refinements} times: train longer or "
            "with a smaller rate, take a larger θ, or keep λ (project=) from where the inner cost is hardly convex"
        )
    return (
        f"{text}; {inner:.2g} of it is due to x, the rest to the series with S = {c.S} and M = {c.M}: "
        "start from larger ones, or take a faster method"
    )


def describe_no_descent(c: CertifiedState, norm: float, outcomes: Sequence[str]) -> str:
    """Why no trial was certified to lower F; `outcomes` holds NOT_LOWER, UNKNOWN or an error message for each."""
    failures = [outcome for outcome in outcomes if outcome not in (NOT_LOWER, UNKNOWN)]
    if len(failures) == len(outcomes):
        return f"training failed at all {len(outcomes)} λ⁺ that were tried. The last time: {failures[-1]}"
    text = (
        f"F(λ) lies between {c.interval[0]:.10g} and {c.interval[1]:.10g}, and none of {len(outcomes)} steps tried "
        f"(the first with γ = {c.gamma:.2g}, ‖v‖ = {norm:.2g}) was certified to lower it: "
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
        f"{text}the possible decrease is below the resolution with x corrected {c.refinements} times; train "
        "longer or with a smaller rate, or start from larger S and M"
    )
