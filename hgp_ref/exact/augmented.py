"""Unreliable links as matrices: clients, and for every ordered pair of them buffers for what is under way.

The state between two steps is z_i of the n clients and, for every pair j → i with i ≠ j, the buffers b_ij^0 (what was
sent and no message under way will bring) and b_ij^r, r = 1 .. q (what a message brings at the end of the r-th step from
now; q is the largest delay). In step s client j keeps W_jj z_j and sends W_ij z_j to i, and

    buffers move on          b_ij^r → b_ij^{r−1} for r ≥ 2, and b_ij^1 → z_i
    the message is lost      the share → b_ij^0
    it is late by r steps    the share → b_ij^r, or z_i for r = 0; with running sums it takes along b_ij^0 and every
                             buffer that would arrive later than it does, b_ij^k with k > r + 1

Nothing leaves the state, so that the matrix A_s of the step is column-stochastic. With buffers that are empty before a
call of S steps, its P is the block of the clients in A_S … A_1.

Slow and obvious, (n + n(n−1)(q+1))² numbers: the judge of the channels, with which it shares only the network.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.exact.derivatives import require_memory
from hgp_ref.networks import Unreliable
from hgp_ref.philox import MAX_STEP


def augmented_matrix(net: Unreliable, s: int, robust: bool = True) -> np.ndarray:
    """A_s, (N, N) with N = n + n(n−1)(q+1): clients first, then b_ij^0 … b_ij^q, pairs ordered by i, then j.

    `robust` is whether messages carry running sums; if not, b_ij^0 collects what is lost for good.

    Parameters
    ----------
    net : Unreliable
        Links that lose and delay.
    s : int
        Step.
    robust : bool
        Whether messages carry running sums.

    Returns
    -------
    array (N, N)
        A_s.

    Raises
    ------
    TypeError, ValueError
        `net` must be Unreliable, `s` a step.
    ValueError
        The matrix would not fit into memory.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> net = hgp.networks.Unreliable(hgp.networks.FullyConnected(2), loss=1.0, delay=0)
    >>> hgp.exact.augmented_matrix(net, s=1).tolist()  # both keep one half and lose the other on the way
    [[0.5, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0], [0.0, 0.5, 1.0, 0.0], [0.5, 0.0, 0.0, 1.0]]
    """
    arguments.kind("net", net, Unreliable)
    robust = arguments.boolean("robust", robust)
    n, q = net.n, net.delay
    size = n + n * (n - 1) * (q + 1)
    require_memory(f"n={n}, delay={q} given: the augmented matrix (N, N) with N = {size}", size, size)
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


def augmented_product(net: Unreliable, first: int, steps: int, robust: bool = True) -> np.ndarray:
    """A_{first+S−1} … A_first for S = `steps`, (N, N).

    Parameters
    ----------
    net : Unreliable
        Links that lose and delay.
    first, steps : int
        The first step, and S.
    robust : bool
        Whether messages carry running sums.

    Returns
    -------
    array (N, N)
        Column-stochastic.

    Raises
    ------
    TypeError, ValueError
        `first` and `steps` must be integers ≥ 1.

    Examples
    --------
    >>> net = hgp.networks.Unreliable(hgp.networks.FullyConnected(2), loss=0.5, delay=0)
    >>> hgp.exact.augmented_product(net, first=1, steps=3).sum(axis=0)
    array([1., 1., 1., 1.])
    """
    first, steps = (
        arguments.integer("first", first, 1, MAX_STEP),
        arguments.integer("steps", steps, 1, arguments.LONGEST),
    )
    product = augmented_matrix(net, first, robust)
    for s in range(first + 1, first + steps):
        product = augmented_matrix(net, s, robust) @ product
    return product


def _first_buffer(n: int, q: int, i: int, j: int) -> int:
    """Where b_ij^0 stands."""
    return n + (i * (n - 1) + j - (j > i)) * (q + 1)


def _link(A: np.ndarray, i: int, j: int, b: int, q: int, share: float, late: int, robust: bool) -> None:
    """The columns of the pair j → i: buffers b .. b + q, and what goes from z_j; `late` is −1 for lost."""
    goes_to = [b, i, *range(b + 1, b + q)][: q + 1]  # from b^0, b^1, b^2 … b^q
    if share and late < 0:
        A[b, j] += share
    elif share:
        there = i if late == 0 else b + late
        A[there, j] += share
        for r in (0, *range(late + 2, q + 1)) if robust else ():
            goes_to[r] = there
    for r, place in enumerate(goes_to):
        A[place, b + r] += 1.0
