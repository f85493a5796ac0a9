"""Sums over clients and the outer cost, each between two numbers that clients find by themselves.

Sums. Push-Sum's outputs y_i of any numbers q_i have the mean of the q_i in their convex hull (see
`certificates.decentralised`; over links that delay a box takes the place of y_i), and maxima by flooding are exact, so
that after however few steps

    n min_i y_i ≤ Σ_i q_i ≤ n max_i y_i.

Distance. Flooding gives a box of the x_i with centre c, Push-Sum of ∂g_i(c) a bound G ≥ ‖mean_i ∂g_i(c)‖. Where the
mean inner cost is ᾱ-strongly convex, ‖c − x(λ)‖ ≤ G/ᾱ, hence ‖x_i − x(λ)‖ ≤ e_i = ‖x_i − c‖ + G/ᾱ.

Outer cost. ∂_x f_i is ν_fx-Lipschitz, so that |f_i(x(λ), λ_i) − f_i(x_i, λ_i)| ≤ t_i and

    Σ_i (f_i − t_i) ≤ F(λ) ≤ Σ_i (f_i + t_i),    t_i = ‖∂_x f_i(x_i)‖ e_i + ν_fx e_i²/2,

whose sides clients bound as sums. More steps and better training make the interval smaller, neither is needed for it to
hold. Rounding is on the safe side as in a certificate: costs and gradients are known to what the sizes of their terms
allow (`term_sizes`), which does not shrink where terms cancel. Those of a problem that does not tell the sizes are
taken as accurate to 4 (d_x + 4) eps relative to themselves, and the rounding of its own sums is not included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgp_ref import rigorous
from hgp_ref.backend import Array, from_host, host_dtype, host_float64
from hgp_ref.certificates.allowances import allowances
from hgp_ref.certificates.conversation import Conversation
from hgp_ref.problems.constants import Lipschitz
from hgp_ref.problems.normalised import Normalised


@dataclass(frozen=True)
class Interval:
    """A number between two others."""

    low: float
    high: float


def totals(talk: Conversation, *parts: np.ndarray) -> list[Interval]:
    """Σ_i of each of `parts`, (n,) numbers each."""
    blur, n = talk.rounding(), talk.n
    outputs = talk.average(*parts)
    extremes = talk.largest(*(y.high for y in outputs), *(-y.low for y in outputs), *map(np.abs, parts))
    tops, bottoms, sizes = (
        [float(a[0]) for a in extremes[k * len(parts) : (k + 1) * len(parts)]] for k in range(3)
    )  # bottoms hold −min
    return [
        Interval(n * (-bottom - blur * size), n * (top + blur * size))
        for top, bottom, size in zip(tops, bottoms, sizes, strict=True)
    ]


def outer_cost(problem: Normalised, x: Array, lam: Array, nu: Lipschitz, talk: Conversation) -> Interval:
    """F(λ), from x near x(λ) and constants with a strong convexity."""
    apart = distances(problem, x, lam, nu, talk)  # e
    f = host_float64(problem.outer_cost(x, lam))
    slopes = rigorous.norms(host_float64(problem.outer_grad(x, lam)[0]))
    known = allowances(problem, x, lam)
    if known is None:
        f_off, slopes_off = _accuracy(problem, x) * np.abs(f), _accuracy(problem, x) * slopes
    else:
        f_off, slopes_off = known.outer_cost(), known.outer_grad()[0]
    slack = 1 + rigorous.norm_accuracy(problem.dim_x)
    t = ((slopes + slopes_off) * apart + nu.nu_fx * apart**2 / 2 + f_off) * slack + 2 * rigorous.EPS * np.abs(f)
    below, above = totals(talk, f - t, f + t)
    return Interval(below.low, above.high)


def distances(problem: Normalised, x: Array, lam: Array, nu: Lipschitz, talk: Conversation) -> np.ndarray:
    """e_i ≥ ‖x_i − x(λ)‖, (n,)."""
    if nu.strong_convexity is None:
        raise ValueError("nu: no strong_convexity given, needed one that bounds how far x is from the inner solution")
    rows = host_float64(x)
    top, bottom = talk.largest(rows, -rows)  # bottom holds −min
    centre = (top / 2 - bottom / 2).astype(host_dtype(x))
    at = from_host(np.tile(centre, (len(rows), 1)), like=x)
    gradients = host_float64(problem.inner_grad(at, lam))
    sizes = rigorous.norms(gradients)
    known = allowances(problem, at, lam)
    off = _accuracy(problem, x) * sizes if known is None else known.inner_grad()
    (mean,) = talk.average(gradients)
    norm, most = talk.largest(rigorous.norms(mean.farthest), talk.rounding() * sizes + off)
    G = float(norm[0]) + float(most[0])
    slack = 1 + rigorous.norm_accuracy(problem.dim_x)
    return (rigorous.norms(rows - centre.astype(np.float64)) + G / nu.strong_convexity) * slack


def _accuracy(problem: Normalised, x: Array) -> float:
    """Of a problem that does not tell the sizes of its terms, relative to its answers."""
    return 4 * (problem.dim_x + 4) * float(np.finfo(host_dtype(x)).eps)
