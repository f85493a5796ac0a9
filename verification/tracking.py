"""`hgp.methods.Tracking`: its rate against the period map, no floor, its safe step, and detection of instability."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.planning.planner import rates
from verification.cases import Case, logistic, quadratic
from verification.random_settings import random_quadratic
from verification.rows import Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Gradient tracking"
CLOSE = 4e-3  # between measured and predicted factor a call


def verify(run: Run) -> Result:
    """Rates over periodic graphs, the absence of a floor, safe and unsafe steps."""
    rows: list[Row] = []
    lines = []
    for label, net in list(repeating(run).items())[: run.pick(None, 2)]:
        rows += rate_rows(label, net, run)
        more, line = safe_rows(label, net, run)
        rows += more
        lines.append(line)
    rows += [*floor_rows(run), *model_rows()]
    head = ("network", "safe ηL", "largest stable ηL", "rate at the safe step")
    return Result(
        rows, tables=[Table("η = (1 − τ) min(ω, 1 − τ)/L against the largest stable step, S = 1", head, lines)]
    )


def repeating(run: Run) -> dict[str, hgp.networks.Network]:
    """Networks with a period."""
    rng = run.rng(51)
    ring = {f"ring of {n}": hgp.networks.Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n) for n in (3, 10)}
    star = (np.r_[np.zeros(5, int), np.arange(1, 6)], np.r_[np.arange(1, 6), np.zeros(5, int)])
    chain = (np.r_[np.arange(7), np.arange(1, 8)], np.r_[np.arange(1, 8), np.zeros(7, int)])
    weights = rng.random((3, 5, 5)) ** 3 * (rng.random((3, 5, 5)) < 0.5) + np.eye(5)
    return {
        **ring,
        "star of 6": hgp.networks.Schedule([star], n=6),
        "three graphs in turn, n=5": hgp.networks.Schedule(list(weights / weights.sum(axis=1, keepdims=True))),
        "one-peer exponential, n=6": hgp.networks.OnePeerExponential(6),
        "chain of 8 with returns": hgp.networks.Schedule([chain], n=8),  # ω down to a hundredth
    }


def some_case(n: int, run: Run, kind: str = "quadratic") -> Case:
    """A quadratic with n clients, convex or not, with a well-conditioned mean."""
    if kind == "quadratic":
        return quadratic(n, 4, 4, seed=run.seed, condition=5.0)  # J_i hides no direction of w
    rng = run.rng(52, n)
    while True:
        case = random_quadratic("non-convex", n, 4, 3.0, rng, (0, 0, 0))
        if (
            case.J.shape[1] >= 4
            and np.linalg.eigvalsh(case.H).min() < -0.05
            and np.linalg.eigvalsh(case.H.mean(axis=0))[0] > 0.2
        ):
            return case


def rate_rows(label: str, net: hgp.networks.Network, run: Run) -> list[Row]:
    """The slope of the error over the last two thirds of eleven decades against the spectral radius of the period."""
    rows = []
    for kind in ("quadratic", "non-convex"):
        case = some_case(net.n, run, kind)
        L = float(np.abs(np.linalg.eigvalsh(case.H)).max())
        for share in run.pick((0.05, 0.2, 0.9), (0.2,)):  # of the largest stable step; in between modes take turns
            step = share * largest_stable(case.H, net) / L
            rate = hgp.exact.tracking_rate(case.H, net, step)
            M = min(int(np.ceil(np.log(1e-11) / np.log(rate))), 20_000)
            w0 = 10 * run.rng(53).normal(size=case.x.shape)  # every mode has its share
            est = case.estimate(
                hgp.PushSum(net, 1), method=hgp.methods.Tracking(step), iterations=M, history=True, w0=w0
            )
            later = np.arange(M // 3, M)
            slope = np.exp(np.polyfit(later, np.log(case.errors(est)[later]), 1)[0])
            setting = f"{label}, {kind}, ηL={step * L:.3g}: |measured − {rate:.4f}|"
            rows.append(verdict_row("tracking, rate", setting, abs(slope - rate), CLOSE))
    return rows


def largest_stable(H: np.ndarray, net: hgp.networks.Network) -> float:
    """The largest ηL at which the spectral radius is below 1, by bisection."""
    low, high = 1e-4, 4.0
    L = float(np.abs(np.linalg.eigvalsh(H)).max())
    for _ in range(14):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if hgp.exact.tracking_rate(H, net, middle / L) < 1 else (low, middle)
    return low


def safe_rows(label: str, net: hgp.networks.Network, run: Run) -> tuple[list[Row], tuple[str, ...]]:
    """The step that clients find is stable; twice the largest stable one raises DivergenceError."""
    case = some_case(net.n, run)
    L = float(np.linalg.eigvalsh(case.H).max())
    limit = largest_stable(case.H, net)
    mean = hgp.mixing.start_averaging([hgp.PushSum(net, 1)], net.n, case.x, 1)
    safe = float(hgp.methods.tracking.safe_step(mean, case.problem.linearize(case.x, case.lam), case.x))
    rate = hgp.exact.tracking_rate(case.H, net, safe)
    said = 0.0
    try:
        case.estimate(hgp.PushSum(net, 1), method=hgp.methods.Tracking(2 * limit / L), iterations=4000)
    except hgp.DivergenceError:
        said = 1.0
    rows = [
        verdict_row("tracking, safe step", f"{label}: spectral radius at the step that clients find", rate, 1.0),
        verdict_row("tracking, instability", f"{label}: runs at twice the largest stable step returned", 1 - said, 0.0),
    ]
    return rows, (label, f"{safe * L:.4f}", f"{limit:.4f}", f"{rate:.4f}")


def floor_rows(run: Run) -> list[Row]:
    """One step per call: tracking reaches rounding, where C holds; Algorithm 2 stops at a hundredth or worse."""
    rows = []
    cases = {"logistic": logistic(3, 5, seed=run.seed), "non-convex": some_case(5, run, "non-convex")}
    for label, case in cases.items():
        avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=run.seed + 7), 1)
        est = case.estimate(avg, method=hgp.methods.Tracking(), iterations=2000)
        scale = float(np.linalg.norm(case.truth))
        error = float(case.error(est)) / scale
        rows.append(verdict_row("tracking, no floor", f"{label}, S=1: relative error", error, 1e-12))
        bound = hgp.certify(case.problem, case.x, case.lam, est).bound
        rows.append(verdict_row("certify", f"{label}, tracking, S=1", case.client_errors(est).max(), bound.max()))
        if label == "logistic":
            series = float(case.error(case.estimate(avg, eta=1 / case.L, iterations=2000))) / scale
            rows.append(verdict_row("tracking, no floor", "the same of Algorithm 2, at least 1e-2", 1e-2, series))
    return rows


def model_rows() -> list[Row]:
    """The model behind plans and the safe step is stable for all φ and ζ ≤ λ ≤ L where `Tracking` says so."""
    rows = []
    safe = [(tau, (1 - tau) ** 2) for tau in (0.0, 0.3, 0.6, 0.8, 0.95, 0.99)]
    triple = [(tau, 3 * (1 - tau) ** 2) for tau in (0.7, 0.8, 0.9, 0.99)]
    for tau, step in [*safe, *triple, (0.05, 1.0), (0.1, 1.0)]:
        phases = tuple(np.linspace(0, np.pi, 97))
        worst = max(
            float(rates(np.array([step]), lam, lam, share * lam, tau, phases)[0])
            for lam in (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
            for share in (0, 0.25, 0.5, 0.75, 1)
        )
        setting = f"the model at ηL={step:.3g}, τ={tau}: largest |eigenvalue|"
        rows.append(verdict_row("tracking, safe step", setting, worst, 1.0))
    return rows
