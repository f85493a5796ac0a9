"""What is removed: instances, groups of instances, or the training data of whole clients.

A removal is a tuple of (client, index) pairs; removing means that the weights λ of these instances become 0 while
everything else, the divisor N_i of the client's mean included, stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hgp_ref.backend import from_host, to_host

Pair = tuple[int, int]
Removal = tuple[Pair, ...]


def instance_counts(problem: Any) -> np.ndarray:
    """Training instances of each client, (n,); ValueError if λ of `problem` cannot be one weight per instance."""
    counts = getattr(problem, "counts", None)
    if counts is None:
        raise ValueError("problem has no `counts`: influence needs a problem whose lam weighs training instances")
    counts = np.asarray(counts)
    if int(counts.max()) != problem.dim_lam:
        raise ValueError(
            f"problem.dim_lam={problem.dim_lam} but the largest client has {int(counts.max())} training instances: "
            "influence needs a problem whose lam weighs training instances, such as InstanceWeights"
        )
    return counts


def all_instances(counts: np.ndarray) -> tuple[Removal, ...]:
    """Each instance of each client by itself."""
    return tuple(((i, k),) for i, count in enumerate(counts) for k in range(int(count)))


def as_removals(
    counts: np.ndarray,
    instances: Iterable[Pair] | None = None,
    groups: Iterable[Iterable[Pair]] | None = None,
    clients: Iterable[int] | None = None,
) -> tuple[Removal, ...]:
    """The removals that exactly one of the three arguments describes; all single instances if none is given."""
    given = [
        name
        for name, value in (("instances", instances), ("groups", groups), ("clients", clients))
        if value is not None
    ]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} given together: give one of instances, groups and clients")
    if groups is not None:
        removals = tuple(tuple(_pair(pair, counts) for pair in group) for group in groups)
    elif clients is not None:
        chosen = [_client(i, counts) for i in clients]
        removals = tuple(tuple((i, k) for k in range(int(counts[i]))) for i in chosen)
    elif instances is not None:
        removals = tuple((_pair(pair, counts),) for pair in instances)
    else:
        removals = all_instances(counts)
    for removal in removals:
        if len(set(removal)) != len(removal):
            raise ValueError(f"a group names an instance twice: {removal}")
    return removals


def without(lam: Any, removals: Sequence[Removal]) -> Any:
    """Copies of `lam` (n, N) in which the weights of each removal are 0, (R, n, N), in the library of `lam`."""
    host = to_host(lam)
    weights = np.repeat(host[None], len(removals), axis=0)
    for r, removal in enumerate(removals):
        for i, k in removal:
            weights[r, i, k] = 0
    return from_host(weights, like=lam)


def _client(i: int, counts: np.ndarray) -> int:
    if not 0 <= int(i) < len(counts):
        raise ValueError(f"client {i} given, there are clients 0 … {len(counts) - 1}")
    return int(i)


def _pair(pair: Pair, counts: np.ndarray) -> Pair:
    if len(pair) != 2:
        raise ValueError(f"an instance is a pair (client, index), got {pair!r}")
    i, k = _client(pair[0], counts), int(pair[1])
    if not 0 <= k < counts[i]:
        raise ValueError(f"instance {k} of client {i} given, that client has instances 0 … {int(counts[i]) - 1}")
    return i, k
