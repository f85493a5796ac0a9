"""Checks of arguments that several entry points share."""

from __future__ import annotations

import warnings
from typing import Any

from hgp_ref import arguments
from hgp_ref.averaging import Averaging
from hgp_ref.networks.connectivity import obstacle


def batch_size(problem: Any, value: Any) -> int | None:
    """The size of mini-batches, which need a problem that tells how many instances each client has."""
    if value is None:
        return None
    if getattr(problem, "counts", None) is None:
        raise ValueError(f"batch_size={value!r} given, but the problem has no `counts` (instances per client)")
    return arguments.integer("batch_size", value)


def same_clients(averagings: list[Averaging], problem: Any) -> None:
    """Averagings and problem speak of the same clients."""
    for a in averagings:
        if a.n != problem.n_clients:
            raise ValueError(f"avg: {a!r} averages {a.n} clients, but the problem has {problem.n_clients}")


def warn_unreachable(averagings: list[Averaging], calls: int) -> None:
    """One warning for each averaging whose graphs over the whole run are not jointly strongly connected."""
    seen: set[tuple[int, int]] = set()
    for a in averagings:
        if a.net is None or (id(a.net), a.steps) in seen:
            continue
        seen.add((id(a.net), a.steps))
        missing = obstacle(a.net, 1, calls * a.steps)
        if missing is not None:
            warnings.warn(f"{a!r}: {missing.message}", RuntimeWarning, stacklevel=3)
