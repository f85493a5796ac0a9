"""Carrying out a plan: run, certify, go on."""

from __future__ import annotations

import math
import warnings
from dataclasses import fields
from typing import Any

import numpy as np

from hgp_ref.averaging import PushSum, RobustPushSum, falling_steps, push_sum_over
from hgp_ref.backend import Array, host_float64
from hgp_ref.certificates import Certificate, certify
from hgp_ref.channels import Traffic, connect
from hgp_ref.errors import DivergenceError
from hgp_ref.estimators import Estimate, hypergradient
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking
from hgp_ref.planning.candidates import FLOOR
from hgp_ref.planning.result import Outcome, Plan

ATTEMPTS = 8  # times that a run is begun again or goes on
MOST = 10  # times the iterations that were expected, of a continuation
LONGER = 2.0  # a tracking run may take so many times the iterations that were expected, if its tolerance asks for it
GAIN, PATIENCE = 0.7, 2  # so often in a row may a continuation leave more than this share of the bound
MARGIN = 0.5  # of the target, which a continuation aims at


def carry_out(plan: Plan, certified: bool, by_clients: bool, options: dict[str, Any]) -> Outcome:
    """The run of a plan; see `Plan.run`."""
    est, sent, method = _first_run(plan)
    certificate, bound, continued, stalled = None, math.inf, 0, 0
    while certified:
        certificate, cost = _certificate(plan, est, sent, by_clients, continued, options)
        before, bound = bound, _in_units(plan, certificate, est, by_clients)
        sent, stalled = sent + cost, stalled + 1 if bound > GAIN * before else 0
        if bound <= plan.target or continued == ATTEMPTS or stalled == PATIENCE or plan.budget is not None:
            break
        est, more, method = _more(plan, est, sent, method, bound, continued)
        sent, continued = sent + more, continued + 1
    met = bool(bound <= plan.target) if certified else None
    if met is False:
        warnings.warn(
            f"the certified error is {bound:.2e} where {plan.target:.2e} was asked for; continued {continued} times",
            RuntimeWarning,
            stacklevel=3,
        )
    kept = {field.name: getattr(est, field.name) for field in fields(Estimate)} | {"traffic": sent}
    return Outcome(**kept, certificate=certificate, bound=bound if certified else None, met=met, continued=continued)


def _first_run(plan: Plan) -> tuple[Estimate, Traffic, Method]:
    """The planned run, begun again with gentler settings where it diverges; everything that was sent is counted."""
    sent, method = plan.found.traffic, plan.method
    for attempt in range(ATTEMPTS + 1):
        avg = push_sum_over(plan.net.after(sent.rounds), plan.steps)
        try:
            est = _run(plan, avg, method, *_length(plan, method))
            return est, sent + avg.ledger, method
        except DivergenceError:
            if attempt == ATTEMPTS:
                raise
            sent, method = sent + avg.ledger, gentler(method)
    raise AssertionError("unreachable")


def _length(plan: Plan, method: Method) -> tuple[int, float | None]:
    """Iterations and tolerance of the first run: gradient tracking may take longer, and ends when little is left."""
    if not isinstance(method, Tracking):
        return plan.iterations, None
    relative = plan.target if plan.relative else plan.target * plan.found.low / max(plan.found.size or 0.0, 1e-300)
    longer = LONGER if plan.budget is None else 1.0
    return math.ceil(longer * plan.iterations), min(relative / 2, 0.5)


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


def _certificate(
    plan: Plan, est: Estimate, sent: Traffic, by_clients: bool, continued: int, options: dict[str, Any]
) -> tuple[Certificate, Traffic]:
    """The certificate of an estimate, and what clients sent for it.

    Over links that delay, averages count from the oldest share under way on: that takes more steps, and none knows how
    many.
    """
    if not by_clients:
        return certify(plan.problem, plan.x, plan.lam, est, **options), Traffic()
    steps = plan.found.rounds_to(min(plan.target / FLOOR, 0.5))
    avg = push_sum_over(plan.net.after(sent.rounds), steps)
    if isinstance(avg, RobustPushSum):
        avg = RobustPushSum(avg.net, (2 + continued) * steps)
    certificate = certify(plan.problem, plan.x, plan.lam, est, avg, first_call=0, **options)
    return certificate, certificate.traffic or Traffic()


def _in_units(plan: Plan, certificate: Certificate, est: Estimate, by_clients: bool) -> float:
    """The bound over all clients against the formula at x, which is what a run can improve.

    As a share of ‖d‖ ≥ ‖v‖ − bound where the target is relative.
    """
    per_client = certificate.decentralised if by_clients else certificate.centralised
    if per_client is None:
        return math.inf
    bound = _size(plan, per_client)
    if not plan.relative:
        return bound
    least = _size(plan, est.value) - bound
    rounding = 0.0 if certificate.rounding is None else _size(plan, certificate.rounding)
    if bound <= 2 * rounding and least <= 0:
        return 0.0  # a hyper-gradient of 0, known up to rounding
    return bound / least if least > 0 else math.inf


def _size(plan: Plan, rows: Array) -> float:
    """‖v‖ over all clients, wherever they live, of the rows (n, ...) of those here."""
    v = host_float64(rows).reshape(rows.shape[0], -1)
    return math.sqrt(plan.net.n * float(connect(plan.net).mean_over_clients(np.sum(v * v, axis=1)[:, None])[0, 0]))


def _more(
    plan: Plan, est: Estimate, sent: Traffic, method: Method, bound: float, continued: int
) -> tuple[Estimate, Traffic, Method]:
    """The estimate after the run has gone on by about what is missing."""
    share = min(max(MARGIN * plan.target / bound, 1e-12), 0.5) if math.isfinite(bound) else 0.1
    if isinstance(method, Tracking) and est.carried is None and plan.found.low > 0:  # part of it is under way
        method = Chebyshev(plan.found.low, plan.found.high)
    if isinstance(method, Tracking):
        rate = min(max(float(est.growth), 1e-300) ** (1 / est.iterations), 0.999)
        M = min(math.ceil(LONGER * max(2.0, math.log(share) / math.log(rate))), MOST * plan.iterations)
        tol: float | None = share
        avg = push_sum_over(plan.net.after(sent.rounds), plan.steps)
        start: dict[str, Any] = {"w0": est.w} if est.carried is None else {"resume": est}
    else:
        inner = method.method if isinstance(method, Refined) else method
        steps, M = _cycle(plan, inner, share, continued)
        avg = push_sum_over(plan.net.after(sent.rounds), steps)
        method, start, tol = inner, {"w0": est.w}, None
    try:
        return _run(plan, avg, method, M, tol, **start), avg.ledger, method
    except DivergenceError:  # what was there before still stands
        return est, avg.ledger, gentler(method)


def _cycle(plan: Plan, inner: Method, share: float, continued: int) -> tuple[tuple[int, ...], int]:
    """S of the average of w and of all iterations of a cycle of refinement, and how many these are."""
    goal = plan.target if plan.relative else plan.error * plan.found.low / max(plan.found.size or 0.0, 1e-300)
    restart = plan.found.rounds_to(min(goal / FLOOR, 0.5)) * (2 + continued) // 2
    if isinstance(inner, Chebyshev) and inner.low and inner.high:
        root = math.sqrt(inner.high / inner.low)
        q = (root - 1) / (root + 1)
    else:
        q = max(abs(1 - getattr(inner, "eta", 0.0) * edge) for edge in (plan.found.low, plan.found.high))
    M = max(2, math.ceil(math.log(share / 2) / math.log(min(max(q, 1e-6), 0.999))))
    falling = falling_steps(min(plan.found.rounds_to(min(share / FLOOR, 0.5)) * (2 + continued) // 2, restart), M)
    return (restart, restart, *falling[1:]), M
