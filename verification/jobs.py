"""Run the statements' files, in processes of their own where more than one is asked for."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

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
    seconds: float


def work(name: str, run: Run, numbers: Sequence[int] = ()) -> Done:
    """Verify one statement; `numbers` choose among the errata."""
    run.prepare()
    module = importlib.import_module(f"verification.{name}")
    start = time.perf_counter()
    result = module.verify(run, numbers) if name == "errata" else module.verify(run)
    return Done(name, module.TITLE, result, time.perf_counter() - start)


def finished(names: Sequence[str], run: Run, numbers: Sequence[int], jobs: int) -> Iterator[Done]:
    """Statements as they finish."""
    ordered = sorted(names, key=lambda n: SLOWEST_FIRST.index(n) if n in SLOWEST_FIRST else len(SLOWEST_FIRST))
    if jobs <= 1 or len(names) == 1:
        for name in ordered:
            yield work(name, run, numbers)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=min(jobs, len(names)), mp_context=context) as pool:
        for future in as_completed([pool.submit(work, name, run, numbers) for name in ordered]):
            yield future.result()
