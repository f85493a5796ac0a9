"""Collective operations over the ranks of an MPI communicator, and how ranks end together.

Three rules make a job of several ranks as safe as one process:

- Before ranks exchange anything, they compare what each is about to do (`Ranks.check_same`). A mismatch raises the same
  ValueError on every rank.
- If one rank ends, all end. MPI has no exceptions: a rank that fails would leave the others waiting for its messages.
- Ranks match messages by order, so only one thread at a time may use a communicator.

mpi4py is imported when it is first used.
"""

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

SPINS = 200  # tests in a row before the processor is offered to other processes
SPIN_SECONDS = 0.001  # of waiting, after which a rank sleeps between two tests
SLEEP_SECONDS = 2e-5
CHECK_SECONDS = 0.1  # between two checks whether another rank has ended
PATIENCE = 600.0  # seconds
SHOWN = 300  # characters of a setting in an error message

_key: list[int] = []  # the attribute of a communicator that holds its `Ranks`


def load() -> Any:
    """The module mpi4py.MPI, whose import starts MPI; ImportError with advice if it is missing."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            "hgp_ref.mpi needs mpi4py and an MPI library: pip install 'hgp_ref[mpi]' and, on a machine without one, "
            f"pip install mpich ({error})"
        ) from error
    except RuntimeError as error:  # mpi4py is installed, but finds no libmpi
        raise ImportError(
            f"mpi4py finds no MPI library: load your cluster's, or pip install mpich ({error})"
        ) from error
    return MPI


def ranks_of(comm: Any, patience: float | None = None) -> Ranks:
    """The `Ranks` of the caller's communicator, one object for each; collective in the first call."""
    MPI = load()
    if isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL:
        raise ValueError("comm must be a communicator that this process belongs to, got COMM_NULL")
    if not isinstance(comm, MPI.Intracomm):
        wrong_type("comm", comm, "an intracommunicator of mpi4py such as COMM_WORLD")
    if not _key:
        _key.append(MPI.Comm.Create_keyval(delete_fn=_released))
    ranks = comm.Get_attr(_key[0])
    if ranks is None:
        ranks = Ranks(comm, PATIENCE if patience is None else patience)
        comm.Set_attr(_key[0], ranks)
    elif patience is not None:
        ranks.patience = patience
    return ranks


def _released(comm: Any, key: int, ranks: Ranks) -> None:
    """Called by MPI when the caller frees its communicator: free ours too."""
    if ranks.leave in _at_exit:
        _at_exit.remove(ranks.leave)
    ranks.free()


@dataclass(frozen=True)
class MPITraffic(Result):
    """What one rank has sent by MPI since its network was distributed.

    In a call of mixing, a rank sends each other rank some columns of its clients' rows, and later receives them back.
    Push-Sum's weights are not sent: every rank computes them from the graphs.

    Attributes
    ----------
    messages : between ranks.
    rows : parts of clients' rows in these messages.
    bytes : bytes in these messages.
    collected_bytes : for maxima and means over all clients, comparison of settings and `gather`.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> net = hgp.mpi.spread(hgp.networks.RandomOut(6, k=2), MPI.COMM_WORLD)
    >>> _ = hgp.PushSum(net, steps=3).apply(np.ones((6, 2)))
    >>> net.mpi_traffic.messages  # a single process sends nothing
    0
    """

    messages: int = 0
    rows: int = 0
    bytes: int = 0
    collected_bytes: int = 0


class Ranks:
    """The ranks of `comm`, over a duplicate of it, so that our messages never meet the caller's.

    A second duplicate, `departures`, tells ranks that another has ended. `patience` is the number of seconds that a
    rank waits for others before it raises TimeoutError.
    """

    def __init__(self, comm: Any, patience: float) -> None:
        self.MPI = load()
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.patience = patience
        self._thread = OneThread(self.rank)
        self.mpi_traffic = MPITraffic()
        if self.size > 1:
            abort_on_exception(self.MPI.COMM_WORLD)
        self.departures: Any = None
        self._comm, self.departures = (self._duplicate(comm) for _ in range(2))
        if self.size > 1:
            at_exit(self.leave)

    @property
    def comm(self) -> Any:
        """The communicator; RuntimeError if two threads use it at a time."""
        self._thread.check()
        return self._comm

    def free(self) -> None:
        self._comm.Free()
        self.departures.Free()

    def _duplicate(self, comm: Any) -> Any:
        duplicate, request = comm.Idup()
        self.wait([request], "hgp.mpi.spread")
        return duplicate

    def count(self, messages: int = 0, rows: int = 0, nbytes: int = 0, collected: int = 0) -> None:
        """Add to `mpi_traffic`."""
        t = self.mpi_traffic
        self.mpi_traffic = MPITraffic(
            t.messages + messages, t.rows + rows, t.bytes + nbytes, t.collected_bytes + collected
        )

    def wait(self, requests: Sequence[Any], what: str, partners: Sequence[int] | None = None) -> None:
        """Wait until all `requests` are complete. A loop in Python, so that Ctrl-C interrupts it.

        `partners` is the other rank of each request; None if all ranks take part.
        """
        complete = self.MPI.Request.Testall
        pending = list(requests)
        if not pending or complete(pending):
            return
        started = time.monotonic()
        tests, next_check = 0, CHECK_SECONDS
        while not complete(pending):
            tests += 1
            if tests < SPINS:
                continue
            waiting = time.monotonic() - started
            if waiting > next_check:
                next_check = waiting + CHECK_SECONDS
                self._thread.check()
                self._check_departures(pending, partners, what)
            if waiting > self.patience:
                raise TimeoutError(
                    f"rank {self.rank} of {self.size} has waited {waiting:.0f} s for other ranks in {what}: do all "
                    "ranks call the same functions in the same order? (patience of hgp.mpi.spread is "
                    f"{self.patience:g} s)"
                )
            if waiting > SPIN_SECONDS:
                time.sleep(SLEEP_SECONDS)
            else:
                os.sched_yield()

    def _check_departures(self, pending: Sequence[Any], partners: Sequence[int] | None, what: str) -> None:
        """Raise RuntimeError if a rank that this one waits for has ended its program."""
        status = self.MPI.Status()
        if self.departures is None or not self.departures.Iprobe(status=status):
            return
        gone = status.Get_source()
        concerned = range(len(pending)) if partners is None else [k for k, q in enumerate(partners) if q == gone]
        if any(not pending[k].Get_status() for k in concerned):
            raise RuntimeError(
                f"rank {gone} has ended its program, by sys.exit or at its end, while rank {self.rank} of {self.size} "
                f"waits for it in {what}; all ranks must make the same calls"
            )
        self.departures.Recv(np.empty(0, np.uint8), gone)  # it has done its part

    def leave(self, deadline: float) -> None:
        """At the end of the program: wait for the other ranks until `deadline`, then tell them that this one ends."""
        if self.MPI.Is_finalized():
            return
        all_here = self.departures.Ibarrier()
        while not all_here.Test():
            if time.monotonic() > deadline:
                empty = np.empty(0, np.uint8)
                self._notices = [self.departures.Isend(empty, q) for q in range(self.size) if q != self.rank]
                return
            time.sleep(SPIN_SECONDS)
        status = self.MPI.Status()
        while self.departures.Iprobe(status=status):  # notices of ranks that ended earlier
            self.departures.Recv(np.empty(0, np.uint8), status.Get_source())

    def check_same(self, what: str, settings: Mapping[str, object]) -> None:
        """Raise ValueError on every rank, with the differences, unless all ranks pass the same settings.

        Ranks compare hashes; the texts are exchanged only if these differ.
        """
        text = json.dumps({"call": what, **{name: _text(value) for name, value in settings.items()}}).encode()
        digest = np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype=np.uint8)
        row = np.concatenate([digest, np.array([len(text)], dtype=np.int64).view(np.uint8)])
        gathered = np.empty((self.size, row.size), dtype=np.uint8)
        self.wait([self.comm.Iallgather(row, gathered)], what)
        self.count(collected=row.nbytes)
        if (gathered[:, : digest.size] == digest).all():
            return
        counts = gathered[:, digest.size :].copy().view(np.int64)[:, 0]
        texts = self._concatenated(np.frombuffer(text, dtype=np.uint8), counts, what)
        ends = np.cumsum(counts)
        each = [json.loads(bytes(texts[end - count : end]).decode()) for end, count in zip(ends, counts, strict=True)]
        raise ValueError(f"ranks disagree: {differences(each)}")

    def collect(self, a: np.ndarray, counts: Iterable[int], what: str) -> np.ndarray:
        """The rows of `a` (rows, ...) of all ranks in order, on every rank; rank q has counts[q] rows."""
        self.check_same(what, {"dtype": a.dtype, "columns": a.shape[1:]})
        width = a.dtype.itemsize * int(np.prod(a.shape[1:], dtype=np.int64))
        sizes = np.array(list(counts), dtype=np.int64)
        flat = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        return self._concatenated(flat, sizes * width, what).view(a.dtype).reshape(int(sizes.sum()), *a.shape[1:])

    def one_each(self, row: np.ndarray, what: str) -> np.ndarray:
        """The rows (k,) of all ranks, (ranks, k)."""
        return self.collect(row[None], [1] * self.size, what)

    def _concatenated(self, data: np.ndarray, counts: np.ndarray, what: str) -> np.ndarray:
        """The bytes of all ranks in order; rank q has counts[q] of them."""
        begins = np.cumsum(counts) - counts
        gathered = np.empty(int(counts.sum()), dtype=np.uint8)
        request = self.comm.Iallgatherv([data, self.MPI.BYTE], [gathered, (counts, begins), self.MPI.BYTE])
        self.wait([request], what)
        self.count(collected=data.nbytes)
        return gathered


def differences(settings: Sequence[Mapping[str, str]]) -> str:
    """Which settings differ between ranks, as text; settings[q] are those of rank q."""
    parts = []
    if len({of_rank["call"] for of_rank in settings}) > 1:
        settings = [{"call": of_rank["call"]} for of_rank in settings]  # settings of different calls do not compare
    for name in dict.fromkeys(name for of_rank in settings for name in of_rank):
        values: dict[str, list[int]] = {}
        for rank, of_rank in enumerate(settings):
            values.setdefault(of_rank.get(name, "nothing"), []).append(rank)
        if len(values) > 1:
            parts.append(
                f"{name}: " + ", ".join(f"{_cut(value)} on {_ranks(which)}" for value, which in values.items())
            )
    return "; ".join(parts) + "; settings must be the same on every rank"


def _text(value: object) -> str:
    """A text of the value that is the same in every process: without addresses of objects, a hash of long arrays."""
    if isinstance(value, np.ndarray) and value.size > 8:
        digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"{value.dtype} {value.shape} from {value.flat[0]} on, {digest}"
    return without_addresses(str(value))


def _cut(value: str) -> str:
    return value if len(value) <= SHOWN else value[:SHOWN] + " …"


def _ranks(which: Sequence[int]) -> str:
    listed = ", ".join(map(str, which[:5])) + (f" and {len(which) - 5} more" if len(which) > 5 else "")
    return f"rank{'s' if len(which) > 1 else ''} {listed}"


# Ranks end together. An uncaught exception prints its traceback with the number of the rank and calls MPI_Abort, upon
# which mpiexec ends every rank. `sys.exit` and the end of a program are no exceptions: such a rank waits GRACE seconds
# for the others and then notifies them. A rank that waits for it ends all ranks with an error (`Ranks.leave`).


INTERRUPTED = 130  # exit status of a program that was ended by Ctrl-C
GRACE = 2.0  # seconds
READING = 0.5  # seconds for mpiexec to read the output of a rank: it drops what it has not read before the abort
AtExit = Callable[[float], None]  # takes the time until which it may wait
_abort_on: list[Any] = []  # the communicator that is aborted; at most one
_at_exit: list[AtExit] = []


def abort_on_exception(comm: Any) -> None:
    """From now on an uncaught exception on this rank ends all ranks. Later calls have no effect."""
    if _abort_on:
        return
    _abort_on.append(comm)
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
    """The traceback with the rank before every line, since several ranks may write to one terminal."""
    lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
    lines.append(f"this ends all {size} ranks")
    return "".join(f"[rank {rank}] {line}\n" for line in lines)


def at_exit(function: AtExit) -> None:
    """Call `function` when the program ends."""
    if not _at_exit:
        atexit.register(_exit, os.getpid())
    _at_exit.append(function)


def _exit(process: int) -> None:
    deadline = time.monotonic() + GRACE
    for function in _at_exit if os.getpid() == process else ():  # not in a forked copy
        function(deadline)


class OneThread:
    """Raises RuntimeError in every thread that uses the ranks once two have used them at the same time.

    Threads may alternate: another one may start when no function of the package is running in the thread before.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None
        self._error = ""

    def check(self) -> None:
        """Called before anything is sent, and during waits."""
        this = threading.current_thread()
        if self._last is this and not self._error:
            return
        with self._lock:
            if not self._error and self._last is not None and self._last is not this and _is_inside(self._last):
                self._error = (
                    f"two threads of rank {self.rank} ({self._last.name} and {this.name}) use networks over the same "
                    "ranks at the same time; use one thread at a time, or a communicator for each (comm.Dup())"
                )
            if self._error:
                raise RuntimeError(self._error)
            self._last = this


def _is_inside(thread: threading.Thread) -> bool:
    """Whether a function of the package is on the stack of the thread."""
    frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
            return True
        frame = frame.f_back
    return False
