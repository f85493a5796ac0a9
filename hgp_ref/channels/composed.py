"""Calls whose graphs are multiplied first: z meets one (n, n) matrix a call, whatever the number of steps.

The products of many calls are prepared on the host in float64, divided by the weights they give, and taken to the
device of z in one transfer. Several channels along a run axis are one stack of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref.backend import Array, from_host, host_dtype
from hgp_ref.channels.base import BALANCED, FRESH
from hgp_ref.channels.calls import ForeseenCalls, Rules, Steps, check_balanced, check_heard


class ComposedCalls(ForeseenCalls):
    """Calls of one channel, P (calls, n, n), or of several, P (calls, runs, n, n); omega (..., n) before the first."""

    def __init__(
        self,
        P: np.ndarray,
        messages: np.ndarray,
        omega: np.ndarray,
        steps: Sequence[Steps],
        weights: Rules,
        like: Array,
        divide: bool,
        name: str,
    ) -> None:
        super().__init__(steps, weights, like, divide)
        self.messages = messages
        self.after = _following(P, weights, omega, steps, name)  # (calls, [runs,] n)
        K = P / self.after[..., None] if divide and weights is not BALANCED else P
        self._K = from_host(np.ascontiguousarray(self.here(K), dtype=host_dtype(like)), like=like)

    def here(self, K: np.ndarray) -> np.ndarray:
        """What of the matrices (calls, ..., n, n) serves the clients in this process."""
        return K

    def __call__(self, z: Array) -> Array:
        K = self._K[self.used, ...]
        self.used += 1
        return K @ z


def _following(P: np.ndarray, weights: Rules, omega: np.ndarray, steps: Sequence[Steps], name: str) -> np.ndarray:
    """ω after each call: P 1, P times ω of the call before, or 1 where no weights travel."""
    if isinstance(weights, tuple) and set(weights) == {FRESH}:
        after = P.sum(axis=-1)  # all runs at once
        check_heard(after, name)
        return after
    if isinstance(weights, tuple):
        each = zip(weights, zip(*steps, strict=True), omega, strict=True)
        return np.stack([_following(P[:, r], rule, om, S, name) for r, (rule, S, om) in enumerate(each)], axis=1)
    after = P.sum(axis=2)
    if weights is BALANCED:
        check_balanced(after, int(np.max(steps)), name)
        return np.ones_like(after)
    if weights != FRESH:
        for c in range(P.shape[0]):
            omega = after[c] = P[c] @ omega
    check_heard(after, name)
    return after
