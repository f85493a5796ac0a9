"""Search for violations with every method: bound F, C1–C4 and `hgp.certify` in random settings over the whole range.

Problems and networks are those of `search`; methods alternate, S is constant, falling or arbitrary, and intervals
and step sizes range from good to bad. A run that the library refuses as diverged is counted, but no violation.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import chebyshev_push_sum
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking
from verification.cases import matrices_of
from verification.random_settings import NETWORKS, Setting, draw
from verification.rows import Row, verdict_row
from verification.run import Result, Run, Table
from verification.search import Closest, closest, finished_run

TITLE = "Search for violations with every method"
METHODS = ("Chebyshev", "Tracking", "Refined Chebyshev", "Refined Neumann", "Refined Tracking", "Neumann")


def verify(run: Run) -> Result:
    """A row for each statement, method and kind of network where bound/error is smallest."""
    count = run.sized(1080, 108, 54)
    statements: dict[str, Closest] = {}
    refused = dict.fromkeys(METHODS, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # disconnected networks and growing series are wanted here
        for index in range(count):
            rng = run.rng(300, index)
            setting = draw(rng, index)
            name = METHODS[(index // len(NETWORKS)) % len(METHODS)]
            try:
                measured = measure(setting, name, rng, run)
            except hgp.DivergenceError:
                refused[name] += 1
                continue
            for statement, error, bound, rounding in measured:
                statements.setdefault(f"{statement} ({name})", Closest()).add(setting, error, bound, rounding)
    return summary(count, statements, refused)


def summary(count: int, statements: dict[str, Closest], refused: dict[str, int]) -> Result:
    """Rows, and a table of the smallest and median ratios."""
    rows: list[Row] = []
    cells = []
    for name, one in sorted(statements.items()):
        for _, error, bound, rounding, description in one.closest.values():
            rows.append(verdict_row(name, description, error, bound, rounding=rounding))
        if one.ratios:
            cells.append((name, str(len(one.ratios)), f"{min(one.ratios):.4f}", f"{np.median(one.ratios):.3g}"))
    facts: dict[str, float] = {"random settings": count}
    facts |= {f"{name}: refused as diverged": refusals for name, refusals in refused.items()}
    title = f"bound/error over {count} random settings, where the error is above rounding"
    return Result(rows, facts=facts, tables=[Table(title, ("statement", "settings", "smallest", "median"), cells)])


def measure(setting: Setting, name: str, rng: np.random.Generator, run: Run) -> list[tuple[str, float, float, float]]:
    """(statement, error, bound, rounding) of one run, at the client (or total) where the bound is tightest."""
    case, M = setting.case, setting.M
    mean = np.linalg.eigvalsh(case.H.mean(axis=0))
    if not mean[0] > 0:
        return []
    steps = schedule(setting.S, M, rng)
    avg = replace_steps(setting.avg, steps)
    method, interval = drawn_method(name, mean, case.H, rng)
    est = case.estimate(avg, run.backend, method=method, iterations=M)
    K = matrices_of(avg, M)
    c = case.constants(setting.eta, K, int(np.max(steps)))
    if not c.alpha_bar > 0:
        return []
    errors = case.client_errors(est)
    measured = finished_run(replace(setting, avg=avg), c, est, errors)
    if name == "Chebyshev":
        bound = chebyshev_push_sum(c, *interval)
        if bound.total is not None:
            rounding = measured[0][3]
            measured.append(("F", *closest(errors, bound.total, bound.per_client), rounding))
    return measured


def schedule(S: int, M: int, rng: np.random.Generator) -> int | tuple[int, ...]:
    """S constant, falling or arbitrary."""
    kind = int(rng.integers(3))
    if kind == 0:
        return S
    return hgp.falling_steps(S, M) if kind == 1 else tuple(rng.integers(1, S + 1, M).tolist())


def replace_steps(avg: hgp.mixing.Averaging, steps: int | tuple[int, ...]) -> hgp.mixing.Averaging:
    """The same kind of averaging with other steps."""
    return hgp.Gossip(avg.net, steps) if isinstance(avg, hgp.Gossip) else hgp.PushSum(avg.net, steps)


def drawn_method(
    name: str, mean: np.ndarray, H: np.ndarray, rng: np.random.Generator
) -> tuple[Method, tuple[float, float]]:
    """A method of that name, and the interval that a Chebyshev iteration uses."""
    low, high = float(mean[0]) * rng.uniform(0.2, 1.0), float(mean[-1]) * rng.uniform(1.0, 2.0)
    largest = float(np.abs(np.linalg.eigvalsh(H)).max())
    eta = float(rng.uniform(0.1, 1.5)) / float(mean[-1])
    tracking = Tracking(float(10 ** rng.uniform(-2, 0.3)) / largest)
    inner = {"Chebyshev": Chebyshev(low, high), "Tracking": tracking}.get(name.split()[-1], Neumann(eta))
    if name.startswith("Refined"):
        return Refined(inner, int(rng.integers(2, 5)), int(rng.integers(1, 60))), (low, high)
    return inner, (low, high)
