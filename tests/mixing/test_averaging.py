"""Averaging operators against explicit products of mixing matrices, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import DOUBLY_STOCHASTIC, NETWORK_KINDS
from support.libraries import assert_close, identity_rtol

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.mixing.simulated import composing_pays

RTOL = identity_rtol("float64")


def push_sum(net, steps, debias="reset", mode="auto"):
    if debias == "keep":
        with pytest.warns(RuntimeWarning, match="can diverge"):
            return hgp.PushSum(net, steps, debias=debias, mode=mode)
    return hgp.PushSum(net, steps, debias=debias, mode=mode)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("debias", ["reset", "keep", "conserve"])
@pytest.mark.parametrize("kind", NETWORK_KINDS)
@pytest.mark.parametrize("n", [2, 5, 20])
def test_push_sum_is_its_explicit_matrix(kind, n, debias, mode):
    net = NETWORK_KINDS[kind](n)
    u = np.random.default_rng(1).normal(size=(n, 3))
    avg = push_sum(net, 4, debias, mode)
    for call in (0, 3, 1):  # calls out of order: the kept weights are found again
        assert_close(avg.apply(u, call=call), exact.push_sum_matrix(net, 4, call, debias=debias) @ u, RTOL)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("kind", DOUBLY_STOCHASTIC)
def test_gossip_is_the_product_of_its_matrices(kind, mode):
    net = NETWORK_KINDS[kind](8)
    u = np.random.default_rng(1).normal(size=(8, 3))
    averaged = hgp.Gossip(net, 3, mode=mode).apply(u, call=2)
    assert_close(averaged, exact.mixing_product(net, 3, 2) @ u, RTOL)
    assert_close(averaged.mean(axis=0), u.mean(axis=0), RTOL)  # doubly stochastic: the mean is kept exactly


@given(n=st.integers(1, 9), d=st.integers(1, 4), seed=st.integers(0, 2**32), steps=st.integers(1, 6))
def test_invariants_of_every_averaging(n, d, seed, steps):
    """Constants are fixed points; scaling passes through; client-wise extremes bound the result (row-stochastic)."""
    u = np.random.default_rng(seed).normal(size=(n, d))
    for avg in (hgp.PushSum(hgp.networks.RandomDirected(n=n, seed=seed), steps), hgp.ExactAverage(n)):
        ones = np.ones((n, d))
        assert_close(avg.apply(ones), ones, RTOL)
        averaged = avg.apply(u, call=1)
        scaled = avg.apply(-3.0 * u, call=1)
        assert np.abs(scaled + 3.0 * averaged).max() <= 3.0 * RTOL * np.abs(u).max()  # the mean may cancel, u does not
        assert np.all(averaged <= u.max(axis=0) + RTOL) and np.all(averaged >= u.min(axis=0) - RTOL)


def test_exact_average_is_theta():
    u = np.random.default_rng(0).normal(size=(4, 3))
    assert_close(hgp.ExactAverage(4).apply(u).ravel(), exact.theta(4, 3) @ u.ravel(), RTOL)


def test_push_sum_tends_to_the_mean():
    net = hgp.networks.RandomDirected(n=6, seed=2)
    u = np.random.default_rng(0).normal(size=(6, 2))
    errors = [np.abs(hgp.PushSum(net, S).apply(u) - u.mean(axis=0)).max() for S in (1, 10, 60)]
    assert errors[1] < errors[0] / 10 and errors[2] < 1e-13


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_run_axes_are_independent(mode):
    u = np.random.default_rng(0).normal(size=(2, 5, 7, 3))
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=7, seed=2), 3, mode=mode)
    together = avg.apply(u, call=4)
    for a in range(2):
        for b in range(5):
            assert_close(together[a, b], avg.apply(u[a, b], call=4), RTOL)


def test_runs_stack_composed_and_stepping():
    nets = [hgp.networks.RandomDirected(n=6, seed=s) for s in (1, 2)]
    averagings = [
        hgp.PushSum(nets[0], 2, debias="conserve"),
        hgp.ExactAverage(6),
        hgp.PushSum(nets[1], 5, mode="stepping", debias="conserve"),
    ]
    u = np.random.default_rng(0).normal(size=(3, 6, 2))
    for chosen in ([0, 1], [0, 1, 2]):  # one stacked matrix product; one by one
        some = [averagings[r] for r in chosen]
        channel = hgp.mixing.Runs([a.connect() for a in some])
        mixer = hgp.mixing.Mixer(some, channel, u[chosen], first=1, runs=True)
        for m in (0, 1):
            got = mixer.average(u[chosen])
            restart = mixer.carry(np.ones_like(u[chosen]))
            for r, avg in enumerate(some):
                assert_close(got[r], avg.apply(u[chosen][r], call=1 + m), RTOL)
                omega = np.ones(6) if avg.net is None else exact.push_sum_weights(avg.net, avg.steps, 1 + m)
                assert_close(restart[r, :, 0], omega, RTOL)


def test_rule_composes_few_clients_and_steps_through_many():
    few, many = hgp.networks.RandomDirected(n=100, seed=0), hgp.networks.RandomOut(100_000, k=4, seed=0)
    assert composing_pays(few, 10, 1_000) and not composing_pays(many, 10, 64)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_traffic_counts_edges_that_are_not_self_loops(mode):
    net = hgp.networks.RandomDirected(n=5, seed=3)
    sent = sum(net.edges(s)[0].size - 5 for s in range(7, 13))  # calls 2 and 3 of 3 steps
    avg = hgp.PushSum(net, 3, mode=mode)
    u = np.zeros((5, 4), dtype=np.float32)
    avg.apply(u, call=2)
    avg.apply(u, call=3)
    assert avg.traffic == hgp.Traffic(messages=sent, floats=sent * 5, bytes=sent * 20, rounds=6)
    exact_avg = hgp.ExactAverage(5)
    exact_avg.apply(u.astype(np.float64))
    assert exact_avg.traffic == hgp.Traffic(messages=20, floats=80, bytes=640, rounds=1)
    gossip = hgp.Gossip(hgp.networks.FullyConnected(5), 2, mode=mode)
    gossip.apply(u)
    assert gossip.traffic == hgp.Traffic(messages=40, floats=160, bytes=640, rounds=2)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_dtype_is_preserved(mode):
    u = np.ones((5, 4), dtype=np.float32)
    for debias in ("reset", "conserve"):
        avg = hgp.PushSum(hgp.networks.RandomDirected(n=5, seed=3), 3, debias=debias, mode=mode)
        assert avg.apply(u).dtype == np.float32


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda net: hgp.PushSum(net, 0), ValueError, "steps must be an integer >= 1, got 0"),
        (lambda net: hgp.PushSum(net, -1), ValueError, "steps must be an integer >= 1, got -1"),
        (lambda net: hgp.PushSum(net, 1.5), TypeError, "steps must be an integer >= 1, got 1.5"),
        (
            lambda net: hgp.PushSum(net, 2).apply(np.ones((3, 2)), call=1.5),
            TypeError,
            "call must be an integer >= 0, got 1.5",
        ),
        (lambda net: net.mixing_matrix(0), ValueError, "s must be an integer from 1 to .*, got 0"),
        (lambda net: exact.theta(0, 2), ValueError, "n must be an integer >= 1, got 0"),
        (lambda net: hgp.PushSum(net, 2, debias="never"), ValueError, "debias must be .*, got 'never'"),
        (lambda net: hgp.PushSum(net, 2, mode="fast"), ValueError, "mode must be .*, got 'fast'"),
        (lambda net: hgp.PushSum(np.eye(3), 2), TypeError, "net must be a network"),
        (lambda net: hgp.Gossip(net, 2), ValueError, "doubly stochastic.*use PushSum"),
        (lambda net: hgp.ExactAverage(0), ValueError, "n must be an integer >= 1, got 0"),
        (
            lambda net: hgp.PushSum(net, 2).apply(np.ones((4, 2))),
            ValueError,
            r"u must have shape \(..., 3, d\), one row per client, got \(4, 2\)",
        ),
        (lambda net: hgp.PushSum(net, 2).apply(np.ones(3)), ValueError, r"u must have shape .* got \(3,\)"),
        (
            lambda net: hgp.PushSum(net, 2).apply(np.ones((3, 2), dtype=int)),
            TypeError,
            "u must hold real floating-point numbers, got int64",
        ),
        (lambda net: hgp.PushSum(net, 2).apply([[1.0], [2.0], [3.0]]), TypeError, "u must be an array"),
        (
            lambda net: hgp.PushSum(net, 2).apply(np.ones((3, 2)), call=-1),
            ValueError,
            "call must be an integer >= 0, got -1",
        ),
        (
            lambda net: hgp.mixing.Runs([hgp.ExactAverage(3).connect(), hgp.ExactAverage(4).connect()]),
            ValueError,
            r"averagings must have the same number of clients, got \[3, 4\]",
        ),
    ],
)
def test_bad_input_is_named(make, error, message):
    net = hgp.networks.RandomDirected(n=3, seed=0)
    with pytest.raises(error, match=message):
        make(net)


def test_a_user_network_defines_its_weights_by_csr():
    class Lazy(hgp.networks.Network):
        """Half of everything stays, the rest goes to the next client."""

        expected_edges = 6.0

        def out_adjacency(self, s):
            receivers = np.sort([[j, (j + 1) % 3] for j in range(3)], axis=1).astype(np.int32)
            return np.array([0, 2, 4, 6]), receivers.reshape(-1)

        def csr(self, s):
            return (
                np.array([0, 2, 4, 6]),
                np.array([0, 2, 0, 1, 1, 2], dtype=np.int32),
                np.array([0.9, 0.1, 0.1, 0.9, 0.1, 0.9]),
            )

    W = np.array([[0.9, 0, 0.1], [0.1, 0.9, 0], [0, 0.1, 0.9]])
    u = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_array_equal(Lazy(3).mixing_matrix(4), W)
    for mode in ("composed", "stepping"):
        assert_close(hgp.PushSum(Lazy(3), 2, mode=mode).apply(u), W @ W @ u, RTOL)
    with pytest.raises(
        TypeError, match="OnlyMatrix must not define mixing_matrix: it follows from out_adjacency, or from csr"
    ):

        class OnlyMatrix(hgp.networks.Network):
            def mixing_matrix(self, s):
                return W


def test_a_user_averaging_needs_only_steps_and_a_channel():
    class Everybody(hgp.mixing.Averaging):
        def __init__(self, n):
            self.n, self.steps = n, 1

        def connect(self):
            return hgp.mixing.AllToAll(self.n)

    problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    x, lam, own, ours = np.ones((3, 4)), np.zeros((3, 2)), Everybody(3), hgp.ExactAverage(3)
    mine, theirs = (hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=20) for avg in (own, ours))
    np.testing.assert_array_equal(mine.value, theirs.value)
    assert own.traffic == ours.traffic == mine.traffic
    assert Everybody(3).traffic.messages == 0


@pytest.mark.parametrize("kind", [hgp.PushSum, hgp.RobustPushSum, hgp.ExactAverage])
def test_subclasses_are_printed_by_their_own_name(kind):
    class Mine(kind):
        pass

    arguments = (3,) if kind is hgp.ExactAverage else (hgp.networks.FullyConnected(3), 2)
    assert repr(Mine(*arguments)) == repr(kind(*arguments)).replace(kind.__name__, "Mine", 1)
