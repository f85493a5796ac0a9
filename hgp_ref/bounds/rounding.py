"""What float64 alone may add to ‖v − d‖, where v comes from the iteration and d from a solve.

With u = 2^−52, U_m ≥ ‖u^(m)‖ over all clients, W = η√n Σ_m U_m ≥ ‖w‖ and z_m ≥ how much w changes per unit of u^(m):

    v:  β Σ_m √n U_m [θ_K (η + ρ z_{m+1}) + θ_H z_{m+1}] + Σ_m min(u (‖∂_λ f‖ + 2βW), 2ηβ√n U_m)
        + u [(d_x + 2)√d_x βW + ‖∂_λ f‖]
    d:  u β√n [(8 d_x√d_x + n) ‖H‖ w* + n G∞]/ᾱ + u [(d_x + 2)√d_x β√n w* + ‖∂_λ f‖],      w* = ‖ḡ‖/ᾱ

with θ_K = u S (n + 3) and θ_H = u [2 + (d_x + 2)√d_x η‖H‖].

Derivation. A sum of k terms in floating point is off by at most k u Σ|terms|. One of the S steps of Push-Sum adds up at
most n terms and the weights are positive, so ū is off by at most θ_K times the largest |u_j|, coordinate by coordinate;
(I − ηH_i)ū is off by θ_H ‖ū‖ because ‖|H|‖ ≤ √d ‖H‖. Such an error goes on through the linear iteration: z_m follows
from the recursion of `convex_mean` read backwards (x per unit of consensus, y per unit of disagreement; as in
`contracting_clients` also z_m ≤ η√n Σ_k ρ^k). Adding a term t to a sum w is off by at most min(u|w + t|, |t|), since a
term below half a unit in the last place is dropped whole. d comes from a backward stable solve with H̄, which is a mean
of n matrices. U_m is the smaller of √n ρ^m G∞ and of a + s in `convex_mean`. First order in u throughout.

The products of the problem itself are taken to be as good as those of an explicit matrix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hgp_ref.bounds.recursion import consensus_and_disagreement
from hgp_ref.bounds.scaled import product

if TYPE_CHECKING:
    from hgp_ref.bounds.constants import Constants

UNIT = float(np.finfo(np.float64).eps)


def rounding(c: Constants) -> float:
    """The sum above for all M iterations that `c` knows; ∞ where ᾱ is not positive."""
    if not c.alpha_bar > 0:
        return math.inf
    # In units of f_x, of 1/‖H‖ for w and of β for J nothing leaves the floating-point range.
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
