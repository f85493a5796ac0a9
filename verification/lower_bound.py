"""Rounds that no method can save whose clients send combinations of what they hold: D (ln(1/ε)/ln(1/q) − 2).

Two clients at distance D hold the two halves of Nesterov's tridiagonal matrix (docs/theory/messages.md). Methods are
run on it over a directed ring, their errors are compared with the bound after every iteration, and rounds for 1e-6
are given in multiples of the bound.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

import hgp_ref as hgp
from hgp_ref.methods import Chebyshev, ConjugateGradient, Method, PreconditionedTracking, Refined, Tracking
from hgp_ref.mixing import TreeAverage, find_tree
from verification.communication import CHOICES, planned
from verification.rows import Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "A lower bound on rounds"
TARGET = 1e-6
CLIENTS = 6


def verify(run: Run) -> Result:
    """No error below the bound, and how far methods and plans are above it."""
    rows: list[Row] = []
    lines: list[list[str]] = []
    facts: dict[str, float] = {}
    net = ring(CLIENTS)
    for condition in run.pick((10.0, 100.0), (10.0,)):
        case, q = hard_problem(CLIENTS, condition)
        D = CLIENTS // 2
        least = D * (math.log(1 / TARGET) / math.log(1 / q) - 2)
        for name, errors in trajectories(case, net, condition).items():
            smallest = min(e / q ** (R / D + 2) for R, e in errors if q ** (R / D + 2) > 1e-9)
            rows.append(verdict_row("lower bound", f"κ={condition:g}, {name}: q^(R/D+2) over the error, all R",
                                    1 / smallest, 1.0))  # fmt: skip
        for choice, methods in CHOICES.items():
            plan, out = planned(*case[:3], net, methods)
            taken = out.traffic.rounds / least
            facts[f"κ={condition:g}, {choice}: rounds over the bound"] = taken
            lines.append([f"{condition:g}", choice, type(plan.method).__name__, f"{out.traffic.rounds}", f"{least:.0f}",
                          f"{taken:.2f}"])  # fmt: skip
    head = ("κ", "planner may choose", "method", "rounds until certified", "bound", "multiple")
    title = (
        f"Rounds to {TARGET:g} on a directed ring of {CLIENTS}; DirectSolve sends matrices, which the bound excludes"
    )
    return Result(rows, facts=facts, tables=[Table(title, head, lines)])


def ring(n: int) -> hgp.networks.Network:
    return hgp.networks.Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n)


def hard_problem(n: int, condition: float) -> tuple[tuple[hgp.problems.Quadratic, np.ndarray, np.ndarray], float]:
    """((problem, x, lam), q): w* = (q, q², …, q^d) up to a factor; clients 0 and n/2 hold the blocks in turn.

    J_i = −I and ∂_λ f = 0, so that the hyper-gradient of every client is w.
    """
    q = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
    d = math.ceil(math.log(TARGET) / math.log(q)) + 20
    halves = np.zeros((2, d, d))
    halves[0, 0, 0] = 1.0  # e₁e₁ᵀ and (e_k − e_{k+1})(e_k − e_{k+1})ᵀ for even k at the first, for odd k at the other
    for k in range(1, d):
        halves[k % 2, k - 1 : k + 1, k - 1 : k + 1] += [[1, -1], [-1, 1]]
    halves[(d - 1) % 2 if d > 1 else 0, -1, -1] += 1 - q  # so that w* is exact in d dimensions
    A = np.broadcast_to(np.eye(d) / condition, (n, d, d)).copy()
    scale = n * (1 - 1 / condition) / 4
    A[0] += scale * halves[0]
    A[n // 2] += scale * halves[1]
    target = np.zeros((n, d))
    target[0, 0] = 1.0  # ∂_x f = x − target, and x = 0
    problem = hgp.problems.Quadratic(A, np.zeros((n, d)), np.broadcast_to(np.eye(d), (n, d, d)).copy(), target)
    return (problem, np.zeros((n, d)), np.zeros((n, d))), q


def trajectories(
    case: tuple[hgp.problems.Quadratic, np.ndarray, np.ndarray], net: hgp.networks.Network, condition: float
) -> dict[str, list[tuple[float, float]]]:
    """(rounds, smallest relative error of w over clients) after every iteration of every method."""
    problem, x, lam = case
    truth = hgp.exact.hypergradient(problem, x, lam)
    tree = find_tree(net)
    pushed = hgp.PushSum(net, 8)
    M = 400
    methods: dict[str, tuple[Method, hgp.mixing.Averaging, int, int]] = {
        "tracking": (Tracking(0.05), hgp.PushSum(net, 1), M, 1),
        "preconditioned tracking": (PreconditionedTracking(), pushed, M, 8),
        "refined Chebyshev": (Refined(Chebyshev(1 / condition, 1.0), 4, 8), pushed, M, 8),
        "conjugate gradients": (ConjugateGradient(), TreeAverage(net, tree), M // 2, 2 * (net.n - 1)),
    }
    found = {}
    for name, (method, avg, iterations, rounds) in methods.items():
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            errors: list[tuple[float, float]] = []

            def record(m: int, v: np.ndarray, errors: list[tuple[float, float]] = errors, rounds: int = rounds) -> None:
                size = np.linalg.norm(v - truth, axis=1).min() / np.linalg.norm(truth[0])
                errors.append((m * rounds, float(size)))

            try:
                hgp.hypergradient(problem, x, lam, avg, method, iterations=iterations, callback=record)
            except hgp.DivergenceError:
                pass  # what came before is compared
        found[name] = errors
    return found
