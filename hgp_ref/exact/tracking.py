"""How fast gradient tracking converges over graphs that repeat, by the eigenvalues of one period.

Once the weights have settled (ω after c calls is ω again, P_{c−1} … P_0 ω = ω), a call with P maps, with w = u/ω,

    (u, y) ↦ (u⁺, P y + H(u⁺/ω⁺ − u/ω)),      u⁺ = P(u − ηy),   ω⁺ = Pω,

linearly. Columns of P sum to 1, so Σ_i y_i − Σ_i H_i u_i/ω_i never changes: one eigenvalue 1 for each of its d
coordinates. Runs start where it is −Σ ∂_x f and differ from the limit (ωw*, 0) by vectors on which it is 0: on that
subspace the largest |eigenvalue| of the period, its c-th root taken, is the factor by which the error falls in a call.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import block_diag, null_space

from hgp_ref import arguments
from hgp_ref.exact.derivatives import require_memory
from hgp_ref.exact.operators import mixing_product
from hgp_ref.networks import Network

SETTLED = 1e-13  # relative change of ω over a period
MOST_PERIODS = 100_000


def tracking_rate(H: np.ndarray, net: Network, step: float, steps: int = 1) -> float:
    """The factor by which `hgp.methods.Tracking(step)` shrinks its error in a call, in the limit; unstable above 1.

    Parameters
    ----------
    H : (n, d, d), Hessians of the clients, such as `exact.hessians(problem, x, lam)`.
    net : a network that repeats itself (`net.period`), jointly strongly connected.
    step : η.
    steps : S, graphs of a call.

    Returns
    -------
    float
        The spectral radius; below 1 the iteration converges.

    Raises
    ------
    TypeError, ValueError
        H must be (n, d, d), `step` positive, `net` of n clients and one that repeats itself.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> ring = hgp.networks.Schedule([(np.arange(3), (np.arange(3) + 1) % 3)], n=3)
    >>> round(hgp.exact.tracking_rate(np.ones((3, 1, 1)), ring, 0.1), 4)
    0.9
    """
    H = arguments.real_array("H", H, (None, None, None), "(n, d, d)")
    n, d = H.shape[:2]
    H = arguments.real_array("H", H, (n, d, d), "(n, d, d)")
    step, steps = arguments.positive("step", step), arguments.integer("steps", steps, 1, arguments.LONGEST)
    arguments.kind("net", net, Network)
    if net.n != n:
        raise ValueError(f"net: {net.n} clients given, needed {n} as in H")
    if net.period is None:
        raise ValueError(f"net: {net!r} given, which never repeats; needed a network with a period")
    require_memory("the map of a period (2nd, 2nd)", 2 * n * d, 2 * n * d)
    calls = math.lcm(net.period, steps) // steps
    products = [mixing_product(net, steps, call) for call in range(calls)]
    omega = _settled(products, net)
    blocks, T = block_diag(*H), np.eye(2 * n * d)
    invariant = np.tile(np.eye(d), (1, n)) @ np.hstack([-blocks / np.repeat(omega, d), np.eye(n * d)])  # (d, 2nd)
    for P in products:
        after = P @ omega
        T = _call(np.kron(P, np.eye(d)), blocks, step, np.repeat(omega, d), np.repeat(after, d)) @ T
        omega = after
    free = null_space(invariant)  # (2nd, 2nd − d)
    return float(np.abs(np.linalg.eigvals(free.T @ T @ free)).max() ** (1 / calls))


def _call(P: np.ndarray, H: np.ndarray, step: float, omega: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The matrix of one call on (u, y)."""
    ahead = np.hstack([P, -step * P])  # u⁺
    own = np.hstack([H / omega, np.zeros_like(H)])  # H u/ω
    return np.vstack([ahead, np.hstack([np.zeros_like(P), P]) + H @ (ahead / after[:, None]) - own])


def _settled(products: list[np.ndarray], net: Network) -> np.ndarray:
    """ω that a period reproduces, with mean 1."""
    omega = np.ones(net.n)
    for _ in range(MOST_PERIODS):
        before = omega
        for P in products:
            omega = P @ omega
        if np.abs(omega - before).max() <= SETTLED * net.n:
            return omega
    raise ValueError(f"net: weights do not settle over {MOST_PERIODS} periods of {net!r}")
