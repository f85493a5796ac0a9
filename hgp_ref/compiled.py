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
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numba

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
