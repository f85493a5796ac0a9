"""Lemma 1: x = Θ(x − η∂_x g) exactly where all x_i agree and Σ_k ∂g_k = 0.

(I − Θ)x and Θ∂_x g are orthogonal, so at every x

    ‖x − Θ(x − η∂_x g)‖² = ‖(I − Θ)x‖² + η² ‖Θ∂_x g‖²:

the left side vanishes if and only if both terms on the right do, which is the lemma.
"""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from verification.curves import standard_cases
from verification.rows import Row, verdict_row
from verification.run import Result, Run

TITLE = "Lemma 1: the stationary condition without explicit consensus"
TOLERANCE = 1e-12


def verify(run: Run) -> Result:
    """The identity at random points; the solution is a fixed point; the fixed-point iteration ends at the solution."""
    rows: list[Row] = []
    for k, case in enumerate(standard_cases(run)):
        Theta = hgp.exact.theta(case.n, case.x.shape[1])

        def mapped(x: np.ndarray, case=case, Theta=Theta) -> np.ndarray:
            step = x - case.problem.inner_grad(x, case.lam)
            return (Theta @ step.ravel()).reshape(x.shape)

        x = case.x + run.rng(1, k).normal(size=(200, *case.x.shape))
        gap = max(identity_gap(case, point, mapped(point), Theta) for point in x)
        rows.append(verdict_row("Lemma 1", f"{case.name}: identity at 200 points", gap, TOLERANCE))
        at_solution = float(np.linalg.norm(case.x - mapped(case.x)))
        rows.append(verdict_row("Lemma 1", f"{case.name}: ‖x − φ'(x)‖ at x(λ)", at_solution, TOLERANCE))
        point = x[0]
        for _ in range(3000):
            point = mapped(point)
        away = float(np.linalg.norm(point - case.x))
        rows.append(verdict_row("Lemma 1", f"{case.name}: fixed point against x(λ)", away, 1e-10))
    return Result(rows)


def identity_gap(case: object, x: np.ndarray, mapped: np.ndarray, Theta: np.ndarray) -> float:
    """Relative difference of the two sides of the identity at x, η = 1."""
    G = case.problem.inner_grad(x, case.lam).ravel()  # type: ignore[attr-defined]
    left = np.sum((x - mapped) ** 2)
    right = np.sum((x.ravel() - Theta @ x.ravel()) ** 2) + np.sum((Theta @ G) ** 2)
    return float(abs(left - right) / right)
