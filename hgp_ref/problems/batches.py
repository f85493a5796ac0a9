"""Mini-batches as a pure function of (seed, step, client, stream), by Philox counters.

Without replacement a batch is the first b entries of a Fisher-Yates shuffle of 0 .. N_i − 1, so every ordered choice
of b instances is equally likely (up to N_i / 2^64). With replacement the b entries are independent. An epoch is the
whole shuffle, in a stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref._numba import njit
from hgp_ref.backend import Array, from_host
from hgp_ref.philox import BATCHES, EPOCHS, MAX_CLIENTS, MAX_STEP, below, check_seeds, key, philox4x32, step_counter
from hgp_ref.problems.base import FullProblem
from hgp_ref.results import Result
from hgp_ref.validation import Boolean, Integer, check_memory, checked


@checked(
    size=Integer(1, 2**31 - 1),
    first=Integer(0, MAX_STEP),
    count=Integer(0, MAX_STEP),
    stream=Integer(0, 127),
    replace=Boolean(),
)
def sample_batches(counts: Sequence[int] | np.ndarray, size: int, seed: int, first: int, count: int, stream: int = 0,
                   replace: bool = False, *,
                   clients: Sequence[int] | np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Instance indices of the mini-batches of steps first .. first + count − 1; steps are numbered from 0.

    Without replacement b = min(size, max counts). A client with at most `size` instances uses all of them, in order,
    padded with −1. With replacement b = size. The batch of a step does not depend on `first` and `count`, and streams
    are independent of each other.  # (count, n, b) int64

    Parameters
    ----------
    counts : (n,), the instances of each client.
    size : b.
    seed, stream : select the sequence of batches.
    clients : (n,), the numbers of the clients, by default 0 .. n−1. A client draws the same whichever other clients
        there are, so the clients of a restricted problem (`problem.clients`) draw what they draw in the whole one.

    Examples
    --------
    >>> hgp.problems.sample_batches([5, 5], size=2, seed=0, first=0, count=3).shape
    (3, 2, 2)
    """
    counts = _check_counts(counts)
    validation.integer("count", count, 0, MAX_STEP - first)
    width = size if replace else min(size, int(counts.max()))
    check_memory(f"size={size}, count={count}", count * len(counts) * width)
    out = np.full((count, len(counts), width), -1, dtype=np.int64)
    k0, k1 = key(seed)
    numbers = _check_numbers(clients, len(counts))
    if replace:
        _draw(out, counts, numbers, first, BATCHES + stream, k0, k1)
    else:
        _shuffle(out, counts, numbers, first, BATCHES + stream, k0, k1, True)
    return out


@checked(first=Integer(0, MAX_STEP), count=Integer(0, MAX_STEP))
def sample_epochs(counts: Sequence[int] | np.ndarray, seed: int, first: int, count: int, *,
                  clients: Sequence[int] | np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Every instance of every client once, in random order, for epochs first .. first + count − 1, numbered from 0.

    Row i of an epoch is a permutation of 0 .. counts[i] − 1 followed by −1. It is a pure function of (seed, epoch,
    number of the client), and all orders are equally likely. `clients` as in `sample_batches`.
    # (count, n, max counts) int64

    Examples
    --------
    >>> hgp.problems.sample_epochs([3, 2], seed=0, first=0, count=1).shape
    (1, 2, 3)
    >>> bool((np.sort(hgp.problems.sample_epochs([3, 2], 0, 5, 1)[0, 0]) == np.arange(3)).all())
    True
    """
    counts = _check_counts(counts)
    validation.integer("count", count, 0, MAX_STEP - first)
    check_memory(f"count={count}", count * len(counts) * int(counts.max()))
    out = np.full((count, len(counts), int(counts.max())), -1, dtype=np.int64)
    k0, k1 = key(seed)
    _shuffle(out, counts, _check_numbers(clients, len(counts)), first, EPOCHS, k0, k1, False)
    return out


def _check_counts(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    counts = validation.host_array("counts", counts)
    if counts.ndim != 1 or len(counts) < 1 or not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(f"counts must be (n,) integers, got shape {counts.shape} of {counts.dtype}")
    for i in np.flatnonzero((counts < 1) | (counts >= 2**32))[:1]:
        raise ValueError(f"counts must be >= 1 and < 2**32, got {counts[i]} for client {i}")
    return np.ascontiguousarray(counts, dtype=np.int64)


def _check_numbers(clients: Sequence[int] | np.ndarray | None, n: int) -> np.ndarray:
    """The numbers of the clients, which are part of the Philox counter."""
    if clients is None:
        return np.arange(n, dtype=np.int64)
    numbers = validation.host_array("clients", clients)
    if numbers.shape != (n,) or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"clients must be ({n},) integers, got shape {numbers.shape} of {numbers.dtype}")
    for number in numbers[(numbers < 0) | (numbers >= MAX_CLIENTS)][:1]:
        raise ValueError(f"clients must be numbers from 0 to {MAX_CLIENTS - 1}, got {number}")
    return np.ascontiguousarray(numbers, dtype=np.int64)


@njit(cache=True, nogil=True, inline="always")
def _random64(draw, client, c2, c3, k0, k1):
    """Number `draw` of a client's random 64-bit integers at a step, as (high, low); a Philox block has two."""
    w0, w1, w2, w3 = philox4x32(draw // 2, client, c2, c3, k0, k1)
    if draw % 2 == 0:
        return w0, w1
    return w2, w3


@njit(cache=True, nogil=True)
def _draw(out, counts, numbers, first, stream, k0, k1):
    for m in range(out.shape[0]):
        c2, c3 = step_counter(first + m, stream)
        for i in range(out.shape[1]):
            for k in range(out.shape[2]):
                hi, lo = _random64(k, numbers[i], c2, c3, k0, k1)
                out[m, i, k] = below(hi, lo, counts[i])


@njit(cache=True, nogil=True)
def _shuffle(out, counts, numbers, first, stream, k0, k1, small_in_order):
    """The first b entries of a shuffle; with `small_in_order`, clients with at most b instances take them in order."""
    deck = np.arange(counts.max())  # swaps are undone after each batch, so a batch costs O(b), not O(N)
    swaps = np.empty(out.shape[2], dtype=np.int64)
    for m in range(out.shape[0]):
        c2, c3 = step_counter(first + m, stream)
        for i in range(out.shape[1]):
            b = min(out.shape[2], counts[i])
            if small_in_order and b == counts[i]:
                for k in range(b):
                    out[m, i, k] = k
                continue
            for k in range(b):
                hi, lo = _random64(k, numbers[i], c2, c3, k0, k1)
                j = k + np.int64(below(hi, lo, counts[i] - k))
                deck[k], deck[j] = deck[j], deck[k]
                swaps[k] = j
                out[m, i, k] = deck[k]
            for k in range(b - 1, -1, -1):
                j = swaps[k]
                deck[k], deck[j] = deck[j], deck[k]


# Epochs ---------------------------------------------------------------------------------------------------------------


Step = tuple[Array | None, Array | None]  # the mini-batch, and the active clients, (n, 1) booleans; None: all


class Epochs:
    """The steps of each epoch of `problem` in batches of `size` (None: one step on all instances).

    Client i takes ⌈N_i / b⌉ steps per epoch, the last one with the remaining instances. Clients with fewer instances
    finish earlier and rest until the next epoch.
    """

    def __init__(self, problem: FullProblem, size: int | None, seed: int, like: Array, first: int = 0) -> None:
        self.problem, self.seed, self.like = problem, seed, like
        self.first = validation.integer("offset", first, 0, MAX_STEP)
        if size is not None:
            self.size = validation.integer("size", size, 1, 2**31 - 1)
            if problem.counts is None:
                raise ValueError(f"batches={size!r} needs a problem with `counts`, the number of instances per client")
        self.full = size is None

    def steps(self, epoch: int) -> Iterator[Step]:
        """The mini-batches of an epoch, numbered from 0, and the clients that still have instances."""
        if self.full or self.problem.counts is None:
            yield None, None
            return
        orders = sample_epochs(
            self.problem.counts, self.seed, self.first + epoch, 1, clients=self.problem.clients
        )  # (1, n, N)
        size, (_, n, longest) = min(self.size, orders.shape[2]), orders.shape
        number = -(-longest // size)
        padded = np.pad(orders[0], ((0, 0), (0, number * size - longest)), constant_values=-1)
        batches = np.moveaxis(padded.reshape(n, number, size), 1, 0)  # (number, n, b)
        prepared = self.problem.prepare_batches(np.ascontiguousarray(batches[:, None]), like=self.like)
        for k in range(number):
            active = batches[k, :, :1] >= 0  # (n, 1)
            yield prepared[k, 0], None if active.all() else from_host(active, like=self.like)


# Mini-batches of a run ------------------------------------------------------------------------------------------------


CHUNK_BYTES = 16 * 2**20  # indices drawn and moved to the device at once, at most, except for a single batch
MOST = 256  # batches drawn at once, at most


@checked(
    size=Integer(1, 2**31 - 1), replace=Boolean(), share=Boolean(), offset=Integer(0, MAX_STEP), full_jacobian=Boolean()
)
@dataclass(frozen=True)
class MiniBatches(Result):
    """Mini-batches of `size` instances of every client, drawn in each iteration by a counter-based generator.

    Parameters
    ----------
    size : instances per client. A client with fewer uses all of them.
    seed : selects the sequence of batches. Several seeds give one run each, along a leading run axis.
    replace : draw with replacement.
    share : use one batch for the Hessian and the Jacobian of an iteration, not two independent ones.
    offset : position of the first batch in its sequence, so that a run can continue where another one ended.
    full_jacobian : evaluate the Jacobian on full batches, once at the end of the run. This removes its sampling noise
        from the estimate; the noise in w remains.

    `share` and `full_jacobian` concern hyper-gradients only.

    Examples
    --------
    >>> hgp.MiniBatches(32, seed=1)
    MiniBatches(32, seed=1)
    """

    size: int
    seed: int | tuple[int, ...] = 0
    _: KW_ONLY
    replace: bool = False
    share: bool = False
    offset: int = 0
    full_jacobian: bool = False

    def __post_init__(self) -> None:
        seeds, several = check_seeds(self.seed)
        object.__setattr__(self, "seed", tuple(seeds) if several else seeds[0])

    @property
    def seeds(self) -> list[int]:
        """All seeds, one per run."""
        return list(self.seed) if isinstance(self.seed, tuple) else [self.seed]

    def __repr__(self) -> str:
        defaults = {"replace": False, "share": False, "offset": 0, "full_jacobian": False}
        changed = [f"{name}={getattr(self, name)}" for name in defaults if getattr(self, name) != defaults[name]]
        return f"MiniBatches({', '.join([str(self.size), f'seed={self.seed}', *changed])})"


def read_batches(batches: MiniBatches | int | None) -> MiniBatches | None:
    """The argument `batches` of public functions: None for full batches, a size, or `MiniBatches`."""
    if batches is None or isinstance(batches, MiniBatches):
        return batches
    if isinstance(batches, Integral) and not isinstance(batches, bool):
        return MiniBatches(validation.integer("batches", int(batches), 1, 2**31 - 1))
    raise TypeError(f"batches must be None, a size or hgp.MiniBatches(size, ...), got {batches!r}")


class BatchSampler:
    """The batches of a run: batch m = 0 .. total-1 of every client, in `streams` independent streams.

    With `runs` there is one batch per seed along a leading axis. Batches must be requested in order.
    """

    def __init__(self, problem: FullProblem, batches: MiniBatches, total: int, like: Array, *,
                 seeds: Sequence[int] | None = None, runs: bool = False, streams: int = 1) -> None:  # fmt: skip
        if problem.counts is None:
            raise ValueError(f"batches={batches!r} needs a problem with `counts`, the number of instances per client")
        self.counts = problem.counts
        self.seeds = batches.seeds if seeds is None else seeds
        self.problem, self.total, self.like = problem, total, like
        self.size, self.runs, self.streams, self.replace = batches.size, runs, streams, batches.replace
        self.first = validation.integer("offset", batches.offset, 0, MAX_STEP - total)
        drawn = streams * len(self.seeds) * problem.n_clients
        check_memory(f"size={self.size}", drawn * (self.size if self.replace else 1))
        numbers = drawn * min(self.size, int(problem.counts.max()))
        self._most = max(1, min(MOST, CHUNK_BYTES // (8 * numbers)))
        self._on_device = problem.device_batches(self.size, self.replace, like)
        self._begin, self._end = 0, 0  # the batches that are prepared
        self._prepared: Any = None

    def at(self, m: int) -> tuple[Array, ...]:
        """Batch m of each stream, in the form that the problem takes as `batch`."""
        if not self._begin <= m < self._end:
            self._begin, self._end = m, min(self.total, m + self._most)
            self._prepared = self._prepare(m, self._end - m)
        return tuple(self._prepared[m - self._begin, stream] for stream in range(self.streams))

    def _prepare(self, m: int, count: int) -> Any:
        """Batches m .. m + count − 1 of each stream, drawn by the device or moved to it; entry [k, stream] is one."""
        if self._on_device is not None:
            return self._on_device.draw(self.seeds, self.streams, self.first + m, count, self.runs)
        return self.problem.prepare_batches(self._draw(m, count), like=self.like)

    def _draw(self, m: int, count: int) -> np.ndarray:
        """Batches m .. m + count − 1 of each stream, drawn on the host.  # (count, streams, [runs,] n, b)"""
        clients, first = self.problem.clients, self.first + m

        def draw(seed: int, stream: int) -> np.ndarray:
            return sample_batches(self.counts, self.size, seed, first, count, stream, self.replace, clients=clients)

        drawn = [[draw(seed, stream) for seed in self.seeds] for stream in range(self.streams)]
        batches = np.moveaxis(np.asarray(drawn), 2, 0)  # (count, streams, runs, n, b)
        return batches if self.runs else batches[:, :, 0]
