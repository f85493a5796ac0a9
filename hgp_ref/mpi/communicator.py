"""mpi4py, imported where it is needed."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from hgp_ref.errors import PACKAGE
from hgp_ref.results import Result
from hgp_ref.validation import without_addresses, wrong_type


def load() -> Any:
    """The module mpi4py.MPI, which starts MPI where it is first asked for; ImportError names the extra."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            "hgp_ref.mpi needs mpi4py and an MPI library: pip install 'hgp_ref[mpi]' and, on a machine without one, "
            f"pip install mpich ({error})"
        ) from error
    except RuntimeError as error:  # mpi4py is there, but finds no libmpi
        raise ImportError(
            f"mpi4py finds no MPI library: load your cluster's, or pip install mpich ({error})"
        ) from error
    return MPI


# ----------------------------------------------------------------------------------------------------
# What ends one rank ends all: an exception that nobody catches aborts the whole job, with its message.
#
# MPI knows no exceptions. A rank that dies of one leaves the others waiting for messages that never come; here it
# prints
# its traceback with its number and calls MPI_Abort, upon which mpiexec ends every rank. An exception that the program
# catches is its own affair. Ctrl-C is an exception like others: no wait of this package is deaf to it (`Ranks.wait`).
#
# `sys.exit` is no such exception, nor is the end of a program. A rank that ends waits GRACE for the others and then
# tells
# them that it is gone; who waits for it ends all with that message (`Ranks.leave`).


INTERRUPTED = 130  # exit status of a program that Ctrl-C has ended
GRACE = 2.0  # seconds that a rank which has come to its end waits for the others
READING = 0.5  # seconds for mpiexec to read what a rank has said before it ends all: it forgets what it has not read
_installed: list[Any] = []  # the communicator on which all end together; at most one


def end_together(comm: Any) -> None:
    """From now on an uncaught exception on this rank ends all ranks; the same however often it is called."""
    if _installed:
        return
    _installed.append(comm)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            if before is sys.__excepthook__:
                sys.stderr.write(report(comm.rank, comm.size, kind, error, trace))
            else:
                before(kind, error, trace)
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(READING)
        finally:
            comm.Abort(INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = hook


def report(rank: int, size: int, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """The traceback, every line with the rank before it: lines of several ranks may meet on one terminal."""
    lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
    lines.append(f"this ends all {size} ranks")
    return "".join(f"[rank {rank}] {line}\n" for line in lines)


Farewell = Callable[[float], None]  # takes the time until which others may come
_farewells: list[Farewell] = []


def at_the_end(farewell: Farewell) -> None:
    """To be called when the program ends."""
    if not _farewells:
        atexit.register(_end, os.getpid())
    _farewells.append(farewell)


def not_at_the_end(farewell: Farewell) -> None:
    """No longer."""
    if farewell in _farewells:
        _farewells.remove(farewell)


def _end(process: int) -> None:
    until = time.monotonic() + GRACE
    for farewell in _farewells if os.getpid() == process else ():  # not in a copy that was forked
        farewell(until)


# ----------------------------------------------------------------------------------------------------
# One thread at a time: messages of two threads of a rank over one communicator would be taken for each other.
#
# Ranks match their messages by order. Two threads that each make a run over distributed networks post theirs in an
# order
# that differs from rank to rank, which looks like ranks that disagree, or like wrong sizes. Threads that take turns are
# fine: another one may begin once no function of the package is running in the one before.


class OneThread:
    """Raises a RuntimeError in every thread that uses the ranks, once two have done so at a time."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._lock = threading.Lock()
        self._user: threading.Thread | None = None  # the last one
        self._fault = ""

    def check(self) -> None:
        """To be called before anything is sent, and while something is waited for."""
        this = threading.current_thread()
        if self._user is this and not self._fault:
            return
        with self._lock:
            if not self._fault and self._user is not None and self._user is not this and _is_inside(self._user):
                self._fault = (
                    f"two threads of rank {self.rank} ({self._user.name} and {this.name}) use networks over the same "
                    "ranks at the same time: needed one thread at a time, or a communicator for each (comm.Dup())"
                )
            if self._fault:
                raise RuntimeError(self._fault)
            self._user = this


def _is_inside(thread: threading.Thread) -> bool:
    """Whether a function of the package is running in the thread, or waits for one that it has called."""
    frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            return True
        frame = frame.f_back
    return False


# ----------------------------------------------------------------------------------------------------
# The ranks of a communicator, as everything in this folder talks to them.
#
# One duplicate of the caller's communicator serves all networks that are spread over it, so that messages never meet
# the caller's own, and ranks that ask for different things find out at once: what is collected from all ranks begins
# with
# a comparison of what each believes it is about (`agree`). A mismatch is the same ValueError on every rank.


SPINS = 200  # looks in a row before the processor is offered to others
HURRY = 0.001  # seconds of waiting after which a rank sleeps between two looks
NAP = 2e-5
LOOK = 0.1  # seconds of waiting between two looks whether somebody has left
PATIENCE = 600.0  # seconds
SHOWN = 300  # characters of a setting that a message shows


@dataclass(frozen=True)
class MPITraffic(Result):
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
    >>> net.mpi_traffic.messages  # one process hands nothing over
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
        self.MPI = load()
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.patience = patience
        self.waited = 0.0  # seconds of processor time spent waiting
        self._thread = OneThread(self.rank)
        self.mpi_traffic = MPITraffic()
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
        h = self.mpi_traffic
        self.mpi_traffic = MPITraffic(
            h.messages + messages, h.rows + rows, h.bytes + nbytes, h.collected_bytes + collected
        )

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

    def check_same(self, what: str, settings: Mapping[str, object]) -> None:
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
        self.check_same(what, {"dtype": a.dtype, "columns": a.shape[1:]})
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
    MPI = load()
    if isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL:
        raise ValueError("comm must be a communicator that this process belongs to, got COMM_NULL")
    if not isinstance(comm, MPI.Intracomm):
        wrong_type("comm", comm, "an intracommunicator of mpi4py such as COMM_WORLD")
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
