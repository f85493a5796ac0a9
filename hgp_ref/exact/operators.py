"""Averaging operators as matrices: Θ, products of mixing matrices, Push-Sum, and unreliable links.

Unreliable links. Every ordered pair of clients has buffers for messages in flight. The state between two steps is z_i
of the n clients and, for every pair j → i with i ≠ j, the buffers b_ij^0 (sent, but in no message in flight) and
b_ij^r, r = 1 .. q (in a message that arrives at the end of the r-th step from now; q is the largest delay). In step s
client j keeps W_jj z_j and sends W_ij z_j to i, and

    buffers move on          b_ij^r → b_ij^{r−1} for r ≥ 2, and b_ij^1 → z_i
    the message is lost      the share → b_ij^0
    it is late by r steps    the share → b_ij^r, or z_i for r = 0; with running sums it also carries b_ij^0 and every
                             buffer that would arrive later, b_ij^k with k > r + 1

Nothing leaves the state, so the matrix A_s of the step is column-stochastic. If the buffers are empty before a call of
S steps, its P is the block of the clients in A_S … A_1. The matrix has (n + n(n−1)(q+1))² entries. It checks the
channels, with which it shares only the network.
"""

from __future__ import annotations

import numpy as np

from hgp_ref.exact.derivatives import require_memory
from hgp_ref.networks import Network, Unreliable
from hgp_ref.philox import MAX_STEP
from hgp_ref.validation import LONGEST, Boolean, Choice, Count, Instance, Integer, checked


@checked(net=Instance(Unreliable), s=Integer(1, MAX_STEP), robust=Boolean())
def augmented_matrix(net: Unreliable, s: int, robust: bool = True) -> np.ndarray:
    """A_s, (N, N) with N = n + n(n−1)(q+1): clients first, then b_ij^0 … b_ij^q, pairs ordered by i, then j.

    `robust`: messages carry running sums. Otherwise b_ij^0 holds what is lost for good.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> net = hgp.networks.Unreliable(hgp.networks.FullyConnected(2), loss=1.0, delay=0)
    >>> hgp.exact.augmented_matrix(net, s=1).tolist()  # both keep one half and lose the other on the way
    [[0.5, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0], [0.0, 0.5, 1.0, 0.0], [0.5, 0.0, 0.0, 1.0]]
    """
    n, q = net.n, net.delay
    size = n + n * (n - 1) * (q + 1)
    require_memory(f"the augmented matrix (N, N) for n={n}, delay={q}", size, size)
    indptr, senders, shares = net.csr(s)
    sent, late = np.zeros((n, n)), np.full((n, n), -1)
    receivers = np.repeat(np.arange(n), np.diff(indptr))
    sent[receivers, senders], late[receivers, senders] = shares, net.delays(s)
    A = np.zeros((size, size))
    A[range(n), range(n)] = np.diag(sent)
    for i in range(n):
        for j in range(n):
            if i != j:
                _link(A, i, j, _first_buffer(n, q, i, j), q, sent[i, j], int(late[i, j]), robust)
    return A


@checked(net=Instance(Unreliable), first=Integer(1, MAX_STEP), steps=Count(1), robust=Boolean())
def augmented_product(net: Unreliable, first: int, steps: int, robust: bool = True) -> np.ndarray:
    """A_{first+S−1} … A_first for S = `steps`, (N, N).

    Examples
    --------
    >>> net = hgp.networks.Unreliable(hgp.networks.FullyConnected(2), loss=0.5, delay=0)
    >>> hgp.exact.augmented_product(net, first=1, steps=3).sum(axis=0)
    array([1., 1., 1., 1.])
    """
    product = augmented_matrix(net, first, robust)
    for s in range(first + 1, first + steps):
        product = augmented_matrix(net, s, robust) @ product
    return product


def _first_buffer(n: int, q: int, i: int, j: int) -> int:
    """The index of b_ij^0 in the state."""
    return n + (i * (n - 1) + j - (j > i)) * (q + 1)


def _link(A: np.ndarray, i: int, j: int, b: int, q: int, share: float, late: int, robust: bool) -> None:
    """Fill in the columns of the pair j → i: buffers b .. b + q, and the share of z_j; `late` is −1 if lost."""
    target = [b, i, *range(b + 1, b + q)][: q + 1]  # index to which b^0, b^1, b^2 … b^q move
    if share and late < 0:
        A[b, j] += share
    elif share:
        arrival = i if late == 0 else b + late
        A[arrival, j] += share
        for r in (0, *range(late + 2, q + 1)) if robust else ():
            target[r] = arrival
    for r, to in enumerate(target):
        A[to, b + r] += 1.0


# ------------------------------------------------------------------------------------------------------- Θ and Push-Sum
#
# With W_s the column-stochastic mixing matrix of graph s, call m (from 0) of S steps has
#
#     P_m = W_{(m+1)S} … W_{mS+1},        ω_{m+1} = P_m ω_m,   ω_0 = 1,
#
# and maps u (n, d) to K_m u. There are three rules for the weights ω between calls:
#
#     reset     K_m = diag(P_m 1)⁻¹ P_m: every call is a separate Push-Sum. K_m is row-stochastic.
#     keep      K_m = diag(P_m ω_m)⁻¹ P_m: the weights carry over, but each call starts from the debiased u, so rows do
#               not sum to one.
#     conserve  sums and weights both carry over: z ← P_m z, ω ← P_m ω, ū = z/ω, then z ← ω ū − η H ū. As ū = K_m z
#               with the K_m of "keep", only the Hessian factor differs: diag(ω_{m+1}) − η H instead of I − η H
#               (pass these weights to `estimate`).
#
# Over unreliable links, P_m belongs to a call that starts with no message in flight (`augmented_matrix`), with plain
# messages or, `robust`, with running sums. Only "reset" is possible, because an (n, n) matrix holds no messages in
# flight.


DEBIAS = ("reset", "keep", "conserve")


@checked(n=Integer(1), d=Integer(1))
def theta(n: int, d: int) -> np.ndarray:
    """Θ = (11ᵀ/n) ⊗ I_d, the exact average of n stacked d-vectors, (nd, nd).

    Examples
    --------
    >>> hgp.exact.theta(2, 1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    require_memory(f"Θ (nd, nd) for n={n}, d={d}", n * d, n * d)
    return np.kron(np.full((n, n), 1.0 / n), np.eye(d))


@checked(steps=Count(1), call=Count(0), robust=Boolean())
def mixing_product(net: Network, steps: int, call: int = 0, robust: bool = False) -> np.ndarray:
    """P_m = W_{(m+1)S} … W_{mS+1} for m = `call` and S = `steps`, (n, n); column-stochastic if nothing is lost.

    Examples
    --------
    >>> hgp.exact.mixing_product(hgp.networks.OnePeerExponential(2), 1)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    _check_network(net, steps, call)
    if isinstance(net, Unreliable) and not net.is_reliable:
        return augmented_product(net, call * steps + 1, steps, robust)[: net.n, : net.n]
    P = np.eye(net.n)
    for W in net.mixing_matrices(call * steps + 1, steps):
        P = np.asarray(W, dtype=np.float64) @ P
    return P


@checked(steps=Count(1), call=Count(0), debias=Choice(*DEBIAS), robust=Boolean())
def push_sum_matrix(net: Network, steps: int, call: int = 0, debias: str = "reset", robust: bool = False) -> np.ndarray:
    """K_m of call m = `call`, (n, n): Push-Sum with S = `steps` steps maps u to K_m u.

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


@checked(steps=Count(1), call=Count(0))
def push_sum_weights(net: Network, steps: int, call: int = 0) -> np.ndarray:
    """ω_{m+1} = P_m … P_0 1 after call m = `call` when the weights are never reset, (n,).

    Examples
    --------
    >>> hgp.exact.push_sum_weights(hgp.networks.FullyConnected(2), 3, call=1)
    array([1., 1.])
    """
    _check_debias("keep", net)
    _check_network(net, steps, call)
    omega = np.ones(net.n)
    for m in range(call + 1):
        omega = mixing_product(net, steps, m) @ omega
    return omega


@checked(steps=Count(1), calls=Count(0), debias=Choice(*DEBIAS), robust=Boolean())
def push_sum_matrices(
    net: Network, steps: int, calls: int, debias: str = "reset", robust: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """K_0 … K_{M−1} and ω_1 … ω_M for M = `calls`, one product of mixing matrices per call.

    Over unreliable links, where weights are reset, ω_{m+1} is P_m 1.

    Examples
    --------
    >>> K, weights = hgp.exact.push_sum_matrices(hgp.networks.RandomDirected(n=3, seed=0), 5, calls=2)
    >>> len(K), K[0].sum(axis=1).round(12)
    (2, array([1., 1., 1.]))
    """
    _check_debias(debias, net)
    _check_network(net, steps, calls)
    require_memory(f"matrices (M, n, n) for calls={calls}", calls, net.n, net.n)
    matrices, weights, omega = [], [], np.ones(net.n)
    for m in range(calls):
        P = mixing_product(net, steps, m, robust)
        after = P.sum(axis=1) if isinstance(net, Unreliable) and not net.is_reliable else P @ omega
        matrices.append(P / (P.sum(axis=1) if debias == "reset" else after)[:, None])
        weights.append(after)
        omega = after
    return matrices, weights


def _check_debias(debias: str, net: Network) -> None:
    if debias != "reset" and isinstance(net, Unreliable) and not net.is_reliable:
        raise ValueError(
            f"debias must be 'reset' over {net!r}, got {debias!r}: an (n, n) matrix does not hold messages in flight "
            "between calls; multiply augmented_matrix instead"
        )


def _check_network(net: Network, steps: int, call: int) -> None:
    if not isinstance(getattr(net, "n", None), int) or not callable(getattr(net, "mixing_matrices", None)):
        raise TypeError(f"net must be a network with n and mixing_matrices(first, count), got {type(net).__name__}")
    last = (call + 1) * steps
    if last > LONGEST:
        raise ValueError(f"steps must not need a graph beyond number {LONGEST}, got {steps}, which needs graph {last}")
