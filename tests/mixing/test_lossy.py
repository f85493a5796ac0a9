"""Channels that lose and delay, against a simulation message by message and against augmented matrices."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixing.message_by_message import open_links
from support.examples import NETWORK_KINDS
from support.libraries import assert_close, identity_rtol

import hgp_ref as hgp
from hgp_ref import _numba, exact
from hgp_ref.mixing import Lossy, Simulated, Traffic, WeightRule, connect, unreliable
from hgp_ref.mixing import unreliable as deliveries_module
from hgp_ref.networks import FullyConnected, RandomDirected, RandomOut, Unreliable

RTOL = identity_rtol("float64")
lossy_settings = st.fixed_dictionaries(
    {
        "loss": st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
        "delay": st.sampled_from([0, 1, 3, 12]),
        "sleep": st.sampled_from([0.0, 0.3, 0.9, [(0, 2, 5)]]),
        "seed": st.integers(0, 2**64 - 1),
        "stretch": st.integers(1, 4),
    }
)


def open_channel(net, robust, mode="auto"):
    channel = Lossy(net, mode)
    if robust:
        channel.use_running_sums()
    return channel


@pytest.mark.filterwarnings("ignore:PushSum over:RuntimeWarning")
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("kind", NETWORK_KINDS)
@settings(max_examples=6)
@given(n=st.integers(1, 6), past=st.integers(0, 3), S=st.integers(1, 9), rule=lossy_settings)
def test_calls_are_what_messages_one_by_one_make_of_them(kind, robust, n, past, S, rule):
    """Composed and stepping, weights fresh and carried, with gradients between carried calls; position and traffic."""
    net = Unreliable(NETWORK_KINDS[kind](n), **rule).after(past)
    z = np.random.default_rng(S).normal(size=(n, 2))
    for mode in ("composed", "stepping"):
        channel = open_channel(net, robust, mode)
        for call in range(2):
            links = open_links(net, z, robust, after=call * S)
            links.run(S)
            assert_close(channel.mix(z, S, WeightRule.RESET), links.rows[:, :2], RTOL)
            assert_close(channel.omega, links.rows[:, 2], RTOL)
    channel, links, held = open_channel(net, robust), open_links(net, z, robust), z
    for call, S in enumerate((1, 1, 3, 2, 1)):
        links.run(S)
        held = channel.mix(held, S, WeightRule.CARRY)
        assert_close(held, links.rows[:, :2], RTOL)
        assert_close(channel.omega, links.rows[:, 2], RTOL)
        assert (channel.step, channel.traffic) == (
            links.step,
            Traffic(links.sent, 3 * links.sent, 24 * links.sent, links.step),
        )
        held, links.rows[:, :2] = held + z * call, links.rows[:, :2] + z * call


@pytest.mark.parametrize("robust", [False, True])
@settings(max_examples=25)
@given(n=st.integers(1, 5), S=st.integers(1, 8), rule=lossy_settings)
def test_calls_are_blocks_of_augmented_matrices(robust, n, S, rule):
    net = Unreliable(RandomDirected(n, seed=n), **rule)
    P, _ = open_channel(net, robust).matrices(S, 2)
    for call in range(2):
        A = exact.augmented_product(net, call * S + 1, S, robust)
        assert np.abs(A.sum(axis=0) - 1).max() < 1e-14 and A.min() >= 0  # nothing leaves the state
        assert_close(P[call], A[:n, :n], RTOL)
        if not net.is_reliable:
            assert_close(P[call], exact.mixing_product(net, S, call, robust), RTOL)
            K = exact.push_sum_matrix(net, S, call, robust=robust)
            assert K.min() >= 0 and np.abs(K.sum(axis=1) - 1).max() < 1e-13


def test_calls_of_different_lengths_follow_each_other():
    net, steps = Unreliable(RandomDirected(4, seed=1), loss=0.3, delay=2, seed=1), (*[3] * 7, 1, 5)
    z = np.random.default_rng(0).normal(size=(4, 2))
    channel, used, sent = open_channel(net, True), 0, 0
    for S in steps:
        P = exact.augmented_product(net, used + 1, S)[:4, :4]
        sent += channel.matrices(S)[1][0]
        assert_close(channel.average(z, S), P @ z / P.sum(axis=1, keepdims=True), RTOL)
        used += S
    assert channel.traffic.messages == sent


def test_carried_sums_are_products_of_augmented_matrices():
    n = 4
    net = Unreliable(RandomOut(n, 2, seed=1), loss=0.3, delay=3, seed=1)
    z = np.random.default_rng(0).normal(size=(n, 3))
    state = np.zeros((n + n * (n - 1) * 4, 4))
    state[:n] = np.concatenate([z, np.ones((n, 1))], axis=1)
    total = state.sum(axis=0)
    channel = open_channel(net, robust=True)
    for s in range(1, 13):
        state, z = exact.augmented_matrix(net, s) @ state, channel.mix(z, 1, WeightRule.CARRY)
        assert_close(z, state[:n, :3], RTOL)
        assert_close(channel.omega, state[:n, 3], RTOL)
    assert_close(state.sum(axis=0), total, RTOL)


def test_a_later_call_with_carried_weights_begins_with_the_weights_of_those_before():
    """As over reliable links: weights go through the calls before, vectors begin with this one."""
    n, S = 3, 2
    net = Unreliable(RandomDirected(n, seed=1), loss=0.4, delay=2, seed=1)
    u = np.random.default_rng(0).normal(size=(n, 2))
    state = np.zeros((n + n * (n - 1) * 3, 3))
    state[:n, 2] = 1.0
    state = exact.augmented_product(net, 1, 2 * S) @ state
    state[:n, :2] = u
    state = exact.augmented_product(net, 2 * S + 1, S) @ state
    avg = hgp.RobustPushSum(net, S, debias="conserve")
    assert_close(avg.apply(u, call=2), state[:n, :2] / state[:n, 2:], RTOL)
    assert avg.traffic.rounds == S


def test_past_rows_may_be_added_up_at_any_time(monkeypatch):
    """What is in flight is merged by edge every few steps of a long call, which changes nothing; nor do tables."""
    net = Unreliable(RandomOut(9, 2, seed=1), loss=0.4, delay=4, seed=1)
    z = np.random.default_rng(0).normal(size=(9, 5))
    whole = open_channel(net, True, "stepping").mix(z, 30)
    monkeypatch.setattr(unreliable, "PAST_STEPS", 4)
    monkeypatch.setattr(deliveries_module, "TABLE", 0)
    assert_close(open_channel(net, True, "stepping").mix(z, 30), whole, RTOL)


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_run_axes_and_precision(mode, dtype):
    net = Unreliable(RandomDirected(5, seed=1), loss=0.2, delay=2, seed=1)
    z = np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(dtype)
    channel = open_channel(net, True, mode)
    averaged = channel.average(z, 6)
    assert averaged.dtype == z.dtype and averaged.shape == z.shape
    K = exact.push_sum_matrix(net, 6, robust=True)
    assert_close(averaged, K @ z.astype(np.float64), identity_rtol(dtype))
    assert channel.traffic.messages == 6 * open_channel(net, True).matrices(6)[1][0]


def test_the_same_bits_for_any_number_of_threads():
    net = Unreliable(RandomOut(400, 8, seed=1), loss=0.1, delay=2, seed=1)
    z = np.random.default_rng(0).normal(size=(400, 1000))
    results = []
    for number in (1, 3):
        with _numba.limited(number):
            results.append(open_channel(net, True, "stepping").mix(z, 3))
    np.testing.assert_array_equal(*results)


def test_links_in_time_are_the_simulation_itself():
    inner = RandomDirected(4, seed=1)
    assert type(connect(Unreliable(inner, loss=0.0, delay=0))) is Simulated
    assert type(connect(Unreliable(inner))) is Lossy and type(connect(Unreliable(inner).after(3))) is Lossy
    z = np.random.default_rng(0).normal(size=(4, 2))
    kept = Unreliable(inner, loss=0.0, delay=0, sleep=0.5, seed=1)
    assert connect(kept).conserves_mass and not connect(Unreliable(inner)).conserves_mass
    assert_close(hgp.PushSum(kept, 3).apply(z, 1), exact.push_sum_matrix(kept, 3, 1) @ z, RTOL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            hgp.RobustPushSum(inner, 3).apply(z, 1),
            hgp.PushSum(Unreliable(inner, loss=0.0, delay=0), 3).apply(z, 1),
        )


def test_plain_push_sum_reports_the_lost_mass():
    net = Unreliable(RandomDirected(5, seed=1), loss=0.3, delay=2, seed=1)
    z = np.random.default_rng(0).normal(size=(5, 2))
    lost = 1 - exact.mixing_product(net, 8).sum() / 5
    for mode in ("composed", "stepping"):
        with pytest.warns(RuntimeWarning, match=rf"loses mass: {100 * lost:.2g} % of it was lost or came after"):
            hgp.PushSum(net, 8, mode=mode).apply(z)
    with pytest.warns(RuntimeWarning, match="% of it was lost in a call of 8 steps"):
        hgp.PushSum(net, 8, debias="conserve").apply(z)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hgp.RobustPushSum(net, 8).apply(z)
        late = Unreliable(net.net, loss=0.0, delay=4, seed=1)
        assert_close(hgp.PushSum(late, 300).apply(z), np.tile(z.mean(axis=0), (5, 1)), RTOL)  # late, but not lost
        assert not connect(late).drops_mass and connect(net).drops_mass


@pytest.mark.parametrize(("loss", "delay"), [(0.1, 0), (0.1, 5), (0.3, 5)])
def test_robust_push_sum_tends_to_the_mean_where_plain_push_sum_does_not(loss, delay):
    net = Unreliable(RandomDirected(10, seed=1), loss=loss, delay=delay, seed=1)
    u = np.random.default_rng(0).normal(size=(10, 3))
    off = np.abs(hgp.RobustPushSum(net, 300).apply(u) - u.mean(axis=0)).max()
    assert off < 1e-13
    with pytest.warns(RuntimeWarning, match="loses mass"):
        plain = hgp.PushSum(net, 300).apply(u)
    assert np.abs(plain - plain[0]).max() < 1e-13 and np.abs(plain - u.mean(axis=0)).max() > 1e-2


@pytest.mark.filterwarnings("ignore:PushSum over:RuntimeWarning")
def test_running_sums_need_edges_that_come_back():
    """Over RandomOut edges return every n/k steps, and old lumps disturb what plain messages leave alone."""
    off = {}
    for n in (10, 100):
        for kind in (hgp.RobustPushSum, hgp.PushSum):
            errors = []
            for seed in range(3):
                net = Unreliable(RandomOut(n, 2, seed=seed), loss=0.1, delay=0, seed=seed)
                u = np.random.default_rng(seed).normal(size=(n, 3))
                errors.append(np.abs(kind(net, 40).apply(u) - u.mean(axis=0)).max())
            off[n, kind] = np.median(errors)
    assert off[10, hgp.RobustPushSum] < 0.01 * off[10, hgp.PushSum]
    assert off[100, hgp.RobustPushSum] > 5 * off[100, hgp.PushSum]


def test_totals_that_grow_round_more_and_more_but_shares_do_not():
    """What a deployment in single precision loses by σ − ρ, and the library, which has no σ, does not."""
    net = Unreliable(FullyConnected(3), loss=0.2, delay=1, seed=1)
    z = np.random.default_rng(0).normal(size=(3, 2)) + 10.0
    totals, truth = open_links(net, z.astype(np.float32), robust=True), open_links(net, z, robust=True)
    channel, held = open_channel(net, robust=True), z.astype(np.float32)
    eps, steps = float(np.finfo(np.float32).eps), 1500
    for _ in range(steps):
        totals.run(1), truth.run(1)
        held = channel.mix(held, 1, WeightRule.CARRY)
    of_totals, of_shares = (np.abs(rows - truth.rows[:, :2]).max() / 30.0 for rows in (totals.rows[:, :2], held))
    assert of_shares < 4 * np.sqrt(steps) * eps < of_totals


@settings(max_examples=20)
@given(n=st.integers(1, 8), loss=st.sampled_from([0.0, 0.3, 0.8]), delay=st.integers(0, 6), seed=st.integers(0, 99))
def test_maxima_are_exact_and_every_message_is_counted(n, loss, delay, seed):
    net = Unreliable(RandomDirected(n, seed=seed), loss=loss, delay=delay, sleep=0.2, seed=seed)
    values = np.random.default_rng(seed).normal(size=(n, 3))
    channel = open_channel(net, False)
    channel.advance(5, WeightRule.RESET, values)
    np.testing.assert_array_equal(channel.max_consensus(values, values), values.max(axis=0))
    rounds = channel.step - 5
    sent = sum(net.edges(s)[0].size - n for s in range(6, 6 + rounds))
    assert channel.traffic == Traffic(sent, 3 * sent, 24 * sent, rounds)
    held, mail = {i: values[i] for i in range(n)}, []
    for s in range(6, 6 + rounds):  # as many rounds as were counted, and not one less
        assert any((held[i] < values.max(axis=0)).any() for i in range(n))
        indptr, senders, late = *net.csr(s)[:2], net.delays(s)
        for i in range(n):
            mail += [(s + late[e], i, held[senders[e]]) for e in range(indptr[i], indptr[i + 1]) if late[e] >= 0]
        for _, i, heard in (letter for letter in mail if letter[0] == s):
            held = held | {i: np.maximum(held[i], heard)}
    assert all((held[i] == values.max(axis=0)).all() for i in range(n))


def test_maxima_that_never_arrive_are_refused():
    channel = open_channel(Unreliable(FullyConnected(3), loss=1.0), True)
    with pytest.raises(ValueError, match="max-consensus does not reach 2 of 3 clients"):
        channel.max_consensus(np.arange(3.0)[:, None], np.ones(1), 20)


def test_what_makes_no_sense_over_such_links_is_refused():
    net = Unreliable(FullyConnected(3), loss=0.2, seed=1)
    z = np.ones((3, 2))
    with pytest.raises(
        ValueError, match="Gossip needs reliable links, but Unreliable.* loses or delays messages; use Robust"
    ):
        hgp.Gossip(net, 2)
    with pytest.raises(ValueError, match="use PushSum or RobustPushSum in place of Gossip"):
        open_channel(net, True).mix(z, 2, WeightRule.NONE)
    with pytest.raises(ValueError, match="mode must be 'auto' or 'stepping' if weights carry over, got 'composed'"):
        hgp.RobustPushSum(net, 2, debias="conserve", mode="composed").apply(z)
    with pytest.raises(ValueError, match="debias must be one of 'reset', 'conserve', got 'keep'"):
        hgp.RobustPushSum(net, 2, debias="keep")
    with pytest.raises(ValueError, match="debias must be 'reset' over .*, got 'conserve'"):
        exact.push_sum_matrices(net, 2, 3, debias="conserve")
    channel = open_channel(net, True)
    channel.mix(z, 1, WeightRule.CARRY)
    with pytest.raises(
        ValueError, match=r"z must have run axes \(\) and 2 columns, as the calls .* got shape \(3, 5\)"
    ):
        channel.mix(np.ones((3, 5)), 1, WeightRule.CARRY)


def test_a_skip_drops_vectors_in_transit_but_not_their_weights():
    net, z = Unreliable(FullyConnected(4), loss=0.3, delay=2, seed=1), np.arange(12.0).reshape(4, 3)
    skipped, mixed = (open_channel(net, True, "stepping") for _ in range(2))
    for channel in (skipped, mixed):
        channel.mix(z, 2, WeightRule.CARRY)
    assert skipped.rows_in_flight
    skipped.advance(3, WeightRule.CARRY, z)
    mixed.mix(z, 3, WeightRule.CARRY)
    np.testing.assert_array_equal(skipped.omega, mixed.omega)
    assert skipped.in_flight and not skipped.rows_in_flight and skipped.step == mixed.step
    late = skipped.mix(np.zeros((4, 5)), 2, WeightRule.CARRY)  # another shape, and nothing of z arrives
    assert not late.any()
