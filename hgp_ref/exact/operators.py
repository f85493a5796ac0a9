"""The averaging operators as matrices: Θ and, from products of mixing matrices, its Push-Sum approximations.

With W_s the column-stochastic mixing matrix of graph s, call m (from 0) of S steps has

    P_m = W_{(m+1)S} … W_{mS+1},        ω_{m+1} = P_m ω_m,   ω_0 = 1,

and turns u (n, d) into K_m u. Three ways to treat the weights ω between calls:

    reset     K_m = diag(P_m 1)⁻¹ P_m: every call is a Push-Sum of its own. K_m is row-stochastic.
    keep      K_m = diag(P_m ω_m)⁻¹ P_m: the weights run on but the call restarts from the debiased u, so that rows
              do not sum to one.
    conserve  mass and weights both run on: z ← P_m z, ω ← P_m ω, ū = z/ω, then z ← ω ū − η H ū. As ū = K_m z with
              the K_m of "keep", only the Hessian factor differs: diag(ω_{m+1}) − η H in place of I − η H
              (`estimate` takes these weights).
"""

from __future__ import annotations

import numpy as np

from hgp_ref.exact.derivatives import require_memory
from hgp_ref.networks import Network

DEBIAS = ("reset", "keep", "conserve")


def theta(n: int, d: int) -> np.ndarray:
    """Θ = (11ᵀ/n) ⊗ I_d, the exact average of n stacked d-vectors, (nd, nd)."""
    if n < 1 or d < 1:
        raise ValueError(f"n={n}, d={d} given, needed integers >= 1")
    require_memory("Θ (nd, nd)", n * d, n * d)
    return np.kron(np.full((n, n), 1.0 / n), np.eye(d))


def mixing_product(net: Network, steps: int, call: int = 0) -> np.ndarray:
    """P_m = W_{(m+1)S} … W_{mS+1} for m = `call` and S = `steps`, (n, n): column-stochastic."""
    _check_counts(steps=steps, call=call)
    P = np.eye(net.n)
    for W in net.mixing_matrices(call * steps + 1, steps):
        P = np.asarray(W, dtype=np.float64) @ P
    return P


def push_sum_matrix(net: Network, steps: int, call: int = 0, debias: str = "reset") -> np.ndarray:
    """K_m of call m = `call`, (n, n): what Push-Sum of S = `steps` steps does to u (see the module's head)."""
    _check_debias(debias)
    P = mixing_product(net, steps, call)
    before = np.ones(net.n) if debias == "reset" or call == 0 else push_sum_weights(net, steps, call - 1)
    return P / (P @ before)[:, None]


def push_sum_weights(net: Network, steps: int, call: int = 0) -> np.ndarray:
    """ω_{m+1} = P_m … P_0 1 after call m = `call` when the weights are never reset, (n,)."""
    omega = np.ones(net.n)
    for m in range(call + 1):
        omega = mixing_product(net, steps, m) @ omega
    return omega


def push_sum_matrices(
    net: Network, steps: int, calls: int, debias: str = "reset"
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """K_0 … K_{M−1} and ω_1 … ω_M for M = `calls`, one product of mixing matrices per call."""
    _check_debias(debias)
    matrices, weights, omega = [], [], np.ones(net.n)
    for m in range(calls):
        P = mixing_product(net, steps, m)
        after = P @ omega
        matrices.append(P / (P.sum(axis=1) if debias == "reset" else after)[:, None])
        weights.append(after)
        omega = after
    return matrices, weights


def _check_debias(debias: str) -> None:
    if debias not in DEBIAS:
        raise ValueError(f"debias={debias!r} is unknown; choose one of {', '.join(DEBIAS)}")


def _check_counts(steps: int, call: int) -> None:
    if steps < 1:
        raise ValueError(f"steps={steps}; Push-Sum needs at least 1 step")
    if call < 0:
        raise ValueError(f"call={call}; calls are numbered from 0")
