"""The ranks of a communicator, as everything in this folder talks to them.

One duplicate of the caller's communicator serves all networks that are spread over it, so that messages never meet
the caller's own, and ranks that ask for different things find out at once: what is collected from all ranks begins with
a comparison of what each believes it is about (`agree`). A mismatch is the same ValueError on every rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.mpi import library
from hgp_ref.mpi.failure import at_the_end, end_together, not_at_the_end
from hgp_ref.mpi.one_thread import OneThread
from hgp_ref.results import Result
from hgp_ref.texts import without_addresses

SPINS = 200  # looks in a row before the processor is offered to others
HURRY = 0.001  # seconds of waiting after which a rank sleeps between two looks
NAP = 2e-5
LOOK = 0.1  # seconds of waiting between two looks whether somebody has left
PATIENCE = 600.0  # seconds
SHOWN = 300  # characters of a setting that a message shows


@dataclass(frozen=True)
class Handed(Result):
    """What one rank has handed to MPI since its network was spread: rows to other ranks, and what all ranks collect.

    By rows, a message holds all those of one step for one rank, each client's once however many hear it there; by
    columns (`mpi.by_columns`), a strip of all its clients' rows, there and back once a call. Push-Sum's weights are not
    among them: they are a function of the graphs, which every rank draws for itself.

    Attributes
    ----------
    messages : between ranks.
    rows : clients' rows in them, or parts of these.
    bytes : bytes in them.
    collected_bytes : for maxima and means over all clients, agreement and `gather`.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD)
    >>> _ = hgp.PushSum(net, steps=3).apply(np.ones((6, 2)))
    >>> net.handed.messages  # one process hands nothing over
    0
    """

    messages: int = 0
    rows: int = 0
    bytes: int = 0
    collected_bytes: int = 0


class Ranks:
    """A communicator of its own over the processes of `comm`, and another one to say that a rank has left.

    patience : seconds that a rank waits for the others before it gives up with a TimeoutError.
    """

    def __init__(self, comm: Any, patience: float) -> None:
        self.MPI = library.load()
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.patience = patience
        self.waited = 0.0  # seconds of processor time spent waiting
        self._thread = OneThread(self.rank)
        self.handed = Handed()
        if self.size > 1:
            end_together(self.MPI.COMM_WORLD)
        self.departures: Any = None
        self._comm, self.departures = (self._duplicate(comm) for _ in range(2))
        if self.size > 1:
            at_the_end(self.leave)

    @property
    def comm(self) -> Any:
        """The communicator, for the thread that may use it now; RuntimeError where two do at a time."""
        self._thread.check()
        return self._comm

    def free(self) -> None:
        """The communicators are no longer needed."""
        self._comm.Free()
        self.departures.Free()

    def _duplicate(self, comm: Any) -> Any:
        other, request = comm.Idup()
        self.wait([request], "hgp.mpi.spread")
        return other

    def count(self, messages: int = 0, rows: int = 0, nbytes: int = 0, collected: int = 0) -> None:
        """Add to what was handed to MPI."""
        h = self.handed
        self.handed = Handed(h.messages + messages, h.rows + rows, h.bytes + nbytes, h.collected_bytes + collected)

    def wait(self, requests: Sequence[Any], what: str, whom: Sequence[int] | None = None) -> None:
        """Until all `requests` are done. In Python, so that Ctrl-C is heard; polite where cores are shared.

        `whom`: the other rank of each request; None where all ranks take part in it.
        """
        done = self.MPI.Request.Testall
        pending = list(requests)
        if not pending or done(pending):
            return
        started, busy = time.monotonic(), time.process_time()
        looks, look_again = 0, LOOK
        while not done(pending):
            looks += 1
            if looks < SPINS:
                continue
            waiting = time.monotonic() - started
            if waiting > look_again:
                look_again = waiting + LOOK
                self._thread.check()
                self._still_there(pending, whom, what)
            if waiting > self.patience:
                raise TimeoutError(
                    f"rank {self.rank} of {self.size} has waited {waiting:.0f} s for other ranks in {what}: do all of "
                    "them ask for the same things in the same order? (patience of hgp.mpi.spread is "
                    f"{self.patience:g} s)"
                )
            if waiting > HURRY:
                time.sleep(NAP)
            else:
                os.sched_yield()
        self.waited += time.process_time() - busy

    def _still_there(self, pending: Sequence[Any], whom: Sequence[int] | None, what: str) -> None:
        """RuntimeError if a rank that is waited for has ended its program."""
        status = self.MPI.Status()
        if self.departures is None or not self.departures.Iprobe(status=status):
            return
        gone = status.Get_source()
        left = range(len(pending)) if whom is None else [k for k, q in enumerate(whom) if q == gone]
        if any(not pending[k].Get_status() for k in left):
            raise RuntimeError(
                f"rank {gone} has ended its program, by sys.exit or at its end, while rank {self.rank} of {self.size} "
                f"waits for it in {what}: needed all ranks to do the same"
            )
        self.departures.Recv(np.empty(0, np.uint8), gone)  # it has done its part

    def leave(self, until: float) -> None:
        """At the end of the program: go together, or tell those who are late that this rank is gone."""
        if self.MPI.Is_finalized():
            return
        all_here = self.departures.Ibarrier()
        while not all_here.Test():
            if time.monotonic() > until:
                nothing = np.empty(0, np.uint8)
                self.farewells = [self.departures.Isend(nothing, q) for q in range(self.size) if q != self.rank]
                return
            time.sleep(HURRY)
        status = self.MPI.Status()
        while self.departures.Iprobe(status=status):  # of those who had to wait long
            self.departures.Recv(np.empty(0, np.uint8), status.Get_source())

    def agree(self, what: str, settings: Mapping[str, object]) -> None:
        """ValueError on every rank, with what differs, unless all ranks give the same settings for the same thing."""
        text = json.dumps({"asked for": what, **{name: _told(value) for name, value in settings.items()}})
        digest = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype=np.uint8)
        sizes = np.array([len(text.encode())], dtype=np.int64)
        own = np.concatenate([digest, sizes.view(np.uint8)])
        every = np.empty((self.size, own.size), dtype=np.uint8)
        self.wait([self.comm.Iallgather(own, every)], what)
        self.count(collected=own.nbytes)
        if (every[:, : digest.size] == digest).all():
            return
        counts = every[:, digest.size :].copy().view(np.int64)[:, 0]
        texts = self._concatenated(np.frombuffer(text.encode(), dtype=np.uint8), counts, what)
        ends = np.cumsum(counts)
        told = [json.loads(bytes(texts[end - count : end]).decode()) for end, count in zip(ends, counts, strict=True)]
        raise ValueError(f"ranks disagree: {differences(told)}")

    def collect(self, a: np.ndarray, counts: Iterable[int], what: str) -> np.ndarray:
        """The rows of `a` (rows, k) of all ranks, one after the other; rank q has counts[q] rows."""
        self.agree(what, {"dtype": a.dtype, "columns": a.shape[1:]})
        width = a.dtype.itemsize * int(np.prod(a.shape[1:], dtype=np.int64))
        sizes = np.array(list(counts), dtype=np.int64)
        flat = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        return self._concatenated(flat, sizes * width, what).view(a.dtype).reshape(int(sizes.sum()), *a.shape[1:])

    def one_each(self, row: np.ndarray, what: str) -> np.ndarray:
        """The rows (k,) of all ranks, (ranks, k)."""
        return self.collect(row[None], [1] * self.size, what)

    def _concatenated(self, own: np.ndarray, counts: np.ndarray, what: str) -> np.ndarray:
        """The bytes of all ranks, one after the other; rank q has counts[q]."""
        begins = np.cumsum(counts) - counts
        every = np.empty(int(counts.sum()), dtype=np.uint8)
        request = self.comm.Iallgatherv([own, self.MPI.BYTE], [every, (counts, begins), self.MPI.BYTE])
        self.wait([request], what)
        self.count(collected=own.nbytes)
        return every


def differences(told: Sequence[Mapping[str, str]]) -> str:
    """In which settings which ranks differ from rank 0, in words."""
    parts = []
    if len({one["asked for"] for one in told}) > 1:
        told = [{"asked for": one["asked for"]} for one in told]  # their settings are of different things
    for name in dict.fromkeys(name for one in told for name in one):
        values: dict[str, list[int]] = {}
        for rank, one in enumerate(told):
            values.setdefault(one.get(name, "nothing"), []).append(rank)
        if len(values) > 1:
            each = (f"{_cut(value)} on {_ranks(which)}" for value, which in values.items())
            parts.append(f"{name}: " + ", ".join(each))
    return "; ".join(parts) + "; needed the same on every rank"


def _told(value: object) -> str:
    """In words that are the same in every process: without the addresses of objects that have no words of their own."""
    if isinstance(value, np.ndarray) and value.size > 8:
        digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"{value.dtype} {value.shape} from {value.flat[0]} on, {digest}"
    return without_addresses(str(value))


def _cut(value: str) -> str:
    return value if len(value) <= SHOWN else value[:SHOWN] + " …"


def _ranks(which: Sequence[int]) -> str:
    few = ", ".join(map(str, which[:5])) + (f" and {len(which) - 5} more" if len(which) > 5 else "")
    return f"rank{'s' if len(which) > 1 else ''} {few}"


def ranks_of(comm: Any, patience: float | None = None) -> Ranks:
    """The ranks of the caller's communicator, the same object whenever it is asked for; the first time all must ask."""
    MPI = library.load()
    if isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL:
        raise ValueError("comm: COMM_NULL given, needed a communicator that this process belongs to")
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm: {type(comm).__name__} given, needed an intracommunicator of mpi4py such as COMM_WORLD")
    if not _key:
        _key.append(MPI.Comm.Create_keyval(delete_fn=_released))
    known = comm.Get_attr(_key[0])
    if known is None:
        known = Ranks(comm, PATIENCE if patience is None else patience)
        comm.Set_attr(_key[0], known)
    elif patience is not None:
        known.patience = patience
    return known


_key: list[int] = []  # under which a communicator remembers its ranks


def _released(comm: Any, key: int, ranks: Ranks) -> None:
    """The caller frees its communicator: ours go with it."""
    not_at_the_end(ranks.leave)
    ranks.free()
