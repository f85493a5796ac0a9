"""Exact means along a spanning tree: sums travel to a root, and what the root has travels back.

Clients first find a tree (`find_tree`). After that a mean takes 2(n − 1) messages of one vector. If graphs change, a
client waits until the link that it needs appears; other links stay silent. A mean is the same number at all clients,
bit for bit: sums are added in an order that the tree fixes, and the root divides by n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, device, host_dtype
from hgp_ref.mixing.averaging import Averaging, check_network
from hgp_ref.mixing.channel import Channel, Traffic, WeightRule
from hgp_ref.networks import Network
from hgp_ref.philox import MAX_STEP
from hgp_ref.results import Result
from hgp_ref.validation import Instance, Integer, checked

PATIENCE = 1000  # rounds without progress after which a link is missing, for graphs without a period
TWO_WAY = 100  # rounds without progress after which clients no longer wait for links that go both ways


@dataclass(frozen=True)
class SpanningTree(Result):
    """The links along which sums travel to the root and results travel back.

    Attributes
    ----------
    up : (n,), the client to which client j sends its sum; the root has itself.
    down : (n,), the client from which client j receives; the root has itself.
    traffic : what finding the tree took.
    """

    up: np.ndarray
    down: np.ndarray
    traffic: Traffic

    @property
    def root(self) -> int:
        return int(np.flatnonzero(self.up == np.arange(len(self.up)))[0])

    def _summary(self) -> list[str]:
        return [
            f"spanning tree of {len(self.up)} clients with root {self.root}",
            f"  found by {self.traffic.one_line()}",
        ]

    def order(self) -> list[int]:
        """The clients, each after the one to which it sends."""
        children: list[list[int]] = [[] for _ in self.up]
        for j, parent in enumerate(self.up.tolist()):
            if j != parent:
                children[parent].append(j)
        order = [self.root]
        for j in order:
            order += children[j]
        return order


def check_tree(tree: SpanningTree, n: int) -> None:
    """Raise ValueError unless both kinds of links lead all n clients to the same root."""
    roots = []
    for name in ("up", "down"):
        parents = getattr(tree, name)
        validation.instance(f"tree.{name}", parents, np.ndarray)
        if parents.shape != (n,):
            raise ValueError(f"tree must have {n} clients like net, got {parents.size}")
        if parents.dtype.kind not in "iu" or parents.min() < 0 or parents.max() >= n:
            raise ValueError(f"tree.{name} must hold integers from 0 to {n - 1}, got {parents.tolist()}")
        ends = parents
        for _ in range(n.bit_length()):  # after k rounds 2^k links further
            ends = ends[ends]
        if (ends != ends[0]).any() or parents[ends[0]] != ends[0]:
            raise ValueError(f"tree.{name} must lead from every client to one root, got {parents.tolist()}")
        roots.append(int(ends[0]))
    if roots[0] != roots[1]:
        raise ValueError(f"tree.up and tree.down must have the same root, got {roots[0]} and {roots[1]}")


@checked(net=Instance(Network), itemsize=Integer(1), first_step=Integer(1, MAX_STEP))
def find_tree(net: Network, itemsize: int = 8, first_step: int = 1) -> SpanningTree:
    """A spanning tree rooted at client 0, found by messages of one or two numbers over graphs first_step, …

    Links that go both ways. A client that belongs to the tree announces it once to every out-neighbour that has not
    announced the same. A client that has received announcements joins as soon as it can send to one of their senders;
    the earliest sender comes first. On a static undirected graph this is breadth-first search.

    If no client could join for TWO_WAY rounds (or a period), links go one way only. Then every client announces, by
    flooding, when it has found an out-neighbour that reaches the root, and from which client the root's announcement
    first reached it.

    Clients know n, but not when the others have finished; a deployment fixes a number of rounds that is large enough.
    Raises ValueError if the graphs are not jointly strongly connected.

    Examples
    --------
    >>> tree = hgp.mixing.find_tree(hgp.networks.FullyConnected(3))
    >>> tree.up.tolist(), tree.traffic.messages
    ([0, 0, 0], 4)
    """
    if net.n == 1:
        return SpanningTree(np.zeros(1, np.int64), np.zeros(1, np.int64), Traffic())
    tree, sent = _two_way(net, first_step, itemsize)
    if tree is not None:
        return SpanningTree(tree, tree, sent)
    up, down, more = _one_way(net, first_step + int(sent.rounds), itemsize)
    return SpanningTree(up, down, sent + more)


def _two_way(net: Network, first_step: int, itemsize: int) -> tuple[np.ndarray | None, Traffic]:
    """The parents in a tree of links that go both ways, or None; and what was sent."""
    n, s, idle, messages, joined = net.n, first_step, 0, 0, 1
    parent = np.full(n, -1)
    parent[0] = 0
    members: list[list[int]] = [[] for _ in range(n)]  # those of the tree that j knows, in the order of their messages
    sent_to: list[set[int]] = [set() for _ in range(n)]
    while joined < n and idle < (net.period or TWO_WAY):
        member, known, before = parent >= 0, [list(h) for h in members], messages
        for j, receivers in enumerate(_receivers(net, s)):
            if member[j]:
                new = [i for i in receivers if i != j and i not in sent_to[j] and i not in known[j]]
                sent_to[j].update(new)
                for i in new:
                    members[i].append(j)
                messages += len(new)
            else:
                parents = [i for i in known[j] if i in receivers]
                if parents:
                    parent[j] = parents[0]
                    joined, messages = joined + 1, messages + 1
        s, idle = s + 1, idle + 1 if messages == before else 0
    return parent if joined == n else None, Traffic.of(messages, 1, itemsize, s - first_step)


def _one_way(net: Network, first_step: int, itemsize: int) -> tuple[np.ndarray, np.ndarray, Traffic]:
    """Whom each client sends to, and whom it receives from, along the tree; facts of two numbers flood the network.

    Client j's fact says that j reaches the root, and from whom j receives. Every client passes it on to everyone once.
    """
    n, s, idle, messages = net.n, first_step, 0, 0
    up, down = np.full(n, -1), np.full(n, -1)
    up[0] = down[0] = 0
    facts: list[set[int]] = [set() for _ in range(n)]
    facts[0].add(0)
    exchanged: list[dict[int, set[int]]] = [{} for _ in range(n)]  # facts that i has from j or j from i, by j and i
    while any(len(known) < n for known in facts):
        if idle >= (net.period or PATIENCE):
            raise ValueError(
                f"net must give every client a path to client {net._names_of(0)[0]!r} and back, but {net!r} gives none "
                f"to clients {net._names_of(np.flatnonzero(up < 0))} within {s - first_step} rounds"
            )
        arrivals: list[tuple[int, int, set[int]]] = []
        before, held = messages, [set(known) for known in facts]
        for j, receivers in enumerate(_receivers(net, s)):
            for i in receivers:
                new = held[j] - exchanged[j].setdefault(i, set()) if i != j else set()
                if new:
                    arrivals.append((j, i, new))
            parents = [i for i in receivers if i in held[j]] if up[j] < 0 <= down[j] else []
            if parents:
                up[j] = parents[0]
                facts[j].add(j)
                messages += 1  # tells the other that a sum will come
        for j, i, new in arrivals:
            exchanged[j][i] |= new
            exchanged[i].setdefault(j, set()).update(new)
            facts[i] |= new
            messages += len(new)
            if down[i] < 0:  # the first message includes the fact of the root
                down[i] = j
        s, idle = s + 1, idle + 1 if messages == before else 0
    return up, down, Traffic.of(messages, 2, itemsize, s - first_step)


def _receivers(net: Network, s: int) -> list[list[int]]:
    indptr, receivers = net.out_adjacency(s)
    ends, flat = indptr.tolist(), receivers.tolist()
    return [flat[a:b] for a, b in pairwise(ends)]


class TreeChannel(Channel):
    """A channel along a spanning tree, over graphs in which its links appear again and again.

    mix             the mean, at every client: 2(n − 1) messages
    to_root         the mean, at the root: n − 1 messages
    from_root       a row of the root, at every client: n − 1 messages

    The tree is found before the first message, if it is not given. The number of graphs that a call takes depends on
    when links appear; `steps` has no effect.

    Examples
    --------
    >>> channel = hgp.mixing.TreeAverage(hgp.networks.FullyConnected(3)).connect()
    >>> channel.to_root(np.array([[1.0], [2.0], [6.0]]))
    array([[3.]])
    """

    def __init__(self, net: Network, tree: SpanningTree | None = None) -> None:
        super().__init__(net.n)
        self.net, self._tree, self._order = net, tree, [] if tree is None else tree.order()

    def tree(self, like: Array) -> SpanningTree:
        """The spanning tree; the first call finds it."""
        if self._tree is None:
            self._tree = find_tree(self.net, host_dtype(like).itemsize, self.step + 1)
            self._order = self._tree.order()
            self._sent += self._tree.traffic
            self.step += int(self._tree.traffic.rounds)
        return self._tree

    def mix(self, z: Array, steps: int = 1, weight_rule: WeightRule = WeightRule.NONE) -> Array:
        return self.from_root(self.to_root(z))

    def average(self, z: Array, steps: int = 1, weight_rule: WeightRule = WeightRule.NONE) -> Array:
        return self.mix(z, steps)

    def to_root(self, z: Array) -> Array:
        """The mean of the rows of z (..., n, d) at the root, (..., 1, d)."""
        return self._reduce(z, lambda a, b: a + b) / self.n

    def from_root(self, row: Array) -> Array:
        """A row of the root (..., 1, d) at every client, (..., n, d)."""
        xp, down = array_namespace(row), self.tree(row).down
        has = down == np.arange(self.n)
        self._wait(down, np.arange(self.n), lambda: has[down] & ~has, lambda used: has.__setitem__(used, True))
        self.count(self.n - 1, row, WeightRule.NONE, rounds=0)
        shape = (*row.shape[:-2], self.n, row.shape[-1])
        return xp.broadcast_to(row, shape) + xp.zeros(shape, dtype=row.dtype, device=device(row))

    def max_consensus(self, values: np.ndarray, like: Array, max_rounds: int | None = None) -> np.ndarray:
        self.tree(like)
        values = np.asarray(values, dtype=np.float64)
        before = self._sent
        top = self.from_root(self._reduce(values, np.maximum))[0]
        sent = self._sent - before
        self._sent = before + Traffic(sent.messages, sent.floats, sent.floats * host_dtype(like).itemsize, sent.rounds)
        return top

    def _reduce(self, z: Array, add: Callable[[Array, Array], Array]) -> Array:
        """The sum of the rows of z, or another operation `add`, at the root; each client adds its children in order."""
        up = self.tree(z).up
        rows, parents = [z[..., j : j + 1, :] for j in range(self.n)], up.tolist()
        for j in reversed(self._order[1:]):
            rows[parents[j]] = add(rows[parents[j]], rows[j])
        not_root = up != np.arange(self.n)
        waits_for = np.bincount(up[not_root], minlength=self.n)
        sent = ~not_root

        def use(used: np.ndarray) -> None:
            sent[used] = True
            np.subtract.at(waits_for, up[used], 1)

        self._wait(np.arange(self.n), up, lambda: (waits_for == 0) & ~sent, use)
        self.count(self.n - 1, z, WeightRule.NONE, rounds=0)
        return rows[self._order[0]]

    def _wait(
        self,
        senders: np.ndarray,
        receivers: np.ndarray,
        ready: Callable[[], np.ndarray],
        use: Callable[[np.ndarray], None],
    ) -> None:
        """Take graphs until every link (senders[k], receivers[k]) that is `ready` has been used; counts rounds only."""
        idle, wanted, first = 0, senders * self.n + receivers, self.step
        while (waiting := ready()).any():
            self.step += 1
            indptr, to = self.net.out_adjacency(self.step)
            present = np.repeat(np.arange(self.n), np.diff(indptr)) * self.n + to
            used = np.flatnonzero(waiting)
            used = used[np.isin(wanted[used], present)]
            use(used)
            idle = 0 if used.size else idle + 1
            if idle >= (self.net.period or PATIENCE):
                j = int(np.flatnonzero(waiting)[0])
                sender, receiver = self.net._names_of(np.array([senders[j], receivers[j]]))
                raise ValueError(
                    f"the link from client {sender!r} to client {receiver!r} must appear again, but does not in "
                    f"{idle} graphs of {self.net!r} after graph {self.step - idle}"
                )
        self._sent += Traffic(rounds=self.step - first)


class TreeAverage(Averaging):
    """The exact mean along a spanning tree, over any network with reliable links.

    Sums travel up the tree to client 0 and the mean travels down: 2(n − 1) messages of one vector per call. Finding the
    tree takes messages of one or two numbers (`find_tree`), which count as traffic of the first call. On a static
    undirected graph a call takes 2 · depth rounds. Over graphs that change, clients wait for the links of the tree, so
    that calls take more rounds than those of PushSum, but far fewer messages. All clients obtain the same bits.

    The root receives sums over all clients, as a server does, and every client depends on all others: a client that
    leaves stops everyone. A call uses as many graphs as it needs; `graphs_before` counts calls instead.

    Parameters
    ----------
    tree : a tree that was found before, which then costs nothing.

    Examples
    --------
    >>> avg = hgp.mixing.TreeAverage(hgp.networks.RandomDirected(n=3, seed=0))
    >>> avg.apply(np.array([[0.0], [0.0], [3.0]]), 0).ravel()
    array([1., 1., 1.])
    """

    exact = True

    def __init__(self, net: Network, tree: SpanningTree | None = None) -> None:
        super().__init__()
        self.network = check_network(net)
        if not net.is_reliable:
            raise ValueError(f"net must be reliable, got {net!r}; use RobustPushSum")
        if net.clients != slice(0, net.n):
            raise ValueError(f"net must have all clients in one process, got {net!r}; use PushSum")
        if tree is not None:
            validation.instance("tree", tree, SpanningTree)
            check_tree(tree, net.n)
        self.n, self.steps, self.tree = net.n, 1, tree

    def connect(self) -> TreeChannel:
        return TreeChannel(self.network, self.tree)

    def __repr__(self) -> str:
        return f"TreeAverage({self.network!r})"
