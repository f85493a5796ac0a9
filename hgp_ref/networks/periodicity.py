"""Do the products of the mixing matrices become positive? With self-loops, whenever unions are strongly connected.

Without self-loops that is not enough: on a directed ring every value is handed on whole and never meets another. For a
network of period T the question is one of the *unrolled* graph on nodes (t, i), t = 0 .. T-1,

    (t, j) -> (t + 1 mod T, i)   where j -> i at step first + t:

P(T) ... P(1), and every such product that starts at another step, has a positive power if and only if this graph is
strongly connected and the lengths of its cycles, all multiples of T, have no common divisor beyond T [1]. Of a network
that never repeats the union over the stretch is judged instead, as if every step were it: where that has a common
divisor d > 1, the clients fall into d groups that never meet; where it has none, nothing is promised.

[1] E. Seneta. Non-negative matrices and Markov chains. Springer, 1981, chapter 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from hgp_ref.networks.base import Edges, Network


@dataclass(frozen=True)
class Periodic:
    """Without self-loops the clients fall into groups whose values never meet at one of steps first, first + 1, ...

    Attributes
    ----------
    first : the first step looked at.
    count : how many.
    groups : into which clients fall that hear each other in turn only.

    Examples
    --------
    >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> hgp.networks.Periodic(first=1, count=4, groups=2).groups
    2
    """

    first: int
    count: int
    groups: int

    @property
    def message(self) -> str:
        """One line for a warning."""
        return (
            f"the graphs of steps {self.first} .. {self.first + self.count - 1} are periodic: without self-loops the "
            f"clients fall into {self.groups} groups whose values never meet at one step, so that no averaging tends "
            "to the mean; give every client a self-loop"
        )


def periodic(net: Network, first: int, count: int) -> Periodic | None:
    """None if every client hears itself, or if values meet all the same; see the module for networks without period."""
    if net.self_loops or net.n == 1:
        return None
    if net.period is not None:
        groups = _groups(net.n * net.period, *_unrolled(net, first), net.period)
    else:
        groups = _groups_of_union(net, first, count)
    return Periodic(first, count, groups) if groups > 1 else None


def _unrolled(net: Network, first: int) -> Edges:
    steps = net.period or 1
    lists = [net.edges(first + t) for t in range(steps)]
    senders = np.concatenate([t * net.n + senders for t, (senders, _) in enumerate(lists)])
    receivers = np.concatenate([(t + 1) % steps * net.n + receivers for t, (_, receivers) in enumerate(lists)])
    return senders, receivers


def _groups_of_union(net: Network, first: int, count: int) -> int:
    """Groups of the union; more steps only merge them, so one group ends the search."""
    pairs, added, chunk, groups = np.empty(0, np.int64), 0, 1, 2
    while added < count and groups > 1:
        chunk = min(chunk, count - added)
        senders, receivers = net.heard(first + added, chunk)
        pairs = np.union1d(pairs, senders * net.n + receivers)
        groups = _groups(net.n, *np.divmod(pairs, net.n), 1)
        added, chunk = added + chunk, 2 * chunk
    return groups


def _groups(nodes: int, senders: np.ndarray, receivers: np.ndarray, length: int) -> int:
    """gcd of the lengths of cycles over `length`; strong components, where there are several.

    In a strongly connected graph with distances l from a node the gcd is that of l(a) + 1 - l(b) over the edges a -> b.
    """
    graph = edge_matrix(senders, receivers, nodes)
    components = connected_components(graph, directed=True, connection="strong", return_labels=False)
    if components > 1:
        return int(components)
    order, parent = breadth_first_order(graph, 0)
    distance = np.zeros(nodes, dtype=np.int64)
    for node in order[1:]:
        distance[node] = distance[parent[node]] + 1
    return int(np.gcd.reduce(distance[senders] + 1 - distance[receivers])) // length


def edge_matrix(senders: np.ndarray, receivers: np.ndarray, size: int) -> csr_array:
    """Edges as a matrix whose indices are int32: SciPy up to 1.11.2 finds no component in graphs with int64 ones."""
    a, b = senders.astype(np.int32), receivers.astype(np.int32)
    return csr_array((np.ones(a.size), (a, b)), shape=(size, size))
