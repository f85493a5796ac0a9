"""Links that lose and delay messages: robust Push-Sum, hyper-gradients over it, and the statements that still hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import contracting_clients, convex_mean
from verification.cases import Case, host64, logistic, quadratic
from verification.random_settings import make_case, make_network
from verification.rows import Row, against, verdict_row
from verification.run import Result, Run

TITLE = "Unreliable links: running sums, bounds A and B, certificates"
NETWORKS = ("RandomDirected", "Schedule", "OnePeerExponential", "RandomOut", "StaticUndirected")
LINKS = ((0.1, 0), (0.1, 5))  # loss and delay of the links over which robust Push-Sum must converge
MEAN, TRUTH, PLAIN = 1e-13, 1e-8, 1e-2  # limits on errors of averages and hyper-gradients; PLAIN from below
STEPS = 400


def verify(run: Run) -> Result:
    """Averages, hyper-gradients, augmented matrices, and A, B, C3, C4 over random settings."""
    with warnings.catch_warnings():  # plain messages lose mass, and short runs do not converge
        warnings.filterwarnings("ignore", "PushSum over .* loses mass|.* not jointly strongly connected|not converged")
        return _verify(run)


def _verify(run: Run) -> Result:
    rows = [*averages(run), *hypergradients(run)]
    A, B, C, explicit = [], [], [], []
    for setting in random_links(run, run.pick(200, 25)):
        a, b = bounds_of(setting, run)
        A.append(a)
        B.append(b)
        explicit.append(matrices_row(setting))
        if setting.reachable:
            C.append(certificate_row(setting, run))
    counts = {"settings": len(A), "certified runs": len(C)}
    statements = {"A": A, "B": B, "C3, C4": C, "augmented matrices": explicit}
    for name, each in statements.items():
        counts[f"violations of {name}"] = sum(row.failed for row in each)
        rows += [row for row in each if row.failed] or [closest(each)]
    return Result(rows, facts={name: float(number) for name, number in counts.items()})


def averages(run: Run) -> Iterator[Row]:
    """Errors of averages after many steps, with running sums and with plain messages."""
    u = run.rng(1).normal(size=(10, 5))
    for loss, delay in LINKS:
        for name in ("RandomDirected", "RandomOut"):
            inner = {"RandomDirected": hgp.networks.RandomDirected(10, seed=run.seed),
                     "RandomOut": hgp.networks.RandomOut(10, 2, seed=run.seed)}[name]  # fmt: skip
            net = hgp.networks.Unreliable(inner, loss=loss, delay=delay, seed=run.seed)
            off = {kind: float(np.abs(kind(net, STEPS).apply(u) - u.mean(axis=0)).max())
                   for kind in (hgp.RobustPushSum, hgp.PushSum)}  # fmt: skip
            setting = f"{name} n=10, loss {loss:g}, delay {delay}, S={STEPS}"
            yield verdict_row("Unreliable links, averages", setting, off[hgp.RobustPushSum], MEAN)
            yield verdict_row("Unreliable links, plain averages stay away", setting, PLAIN, off[hgp.PushSum])


def hypergradients(run: Run) -> Iterator[Row]:
    """Relative errors of HGP, and of gradient tracking with one step per call."""
    cases = (quadratic(5, 5, seed=run.seed), logistic(3, 5, seed=run.seed, instances=40))
    for case in run.pick(cases, cases[:1]):
        scale = float(np.linalg.norm(case.truth))
        for loss, delay in run.pick(LINKS, LINKS[:1]):
            inner = hgp.networks.RandomDirected(case.n, seed=run.seed + 1)
            net = hgp.networks.Unreliable(inner, loss=loss, delay=delay, seed=run.seed)
            hgp_run = case.estimate(hgp.RobustPushSum(net, 150), run.backend, eta=1 / case.L, iterations=600)
            tracking = hgp.methods.Tracking(0.1 / case.L)
            one = case.estimate(hgp.RobustPushSum(net, 1), run.backend, method=tracking, iterations=6000)
            setting = f"{case.name}, loss {loss:g}, delay {delay}"
            yield verdict_row("Unreliable links, HGP", f"{setting}, S=150, M=600", case.error(hgp_run) / scale, TRUTH)
            yield verdict_row("Unreliable links, tracking", f"{setting}, S=1, M=6000", case.error(one) / scale, TRUTH)


@dataclass(frozen=True)
class Links:
    """One random setting."""

    case: Case
    net: Any
    S: int
    M: int
    eta: float
    description: str
    reachable: bool  # whether maxima reach all clients within the largest number of rounds


def random_links(run: Run, count: int) -> Iterator[Links]:
    """Settings with loss up to 0.9, delays beyond S, clients that sleep most of the time."""
    for index in range(count):
        rng = run.rng(2, index)
        n = int(rng.integers(2, 7))
        kind = ("logistic", "quadratic", "non-convex")[index % 3]
        case = make_case(kind, n, int(rng.integers(1, 6)), 10 ** rng.uniform(0, 2), rng)
        loss, delay = float(rng.choice([0.0, 0.1, 0.3, 0.6, 0.9])), int(rng.choice([0, 1, 3, 5, 12]))
        sleep, stretch = float(rng.choice([0.0, 0.2, 0.9])), int(rng.choice([1, 7]))
        name = NETWORKS[index % len(NETWORKS)]
        inner = make_network(name, n, rng)
        net = hgp.networks.Unreliable(inner, loss, delay, sleep, seed=int(rng.integers(2**31)), stretch=stretch)
        S, M = int(rng.integers(1, 16)), int(rng.integers(1, 40))
        eta = float(rng.uniform(0.1, 1.5) / np.linalg.eigvalsh(case.H.mean(axis=0))[-1])
        description = f"{case.name} n={n}, {name}, loss {loss:g}, delay {delay}, sleep {sleep:g}, S={S}, M={M}"
        yield Links(
            case,
            net,
            S,
            M,
            eta,
            description,
            loss < 0.9 and sleep < 0.9 and name != "RandomOut" and not net.is_reliable,
        )


def bounds_of(setting: Links, run: Run) -> tuple[Row, Row]:
    """A and B with the matrices that the channel realises."""
    avg = hgp.RobustPushSum(setting.net, setting.S)
    P, _ = avg.connect().matrices(setting.S, setting.M)
    c = setting.case.constants(setting.eta, P / P.sum(axis=2, keepdims=True), setting.S)
    case = setting.case
    try:
        error = case.error(case.estimate(avg, run.backend, eta=setting.eta, iterations=setting.M))
    except hgp.DivergenceError:  # the run is refused, but its value exists, and so does its bound
        value = hgp.exact.estimate(case.problem, case.x, case.lam, list(P / P.sum(axis=2, keepdims=True)), setting.eta)
        error = float(np.linalg.norm(value - case.truth))
    rows = [against(f"{name}, unreliable links", setting.description, error, bound(c), rounding=c.rounding)
            for name, bound in (("A", contracting_clients), ("B", convex_mean))]  # fmt: skip
    return rows[0], rows[1]


def matrices_row(setting: Links) -> Row:
    """The matrices of two calls, compared with blocks of augmented matrices."""
    calls, S = 2, min(setting.S, 6)
    P, _ = hgp.RobustPushSum(setting.net, S).connect().matrices(S, calls)
    explicit = [hgp.exact.mixing_product(setting.net, S, call, robust=True) for call in range(calls)]
    off = float(np.abs(P - np.array(explicit)).max())
    return verdict_row("augmented matrices", setting.description, off, 4 * S * (S * setting.net.n + 2) * 2.0**-52)


def certificate_row(setting: Links, run: Run) -> Row:
    """The clients' own bound, at the client where it is tightest."""
    case, avg = setting.case, hgp.RobustPushSum(setting.net, setting.S)
    est = case.estimate(avg, eta=0.5 / case.L, iterations=setting.M)
    known = float(np.linalg.eigvalsh(case.H.mean(axis=0))[0]) * (1 - 1e-9)
    certificate = hgp.certify(case.problem, case.x, case.lam, est, avg, strong_convexity=known)
    errors = np.linalg.norm(host64(est.value) - case.truth, axis=1)
    k = int(np.argmax(errors / certificate.decentralised_bound))
    return verdict_row("C3, C4, unreliable links", setting.description, errors[k], certificate.decentralised_bound[k])


def closest(rows: list[Row]) -> Row:
    """The row with the smallest ratio of bound to measured number."""
    return min(rows, key=lambda row: np.inf if row.ratio is None else row.ratio)
