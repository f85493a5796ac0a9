"""A lower bound on the rounds of all methods that send linear combinations: D (ln(1/ε)/ln(1/q) − 2).

Two clients at distance D hold the two halves of Nesterov's tridiagonal matrix (docs/theory/messages.md). Methods run
on it over a directed ring. Their errors are compared with the bound after every iteration, and their rounds to 1e-6 are
given in multiples of the bound. In random digraphs it is compared with the best vector that any method can reach.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

import hgp_ref as hgp
from hgp_ref.methods import Chebyshev, ConjugateGradient, Method, PreconditionedTracking, Refined, Tracking
from hgp_ref.mixing import TreeAverage, find_tree
from verification.communication import CHOICES, planned
from verification.rows import verdict_row
from verification.run import Result, Run, Table

TITLE = "A lower bound on rounds"
TARGET = 1e-6
CLIENTS = 6


def verify(run: Run) -> Result:
    """No error is below the bound; by which factor methods and plans exceed it."""
    settings, rng = run.pick(5000, 50), run.rng(74)
    worst = np.array([excess(rng) for _ in range(settings)])
    found = f"{settings} random graphs, κ and R, the best vector a client can hold: violations"
    rows = [verdict_row("lower bound", f"{found} (largest excess {worst.max():.2g})", int(np.sum(worst > 0)), 0.0)]
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
    A = hard_hessians(n, condition, d, 0, n // 2)
    target = np.zeros((n, d))
    target[0, 0] = 1.0  # ∂_x f = x − target, and x = 0
    problem = hgp.problems.Quadratic(A, np.zeros((n, d)), np.broadcast_to(np.eye(d), (n, d, d)).copy(), target)
    return (problem, np.zeros((n, d)), np.zeros((n, d))), q


def hard_hessians(n: int, condition: float, d: int, a: int, b: int) -> np.ndarray:
    """H_i (n, d, d) with the spectrum of the mean in [1/κ, 1]; clients a and b hold the blocks in turn."""
    q = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
    halves = np.zeros((2, d, d))
    halves[0, 0, 0] = 1.0  # e₁e₁ᵀ and (e_k − e_{k+1})(e_k − e_{k+1})ᵀ for even k at a, for odd k at b
    for k in range(1, d):
        halves[k % 2, k - 1 : k + 1, k - 1 : k + 1] += [[1, -1], [-1, 1]]
    halves[(d - 1) % 2, -1, -1] += 1 - q  # so that w* is exact in d dimensions
    H = np.broadcast_to(np.eye(d) / condition, (n, d, d)).copy()
    scale = n * (1 - 1 / condition) / 4
    H[a] += scale * halves[0]
    H[b] += scale * halves[1]
    return H


def excess(rng: np.random.Generator) -> float:
    """The bound minus the error of the best vector in the span of what any client can hold, over R = 0, 1, ….

    Over a random static digraph clients send all that they hold, and close it under products with their own Hessian,
    which is what functions of H_i can add.
    """
    n, condition = int(rng.integers(2, 8)), float(10 ** rng.uniform(0.3, 3))
    q = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
    ring, hears = rng.permutation(n), np.eye(n, dtype=bool) | (rng.random((n, n)) < rng.uniform(0, 0.3))
    hears[np.roll(ring, -1), ring] = True
    distance = sum(np.linalg.matrix_power(hears.astype(int), k) == 0 for k in range(n))  # from column to row
    both = np.minimum(distance, distance.T)
    a, b = np.unravel_index(int(np.argmax(both)), both.shape)
    D = int(both[a, b])
    rounds = int(rng.integers(5 * D))
    d = max(2, 1 + rounds // D + math.ceil(math.log(1 - q * q) / (2 * math.log(q))))  # so that the bound holds for them
    H = hard_hessians(n, condition, d, int(a), int(b))
    f_x = np.zeros(d)
    f_x[0] = 1.0
    w_star = np.linalg.solve(H.mean(axis=0), f_x / n)
    held = [closed(f_x[:, None] * (i == a), H[i]) for i in range(n)]
    worst = -np.inf
    for R in range(rounds + 1):
        left = [float(np.linalg.norm(w_star - B @ (B.T @ w_star))) for B in held]
        worst = max(worst, q ** (R / D + 2) - min(left) / float(np.linalg.norm(w_star)))
        held = [closed(np.concatenate([held[j] for j in np.flatnonzero(hears[i])], axis=1), H[i]) for i in range(n)]
    return worst - 1e-9


def closed(vectors: np.ndarray, H: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of these columns and their products with H, H², …"""
    basis = vectors
    for _ in range(3):  # blocks of H have size 2
        basis, sizes, _ = np.linalg.svd(np.concatenate([basis, H @ basis], axis=1), full_matrices=False)
        basis = basis[:, sizes > 1e-9 * sizes.max(initial=1e-300)]
    return basis


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
