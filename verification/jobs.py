"""Run the files of the statements, in separate processes if there is more than one."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from reporting.workers import as_finished
from verification.run import Result, Run

SLOWEST_FIRST = (
    "communication",
    "search",
    "search_methods",
    "optimiser",
    "contracting_clients",
    "mean_square",
    "minibatch_tail",
    "errata",
    "theorem1",
    "tightness",
    "corollary2",
)


@dataclass(frozen=True)
class Done:
    """A finished statement."""

    name: str
    title: str
    result: Result
    seconds: float  # CPU time


def work(name: str, run: Run, numbers: Sequence[int] = ()) -> Done:
    """Verify one statement; `numbers` choose among the errata."""
    run.prepare()
    module = importlib.import_module(f"verification.{name}")
    start = time.process_time()
    result = module.verify(run, numbers) if name == "errata" else module.verify(run)
    return Done(name, module.TITLE, result, time.process_time() - start)


def finished(names: Sequence[str], run: Run, numbers: Sequence[int], jobs: int) -> Generator[Done, None, None]:
    """The statements as they finish. Closing the iterator ends those that are still running."""
    ordered = sorted(names, key=lambda n: SLOWEST_FIRST.index(n) if n in SLOWEST_FIRST else len(SLOWEST_FIRST))
    if jobs <= 1 or len(names) == 1:
        for name in ordered:
            yield work(name, run, numbers)
        return
    with closing(as_finished(work, [(name, run, numbers) for name in ordered], jobs)) as results:
        for _, done in results:
            yield done
