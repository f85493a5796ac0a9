"""Θ̂ as an operator: what every averaging offers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from hgp_ref import arguments
from hgp_ref.averaging.blocks import Block
from hgp_ref.averaging.traffic import Traffic
from hgp_ref.backend import Array, array_namespace, host_dtype
from hgp_ref.networks import Network

BLOCK_BYTES = 32 * 2**20  # graphs prepared at once


class Averaging(ABC):
    """An estimate Θ̂_m of the mean over clients, for calls m = 0, 1, ...

    Call m takes the graphs mS+1 .. (m+1)S of the network. `apply` is a pure function of (u, call); beside its result
    it adds what was sent to `ledger`.
    """

    n: int
    steps: int
    net: Network | None
    floats_beside_vector = 0  # a message's numbers besides the vector itself: 1 where a weight travels along

    def __init__(self) -> None:
        self.ledger = Traffic()

    @abstractmethod
    def composes(self, columns: int) -> bool:
        """Whether arrays with this many columns in all are better met by one (n, n) matrix a call."""

    @abstractmethod
    def matrices(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Θ̂_m as (count, n, n) on the host, the weights (count, n) that iterates restart from, messages (count,)."""

    @abstractmethod
    def prepare(self, first: int, count: int, like: Array) -> Block:
        """Calls first .. first+count-1, ready for arrays like `like` (library, device, dtype, columns)."""

    def block_size(self, like: Array) -> int:
        """How many calls to prepare at once."""
        return max(1, min(256, BLOCK_BYTES // (8 * self.steps * self.n * self.n)))

    def apply(self, u: Array, call: int = 0) -> Array:
        """ū = Θ̂_call u: client i's estimate of the mean of the rows of u.

        u is (n, d), or (..., n, d) with run axes; the result has its library, device and dtype.
        """
        check_vectors("u", u, self.n)
        call = arguments.integer("call", call, 0)
        block = self.prepare(call, 1, u)
        averaged = block.apply(0, u)
        runs = math.prod(u.shape[:-2])
        self.ledger += self.traffic(block.messages(0) * runs, 1, u)
        return averaged

    def traffic(self, messages: int | np.ndarray, calls: int, like: Array) -> Traffic:
        """Traffic of `messages` messages of rows of `like` in `calls` calls."""
        floats = like.shape[-1] + self.floats_beside_vector
        return Traffic.of(messages, floats, host_dtype(like).itemsize, calls * self.steps)


def columns(like: Array) -> int:
    """How many columns u has in all, its run axes folded in."""
    return math.prod(like.shape[:-2]) * like.shape[-1]


def check_vectors(name: str, u: Array, n: int) -> None:
    """TypeError or ValueError unless `u` is a floating-point array (..., n, d)."""
    array_namespace(u)
    arguments.same_kind(**{name: u})
    if u.ndim < 2 or u.shape[-2] != n:
        raise ValueError(f"{name}: shape {tuple(u.shape)} given, needed (..., {n}, d): one row per client")


def check_network(net: Network) -> Network:
    """TypeError unless `net` is a network."""
    if not isinstance(net, Network):
        raise TypeError(f"net: needed a network of hgp_ref.networks, got {type(net).__module__}.{type(net).__name__}")
    return net
