"""Plans and their runs: `Plan.run` runs a plan, certifies the result, and continues while it misses the target.

    segment       one call of `hypergradient`: the planned run, a restart after divergence, or a continuation
    certificate   of the estimate after each segment, by an observer of all clients or by the clients themselves
    assessment    the certificate as a number over all clients, in the units of the target

Gradient tracking and methods along a tree continue from their state. Other methods continue by a cycle of refinement
(`refinement_cycle`): w is averaged, and the method solves for what is left of the residual.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.certificates import Certificate, Lanczos
from hgp_ref.certificates.certification import OPTIONS, certify
from hgp_ref.certificates.point import NOT_INCLUDED
from hgp_ref.certificates.result import AT_POINT, AT_SOLUTION
from hgp_ref.errors import DivergenceError
from hgp_ref.methods import (
    Chebyshev,
    ConjugateGradient,
    DirectSolve,
    Estimate,
    Method,
    Neumann,
    PreconditionedTracking,
    Refined,
    Tracking,
    hypergradient,
)
from hgp_ref.mixing import (
    Averaging,
    RobustPushSum,
    SpanningTree,
    Traffic,
    TreeAverage,
    connect,
    falling_steps,
    push_sum_for,
)
from hgp_ref.networks import Network, Thinned
from hgp_ref.planning.probe import Diagnostics
from hgp_ref.problems.lipschitz import Lipschitz
from hgp_ref.results import Result
from hgp_ref.rounding import norms
from hgp_ref.validation import Boolean, Choice, checked

FLOOR = 5.0  # estimates how much the disagreement that an average leaves adds to w
SHOWN = 4  # stages in print
NOT_RELATIVE = 1e-30  # smaller bounds are absolute, because the hyper-gradient is 0; see `_in_units`
NOTHING = Traffic()


@dataclass(frozen=True)
class Plan(Result):
    """The method and settings that `hgp.plan` chose.

    Attributes
    ----------
    steps : S, or S_0, S_1, … of the averaging.
    iterations : M.
    traffic : expected in total, with that of the probe and a margin for continuations.
    error : the expected error, a fixed share of the target.
    target : the error to reach.
    relative : whether target and error are shares of ‖d‖.
    diagnostics : what the clients measured.
    compared : methods and their expected floats, the best first; counted as in `traffic`.
    budget : floats that may be sent in total; None with a target.
    first : expected if the first run suffices, with that of the probe.
    continuation : expected for each continuation.
    tree : the spanning tree along which the run averages; None for Push-Sum.
    receivers : how many out-neighbours a client serves per step of preconditioned tracking; None for all.
    """

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    traffic: Traffic
    error: float
    target: float
    relative: bool
    diagnostics: Diagnostics
    compared: tuple[tuple[str, float], ...]
    problem: Any
    x: Array
    lam: Array
    net: Network
    budget: float | None = None
    first: Traffic = NOTHING
    continuation: Traffic = NOTHING
    tree: SpanningTree | None = None
    receivers: int | None = None

    @property
    def averaging(self) -> Averaging:
        """The averaging of the run, over the graphs after those of the probe."""
        return self._averaging_after(self.diagnostics.graphs, self.steps, self.method)

    def _network_of(self, method: Method) -> Network:
        """The network of a run with this method: with fewer receivers for preconditioned tracking."""
        thinned = self.receivers is not None and isinstance(method, PreconditionedTracking)
        return Thinned(self.net, self.receivers) if thinned else self.net  # type: ignore[arg-type]

    def _averaging_after(self, graphs: int, steps: int | tuple[int, ...], method: Method | None = None) -> Averaging:
        """An averaging over the graphs after the first `graphs`: along the tree, or Push-Sum with `steps`."""
        net = (self.net if method is None else self._network_of(method)).after(graphs)
        return push_sum_for(net, steps) if self.tree is None else TreeAverage(net, self.tree)

    @checked(certify=Boolean(), by_clients=Boolean(), against=Choice("solution", "x"), **OPTIONS)
    def run(
        self,
        *,
        certify: bool = True,
        by_clients: bool = False,
        against: str = "solution",
        lipschitz: Lipschitz | None = None,
        strong_convexity: float | str | Lanczos | None = None,
        max_rounds: int | None = None,
        matrix_free: bool | None = None,
    ) -> Outcome:
        """Run the plan and certify it; continue while the certificate misses the target.

        Gradient tracking and methods along a tree continue from their state. Other methods continue by a cycle of
        refinement: w is averaged, and the method solves for the residual. A run that diverges restarts with a smaller
        step (a wider interval), or, if clients disagreed too much, with longer calls. With a budget, a run continues
        only within it; the traffic of the clients' own certificate is extra. The best certified estimate is returned.
        If it misses the target, a warning says by how much, and whether the run or x is the cause.

        Parameters
        ----------
        certify : whether to bound the error; if False, the run ends as planned.
        by_clients : whether the clients compute the bound themselves over the network; always, if some live in other
            processes.
        against : "solution": the target refers to the hyper-gradient at the exact inner solution if the problem's
            Lipschitz constants are known, and to the formula at the given x otherwise. "x": always to the formula at
            the given x. A run cannot reduce the error due to x. If that alone exceeds the target, the run stops once
            the rest is below the target, and `met` is False.
        lipschitz, strong_convexity, max_rounds, matrix_free : as in `hgp.certify`.

        Examples
        --------
        >>> import numpy as np, hgp_ref as hgp
        >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=6, dim_lam=2, seed=1)
        >>> lam = np.zeros((4, 2))
        >>> x = hgp.exact.inner_solution(problem, lam)
        >>> out = hgp.plan(problem, x, lam, hgp.networks.RandomDirected(n=4, seed=1), target=1e-4).run()
        >>> truth = hgp.exact.hypergradient(problem, x, lam)
        >>> out.met, bool(np.linalg.norm(out.value - truth) <= 1e-4 * np.linalg.norm(truth))
        (True, True)
        """
        if not isinstance(self.net, Network):
            raise ValueError(
                "plan was read from a file, which does not hold the problem and the network; call hgp.plan again"
            )
        by_clients = by_clients or self.net.clients != slice(0, self.net.n)
        options = {"lipschitz": lipschitz, "strong_convexity": strong_convexity, "max_rounds": max_rounds}
        execution = Execution(self, by_clients, against == "solution", {**options, "matrix_free": matrix_free})
        return execution.certified() if certify else execution.outcome(execution.first_run()[0])

    def __str__(self) -> str:
        known, unit = self.diagnostics, "of the hyper-gradient" if self.relative else "absolute"
        steps = f"S = {self.steps}" if isinstance(self.steps, int) else f"S from {self.steps[0]} to {min(self.steps)}"
        source = f"{known.products} products of the mean Hessian" if known.products else "the clients' own Hessians"
        alternatives = ", ".join(f"{name} {floats:.2g}" for name, floats in self.compared[1:4])
        budget = "" if self.budget is None else f", the least within {self.budget:.3g} floats"
        lines = [
            f"plan for an error of {self.target:.1e} ({unit})" + budget,
            f"  {self.method!r}, {steps}, {self.iterations} iterations",
            f"  expected: error {self.error:.1e}, about {self.traffic.floats:.3g} floats, of which"
            f" {known.traffic.floats:.3g} are already sent;",
            f"            {self.first.floats:.3g} if the first run suffices, and {self.continuation.floats:.3g} more"
            " for each continuation",
            f"  because: spectrum [{known.low:.3g}, {known.high:.3g}] from {source}, clients apart by"
            f" {known.zeta:.2g},",
            f"           a round of Push-Sum leaves {known.tau:.2g} of a disagreement"
            if self.tree is None
            else f"           means along a spanning tree of {len(self.tree.up)} clients are exact",
        ]
        if alternatives:
            lines.append(f"  others would need, counted alike: {alternatives} floats")
        return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------- the outcome


@dataclass(frozen=True)
class Stage(Result):
    """One run of a method within `Plan.run`.

    Attributes
    ----------
    method : its repr.
    diverged : whether it diverged; nothing of it is used then.
    """

    method: str
    iterations: int
    traffic: Traffic
    diverged: bool = False


@dataclass(frozen=True)
class Outcome(Estimate):
    """The estimate of a planned run, with its certificate.

    `traffic` and `iterations` count everything: the probe, all stages, and the certificate if the clients computed it.
    Other fields are those of the stage that `value` comes from.

    `met` compares `bound` with the target. If the problem's Lipschitz constants are known, `bound` is against the
    hyper-gradient at the exact inner solution. It then includes the effect of an inexact x, which no run can reduce;
    `bound_at_x` is the part that a run can reduce. Otherwise `bound` is against the formula at the given x. If the
    value is 0 and the bound is subnormal, the hyper-gradient is 0 to working precision: `bound` is then absolute.

    Attributes
    ----------
    certificate : None with `certify=False`, as are `bound`, `met`, `against` and `bound_at_x`.
    bound : the certified error over all clients, in the units of the target.
    met : whether the bound is at most the target.
    continued : how often the run was continued.
    against : which hyper-gradient `bound` and `met` refer to.
    bound_at_x : the bound against the hyper-gradient formula at the given x, in the same units.
    stages : all runs of methods, in order, including those that diverged.
    target : the target of the plan.
    relative : whether target and bounds are shares of ‖d‖.
    """

    certificate: Certificate | None = None
    bound: float | None = None
    met: bool | None = None
    continued: int = 0
    against: str | None = None
    bound_at_x: float | None = None
    stages: tuple[Stage, ...] = ()
    target: float | None = None
    relative: bool = True

    def __str__(self) -> str:
        continuations = f"{self.continued} continuations" if self.continued != 1 else "1 continuation"
        stages = [f"{s.method}: {s.iterations} iterations{', diverged' * s.diverged}" for s in self.stages]
        shown = stages if len(stages) <= SHOWN else [*stages[: SHOWN - 1], f"… {len(stages) - SHOWN} more", stages[-1]]
        lines = [
            f"hyper-gradients of {self.value.shape[-2]} clients after {self.iterations} iterations and {continuations}",
            *self._accuracy(),
            *(f"  {stage}" for stage in shown),
            f"  {self.traffic.floats:.3g} floats sent in {self.traffic.rounds} rounds",
        ]
        return "\n".join(lines)

    def _accuracy(self) -> list[str]:
        if self.bound is None or self.target is None:
            return ["  not certified"]
        unit, verdict = "relative" if self.relative else "absolute", "met" if self.met else "NOT met"
        if self.relative and self.bound < NOT_RELATIVE:
            unit = "hyper-gradient 0 to working precision, which has no relative error: absolute"
        lines = [f"  {unit} error <= {self.bound:.2e} against {self.against}", f"  target {self.target:.2e}: {verdict}"]
        if self.bound_at_x is not None and self.bound_at_x != self.bound:
            lines.insert(1, f"  of which the run accounts for {self.bound_at_x:.2e}, the error of x for the rest")
        return lines if self.rounding_complete else [*lines, f"  {NOT_INCLUDED}"]

    @property
    def rounding_complete(self) -> bool | None:
        """Whether `bound` and `met` include the rounding of the problem's own sums; None without a certificate."""
        return None if self.certificate is None else self.certificate.rounding_complete


# ------------------------------------------------------------------ a certificate as one number, in units of the target

MARGIN = 0.5  # share of the target that a continuation aims at
MOST_FROM_X = 0.9  # share of the target that the error due to x may take
ROUNDED = 1e-13  # a bound on the relative error of norms over all clients


@dataclass(frozen=True)
class Assessment:
    """The bounds of a certificate over all clients, in the units of the target."""

    bound: float  # against the hyper-gradient that `against` names
    at_x: float  # against the formula at the given x, which a run can improve
    from_x: float  # the part of `bound` due to an inexact x, which no run can reduce
    against: str

    def done(self, target: float) -> bool:
        """Whether the target is met, or is met by the run but out of reach because of x."""
        return self.bound <= target or (self.at_x <= target and self.from_x > MOST_FROM_X * target)

    def left_to_gain(self, target: float) -> float:
        """The factor on `at_x` that would meet the target, with MARGIN."""
        allowed = target - self.from_x if self.from_x <= MOST_FROM_X * target else target
        return MARGIN * allowed / self.at_x if 0 < self.at_x < math.inf else 1.0


def assess(plan: Plan, certificate: Certificate, est: Estimate, by_clients: bool, at_solution: bool) -> Assessment:
    """The certificate of an estimate in the units of the target.

    `at_solution`: against the hyper-gradient at the exact inner solution if the certificate has a term for x. If only
    the central certificate has one, and the clients decide, the bound is ∞.
    """
    at_point = certificate.decentralised if by_clients else certificate.centralised
    term = certificate.decentralised_inexact if by_clients else certificate.inexact
    if at_point is None:
        return Assessment(math.inf, math.inf, 0.0, certificate.against if at_solution else AT_POINT)
    at_x = _in_units(plan, at_point, est)
    if certificate.against != AT_SOLUTION:
        return Assessment(at_x, at_x, 0.0, certificate.against)
    if not at_solution:
        return Assessment(at_x, at_x, 0.0, AT_POINT)
    if term is None:
        return Assessment(math.inf, at_x, math.inf, certificate.against)
    return Assessment(_in_units(plan, at_point + term, est), at_x, _in_units(plan, term, est), certificate.against)


def _in_units(plan: Plan, per_client: np.ndarray, est: Estimate) -> float:
    """The norm over all clients of bounds on ‖v_i − d_i‖, (n,), in the units of the target.

    A relative bound is divided by ‖d‖ ≥ ‖v‖ − bound, and is ∞ if d may be 0. `tiny` is the absolute error of norms from
    underflow. If v = 0 and the bound is subnormal, the hyper-gradient is 0 to working precision, and the absolute bound
    is returned.
    """
    dtype = np.finfo(host_dtype(plan.x))
    tiny = (plan.net.n + 4) * float(np.finfo(np.float64).smallest_subnormal)
    bound = (1 + ROUNDED) * _size(plan, per_client) + tiny
    if not plan.relative:
        return bound
    size = _size(plan, est.value)
    if size == 0 and bound <= 4 * plan.net.n * float(dtype.smallest_normal):
        return bound
    least = (1 - ROUNDED) * size - tiny - bound
    return (1 + ROUNDED) * bound / least if least > 0 else math.inf


def _size(plan: Plan, rows: Array) -> float:
    """‖v‖ over the clients of all processes, from the rows (n, ...) of those here; scaled against overflow."""
    channel, lengths = connect(plan.net), norms(host_float64(rows).reshape(rows.shape[0], -1))
    top = float(channel.max_over_clients(lengths))
    if not 0 < top < math.inf:
        return top
    return top * math.sqrt(plan.net.n * float(channel.mean_over_clients((lengths / top)[:, None] ** 2)[0, 0]))


# ----------------------------------------------------------------------------------------------- run, certify, continue

ATTEMPTS = 8  # restarts or continuations of a run
MOST = 10  # iterations of a continuation, in multiples of the planned ones
LONGER = 2.0  # iterations of a tracking run until its tolerance, in multiples of the planned ones
GAIN, PATIENCE = 0.7, 3  # stop after PATIENCE continuations in a row that each leave more than GAIN of the bound
FROM_STATE = (Tracking, PreconditionedTracking, ConjugateGradient)  # run until a tolerance, and continue from a state
FINEST = 8  # steps of the clients' certificates, in multiples of those of the first


@dataclass(frozen=True)
class Segment:
    """A run of a method, or one that continues an estimate: S_0, S_1, … and arguments of `hypergradient`."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    tol: float | None = None
    start: dict[str, Any] = field(default_factory=dict)  # w0 or resume

    def floats(self, plan: Plan) -> float:
        """The most floats that it is expected to send."""
        d = plan.x.shape[-1]
        if plan.tree is not None:
            first = d * (d + 1) // 2 if isinstance(self.method, DirectSolve) and not self.start else 0
            return (plan.net.n - 1) * (first + (2 * d + 1) * (self.iterations + 1))
        calls = self.iterations + ("w0" in self.start)
        steps = (self.steps,) if isinstance(self.steps, int) else self.steps
        restarts = 0
        if isinstance(self.method, Refined):  # two averages at each restart, one of them in place of a call
            at = np.atleast_1d(self.method.steps).tolist()
            restarts = 2 * sum((at + at[-1:] * self.method.cycles)[: self.method.cycles - 1])
            calls -= self.method.cycles - 1
        rounds = restarts + sum(steps[:calls]) + steps[-1] * max(0, calls - len(steps))
        vectors = 2 if isinstance(self.method, Tracking | PreconditionedTracking) else 1
        return rounds * max(plan._network_of(self.method).expected_edges - plan.net.n, 0.0) * (vectors * d + 1)


class Execution:
    """`Plan.run`: the planned run, then certificates and continuations until the target is met.

    `traffic` is all that was sent, the probe included; every segment and every certificate of the clients uses the
    graphs after those. `options` are arguments of `certify`.
    """

    def __init__(self, plan: Plan, by_clients: bool, at_solution: bool, options: dict[str, Any]) -> None:
        self.plan, self.by_clients, self.at_solution, self.options = plan, by_clients, at_solution, options
        self.traffic = plan.diagnostics.traffic
        self.stages: list[Stage] = []
        self.continued = 0
        scale = 1.0 if plan.relative else plan.diagnostics.low / max(plan.diagnostics.size or 0.0, 1e-300)
        # The target relative to a bound on v − ∂_λ f
        self.relative_target = max(plan.target * scale, float(np.finfo(host_dtype(plan.x)).eps))

    def certified(self) -> Outcome:
        """The best certified estimate; a warning if it misses the target, ValueError if no bound could be certified."""
        plan, stalled = self.plan, 0
        low = plan.diagnostics.client_low
        if self.by_clients and low <= 0 and self.options.get("strong_convexity") is None:
            raise ValueError(
                f"by_clients must be False without strong_convexity=: clients' smallest Hessian eigenvalues average "
                f"to {low:.3g}, so they cannot bound that of the mean themselves"
            )
        est, method = self.first_run()
        best, (certificate, assessment) = est, self._certify(est)
        while not assessment.done(plan.target) and self.continued < ATTEMPTS and stalled < PATIENCE:
            segment = self.continuation(best, method, assessment)
            if stalled:  # the interval may have been too narrow
                milder = gentler(segment.method)
                if "resume" in segment.start and "resume" not in continuing(best, milder):
                    segment = self.continuation(best, milder, assessment)
                else:
                    segment = replace(segment, method=milder)
            if plan.budget is not None and self.traffic.floats + segment.floats(plan) > plan.budget:
                break
            est, method = self.continue_run(best, segment)
            self.continued += 1
            latest, now = self._certify(est)
            stalled = stalled + 1 if now.at_x > GAIN * assessment.at_x else 0
            if now.at_x <= assessment.at_x:
                best, certificate, assessment = est, latest, now
        out = self.outcome(
            best,
            certificate=certificate,
            bound=assessment.bound,
            met=bool(assessment.bound <= plan.target),
            continued=self.continued,
            against=assessment.against,
            bound_at_x=assessment.at_x,
        )
        if not out.met:
            warnings.warn(self._shortfall(out), RuntimeWarning, stacklevel=4)  # of the caller of Plan.run
        return out

    def outcome(self, est: Estimate, **certificate: Any) -> Outcome:
        """The outcome with the estimate `est` and everything that was sent."""
        parts = {part.name: getattr(est, part.name) for part in fields(Estimate)}
        parts |= {"traffic": self.traffic, "iterations": sum(stage.iterations for stage in self.stages)}
        settings: Any = {"stages": tuple(self.stages), "target": self.plan.target, "relative": self.plan.relative}
        return Outcome(**parts, **settings, **certificate)

    def first_run(self) -> tuple[Estimate, Method]:
        """The planned run, restarted with gentler settings if it diverges."""
        plan, method = self.plan, self.plan.method
        for attempt in range(ATTEMPTS + 1):
            iterations, tol = plan.iterations, None
            if isinstance(method, FROM_STATE):  # may take longer, and stops at a tolerance
                iterations = math.ceil((LONGER if plan.budget is None else 1.0) * plan.iterations)
                tol = min(self.relative_target / 2, 0.5)
            try:
                return self._run(Segment(method, plan.steps, iterations, tol)), method
            except DivergenceError:
                if attempt == ATTEMPTS:
                    raise
                method = gentler(method)
        raise AssertionError("unreachable")

    def continue_run(self, est: Estimate, segment: Segment) -> tuple[Estimate, Method]:
        """The estimate of the continued run, `est` if it diverges, and the method for the next continuation."""
        try:
            return self._run(segment), segment.method
        except DivergenceError:
            return est, gentler(segment.method)

    def _run(self, segment: Segment) -> Estimate:
        plan, method = self.plan, segment.method
        avg = plan._averaging_after(int(self.traffic.rounds), segment.steps, method)
        options: Any = {"iterations": segment.iterations, "tol": segment.tol, **segment.start}
        diverged, iterations = True, 0
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # the certificate decides
                est = hypergradient(plan.problem, plan.x, plan.lam, avg, method=method, **options)
            diverged, iterations = False, est.iterations
            return est
        except DivergenceError as error:
            iterations = error.steps
            raise
        finally:
            self.stages.append(Stage(repr(method), iterations, avg.traffic, diverged))
            self.traffic = self.traffic + avg.traffic

    def _certify(self, est: Estimate) -> tuple[Certificate, Assessment]:
        """The certificate of an estimate and its assessment.

        Clients know the inner gradient, and so the error due to x, up to the disagreement of its average. If only that
        exceeds the target, they certify again with twice the steps, as long as that pays.
        """
        target, finer = self.plan.target, 2
        certificate, assessment = self._certify_once(est)
        while self.by_clients and assessment.at_x <= target < assessment.bound and finer <= FINEST:
            again, better = self._certify_once(est, finer)
            finer, pays = 2 * finer, better.from_x <= GAIN * assessment.from_x
            if better.bound <= assessment.bound:
                certificate, assessment = again, better
            if not pays:
                break
        return certificate, assessment

    def _certify_once(self, est: Estimate, finer: int = 1) -> tuple[Certificate, Assessment]:
        """A certificate with `finer` times the steps, and its assessment.

        Over links that delay messages, averages start from the oldest message in flight. That takes more steps, and we
        do not know how many.
        """
        plan, network = self.plan, {}
        if self.by_clients:
            steps = finer * plan.diagnostics.rounds_to(min(self.relative_target / FLOOR, 0.5))
            avg = plan._averaging_after(int(self.traffic.rounds), steps)
            if isinstance(avg, RobustPushSum):
                avg = RobustPushSum(avg.net, (2 + self.continued) * steps)
            network = {"avg": avg, "first_call": 0}
        certificate = certify(plan.problem, plan.x, plan.lam, est, **network, **self.options)  # type: ignore[arg-type]
        self.traffic = self.traffic + (certificate.traffic or Traffic())
        return certificate, assess(plan, certificate, est, self.by_clients, self.at_solution)

    def continuation(self, est: Estimate, method: Method, assessment: Assessment) -> Segment:
        """A segment that gains about what is missing."""
        plan, known = self.plan, self.plan.diagnostics
        if math.isinf(assessment.at_x) and est.residual_ratio > 1 and not isinstance(method, PreconditionedTracking):
            return self.longer_calls()
        share = min(max(assessment.left_to_gain(plan.target), 1e-12), 0.5) if math.isfinite(assessment.at_x) else 0.1
        if isinstance(method, DirectSolve):
            return Segment(method, plan.steps, 1, None, {"resume": est})
        lost = "resume" not in continuing(est, method)  # then residuals start at the clients' own, whatever w is
        if isinstance(method, Tracking | PreconditionedTracking) and lost and known.low > 0:
            method = Chebyshev(known.low, known.high)
        if isinstance(method, FROM_STATE):
            rate = min(max(float(est.residual_ratio), 1e-300) ** (1 / est.iterations), 0.999)
            M = min(math.ceil(LONGER * max(2.0, math.log(share) / math.log(rate))), MOST * plan.iterations)
            segment = Segment(method, plan.steps, M, share, continuing(est, method))
            if isinstance(method, PreconditionedTracking) and known.low > 0:  # clients may be too unlike for it
                cycle = self._cycle(est, Chebyshev(known.low, known.high), share)
                segment = segment if segment.floats(plan) <= cycle.floats(plan) else cycle
            if plan.budget is None:
                return segment
            affordable = (plan.budget - self.traffic.floats) / max(segment.floats(plan), 1.0)
            most = max(1, math.floor(affordable * segment.iterations))
            return segment if affordable >= 1 else replace(segment, iterations=most)
        return self._cycle(est, method.method if isinstance(method, Refined) else method, share)

    def _cycle(self, est: Estimate, method: Method, share: float) -> Segment:
        """A cycle of refinement that reduces the error to `share` of itself."""
        steps, M = refinement_cycle(self.plan.diagnostics, method, share, self.relative_target, self.continued)
        return Segment(method, steps, M, None, {"w0": est.w})

    def longer_calls(self) -> Segment:
        """The planned run from the start with longer calls, for a run that grew because clients disagreed."""
        plan, method, longer = self.plan, self.plan.method, 2 ** (self.continued + 1)
        steps = longer * plan.steps if isinstance(plan.steps, int) else tuple(longer * S for S in plan.steps)
        if isinstance(method, Refined):
            method = Refined(method.method, method.cycles, (longer * np.atleast_1d(method.steps)).tolist())
        return Segment(method, steps, plan.iterations)

    def _shortfall(self, out: Outcome) -> str:
        """The warning for an outcome that misses its target, with the cause: the run or x."""
        target = self.plan.target
        expected = "requested" if self.plan.budget is None else "expected within the budget"
        text = (
            f"the certified error {out.bound:.2e} exceeds the {target:.2e} that was {expected}, after {out.continued} "
            f"continuation{'s' * (out.continued != 1)}"
        )
        if out.bound_at_x is None or not out.bound_at_x <= target:
            return text
        return (
            f"{text}: the run is certified to {out.bound_at_x:.2e} against {AT_POINT}, the rest is what x may add by "
            "not being the exact inner solution; train x further, or pass against='x' to bound the run alone"
        )


def continuing(est: Estimate, method: Method) -> dict[str, Any]:
    """Arguments with which a run of `method` continues `est`: from its state if it has that of this method, or w."""
    return {"resume": est} if type(est.method) is type(method) and est.state is not None else {"w0": est.w}


def gentler(method: Method) -> Method:
    """The method with half the step (Neumann: two thirds), or an interval wider by half at both ends.

    Preconditioned tracking gives way to tracking with a step that the clients find.
    """
    if isinstance(method, Refined):
        return Refined(gentler(method.method), method.cycles, method.steps)
    if isinstance(method, PreconditionedTracking):
        return Tracking()
    if isinstance(method, Tracking):
        return Tracking(method.step_size / 2 if method.step_size else None)
    if isinstance(method, Chebyshev):
        return Chebyshev(method.low / 1.5 if method.low else None, method.high * 1.5 if method.high else None)
    if isinstance(method, Neumann):
        return Neumann(method.eta / 1.5)
    return method


def refinement_cycle(
    known: Diagnostics, method: Method, share: float, goal: float, continued: int
) -> tuple[tuple[int, ...], int]:
    """(steps, M) of one more cycle, which reduces the error to `share` of itself after `continued` earlier ones.

    The first of `steps` is for the average of w, the others for the M iterations; `goal` is the target.
    """
    restart = known.rounds_to(min(goal / FLOOR, 0.5)) * (2 + continued) // 2
    if isinstance(method, Chebyshev) and method.low and method.high:
        root = math.sqrt(method.high / method.low)
        q = (root - 1) / (root + 1)
    else:
        q = max(abs(1 - getattr(method, "eta", 0.0) * edge) for edge in (known.low, known.high))
    M = max(2, math.ceil(math.log(share / 2) / math.log(min(max(q, 1e-6), 0.999))))
    falling = falling_steps(min(known.rounds_to(min(share / FLOOR, 0.5)) * (2 + continued) // 2, restart), M)
    return (restart, restart, *falling[1:]), M
