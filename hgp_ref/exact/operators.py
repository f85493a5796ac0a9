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

Over links that lose and delay, P_m is what clients make of a call that begins with nothing under way (`augmented`),
with plain messages or, `robust`, with running sums; there is only "reset", for nothing (n, n) tells what is under way.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.exact.augmented import augmented_product
from hgp_ref.exact.derivatives import require_memory
from hgp_ref.networks import Network, Unreliable

DEBIAS = ("reset", "keep", "conserve")


def theta(n: int, d: int) -> np.ndarray:
    """Θ = (11ᵀ/n) ⊗ I_d, the exact average of n stacked d-vectors, (nd, nd).

    Parameters
    ----------
    n, d : int
        Clients and dimension.

    Returns
    -------
    array (nd, nd)
        Θ.

    Raises
    ------
    ValueError
        `n` or `d` is no integer ≥ 1, or Θ would not fit into memory.

    Examples
    --------
    >>> hgp.exact.theta(2, 1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    n, d = arguments.integer("n", n, 0), arguments.integer("d", d, 0)
    if n < 1 or d < 1:
        raise ValueError(f"n={n}, d={d} given, needed integers >= 1")
    require_memory(f"n={n}, d={d} given: Θ (nd, nd)", n * d, n * d)
    return np.kron(np.full((n, n), 1.0 / n), np.eye(d))


def mixing_product(net: Network, steps: int, call: int = 0, robust: bool = False) -> np.ndarray:
    """P_m = W_{(m+1)S} … W_{mS+1} for m = `call` and S = `steps`, (n, n): column-stochastic where nothing is lost.

    Parameters
    ----------
    net : Network
        Which graphs.
    steps : int
        S.
    call : int
        m.
    robust : bool
        Of robust Push-Sum over unreliable links.

    Returns
    -------
    array (n, n)
        P_m.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network, `steps` ≥ 1 and `call` ≥ 0 integers.

    Examples
    --------
    >>> hgp.exact.mixing_product(hgp.networks.OnePeerExponential(2), 1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    _check(net, steps, call=call)
    arguments.boolean("robust", robust)
    if isinstance(net, Unreliable) and not net.in_time:
        return augmented_product(net, call * steps + 1, steps, robust)[: net.n, : net.n]
    P = np.eye(net.n)
    for W in net.mixing_matrices(call * steps + 1, steps):
        P = np.asarray(W, dtype=np.float64) @ P
    return P


def push_sum_matrix(net: Network, steps: int, call: int = 0, debias: str = "reset", robust: bool = False) -> np.ndarray:
    """K_m of call m = `call`, (n, n): what Push-Sum of S = `steps` steps does to u (see the module's head).

    Parameters
    ----------
    net : Network
        Which graphs.
    steps : int
        S.
    call : int
        m.
    debias : {"reset", "keep", "conserve"}
        As in `PushSum`.
    robust : bool
        Of robust Push-Sum over unreliable links.

    Returns
    -------
    array (n, n)
        K_m.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network, `steps` ≥ 1 and `call` ≥ 0 integers, `debias` one of its values.

    Examples
    --------
    >>> hgp.exact.push_sum_matrix(hgp.networks.FullyConnected(2), 1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    _check_debias(debias, net)
    P = mixing_product(net, steps, call, robust)
    before = np.ones(net.n) if debias == "reset" or call == 0 else push_sum_weights(net, steps, call - 1)
    return P / (P @ before)[:, None]


def push_sum_weights(net: Network, steps: int, call: int = 0) -> np.ndarray:
    """ω_{m+1} = P_m … P_0 1 after call m = `call` when the weights are never reset, (n,).

    Parameters
    ----------
    net : Network
        Which graphs.
    steps : int
        S.
    call : int
        m.

    Returns
    -------
    array (n,)
        ω before call m where it is carried from call to call.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network, `steps` ≥ 1 and `call` ≥ 0 integers.

    Examples
    --------
    >>> hgp.exact.push_sum_weights(hgp.networks.FullyConnected(2), 3, call=1)
    array([1., 1.])
    """
    _check_debias("keep", net)
    _check(net, steps, call=call)
    omega = np.ones(net.n)
    for m in range(call + 1):
        omega = mixing_product(net, steps, m) @ omega
    return omega


def push_sum_matrices(
    net: Network, steps: int, calls: int, debias: str = "reset", robust: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """K_0 … K_{M−1} and ω_1 … ω_M for M = `calls`, one product of mixing matrices per call.

    Over unreliable links, where weights are reset, ω_{m+1} is P_m 1.

    Parameters
    ----------
    net : Network
        Which graphs.
    steps : int
        S.
    calls : int
        How many.
    debias : {"reset", "keep", "conserve"}
        As in `PushSum`.
    robust : bool
        Of robust Push-Sum over unreliable links.

    Returns
    -------
    two lists
        K_0 … and the weights before each call.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network, `steps` and `calls` integers ≥ 1, `debias` one of its values.
    ValueError
        The matrices would not fit into memory.

    Examples
    --------
    >>> K, weights = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 5, calls=2)
    >>> len(K), K[0].sum(axis=1).round(12)
    (2, array([1., 1., 1.]))
    """
    _check_debias(debias, net)
    _check(net, steps, calls=calls)
    require_memory(f"calls={calls} given: the matrices (M, n, n)", calls, net.n, net.n)
    matrices, weights, omega = [], [], np.ones(net.n)
    for m in range(calls):
        P = mixing_product(net, steps, m, robust)
        after = P.sum(axis=1) if isinstance(net, Unreliable) and not net.in_time else P @ omega
        matrices.append(P / (P.sum(axis=1) if debias == "reset" else after)[:, None])
        weights.append(after)
        omega = after
    return matrices, weights


def _check_debias(debias: str, net: Network) -> None:
    arguments.choice("debias", debias, DEBIAS)
    if debias != "reset" and isinstance(net, Unreliable) and not net.in_time:
        raise ValueError(
            f"debias={debias!r} given for {net!r}, needed 'reset': what is under way between calls has no place in a "
            "matrix (n, n); multiply augmented_matrix"
        )


def _check(net: Network, steps: int, **numbers: int) -> None:
    if not isinstance(getattr(net, "n", None), int) or not callable(getattr(net, "mixing_matrices", None)):
        raise TypeError(f"net: {type(net).__name__} given, needed a network with n and mixing_matrices(first, count)")
    arguments.integer("steps", steps, 1, arguments.LONGEST)
    for name, number in numbers.items():
        arguments.integer(name, number, 0, arguments.LONGEST)
    last = (max(numbers.values()) + 1) * steps
    if last > arguments.LONGEST:
        raise ValueError(
            f"steps={steps} given: step {last} is needed, the explicit reference goes to {arguments.LONGEST}"
        )
