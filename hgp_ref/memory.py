"""How much memory there is, and a refusal in words of what cannot fit into it."""

from __future__ import annotations

import functools
import os

GIB = 2**30


@functools.cache
def memory() -> int | None:
    """Bytes that this process may have: the machine's memory or its own limit; None where the system does not tell.

    An array larger than that is refused: Linux may promise it and end the process when it is written to.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no sysconf, or not these names
        return None
    try:
        import resource
    except ImportError:  # not on Windows
        return machine
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def room(what: str, numbers: int) -> None:
    """MemoryError unless `numbers` numbers of 8 bytes fit; `what` names the arguments that ask for them."""
    there = memory()
    if there is not None and 8 * numbers > there:
        raise MemoryError(
            f"{what} given, for which {numbers:,} numbers are needed, {8 * numbers / GIB:,.1f} GiB; "
            f"this process may have {there / GIB:.1f} GiB"
        )
