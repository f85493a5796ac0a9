"""Can averaging over these graphs tend to the mean?

It does if the products of mixing matrices become positive. With self-loops this holds if and only if the unions of the
graphs over windows are strongly connected, for some B (Assumption 1):

    for every t ≥ 0 the union of the graphs of steps first + tB, …, first + (t + 1)B − 1 is strongly connected.

Without self-loops this is not enough: on a directed ring every value is passed on whole and never meets another. A
network of period T has positive products if and only if the unrolled graph on nodes (t, i), t = 0 .. T−1,

    (t, j) → (t + 1 mod T, i)   where j → i at step first + t,

is strongly connected and the lengths of its cycles, all multiples of T, have no common divisor beyond T [1]. For a
network that never repeats, the union over the steps is examined as if it were the graph of every step. A common divisor
d > 1 then means d groups of clients that never meet; otherwise nothing is concluded.

[1] E. Seneta. Non-negative matrices and Markov chains. Springer, 1981, chapter 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from hgp_ref.networks.base import Edges, Network
from hgp_ref.validation import Count, Instance, Integer, Rule, checked


@dataclass(frozen=True)
class Periodic:
    """Graphs without self-loops that are periodic: values of different groups of clients never meet.

    Attributes
    ----------
    first, count : the steps first .. first + count − 1 were examined.
    groups : number of groups.

    Examples
    --------
    >>> hgp.networks.Periodic(first=1, count=4, groups=2).message.split(":")[0]
    'the graphs of steps 1 .. 4 are periodic'
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
    """None if there are self-loops, or if the graphs are not periodic; see the module for networks without period."""
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
    """Groups of the union. More steps only merge groups, so the search ends with one."""
    pairs, added, chunk, groups = np.empty(0, np.int64), 0, 1, 2
    while added < count and groups > 1:
        chunk = min(chunk, count - added)
        senders, receivers = net.delivered_edges(first + added, chunk)
        pairs = np.union1d(pairs, senders * net.n + receivers)
        groups = _groups(net.n, *np.divmod(pairs, net.n), 1)
        added, chunk = added + chunk, 2 * chunk
    return groups


def _groups(nodes: int, senders: np.ndarray, receivers: np.ndarray, length: int) -> int:
    """The gcd of the lengths of cycles, divided by `length`; or the number of strong components if there are several.

    In a strongly connected graph with distances l from a node, it is the gcd of l(a) + 1 − l(b) over the edges a → b.
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
    """Edges as a matrix with int32 indices: SciPy up to 1.11.2 finds no components with int64."""
    a, b = senders.astype(np.int32), receivers.astype(np.int32)
    return csr_array((np.ones(a.size), (a, b)), shape=(size, size))


# Strong connectivity. As steps are added, strong components are contracted and only the edges between them are stored.
# The search ends when one component remains. Of a periodic network one period is examined.


WINDOW: dict[str, Rule] = {"net": Instance(Network), "first": Integer(1, 2**56), "count": Integer(1, 2**56)}
CHUNK_EDGES = 2**24  # edges of the steps added at once, at most (one step is always added)
NAMED = 10  # clients named in a message


@dataclass(frozen=True)
class Disconnected:
    """The clients outside the largest strong component of the union over steps first .. first + count − 1.

    Attributes
    ----------
    first, count : the steps that were examined.
    components : number of strong components.
    largest : clients in the largest of them.
    member : one of these clients.
    unheard : clients whose messages never reach the largest component.
    unreached : clients that messages of the largest component never reach.
    nodes : names of all clients, or None.

    Examples
    --------
    >>> cut = hgp.networks.unreachable(hgp.networks.SelfLoops(2), 1, 5)
    >>> cut.components, cut.unheard, cut.unreached
    (2, (1,), (1,))
    """

    first: int
    count: int
    components: int
    largest: int
    member: int
    unheard: tuple[int, ...]
    unreached: tuple[int, ...]
    nodes: tuple[Any, ...] | None = None

    @property
    def message(self) -> str:
        """One line for a warning."""
        parts = [
            f"clients {self._names(who)} {what}"
            for who, what in ((self.unreached, "cannot be reached by"), (self.unheard, "cannot reach"))
            if who
        ]
        rest = f"and {self.largest - 1} more" if self.largest > 1 else "alone"
        return (
            f"the graphs of steps {self.first} .. {self.first + self.count - 1} are not jointly strongly connected: "
            f"{' and '.join(parts)} the largest strongly connected group (client "
            f"{self._names((self.member,))} {rest})"
        )

    def _names(self, clients: tuple[int, ...]) -> str:
        listed = ", ".join(str(i) if self.nodes is None else repr(self.nodes[i]) for i in clients[:NAMED])
        return listed if len(clients) <= NAMED else f"{listed} and {len(clients) - NAMED} more"


@checked(**WINDOW)
def strongly_connected(net: Network, first: int, count: int) -> bool:
    """Whether the union of the graphs of steps first .. first + count − 1 is strongly connected.

    Examples
    --------
    >>> relay = hgp.networks.Schedule([([0], [1]), ([1], [0])], n=2)
    >>> hgp.networks.strongly_connected(relay, 1, 1), hgp.networks.strongly_connected(relay, 1, 2)
    (False, True)
    """
    return _Condensation(net).extend(first, count).size == 1


@checked(**WINDOW)
def unreachable(net: Network, first: int, count: int) -> Disconnected | None:
    """None if the union over these steps is strongly connected, else which clients cannot be reached or cannot reach.

    Examples
    --------
    >>> hgp.networks.unreachable(hgp.networks.Schedule([([0], [1])], n=2), 1, 10).unreached
    (0,)
    """
    union = _Condensation(net).extend(first, count)
    if union.size == 1:
        return None
    sizes = np.bincount(union.labels, minlength=union.size)
    core = int(np.argmax(sizes))
    unreached, unheard = (
        tuple(np.flatnonzero(~union.reached(core, backwards)[union.labels]).tolist()) for backwards in (False, True)
    )
    member = int(np.argmax(union.labels == core))
    return Disconnected(first, count, union.size, int(sizes[core]), member, unheard, unreached, net.nodes)


@checked(**WINDOW)
def diagnose_connectivity(net: Network, first: int, count: int) -> Disconnected | Periodic | None:
    """Why averaging over these steps does not tend to the mean, with a `message`; None if no reason is found.

    Either the union of the graphs is not strongly connected, or they have no self-loops and are periodic.

    Examples
    --------
    >>> hgp.networks.diagnose_connectivity(hgp.networks.FullyConnected(3), 1, 5) is None
    True
    """
    return unreachable(net, first, count) or periodic(net, first, count)


@checked(net=Instance(Network), first=Integer(1, 2**56), count=Count(1))
def smallest_window(net: Network, first: int, count: int) -> int | None:
    """The smallest B such that the union over every window first + tB .. first + (t + 1)B − 1 is strongly connected.

    Only windows inside first .. first + count − 1 are examined. None if no B up to count works.

    Examples
    --------
    >>> relay = hgp.networks.Schedule([([0], [1]), ([1], [0])], n=2)
    >>> hgp.networks.smallest_window(relay, 1, 20)
    2
    """
    needed: dict[int, int] = {}  # start -> steps until the union is strongly connected; count + 1 if never

    def need(start: int) -> int:
        place = start if net.period is None else (start - 1) % net.period
        if place not in needed:
            longest = first + count - start if net.period is None else count
            union = _Condensation(net).extend(start, longest, growth=1)
            needed[place] = union.steps if union.size == 1 else count + 1
        return needed[place]

    for size in range(1, count + 1):
        if all(need(start) <= size for start in range(first, first + count - size + 1, size)):
            return size
    return None


class _Condensation:
    """Strong components of a growing union of graphs: labels (n,) and the edges between components."""

    def __init__(self, net: Network) -> None:
        self.net, self.steps = net, 0
        self.size, self.labels = net.n, np.arange(net.n, dtype=np.int64)
        self.between = np.empty((2, 0), np.int64)  # edges between components: sender, receiver

    def extend(self, first: int, count: int, growth: int = 2) -> _Condensation:
        """Add steps first, first + 1, … until one component is left or `count` steps, at most a period, were added.

        Each round adds `growth` times as many steps as the one before. With growth 1, `steps` is the smallest number.
        """
        limit = max(1, int(CHUNK_EDGES / max(1.0, self.net.expected_edges)))
        chunk, count = 1, count if self.net.period is None else min(count, self.net.period)
        while self.steps < count and self.size > 1:
            chunk = min(chunk, count - self.steps, limit)
            self._add(*self.net.delivered_edges(first + self.steps, chunk))
            self.steps += chunk
            chunk *= growth
        return self

    def _add(self, senders: np.ndarray, receivers: np.ndarray) -> None:
        a, b = self.labels[senders], self.labels[receivers]
        new = a != b  # most edges lie inside a component after a step or two
        a, b = np.concatenate([self.between, np.stack([a[new], b[new]])], axis=1)
        graph = edge_matrix(a, b, self.size)
        size, merged = connected_components(graph, directed=True, connection="strong")
        merged = merged.astype(np.int64)
        self.labels, self.size = merged[self.labels], int(size)
        a, b = merged[a], merged[b]
        self.between = np.stack(np.divmod(np.unique((a * size + b)[a != b]), size))

    def reached(self, start: int, backwards: bool) -> np.ndarray:
        """(size,) booleans: components that component `start` reaches (or that reach it)."""
        a, b = self.between[::-1] if backwards else self.between
        graph = edge_matrix(a, b, self.size)
        order = breadth_first_order(graph, start, return_predecessors=False)
        mask = np.zeros(self.size, dtype=bool)
        mask[order] = True
        return mask
