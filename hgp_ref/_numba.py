"""Numba's compiler with a cache on disk where possible, and threads for kernels.

`njit(cache=True)` stores machine code in the first of these directories that is writable:

    $NUMBA_CACHE_DIR,   __pycache__ next to the source file,   the user's cache directory (~/.cache/numba).

If there is none, as in a container with a read-only file system, Numba refuses to compile. Here the function is then
compiled in memory, in every process, and one warning says so.

Without its compiler (NUMBA_DISABLE_JIT=1) Numba would run kernels as Python. Those that use vector registers have no
such form, so this raises ImportError.
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
        _warn_no_cache()
        return numba.njit(**options)(function)

    return compiled


@functools.cache
def _warn_no_cache() -> None:
    """Warn once per process."""
    try:
        warnings.warn(
            "hgp_ref: no directory for compiled code is writable, so every process compiles it again (some seconds); "
            "set NUMBA_CACHE_DIR to a writable directory to keep it",
            RuntimeWarning,
            stacklevel=4,
        )
    except RuntimeWarning as warning:  # warnings are errors, and this one is no reason to refuse an import
        print(f"RuntimeWarning: {warning}", file=sys.stderr)


# Threads for work that releases the GIL. Every thread has rows of its own, so results do not depend on their number:
# OMP_NUM_THREADS, which BLAS libraries use too, or the number of cores.


GRAIN = 2_000_000  # multiply-adds per thread: about a millisecond, against 0.1 to start one

_limit: int | None = None


def limit() -> int:
    """The largest number of threads a kernel may use."""
    if _limit is not None:
        return _limit
    number = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if number.isdigit() and int(number) > 0:
        return int(number)
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
    """work(item) for every item, in several threads with one BLAS thread each.

    BLAS threads wait for work by spinning, which between small products costs a core and saves nothing. Without
    threadpoolctl, which limits them, items are processed one after the other.
    """
    items = list(items)
    number, blas = min(limit(), len(items)), _blas()
    if number < 2 or blas is None:
        for item in items:
            work(item)
        return
    errors = np.geterr()  # new threads start with NumPy's defaults

    def one(item: Any) -> None:
        with np.errstate(**errors):
            work(item)

    with blas.limit(limits=1, user_api="blas"), ThreadPoolExecutor(number) as pool:
        for done in [pool.submit(one, item) for item in items]:
            done.result()


@lru_cache(maxsize=1)
def _blas() -> Any:
    """The controller of BLAS threads, None if threadpoolctl is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def over_rows(kernel: Callable[..., Any], rows: int, work: int, *arguments: Any) -> None:
    """kernel(begin, end, *arguments) for rows 0 .. rows-1, divided between threads; `work` in multiply-adds."""
    parts = max(1, min(limit(), rows, work // GRAIN)) if work >= 2 * GRAIN else 1
    cuts = [rows * p // parts for p in range(parts + 1)]
    if parts == 1:
        kernel(0, rows, *arguments)
        return
    with ThreadPoolExecutor(parts - 1) as pool:
        running = [pool.submit(kernel, *cut, *arguments) for cut in pairwise(cuts[1:])]
        kernel(cuts[0], cuts[1], *arguments)
        for part in running:
            part.result()
