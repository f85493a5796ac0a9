"""Thinned: the graphs of another network, in which each client sends to at most k of its out-neighbours per step.

A client that may send to m > k others chooses the k that it served longest ago, so that over time it serves all. What
it has served is forgotten every BLOCK steps. The graph of step s is therefore a function of the at most BLOCK graphs of
`net` since the last multiple of BLOCK, and steps can be asked for in any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hgp_ref._numba import njit
from hgp_ref.networks.base import Edges, Network
from hgp_ref.philox import MAX_STEP
from hgp_ref.validation import Instance, Integer, checked

BLOCK = 32  # steps after which clients forget whom they served


@checked(net=Instance(Network), k=Integer(1))
class Thinned(Network):
    """The graphs of `net`, in which each client sends to at most k of its out-neighbours, those served longest ago.

    With the k' ≤ k others that client j chooses at step s, W_s[i, j] = 1 / (k' + 1) for them and for j itself. Columns
    sum to 1, as in every network. Fewer messages travel per step, and a mean takes more steps. Gradient tracking, which
    needs only short averages, usually gains floats.

    Ties go to the next client after j, cyclically. `expected_edges` is the mean over one period, or over the first
    BLOCK = 32 steps of a network without one. Links must be reliable: `Unreliable(Thinned(net))` thins first.

    Examples
    --------
    >>> net = hgp.networks.Thinned(hgp.networks.FullyConnected(4))
    >>> [net.out_neighbours(s, 0).tolist() for s in (1, 2, 3, 4)]
    [[0, 1], [0, 2], [0, 3], [0, 1]]
    """

    equal_shares = True

    def __init__(self, net: Network, k: int = 1) -> None:
        if not net.is_reliable:
            raise ValueError(f"net must be reliable, got {net!r}; use Unreliable(Thinned(net), ...)")
        super().__init__(net.n, net.seed, None if net.period is None else math.lcm(net.period, BLOCK))
        self.net, self.k = net, k
        self._cached: tuple[int, tuple[Edges, ...]] = (-1, ())
        self._edges: float | None = None

    @property
    def expected_edges(self) -> float:
        if self._edges is None:
            steps = self.period or BLOCK
            self._edges = sum(self.out_adjacency(s)[1].size for s in range(1, steps + 1)) / steps
        return self._edges

    def out_adjacency(self, s: int) -> Edges:
        block, position = divmod(self._step(s) - 1, BLOCK)
        if self._cached[0] != block:
            self._cached = (block, self._graphs(block))
        return self._cached[1][position]

    def _graphs(self, block: int) -> tuple[Edges, ...]:
        """The graphs of steps BLOCK·block + 1, …, BLOCK·(block + 1)."""
        served = np.full((self.n, BLOCK * min(self.k, self.n)), -1, dtype=np.int32)
        count = np.zeros(self.n, dtype=np.int64)
        first = BLOCK * block + 1
        return tuple(
            thin(*self.net.out_adjacency(s), self.k, served, count)
            for s in range(first, min(first + BLOCK, MAX_STEP + 1))
        )

    def _arguments(self) -> dict[str, Any]:
        return {"net": self.net, "k": self.k}


@njit(cache=True, nogil=True)
def thin(
    indptr: np.ndarray, receivers: np.ndarray, k: int, served: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, receivers) with itself and at most k others for every sender; adds these to what it `served`.

    served[j, :count[j]] are the receivers that j has served, in that order.
    """
    n = len(indptr) - 1
    out_indptr = np.zeros(n + 1, dtype=np.int64)
    out = np.empty(min(len(receivers), k * n) + n, dtype=np.int32)
    size = 0
    for j in range(n):
        row = receivers[indptr[j] : indptr[j + 1]]
        chosen = row[row != j]
        if len(chosen) > k:
            age = np.empty(len(chosen), dtype=np.int64)
            for e in range(len(chosen)):
                last = -1
                for t in range(count[j] - 1, -1, -1):
                    if served[j, t] == chosen[e]:
                        last = t
                        break
                age[e] = last * n + (chosen[e] - j) % n
            chosen = np.sort(chosen[np.argsort(age)[:k]])
        for i in chosen:
            served[j, count[j]] = i
            count[j] += 1
        placed = False
        for i in chosen:
            if i > j and not placed:
                out[size] = j
                size += 1
                placed = True
            out[size] = i
            size += 1
        if not placed:
            out[size] = j
            size += 1
        out_indptr[j + 1] = size
    return out_indptr, out[:size].copy()
