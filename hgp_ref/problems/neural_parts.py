"""Clients of a neural problem in parts that fit in memory: equal numbers of instances, a stated number of bytes.

Activations of all clients at once may be far larger than their parameters. So every pass goes through runs of
neighbouring clients whose activations take CHUNK_BYTES at most (always one client at least), and a linearization keeps
activations between products only where those of all clients together take KEEP_BYTES at most; otherwise it makes them
again for each product. On NumPy as many parts are worked on at once as there may be threads, and share CHUNK_BYTES.
Arrays stay where they are.

A part has clients with equally many instances and no padding behind them, so that what a client computes does not
depend on how many instances others have. On NumPy the same holds for a mini-batch whose padding comes last; elsewhere,
where looking at a batch would stop the device, its padding is computed with weight zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hgp_ref import threads
from hgp_ref.backend import Array, Namespace, array_namespace, host_dtype, is_numpy
from hgp_ref.neural import Ensemble, Sequential
from hgp_ref.problems.instances import Instances, View

CHUNK_BYTES = 2**28  # activations of the clients that are worked on at once
KEEP_BYTES = 2**31  # activations that a linearization keeps

Model = Sequential | Ensemble


@dataclass(frozen=True)
class Part:
    """Neighbouring clients with equally many instances."""

    clients: slice
    view: View  # of these clients, without padding
    images: Array  # (n, N, *input_shape)


class Parts:
    """All clients of a view, part by part."""

    def __init__(self, model: Model, instances: Instances, view: View) -> None:
        self._model, self._view, self._xp = model, view, array_namespace(view.features)
        self._widths = _widths(instances, view)  # (n,) instances of each client
        self._itemsize = host_dtype(view.features).itemsize
        numbers = int(self._widths.sum()) * model.numbers(kept=False)
        worth = is_numpy(view.features) and numbers >= 2 * threads.GRAIN
        self._at_once = threads.limit() if worth else 1  # parts that are worked on at the same time

    def __iter__(self) -> Iterator[Part]:
        start, n = 0, len(self._widths)
        one = self._model.numbers(kept=False) * self._itemsize
        while start < n:
            width = int(self._widths[start])
            most = max(1, CHUNK_BYTES // (one * width * self._at_once))
            stop = start + 1
            while stop < min(n, start + most) and self._widths[stop] == width:
                stop += 1
            yield self._part(slice(start, stop), width)
            start = stop

    def each(self, work: Callable[[int, Part], object]) -> None:
        """work(k, part) for every part, on NumPy several at once: what `work` writes is the part's own."""
        if self._at_once == 1:
            for k, part in enumerate(self):
                work(k, part)
        else:
            threads.each(lambda numbered: work(*numbered), enumerate(self))

    def fit(self) -> bool:
        """Whether what tapes and adjoints of all parts keep fits KEEP_BYTES."""
        return int(self._widths.sum()) * self._model.numbers() * self._itemsize <= KEEP_BYTES

    def _part(self, clients: slice, width: int) -> Part:
        view = self._view
        index = None if view.index is None else view.index[clients, :width]
        own = View(
            view.features[clients, :width, :], view.targets[clients, :width, :], view.mean[clients, :width], None
        )
        own.index = index
        n = clients.stop - clients.start
        images = self._xp.reshape(own.features, (n, width, *self._model.input_shape))
        return Part(clients, own, images)


def _widths(instances: Instances, view: View) -> np.ndarray:
    """How many leading instances of each client count."""
    n, longest = view.features.shape[:2]
    if view.index is None:
        return instances.counts
    if not is_numpy(view.mean):
        return np.full(n, longest)
    used = view.mean != 0  # NaN, of an index out of range, counts
    return np.where(used.any(axis=1), longest - np.argmax(used[:, ::-1], axis=1), 1)


class Rows:
    """An array (n, ...) put together from the rows of parts; on NumPy it is made first and filled in place."""

    def __init__(self, shape: tuple[int, ...], like: Array) -> None:
        self._whole = np.empty(shape, dtype=like.dtype) if is_numpy(like) else None
        self._parts: list[Array] = []

    def out(self, clients: slice) -> Array | None:
        """Where the rows of these clients may be written; None where arrays cannot be."""
        return None if self._whole is None else self._whole[clients]

    def put(self, clients: slice, rows: Array) -> None:
        """The rows of these clients, which follow those put before."""
        if self._whole is None:
            self._parts.append(rows)
        elif not np.may_share_memory(rows, self._whole):
            self._whole[clients] = rows

    def array(self, xp: Namespace) -> Array:
        """All rows."""
        if self._whole is not None:
            return self._whole
        return self._parts[0] if len(self._parts) == 1 else xp.concat(self._parts, axis=0)


def weighted(mean: Array, each: Array) -> Array:
    """mean_ik each_ik.  # like each"""
    return mean[(...,) + (None,) * (each.ndim - 2)] * each


def add_scaled(total: Array, factor: float, x: Array) -> Array:
    """total + factor x, for a `total` that nobody else holds."""
    if factor == 0:
        return total
    if is_numpy(total):
        total += factor * x
        return total
    return total + factor * x
