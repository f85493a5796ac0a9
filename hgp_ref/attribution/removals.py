"""What is removed: instances, groups of instances, or the training data of whole clients.

A removal is a tuple of (client, index) pairs; removing means that the weights λ of these instances become 0 while
everything else, the divisor N_i of the client's mean included, stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hgp_ref import arguments
from hgp_ref.backend import Array, from_host, to_host
from hgp_ref.memory import room
from hgp_ref.problems.normalised import as_problem, optional
from hgp_ref.problems.protocol import Problem

Pair = tuple[int, int]
Removal = tuple[Pair, ...]


def instance_counts(problem: Problem) -> np.ndarray:
    """Training instances of each client, (n,); ValueError if λ of `problem` cannot be one weight per instance.

    A problem may say so itself by `weighs_instances`; without it λ must have as many columns as the largest client has
    instances.
    """
    normal = as_problem(problem)
    said = optional(normal.given, "weighs_instances")
    needed = "influence needs a problem whose lam weighs training instances"
    if normal.counts is None:
        raise ValueError(f"problem has no `counts`: {needed}")
    largest = int(normal.counts.max())
    if normal.dim_lam < largest or (not said and normal.dim_lam != largest):  # a restricted problem may have more
        raise ValueError(
            f"problem.dim_lam={normal.dim_lam} but the largest client has {largest} training instances: "
            f"{needed}, such as InstanceWeights"
        )
    if said is not None and not said:
        raise ValueError(
            f"problem: lam of {type(normal.given).__name__} does not weigh instances, although it has as many entries: "
            f"{needed}, such as InstanceWeights"
        )
    return normal.counts


def all_instances(counts: np.ndarray) -> tuple[Removal, ...]:
    """Each instance of each client by itself.

    Parameters
    ----------
    counts : array (n,)
        Training instances of each client.

    Returns
    -------
    tuple of removals
        Each a tuple with one (client, index) pair.

    Examples
    --------
    >>> hgp.attribution.all_instances(np.array([2, 1]))
    (((0, 0),), ((0, 1),), ((1, 0),))
    """
    return tuple(((i, k),) for i, count in enumerate(_counts(counts)) for k in range(int(count)))


def _counts(counts: np.ndarray) -> np.ndarray:
    given = arguments.host_array("counts", counts)
    if given.ndim != 1 or given.dtype.kind not in "iu" or given.size == 0 or np.any(given < 0):
        raise ValueError(f"counts: shape {given.shape} of {given.dtype} given, needed (n,) whole numbers >= 0")
    room("counts", int(given.sum()))
    return given


def as_removals(
    counts: np.ndarray,
    instances: Iterable[Pair] | None = None,
    groups: Iterable[Iterable[Pair]] | None = None,
    clients: Iterable[int] | None = None,
) -> tuple[Removal, ...]:
    """The removals that exactly one of the three arguments describes; all single instances if none is given.

    Parameters
    ----------
    counts : array (n,)
        Training instances of each client.
    instances : pairs, optional
        (client, index), each a removal of its own.
    groups : iterables of pairs, optional
        Each group is removed at once.
    clients : integers, optional
        Each client is removed with all its instances.

    Returns
    -------
    tuple of removals
        Tuples of (client, index) pairs.

    Raises
    ------
    ValueError
        More than one of instances, groups and clients is given, or one of them names what is not there.

    Examples
    --------
    >>> hgp.attribution.as_removals(np.array([2, 1]), groups=[[(0, 1), (1, 0)]])
    (((0, 1), (1, 0)),)
    >>> hgp.attribution.as_removals(np.array([2, 1]), clients=[0])
    (((0, 0), (0, 1)),)
    """
    counts = _counts(counts)
    asked = {"instances": instances, "groups": groups, "clients": clients}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} given together: give one of instances, groups and clients")
    if groups is not None:
        return tuple(_group(f"groups[{r}]", group, counts) for r, group in enumerate(_listed("groups", groups)))
    if clients is not None:
        chosen = [
            arguments.integer(f"clients[{r}]: client", i, 0, len(counts) - 1)
            for r, i in enumerate(_listed("clients", clients))
        ]
        return tuple(tuple((i, k) for k in range(int(counts[i]))) for i in chosen)
    if instances is not None:
        return tuple(
            (_pair(f"instances[{r}]", pair, counts),) for r, pair in enumerate(_listed("instances", instances))
        )
    return all_instances(counts)


def given_removals(problem: Problem, removals: Sequence[Removal | Pair]) -> tuple[Removal, ...]:
    """Removals as a user writes them, checked against the instances that there are; a pair is a removal of one."""
    counts = instance_counts(problem)
    return tuple(
        (_pair(f"removals[{r}]", removal, counts),) if _is_pair(removal) else _group(f"removals[{r}]", removal, counts)
        for r, removal in enumerate(_listed("removals", removals))
    )


def without(lam: Array, removals: Sequence[Removal], fraction: float = 1.0) -> Array:
    """Copies of `lam` (n, N), (R, n, N), in which `fraction` of the weights of each removal is taken away."""
    host = to_host(lam)
    weights = np.repeat(host[None], len(removals), axis=0)
    for r, removal in enumerate(removals):
        for i, k in removal:
            weights[r, i, k] = (1 - fraction) * host[i, k]
    return from_host(weights, like=lam)


def _listed(name: str, value: Any) -> list[Any]:
    if (
        isinstance(value, str | bytes)
        or not isinstance(value, Iterable)
        or (hasattr(value, "ndim") and value.ndim == 0)
    ):
        raise TypeError(f"{name}={value!r} given ({type(value).__name__}), needed a list")
    return list(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list | np.ndarray) and len(value) == 2 and all(np.ndim(v) == 0 for v in value)


def _group(name: str, group: Any, counts: np.ndarray) -> Removal:
    removal = tuple(_pair(name, pair, counts) for pair in _listed(f"{name}: a removal", group))
    if len(set(removal)) != len(removal):
        raise ValueError(f"{name}: a group names an instance twice: {removal}")
    return removal


def _pair(name: str, pair: Any, counts: np.ndarray) -> Pair:
    if not _is_pair(pair):
        raise ValueError(f"{name}: an instance is a pair (client, index), got {pair!r}")
    i = arguments.integer(f"{name}: client", pair[0], 0, len(counts) - 1)
    return i, arguments.integer(f"{name}: instance of client {i}", pair[1], 0, int(counts[i]) - 1)
