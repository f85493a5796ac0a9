"""Carrying out a plan: run, certify, go on."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hgp_ref.averaging import PushSum, RobustPushSum, push_sum_over
from hgp_ref.backend import host_dtype
from hgp_ref.certificates import Certificate, certify
from hgp_ref.certificates.result import AT_POINT
from hgp_ref.channels import Traffic
from hgp_ref.errors import DivergenceError
from hgp_ref.estimators import Estimate, hypergradient
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking
from hgp_ref.planning.candidates import FLOOR, refinement_cycle
from hgp_ref.planning.judging import Judged, judge
from hgp_ref.planning.result import Outcome, Plan, Stage

ATTEMPTS = 8  # times that a run is begun again or goes on
MOST = 10  # times the iterations that were expected, of a continuation
LONGER = 2.0  # a tracking run may take so many times the iterations that were expected, if its tolerance asks for it
GAIN, PATIENCE = 0.7, 3  # so often in a row may a continuation leave more than this share of the bound
FINEST = 8  # times the steps of their first certificate that clients may take
CERTIFICATE = ("lipschitz", "strong_convexity", "max_rounds", "matrix_free")  # options that are handed on


def carry_out(plan: Plan, certified: bool, by_clients: bool, at_solution: bool, options: dict[str, Any]) -> Outcome:
    """The run of a plan; see `Plan.run`."""
    if certified:
        _check_certificate(plan, by_clients, options)
    stages: list[Stage] = []
    est, sent, method = _first_run(plan, stages)
    best, certificate, judged, continued, stalled = est, None, Judged(math.inf, math.inf, 0.0, ""), 0, 0
    while certified:
        latest, now, cost = _certified(plan, est, sent, by_clients, at_solution, continued, options)
        sent, stalled = sent + cost, stalled + 1 if now.at_x > GAIN * judged.at_x else 0
        if certificate is None or now.at_x <= judged.at_x:
            best, certificate, judged = est, latest, now
        if judged.done(plan.target) or continued == ATTEMPTS or stalled == PATIENCE:
            break
        further = _further(plan, best, sent, method, judged, continued)
        if stalled:  # the interval may have been too narrow
            further = replace(further, method=gentler(further.method))
        if plan.budget is not None and sent.floats + further.floats(plan) > plan.budget:
            break
        est, more, method = _go_on(plan, best, sent, further, stages)
        sent, continued = sent + more, continued + 1
    kept = {field.name: getattr(best, field.name) for field in fields(Estimate)}
    kept |= {"traffic": sent, "iterations": sum(stage.iterations for stage in stages)}
    if not certified:
        return Outcome(**kept, stages=tuple(stages), target=plan.target, relative=plan.relative)
    out = Outcome(
        **kept,
        certificate=certificate,
        bound=judged.bound,
        met=bool(judged.bound <= plan.target),
        continued=continued,
        against=judged.against,
        bound_at_x=judged.at_x,
        stages=tuple(stages),
        target=plan.target,
        relative=plan.relative,
    )
    if not out.met:
        warnings.warn(_shortfall(plan, out), RuntimeWarning, stacklevel=3)
    return out


def _shortfall(plan: Plan, out: Outcome) -> str:
    """What is said of an outcome that misses its target: whether the run or x is to blame."""
    asked = "asked for" if plan.budget is None else "expected within the budget"
    text = (
        f"the certified error is {out.bound:.2e} where {plan.target:.2e} was {asked}; continued {out.continued} times"
    )
    if out.bound_at_x is None or not out.bound_at_x <= plan.target:
        return text
    return (
        f"{text}: the run is certified to {out.bound_at_x:.2e} against {AT_POINT}, the rest is what x may add by not "
        "being the exact inner solution; train x further, or pass against='x' to judge the run alone"
    )


def _check_certificate(plan: Plan, by_clients: bool, options: dict[str, Any]) -> None:
    """What cannot be certified is said before anything is sent for it."""
    unknown = [name for name in options if name not in CERTIFICATE]
    if unknown:
        raise TypeError(f"{unknown[0]}: no option of hgp.certify for plans, needed some of {', '.join(CERTIFICATE)}")
    if by_clients and plan.found.own_low <= 0 and options.get("strong_convexity") is None:
        raise ValueError(
            f"by_clients: clients' smallest Hessian eigenvalues average to {plan.found.own_low:.3g}, so that they "
            "cannot bound that of the mean by themselves; needed strong_convexity=, or by_clients=False"
        )


def _first_run(plan: Plan, stages: list[Stage]) -> tuple[Estimate, Traffic, Method]:
    """The planned run, begun again with gentler settings where it diverges; everything that was sent is counted."""
    sent, method = plan.found.traffic, plan.method
    for attempt in range(ATTEMPTS + 1):
        avg = push_sum_over(plan.net.after(sent.rounds), plan.steps)
        try:
            est = _run(plan, avg, method, *_length(plan, method))
            stages.append(Stage(repr(method), est.iterations, avg.ledger))
            return est, sent + avg.ledger, method
        except DivergenceError as error:
            stages.append(Stage(repr(method), error.steps, avg.ledger, diverged=True))
            if attempt == ATTEMPTS:
                raise
            sent, method = sent + avg.ledger, gentler(method)
    raise AssertionError("unreachable")


def _length(plan: Plan, method: Method) -> tuple[int, float | None]:
    """Iterations and tolerance of the first run: gradient tracking may take longer, and ends when little is left."""
    if not isinstance(method, Tracking):
        return plan.iterations, None
    longer = LONGER if plan.budget is None else 1.0
    return math.ceil(longer * plan.iterations), min(_relative_target(plan) / 2, 0.5)


def _relative_target(plan: Plan) -> float:
    """The target as a share of how large v − ∂_λ f may be, no smaller than rounding."""
    scale = 1.0 if plan.relative else plan.found.low / max(plan.found.size or 0.0, 1e-300)
    return max(plan.target * scale, float(np.finfo(host_dtype(plan.x)).eps))


def _run(plan: Plan, avg: PushSum, method: Method, iterations: int, tol: float | None, **start: Any) -> Estimate:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # the certificate judges
        return hypergradient(
            plan.problem, plan.x, plan.lam, avg, method=method, iterations=iterations, tol=tol, **start
        )


def gentler(method: Method) -> Method:
    """The same method with half the step (the series: two thirds), or an interval wider by half at both ends."""
    if isinstance(method, Refined):
        return Refined(gentler(method.method), method.cycles, method.steps)
    if isinstance(method, Tracking):
        return Tracking(method.given / 2 if method.given else None)
    if isinstance(method, Chebyshev):
        return Chebyshev(method.low / 1.5 if method.low else None, method.high * 1.5 if method.high else None)
    if isinstance(method, Neumann):
        return Neumann(method.eta / 1.5)
    return method


def _certified(
    plan: Plan,
    est: Estimate,
    sent: Traffic,
    by_clients: bool,
    at_solution: bool,
    continued: int,
    options: dict[str, Any],
) -> tuple[Certificate, Judged, Traffic]:
    """The certificate of an estimate, what it says, and what clients sent for it.

    Clients know the inner gradient, and with it what x may add, up to the disagreement of its average. Where that is
    all that is missing they certify again with twice the steps, as long as that pays.
    """
    certificate, cost = _certificate(plan, est, sent, by_clients, continued, options)
    judged, finer = judge(plan, certificate, est, by_clients, at_solution), 2
    while by_clients and judged.at_x <= plan.target < judged.bound and finer <= FINEST:
        again, more = _certificate(plan, est, sent + cost, by_clients, continued, options, finer)
        better, cost, finer = judge(plan, again, est, by_clients, at_solution), cost + more, 2 * finer
        pays = better.from_x <= GAIN * judged.from_x
        if better.bound <= judged.bound:
            certificate, judged = again, better
        if not pays:
            break
    return certificate, judged, cost


def _certificate(
    plan: Plan, est: Estimate, sent: Traffic, by_clients: bool, continued: int, options: dict[str, Any], finer: int = 1
) -> tuple[Certificate, Traffic]:
    """The certificate of an estimate, with `finer` times the steps, and what clients sent for it.

    Over links that delay, averages count from the oldest share under way on: that takes more steps, and none knows how
    many.
    """
    if not by_clients:
        return certify(plan.problem, plan.x, plan.lam, est, **options), Traffic()
    steps = finer * plan.found.rounds_to(min(_relative_target(plan) / FLOOR, 0.5))
    avg = push_sum_over(plan.net.after(sent.rounds), steps)
    if isinstance(avg, RobustPushSum):
        avg = RobustPushSum(avg.net, (2 + continued) * steps)
    certificate = certify(plan.problem, plan.x, plan.lam, est, avg, first_call=0, **options)
    return certificate, certificate.traffic or Traffic()


@dataclass(frozen=True)
class _Further:
    """How a run goes on: a method from a start, over S_0, S_1, … steps."""

    method: Method
    steps: int | tuple[int, ...]
    iterations: int
    tol: float | None
    start: dict[str, Any]

    def floats(self, plan: Plan) -> float:
        """What this is expected to send at most."""
        calls = self.iterations + ("w0" in self.start)
        given = (self.steps,) if isinstance(self.steps, int) else self.steps
        restarts = 0
        if isinstance(self.method, Refined):  # two averages at each restart, one of them in place of a call
            at = np.atleast_1d(self.method.steps).tolist()
            restarts = 2 * sum((at + at[-1:] * self.method.cycles)[: self.method.cycles - 1])
            calls -= self.method.cycles - 1
        rounds = restarts + sum(given[:calls]) + given[-1] * max(0, calls - len(given))
        vectors = 2 if isinstance(self.method, Tracking) else 1
        return rounds * max(plan.net.expected_edges - plan.net.n, 0.0) * (vectors * plan.x.shape[-1] + 1)


def _further(plan: Plan, est: Estimate, sent: Traffic, method: Method, judged: Judged, continued: int) -> _Further:
    """How to gain about what is missing."""
    if math.isinf(judged.at_x) and est.growth > 1:
        return _again(plan, continued)
    share = min(max(judged.left_to_gain(plan.target), 1e-12), 0.5) if math.isfinite(judged.at_x) else 0.1
    if isinstance(method, Tracking) and est.carried is None and plan.found.low > 0:  # part of it is under way
        method = Chebyshev(plan.found.low, plan.found.high)
    if isinstance(method, Tracking):
        rate = min(max(float(est.growth), 1e-300) ** (1 / est.iterations), 0.999)
        M = min(math.ceil(LONGER * max(2.0, math.log(share) / math.log(rate))), MOST * plan.iterations)
        start: dict[str, Any] = {"w0": est.w} if est.carried is None else {"resume": est}
        further = _Further(method, plan.steps, M, share, start)
        afford = 1.0 if plan.budget is None else (plan.budget - sent.floats) / max(further.floats(plan), 1.0)
        return further if afford >= 1 else replace(further, iterations=max(1, math.floor(afford * M)))
    inner = method.method if isinstance(method, Refined) else method
    steps, M = refinement_cycle(plan.found, inner, share, _relative_target(plan), continued)
    return _Further(inner, steps, M, None, {"w0": est.w})


def _again(plan: Plan, continued: int) -> _Further:
    """The planned run from the beginning with longer calls, where disagreement between clients has made it grow."""
    longer = 2 ** (continued + 1)
    steps = longer * plan.steps if isinstance(plan.steps, int) else tuple(longer * S for S in plan.steps)
    method = plan.method
    if isinstance(method, Refined):
        method = Refined(method.method, method.cycles, (longer * np.atleast_1d(method.steps)).tolist())
    return _Further(method, steps, plan.iterations, None, {})


def _go_on(
    plan: Plan, est: Estimate, sent: Traffic, further: _Further, stages: list[Stage]
) -> tuple[Estimate, Traffic, Method]:
    """The estimate after the run has gone on, what that sent, and the method of what may follow."""
    avg = push_sum_over(plan.net.after(sent.rounds), further.steps)
    try:
        more = _run(plan, avg, further.method, further.iterations, further.tol, **further.start)
        stages.append(Stage(repr(further.method), more.iterations, avg.ledger))
        return more, avg.ledger, further.method
    except DivergenceError as error:  # what was there before still stands
        stages.append(Stage(repr(further.method), error.steps, avg.ledger, diverged=True))
        return est, avg.ledger, gentler(further.method)
