"""njit: Numba's decorator, which keeps compiled code on disk where it can and goes on without where it cannot.

Numba keeps the machine code of `njit(cache=True)` in the first of these directories that it can write to:

    $NUMBA_CACHE_DIR,   __pycache__ beside the source file,   the user's cache directory (~/.cache/numba),

and refuses to compile at all if there is none, as in a container with a read-only file system and no home. Here such a
function is compiled in memory, anew in every process, and one warning says so.

Without its compiler (NUMBA_DISABLE_JIT=1) Numba would run kernels as Python. Those that hold rows in vector registers
have no such form, so that this is refused at once.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("hgp_ref needs Numba's compiler, which is switched off: unset NUMBA_DISABLE_JIT")


def njit(*, cache: bool, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`numba.njit(cache=cache, **options)`, without a cache if Numba finds no place for one."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        _warn_that_nothing_is_kept()
        return numba.njit(**options)(function)

    return compiled


@functools.cache
def _warn_that_nothing_is_kept() -> None:
    """Once in a process, whatever the number of functions."""
    try:
        warnings.warn(
            "hgp_ref: no directory for compiled code can be written to, so every process compiles anew (some seconds); "
            "set NUMBA_CACHE_DIR to a writable directory to keep it",
            RuntimeWarning,
            stacklevel=4,
        )
    except RuntimeWarning as warning:  # warnings are errors, and this one is no reason to refuse an import
        print(f"RuntimeWarning: {warning}", file=sys.stderr)


# ----------------------------------------------------------------------------------------------------
# Threads for work that leaves the GIL: every thread has rows of its own, so results do not depend on how many.
#
# As many threads as OMP_NUM_THREADS says, which BLAS libraries obey too; as many as there are cores if it is not set.


GRAIN = 2_000_000  # multiply-adds worth a thread of their own: about a millisecond, against 0.1 for starting one

_limit: int | None = None


def limit() -> int:
    """The largest number of threads a kernel may use."""
    if _limit is not None:
        return _limit
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if said.isdigit() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def limited(number: int) -> Iterator[None]:
    """At most `number` threads inside the block."""
    global _limit
    before, _limit = _limit, number
    try:
        yield
    finally:
        _limit = before


def each(work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """work(item) for every item, several at once, with one thread of BLAS each.

    Threads of BLAS wait for work by spinning: between products that are small, or far from each other, they cost the
    time of a core and save none. Without threadpoolctl, which tells BLAS so, items come one after the other.
    """
    listed = list(items)
    number, blas = min(limit(), len(listed)), _blas()
    if number < 2 or blas is None:
        for item in listed:
            work(item)
        return
    errors = np.geterr()  # of this thread: others begin with NumPy's own

    def one(item: Any) -> None:
        with np.errstate(**errors):
            work(item)

    with blas.limit(limits=1, user_api="blas"), ThreadPoolExecutor(number) as pool:
        for done in [pool.submit(one, item) for item in listed]:
            done.result()


@lru_cache(maxsize=1)
def _blas() -> Any:
    """What tells BLAS its number of threads, None if threadpoolctl is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def over_rows(kernel: Callable[..., Any], rows: int, work: int, *arguments: Any) -> None:
    """kernel(begin, end, *arguments) for rows 0 .. rows-1, in parts that run at once; `work` in multiply-adds."""
    parts = max(1, min(limit(), rows, work // GRAIN)) if work >= 2 * GRAIN else 1
    cuts = [rows * p // parts for p in range(parts + 1)]
    if parts == 1:
        kernel(0, rows, *arguments)
        return
    with ThreadPoolExecutor(parts - 1) as pool:
        others = [pool.submit(kernel, *cut, *arguments) for cut in pairwise(cuts[1:])]
        kernel(cuts[0], cuts[1], *arguments)
        for other in others:
            other.result()
