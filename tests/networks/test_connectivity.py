"""Strong connectivity of unions against a transitive closure, and the smallest window by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgp_ref import networks
from hgp_ref.networks import RandomDirected, RandomOut, Schedule, smallest_window, strongly_connected, unreachable


def reach(net, first, count):
    """[i, j]: is there a path from j to i in the union?"""
    union = (net.mixing_matrices(first, count) > 0).any(axis=0)
    closure = np.linalg.matrix_power(union.astype(float), net.n) > 0
    return closure


def schedules():
    @st.composite
    def build(draw):
        n, period = draw(st.integers(1, 6)), draw(st.integers(1, 4))
        pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
        graphs = [sorted(draw(st.sets(pair, max_size=n))) for _ in range(period)]
        return Schedule([([a for a, _ in g], [b for _, b in g]) for g in graphs], n=n)

    return build()


def random_networks():
    return st.builds(
        RandomDirected, st.integers(1, 5), st.just(0.0), st.sampled_from([0.1, 0.3, 0.6]), st.integers(0, 99)
    )


@given(schedules() | random_networks(), st.integers(1, 5), st.integers(1, 9))
def test_strong_connectivity(net, first, count):
    R = reach(net, first, count)
    assert strongly_connected(net, first, count) == R.all()
    found = unreachable(net, first, count)
    assert (found is None) == R.all()
    if found is not None:
        mutual = R & R.T
        assert found.largest == mutual.sum(axis=0).max() == mutual[:, found.member].sum()
        assert found.components == np.unique(mutual, axis=0).shape[0]
        assert found.unreached == tuple(np.flatnonzero(~R[:, found.member]))
        assert found.unheard == tuple(np.flatnonzero(~R[found.member]))


@given(schedules() | random_networks(), st.integers(1, 5), st.integers(1, 12))
def test_smallest_window(net, first, count):
    def works(B):
        return all(reach(net, first + t * B, B).all() for t in range(count // B))

    assert smallest_window(net, first, count) == next((B for B in range(1, count + 1) if works(B)), None)


def test_windows_are_aligned_at_the_start_of_the_stretch():
    """Steps 1, 2 and 3, 4 close the ring, steps 2, 3 do not."""
    there, back = ([0], [1]), ([1], [0])
    net = Schedule([there, back, back, there], n=2)
    assert smallest_window(net, 1, 12) == 2
    assert smallest_window(net, 2, 12) == 3


def test_every_place_of_a_period_is_judged_for_itself():
    """Step 1 alone is connected, steps 2 and 3 are silent: two steps from 5 on are not enough, any three are."""
    net = Schedule([([0, 1], [1, 0]), ([], []), ([], [])], n=2)
    assert smallest_window(net, 1, 1) == 1
    assert smallest_window(net, 1, 9) == 3


def test_message_names_the_clients():
    net = Schedule([([0, 1, 2, 1], [1, 2, 0, 3])], n=5)
    message = unreachable(net, 3, 10).message
    assert "steps 3 .. 12" in message and "\n" not in message
    assert "clients 4 cannot be reached by" in message and "clients 3, 4 cannot reach" in message
    many = unreachable(networks.SelfLoops(100), 1, 10**9).message
    assert "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 89 more" in many


def test_one_period_is_enough():
    """A stretch of 10^15 steps ends after one period, or as soon as the union is connected."""
    assert strongly_connected(networks.OnePeerExponential(6), 1, 10**15)
    assert smallest_window(Schedule([([0], [1]), ([1], [0])]), 1, 10**6) == 2
    assert strongly_connected(RandomDirected(3), 1, 10**15)
    assert unreachable(networks.SelfLoops(3), 5, 10**15).unreached == (1, 2)


def test_large_sparse_graphs():
    assert strongly_connected(RandomOut(20_000, 4), 1, 50)
    isolated = unreachable(RandomOut(20_000, 2), 1, 1)
    heard = np.zeros(20_000, dtype=bool)
    senders, receivers = RandomOut(20_000, 2).edges(1)
    heard[receivers[senders != receivers]] = True
    assert 0 < np.count_nonzero(~heard)
    assert set(np.flatnonzero(~heard)) <= set(isolated.unreached)


@pytest.mark.parametrize("check", [strongly_connected, unreachable, smallest_window])
def test_bad_stretches(check):
    for name, first, count in (("first", 0, 1), ("count", 1, 0)):
        with pytest.raises(ValueError, match=f"{name} must be an integer (from 1 to|>= 1).*, got 0"):
            check(RandomDirected(3), first, count)
