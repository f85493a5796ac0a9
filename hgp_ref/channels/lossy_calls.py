"""A call over unreliable links, step by step, on arrays of any library."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hgp_ref._kernels.lists import Csr
from hgp_ref._kernels.mixing import padded_rows, pull_step, pull_vector_step
from hgp_ref.backend import Array, array_namespace, device, from_host, host_dtype, is_numpy
from hgp_ref.channels.base import CARRIED, Weights
from hgp_ref.channels.calls import PreparedCalls, check_heard, weights_before
from hgp_ref.channels.deliveries import Underway, deliveries
from hgp_ref.networks import Unreliable

PAST_BYTES = 16 * 2**20  # of past rows that are kept at once; what is then still under way is added up by edge
PAST_STEPS = 32


class Mail:
    """What is under way between two calls: `entries`, their weights (k,) in float64, and rows (..., k, d) like z.

    Without `rows` they are zero: weights went over the links, but no vectors.
    """

    def __init__(self, entries: Underway, omega: np.ndarray, rows: Array | None = None) -> None:
        self.entries, self.omega, self.rows = entries, omega, rows

    @staticmethod
    def nothing() -> Mail:
        return Mail(Underway.nothing(), np.empty(0))

    def weights_alone(self) -> Mail:
        return Mail(self.entries, self.omega)

    @property
    def holds_rows(self) -> bool:
        """Whether vectors are among it, so that the next call must be one of the same shape."""
        return self.rows is not None and self.omega.size > 0

    def rows_like(self, z: Array) -> Array:
        if self.rows is None or not self.holds_rows:
            xp = array_namespace(z)
            return xp.zeros((*z.shape[:-2], self.omega.size, z.shape[-1]), dtype=z.dtype, device=device(z))
        check_shape(z.shape, self.rows.shape)
        return self.rows


def check_shape(shape: Sequence[int], before: Sequence[int]) -> None:
    """ValueError unless arrays of these shapes (..., n, d) agree in run axes and columns."""
    if (*shape[:-2], shape[-1]) != (*before[:-2], before[-1]):
        raise ValueError(
            f"z: shape {tuple(shape)} given, needed that of the calls before, of which messages are still under "
            f"way with shape {tuple(before)}"
        )


class LossyCall(PreparedCalls):
    """One call of S steps after step `step`; omega (n,) and `mail` are as the call before has left them."""

    weights: Weights
    steps: Sequence[int]

    def __init__(
        self,
        net: Unreliable,
        step: int,
        omega: np.ndarray,
        mail: Mail,
        steps: int,
        weights: Weights,
        like: Array,
        divide: bool,
        robust: bool,
    ) -> None:
        super().__init__((steps,), weights, like, divide)
        self.net, self._step, self.robust = net, step, robust
        carried = weights == CARRIED
        self._omega, self.mail = weights_before(weights, omega), mail if carried else Mail.nothing()
        self.mass = float(self._omega.sum() + self.mail.omega.sum())  # of the weights before the call
        self.messages: list[int] = []

    def __call__(self, z: Array) -> Array:
        end, sent = self._step + self.steps[0], 0
        most = max(1, min(PAST_STEPS, PAST_BYTES // max(1, math.prod(z.shape) * host_dtype(z).itemsize)))
        while self._step < end:
            steps = min(most, end - self._step)
            plan = deliveries(self.net, self._step + 1, steps, self.robust, self.mail.entries)
            weights = _weights(plan.rows, plan.left_rows, np.concatenate([self.mail.omega, self._omega]), self.net.n)
            mixed = _host_rows if is_numpy(z) else _device_rows
            z, rows = mixed(plan.rows, plan.left_rows, self.mail.rows_like(z), z)
            self._omega, self.mail = weights[0], Mail(plan.left, weights[1], rows)
            self._step += steps
            sent += plan.messages
        self.lost = 1.0 - float(self._omega.sum() + (self.weights == CARRIED) * self.mail.omega.sum()) / self.mass
        if self.weights != CARRIED:
            self.mail = Mail.nothing()
        self.messages.append(sent)
        self.used += 1
        if not self.divide:
            return z
        check_heard(self._omega, repr(self.net))
        return z / self.weights_now()

    def weights_now(self) -> Array:
        return from_host(self._omega.astype(host_dtype(self.like))[:, None], like=self.like)

    @property
    def omega(self) -> np.ndarray:
        return self._omega


def _weights(rows: list[Csr], left: Csr, omega: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """ω after the steps, and that of what is left under way; omega holds what was under way, then the clients'."""
    for graph in rows:
        omega = np.concatenate([omega, pull_vector_step(*graph, omega)])
    return omega[-n:], pull_vector_step(*left, omega)


def _host_rows(rows: list[Csr], left: Csr, waiting: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for rows of NumPy arrays (..., k, d); leading axes join the columns."""
    n, k = z.shape[-2], waiting.shape[-2]
    shape = (*z.shape[:-2], -1, z.shape[-1])
    columns = int(np.prod(z.shape[:-2], dtype=np.int64)) * z.shape[-1]
    past = np.empty((k + (len(rows) + 1) * n, columns), dtype=z.dtype)
    past[:k], past[k : k + n] = (np.moveaxis(a, -2, 0).reshape(a.shape[-2], columns) for a in (waiting, z))
    for t, graph in enumerate(rows):
        end = k + (t + 1) * n
        pull_step(*graph, past[:end], past[end : end + n])
    kept = np.empty((left[0].size - 1, columns), dtype=z.dtype)
    pull_step(*left, past, kept)
    last = past[-n:].copy()

    def unfold(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a.reshape(len(a), *shape[:-2], shape[-1]), 0, -2)

    return unfold(last), unfold(kept)


def _device_rows(rows: list[Csr], left: Csr, waiting: Array, z: Array) -> tuple[Array, Array]:
    """The same on any library: take and add."""
    xp = array_namespace(z)
    past = xp.concat([waiting, z], axis=-2) if waiting.shape[-2] else z
    for graph in rows:
        z = _pulled(graph, past)
        past = xp.concat([past, z], axis=-2)
    return z, _pulled(left, past)


def _pulled(graph: Csr, past: Array) -> Array:
    xp, widths = array_namespace(past), np.diff(graph[0])
    width = int(widths.max(initial=0))
    if not width:
        return xp.zeros_like(past[..., : widths.size, :])
    senders, shares = padded_rows(*graph, width)
    taken, share = from_host(senders, like=past), from_host(shares.astype(host_dtype(past)), like=past)
    total = xp.zeros_like(past[..., :1, :])
    for e in range(width):
        total = total + share[:, e][:, None] * xp.take(past, taken[:, e], axis=-2)
    return total
