"""Networks from networkx graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from hgp_ref import validation
from hgp_ref.networks.base import CLIENTS
from hgp_ref.networks.fixed import Schedule, is_networkx

Links = tuple[np.ndarray, np.ndarray, list[Any]]  # senders, receivers, (sender, receiver, weight or None) by name


def from_networkx(graphs: Any, weights: str = "metropolis") -> Schedule:
    """A network from a networkx Graph or DiGraph, or from a sequence of them that repeats.

    An edge u → v of a DiGraph means that u sends to v; edges of a Graph go both ways. With d the out-degrees,

    - weights="metropolis": W_ij = 1 / (1 + max(d_i, d_j)) on edges j → i. W is doubly stochastic if the graph is
      undirected, so that Gossip can use it; for a directed graph it is column-stochastic.
    - weights="uniform": W_ij = 1 / (1 + d_j).
    - any other string names an edge attribute, which is W_ij.

    In all cases a client keeps the rest, W_jj = 1 − Σ_{i≠j} W_ij, which must be positive. Graphs therefore have no
    self-loops. Every graph has the same nodes, and every node has an edge in at least one graph.

    Clients are the nodes in the order of the first graph; nodes 0 … n−1 are the clients of that number. `net.nodes` are
    their names, which appear in warnings, errors and plots.

    Examples
    --------
    >>> import networkx as nx
    >>> net = hgp.networks.from_networkx(nx.Graph([("Ann", "Bob"), ("Bob", "Cem")]))
    >>> net.nodes
    ('Ann', 'Bob', 'Cem')
    >>> net.mixing_matrix(1).round(2)
    array([[0.67, 0.33, 0.  ],
           [0.33, 0.33, 0.33],
           [0.  , 0.33, 0.67]])
    """
    if not isinstance(weights, str):
        validation.wrong_type("weights", weights, "'metropolis', 'uniform' or the name of an edge attribute")
    items = _listed(graphs)
    nodes = _nodes(items)
    number = {node: i for i, node in enumerate(nodes)}
    attribute = None if weights in ("metropolis", "uniform") else weights
    links = [_links(name, graph, number, attribute) for name, graph in items]
    linked = np.zeros(len(nodes), dtype=bool)
    for senders, receivers, _ in links:
        linked[senders] = linked[receivers] = True
    if len(nodes) > 1 and not linked.all():
        alone = nodes[int(np.argmin(linked))]
        where = items[0][0] if len(items) == 1 else "graphs"
        raise ValueError(f"{where}: node {alone!r} must have an edge to another node, got none; connect or remove it")
    if weights == "uniform":
        net = Schedule([(senders, receivers) for senders, receivers, _ in links], n=len(nodes))
    else:
        matrices = [_matrix(name, nodes, link, attribute) for (name, _), link in zip(items, links, strict=True)]
        net = Schedule(matrices)
    net.nodes = nodes
    return net


def _listed(graphs: Any) -> list[tuple[str, Any]]:
    """The graphs with the names that errors use."""
    expected = "a networkx Graph or DiGraph, or a sequence of them"
    if is_networkx(graphs):
        items = [("graphs", graphs)]
    elif isinstance(graphs, Iterable) and not isinstance(graphs, str | bytes | np.ndarray):
        items = [(f"graphs[{t}]", graph) for t, graph in enumerate(graphs)]
    else:
        raise TypeError(f"graphs must be {expected}, got {type(graphs).__name__}")
    if not items:
        raise ValueError(f"graphs must be {expected}, got none")
    for name, graph in items:
        if not is_networkx(graph):
            raise TypeError(f"{name} must be a networkx Graph or DiGraph, got {type(graph).__name__}")
        if graph.is_multigraph():
            raise TypeError(f"{name} must not be a multigraph, got {type(graph).__name__}; convert it by nx.DiGraph")
    return items


def _nodes(items: list[tuple[str, Any]]) -> tuple[Any, ...]:
    """The node of each client."""
    (first, graph), *later = items
    nodes = tuple(graph)
    CLIENTS.check(f"{first}: number of nodes", len(nodes))
    for name, other in later:
        for label, a, b in (("lacks", graph, other), ("also has", other, graph)):
            odd = next((node for node in a if node not in b), None)
            if odd is not None:
                raise ValueError(f"{name} must have the same nodes as {first}, but {label} {odd!r}")
    by_number = range(len(nodes))
    return tuple(by_number) if set(nodes) == set(by_number) else nodes


def _links(name: str, graph: Any, number: dict[Any, int], attribute: str | None) -> Links:
    edges = list(graph.edges(data=attribute or ""))  # (u, v, None) where an edge lacks the attribute
    for u, v, _ in edges:
        if u == v:
            raise ValueError(f"{name} must have no self-loops, got one at {u!r}; a client keeps what it does not send")
    if not graph.is_directed():
        edges += [(v, u, weight) for u, v, weight in edges]
    senders, receivers = (np.array([number[edge[end]] for edge in edges], dtype=np.int64) for end in (0, 1))
    return senders, receivers, edges


def _matrix(name: str, nodes: tuple[Any, ...], links: Links, attribute: str | None) -> csr_array:
    senders, receivers, edges = links
    n = len(nodes)
    if attribute is None:
        degree = np.bincount(senders, minlength=n)
        weights = 1.0 / (1.0 + np.maximum(degree[senders], degree[receivers]))
    else:
        weights = np.array([_weight(name, attribute, *edge) for edge in edges])
    self_weights = 1.0 - np.bincount(senders, weights, n)
    if not (self_weights > 0).all():
        j = int(np.argmin(self_weights > 0))
        raise ValueError(
            f"{name}: the weights {attribute!r} of the edges from {nodes[j]!r} must sum to less than 1, got "
            f"{1.0 - self_weights[j]:g}"
        )
    clients = np.arange(n)
    entries = (np.concatenate([receivers, clients]), np.concatenate([senders, clients]))
    return csr_array(coo_array((np.concatenate([weights, self_weights]), entries), shape=(n, n)))


def _weight(name: str, attribute: str, u: Any, v: Any, weight: Any) -> float:
    if weight is None:
        raise ValueError(
            f"weights must be 'metropolis', 'uniform' or an attribute of all edges, got {attribute!r}, which edge "
            f"{u!r} -> {v!r} of {name} lacks"
        )
    return validation.positive(f"{name}: {attribute!r} of edge {u!r} -> {v!r}", weight)
