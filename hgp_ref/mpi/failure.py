"""What ends one rank ends all: an exception that nobody catches aborts the whole job, with its message.

MPI knows no exceptions. A rank that dies of one leaves the others waiting for messages that never come; here it prints
its traceback with its number and calls MPI_Abort, upon which mpiexec ends every rank. An exception that the program
catches is its own affair. Ctrl-C is an exception like others: no wait of this package is deaf to it (`Ranks.wait`).
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

INTERRUPTED = 130  # exit status of a program that Ctrl-C has ended
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
        finally:
            comm.Abort(INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = hook


def report(rank: int, size: int, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """The traceback, every line with the rank before it: lines of several ranks may meet on one terminal."""
    lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
    lines.append(f"this ends all {size} ranks")
    return "".join(f"[rank {rank}] {line}\n" for line in lines)
