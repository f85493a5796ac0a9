"""Lossy and delayed links, inactive clients: what is drawn, from which random numbers, and how it is queried."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from hgp_ref import networks
from hgp_ref.networks import FullyConnected, RandomDirected, RandomOut, Schedule, Unreliable
from hgp_ref.philox import MAX_STEP, SLEEP, below, key, philox4x32, step_counter

from .user_networks import OwnRing


def test_the_fate_of_a_message_is_one_counter():
    """A second reading of the words: lost by word 0, late by words 1 and 2 of (receiver, sender, step)."""
    net = Unreliable(RandomDirected(6, seed=1), loss=0.3, delay=4, seed=2**63 + 7)
    for s in (1, 2, 2**40):
        indptr, senders, _ = net.csr(s)
        receivers = np.repeat(np.arange(6), np.diff(indptr))
        expected = []
        for i, j in zip(receivers, senders, strict=True):
            w0, w1, w2, _ = philox4x32(i, j, s % 2**32, 9 * 2**24 + s // 2**32, *key(net.seed))
            expected.append(0 if i == j else -1 if w0 < round(0.3 * 2**32) else (int(w1) * 2**32 + int(w2)) * 5 >> 64)
        np.testing.assert_array_equal(net.delays(s), expected)


def test_measured_rates_are_the_requested_ones():
    """Five standard deviations."""
    net = Unreliable(FullyConnected(60), loss=0.2, delay=3, seed=1)
    late = np.concatenate([net.delays(s) for s in range(1, 11)])
    late = late[np.tile(~np.eye(60, dtype=bool).ravel(), 10)]
    for value, p in [(-1, 0.2), *((q, 0.2) for q in range(4))]:
        assert abs(np.mean(late == value) - p) < 5 * np.sqrt(p * (1 - p) / late.size)
    assert np.all(Unreliable(FullyConnected(5), loss=1.0).delays(1)[~np.eye(5, dtype=bool).ravel()] == -1)
    assert np.all(Unreliable(FullyConnected(5), loss=0.0, delay=0).delays(1) == 0)


def test_sleep_comes_in_stretches():
    n, stretch = 300, 10
    net = Unreliable(FullyConnected(n), loss=0, delay=0, sleep=0.3, seed=1, stretch=stretch)
    asleep = np.array([net.asleep(s) for s in range(1, 401)])
    assert abs(asleep.mean() - 0.3) < 5 * np.sqrt(0.21 / (n * 40))
    changes = asleep[1:] != asleep[:-1]
    for j in range(n):
        assert len(set((np.flatnonzero(changes[:, j]) % stretch).tolist())) <= 1  # its stretches begin at one place
    assert len({int(np.flatnonzero(changes[:, j])[0] % stretch) for j in range(n)}) == stretch  # not all at the same
    w0, w1, _, _ = philox4x32(0, 7, *step_counter(0, SLEEP), *key(1))
    block = (100 - 1 + int(below(w0, w1, stretch))) // stretch
    word = philox4x32(0, 7, *step_counter(block + 1, SLEEP), *key(1))[0]
    assert net.asleep(100)[7] == (word < round(0.3 * 2**32))


def test_a_sleeping_client_retains_its_values_and_wakes_up():
    net = Unreliable(RandomDirected(4, seed=1), loss=0.0, delay=0, sleep=[(2, 3, 5), (0, 5, 5), (2, 9, 9)])
    assert [net.asleep(s).nonzero()[0].tolist() for s in (2, 3, 5, 6, 9)] == [[], [2], [0, 2], [], [2]]
    W, inner = net.mixing_matrix(3), RandomDirected(4, seed=1).mixing_matrix(3)
    expected = inner.copy()
    expected[2], expected[:, 2] = 0, 0
    expected[range(4), range(4)] = [inner[j, j] + inner[2, j] if j != 2 else 1 for j in range(4)]
    np.testing.assert_array_equal(W, expected)
    np.testing.assert_array_equal(net.after(2).mixing_matrix(1), W)
    assert net.out_neighbours(3, 2).tolist() == [2] and 2 not in net.out_neighbours(3, 1)
    np.testing.assert_array_equal(net.mixing_matrix(6), RandomDirected(4, seed=1).mixing_matrix(6))


def test_a_sleeping_client_without_a_self_loop_retains_its_values():
    class Onwards(OwnRing):
        self_loops = False

        def out_adjacency(self, s):
            return np.arange(self.n + 1), ((np.arange(self.n) + 1) % self.n).astype(np.int32)

    net = Unreliable(Onwards(4), loss=0.1, delay=1, sleep=[(1, 1, 9)])
    np.testing.assert_array_equal(net.mixing_matrix(1), [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]])
    rows = np.zeros((4, 4))
    indptr, senders, weights = net.csr(1)
    rows[np.repeat(np.arange(4), np.diff(indptr)), senders] = weights
    np.testing.assert_array_equal(rows, net.mixing_matrix(1))


def test_doubly_stochastic_matrices_stay_so_when_clients_sleep():
    net = Unreliable(networks.StaticUndirected(7, 0.6, seed=1), loss=0, delay=0, sleep=0.4, seed=1)
    for W in net.mixing_matrices(1, 20):
        np.testing.assert_allclose([W.sum(axis=0), W.sum(axis=1)], 1, atol=1e-15)


@pytest.mark.parametrize("t", [0, 1, 7])
def test_views_of_later_steps_and_of_unreliable_links_commute(t):
    inner, rule = RandomOut(5, 2, seed=1), dict(loss=0.3, delay=3, sleep=0.4, seed=2, stretch=3)
    net = Unreliable(inner, **rule)
    for view in (net.after(t), Unreliable(inner.after(t), **rule), net.after(t // 2).after(t - t // 2)):
        assert isinstance(view, Unreliable)  # so that it is connected as such
        for s in (1, 2, 9):
            np.testing.assert_array_equal(view.delays(s), net.delays(t + s))
            np.testing.assert_array_equal(view.asleep(s), net.asleep(t + s))
            np.testing.assert_array_equal(view.mixing_matrix(s), net.mixing_matrix(t + s))
        assert repr(view) == repr(net) + (f".after({t})" if t else "")
    assert net.after(t).after(MAX_STEP - t - 1).delays(1).size
    with pytest.raises(ValueError, match="t must be an integer from 0 to .*, got"):
        net.after(t).after(MAX_STEP - t)


def test_order_of_asking_does_not_matter_and_copies_are_equal():
    net = Unreliable(RandomDirected(5, seed=1), loss=0.3, delay=3, sleep=0.2, seed=2)
    forwards = [net.delays(s) for s in range(1, 9)]
    for copy in (net, pickle.loads(pickle.dumps(net)), eval(repr(net), vars(networks))):
        for s in range(8, 0, -1):
            np.testing.assert_array_equal(copy.delays(s), forwards[s - 1])
    assert any(not np.array_equal(a, b) for a, b in zip(forwards, [Unreliable(net.net, 0.3, 3, 0.2, 3).delays(s)
               for s in range(1, 9)], strict=True))  # fmt: skip


def test_only_edges_that_carry_something_connect():
    ring = Schedule([([0, 1, 2], [1, 2, 0])])
    assert networks.smallest_window(ring, 1, 20) == 1
    net = Unreliable(ring, loss=0.5, delay=2, seed=1)
    assert net.period is None and networks.smallest_window(net, 1, 40) > 1
    arrive = []
    for s in (1, 2, 3):
        indptr, senders, _ = net.csr(s)
        receivers = np.repeat(np.arange(3), np.diff(indptr))
        arrive += [(j, i) for j, i, late in zip(senders, receivers, net.delays(s), strict=True) if late >= 0]
    heard = list(zip(*net.delivered_edges(1, 3), strict=True))
    assert sorted(heard) == sorted(arrive) and len(heard) < sum(net.edges(s)[0].size for s in (1, 2, 3))
    missing = networks.diagnose_connectivity(Unreliable(ring, loss=1.0), 1, 50)
    assert "not jointly strongly connected" in missing.message
    assert networks.diagnose_connectivity(Unreliable(ring, loss=0.9, delay=9), 1, 500) is None
    assert Unreliable(ring, loss=0, delay=0).period == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(net=3), TypeError, "net must be .*, got 3"),
        (dict(loss=1.5), ValueError, "loss must be .*, got 1.5"),
        (dict(loss="x"), TypeError, "loss must be .*, got 'x'"),
        (dict(delay=-1), ValueError, "delay must be .*, got -1"),
        (dict(delay=1.0), TypeError, "delay must be .*, got 1.0"),
        (dict(sleep=-0.1), ValueError, "sleep must be .*, got -0.1"),
        (dict(sleep="often"), TypeError, "sleep must be .*, got 'often'"),
        (dict(sleep=[(0, 3)]), ValueError, r"sleep\[0\] must be \(client, first step, last step\), got \(0, 3\)"),
        (dict(sleep=[(0, 1, 2), (4, 1, 2)]), ValueError, r"sleep\[1\]: client must be an integer from 0 to 3, got 4"),
        (dict(sleep=[(0, 5, 2)]), ValueError, r"sleep\[0\]: last step must be .*, got 2"),
        (dict(seed=-1), ValueError, "seed must be .*, got -1"),
        (dict(stretch=0), ValueError, "stretch must be .*, got 0"),
        (dict(net=Unreliable(FullyConnected(4))), ValueError, "net must not be Unreliable itself, got Unreliable"),
        (
            dict(net=Unreliable(FullyConnected(4)).after(3)),
            ValueError,
            "net must not be Unreliable itself, got Unreliable",
        ),
    ],
)
def test_bad_arguments_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        Unreliable(**({"net": FullyConnected(4)} | change))


def test_clients_in_other_processes_are_refused():
    class Elsewhere(networks.FullyConnected):
        clients = slice(0, 2)

    with pytest.raises(ValueError, match="net must be a network that is not distributed, got Elsewhere"):
        Unreliable(Elsewhere(4))
