"""Costs and derivatives of the built-in problems in 80 decimal digits, implemented independently from their formulas.

Data, x and λ count as exact. Of the library, only the arrays of the problems are used, none of its evaluation. Arrays
of Decimals are NumPy's with dtype object.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref.backend import to_host
from hgp_ref.problems.losses import SquaredLoss

DIGITS = 80
NEWTON = 40  # steps to the inner solution, at most


@dataclass(frozen=True)
class Exact:
    """All costs and derivatives at one point, as arrays of Decimals with the library's shapes."""

    inner_cost: np.ndarray
    inner_grad: np.ndarray
    outer_cost: np.ndarray
    f_x: np.ndarray
    f_lam: np.ndarray
    H: np.ndarray  # (n, d_x, d_x)
    J: np.ndarray  # (n, d_lam, d_x)

    def hypergradient(self) -> np.ndarray:
        """∂_λ f_i − J_i H̄⁻¹ ḡ, (n, d_lam)."""
        with localcontext(prec=DIGITS):
            w = solve(mean(self.H), mean(self.f_x))
            return self.f_lam - np.stack([J @ w for J in self.J])


def exact(problem: Any, x: Any, lam: Any) -> Exact:
    """The problem at x (n, d_x) and lam (n, d_lam), of floats or of Decimals."""
    with localcontext(prec=DIGITS):
        x, lam = decimals(x), decimals(lam)
        return _quadratic(problem, x, lam) if isinstance(problem, hgp.problems.Quadratic) else _linear(problem, x, lam)


def at_solution(problem: Any, x: Any, lam: Any) -> Exact:
    """The same at the inner solution, by Newton's method from the mean row of x."""
    with localcontext(prec=DIGITS):
        rows = decimals(x)
        row = mean(rows)
        for _ in range(NEWTON):
            point = exact(problem, np.tile(row, (len(rows), 1)), lam)
            step = solve(mean(point.H), mean(point.inner_grad))
            row = row - step
            if max(abs(s) for s in step) < Decimal(10) ** (8 - DIGITS) * (1 + max(abs(v) for v in row)):
                return exact(problem, np.tile(row, (len(rows), 1)), lam)
    raise ArithmeticError("Newton's method did not end")


def decimals(a: Any) -> np.ndarray:
    """The numbers of an array as Decimals, without rounding."""
    host = a if isinstance(a, np.ndarray) and a.dtype == object else to_host(a)
    flat = [v if isinstance(v, Decimal) else Decimal(float(v)) for v in host.ravel()]
    return np.array(flat, dtype=object).reshape(host.shape)


def norms(a: np.ndarray) -> np.ndarray:
    """Euclidean norms of the rows, as floats rounded down by no more than one ulp."""
    with localcontext(prec=DIGITS):
        return np.array([float(sum((v * v for v in row), Decimal(0)).sqrt()) for row in a])


def mean(a: np.ndarray) -> np.ndarray:
    """The mean of the rows."""
    return a.sum(axis=0) / Decimal(len(a))


def solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A⁻¹ b by elimination with pivots."""
    d = len(b)
    M = np.concatenate([A, b[:, None]], axis=1)
    for k in range(d):
        pivot = k + int(np.argmax([abs(v) for v in M[k:, k]]))
        M[[k, pivot]] = M[[pivot, k]]
        M[k] = M[k] / M[k, k]
        for row in range(d):
            if row != k:
                M[row] = M[row] - M[row, k] * M[k]
    return M[:, d]


def _quadratic(p: Any, x: np.ndarray, lam: np.ndarray) -> Exact:
    A, b, C, t = (decimals(a) for a in (p._A, p._b, p._C, p._t))
    n, d = x.shape
    Q = np.stack([_identity(d)] * n) if p._Q is None else decimals(p._Q)
    D = np.zeros_like(C) * Decimal(0) if p._D is None else decimals(p._D)
    mu, half = Decimal(float(p._mu)), Decimal("0.5")
    rows = range(n)
    gap = x - t
    return Exact(
        inner_cost=np.array([half * x[i] @ A[i] @ x[i] - b[i] @ x[i] + lam[i] @ C[i] @ x[i] for i in rows]),
        inner_grad=np.stack([A[i] @ x[i] - b[i] + C[i].T @ lam[i] for i in rows]),
        outer_cost=np.array(
            [half * gap[i] @ Q[i] @ gap[i] + lam[i] @ D[i] @ x[i] + half * mu * (lam[i] @ lam[i]) for i in rows]
        ),
        f_x=np.stack([Q[i] @ gap[i] + D[i].T @ lam[i] for i in rows]),
        f_lam=np.stack([D[i] @ x[i] + mu * lam[i] for i in rows]),
        H=A,
        J=C,
    )


def _linear(p: Any, x: np.ndarray, lam: np.ndarray) -> Exact:
    parts = [_client(p, i, x[i], lam[i]) for i in range(len(x))]
    return Exact(*(np.stack([part[k] for part in parts]) for k in range(7)))


def _client(p: Any, i: int, x: np.ndarray, lam: np.ndarray) -> tuple[Any, ...]:
    zero, one, half = Decimal(0), Decimal(1), Decimal("0.5")
    C, d_x = p._loss.logits, len(x)
    weighs = isinstance(p, hgp.problems.InstanceWeights)
    rate = np.full(d_x, Decimal(p.l2)) if weighs else lam if len(lam) == d_x else np.full(d_x, lam[0])
    inner_cost, inner_grad = half * sum(rate * x * x), rate * x
    H = _identity(d_x) * rate
    J = np.full((len(lam), d_x), zero) if weighs else _identity(d_x) * x if len(lam) == d_x else x[None, :]
    N = int(p._train.counts[i])
    for k in range(N):
        weight = (lam[k] if weighs else one) / N
        value, gradient, hessian = _instance(p._loss, p._train.all, i, k, x, C)
        inner_cost, inner_grad, H = inner_cost + weight * value, inner_grad + weight * gradient, H + weight * hessian
        if weighs:
            J[k] = gradient / N
    outer_cost, f_x, N = zero, np.full(d_x, zero), int(p._val.counts[i])
    for k in range(N):
        value, gradient, _ = _instance(p._loss, p._val.all, i, k, x, C)
        outer_cost, f_x = outer_cost + value / N, f_x + gradient / N
    return inner_cost, inner_grad, outer_cost, f_x, np.full(len(lam), zero), H, J


def _instance(loss: Any, view: Any, i: int, k: int, x: np.ndarray, C: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Loss, gradient and Hessian of one instance: binary as softmax of the logits 0 and a."""
    features, targets = decimals(view.features[i, k]), to_host(view.targets[i, k])
    logits = features @ x.reshape(-1, C)
    if isinstance(loss, SquaredLoss):
        residual = logits[0] - decimals(targets)[0]
        return residual**2 / 2, residual * features, np.outer(features, features)
    if C == 1:
        logits, label = np.array([Decimal(0), logits[0]]), int(targets[0] > 0)
    else:
        label = int(np.argmax(targets))
    top = max(logits)
    e = np.array([(a - top).exp() for a in logits])
    p = e / e.sum()
    off_diagonal = _identity(len(p)) * Decimal(-1) + Decimal(1)  # sums over all other classes: 1 − p would cancel
    slope = p.copy()
    slope[label] = -(off_diagonal[label] @ p)
    curvature = _identity(len(p)) * (p * (off_diagonal @ p)) - off_diagonal * np.outer(p, p)
    odds = sum((logit - logits[label]).exp() for c, logit in enumerate(logits) if c != label)
    value = (1 + odds).ln() if odds > Decimal(10) ** -30 else odds - odds**2 / 2 + odds**3 / 3
    if C == 1:
        slope, curvature = slope[1:], curvature[1:, 1:]
    return value, np.outer(features, slope).ravel(), np.kron(np.outer(features, features), curvature)


def _identity(d: int) -> np.ndarray:
    return np.array([[Decimal(int(i == j)) for j in range(d)] for i in range(d)], dtype=object)
