"""The result of every bound: a number if the conditions of its statement hold, else the condition that failed.

Conditions on the constants, by the letter of the bound (conditions on other arguments are with the bounds):

                                        A   B   D   F
    ᾱ > 0                               ×   ×   ×   ×
    K_m 1 = 1 (weights are reset)       ×   ×   ×   ×
    K_m ≥ 0                             ×       ×

Below: scales and products without overflow, the recursion of bound B, and what rounding adds to an error.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hgp_ref import validation
from hgp_ref.rounding import norm

if TYPE_CHECKING:
    from hgp_ref.bounds.constants import Constants

UNIT = float(np.finfo(np.float64).eps)  # 2^−52


@dataclass(frozen=True)
class Bound:
    """A bound on the error of v^(M), or the reason why there is none.

    Attributes
    ----------
    name : of the statement.
    total : a bound on ‖v − d‖ over all clients together; None if not applicable.
    per_client : bounds on ‖v_i − d_i‖, (n,); None if not applicable or if the statement has no such form.
    applicable : whether every condition of the statement holds.
    why : the failed condition, with its numbers; empty if applicable.
    terms : the parts of `total` by name.
    """

    name: str
    total: float | None
    per_client: np.ndarray | None = None
    applicable: bool = True
    why: str = ""
    terms: dict[str, float] = field(default_factory=dict)


def not_applicable(name: str, why: str) -> Bound:
    """The bound `name` without a number; `why` is the reason."""
    return Bound(name, total=None, applicable=False, why=why)


def first_failure(conditions: dict[str, bool]) -> str | None:
    """The description of the first condition that does not hold; None if all hold."""
    return next((text for text, holds in conditions.items() if not holds), None)


def conditions(c: Constants, letter: str) -> dict[str, bool]:
    """The conditions on the constants for the bound with this letter, with their numbers."""
    needed = {
        f"alpha_bar > 0 (it is {c.alpha_bar:.3g})": c.alpha_bar > 0,
        f"rows of K sum to 1 (off by {c.row_sum_error:.3g})": bool(c.row_sum_error <= 16 * c.n * UNIT),
    }
    if letter in "AD":
        needed[f"K is non-negative (smallest entry {c.smallest_entry:.3g})"] = c.smallest_entry >= 0
    return needed


def probability(failure: float) -> dict[str, bool]:
    """0 < ϵ < 1, for bounds that may fail."""
    return {f"0 < failure < 1 (it is {failure:.3g})": 0 < failure < 1}


def finite(bound: Bound) -> Bound:
    """`bound`, or "not applicable" if one of its numbers is not finite."""
    numbers = [bound.total if bound.total is not None else 0.0, *bound.terms.values()]
    rows = np.zeros(0) if bound.per_client is None else bound.per_client
    if np.isfinite(numbers).all() and np.isfinite(rows).all():
        return bound
    return not_applicable(bound.name, "the bound grows beyond floating point with the iterations or the scales")


def best(*bounds: Bound) -> Bound:
    """The smallest of several bounds on the same error, client by client; not applicable if none of them is.

    Examples
    --------
    >>> half = np.full((2, 1, 1), 0.5)
    >>> c = hgp.bounds.realised_constants(half, half, np.ones((2, 1)), 1.0, [np.full((2, 2), 0.5)] * 20)
    >>> A, B = hgp.bounds.contracting_clients(c), hgp.bounds.convex_mean(c)
    >>> bool(hgp.bounds.best(A, B).total == min(A.total, B.total))
    True
    """
    if not bounds:
        raise TypeError("bounds must contain at least one Bound, got none")
    for bound in bounds:
        validation.instance("bounds", bound, Bound)
    usable = [b for b in bounds if b.total is not None]
    name = f"min({', '.join(b.name for b in bounds)})"
    if not usable:
        return not_applicable(name, "; ".join(f"{b.name}: {b.why}" for b in bounds))
    rows = [b.per_client for b in usable if b.per_client is not None]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"bounds must be on the same clients, got {[len(row) for row in rows]} clients")
    per_client = np.min(rows, axis=0) if rows else None
    totals = [b.total for b in usable if b.total is not None]
    if per_client is not None:
        totals.append(norm(per_client))
    return Bound(name, min(totals), per_client)


# --------------------------------------------------------------------------------- products without overflow on the way
#
#     s = 2^k next to the largest entry of a: a/s is exact, and its squares neither overflow nor underflow;
#     x y z … = (product of mantissas) · 2^(sum of exponents): only the result can overflow or underflow.
#
# A positive product below the smallest normal number is rounded up to it, so that an upper bound stays one; a product
# beyond the largest number is infinite.


def power_of_two(a: np.ndarray) -> float:
    """2^k with max|a|/2^k in [1/2, 1); 1 if `a` is zero."""
    largest = float(np.abs(a).max())
    return 1.0 if largest == 0 else math.ldexp(1.0, min(max(math.frexp(largest)[1], -1021), 1023))


def product(*factors: float) -> float:
    """The product of non-negative factors, rounded up to the smallest normal number if it is positive; NaN stays."""
    if any(math.isnan(x) for x in factors):
        return math.nan
    if any(x == 0 for x in factors):
        return 0.0
    if any(math.isinf(x) for x in factors):
        return math.inf
    mantissa, exponent = 1.0, 0
    for x in factors:
        m, e = math.frexp(mantissa * x) if 1e-3 < x < 1e3 else _split(mantissa, x)
        mantissa, exponent = m, exponent + e
    try:
        return max(math.ldexp(mantissa, exponent), sys.float_info.min)
    except OverflowError:
        return math.inf


def _split(mantissa: float, x: float) -> tuple[float, int]:
    """mantissa · x as (m, e)."""
    m, e = math.frexp(x)
    m, more = math.frexp(mantissa * m)
    return m, e + more


# --------------------------------------------------------------------------------------------- the recursion of bound B
#
#     (a, s) ← (ρ̄ (a + ε∥_j s) + ηζ ε⊥_j s,  ηζ (a + ε∥_j s) + ρ⊥ ε⊥_j s),      a = a₀, s = s₀.
#
# a ≥ ‖Θu^(j)‖ and s ≥ ‖(I − Θ)u^(j)‖ before call j; `series` has the proof.


def consensus_and_disagreement(c: Constants, M: int, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """a and s before the calls 0 … M−1, (M,) each, in units of `unit` > 0."""
    a, s = c.a0 / unit, c.s0 / unit
    consensus, disagreement = np.empty(M), np.empty(M)
    coupling = c.eta * c.zeta
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(M):
            consensus[j], disagreement[j] = a, s
            along, across = a + c.eps_par[j] * s, c.eps_perp[j] * s
            a, s = c.rho_bar * along + coupling * across, coupling * along + c.rho_perp * across
    return consensus, disagreement


# ------------------------------------------------------------------------------------------------------------- rounding
#
# A bound on what float64 adds to ‖v − d‖, where v comes from the iteration and d from a linear solve. With u = 2^−52,
# U_m ≥ ‖u^(m)‖ over all clients, W = η√n Σ_m U_m ≥ ‖w‖ and z_m ≥ how much w changes per unit of u^(m):
#
#     v:  β Σ_m √n U_m [θ_K (η + ρ z_{m+1}) + θ_H z_{m+1}] + Σ_m min(u (‖∂_λ f‖ + 2βW), 2ηβ√n U_m)
#         + u [(d_x + 2)√d_x βW + ‖∂_λ f‖]
#     d:  u β√n [(8 d_x√d_x + n) ‖H‖ w* + n G∞]/ᾱ + u [(d_x + 2)√d_x β√n w* + ‖∂_λ f‖],      w* = ‖ḡ‖/ᾱ
#
# with θ_K = u S (n + 3) and θ_H = u [2 + (d_x + 2)√d_x η‖H‖].
#
# Derivation. The floating-point sum of k terms has an error of at most k u Σ|terms|. Each of the S steps of Push-Sum
# adds at most n terms, and the weights are positive, so the error of ū is at most θ_K times the largest |u_j|,
# coordinate by coordinate. The error of (I − ηH_i)ū is at most θ_H ‖ū‖, because ‖|H|‖ ≤ √d ‖H‖. Such an error then
# passes through the linear iteration: z_m follows from the recursion of `convex_mean` read backwards (x per unit of
# consensus, y per unit of disagreement), and z_m ≤ η√n Σ_k ρ^k as in `contracting_clients`. Adding a term t to a sum w
# rounds by at most min(u|w + t|, |t|), because a term below half a unit in the last place is dropped entirely. d comes
# from a backward stable solve with H̄, a mean of n matrices. U_m is the smaller of √n ρ^m G∞ and of a + s in
# `convex_mean`. Everything is first order in u.
#
# Products of the problem are assumed to be as accurate as those of an explicit matrix.


def rounding(c: Constants) -> float:
    """The sum above for all M iterations in `c`; ∞ if ᾱ is not positive."""
    if not c.alpha_bar > 0:
        return math.inf
    # Units are f_x, 1/‖H‖ for w and β for J, so that nothing overflows.
    size, H, beta = max(c.a0, c.s0, c.G_inf), max(abs(c.alpha), abs(c.L)), c.beta_max
    if size == 0 or beta == 0:
        return 4 * UNIT * c.f_lam
    step, root_n, inner = c.eta * H, math.sqrt(c.n), (c.d_x + 2) * math.sqrt(c.d_x)
    with np.errstate(over="ignore", invalid="ignore"):
        u = np.minimum(root_n * c.G_inf / size * c.rho ** np.arange(c.iterations), _sizes(c, size))  # U_m, (M,)
        after = _responses(c, step)[1:]  # ‖H‖ z_{m+1}, (M,)
        averaging, products = UNIT * c.steps * (c.n + 3), UNIT * (2 + inner * step)
        passed = float(np.sum(root_n * u * (averaging * (step + c.rho * after) + products * after)))
        w = step * root_n * float(np.sum(u))
        f_lam = c.f_lam / beta * (H / size)
        summed = float(np.sum(np.minimum(UNIT * (f_lam + 2 * w), 2 * step * root_n * u)))
        w_star = c.g_bar / size * (H / c.alpha_bar)
        solved = root_n * (H / c.alpha_bar) * ((8 * c.d_x * math.sqrt(c.d_x) + c.n) * w_star + c.n * c.G_inf / size)
        rest = UNIT * (solved + inner * (w + root_n * w_star))
        total = float(passed + summed + rest)
    return math.inf if math.isnan(total) else product(total, beta, size, 1 / H) + 2 * UNIT * c.f_lam


def _sizes(c: Constants, unit: float) -> np.ndarray:
    """a + s before each call in the recursion of `convex_mean`, in units of `unit`, (M,)."""
    return np.nan_to_num(sum(consensus_and_disagreement(c, c.iterations, unit)), nan=np.inf)


def _responses(c: Constants, step: float) -> np.ndarray:
    """z_0 … z_M in units of 1/‖H‖, (M + 1,): z_M = 0, x_m = η + ρ̄ x_{m+1} + ηζ y_{m+1} and y_m = ε∥ x_m + ε⊥ (…)."""
    coupling, M = c.eta * c.zeta, c.iterations
    x = y = 0.0
    both, chain = np.zeros(M + 1), np.zeros(M + 1)
    for m in range(M - 1, -1, -1):
        consensus = step + c.rho_bar * x + coupling * y
        y = c.eps_par[m] * consensus + c.eps_perp[m] * (step + coupling * x + c.rho_perp * y)
        x = consensus
        both[m], chain[m] = x + y, math.sqrt(c.n) * step + c.rho * chain[m + 1]
    return np.fmin(both, chain)
