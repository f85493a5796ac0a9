"""Random graphs as one would draw them with NumPy, every step at once over all clients, and with networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np


def dense_matrix(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Mixing matrix of a graph with edge j -> i of probability rates[i, j], float64 uniforms."""
    adjacency = rng.random(rates.shape) < rates
    np.fill_diagonal(adjacency, True)
    return adjacency / adjacency.sum(axis=0)


def dense_matrix_of_integers(rng: np.random.Generator, last: np.ndarray) -> np.ndarray:
    """The same with exact thresholds: 32-bit words against integers."""
    adjacency = rng.integers(0, 2**32, size=last.shape, dtype=np.uint32) <= last
    np.fill_diagonal(adjacency, True)
    return adjacency / adjacency.sum(axis=0)


def dense_networkx(seed: int, n: int, rate: float) -> Any:
    """A directed graph with one rate for all pairs (networkx knows no others)."""
    return nx.gnp_random_graph(n, rate, seed=seed, directed=True)


def random_out(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Receivers (n, k + 1): each sender itself and k distinct others; rows with repetitions are drawn again."""
    peers = rng.integers(0, n - 1, (n, k), dtype=np.int32)
    peers.sort(axis=1)
    repeated = np.flatnonzero((peers[:, 1:] == peers[:, :-1]).any(axis=1))
    while repeated.size:
        peers[repeated] = np.sort(rng.integers(0, n - 1, (repeated.size, k), dtype=np.int32), axis=1)
        again = (peers[repeated, 1:] == peers[repeated, :-1]).any(axis=1)
        repeated = repeated[again]
    senders = np.arange(n, dtype=np.int32)[:, None]
    peers += peers >= senders
    receivers = np.concatenate([peers, senders], axis=1)
    receivers.sort(axis=1)
    return receivers


def erdos_renyi(rng: np.random.Generator, n: int, mean_degree: float) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, receivers) of independent edges: gaps between edges in the list of all pairs are geometric."""
    p = mean_degree / (n - 1)
    pairs, expected = n * (n - 1), n * mean_degree
    places = np.cumsum(rng.geometric(p, int(expected + 8 * expected**0.5) + 8)) - 1
    while places[-1] < pairs:
        places = np.concatenate([places, places[-1] + np.cumsum(rng.geometric(p, 1024))])
    senders, receivers = np.divmod(places[: np.searchsorted(places, pairs)], n - 1)
    receivers += receivers >= senders
    indptr = np.searchsorted(senders, np.arange(n + 1))
    return indptr, receivers.astype(np.int32)


def erdos_renyi_networkx(seed: int, n: int, mean_degree: float) -> Any:
    """networkx's algorithm for sparse graphs."""
    return nx.fast_gnp_random_graph(n, mean_degree / (n - 1), seed=seed, directed=True)
