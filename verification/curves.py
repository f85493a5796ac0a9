"""Error of HGP and its bounds against the number of iterations, on realised graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import best, contracting_clients, convex_mean, corollary1, residual_bounds
from verification import explicit
from verification.cases import Case, host64, logistic, matrices_of, quadratic
from verification.rows import CORRECTED, Row, verdict_row, without_number
from verification.run import Run

STEPS = (1, 2, 5, 10, 100)
BOUNDS = ("A", "B", "min(A, B)", "C1", "C2", "C3", "Corollary 1")


@dataclass(frozen=True)
class Curve:
    """What was measured at iterations m, (k,): the error and every bound, NaN where one is not applicable."""

    case: Case
    S: int
    eta: float
    m: np.ndarray
    error: np.ndarray
    bounds: dict[str, np.ndarray]
    worst_client: dict[str, np.ndarray]  # min_i bound_i / error_i, NaN where there is no error above rounding
    rounding: float
    why: dict[str, str]  # why a bound is not applicable at the last m

    def ratio(self, name: str) -> np.ndarray:
        """bound / error where the error is above rounding, else NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.error > 10 * self.rounding, self.bounds[name] / self.error, np.nan)


def standard_cases(run: Run) -> list[Case]:
    """Logistic regression and quadratics, three clients and ten."""
    seed = run.seed
    cases = [logistic(3, 5, seed=seed, rate=0.05), quadratic(3, 5, seed=seed)]
    if not run.quick:
        cases += [logistic(10, 5, seed=seed, rate=0.05), quadratic(10, 8, seed=seed)]
    return cases


def marks(M: int, count: int = 24) -> np.ndarray:
    """About `count` iterations from 1 to M, evenly spread on a logarithmic axis."""
    return np.unique(np.round(np.geomspace(1, M, count)).astype(int))


def curve(case: Case, S: int, run: Run, *, net_seed: int = 1, eta: float = 1.0, M: int = 400, count: int = 24) -> Curve:
    """Run HGP on a random digraph and evaluate all bounds at about `count` iterations."""
    avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=1000 * run.seed + net_seed), S)
    est = case.estimate(avg, run.backend, eta=eta, iterations=M, history=True)
    return evaluate(case, S, eta, matrices_of(avg, M), case.errors(est), _client_errors(case, est), marks(M, count))


def _client_errors(case: Case, est: object) -> np.ndarray:
    """‖v_i^(m) − d_i‖, (M, n)."""
    return np.linalg.norm(host64(est.history) - case.truth, axis=-1)  # type: ignore[attr-defined]


def evaluate(
    case: Case, S: int, eta: float, matrices: np.ndarray, errors: np.ndarray, by_client: np.ndarray, m: np.ndarray
) -> Curve:
    """All bounds at the iterations m against the errors of a run, (M,) and (M, n)."""
    c = case.constants(eta, matrices, S)
    w = eta * np.cumsum(explicit.run(case, matrices, eta)[1], axis=0)  # (M, n, d_x)
    bounds = {name: np.full(len(m), np.nan) for name in BOUNDS}
    worst = {name: np.full(len(m), np.nan) for name in BOUNDS if name != "Corollary 1"}
    why = {}
    for k, at in enumerate(map(int, m)):
        a, b = contracting_clients(c, at), convex_mean(c, at)
        here = {"A": a, "B": b, "min(A, B)": best(a, b), "Corollary 1": corollary1(c, at)}
        residual = residual_bounds(case.H, case.J, case.f_x, w[at - 1])
        clients = {name: bound.per_client for name, bound in here.items() if bound.per_client is not None}
        clients |= {"C1": residual.c1, "C2": residual.c2, "C3": residual.c3}
        for name, bound in here.items():
            bounds[name][k] = np.nan if bound.total is None else bound.total
            why[name] = bound.why
        for name, values in clients.items():
            if name.startswith("C"):
                bounds[name][k] = np.linalg.norm(values)
            above = by_client[at - 1] > 10 * c.rounding
            if above.any():
                worst[name][k] = (values[above] / by_client[at - 1][above]).min()
    return Curve(case, S, eta, m, errors[m - 1], bounds, worst, c.rounding, why)


def smallest_ratio(curve: Curve, name: str, label: str | None = None, form: str = CORRECTED) -> list[Row]:
    """A row at the iteration where bound/error is smallest, and one for the worst single client if that is below 1."""
    label = label or name
    setting = f"{curve.case.name}, S={curve.S}, η={curve.eta:g}"
    ratio = curve.ratio(name)
    if np.isnan(curve.bounds[name]).all():
        return [
            without_number(label, f"{setting}, M={curve.m[-1]}", float(curve.error[-1]), curve.why[name], form=form)
        ]
    k = int(np.nanargmin(ratio)) if np.isfinite(ratio).any() else len(curve.m) - 1
    rows = [
        verdict_row(
            label,
            f"{setting}, m={curve.m[k]}",
            curve.error[k],
            curve.bounds[name][k],
            form=form,
            rounding=curve.rounding,
        )
    ]
    clients = curve.worst_client.get(name)
    if clients is not None and np.isfinite(clients).any():
        k = int(np.nanargmin(clients))
        where = f"{setting}, m={curve.m[k]}: error_i/bound_i, worst client"
        rows.append(verdict_row(f"{label} per client", where, 1 / clients[k], 1.0, form=form, rounding=1e-9))
    return rows
