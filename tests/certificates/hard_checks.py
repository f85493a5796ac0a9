"""Certificates where arithmetic is at its worst, judged by exact rational numbers.

Quadratic problems with H = QΛQᵀ up to κ = 1e12, ∂f or w − w* along the weakest eigenvector of H̄ (there C1 and C2 are
attained, so that any rounding on the wrong side shows), at scales from 1e-150 to 1e150. The truth is
∂_λ f_i − C_i w* by rational elimination, the judged error that of the exact numbers which the estimate holds.
"""

from __future__ import annotations

import importlib
from fractions import Fraction
from functools import cache

import numpy as np

import hgp_ref as hgp
from hgp_ref.problems import as_problem

from .certificate_checks import estimate_of, value_of


def rational(a):
    """The array with its numbers as fractions, exactly."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(a, dtype=np.float64))


def solve(A, b):
    """A⁻¹ b in rational arithmetic."""
    A, b = A.copy(), b.copy()
    for k in range(len(b)):
        p = next(i for i in range(k, len(b)) if A[i, k] != 0)
        A[[k, p]], b[[k, p]] = A[[p, k]], b[[p, k]]
        for i in range(k + 1, len(b)):
            factor = A[i, k] / A[k, k]
            A[i, k:] -= factor * A[k, k:]
            b[i] -= factor * b[k]
    x = b.copy()
    for k in reversed(range(len(b))):
        x[k] = (b[k] - sum(A[k, k + 1 :] * x[k + 1 :], start=Fraction(0))) / A[k, k]
    return x


def exact_errors(problem, x, lam, value):
    """‖v_i − d_i‖², (n,) fractions, for a Quadratic whose gradients are exact at x = 0, λ = 0."""
    A, C = rational(problem._A), rational(problem._C)
    f_x = rational(problem.outer_grad(x, lam)[0])
    f_lam = rational(problem.outer_grad(x, lam)[1])
    w_star = solve(A.sum(axis=0), f_x.sum(axis=0))
    miss = rational(value) - (f_lam - np.array([c @ w_star for c in C]))
    return np.array([sum(row * row) for row in miss], dtype=object)


def covered(errors, bound):
    """Largest error²/bound² as a float, by fractions."""
    return max(float(e / Fraction(float(b)) ** 2) if b > 0 else (0.0 if e == 0 else np.inf)
               for e, b in zip(errors, bound, strict=True))  # fmt: skip


def aligned(seed, *, n, d, kappa, scale_H, scale_J, scale_f, dtype="float64"):
    """(problem, x, lam, w) with w off along the weakest eigenvector of the mean Hessian."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    H = (Q * np.geomspace(1 / kappa, 1, d)) @ Q.T
    shifts = rng.normal(size=(n, d, d)) * (0.3 if seed % 2 else 0.0)
    shifts = shifts + np.swapaxes(shifts, 1, 2)
    A = H + shifts - shifts.mean(axis=0)
    A = (A + np.swapaxes(A, 1, 2)) / 2 * scale_H
    weak = Q[:, 0]
    C = rng.normal(size=(n, 1, d)) if seed % 3 else np.tile(weak, (n, 1, 1))
    t = (np.tile(weak, (n, 1)) if seed % 4 == 2 else rng.normal(size=(n, d))) * scale_f
    cast = [a.astype(dtype) for a in (A, np.zeros((n, d)), C * scale_J, t)]
    problem = hgp.problems.Quadratic(*cast)
    x, lam = np.zeros((n, d), dtype=dtype), np.zeros((n, 1), dtype=dtype)
    H_bar = cast[0].astype(np.float64).mean(axis=0)
    f_x = problem.outer_grad(x, lam)[0].astype(np.float64)
    w_star = np.linalg.solve(H_bar, f_x.mean(axis=0))
    off = 10.0 ** rng.uniform(-3, 1) if seed % 4 != 1 else 0.0
    w = w_star + off * np.abs(w_star).max() * weak
    if not off:  # converged: of all w within a few roundings of w*, the one whose computed residual says the least
        near = w_star * (1 + np.finfo(dtype).eps * rng.integers(-40, 41, size=(2000, d)))
        w = near[np.argmin(np.abs(f_x.mean(axis=0) - near @ H_bar).max(axis=1))]
    if seed % 4 == 2:  # nothing done yet, and all of ∂f along the weakest vector: the error is that of ᾱ alone
        w = np.zeros(d)
    return problem, x, lam, np.tile(w, (n, 1)).astype(dtype)


SCALES = [(1.0, 1.0, 1.0), (1e150, 1.0, 1e150), (1e-150, 1e-150, 1e-150), (1.0, 1e-150, 1.0), (1e100, 1e150, 1e150),
          (1e-150, 1.0, 1e-150)]  # fmt: skip


@cache
def hard_cases():
    """(problem, x, lam, v, w, errors²) over conditions and scales."""
    cases = []
    for seed in range(60):
        kappa = 10.0 ** (2 * (seed % 7))
        H, J, f = SCALES[seed % 6]
        problem, x, lam, w = aligned(seed, n=1 + seed % 4, d=1 + seed % 5, kappa=kappa, scale_H=H, scale_J=J, scale_f=f)
        value = value_of(problem, x, lam, w)
        cases.append((problem, x, lam, value, w, exact_errors(problem, x, lam, value)))
    return cases


def check_hard(b):
    """No bound is below the error, however badly conditioned or scaled, and none is zero where the error is not."""
    tight = []
    for problem, x, lam, value, w, errors in hard_cases():
        certificate = b.certify(problem, x, lam, estimate_of(value, w))
        assert np.all(np.isfinite(certificate.bound))
        ratio = covered(errors, certificate.centralised)
        assert ratio <= 1, ratio
        tight.append(ratio)
    assert np.median(tight) > 0.2, "allowances must not drown the bound"


def positive_definite(A):
    """Whether all pivots of the rational matrix A are positive."""
    A = A.copy()
    for k in range(len(A)):
        if not A[k, k] > 0:
            return False
        A[k + 1 :, k:] -= np.outer(A[k + 1 :, k] / A[k, k], A[k, k:])
    return True


def check_constants_are_on_the_safe_side(b):
    """ᾱ ≤ λ_min(H̄), β_i ≥ ‖J_i‖ and ‖J_i H̄⁻¹‖ from above, of the exact matrices, and not by much."""
    point_of = importlib.import_module(f"{b.__name__}.point").DensePoint
    for problem, x, lam, *_ in hard_cases():
        point, n = point_of(as_problem(problem), x, lam), problem.n_clients
        point.compute_means()
        H, C = rational(problem._A).sum(axis=0) / n, rational(problem._C)
        identity = rational(np.eye(problem.dim_x))
        assert positive_definite(H - Fraction(point.alpha_bar) * identity)
        assert not positive_definite(H - Fraction(point.alpha_top) * identity)
        assert point.alpha_bar > 0.9 * point.alpha_top
        for i in range(n):
            row, through = C[i, 0], solve(H, C[i, 0])
            assert sum(row * row) <= Fraction(point.beta[i]) ** 2
            assert sum(through * through) <= Fraction(point.beta_inverse[i]) ** 2
            assert float(sum(through * through) / Fraction(point.beta_inverse[i]) ** 2) > 0.8


HARD_CHECKS = [check_hard, check_constants_are_on_the_safe_side]
