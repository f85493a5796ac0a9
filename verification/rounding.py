"""Certificates, plans and certified steps where sums cancel, compared with 80 exact digits.

An allowance for rounding must not be relative to the result of a sum: near an optimum of the outer cost ∂_x f is the
small difference of large terms. Families in which something cancels:

    logistic            validation = training data at L2 rates from 1e-2 to 1e-11: ∂_x f → 0 at the inner solution
    D x, A x − b        quadratic costs whose ∂_λ f, or whose inner gradient, is rounding alone
    offset              targets and b up to 1e9
    one number          n = d = 1, A = 3, b = 1, t = x: ∂_x f is zero as evaluated, and not at x(λ)

in float64 and float32. Certificates are compared with the hyper-gradient formula at the very x and with the
hyper-gradient at the exact inner solution; plans with the truth behind `met`; intervals of certified outer steps with
F(λ) at the exact solution, which no accepted step may raise.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import hgp_ref as hgp
from verification.exact_numbers import at_solution, decimals, exact, norms
from verification.rows import Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Rounding where sums cancel"
RATES = tuple(10.0**-k for k in range(2, 12))
OFFSETS = (1.0, 1e3, 1e6, 1e9)
TARGETS = (1e-8, 1e-10)
STEPS = 4  # outer steps of a certified run


@dataclass
class Tally:
    """The number of claims, and of false ones."""

    claims: int = 0
    false: int = 0
    closest: float = 0.0  # the largest error/bound

    def add(self, errors: np.ndarray, bounds: np.ndarray) -> None:
        """Claims errors ≤ bounds, with nothing added to the bounds."""
        self.claims += len(errors)
        self.false += int(np.sum(~(errors <= bounds)))
        self.closest = max(self.closest, float(np.max(errors / np.maximum(bounds, 5e-324))))


@dataclass
class Tallies:
    """Tallies by kind of claim and family."""

    by: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))

    def rows(self) -> list[Row]:
        """One row per tally: its number of false claims, which must be 0."""
        return [
            verdict_row("rounding", f"{what}, {where}: false of {tally.claims}", float(tally.false), 0.0)
            for (what, where), tally in self.by.items()
        ]


def verify(run: Run) -> Result:
    """Certificates, plans and certified steps of all families."""
    tallies, declined = Tallies(), 0
    for k, (name, problem, x, lam) in enumerate(families(run)):
        declined += certificates(tallies, name, problem, x, lam, run.rng(500, k))
    for k in range(run.pick(20, 4)):
        plans(tallies, run.rng(501, k), TARGETS[k % 2])
    for k in range(run.pick(20, 4)):
        outer_steps(tallies, run.rng(502, k), OFFSETS[k % 4])
    rows = tallies.rows()
    cells = [
        (what, where, str(tally.claims), str(tally.false), f"{tally.closest:.3g}")
        for (what, where), tally in tallies.by.items()
    ]
    table = Table("Claims where sums cancel", ("claim", "family", "claims", "false", "largest error/bound"), cells)
    claims = sum(tally.claims for tally in tallies.by.values())
    return Result(rows, facts={"claims": claims, "refused in words": declined}, tables=[table])


def families(run: Run) -> Iterator[tuple[str, Any, np.ndarray, np.ndarray]]:
    """(name, problem, x, lam); all rows of x are equal."""
    for dtype in ("float64", "float32"):
        for k, rate in enumerate(RATES[:: run.pick(1, 3)] if dtype == "float64" else RATES[:4]):
            for repeat in range(run.pick(2, 1)):
                yield (f"logistic {dtype}", *trained_logistic(run.rng(510, k, repeat), rate, dtype))
        for repeat in range(run.pick(12, 2)):
            rng = run.rng(511, repeat)
            yield (f"D x {dtype}", *cancelling_coupling(rng, dtype))
            yield (f"A x − b {dtype}", *random_quadratic(rng, 1.0, dtype, target="near x"))
            for offset in OFFSETS[1:]:
                where = ("at x", "near x", "apart")[repeat % 3]
                yield (f"offset {dtype}", *random_quadratic(rng, offset, dtype, target=where))
        yield (f"one number {dtype}", *one_number(dtype))


def trained_logistic(rng: np.random.Generator, rate: float, dtype: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """Equal clients whose validation data are the training data, at the rounded inner solution."""
    n, N, d = int(rng.integers(1, 3)), int(rng.integers(8, 25)), int(rng.integers(1, 4))
    X, y = (np.tile(a, (n, *np.ones(a.ndim, int))) for a in (rng.normal(size=(N, d)), rng.integers(0, 2, N) * 1.0))
    problem = hgp.problems.LogisticRegression(*(a.astype(dtype) for a in (X, y, X, y)))
    lam = (rate * np.tile(rng.uniform(0.5, 1.5, d), (n, 1))).astype(dtype)
    wide = hgp.problems.LogisticRegression(*(a.astype(dtype).astype(float) for a in (X, y, X, y)))
    x = hgp.exact.inner_solution(wide, lam.astype(float))
    return problem, x.astype(dtype), lam


def random_quadratic(
    rng: np.random.Generator, offset: float, dtype: str, *, target: str
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Quadratic costs with b of the size of `offset`; the outer cost is least "at x", "near x", or "apart" from it."""
    n, d, k = int(rng.integers(1, 4)), int(rng.integers(1, 5)), 2
    A = rng.normal(size=(n, d, d))
    A = (A @ np.swapaxes(A, 1, 2) + 0.1 * np.eye(d)).astype(dtype)
    A = (A + np.swapaxes(A, 1, 2)) / 2
    b = (offset * (1 + 1e-6 * rng.normal(size=(n, d)))).astype(dtype)
    C, lam = rng.normal(size=(n, k, d)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)
    x = inner_solution(A, b, C, lam).astype(dtype)
    apart = {"at x": 0.0, "near x": 1.0, "apart": offset}[target]
    t = (x + apart * rng.normal(size=(n, d))).astype(dtype)
    return hgp.problems.Quadratic(A, b, C, t), x, lam


def cancelling_coupling(rng: np.random.Generator, dtype: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """∂_λ f = D x with rows of D orthogonal to x, up to rounding; ∂_x f small beside it."""
    problem, x, lam = random_quadratic(rng, 1.0, dtype, target="apart")
    n, d = x.shape
    D = 1e3 * rng.normal(size=(n, 2, d))
    wide = x.astype(float)
    D = D - (D @ wide[..., None]) * wide[:, None, :] / np.sum(wide**2, axis=-1)[:, None, None]
    Q = 1e-6 * np.tile(np.eye(d), (n, 1, 1))
    parts = (problem._A, problem._b, 1e-3 * problem._C, problem._t)
    A, b, C, t, Q, D = (np.asarray(a).astype(dtype) for a in (*parts, Q, D))
    return hgp.problems.Quadratic(A, b, C, t, outer_hessian=Q, coupling=D), x, np.zeros_like(lam)


def one_number(dtype: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """n = d = 1, A = 3, b = 1, t = x = 1/3."""
    one = np.ones((1, 1, 1), dtype)
    x = one[0] / 3
    return hgp.problems.Quadratic(3 * one, one[0], one, x), x, np.zeros((1, 1), dtype)


def inner_solution(A: np.ndarray, b: np.ndarray, C: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The inner solution of quadratic costs in float64, the same row for all clients."""
    A, b, C, lam = (a.astype(float) for a in (A, b, C, lam))
    row = np.linalg.solve(A.mean(axis=0), (b - np.einsum("nkd,nk->nd", C, lam)).mean(axis=0))
    return np.tile(row, (len(A), 1))


def certificates(
    tallies: Tallies, name: str, problem: Any, x: np.ndarray, lam: np.ndarray, rng: np.random.Generator
) -> int:
    """Certify runs that ended at w* up to rounding, or near it; returns how many raised ValueError."""
    n, here, solution = len(x), exact(problem, x, lam), at_solution(problem, x, lam)
    H, f_x = (np.mean(np.array(a, dtype=float), axis=0) for a in (here.H, here.f_x))
    w_star = np.linalg.solve(H, f_x)
    truth, at_x = solution.hypergradient(), here.hypergradient()
    refused = 0
    for off in (0.0, 1e-3):
        w = np.tile(w_star * (1 + off * rng.normal(size=w_star.shape)), (n, 1)).astype(x.dtype)
        value = problem.outer_grad(x, lam)[1] - problem.linearize(x, lam).cross(w)
        est = SimpleNamespace(value=value, w=w)
        errors_at_x, errors = norms(decimals(value) - at_x), norms(decimals(value) - truth)
        avg = hgp.PushSum(hgp.networks.RandomDirected(n, seed=n), 6) if off and n > 1 else hgp.ExactAverage(n)
        for options in ({}, {"matrix_free": True, "strong_convexity": modulus(here.H)}):
            try:
                found = hgp.certify(problem, x, lam, est, avg, first_call=0, **options)
            except ValueError:  # the mean Hessian cannot be distinguished from a singular one
                refused += 1
                continue
            form = "matrix-free" if options else "dense"
            tallies.by[f"certificate, {form}", name].add(errors_at_x, found.centralised)
            tallies.by[f"certificate by clients, {form}", name].add(errors_at_x, found.decentralised)
            if found.inexact is not None:
                tallies.by[f"certificate at x(λ), {form}", name].add(errors, found.bound)
            if found.decentralised_inexact is not None:
                tallies.by[f"the same by clients, {form}", name].add(errors, found.decentralised_bound)
    return refused


def modulus(H: np.ndarray) -> float:
    """A lower bound on λ_min of the mean of Hessians, of Decimals."""
    mean = np.mean(np.array(H, dtype=float), axis=0)
    return float(np.linalg.eigvalsh(mean)[0]) * 0.99


def plans(tallies: Tallies, rng: np.random.Generator, target: float) -> None:
    """`plan(...).run().met` at an outer optimum, where d is small beside its terms."""
    kind = int(rng.integers(3))
    if kind == 0:
        problem, x, lam = trained_logistic(rng, float(10 ** rng.uniform(-8, -2)), "float64")
    elif kind == 1:
        problem, x, lam = random_quadratic(rng, float(10 ** rng.uniform(0, 6)), "float64", target="near x")
    else:
        problem, x, lam = cancelling_coupling(rng, "float64")
    net = hgp.networks.FullyConnected(len(x)) if len(x) > 1 else hgp.networks.SelfLoops(1)
    true = exact(problem, x, lam).hypergradient()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            out = hgp.plan(problem, x, lam, net, target=target).run()
        except (ValueError, hgp.DivergenceError):
            return
    if out.met:
        error, scale = (norms(a.reshape(1, -1)) for a in (decimals(out.value) - true, true))
        tallies.by["plan met", f"target {target:g}"].add(error, target * scale)
    else:
        tallies.by["plan not met", f"target {target:g}"].add(np.zeros(1), np.ones(1))


def outer_steps(tallies: Tallies, rng: np.random.Generator, offset: float) -> None:
    """Accepted steps of the certified loop: F at the exact inner solution falls, and lies in its intervals."""
    problem, x, lam = random_quadratic(rng, offset, "float64", target=("near x", "apart")[int(rng.integers(2))])
    net = hgp.networks.FullyConnected(len(x)) if len(x) > 1 else hgp.networks.SelfLoops(1)

    def train(problem: Any, lam: np.ndarray, net: Any, **options: Any) -> Any:
        given = problem.wrapped if hasattr(problem, "wrapped") else problem
        return SimpleNamespace(x=inner_solution(given._A, given._b, given._C, lam), traffic=hgp.Traffic())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = hgp.bilevel.optimise(
            problem,
            lam,
            net,
            outer_steps=STEPS,
            train=train,
            estimate=hgp.bilevel.Estimator(1, 60, eta=1.0),
            update=hgp.bilevel.CertifiedDescent(1.0),
        )
    F = [sum(at_solution(problem, x, one).outer_cost) for one in path.lam]
    where = f"b up to {offset:g}"
    for k, step in enumerate(path.steps):
        low, high = (decimals(np.array([end]))[0] for end in step.interval)
        inside = low <= F[k + 1] <= high
        tallies.by["certified step lowers F", where].add(np.array([0.0 if F[k + 1] < F[k] else 2.0]), np.ones(1))
        tallies.by["interval holds F", where].add(np.array([0.0 if inside else 2.0]), np.ones(1))
