"""P = W_{t+S} ... W_{t+1} for each of several successive calls, as dense matrices on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from hgp_ref._kernels.compose import DENSE_SPEEDUP, compose, count_messages
from hgp_ref.networks import Network

CHUNK_BYTES = 2**20  # matrices drawn at once before they are multiplied: they stay in a cache


def products(net: Network, step: int, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """P (calls, n, n) and messages (calls,) of calls of `steps` graphs each, the first of them graph step + 1."""
    parts = []
    for S, group in groupby(steps):
        calls = len(list(group))
        swept = net.products(step + 1, calls, S)
        parts.append(_multiplied(net, step, calls, S) if swept is None else swept)
        step += calls * S
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([P for P, _ in parts]), np.concatenate([messages for _, messages in parts])


def _multiplied(net: Network, step: int, calls: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """A network that never changes is composed once."""
    n, distinct = net.n, 1 if net.period == 1 else calls
    P, messages = np.empty((calls, n, n)), np.empty(calls, dtype=np.int64)
    for part, W, _ in chunks(net, step, (S,) * distinct):
        P[part], messages[part] = compose(W, S, net.expected_edges), count_messages(W, S)
    P[distinct:], messages[distinct:] = P[0], messages[0]
    return P, messages


def chunks(net: Network, step: int, steps: Sequence[int]) -> Iterator[tuple[slice, np.ndarray, int]]:
    """Which calls, W of all their graphs, and the S that they share: CHUNK_BYTES of W at a time, at least one call."""
    call = 0
    for S, group in groupby(steps):
        end, most = call + len(list(group)), max(1, CHUNK_BYTES // (8 * S * net.n**2))
        while call < end:
            calls = min(most, end - call)
            yield slice(call, call + calls), net.mixing_matrices(step + 1, calls * S), S
            call, step = call + calls, step + calls * S


def composing_pays(net: Network, steps: int, columns: int) -> bool:
    """Whether one product per call is cheaper than stepping.

    With E edges a step and d columns, composing first costs S n² + (S-1) n min(E, n²/8) on the host and n² d / 8 on the
    vectors, stepping costs S E d. Up to 32 clients composing is taken in any case: there the calls themselves cost
    more than what they compute.
    """
    n, edges = net.n, net.expected_edges
    dense = n * n / DENSE_SPEEDUP
    return n <= 32 or steps * n * n + (steps - 1) * n * min(edges, dense) + dense * columns <= steps * edges * columns
