"""Channels against explicit products of mixing matrices, and their traffic against the edges of the graphs."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import DOUBLY_STOCHASTIC, NETWORK_KINDS
from support.libraries import assert_close, identity_rtol

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.mixing import AllToAll, Runs, Simulated, Traffic, WeightRule, connect

RTOL = identity_rtol("float64")
CALLS = [(S, bool(k % 2)) for k, S in enumerate((3, 3, 1, 4, 2))] + [(2, True)] * 7 + [(2, False), (3, False)]
N = 6


def product(net, first, count):
    """W_{first+count-1} ... W_first, one factor after the other."""
    P = np.eye(net.n)
    for s in range(first, first + count):
        P = net.mixing_matrix(s) @ P
    return P


def sent(net, first, count):
    return sum(net.edges(s)[0].size - net.n for s in range(first, first + count))


@pytest.mark.parametrize("weights", [WeightRule.RESET, WeightRule.CARRY])
@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("kind", NETWORK_KINDS)
def test_mixing_is_the_product_of_the_matrices(kind, mode, weights):
    """Sums, weights, quotients, position and traffic over calls that are alike for a while and then differ."""
    net = NETWORK_KINDS[kind](N)
    channel = connect(net, mode)
    z, omega, used, messages = np.random.default_rng(0).normal(size=(N, 3)), np.ones(N), 0, 0
    for S, divide in CALLS:
        P = product(net, used + 1, S)
        omega = P @ (np.ones(N) if weights == WeightRule.RESET else omega)
        mixed = (channel.average if divide else channel.mix)(z, S, weights)
        assert_close(mixed, P @ z / (omega[:, None] if divide else 1.0), RTOL)
        assert_close(channel.weights[:, 0], omega, RTOL)
        messages += sent(net, used + 1, S)
        used += S
        assert channel.step == used
        assert channel.traffic == Traffic(messages, messages * 4, messages * 32, used), "counted after every call"


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("kind", DOUBLY_STOCHASTIC)
def test_without_weights_nothing_is_divided_and_no_weight_is_counted(kind, mode):
    net = NETWORK_KINDS[kind](8)
    channel = connect(net, mode)
    z = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    assert_close(channel.average(z, 2, WeightRule.NONE), product(net, 1, 2) @ z, identity_rtol("float32"))
    messages = sent(net, 1, 2)
    assert channel.traffic == Traffic(messages, messages * 3, messages * 12, 2)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_graphs_that_are_not_balanced_are_refused_when_they_come(mode):
    """The first graph is doubly stochastic, the second is not: seen at the call that uses it."""
    even, odd = np.full((3, 3), 1 / 3), np.array([[0.5, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 1.0]])
    channel = Simulated(hgp.networks.Schedule([even, odd]), mode)
    z = np.ones((3, 2))
    channel.average(z, 1, WeightRule.NONE)
    with pytest.raises(ValueError, match="doubly stochastic.*differs from 1 by 0.5; use PushSum"):
        channel.average(z, 1, WeightRule.NONE)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_errors_of_prepared_calls_are_raised_when_these_are_made(mode):
    """Graphs 1 to 9 are doubly stochastic, graph 10 is not: nine calls go well, although more were prepared."""
    odd = np.array([[0.5, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 1.0]])
    channel, z = Simulated(hgp.networks.Schedule([np.full((3, 3), 1 / 3)] * 9 + [odd]), mode), np.ones((3, 2))
    for _ in range(9):
        assert_close(channel.average(z, 1, WeightRule.NONE), z, RTOL)
    with pytest.raises(ValueError, match="doubly stochastic.*differs from 1 by 0.5; use PushSum"):
        channel.average(z, 1, WeightRule.NONE)
    assert channel.step == 9 and channel.traffic.rounds == 9


def test_gossip_allows_rounding_and_nothing_more():
    """Rows that miss 1 by 1e-9 are no rounding of a doubly stochastic matrix of three clients."""
    off = np.full((3, 3), 1 / 3)
    off[0] += [1e-9, 0.0, 0.0]
    off[1] -= [1e-9, 0.0, 0.0]
    with pytest.raises(ValueError, match="differs from 1 by 1e-09"):
        hgp.Gossip(hgp.networks.Schedule([off]), 1)
    for n in (3, 7, 10, 49):
        hgp.Gossip(hgp.networks.Schedule([np.full((n, n), 1 / n)]), 2).apply(np.ones((n, 1)), call=30)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_flooding_takes_the_graphs_that_come_next(mode):
    n = 5
    ring = hgp.networks.Schedule([([*range(n)], [(j + 1) % n for j in range(n)])])
    channel, z = connect(ring, mode), np.ones((n, 2))
    channel.average(z, 3)
    before = channel.traffic
    values = np.arange(2.0 * n).reshape(n, 2)
    np.testing.assert_array_equal(channel.max_consensus(values, z), [8.0, 9.0])
    assert channel.step == 3 + n - 1  # once around
    carried = (n - 1) * n
    assert channel.traffic == before + Traffic(carried, carried * 2, carried * 16, n - 1)
    assert_close(channel.average(z, 2), z, RTOL)
    assert channel.step == 3 + n - 1 + 2


@pytest.mark.parametrize("weights", [WeightRule.RESET, WeightRule.CARRY])
@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_skipping_graphs_is_as_if_the_calls_had_been_made(mode, weights):
    net, z = hgp.networks.RandomDirected(n=4, seed=3), np.random.default_rng(0).normal(size=(4, 2))
    walked, skipped = connect(net, mode), connect(net, mode)
    walked.mix(z, 5, weights)
    skipped.advance(5, weights, z)
    assert skipped.traffic == Traffic() and skipped.step == 5
    assert_close(skipped.average(z, 2, weights), walked.average(z, 2, weights), RTOL)


def test_everyone_is_the_mean_in_one_step():
    channel, z = AllToAll(4), np.random.default_rng(0).normal(size=(4, 3))
    assert_close(channel.average(z, 1, WeightRule.NONE), np.tile(z.mean(axis=0), (4, 1)), RTOL)
    assert channel.traffic == Traffic(12, 36, 288, 1)
    np.testing.assert_array_equal(channel.max_consensus(z, z), z.max(axis=0))
    assert channel.traffic.rounds == 2


def test_channels_side_by_side_stacked_or_not():
    """Steps, rules and kinds of channels differ from run to run; each run is as it would be alone."""
    nets = [hgp.networks.RandomDirected(n=N, seed=s) for s in range(2)]
    kinds = [
        (lambda: Simulated(nets[0]), WeightRule.RESET, (2, 5, 1)),
        (lambda: AllToAll(N), WeightRule.NONE, (1, 1, 1)),
        (lambda: Simulated(nets[1]), WeightRule.CARRY, (3, 1, 2)),
        (lambda: Simulated(nets[1], "stepping"), WeightRule.CARRY, (1, 2, 3)),
    ]
    z = np.random.default_rng(0).normal(size=(4, N, 3))
    for chosen in ([0, 1, 2], [0, 1, 2, 3]):  # all compose; one does not
        runs = Runs([kinds[r][0]() for r in chosen])
        alone = [kinds[r][0]() for r in chosen]
        steps = list(zip(*(kinds[r][2] for r in chosen), strict=True))
        rules = tuple(kinds[r][1] for r in chosen)
        for S in steps:
            together = runs.average(z[: len(chosen)], S, rules)
            for r, channel in enumerate(alone):
                assert_close(together[r], channel.average(z[r], S[r], rules[r]), RTOL)
                assert runs.traffic.of_run(r) == channel.traffic
        values = np.arange(float(N))[:, None]
        assert runs.max_consensus(values, z[: len(chosen)]) == N - 1
        for r, channel in enumerate(alone):
            channel.max_consensus(values, z[r])
            assert runs.traffic.of_run(r) == channel.traffic
            assert runs.channels[r].step == channel.step


def test_reductions_are_over_all_clients():
    channel, a = Simulated(hgp.networks.SelfLoops(3)), np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(channel.max_over_clients(a[..., 0]), [4.0, 10.0])
    np.testing.assert_array_equal(channel.mean_over_clients(a), a.mean(axis=1, keepdims=True))


def test_blocks_stay_within_their_memory():
    channel, z = Simulated(hgp.networks.RandomDirected(n=300, seed=0), "composed"), np.ones((300, 1))
    for _ in range(70):
        channel.average(z, 1)
    assert channel._calls.count > 1 and channel._calls._K.nbytes <= 16 * 2**20
    few, z = Simulated(hgp.networks.RandomDirected(n=1500, seed=0), "composed"), np.ones((1500, 1))
    for _ in range(3):
        few.average(z, 1)
    assert few._calls.count == 1


def test_sequences_of_steps_take_graphs_one_after_the_other():
    net, u = hgp.networks.RandomDirected(n=4, seed=2), np.random.default_rng(0).normal(size=(4, 2))
    for debias in ("reset", "conserve"):
        avg = hgp.PushSum(net, (3, 1, 2), debias=debias)
        omega, used = np.ones(4), 0
        for call, S in enumerate((3, 1, 2, 2, 2)):
            P = product(net, used + 1, S)
            omega = P @ (np.ones(4) if debias == "reset" else omega)
            assert avg.graphs_before(call) == used
            assert_close(avg.apply(u, call=call), P @ u / omega[:, None], RTOL)
            used += S
    assert exact.push_sum_matrix(net, 3, 0) @ u == pytest.approx(hgp.PushSum(net, [3]).apply(u), rel=1e-12)
    for bad in ((), (2, 0), (2, 1.5), "12"):
        with pytest.raises((TypeError, ValueError), match="steps"):
            hgp.PushSum(net, bad)


class Ring(hgp.networks.Network):
    """Everything goes to the next client, nothing stays."""

    expected_edges, self_loops = 3.0, False

    def out_adjacency(self, s):
        return np.arange(4), np.array([1, 2, 0], dtype=np.int32)


class Half(Ring):
    """At odd steps client 0 gives all it has to client 1, at even steps clients 0 and 1 share."""

    expected_edges = 3.0

    def __init__(self):
        super().__init__(3, period=2)

    def out_adjacency(self, s):
        receivers = [1, 1, 2] if s % 2 else [0, 1, 0, 1, 2]
        indptr = [0, 1, 2, 3] if s % 2 else [0, 2, 4, 5]
        return np.array(indptr), np.array(receivers, dtype=np.int32)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_messages_of_graphs_without_self_loops_are_all_their_edges(mode):
    channel = connect(Ring(3), mode)
    z = np.arange(3.0)[:, None]
    np.testing.assert_array_equal(channel.average(z, 2), [[1.0], [2.0], [0.0]])
    assert channel.traffic.messages == 6
    channel.max_consensus(z, z)
    assert channel.traffic.messages == 6 + 3 * 2


@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_a_client_that_receives_no_message_is_named(mode):
    channel = connect(Half(), mode)
    with pytest.raises(ValueError, match="net: client 0 receives no message"):
        channel.average(np.ones((3, 1)), 1)
    assert_close(connect(Half(), mode).average(np.ones((3, 1)), 2), np.ones((3, 1)), RTOL)


def test_runs_take_one_number_of_steps_and_one_rule_for_all():
    nets = [hgp.networks.RandomDirected(4, seed=seed) for seed in (1, 2)]
    z = np.random.default_rng(0).normal(size=(2, 4, 3))
    for rule in (WeightRule.RESET, WeightRule.CARRY):
        alike, each = (Runs([connect(net) for net in nets]) for _ in range(2))
        for _ in range(2):
            assert np.array_equal(alike.average(z, 3, rule), each.average(z, (3, 3), (rule, rule)))
        assert alike.traffic == each.traffic
