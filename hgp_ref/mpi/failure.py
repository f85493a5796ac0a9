"""What ends one rank ends all: an exception that nobody catches aborts the whole job, with its message.

MPI knows no exceptions. A rank that dies of one leaves the others waiting for messages that never come; here it prints
its traceback with its number and calls MPI_Abort, upon which mpiexec ends every rank. An exception that the program
catches is its own affair. Ctrl-C is an exception like others: no wait of this package is deaf to it (`Ranks.wait`).

`sys.exit` is no such exception, nor is the end of a program. A rank that ends waits GRACE for the others and then tells
them that it is gone; who waits for it ends all with that message (`Ranks.leave`).
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

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
