"""Exact means along a spanning tree, against a simulation message by message."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.mixing import SpanningTree, Traffic, TreeAverage, find_tree
from hgp_ref.networks import (
    FullyConnected,
    OnePeerExponential,
    RandomDirected,
    RandomOut,
    Schedule,
    SelfLoops,
    StaticUndirected,
    Thinned,
    Unreliable,
)

EPS = np.finfo(np.float64).eps


def ring(n):
    return Schedule([(np.arange(n), (np.arange(n) + 1) % n)], n=n)


NETS = {
    "directed": lambda: RandomDirected(10, 0.1, 0.3, seed=3),
    "undirected": lambda: StaticUndirected(12, 0.3, seed=2),
    "ring": lambda: ring(6),
    "one out": lambda: RandomOut(8, 1, seed=2),
    "complete": lambda: FullyConnected(4),
    "exponential": lambda: OnePeerExponential(8),
    "thinned": lambda: Thinned(RandomDirected(7, seed=1)),
    "single": lambda: SelfLoops(1),
}
nets = pytest.mark.parametrize("kind", NETS)


def links(net, s):
    senders, receivers = net.edges(s)
    return set(zip(senders.tolist(), receivers.tolist(), strict=True))


def rounds_of_a_mean(net, up, down, s):
    """How many graphs after graph s a mean takes: messages one by one, each as soon as its sender may send it."""
    n, first = net.n, s
    has = {j: {j} for j in range(n)}  # clients whose values are part of j's sum
    below = {j: {j} for j in range(n)}
    for _ in range(n):
        for j in range(n):
            below[up[j]] |= below[j] if up[j] != j else set()
    sent = {0}
    while len(sent) < n:
        s += 1
        ready = [j for j in range(n) if j not in sent and has[j] == below[j] and (j, up[j]) in links(net, s)]
        for j in ready:
            sent.add(j)
            has[up[j]] = has[up[j]] | has[j]
    reached = {0}
    while len(reached) < n:
        s += 1
        reached |= {j for j in range(n) if down[j] in reached and (down[j], j) in links(net, s)}
    return s - first


@nets
def test_means_are_exact_and_equal_at_all_clients(kind):
    net = NETS[kind]()
    u = np.random.default_rng(1).normal(size=(net.n, 5))
    for avg in (TreeAverage(net), TreeAverage(net, find_tree(net))):
        for call in (0, 3):
            mean = avg.apply(u, call)
            assert np.all(mean == mean[0]) and np.abs(mean - u.mean(axis=0)).max() <= 2 * net.n * EPS
    np.testing.assert_array_equal(mean, avg.apply(u, 0))  # the tree fixes the order of sums, whatever the graphs
    stacked = avg.apply(np.stack([u, 2 * u]), 0)
    np.testing.assert_array_equal(stacked, np.stack([mean, 2 * mean]))


@nets
def test_two_messages_per_link_and_the_rounds_of_a_simulation(kind):
    net = NETS[kind]()
    channel = TreeAverage(net).connect()
    u = np.random.default_rng(1).normal(size=(net.n, 5))
    tree = channel.tree(u)
    assert channel.traffic == tree.traffic and channel.step == tree.traffic.rounds
    later = TreeAverage(net).connect()
    later.step = 7
    assert later.tree(u) == find_tree(net, 8, 8) and later.step == 7 + find_tree(net, 8, 8).traffic.rounds
    for _ in range(3):
        before, step = channel.traffic, channel.step
        channel.mix(u)
        rounds = rounds_of_a_mean(net, tree.up.tolist(), tree.down.tolist(), step)
        messages = 2 * (net.n - 1)
        assert channel.traffic - before == Traffic(messages, 5 * messages, 40 * messages, rounds)
        assert channel.step == step + rounds


@nets
def test_links_of_the_tree_are_links_of_the_network(kind):
    net = NETS[kind]()
    tree = find_tree(net)
    seen = set().union(*(links(net, s) for s in range(1, int(tree.traffic.rounds) + 2)))
    others = range(1, net.n)
    assert all((j, tree.up[j]) in seen and (tree.down[j], j) in seen for j in others)
    assert sorted(tree.order()) == list(range(net.n)) and tree.root == 0
    position = {j: k for k, j in enumerate(tree.order())}
    assert all(position[int(tree.up[j])] < position[j] for j in others)


def test_static_undirected_graphs_give_breadth_first_search():
    """The depth of every client is its distance to the root, and each link carries at most one number."""
    net = StaticUndirected(20, 0.15, seed=4)
    tree = find_tree(net)
    adjacent = net.mixing_matrix(1) > 0
    distance, reached = np.zeros(20, int), {0}
    while len(reached) < 20:
        reached |= {j for j in range(20) if any(adjacent[i, j] for i in reached)}
        distance += [j not in reached for j in range(20)]
    distance[1:] += 1
    depth = [0] * 20
    for j in tree.order()[1:]:
        depth[j] = depth[int(tree.up[j])] + 1
    assert depth == distance.tolist()
    nearest = [min(i for i in range(20) if adjacent[i, j] and depth[i] == depth[j] - 1) for j in range(1, 20)]
    assert tree.up[1:].tolist() == nearest  # the first to be heard
    np.testing.assert_array_equal(tree.up, tree.down)
    assert tree.traffic.floats <= np.count_nonzero(adjacent) - 20
    channel = TreeAverage(net, tree).connect()
    channel.mix(np.ones((20, 2)))
    assert channel.traffic.rounds == 2 * distance.max() and channel.traffic.messages == 38  # the tree is known


def test_a_directed_ring_has_one_way_only():
    tree = find_tree(ring(5))
    assert tree.up.tolist() == [0, 2, 3, 4, 0] and tree.down.tolist() == [0, 0, 1, 2, 3]


class Searcher:
    """A client that looks for its place in the tree by what it receives; the root is client 0."""

    def __init__(self, j):
        self.j, self.up, self.down = j, *((0, 0) if j == 0 else (-1, -1))
        self.announced, self.heard = set(), []  # to whom, and by whom, in the order of messages
        self.facts, self.shared = {0} if j == 0 else set(), {}

    def two_way(self, receivers):
        """The receivers of this round's messages of one number."""
        if self.up >= 0:
            new = [i for i in receivers if i not in self.announced and i not in self.heard]
            self.announced |= set(new)
            return new, []
        found = [i for i in self.heard if i in receivers]
        self.up = found[0] if found else -1
        return [], found[:1]

    def one_way(self, receivers):
        """(receiver, facts) of this round, and the client that it has informed of a sum to come."""
        sent = [(i, self.facts - self.shared.get(i, set())) for i in receivers]
        for i, new in sent:
            self.shared[i] = self.shared.get(i, set()) | new
        parent = [i for i in receivers if i in self.facts][:1] if self.up < 0 <= self.down else []
        if parent:
            self.up, self.facts = parent[0], self.facts | {self.j}
        return sent, parent

    def hear(self, j, facts):
        self.down = j if self.down < 0 else self.down
        self.facts, self.shared[j] = self.facts | facts, self.shared.get(j, set()) | facts


def search(net, s, patience=100):
    """up, down and traffic of a search that starts with graph s, message by message."""
    others = lambda s, j: [i for i in net.out_neighbours(s, j).tolist() if i != j]  # noqa: E731
    clients, first, sent, idle = [Searcher(j) for j in range(net.n)], s, 0, 0
    while min(c.up for c in clients) < 0 and idle < (net.period or patience):
        rounds = [c.two_way(others(s, c.j)) for c in clients]
        for c, (new, _) in zip(clients, rounds, strict=True):
            for i in new:
                clients[i].heard.append(c.j)
        messages = sum(len(a) + len(b) for a, b in rounds)
        sent, s, idle = sent + messages, s + 1, 0 if messages else idle + 1
    traffic = Traffic(sent, sent, 4 * sent, s - first)
    if min(c.up for c in clients) >= 0:
        return [c.up for c in clients], [c.up for c in clients], traffic
    clients, sent, first = [Searcher(j) for j in range(net.n)], 0, s
    while min(len(c.facts) for c in clients) < net.n:
        rounds = [c.one_way(others(s, c.j)) for c in clients]
        for c, (facts, parent) in zip(clients, rounds, strict=True):
            for i, new in facts:
                if new:
                    clients[i].hear(c.j, new)
            sent += len(parent) + sum(len(new) for _, new in facts)
        s += 1
    return [c.up for c in clients], [c.down for c in clients], traffic + Traffic(sent, 2 * sent, 8 * sent, s - first)


def test_a_tree_is_found_by_the_messages_that_are_counted():
    """Links both ways, one way, and some of each; static graphs, and graphs that repeat or do not."""
    both = np.arange(5), np.arange(5) - 1
    mixed = Schedule([(np.r_[0, 1, 1, 2, 3, 4], np.r_[1, 0, 2, 3, 4, 0])], n=5)
    repeated = Schedule([([0, 1], [1, 2]), ([2, 3, 1], [3, 0, 0]), ([0, 3], [2, 1])], n=4)
    path = Schedule([(np.r_[both[0][1:], both[1][1:]], np.r_[both[1][1:], both[0][1:]])], n=5)
    others = [mixed, repeated, path, ring(3), RandomOut(6, 1, seed=9), RandomDirected(6, 0.05, 0.15, seed=4)]
    for net in [*(make() for make in NETS.values()), *others]:
        for start in (1, 2):
            tree = find_tree(net, 4, start)
            if net.n == 1:
                continue
            up, down, traffic = search(net, start)
            assert (tree.up.tolist(), tree.down.tolist()) == (up, down), net
            assert tree.traffic == traffic, (net, tree.traffic, traffic)
    assert find_tree(path).traffic == Traffic(8, 8, 64, 8)  # each announces once and joins once, one after the other
    assert find_tree(ring(3)).traffic == Traffic(11, 21, 168, 10)  # one number in vain; then ten facts


def test_maxima_travel_along_the_tree():
    net = RandomDirected(6, 0.1, 0.3, seed=3)
    values = np.random.default_rng(0).normal(size=(6, 3))
    channel = TreeAverage(net).connect()
    tree = channel.tree(np.zeros((6, 1), dtype=np.float32))
    assert tree.traffic.bytes == 4 * tree.traffic.floats
    np.testing.assert_array_equal(channel.max_consensus(values, np.zeros((6, 1), np.float32)), values.max(axis=0))
    sent = channel.traffic - tree.traffic
    assert (sent.messages, sent.floats, sent.bytes) == (10, 30, 120)


def test_networks_without_paths_are_refused():
    both = Schedule([([0, 1], [1, 2])], n=3)
    with pytest.raises(ValueError, match=r"net must give every client a path to client 0 and back.* \[1, 2\] within"):
        TreeAverage(both).apply(np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"the link from client 1 to client 2 must appear again, but does not in 1 gr"):
        backwards = Schedule([((np.arange(4) + 1) % 4, np.arange(4))], n=4)
        TreeAverage(backwards, find_tree(ring(4))).apply(np.ones((4, 1)))


def test_what_a_tree_needs():
    with pytest.raises(ValueError, match=r"net must be reliable, got Unreliable.*; use RobustPushSum"):
        TreeAverage(Unreliable(FullyConnected(3)))
    with pytest.raises(ValueError, match="tree must have 3 clients like net, got 4"):
        TreeAverage(FullyConnected(3), find_tree(FullyConnected(4)))
    with pytest.raises(TypeError, match="tree must be"):
        TreeAverage(FullyConnected(3), "star")

    good = [0, 0, 0]
    for up, down, message in (
        ([0, 2, 1], good, r"tree.up must lead from every client to one root, got \[0, 2, 1\]"),
        (good, [0, 2, 1], r"tree.down must lead from every client to one root"),
        ([0, 1, 0], good, r"tree.up must lead from every client to one root"),
        ([1, 2, 0], good, r"tree.up must lead from every client to one root"),
        ([0, 0, 3], good, r"tree.up must hold integers from 0 to 2, got \[0, 0, 3\]"),
        (good, [0, 0, -1], r"tree.down must hold integers from 0 to 2"),
        (good, [0.0, 0.0, 0.0], r"tree.down must hold integers from 0 to 2"),
        (good, [1, 1, 1], r"tree.up and tree.down must have the same root, got 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            TreeAverage(FullyConnected(3), SpanningTree(np.array(up), np.array(down), Traffic()))
    other = TreeAverage(FullyConnected(3), SpanningTree(np.array([1, 2, 2]), np.array([2, 2, 2]), Traffic()))
    assert other.apply(np.array([[0.0], [0.0], [3.0]]), 0).ravel().tolist() == [1.0, 1.0, 1.0]

    class Elsewhere(FullyConnected):
        clients = slice(0, 2)

    with pytest.raises(ValueError, match="net must have all clients in one process"):
        TreeAverage(Elsewhere(3))


def test_certificates_along_a_tree(tmp_path):
    """The clients certify a run themselves, with few messages; trees are saved and read."""
    problem = hgp.problems.Quadratic.random(n=5, dim_x=6, dim_lam=2, seed=1)
    lam, net = np.zeros((5, 2)), RandomDirected(5, seed=1)
    x = hgp.exact.inner_solution(problem, lam)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    avg = TreeAverage(net)
    bound = hgp.certify(problem, x, lam, est, avg).decentralised_bound
    exact = hgp.certify(problem, x, lam, est, hgp.ExactAverage(5)).decentralised_bound
    error = np.linalg.norm(est.value - hgp.exact.hypergradient(problem, x, lam), axis=1)
    np.testing.assert_allclose(bound, exact, rtol=1e-4)  # bounds of 1e-9 include rounding errors of some 1e-14
    assert np.all(error <= bound) and avg.traffic.messages < 100
    tree = find_tree(net)
    tree.save(tmp_path / "tree.npz")
    loaded = hgp.load(tmp_path / "tree.npz")
    assert loaded == tree and isinstance(loaded, SpanningTree)
