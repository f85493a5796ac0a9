"""Averaging by repeated mixing, what Push-Sum and Gossip share: composed or stepping, by a stated rule."""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref._kernels.compose import DENSE_SPEEDUP, compose, count_messages
from hgp_ref.averaging.base import BLOCK_BYTES, Averaging, check_network, columns
from hgp_ref.averaging.blocks import Block, DeviceSteppingBlock, HostSteppingBlock, MatrixBlock
from hgp_ref.backend import Array, is_numpy
from hgp_ref.networks import Network

MODES = ("auto", "composed", "stepping")
CHUNK_BYTES = 2**20  # matrices drawn at once before they are multiplied: they stay in a cache


class Mixing(Averaging):
    """S steps of mixing matrices, P_m = W_{(m+1)S} ... W_{mS+1}.

    With E edges a step and d columns, composing first costs S n² + (S-1) n min(E, n²/8) on the host and n² d / 8 on the
    vectors, stepping costs S E d. mode="auto" takes the cheaper one: composed for few clients, stepping for many. Up
    to 32 clients it composes in any case: there the calls themselves cost more than what they compute.
    """

    debias = "reset"

    def __init__(self, net: Network, steps: int, mode: str) -> None:
        super().__init__()
        self.net: Network = check_network(net)
        self.n, self.steps = net.n, arguments.integer("steps", steps)
        self.mode = arguments.choice("mode", mode, MODES)

    def composes(self, columns: int) -> bool:
        if self.mode != "auto":
            return self.mode == "composed"
        n, S, E = self.n, self.steps, self.net.expected_edges
        dense = n * n / DENSE_SPEEDUP
        return S * n * n + (S - 1) * n * min(E, dense) + dense * columns <= S * E * columns or n <= 32

    def block_size(self, like: Array) -> int:
        if self.composes(columns(like)):
            return super().block_size(like)
        if is_numpy(like):
            return 64
        return max(1, min(64, BLOCK_BYTES // (32 * self.steps * int(self.net.expected_edges))))

    def prepare(self, first: int, count: int, like: Array) -> Block:
        if self.composes(columns(like)):
            return MatrixBlock(*self.matrices(first, count), like)
        omega = self._weights_before(first)
        if is_numpy(like):
            return HostSteppingBlock(self.net, self.steps, first, omega, self.debias)
        return DeviceSteppingBlock(self.net, self.steps, first, count, omega, self.debias, like)

    def matrices(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        P, messages = self._products(first, count)
        K, restart = self._debiased(first, P)
        return K, restart, messages

    def _products(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """P_m and messages of calls first .. first+count-1; a network that never changes is composed once."""
        distinct = 1 if self.net.period == 1 else count
        S, most = self.steps, max(1, CHUNK_BYTES // (8 * self.steps * self.n * self.n))
        P, messages = np.empty((count, self.n, self.n)), np.empty(count, dtype=np.int64)
        for c in range(0, distinct, most):
            part = slice(c, min(c + most, distinct))
            W = self.net.mixing_matrices((first + c) * S + 1, (part.stop - c) * S)
            self._check_matrices(W, (first + c) * S + 1)
            P[part], messages[part] = compose(W, S, self.net.expected_edges), count_messages(W, S)
        P[distinct:], messages[distinct:] = P[0], messages[0]
        return P, messages

    def _check_matrices(self, W: np.ndarray, first_step: int) -> None:
        """What the averaging demands of the matrices beyond column-stochastic; the base demands nothing."""

    def _debiased(self, first: int, P: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """K_m (count, n, n) and the weights that the next iterate restarts from, (count, n) or None."""
        return P, None

    def _weights_before(self, first: int) -> np.ndarray | None:
        """ω before call `first`, None where nothing divides."""
        return None
