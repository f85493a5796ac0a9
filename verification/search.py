"""Search for violations by sampling: A, B, C1–C4, D, E and 2* in random settings over the whole claimed range."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import (
    Constants,
    contracting_clients,
    convex_mean,
    corollary1_repaired,
    inexact,
    inexact_total,
    mean_square_error,
    minibatch_tail,
    residual_bounds,
    sample_constants,
)
from hgp_ref.bounds.result import UNIT, product
from hgp_ref.rounding import norm, norms
from verification import explicit
from verification.cases import case_at, host64, matrices_of
from verification.inexact import logistic_lipschitz, perturbed, quadratic_lipschitz
from verification.mean_square import forward
from verification.minibatch import simulate
from verification.pictures import draw_search
from verification.random_settings import NETWORKS, Setting, draw
from verification.rows import Row, holds, verdict_row
from verification.run import Result, Run, Table

TITLE = "Search for violations in random settings"
FAILURE, RUNS = 0.1, 60
CERTIFY_EXTREMES = True  # whether `hgp.certify` is judged at conditionings to 1e12 and scales of 1e±150 too
SHOWN = ("A", "B", "C2", "C3", "2*", "D (bernstein)")  # lines of the figure


@dataclass
class Closest:
    """bound/error of one statement over all settings; the rows it was closest in, by network."""

    ratios: list[float] = field(default_factory=list)
    several: list[float] = field(default_factory=list)  # those with n, d ≥ 2, where equality is no matter of course
    closest: dict[str, tuple[float, float, float, float, str]] = field(default_factory=dict)

    def add(self, setting: Setting, error: float, bound: float, rounding: float) -> None:
        """Add a measurement; one at the level of rounding counts only if it violates the bound."""
        if error <= 10 * rounding and holds(error, bound, rounding):
            return
        ratio = (bound + rounding) / error
        self.ratios.append(ratio)
        if min(setting.case.x.shape) > 1:
            self.several.append(ratio)
        network = setting.network
        if network not in self.closest or not ratio >= self.closest[network][0]:
            self.closest[network] = (ratio, error, bound, rounding, setting.description)


def verify(run: Run) -> Result:
    """Many settings; a row for each statement and kind of network where bound/error is smallest."""
    count = run.pick(1200, 90)
    statements: dict[str, Closest] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # disconnected networks and growing series are wanted here
        for index in range(count):
            rng = run.rng(100, index)
            setting = draw(rng, index)
            for name, error, bound, rounding in measure(setting, run, rng):
                statements.setdefault(name, Closest()).add(setting, error, bound, rounding)
    rows: list[Row] = []
    facts: dict[str, float] = {"random settings": count}
    cells: list[list[str]] = []
    for name, one in statements.items():
        for network in NETWORKS:
            if network in one.closest:
                _, error, bound, rounding, description = one.closest[network]
                rows.append(verdict_row(name, description, error, bound, rounding=rounding))
        if one.ratios:
            facts[f"{name}: settings with an error above rounding"] = len(one.ratios)
            facts[f"{name}: smallest ratio"] = min(one.ratios)
            facts[f"{name}: median ratio"] = float(np.median(one.ratios))
            smallest = (min(one.ratios), min(one.several, default=np.nan))
            shown = [f"{x:.4f}" if x < 10 else f"{x:.3g}" for x in smallest]
            cells.append([name, str(len(one.ratios)), *shown, f"{np.median(one.ratios):.3g}"])
    drawn = {name: np.array(one.ratios) for name, one in statements.items() if name in SHOWN}
    head = ("statement", "settings", "smallest", "smallest, n and d ≥ 2", "median")
    title = f"bound/error over {count} random settings, where the error is above rounding"
    return Result(rows, [draw_search(drawn, count)], facts, [Table(title, head, cells)])


def measure(setting: Setting, run: Run, rng: np.random.Generator) -> list[tuple[str, float, float, float]]:
    """(statement, error, bound, rounding) for every applicable bound, at the client (or total) where it is tightest."""
    case, M, eta = setting.case, setting.M, setting.eta
    K = matrices_of(setting.avg, M)
    c = case.constants(eta, K, setting.S)
    est = estimate(setting, K, run)
    errors = case.client_errors(est)
    measured = []
    analytic = (
        ("A", contracting_clients(c)),
        ("B", convex_mean(c)),
        ("Corollary 1, repaired", corollary1_repaired(c)),
    )
    for name, bound in analytic:
        if bound.total is not None:
            measured.append((name, *closest(errors, bound.total, bound.per_client), c.rounding))
    if c.alpha_bar > 0:
        measured += finished_run(setting, c, est, errors)
        measured += inexact_point(setting, K, run, rng)
    if case.name.split()[0] in ("quadratic", "non-convex") and setting.extreme != "condition":
        measured += sampled(setting, K, c, rng)
    return measured


def finished_run(
    setting: Setting, c: Constants, est: hgp.Estimate | Finished, errors: np.ndarray
) -> list[tuple[str, float, float, float]]:
    """C1–C4, the identity behind them and, where applicable, `hgp.certify`.

    The residual ḡ − H̄w is itself off by the rounding of H̄w, 4 (n + d)√d 2^−52 ‖H‖ ‖w‖, which ᾱ and β carry into v.
    """
    case, value, w = setting.case, host64(est.value), host64(est.w)
    work = 4 * sum(w.shape) * np.sqrt(w.shape[1]) * UNIT * max(abs(c.alpha), abs(c.L)) / c.alpha_bar
    rounding = c.rounding + product(work, c.beta_norm, norm(w))
    residual = residual_bounds(case.H, case.J, case.f_x, w)
    measured = []
    for name in ("c1", "c2", "c3", "c4"):
        per_client = getattr(residual, name)
        measured.append((name.upper(), *closest(errors, norm(per_client), per_client), rounding))
    measured.append(("C, identity", float(np.abs(residual.identity - errors).max()), 2 * rounding, 0.0))
    if CERTIFY_EXTREMES or not setting.extreme:
        certificate = hgp.certify(case.problem, case.x, case.lam, Finished(value, w)).bound
        measured.append(("certify", *closest(errors, norm(certificate), certificate), rounding))
    return measured


@dataclass(frozen=True)
class Finished:
    """The fields of an estimate that a certificate needs."""

    value: np.ndarray
    w: np.ndarray


def estimate(setting: Setting, K: np.ndarray, run: Run) -> hgp.Estimate | Finished:
    """v and w of the core, or of the explicit matrices if the core rightly refuses a diverging run."""
    case = setting.case
    try:
        return case.estimate(setting.avg, run.backend, eta=setting.eta, iterations=setting.M)
    except hgp.DivergenceError:
        values, means = explicit.run(case, K, setting.eta)
        return Finished(values[-1], setting.eta * means.sum(axis=0))


def closest(errors: np.ndarray, total: float, per_client: np.ndarray | None) -> tuple[float, float]:
    """(error, bound) with the smallest ratio among all clients together and each alone."""
    pairs = [(norm(errors), total)]
    if per_client is not None:
        pairs += list(zip(errors.tolist(), per_client.tolist(), strict=True))
    return min(pairs, key=lambda pair: pair[1] / max(pair[0], 1e-300))


def inexact_point(
    setting: Setting, K: np.ndarray, run: Run, rng: np.random.Generator
) -> list[tuple[str, float, float, float]]:
    """2* at a point near the solution, where Lipschitz constants are known."""
    case = setting.case
    kind = case.name.split()[0]
    if kind not in ("quadratic", "non-convex", "logistic"):
        return []
    nu = logistic_lipschitz(case) if kind == "logistic" else quadratic_lipschitz(case)
    at_hat = case_at("x̂", case.problem, perturbed(case, 10 ** rng.uniform(-3, 1), rng), case.lam)
    c = at_hat.constants(setting.eta, K)
    base = convex_mean(c)
    if base.total is None:
        return []
    value = explicit.run(at_hat, K, setting.eta)[0][-1]
    at_solution = case.constants(setting.eta, K[:1])
    w_norm = norm(np.linalg.solve(at_hat.H.mean(axis=0), at_hat.f_x.mean(axis=0)))
    apart = np.linalg.norm(at_hat.x - case.x, axis=1)
    total = base.total + inexact_total(
        nu, float(np.linalg.norm(apart)), w_norm, at_solution.beta_max, at_solution.alpha_bar
    )
    per_client = base.per_client + inexact(nu, apart, w_norm, at_solution.beta, at_solution.alpha_bar)
    errors = norms(value - case.truth)
    return [("2*", *closest(errors, total, per_client), c.rounding + at_solution.rounding)]


def sampled(
    setting: Setting, K: np.ndarray, c: Constants, rng: np.random.Generator
) -> list[tuple[str, float, float, float]]:
    """D and E with instances scattered around the quadratic's derivatives; every second setting shares one batch."""
    case, eta = setting.case, setting.eta
    n, d = case.f_x.shape
    if n * d > 40:
        return []
    N, size, shared = int(rng.integers(2, 5)), int(rng.integers(1, 4)), bool(rng.integers(2))
    scatter = 10 ** rng.uniform(-2, 0) * float(np.linalg.eigvalsh(case.H.mean(axis=0))[0])
    H_dev, J_dev = rng.normal(size=(n, N, d, d)), rng.normal(size=(n, N, case.J.shape[1], d))
    H_dev = H_dev + np.swapaxes(H_dev, 2, 3)
    H = case.H[:, None] + scatter * (H_dev - H_dev.mean(axis=1, keepdims=True))
    unit = np.abs(case.J).max() / np.abs(case.H).max() if setting.extreme == "scale" else 1.0
    J = case.J[:, None] + unit * scatter * (J_dev - J_dev.mean(axis=1, keepdims=True))
    s = sample_constants(list(H), list(J), eta)
    errors = np.sort(simulate(H, J, case.f_x, eta, K, size, RUNS, rng, shared=shared))
    measured = []
    for form in ("azuma", "bernstein"):
        bound = minibatch_tail(c, s, size, FAILURE, form=form, shared=shared)
        if bound.total is not None:
            measured.append((f"D ({form})", float(errors[RUNS - 1 - int(FAILURE * RUNS)]), bound.total, c.rounding))
    if setting.extreme == "scale":
        return measured  # squares of v are out of range
    exact = mean_square_error(list(H), list(J), case.f_x, eta, K, size, replace=True, shared=shared).total
    other = forward(case, list(H), list(J), eta, K, [1 / size] * n, shared)
    scale = exact + float(np.sum((case.truth - case.f_lam) ** 2))
    measured.append(("E", abs(exact - other) / scale, 1e-8, 0.0))
    return measured
