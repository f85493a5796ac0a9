"""One thread at a time: messages of two threads of a rank over one communicator would be taken for each other.

Ranks match their messages by order. Two threads that each make a run over distributed networks post theirs in an order
that differs from rank to rank, which looks like ranks that disagree, or like wrong sizes. Threads that take turns are
fine: another one may begin once no function of the package is running in the one before.
"""

from __future__ import annotations

import sys
import threading

from hgp_ref.errors import PACKAGE


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
