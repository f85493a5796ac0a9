"""Term sizes of quadratic costs: absolute values in place of numbers, each term times the roundings on its way.

x − t rounds once, relative to itself; from then on everything is sums of products. A product with a matrix of d
columns is d roundings in any order. Underflow is gradual: at most u times the smallest normal number a product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hgp_ref.backend import Array, host_dtype
from hgp_ref.problems.arrays import matvec
from hgp_ref.problems.term_sizes import TermSizes

if TYPE_CHECKING:
    from hgp_ref.problems.quadratic import Quadratic


def quadratic_sizes(problem: Quadratic, x: Array, lam: Array) -> TermSizes:
    """The sizes at x (n, d_x) and lam (n, d_lam)."""
    xp, p, d, k = problem._xp, problem, problem.dim_x, problem.dim_lam
    K = 2 * (d + k) + 16  # more than any term below passes
    tiny = K * float(np.finfo(host_dtype(x)).smallest_normal)
    size, at = xp.abs(x), xp.abs(lam)
    gap, mu = xp.abs(x - p._t), abs(p._mu)
    A, C, b = xp.abs(p._A), xp.abs(p._C), xp.abs(p._b)

    def times(matrix: Array, u: Array) -> Array:
        return matvec(matrix, u, xp=xp) + tiny

    def transposed(matrix: Array, u: Array) -> Array:
        return matvec(xp.matrix_transpose(matrix), u, xp=xp) + tiny

    def dot(a: Array, c: Array) -> Array:
        return xp.sum(a * c, axis=-1) + tiny

    curved = gap if p._Q is None else times(xp.abs(p._Q), gap)
    through = 0 if p._Q is None else d  # roundings of the product with Q
    inner_cost = (2 * d + 4) * dot(0.5 * times(A, size) + b, size) + (d + k + 3) * dot(at, times(C, size))
    inner_grad = (d + 2) * times(A, size) + 2 * b + (k + 2) * transposed(C, at)
    outer_cost = (d + through + 5) * dot(0.5 * gap, curved) + 0.5 * mu * (k + 5) * dot(at, at)
    along_x, along_lam = (through + 2) * curved, 3 * mu * at + tiny
    if p._D is not None:
        D = xp.abs(p._D)
        outer_cost = outer_cost + (d + k + 3) * dot(at, times(D, size))
        along_x = along_x + (k + 2) * transposed(D, at)
        along_lam = along_lam + (d + 2) * times(D, size)
    return TermSizes(
        roundings=K,
        inner_cost=inner_cost / K,
        inner_grad=inner_grad / K,
        outer_cost=(outer_cost + tiny) / K,
        outer_grad=(along_x / K, along_lam / K),
        hvp=lambda u: d * times(A, xp.abs(u)) / K,
        cross=lambda u: d * times(C, xp.abs(u)) / K,
    )
