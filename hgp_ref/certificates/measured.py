"""What can be said of a finished run where the inner cost is not known to be convex, as with neural clients.

    residual_i = ‖ḡ − H̄ w_i‖,        ḡ = mean_k ∂_x f_k,  H̄ = mean_k ∂²_x g_k   at the given x

is how far w_i is from solving H̄ w = ḡ, and consistency_i = ‖v_i − (∂_λ f_i − J_i w_i)‖ how far v_i is from what w_i
implies. Both are measured, with what rounding may add. Neither is an error: that needs a bound on H̄⁻¹, which only a
positive λ_min(H̄) gives; with one, `certify` bounds the error against the formula at x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import rigorous, texts
from hgp_ref.backend import Array, host_float64
from hgp_ref.certificates import inputs
from hgp_ref.certificates.centralised import own_part, slack
from hgp_ref.certificates.matrix_free_point import MatrixFreePoint
from hgp_ref.certificates.point import Point
from hgp_ref.problems import Problem, as_problem
from hgp_ref.results import Result


@dataclass(frozen=True)
class MeasuredResidual(Result):
    """How well each client's w solves its equation, (n,) each; no bound on the error of v.

    Attributes
    ----------
    residual : ‖ḡ − H̄ w_i‖, at most, rounding included.
    relative : the same divided by ‖ḡ‖: 1 for w = 0.
    consistency : ‖v_i − (∂_λ f_i − J_i w_i)‖, at most, rounding included.
    rounding_complete : whether that of the problem's own sums is too, as where it offers `term_sizes`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> bool(np.all(hgp.certificates.measured_residual(problem, x, lam, est).relative < 1e-3))
    True
    """

    residual: np.ndarray
    relative: np.ndarray
    consistency: np.ndarray
    rounding_complete: bool = False

    def _summary(self) -> list[str]:
        return texts.table(
            f"residuals of {len(self.residual)} clients, measured: no bound on the error",
            residual=f"at most {np.max(self.residual):.1e}, {np.max(self.relative):.1e} of the mean outer gradient",
            consistency=f"at most {np.max(self.consistency):.1e}",
        )


class _ProductsOnly(MatrixFreePoint):
    """Products and the sizes that rounding needs; no ᾱ and no β."""

    def __init__(self, problem: Problem, x: Array, lam: Array) -> None:
        Point.__init__(self, problem, x, lam)
        Point.see_all(self)
        self._sizes()


def measured_residual(problem: Problem, x: Array, lam: Array, est: Any) -> MeasuredResidual:
    """The residuals of `est` (value (n, d_lam), w (n, d_x)) at x; no convexity is needed.

    Cost: n + 16 products with all Hessians, one cross product.

    Parameters
    ----------
    problem : Problem
        Client costs; convexity is not needed.
    x, lam : arrays (n, d_x) and (n, d_lam)
        The point of the run.
    est : Estimate
        The run, or anything with `value` and `w`.

    Returns
    -------
    MeasuredResidual
        `residual`, `relative` and `consistency` of each client.

    Raises
    ------
    ValueError
        x, λ and the estimate do not fit together, or it has a run axis.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> hgp.certificates.measured_residual(problem, x, lam, est).residual.shape
    (3,)
    """
    problem = as_problem(problem, needs=("outer_grad", "linearize", "inner_grad"))
    value, w = inputs.estimate_arrays(est, problem)
    if value.ndim != 2:
        raise ValueError(f"est: value of shape {tuple(value.shape)} given, needed (n, d_lam), one run")
    inputs.point_arrays(problem, x, lam, value)
    point = _ProductsOnly(problem, x, lam)
    v, w_host = (host_float64(a) for a in (value, w))
    residual = rigorous.norms(point.residuals(w_host)) * slack(point) + point.residual_rounding(w_host)
    own = own_part(point, v, w_host)
    size = rigorous.norm(point.g_bar)
    relative = residual / size if size > 0 else np.where(residual > 0, np.inf, 0.0)
    return MeasuredResidual(residual, relative, own.consistency + own.rounding, point.complete)
