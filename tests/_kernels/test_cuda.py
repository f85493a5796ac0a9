"""CUDA kernels on the real CuPy, with HGP_REF_TEST_CUPY=1, and through nvcc."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from support.libraries import assert_same, identity_rtol, open_library, rtol

import hgp_ref as hgp
from hgp_ref._kernels import cuda
from hgp_ref._kernels.cuda import Sleepers
from hgp_ref._kernels.graphs import adjacencies
from hgp_ref._kernels.links import asleep_at, keep_from_sleepers, message_delays
from hgp_ref.mixing import connect, simulated, unreliable
from hgp_ref.mixing.channel import WeightRule
from hgp_ref.mixing.unreliable import InFlight, deliveries
from hgp_ref.networks import (
    FullyConnected,
    Network,
    OnePeerExponential,
    RandomDirected,
    RandomOut,
    RandomUndirected,
    Schedule,
    SelfLoops,
    SparseErdosRenyi,
    StaticUndirected,
    Unreliable,
)
from hgp_ref.neural.layers import Windows
from hgp_ref.philox import BATCHES, key, philox4x32, step_counter
from hgp_ref.problems.batches import BatchSampler, sample_batches
from hgp_ref.problems.losses import SoftmaxLoss

needs_cupy = pytest.mark.cupy
DTYPES = ["float64", "float32"]


class Star(Network):
    """Client 0 sends to all, the others to client 0 and themselves."""

    period = 1

    @property
    def expected_edges(self):
        return 3.0 * self.n - 2

    def out_adjacency(self, s):
        spokes = [receiver for client in range(1, self.n) for receiver in (0, client)]
        ends = np.concatenate([[0], self.n + 2 * np.arange(self.n)])
        return ends.astype(np.int64), np.array([*range(self.n), *spokes], dtype=np.int32)


NETWORKS = {
    "directed": RandomDirected(40, seed=1),
    "undirected": RandomUndirected(9, seed=2),
    "out": RandomOut(60, 4, seed=3),
    "sparse": SparseErdosRenyi(60, 2.5, seed=4),
    "one peer": OnePeerExponential(12),
    "star": Star(20),
    "complete": FullyConnected(5),
    "self-loops": SelfLoops(3),
    "static": StaticUndirected(6, seed=5),
    "schedule": Schedule([([0], [1]), ([1], [2]), ([2], [0])], n=3),
    "shifted": RandomOut(50, 2, seed=6).after(7),
    "reliable": Unreliable(RandomOut(20, 3, seed=7), loss=0.0, delay=0),
    "asleep": Unreliable(RandomOut(20, 3, seed=8), loss=0.0, delay=0, sleep=0.3),
    "asleep at times": Unreliable(RandomDirected(9, seed=8), loss=0.0, delay=0, sleep=[(2, 3, 8)]).after(4),
}

LINKS = [
    Unreliable(RandomOut(20, 3, seed=1), loss=0.2, delay=0, seed=3),
    Unreliable(RandomOut(20, 3, seed=1), loss=0.0, delay=2, seed=2**64 - 1),
    Unreliable(RandomDirected(16, seed=1), loss=0.3, delay=3, seed=2**63 + 5),
    Unreliable(SparseErdosRenyi(30, 4.0, seed=2), loss=0.5, delay=40, sleep=0.2, seed=4).after(2**32 - 4),
    Unreliable(RandomUndirected(9, seed=2).after(5), loss=0.2, delay=1, sleep=[(2, 1, 9)]).after(2**56 - 30),
    Unreliable(RandomOut(5, 4), loss=1.0, delay=2, seed=1),
]


@pytest.fixture
def lib():
    return open_library("cupy")


# Mixing ---------------------------------------------------------------------------------------------------------------


def calls(net, mode, rule, divide, z, number=3, steps=4):
    """The results of successive calls, and the channel after them."""
    channel, out = connect(net, mode), []
    for _ in range(number):
        z = (channel.average if divide else channel.mix)(z, steps, rule)
        out.append(z)
    return out, channel


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", [WeightRule.RESET, WeightRule.CARRY], ids=lambda rule: rule.value)
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_have_the_bits_of_the_host(lib, name, rule, dtype):
    net = NETWORKS[name]
    for divide in (True, False):
        z = np.random.default_rng(0).standard_normal((2, net.n, 5)).astype(dtype)
        expected, host = calls(net, "stepping", rule, divide, z)
        found, channel = calls(net, "stepping", rule, divide, lib.asarray(z))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(lib.to_numpy(a), b)
        np.testing.assert_array_equal(channel.omega, host.omega)
        assert_same(channel.weights, host.weights, lib, rtol=0)
        assert (channel.traffic, channel.step) == (host.traffic, host.step)


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", [WeightRule.RESET, WeightRule.CARRY], ids=lambda rule: rule.value)
@pytest.mark.parametrize("name", NETWORKS)
def test_products_agree_with_the_host(lib, name, rule, dtype):
    net = NETWORKS[name]
    for divide in (True, False):
        z = np.random.default_rng(0).standard_normal((net.n, 3)).astype(dtype)
        expected, host = calls(net, "composed", rule, divide, z, number=7)
        found, channel = calls(net, "composed", rule, divide, lib.asarray(z), number=7)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b, lib)
        np.testing.assert_allclose(channel.omega, host.omega, rtol=identity_rtol("float64"))
        assert_same(channel.weights, host.weights, lib)
        assert (channel.traffic, channel.step) == (host.traffic, host.step)


@needs_cupy
def test_steps_and_products_continue_each_other(lib):
    """ω carries over between calls of different lengths, shapes and modes, and the traffic counts all of them."""
    net, rng = RandomDirected(35, seed=3), np.random.default_rng(0)
    host, channel = connect(net), connect(net)
    for columns, steps in ((2, 3), (2, 3), (300, 3), (2, 1), (0, 2), (300, 5)):
        z = rng.standard_normal((net.n, columns))
        expected = host.mix(z, steps, WeightRule.CARRY)
        assert_same(channel.mix(lib.asarray(z), steps, WeightRule.CARRY), expected, lib)
        np.testing.assert_allclose(channel.omega, host.omega, rtol=identity_rtol("float64"))
    host.advance(3, WeightRule.CARRY, z)
    channel.advance(3, WeightRule.CARRY, lib.asarray(z))
    np.testing.assert_allclose(channel.omega, host.omega, rtol=identity_rtol("float64"))
    assert channel.traffic == host.traffic


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", [WeightRule.RESET, WeightRule.CARRY], ids=lambda rule: rule.value)
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("net", LINKS, ids=str)
@pytest.mark.filterwarnings("ignore:PushSum over")
def test_steps_over_unreliable_links_have_the_bits_of_the_host(lib, net, rule, dtype, robust):
    rng = np.random.default_rng(0)
    for divide in (True, False):
        host, channel = connect(net, "stepping"), connect(net, "stepping")
        for each in (host, channel):
            if robust:
                each.use_running_sums()
        z = rng.standard_normal((2, net.n, 5)).astype(dtype)
        there = lib.asarray(z)
        for _ in range(3):
            z, there = ((each.average if divide else each.mix)(a, 4, rule) for each, a in ((host, z), (channel, there)))
            np.testing.assert_array_equal(lib.to_numpy(there), z)
        np.testing.assert_array_equal(channel.omega, host.omega)
        assert_same(channel.weights, host.weights, lib, rtol=0)
        assert (channel.traffic, channel.step) == (host.traffic, host.step)


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("net", LINKS, ids=str)
@pytest.mark.filterwarnings("ignore:PushSum over")
def test_products_over_unreliable_links_agree_with_the_host(lib, net, dtype, robust):
    for divide in (True, False):
        z = np.random.default_rng(0).standard_normal((net.n, 3)).astype(dtype)
        host, channel = connect(net, "composed"), connect(net, "composed")
        for each in (host, channel):
            if robust:
                each.use_running_sums()
        there = lib.asarray(z)
        for _ in range(6):
            z, there = ((each.average if divide else each.mix)(a, 4) for each, a in ((host, z), (channel, there)))
            assert_same(there, z, lib)
        np.testing.assert_allclose(channel.omega, host.omega, rtol=identity_rtol("float64"))
        assert (channel.traffic, channel.step) == (host.traffic, host.step)


@needs_cupy
def test_calls_over_unreliable_links_continue_each_other(lib):
    """Weight rules, shapes and lengths may change; a call of many steps is prepared by the host."""
    net, rng = LINKS[2], np.random.default_rng(0)
    host, channel = connect(net, "stepping"), connect(net, "stepping")
    for each in (host, channel):
        each.use_running_sums()
    RESET, CARRY = WeightRule.RESET, WeightRule.CARRY
    for columns, steps, rule in (
        (2, 3, RESET),
        (2, 2, CARRY),
        (2, 3, CARRY),
        (300, 1, RESET),
        (0, 2, RESET),
        (2, 33, RESET),
    ):
        z = rng.standard_normal((net.n, columns))
        expected = host.mix(z, steps, rule)
        np.testing.assert_array_equal(lib.to_numpy(channel.mix(lib.asarray(z), steps, rule)), expected)
        np.testing.assert_array_equal(channel.omega, host.omega)
        assert channel.in_flight == host.in_flight
        if columns == 300:
            for each in (host, channel):
                each.drop_in_flight()
    assert channel.traffic == host.traffic


@needs_cupy
@pytest.mark.parametrize("limit", ["DEVICE_PAST_BYTES", "DEVICE_LINK_BYTES"])
def test_calls_over_unreliable_links_that_need_much_memory_are_prepared_by_the_host(lib, monkeypatch, limit):
    net, z = LINKS[2], np.ones((LINKS[2].n, 2))
    sampler, drawn = type(net.device_sampler().on(lib.asarray(z))), []
    rows = sampler.rows
    monkeypatch.setattr(sampler, "rows", lambda *given: drawn.append(given) or rows(*given))
    for bytes_, on_device in ((2**20, True), (100, False)):
        monkeypatch.setattr(unreliable, limit, bytes_)
        channel = connect(net, "stepping")
        channel.use_running_sums()
        channel.mix(lib.asarray(z), 3, WeightRule.RESET)
        assert bool(drawn) == on_device
        drawn.clear()


@needs_cupy
def test_more_columns_than_the_grid_has_threads(lib, monkeypatch):
    grids, function = [], cuda._function

    def recorded(*what):
        kernel = function(*what)
        return lambda grid, *given: grids.append(grid) or kernel(grid, *given)

    monkeypatch.setattr(cuda, "GRID_Y", 2)
    monkeypatch.setattr(cuda, "_function", recorded)
    net, z = RandomOut(12, 3, seed=1), np.random.default_rng(0).standard_normal((2, 12, 5 * cuda.THREADS))
    expected = connect(net, "stepping").average(z, 3)
    np.testing.assert_array_equal(lib.to_numpy(connect(net, "stepping").average(lib.asarray(z), 3)), expected)
    assert max(grid[1] for grid in grids if len(grid) > 1) == 2


@needs_cupy
@pytest.mark.parametrize("net", [NETWORKS["out"], LINKS[0]], ids=["reliable", "unreliable"])
@pytest.mark.parametrize("mode", ["stepping", "composed"])
def test_vectors_in_any_layout(lib, net, mode):
    z = np.random.default_rng(0).standard_normal((2, net.n, 3))
    expected = hgp.RobustPushSum(net, 3, mode=mode).apply(z)
    there, xp = lib.asarray(z), lib.xp
    repeated = xp.repeat(there, 2, axis=-1)[..., ::2]
    for laid_out in (xp.asarray(there, order="F"), repeated, xp.flip(xp.asarray(xp.flip(there), copy=True))):
        assert_same(hgp.RobustPushSum(net, 3, mode=mode).apply(laid_out), expected, lib)
    same = xp.broadcast_to(there[:1, :1, :], z.shape)
    expected = hgp.RobustPushSum(net, 3, mode=mode).apply(np.broadcast_to(z[:1, :1], z.shape))
    assert_same(hgp.RobustPushSum(net, 3, mode=mode).apply(same), expected, lib)


@needs_cupy
@pytest.mark.parametrize("rule", [WeightRule.RESET, WeightRule.CARRY], ids=lambda rule: rule.value)
@pytest.mark.parametrize("name", ["out", "sparse", "directed", "asleep"])
def test_calls_whose_graphs_are_drawn_in_blocks(lib, monkeypatch, name, rule):
    """Graphs of a long call would fill the memory."""
    net, z, drawn = NETWORKS[name], np.random.default_rng(0).standard_normal((NETWORKS[name].n, 3)), []
    sampler = type(net.device_sampler().on(lib.asarray(z)))
    rows = sampler.rows
    monkeypatch.setattr(sampler, "rows", lambda self, first, graphs: drawn.append(graphs) or rows(self, first, graphs))
    room = net.device_sampler().on(lib.asarray(z)).room
    monkeypatch.setattr(simulated, "DEVICE_BYTES", 3 * cuda.EDGE_BYTES * room)
    expected, host = calls(net, "stepping", rule, True, z, steps=8)
    found, channel = calls(net, "stepping", rule, True, lib.asarray(z), steps=8)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(lib.to_numpy(a), b)
    np.testing.assert_array_equal(channel.omega, host.omega)
    assert (channel.traffic, channel.step) == (host.traffic, host.step)
    assert drawn == 3 * [3, 3, 2]


@needs_cupy
def test_matrices_that_need_much_memory_are_made_by_the_host(lib, monkeypatch):
    net, z, drawn = NETWORKS["out"], np.ones((NETWORKS["out"].n, 2)), []
    sampler = type(net.device_sampler().on(lib.asarray(z)))
    rows = sampler.rows
    monkeypatch.setattr(sampler, "rows", lambda *given: drawn.append(given) or rows(*given))
    for entries, on_device in ((3 * net.n**2, True), (3 * net.n**2 - 1, False)):
        monkeypatch.setattr(simulated, "DEVICE_ENTRIES", entries)
        average = connect(net, "composed").average(lib.asarray(z), 3)
        assert_same(average, connect(net, "composed").average(z, 3), lib)
        assert bool(drawn) == on_device
        drawn.clear()


@needs_cupy
def test_infinity_stays_with_its_receivers(lib):
    """Absent edges add nothing, not 0 · ∞."""
    net = RandomDirected(40, 0.1, 0.2, seed=1)
    z = np.ones((net.n, 2))
    z[3, 0] = np.inf
    expected = connect(net, "stepping").mix(z, 1)
    np.testing.assert_array_equal(lib.to_numpy(connect(net, "stepping").mix(lib.asarray(z), 1)), expected)
    assert np.isinf(expected).any() and not np.isnan(expected).any()


@needs_cupy
def test_gossip_still_checks_its_matrices(lib):
    z = lib.asarray(np.ones((40, 2)))
    assert_same(hgp.Gossip(NETWORKS["static"], 3).apply(z[:6, :]), np.ones((6, 2)), lib)
    for mode in ("stepping", "composed"):
        with pytest.raises(ValueError, match="doubly stochastic"):
            connect(NETWORKS["directed"], mode).mix(z, 2, WeightRule.NONE)


@needs_cupy
def test_a_subclass_with_other_graphs_is_not_drawn_on_the_device(lib):
    class Backwards(RandomOut):
        def _sample(self, s, sender, out):
            super()._sample(100 - s, sender, out)

    z = np.random.default_rng(0).standard_normal((20, 3))
    expected, _ = calls(Backwards(20, 3), "stepping", WeightRule.RESET, True, z)
    found, _ = calls(Backwards(20, 3), "stepping", WeightRule.RESET, True, lib.asarray(z))
    np.testing.assert_array_equal(lib.to_numpy(found[-1]), expected[-1])


@needs_cupy
def test_the_last_step_ends_the_graphs_on_the_device_too(lib):
    net = RandomOut(6, 2).after(2**56 - 4)
    z = lib.asarray(np.ones((6, 2)))
    channel = connect(net, "stepping")
    channel.mix(z, 3)
    with pytest.raises(ValueError, match="must be"):
        channel.mix(z, 3)


# Graphs and mini-batches ----------------------------------------------------------------------------------------------

SAMPLED = [
    (RandomDirected(16, seed=0), 1),
    (RandomUndirected(37, 0.1, 0.9, seed=2**63 + 5), 2**32 - 3),
    (RandomDirected(3, 0.0, 0.0, seed=1), 1),
    (RandomDirected(5, 1.0, 1.0), 9),
    (RandomDirected(90, seed=11), 2**56 - 12),
    (RandomOut(600, 4, seed=3), 1),  # more than two tiles of the running sum
    (RandomOut(7, 6, seed=5), 2**32 - 2),
    (RandomOut(100, 60, seed=2**64 - 1), 2**56 - 6),
    (RandomOut(40, 0), 1),
    (SparseErdosRenyi(300, 3.5, seed=2**40), 2**33),
    (SparseErdosRenyi(30, 0.0), 1),
    (SparseErdosRenyi(9, 8.0), 2**56 - 6),
    (Unreliable(RandomOut(40, 6, seed=5), sleep=0.4, seed=2**63 + 1), 1),
    (Unreliable(RandomOut(300, 3, seed=5), sleep=0.3, seed=7, stretch=3), 2**56 - 6),
    (Unreliable(RandomDirected(37, seed=2), sleep=0.5, seed=2**40, stretch=2**20 + 7), 2**32 - 2),
    (Unreliable(RandomUndirected(9, seed=2), sleep=1.0), 4),
    (Unreliable(SparseErdosRenyi(30, 2.5), sleep=2**-40), 1),
    (Unreliable(SparseErdosRenyi(30, 2.5, seed=2), sleep=[(3, 2, 4), (29, 1, 1), (0, 5, 2**56 - 1), (3, 1, 1)]), 1),
]


@needs_cupy
@pytest.mark.parametrize(("net", "first"), SAMPLED, ids=str)
def test_graphs_of_the_device_are_those_of_the_host(lib, net, first):
    rows = net.device_sampler().on(lib.asarray(np.ones(1))).rows(first, 5)
    indptr, senders, weights = map(lib.to_numpy, rows)
    for t in range(5):
        expected = net.csr(first + t)
        edges = expected[1].size
        np.testing.assert_array_equal(indptr[t], expected[0])
        np.testing.assert_array_equal(senders[t, :edges], expected[1])
        np.testing.assert_array_equal(weights[t, :edges], expected[2])


@needs_cupy
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("net", LINKS, ids=str)
def test_messages_arrive_on_the_device_as_on_the_host(lib, net, robust):
    """Which rows of the past each client adds up, and with which weights, in three calls of four steps."""
    like = lib.asarray(np.ones(1))
    first, graphs = net._steps(3, 12)
    sent = net.device_sampler().on(like).rows(first, graphs)
    indptr, rows, shares = map(lib.to_numpy, cuda.deliveries(sent, 4, first, net.rule, robust, like))
    for c in range(3):
        plan = deliveries(net, 3 + 4 * c, 4, robust, InFlight.empty())
        begins = np.concatenate([[0], np.cumsum([graph[1].size for graph in plan.rows])])
        ends = [graph[0][1:] + begin for graph, begin in zip(plan.rows, begins, strict=False)]
        np.testing.assert_array_equal(indptr[c], np.concatenate([[0], *ends]))
        for found, part in ((rows, 1), (shares, 2)):
            expected = np.concatenate([graph[part] for graph in plan.rows])
            np.testing.assert_array_equal(found[c, : begins[-1]], expected)


@needs_cupy
@pytest.mark.parametrize("net", [RandomDirected(17, 0.0, 1.0, seed=2**64 - 1), RandomUndirected(18, seed=4)], ids=str)
def test_rates_of_edges_are_those_of_the_host(lib, net):
    sampler = net.device_sampler().on(lib.asarray(np.ones(1)))
    np.testing.assert_array_equal(lib.to_numpy(sampler.last), net._last)


@needs_cupy
def test_random_bits_that_equal_a_threshold(lib):
    """Loss, sleep, edges and degrees, with thresholds that were drawn: by chance, one draw in 2³² or 2⁶⁴ equals one."""
    n, step, keys, like = 12, 2**40 + 3, key(9), lib.asarray(np.ones(1))

    def bits(block, client, at, number):
        return [int(w) for w in philox4x32(block, client, *step_counter(at, number), *keys)[:2]]

    graphs = RandomOut(n, 5, seed=2)
    sleeper = Sleepers(graphs.device_sampler(), np.empty((0, 3), np.int64), bits(0, 4, step, 10)[0], 1, 10, keys)
    asleep = np.zeros(n, dtype=np.bool_)
    asleep_at(step, np.uint64(1), 10, *keys, np.uint64(sleeper.threshold), asleep)
    expected = keep_from_sleepers(*graphs.csr(step), asleep)
    found = [lib.to_numpy(part)[0] for part in sleeper.on(like).rows(step, 1)]
    assert asleep.any() and not asleep[4]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a[: b.size], b)

    indptr, senders, _ = graphs.csr(step)
    i, e = next((i, e) for i in range(n) for e in range(indptr[i], indptr[i + 1]) if senders[e] != i)
    rule = (9, *keys, np.uint64(bits(i, senders[e], step, 9)[0]), np.uint64(1))
    delays = np.empty(senders.size, dtype=np.int64)
    message_delays(indptr, senders, step, *rule, delays)
    late = cuda.deliveries(graphs.device_sampler().on(like).rows(step, 1), 1, step, rule, False, like)
    assert delays[e] == 0 and (delays < 0).any()
    np.testing.assert_array_equal(lib.to_numpy(late.senders)[0, : (delays == 0).sum()], senders[delays == 0])

    edges = RandomDirected(n, seed=2).device_sampler()
    words = [[philox4x32(i // 4, j, *step_counter(step, 2), *keys)[i % 4] for j in range(n)] for i in range(n)]
    last, adjacency = np.array(words, dtype=np.uint32), np.empty((1, n, n), dtype=np.bool_)
    for floor in (0, 1):  # of two equal numbers, an edge; of an even one with floor 1, none
        sampler = edges._replace(floor=floor, stream=2, key=keys).on(like)
        sampler.last = lib.asarray(last, "uint32")
        adjacencies(last, np.uint32(floor), False, 2, *keys, step, adjacency)
        rows = [lib.to_numpy(part)[0] for part in sampler.rows(step, 1)]
        assert adjacency.all() == (floor == 0)
        np.testing.assert_array_equal(np.diff(rows[0]), adjacency[0].sum(axis=1))
        np.testing.assert_array_equal(rows[1][: adjacency.sum()], np.nonzero(adjacency[0])[1])

    numbers = [w0 << 32 | w1 for w0, w1 in (bits(0, j, step, 7) for j in range(n))]
    table = np.array(sorted(numbers[:5]), dtype=np.uint64)
    rows = cuda.OutNeighbours(n, 1, table, 7, 8, keys).on(like).rows(step, 1)
    degrees = np.bincount(lib.to_numpy(rows.senders)[0, : int(lib.to_numpy(rows.indptr)[0, -1])], minlength=n)
    np.testing.assert_array_equal(degrees, [2 + sum(int(t) <= number for t in table) for number in numbers])


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "replace"), [(1, False), (5, False), (6, False), (7, False), (40, False), (6, True)])
def test_mini_batches_of_the_device_are_those_of_the_host(lib, monkeypatch, size, replace, dtype):
    monkeypatch.setattr(hgp.problems.batches, "MOST", 3)  # two blocks
    host = linear_problem("logistic", dtype).restrict([3, 0, 2])
    like = lib.asarray(np.ones(1), dtype)
    problem = host.to(like)
    for seed, first in ((0, 0), (2**63 + 11, 2**32 - 2), (2**64 - 1, 2**56 - 6)):
        batches = hgp.MiniBatches(size, seed=(seed, 1), replace=replace, offset=first)
        samplers = [
            BatchSampler(p, batches, 5, a, runs=True, streams=2) for p, a in ((host, host._like()), (problem, like))
        ]
        for m in range(5):
            for expected, found in zip(*(sampler.at(m) for sampler in samplers), strict=True):
                assert found.shape == expected.shape
                for part in ("flat", "index", "mean"):
                    assert_same(getattr(found, part), getattr(expected, part), lib, rtol=0)


@needs_cupy
def test_instances_of_large_sets_use_all_bits_of_a_draw(lib):
    counts, clients, seed = np.array([2**31 - 1, 2**30 + 7, 3]), np.arange(3), 2**40 + 5
    expected = sample_batches(counts, 9, seed, 4, 5, stream=1, replace=True)
    parts = [lib.xp.empty((5, 3, 9), dtype=dtype, device=lib.device) for dtype in ("int64", "int64", "float64")]
    rule = (2**31, True, 4, BATCHES + 1, key(seed))
    cuda.draw_batches(lib.asarray(counts), lib.asarray(clients), *rule, *parts)
    np.testing.assert_array_equal(lib.to_numpy(parts[1]), expected)
    np.testing.assert_array_equal(lib.to_numpy(parts[0]), expected + 2**31 * clients[:, None])


@needs_cupy
def test_large_mini_batches_without_replacement_are_drawn_on_the_host(lib):
    X, y = np.ones((2, cuda.LARGEST_BATCH + 9, 1)), np.ones((2, cuda.LARGEST_BATCH + 9))
    problem = hgp.problems.LogisticRegression(X, y, X, y).to(lib.backend)
    for size, replace, drawn in ((256, False, True), (257, False, False), (257, True, True)):
        assert (problem.device_batches(size, replace, problem._like()) is not None) == drawn


# Linear models --------------------------------------------------------------------------------------------------------


LINEAR = ["logistic", "squares", "one rate", "softmax", "weights", "softmax weights", "cleaning"]


def linear_problem(name, dtype, features=9):
    rng = np.random.default_rng(7)
    X = [rng.standard_normal((7 - 3 * (i % 2), features)) for i in range(4)]
    two = [(rng.random(len(part)) < 0.5).astype(float) for part in X]
    three = [np.arange(len(part)) % 3.0 for part in X]
    made = {
        "logistic": lambda: hgp.problems.LogisticRegression(X, two, X, two),
        "squares": lambda: hgp.problems.LeastSquares(X, two, X, two),
        "one rate": lambda: hgp.problems.LogisticRegression(X, two, X, two, regularization="client"),
        "softmax": lambda: hgp.problems.SoftmaxRegression(X, three, X, three, 3),
        "weights": lambda: hgp.problems.InstanceWeights(X, two, X, two, l2=0.1),
        "softmax weights": lambda: hgp.problems.InstanceWeights(X, three, X, three, loss="softmax", l2=0.1),
        "cleaning": lambda: hgp.problems.HyperCleaning(X, three, X, three),
    }
    return made[name]().to("numpy", dtype=dtype)


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["logistic", "squares", "one rate", "softmax", "weights", "softmax weights", "cleaning"]
)
@pytest.mark.parametrize("runs", [(), (2,)], ids=["one run", "two runs"])
def test_products_of_linear_models(lib, name, dtype, runs):
    host, rng = linear_problem(name, dtype, features=37), np.random.default_rng(0)  # more than the threads of a warp
    problem = host.to(lib.backend)
    x = (15 * rng.standard_normal((*runs, 4, host.dim_x))).astype(dtype)  # probabilities close to 0 and 1 too
    lam = np.abs(rng.standard_normal((4, host.dim_lam))).astype(dtype)
    u = rng.standard_normal((*runs, 4, host.dim_x)).astype(dtype)
    one = rng.integers(0, 4, (4, 5))
    one[0, 3:] = -1
    point = (x if not runs else x[0], lam)
    on_device = [lib.asarray(a) for a in (x, lam, u, point[0])]
    if runs:  # rates of their own in each run
        many = np.stack([lam, 2 * lam])
        assert_same(problem.inner_grad(on_device[0], lib.asarray(many)), host.inner_grad(x, many), lib)
        derivatives = problem.linearize(on_device[0], on_device[1])  # with curvatures of their own, too
        assert_same(derivatives.hvp(on_device[2]), host.linearize(x, lam).hvp(u), lib)
    for batch in (None, one, np.stack([one, one[:, ::-1]])):
        there = None if batch is None else lib.asarray(batch)
        assert_same(problem.inner_grad(*on_device[:2], there), host.inner_grad(x, lam, batch), lib)
        product = problem.linearize(on_device[3], on_device[1], there).hvp(on_device[2])
        expected = host.linearize(*point, batch).hvp(u)
        assert_same(product, expected, lib)
        if batch is not None:
            prepared = problem.prepare_batches(batch[None, None], like=on_device[0])[0, 0]
            derivatives = problem.linearize(on_device[3], on_device[1]).on(prepared)
            assert_same(derivatives.hvp(on_device[2]), expected, lib)
            assert_same(derivatives.cross(on_device[2]), host.linearize(*point, batch).cross(u), lib)


@needs_cupy
@pytest.mark.parametrize("layout", ["Fortran", "strided"])
@pytest.mark.parametrize("runs", [(), (2,)], ids=["one run", "two runs"])
@pytest.mark.parametrize("name", ["logistic", "one rate", "softmax weights"])
def test_products_of_arrays_in_any_layout(lib, name, runs, layout):
    host, rng = linear_problem(name, "float64"), np.random.default_rng(0)
    x, u = rng.standard_normal((2, *runs, 4, host.dim_x))
    lam, batch = np.abs(rng.standard_normal((*runs, 4, host.dim_lam))), rng.integers(0, 4, (*runs, 4, 5))

    def laid_out(a):
        there = lib.asarray(a)
        return lib.xp.asarray(there, order="F") if layout == "Fortran" else lib.xp.repeat(there, 2, axis=-1)[..., ::2]

    problem, there = host.to(lib.backend), laid_out(batch)
    assert_same(problem.inner_grad(laid_out(x), laid_out(lam), there), host.inner_grad(x, lam, batch), lib)
    one = lam[0] if runs else lam
    derivatives = problem.linearize(laid_out(x), laid_out(one), there)
    expected = host.linearize(x, one, batch)
    assert_same(derivatives.hvp(laid_out(u)), expected.hvp(u), lib)
    assert_same(derivatives.cross(laid_out(u)), expected.cross(u), lib)


@needs_cupy
@pytest.mark.parametrize("batches", [None, 3, hgp.MiniBatches(3, seed=(1, 2)), hgp.MiniBatches(9, replace=True)])
@pytest.mark.parametrize("method", ["Neumann", "Chebyshev", "Tracking", "Refined"])
def test_whole_runs_agree_with_the_host(lib, method, batches):
    methods = {
        "Neumann": hgp.methods.Neumann(0.1),
        "Chebyshev": hgp.methods.Chebyshev(0.1, 5.0),
        "Tracking": hgp.methods.Tracking(0.05),
        "Refined": hgp.methods.Refined(hgp.methods.Tracking(0.05), cycles=2, steps=5),
    }
    host, rng = linear_problem("logistic", "float64"), np.random.default_rng(1)
    x, lam = rng.standard_normal((4, host.dim_x)), 0.5 + rng.random((4, host.dim_lam))
    options = {"avg": hgp.PushSum(RandomDirected(4, seed=2), 3), "method": methods[method], "iterations": 60}
    expected = hgp.hypergradient(host, x, lam, batches=batches, **options)
    found = hgp.hypergradient(host.to(lib.backend), lib.asarray(x), lib.asarray(lam), batches=batches, **options)
    assert_same(found.value, expected.value, lib, rtol=rtol("float64"))
    if expected.value.ndim == 2:
        assert found.traffic == expected.traffic


# Neural networks ------------------------------------------------------------------------------------------------------


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_views(lib, dtype):
    """Transposed, repeated and reversed matrices, parts of a larger array and single rows or columns, as they lie."""
    rng, xp = np.random.default_rng(0), lib.xp
    for p, q, r in ((4, 5, 3), (1, 5, 3), (4, 1, 3), (4, 5, 1), (1, 1, 1)):
        whole = rng.standard_normal((2, p * q + 7)).astype(dtype)
        a = whole[:, 3 : 3 + p * q].reshape(2, p, q)
        there = xp.reshape(lib.asarray(whole)[:, 3 : 3 + p * q], (2, p, q))
        views = [(a, there), (a.mT, xp.matrix_transpose(there)), (a[:, ::2, ::2], there[:, ::2, ::2])]
        first = (q + 1) // 2  # columns of rows that are longer, and the transpose
        views += [(a[:, :, :first], there[:, :, :first]), (a[:, :, :first].mT, there[:, :, :first].transpose(0, 2, 1))]
        views += [(np.broadcast_to(v[:, :1, :], v.shape), xp.broadcast_to(w[:, :1, :], v.shape)) for v, w in views[:2]]
        views += [(v[::-1, ::-1, :], w[::-1, ::-1, :]) for v, w in views[:2]]
        for left, on_device in views:
            right = rng.standard_normal((2, left.shape[2], r)).astype(dtype)
            for other, form in ((right, lambda m: m), (np.ascontiguousarray(right.mT), xp.matrix_transpose)):
                assert_same(cuda.matmul(on_device, form(lib.asarray(other))), left @ right, lib)
            onto = rng.standard_normal((left @ right).shape).astype(dtype)
            assert_same(cuda.matmul(on_device, lib.asarray(right), lib.asarray(onto)), onto + left @ right, lib)


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_of_extreme_logits(lib, dtype):
    rng, loss = np.random.default_rng(0), SoftmaxLoss(4)
    for scale in (1.0, 50.0, 1e4):
        a, b = ((s * rng.standard_normal((2, 9, 4))).astype(dtype) for s in (scale, 1.0))
        targets = rng.integers(0, 4, (2, 9))[..., None] == np.arange(4)
        slope = loss.slope(a, targets, xp=np)
        np.testing.assert_allclose(
            lib.to_numpy(cuda.softmax_slope(lib.asarray(a), lib.asarray(targets))), slope, rtol=identity_rtol(dtype)
        )
        runs = cuda.softmax_slope(lib.asarray(np.stack([a, a])), lib.asarray(targets))
        np.testing.assert_allclose(lib.to_numpy(runs), np.stack([slope, slope]), rtol=identity_rtol(dtype))
        expected = loss.curvature_product(loss.curvature(a, np.ones((2, 9), dtype), xp=np), b, xp=np)
        assert_same(cuda.softmax_curvature(lib.asarray(a), lib.asarray(b)), expected, lib)


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
def test_curvature_keeps_its_relative_accuracy(lib, dtype):
    """One class has a probability close to 1, and the direction is large along 1, where the curvature is zero."""
    a, b = np.array([[25.0, 0.0, -3.0, 1.0]], dtype), np.array([[1000.0, 1000.5, 999.0, 1001.0]], dtype)
    p = np.exp(a.astype(np.float64) - 25.0)
    p /= p.sum()
    c = b.astype(np.float64) - b[0, 0]
    exact = p * (c - (p * c).sum())
    there = [lib.asarray(part) for part in (a, b)]
    np.testing.assert_allclose(lib.to_numpy(cuda.softmax_curvature(*there)), exact, rtol=identity_rtol(dtype))
    one = np.ones((1, 1, 1), dtype)  # one client with one instance and one feature: its logits are x
    host = hgp.problems.SoftmaxRegression(one, one[0], one, one[0], 4)
    product = host.to(lib.backend).linearize(there[0], lib.asarray(np.zeros((1, 4), dtype))).hvp(there[1])
    np.testing.assert_allclose(lib.to_numpy(product), exact, rtol=identity_rtol(dtype))


@needs_cupy
@pytest.mark.parametrize("dtype", DTYPES)
def test_slopes_keep_their_relative_accuracy(lib, dtype):
    """The label has a probability close to 1: its slope is minus the sum of the others, not a difference of ones."""
    a, one = np.array([[25.0, 0.0, -3.0, 1.0]], dtype), np.ones((1, 1, 1), dtype)
    p = np.exp(a[0].astype(np.float64) - 25.0)
    p /= p.sum()
    p[0] = -p[1:].sum()
    label = 0 * one[0]
    problem = hgp.problems.SoftmaxRegression(one, label, one, label, 4).to(lib.backend)
    slope = problem.inner_grad(lib.asarray(a), lib.asarray(np.zeros((1, 4), dtype)))  # without a penalty
    np.testing.assert_allclose(lib.to_numpy(slope)[0], p, rtol=identity_rtol(dtype))


@needs_cupy
def test_windows_with_unequal_padding(lib):
    a = np.random.default_rng(0).standard_normal((2, 3, 5, 7, 2))
    for windows in (
        Windows((3, 2), (1, 2), (5, 7), before=(2, 0), after=(0, 1)),
        Windows((2, 3), (2, 1), (5, 7), before=(0, 2), after=(3, 0)),
    ):
        expected = np.concatenate(windows.gather(a, np), axis=-1)
        np.testing.assert_array_equal(lib.to_numpy(cuda.gather_windows(lib.asarray(a), windows)), expected)


@needs_cupy
def test_kernels_without_work_are_not_launched(lib):
    """CuPy launches one block if a grid is empty."""
    index = lib.asarray(np.zeros((3, 0), dtype=np.int64))
    assert cuda.gather_columns(lib.asarray(np.ones((3, 4))), index).shape == (3, 0)
    none = lib.asarray(np.ones((3, 0)))
    assert cuda.tracking_message(none, 1.0, none).shape == (3, 0)


@needs_cupy
@pytest.mark.parametrize("order", ["C", "F"])
def test_messages_of_tracking_in_any_layout(lib, order):
    u, y = np.random.default_rng(0).standard_normal((2, 3, 4))
    there = lib.xp.asarray(lib.asarray(u), order=order)
    expected = np.concatenate([u - 0.3 * y, y], axis=-1)
    np.testing.assert_array_equal(lib.to_numpy(cuda.tracking_message(there, 0.3, lib.asarray(y))), expected)


@needs_cupy
def test_columns_by_index(lib):
    rng = np.random.default_rng(0)
    a, index = rng.standard_normal((3, 8)), rng.integers(0, 8, (3, 5))
    gathered = np.take_along_axis(a, index, axis=1)
    sums = np.zeros((3, 8))
    np.add.at(sums, (np.arange(3)[:, None], index), gathered)
    for order in ("C", "F"):
        values, places = (lib.xp.asarray(lib.asarray(part), order=order) for part in (gathered, index))
        assert_same(cuda.add_columns(values, places, 8), sums, lib)
        assert_same(cuda.gather_columns(lib.xp.asarray(lib.asarray(a), order=order), places), gathered, lib, rtol=0)
    nothing = lib.asarray(index[:, :0])  # an empty mini-batch
    assert_same(cuda.add_columns(lib.asarray(gathered[:, :0]), nothing, 8), 0 * sums, lib)


@pytest.mark.parametrize(
    "net",
    [
        RandomOut(20, 3),
        RandomDirected(20),
        RandomUndirected(20),
        SparseErdosRenyi(20, 3.0),
        Unreliable(RandomOut(20, 3), loss=0.0, delay=0, sleep=0.3),
    ],
    ids=lambda net: type(net).__name__,
)
def test_a_device_draws_the_graphs_of_no_subclass(net):
    mine = type("Mine", (type(net),), {})(**net._arguments())
    assert net.device_sampler() is not None and mine.device_sampler() is None


# Without CuPy ---------------------------------------------------------------------------------------------------------


def test_importing_the_package_does_not_import_cupy():
    code = (
        "import sys, numpy as np, hgp_ref as hgp; hgp.PushSum(hgp.networks.RandomOut(40, 2), 3).apply(np.ones((40, 2)))"
    )
    subprocess.run([sys.executable, "-c", code + "; assert 'cupy' not in sys.modules"], check=True)


needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="CUDA code was not compiled for GPUs: nvcc is not installed"
)
TEXTS = [cuda.MIXING, cuda.RANDOM, cuda.COOPERATIVE, cuda.LINEAR, cuda.NEURAL]
CONTRACTIBLE = re.compile(r"\b(fma|mul\.f)")  # a product without .rn and a sum may become one instruction later
CONTRACTED = {"weigh_logits", "add_rows", "softmax_rows"}  # agree with the host up to rounding; all others bit for bit


def compiled(folder, text, architecture) -> tuple[dict[str, str], str]:
    """The PTX of each kernel, and what the assembler says of its registers."""
    (folder / "kernels.cu").write_text(text)
    options = [f"-arch={architecture}", "-Xptxas", "-v", "--keep", "--keep-dir", str(folder), "-cubin"]
    command = ["nvcc", *options, "-o", str(folder / "kernels.cubin"), str(folder / "kernels.cu")]
    built = subprocess.run(command, capture_output=True, text=True, check=True)
    entries = re.split(r"\.visible \.entry (\w+)", (folder / "kernels.ptx").read_text())
    return dict(zip(entries[1::2], entries[2::2], strict=True)), built.stderr


@needs_nvcc
@pytest.mark.parametrize("real", ["double", "float"])
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_nvcc_compiles_without_spills_and_without_contraction(tmp_path, architecture, real):
    text = cuda.COMMON + "".join(part.removeprefix(cuda.COMMON) for part in TEXTS)
    kernels, said = compiled(tmp_path, f"#define real {real}\n{text}", architecture)
    spills = [int(size) for size in re.findall(r"(\d+) bytes spill", said)]
    assert len(spills) == 2 * len(kernels) and not any(spills), said
    assert {name for name, ptx in kernels.items() if CONTRACTIBLE.search(ptx)} <= CONTRACTED


@needs_nvcc
def test_nvcc_would_contract_plain_operators(tmp_path):
    plain = {"__dmul_rn(a, b)": "a * b", "__dadd_rn(a, b)": "a + b"}
    plain["plus(u[row * stride + c], -times(step, y[row * d + c]))"] = "u[row * stride + c] - step * y[row * d + c]"
    text = cuda.MIXING
    for rounded, operators in plain.items():
        assert rounded in text
        text = text.replace(rounded, operators)
    kernels, _ = compiled(tmp_path, f"#define real double\n{text}", "sm_80")
    assert "fma.rn" in kernels["pull"]
    message = kernels["tracking_message"]  # nvcc writes a product and a difference, which the assembler may contract
    assert CONTRACTIBLE.search(message) and "fma.rn" not in message


def test_arrays_of_other_libraries_have_no_kernels():
    assert not cuda.applies(np.ones(2))
