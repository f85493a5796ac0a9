"""Carrying out a plan: run, certify, go on."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hgp_ref.averaging import PushSum, RobustPushSum, falling_steps, push_sum_over
from hgp_ref.backend import Array, host_dtype, host_float64
from hgp_ref.certificates import Certificate, certify
from hgp_ref.channels import Traffic, connect
from hgp_ref.errors import DivergenceError
from hgp_ref.estimators import Estimate, hypergradient
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking
from hgp_ref.planning.candidates import FLOOR
from hgp_ref.planning.result import Outcome, Plan
from hgp_ref.rigorous import norms

ATTEMPTS = 8  # times that a run is begun again or goes on
MOST = 10  # times the iterations that were expected, of a continuation
LONGER = 2.0  # a tracking run may take so many times the iterations that were expected, if its tolerance asks for it
GAIN, PATIENCE = 0.7, 3  # so often in a row may a continuation leave more than this share of the bound
MARGIN = 0.5  # of the target, which a continuation aims at
ROUNDED = 1e-13  # relative error of norms over all clients, at most
CERTIFICATE = ("lipschitz", "strong_convexity", "max_rounds", "matrix_free")  # options that are handed on


def carry_out(plan: Plan, certified: bool, by_clients: bool, options: dict[str, Any]) -> Outcome:
    """The run of a plan; see `Plan.run`."""
    if certified:
        _check_certificate(plan, by_clients, options)
    est, sent, method = _first_run(plan)
    best, certificate, bound, continued, stalled = est, None, math.inf, 0, 0
    while certified:
        latest, cost = _certificate(plan, est, sent, by_clients, continued, options)
        now = _in_units(plan, latest, est, by_clients)
        sent, stalled = sent + cost, stalled + 1 if now > GAIN * bound else 0
        if certificate is None or now <= bound:
            best, certificate, bound = est, latest, now
        if bound <= plan.target or continued == ATTEMPTS or stalled == PATIENCE:
            break
        further = _further(plan, best, sent, method, bound, continued)
        if stalled:  # the interval may have been too narrow
            further = replace(further, method=gentler(further.method))
        if plan.budget is not None and sent.floats + further.floats(plan) > plan.budget:
            break
        est, more, method = _go_on(plan, best, sent, further)
        sent, continued = sent + more, continued + 1
    met = bool(bound <= plan.target) if certified else None
    if met is False:
        asked = "asked for" if plan.budget is None else "expected within the budget"
        warnings.warn(
            f"the certified error is {bound:.2e} where {plan.target:.2e} was {asked}; continued {continued} times",
            RuntimeWarning,
            stacklevel=3,
        )
    kept = {field.name: getattr(best, field.name) for field in fields(Estimate)} | {"traffic": sent}
    return Outcome(**kept, certificate=certificate, bound=bound if certified else None, met=met, continued=continued)


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

    As a share of ‖d‖ ≥ ‖v‖ − bound where the target is relative: ∞ where d is not told from 0.
    """
    per_client = certificate.decentralised if by_clients else certificate.centralised
    if per_client is None:
        return math.inf
    bound = (1 + ROUNDED) * _size(plan, per_client)
    if not plan.relative or bound < np.finfo(np.float64).tiny:  # smaller numbers have no digits to be relative to
        return bound
    least = (1 - ROUNDED) * _size(plan, est.value) - bound
    return bound / least if least > 0 else math.inf


def _size(plan: Plan, rows: Array) -> float:
    """‖v‖ over all clients, wherever they live, of the rows (n, ...) of those here; squares stay within range."""
    channel, each = connect(plan.net), norms(host_float64(rows).reshape(rows.shape[0], -1))
    top = float(channel.max_over_clients(each))
    if not 0 < top < math.inf:
        return top
    return top * math.sqrt(plan.net.n * float(channel.mean_over_clients((each / top)[:, None] ** 2)[0, 0]))


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
        rounds = sum(given[:calls]) + given[-1] * max(0, calls - len(given))
        vectors = 2 if isinstance(self.method, Tracking) else 1
        return rounds * max(plan.net.expected_edges - plan.net.n, 0.0) * (vectors * plan.x.shape[-1] + 1)


def _further(plan: Plan, est: Estimate, sent: Traffic, method: Method, bound: float, continued: int) -> _Further:
    """How to gain about what is missing."""
    if math.isinf(bound) and est.growth > 1:
        return _again(plan, continued)
    share = min(max(MARGIN * plan.target / bound, 1e-12), 0.5) if math.isfinite(bound) else 0.1
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
    return _Further(inner, *_cycle(plan, inner, share, continued), None, {"w0": est.w})


def _again(plan: Plan, continued: int) -> _Further:
    """The planned run from the beginning with longer calls, where disagreement between clients has made it grow."""
    longer = 2 ** (continued + 1)
    steps = longer * plan.steps if isinstance(plan.steps, int) else tuple(longer * S for S in plan.steps)
    method = plan.method
    if isinstance(method, Refined):
        method = Refined(method.method, method.cycles, (longer * np.atleast_1d(method.steps)).tolist())
    return _Further(method, steps, plan.iterations, None, {})


def _go_on(plan: Plan, est: Estimate, sent: Traffic, further: _Further) -> tuple[Estimate, Traffic, Method]:
    """The estimate after the run has gone on, what that sent, and the method of what may follow."""
    avg = push_sum_over(plan.net.after(sent.rounds), further.steps)
    try:
        more = _run(plan, avg, further.method, further.iterations, further.tol, **further.start)
        return more, avg.ledger, further.method
    except DivergenceError:  # what was there before still stands
        return est, avg.ledger, gentler(further.method)


def _cycle(plan: Plan, inner: Method, share: float, continued: int) -> tuple[tuple[int, ...], int]:
    """S of the average of w and of all iterations of a cycle of refinement, and how many these are."""
    restart = plan.found.rounds_to(min(_relative_target(plan) / FLOOR, 0.5)) * (2 + continued) // 2
    if isinstance(inner, Chebyshev) and inner.low and inner.high:
        root = math.sqrt(inner.high / inner.low)
        q = (root - 1) / (root + 1)
    else:
        q = max(abs(1 - getattr(inner, "eta", 0.0) * edge) for edge in (plan.found.low, plan.found.high))
    M = max(2, math.ceil(math.log(share / 2) / math.log(min(max(q, 1e-6), 0.999))))
    falling = falling_steps(min(plan.found.rounds_to(min(share / FLOOR, 0.5)) * (2 + continued) // 2, restart), M)
    return (restart, restart, *falling[1:]), M
