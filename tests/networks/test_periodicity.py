"""Graphs without self-loops: averages converge if and only if a product of the matrices is positive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hgp_ref as hgp
from hgp_ref.networks import Disconnected, Network, Periodic, diagnose_connectivity
from hgp_ref.networks.connectivity import periodic

from .user_networks import Bare


class Given(Network):
    """Lists of receivers as they are, repeated, or once and then the last for ever."""

    self_loops = False

    def __init__(self, graphs, repeats=True):
        super().__init__(len(graphs[0]), period=len(graphs) if repeats else None)
        self.graphs = graphs

    @property
    def expected_edges(self):
        return float(sum(len(r) for lists in self.graphs for r in lists) / len(self.graphs))

    def out_adjacency(self, s):
        lists = self.graphs[(s - 1) % len(self.graphs) if self.period else min(s, len(self.graphs)) - 1]
        return np.cumsum([0, *map(len, lists)]), np.concatenate(lists).astype(np.int32)


def graphs():
    @st.composite
    def build(draw):
        n, period = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        receivers = st.sets(st.integers(0, n - 1), min_size=1, max_size=2).map(sorted)
        return [draw(st.lists(receivers, min_size=n, max_size=n)) for _ in range(period)]

    return build()


def mixes(net):
    """Are the products from every step on positive after (n T)^2 + T steps, more than Wielandt's bound needs?"""
    T, steps = net.period, (net.n * net.period) ** 2 + net.period
    for first in range(1, T + 1):
        product = np.eye(net.n)
        for t in range(steps):
            product = (net.mixing_matrix(first + t) @ product > 0).astype(float)
        if not product.all():
            return False
    return True


@settings(max_examples=150)
@given(graphs(), st.integers(1, 3))
def test_no_obstacle_if_and_only_if_products_become_positive(lists, first):
    net = Given(lists)
    found = diagnose_connectivity(net, first, 100)
    assert (found is None) == mixes(net)
    if found is not None:
        assert "\n" not in found.message and f"steps {first} .. {first + 99}" in found.message


def test_permutations_whose_union_has_no_period():
    """A cycle of three and a swap in turn: the union is strongly connected with a loop, yet nothing averages."""
    net = Given([[[1], [2], [0]], [[1], [0], [2]]])
    u = np.arange(3.0)[:, None]
    assert sorted(hgp.PushSum(net, 200).apply(u).ravel()) == [0, 1, 2]
    assert isinstance(diagnose_connectivity(net, 1, 200), Periodic)


@pytest.mark.parametrize(("n", "groups"), [(2, 2), (3, 3), (12, 12)])
def test_rings(n, groups):
    assert diagnose_connectivity(Bare(n), 5, 100) == Periodic(5, 100, groups)
    assert f"{groups} groups whose values never meet" in diagnose_connectivity(Bare(n), 5, 100).message
    assert diagnose_connectivity(Bare(1), 1, 1) is None


def test_two_cycles_of_coprime_lengths_mix():
    assert diagnose_connectivity(Given([[[1], [2], [0, 3], [0]]]), 1, 10) is None  # lengths 3 and 4
    assert diagnose_connectivity(Given([[[1], [2], [3], [0, 4], [5], [0]]]), 1, 10).groups == 2  # lengths 4 and 6


def test_without_a_period_the_union_is_judged():
    ring, chord = [[1], [2], [3], [0]], [[1], [2], [0, 3], [0]]
    assert periodic(Given([ring] * 3, repeats=False), 1, 50).groups == 4
    assert periodic(Given([ring] * 3 + [chord], repeats=False), 1, 3).groups == 4
    assert periodic(Given([ring] * 3 + [chord], repeats=False), 1, 4) is None


def test_unconnected_graphs_are_reported_before_periodicity():
    assert isinstance(diagnose_connectivity(Given([[[0], [1]]]), 1, 3), Disconnected)
    assert diagnose_connectivity(hgp.networks.RandomDirected(4), 1, 20) is None
