"""Chebyshev iteration for H̄w = ḡ with exact averaging.

    ‖v − d‖ ≤ √Σβ_i² · 2q^M/(1 + q^{2M}) · ‖w*‖,    q = (√κ − 1)/(√κ + 1),   κ = b/a,   a ≤ λ(H̄) ≤ b.

From w = 0, after M steps w* − w = p(H̄) w* with p of degree M, p(0) = 1 and sup_{[a,b]} |p| = 1/T_M((κ + 1)/(κ
− 1)), which is 2q^M/(1 + q^{2M}); and ‖v_i − d_i‖ ≤ β_i ‖w* − w‖. With Push-Sum in place of the mean it is
bound F (`chebyshev_push_sum`), or the bounds C of a finished run.
"""

from __future__ import annotations

import math

import numpy as np

from hgp_ref import arguments
from hgp_ref.bounds.result import Bound, finite, first_failure, not_applicable
from hgp_ref.bounds.scaled import product
from hgp_ref.rigorous import norm


def chebyshev(
    beta: np.ndarray, w_norm: float, low: float, high: float, iterations: int, spectrum: tuple[float, float]
) -> Bound:
    """The bound after M = `iterations` for β_i (n,), ‖w*‖, the interval [low, high] used and the extremes of H̄.

    Parameters
    ----------
    beta : array (n,)
        β_i.
    w_norm : float
        ‖w*‖.
    low, high : float
        The interval that the method used.
    iterations : int
        M.
    spectrum : pair of floats
        Smallest and largest eigenvalue of H̄.

    Returns
    -------
    Bound
        Not applicable where the spectrum leaves the interval.

    Raises
    ------
    TypeError, ValueError
        `beta` must be (n,), `spectrum` two numbers, `w_norm` ≥ 0, `iterations` an integer ≥ 0.

    Examples
    --------
    >>> round(hgp.bounds.chebyshev(np.ones(3), 1.0, 0.1, 1.0, 20, (0.1, 1.0)).total, 8)
    7.1e-06
    """
    beta = arguments.real_array("beta", beta, (None,), "(n,)", low=0.0)
    w_norm, iterations = arguments.nonnegative("w_norm", w_norm), arguments.integer("iterations", iterations, 0)
    low, high = arguments.number("low", low), arguments.number("high", high)
    smallest, largest = arguments.real_array("spectrum", spectrum, (2,), "(2,)").tolist()
    failed = first_failure(
        {
            f"0 < low <= high (low = {low:.3g}, high = {high:.3g})": 0 < low <= high,
            f"low <= smallest eigenvalue of the mean Hessian {smallest:.3g}": low <= smallest,
            f"high >= largest eigenvalue of the mean Hessian {largest:.3g}": high >= largest,
        }
    )
    if failed:
        return not_applicable("Chebyshev", failed)
    factor = product(reduction(high / low, iterations), w_norm)
    per_client = np.array([product(b, factor) for b in beta.tolist()])
    return finite(Bound("Chebyshev", product(norm(beta), factor), per_client))


def reduction(kappa: float, iterations: int) -> float:
    """2q^M/(1 + q^{2M})."""
    root = math.sqrt(kappa)
    q = (root - 1) / (root + 1)
    return 2 * q**iterations / (1 + q ** (2 * iterations))
