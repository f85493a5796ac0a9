"""Work in several processes that Ctrl-C ends at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

T = TypeVar("T")
JOBS = min(4, os.cpu_count() or 1)  # processes by default


def as_finished(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], workers: int
) -> Generator[tuple[tuple[Any, ...], T], None, None]:
    """(task, function(*task)) for every task, as they finish, in at most `workers` processes.

    The first error ends all workers, and so do an interrupt and the end of this generator. Workers are started with
    SIGINT blocked: a terminal sends it to all processes, and a worker that received it would start the next task.
    """
    unrelated = set(active_children())
    pool = ProcessPoolExecutor(min(workers, len(tasks)), get_context("spawn"))
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process inherits it
        try:
            running = {pool.submit(function, *task): task for task in tasks}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for done in as_completed(running):
            yield running[done], done.result()
    except BaseException:
        for worker in set(active_children()) - unrelated:
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
