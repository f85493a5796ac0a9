"""Search for violations by optimisation: problems and matrices are varied to make bound/error small.

Nelder–Mead from the best of many random starts, on the logarithm of bound/error after a few iterations with two or
three clients: Hessians (eigenvalues and rotations), Jacobians, gradients, averaging matrices and η are all free.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

import hgp_ref as hgp
from hgp_ref.bounds import (
    Lipschitz,
    chebyshev,
    contracting_clients,
    convex_mean,
    corollary1_repaired,
    inexact_total,
    residual_bounds,
)
from hgp_ref.rounding import norm, norms
from verification import explicit
from verification.cases import Case
from verification.rows import Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Search for violations with an optimiser"
Pair = tuple[float, float]  # error, bound
ABOVE_ROUNDING = 1e-4  # errors relative to the hyper-gradient that are looked at


@dataclass(frozen=True)
class Shape:
    """Sizes of the family that is searched."""

    n: int
    d: int
    M: int
    floor: float = 1e-3  # smallest eigenvalue that Hessians are kept above; 1e-12 lets the conditioning grow
    units: tuple[float, float, float] = (1.0, 1.0, 1.0)  # of H, J and ∂_x f

    @property
    def description(self) -> str:
        """The sizes in the table."""
        extreme = f", λ_min > {self.floor:g}" if self.floor < 1e-3 else ""
        scaled = ", H·{:.0e} J·{:.0e} f·{:.0e}".format(*self.units) if self.units != (1.0, 1.0, 1.0) else ""
        return f"optimised, n={self.n}, d={self.d}, M={self.M}{extreme}{scaled}"

    @property
    def parameters(self) -> int:
        """How many numbers describe a member."""
        n, d, M = self.n, self.d, self.M
        return n * d * (d + 1) // 2 + n * d + n * d + M * n * n + 1

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """A random start; the averaging is anything from very inexact to nearly exact."""
        p = rng.normal(size=self.parameters)
        p[-1 - self.M * self.n**2 : -1] *= 10 ** rng.uniform(-4, 0)
        if self.floor < 1e-3:  # factors of unlike size: conditioning up to 1/floor
            p[: self.n * self.d * (self.d + 1) // 2] *= 10 ** rng.uniform(np.log10(self.floor) / 2, 0)
        return p

    def member(self, p: np.ndarray) -> tuple[Case, np.ndarray, float]:
        """Case, K_0 … K_{M−1} and η from unconstrained numbers."""
        n, d, M = self.n, self.d, self.M
        parts = np.split(p, np.cumsum([n * d * (d + 1) // 2, n * d, n * d, M * n * n]))
        lower = np.zeros((n, d, d))
        lower[:, *np.tril_indices(d)] = parts[0].reshape(n, -1)
        H = lower @ np.swapaxes(lower, 1, 2) + self.floor * np.eye(d)
        J, f_x = parts[1].reshape(n, 1, d), parts[2].reshape(n, d)
        W = np.exp(np.clip(parts[3], -20, 20)).reshape(M, n, n)
        W = W / W.sum(axis=1, keepdims=True)  # column-stochastic
        K = W / W.sum(axis=2, keepdims=True)
        eta = 1.9 / (1 + np.exp(-parts[4][0])) / float(np.linalg.eigvalsh(H).max())
        w = np.linalg.solve(H.mean(axis=0), f_x.mean(axis=0))
        zero = np.zeros((n, 1))
        h, j, f = self.units
        H, J, f_x, w, eta = h * H, j * J, f * f_x, f / h * w, eta / h
        return Case("optimised", None, np.zeros((n, d)), zero, H, J, f_x, zero, -(J @ w)), K, eta


ANALYTIC = {"A": contracting_clients, "B": convex_mean, "Corollary 1, repaired": corollary1_repaired}


def pairs(shape: Shape, name: str, p: np.ndarray) -> list[Pair]:
    """(error, bound) of the statement `name` where it applies and the error is well above rounding."""
    case, K, eta = shape.member(p)
    # Below 1e-3 rounding is no longer out of sight: it counts as part of the bound, and errors must stand out of it.
    rounding = case.constants(eta, K).rounding if shape.floor < 1e-3 else 0.0
    if rounding == np.inf:
        return []  # H̄ is not positive definite to rounding
    level = max(ABOVE_ROUNDING * norm(case.truth), 10 * rounding)
    known = all_pairs(shape, name, case, K, eta)
    return [(error, bound + rounding) for error, bound in known if error > level]


def all_pairs(shape: Shape, name: str, case: Case, K: np.ndarray, eta: float) -> list[Pair]:
    """The same for all clients together and for each."""
    if name == "Chebyshev":
        return [chebyshev_pair(shape, case)]
    values, means = explicit.run(case, K, eta)
    errors = norms(values[-1] - case.truth)
    if name in ANALYTIC:
        bound = ANALYTIC[name](case.constants(eta, K))
        if bound.total is None:
            return []
        clients = [] if bound.per_client is None else zip(errors, bound.per_client, strict=True)
        return [(norm(errors), bound.total), *clients]
    residual = residual_bounds(case.H, case.J, case.f_x, eta * means.sum(axis=0))
    return list(zip(errors, getattr(residual, name.lower()), strict=True))


def chebyshev_pair(shape: Shape, case: Case) -> Pair:
    """Chebyshev iteration with exact averaging."""
    eigenvalues = np.linalg.eigvalsh(case.H.mean(axis=0))
    low, high = float(eigenvalues[0]) * (1 - 1e-9), float(eigenvalues[-1]) * (1 + 1e-9)
    d = case.f_x.shape[1]
    H = (case.H + case.H.swapaxes(1, 2)) / 2
    problem = hgp.problems.Quadratic(H, np.zeros((case.n, d)), case.J, -case.f_x)  # ∂_x f = f_x and ∂_λ f = 0 at 0
    at = np.zeros((case.n, d)), np.zeros((case.n, case.J.shape[1]))
    method = hgp.methods.Chebyshev(low, high)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that few iterations do not converge is known here
        est = hgp.hypergradient(problem, *at, hgp.ExactAverage(case.n), method=method, iterations=shape.M)
    w_norm = float(np.linalg.norm(np.linalg.solve(case.H.mean(axis=0), case.f_x.mean(axis=0))))
    beta = np.linalg.norm(case.J, 2, axis=(1, 2))
    bound = chebyshev(beta, w_norm, low, high, shape.M, (float(eigenvalues[0]), float(eigenvalues[-1])))
    return norm(case.f_lam + est.value - case.truth), float(bound.total or 0.0)


def inexact_pairs(p: np.ndarray) -> list[Pair]:
    """2* on two clients in one dimension with derivatives affine in x: Lipschitz constants are the slopes, exactly."""
    h, slope_h, j, slope_j, g, slope_g, q, x = p[:16].reshape(8, 2)
    h = 1 + np.exp(h) + np.abs(slope_h) * np.abs(x)  # positive at x and at 0

    def formula(at: np.ndarray) -> tuple[np.ndarray, float, float]:
        mean_h = float((h + slope_h * at).mean())
        w = float((g + slope_g * at).mean()) / mean_h
        return q * at - (j + slope_j * at) * w, abs(w), mean_h

    (there, w_norm, _), (here, _, alpha) = formula(x), formula(np.zeros(2))
    nu = Lipschitz(*(float(np.abs(a).max()) for a in (q, slope_g, slope_j, slope_h)))
    bound = inexact_total(nu, float(np.linalg.norm(x)), w_norm, float(np.abs(j).max()), alpha)
    error = float(np.linalg.norm(there - here))
    return [(error, bound)] if error > ABOVE_ROUNDING * float(np.linalg.norm(here)) else []


def minimised(
    objective: Callable[[np.ndarray], list[Pair]],
    start: Callable[[np.random.Generator], np.ndarray],
    rng: np.random.Generator,
    run: Run,
) -> Pair:
    """The pair (error, bound) with the smallest ratio that the optimiser found."""
    best: list[Pair] = []

    def ratio(p: np.ndarray) -> float:
        usable = objective(p)
        if not usable:
            return 1e3
        pair = min(usable, key=lambda eb: eb[1] / eb[0])
        if not best or pair[1] / pair[0] < best[0][1] / best[0][0]:
            best[:] = [pair]
        return float(np.log(pair[1] / pair[0]))

    starts = sorted((start(rng) for _ in range(run.pick(60, 10))), key=ratio)
    for first in starts[: run.pick(3, 1)]:
        options = {"maxfev": run.pick(1000, 150), "adaptive": True, "xatol": 1e-10, "fatol": 1e-12}
        minimize(ratio, first, method="Nelder-Mead", options=options)
    return best[0]


def verify(run: Run) -> Result:
    """The smallest ratio of every statement in every family."""
    rows: list[Row] = []
    facts: dict[str, float] = {}
    extreme = Shape(2, 2, 3, floor=1e-12, units=(2.0**498, 2.0**-498, 2.0**498))  # 1e150, 1e-150, 1e150
    shapes = run.pick((Shape(2, 1, 3), Shape(2, 2, 4), Shape(3, 2, 2), extreme), (Shape(2, 2, 3), extreme))
    names = (*ANALYTIC, "C1", "C2", "C3", "C4", "Chebyshev")
    for k, shape in enumerate(shapes):
        for j, name in enumerate(names):
            if name == "Chebyshev" and (shape.d == 1 or shape is extreme):
                continue
            error, bound = minimised(partial(pairs, shape, name), shape.start, run.rng(200, k, j), run)
            rows.append(verdict_row(name, shape.description, error, bound))
            facts[f"{name}: smallest ratio"] = min(facts.get(f"{name}: smallest ratio", np.inf), bound / error)
    error, bound = minimised(inexact_pairs, lambda rng: rng.normal(size=16), run.rng(200, 99), run)
    rows.append(verdict_row("2*", "optimised, n=2, d=1, derivatives affine in x", error, bound))
    facts["2*: smallest ratio"] = bound / error
    cells = [(name.removesuffix(": smallest ratio"), f"{value:.6f}") for name, value in facts.items()]
    return Result(rows, (), facts, [Table("Smallest bound/error reached", ("statement", "ratio"), cells)])
