"""Labelled data split over clients by label: the usual way to make heterogeneous clients.

For every label c a vector of shares q_c ~ Dirichlet(α 1_n) is drawn, then the N_c instances of that label are given to
the n clients in numbers ~ Multinomial(N_c, q_c), which ones at random. Every instance goes to exactly one client.
Small α makes clients that see few labels, large α makes them alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgp_ref import arguments
from hgp_ref.memory import room


def dirichlet_partition(
    labels: np.ndarray | Sequence[int], n_clients: int, alpha: float = 0.4, seed: int = 0, min_per_client: int = 0
) -> list[np.ndarray]:
    """Indices of each client's instances, a list of n sorted int64 arrays that together are 0 … N−1.

    `labels` (N,) are integers or anything that can be sorted; a label that does not equal itself (NaN) is refused. A
    client may end up with nothing; with `min_per_client` a draw that leaves some client with fewer raises ValueError
    with the client and what it has.

    Parameters
    ----------
    labels : array (N,)
        Classes.
    n_clients : int
        n.
    alpha : float
        Of the Dirichlet distribution; large: every client gets all classes alike.
    seed : int
        Another partition.
    min_per_client : int
        How many instances a client must get; a draw that leaves one with fewer is an error, not drawn again.

    Returns
    -------
    list of arrays
        Indices of each client, disjoint.

    Raises
    ------
    TypeError, ValueError
        Labels must be (N,) and sortable, `n_clients` ≥ 1, `alpha` positive.
    ValueError
        A client gets fewer than `min_per_client` instances.

    Examples
    --------
    >>> [part.tolist() for part in hgp.data.dirichlet_partition([0, 0, 1, 1, 1, 0], n_clients=2, alpha=1.0, seed=3)]
    [[5], [0, 1, 2, 3, 4]]
    """
    labels = arguments.host_array("labels", labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels: shape {labels.shape} given, needed (N,) with N >= 1")
    for k in np.flatnonzero(labels != labels)[:1]:
        raise ValueError(f"labels: instance {k} has the label {labels[k]}, needed labels that equal themselves")
    n_clients, alpha = arguments.integer("n_clients", n_clients), arguments.positive("alpha", alpha)
    seed, min_per_client = arguments.integer("seed", seed, 0), arguments.integer("min_per_client", min_per_client, 0)
    if min_per_client * n_clients > labels.size:
        raise ValueError(
            f"n_clients={n_clients} given with min_per_client={min_per_client}, but only {labels.size} instances"
        )
    room(f"n_clients={n_clients}", 4 * n_clients)
    rng = np.random.default_rng(seed)
    owner = np.empty(labels.size, dtype=np.int64)
    try:
        kinds, kind = np.unique(labels, return_inverse=True)  # every instance has exactly one kind
    except TypeError as error:
        raise TypeError(f"labels: {error}; needed labels that can be sorted") from error
    for c in range(len(kinds)):
        members = rng.permutation(np.flatnonzero(kind == c))
        shares = dirichlet(rng, alpha, n_clients)
        counts = rng.multinomial(members.size, shares)
        owner[members] = np.repeat(np.arange(n_clients), counts)
    parts = [np.flatnonzero(owner == i) for i in range(n_clients)]
    poorest = min(range(n_clients), key=lambda i: parts[i].size)
    if parts[poorest].size < min_per_client:
        raise ValueError(
            f"client {poorest} got {parts[poorest].size} instances, needed min_per_client={min_per_client}: "
            f"try another seed (given {seed}) or a larger alpha (given {alpha})"
        )
    return parts


def dirichlet(rng: np.random.Generator | np.random.RandomState, alpha: float, parts: int) -> np.ndarray:
    """Shares ~ Dirichlet(α 1), (parts,); ValueError where α is too large for its sums to be numbers."""
    shares = rng.dirichlet(np.full(parts, alpha))
    if not abs(np.sum(shares) - 1) < 1e-6:
        raise ValueError(f"alpha={alpha} given, too large for {parts} shares that sum to 1; needed below 1e300")
    return shares
