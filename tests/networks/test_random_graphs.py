"""Random graphs are functions of (seed, step, sender): against Python integers, in any order, thread and process."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgp_ref import philox
from hgp_ref._kernels import graphs
from hgp_ref._kernels.graphs import RECEIVER_LANES, RECEIVER_TILE
from hgp_ref.networks import RandomDirected, RandomOut, RandomUndirected, SparseErdosRenyi

from . import oracle

TESTS = Path(__file__).parents[1]
SEED = st.integers(0, 2**64 - 1)
STEP = st.one_of(st.integers(1, 100), st.integers(1, philox.MAX_STEP))
RATE = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 2.0**-33])


def lists(net, s):
    """Receivers of every sender from edges(s)."""
    senders, receivers = net.edges(s)
    return [receivers[senders == j].tolist() for j in range(net.n)]


@settings(max_examples=30)
@given(st.integers(1, 7), RATE, RATE, SEED, STEP, st.booleans())
def test_bernoulli_graphs_equal_the_oracle(n, a, b, seed, s, symmetric):
    low, high = min(a, b), max(a, b)
    net = (RandomUndirected if symmetric else RandomDirected)(n, low, high, seed)
    rates = [[oracle.rate(low, high, seed, i, j, symmetric=symmetric) for j in range(n)] for i in range(n)]
    np.testing.assert_array_equal(net.rates * 2**32, rates)
    assert lists(net, s) == [oracle.bernoulli(n, low, high, seed, s, j, symmetric=symmetric) for j in range(n)]


@settings(max_examples=30)
@given(st.data(), st.integers(1, 12), SEED, STEP)
def test_random_out_equals_the_oracle(data, n, seed, s):
    k = data.draw(st.integers(0, n - 1))
    assert lists(RandomOut(n, k, seed), s) == [oracle.random_out(n, k, seed, s, j) for j in range(n)]


@settings(max_examples=30)
@given(st.data(), st.integers(1, 12), SEED, STEP)
def test_sparse_erdos_renyi_equals_the_oracle(data, n, seed, s):
    mean = data.draw(st.floats(0, n - 1))
    expected = [oracle.sparse_erdos_renyi(n, mean, seed, s, j) for j in range(n)]
    assert lists(SparseErdosRenyi(n, mean, seed), s) == expected


@pytest.mark.parametrize(("n", "k"), [(400, 90), (400, 70), (400, 399), (RECEIVER_LANES + 1, 3), (2**31, 5)])
def test_random_out_by_flags_and_by_comparisons(n, k):
    """k² > 16 n takes the table of flags; a single sender of 2³¹ costs nothing."""
    net = RandomOut(n, k, seed=3)
    for j in (0, 1, n // 2, n - 1):
        assert net.out_neighbours(9, j).tolist() == oracle.random_out(n, k, 3, 9, j)


PINNED = 1406250696
KINDS = [
    RandomDirected(9, seed=11),
    RandomDirected(70, 0.0, 0.1, seed=12),
    RandomUndirected(9, seed=11),
    RandomUndirected(70, 0.0, 0.1, seed=12),
    RandomOut(9, 3, seed=11),
    RandomOut(2 * RECEIVER_LANES + 5, 7, seed=12),
    SparseErdosRenyi(9, 2.5, seed=11),
    SparseErdosRenyi(RECEIVER_TILE + 5, 3.0, seed=12),
]


@pytest.mark.parametrize("net", KINDS, ids=repr)
def test_order_of_asking_and_single_senders(net):
    forward = {s: net.edges(s) for s in (1, 2, 3, 2**40)}
    fresh = eval(repr(net))  # the repr can be pasted
    for s in (2**40, 3, 1, 2):
        senders, receivers = fresh.edges(s)
        np.testing.assert_array_equal(senders, forward[s][0])
        np.testing.assert_array_equal(receivers, forward[s][1])
        for j in {0, 1, net.n // 2, net.n - 1}:
            alone = net.out_neighbours(s, j)
            assert alone.dtype == np.int64
            np.testing.assert_array_equal(alone, receivers[senders == j])


@pytest.mark.parametrize("net", KINDS, ids=repr)
def test_seeds_and_steps_differ(net):
    text = repr(net)
    other = eval(text.replace(f"seed={net.seed}", f"seed={net.seed + 2**32}"))  # differs in the high word only
    graphs = [net.edges(1), net.edges(2), net.edges(1 + 2**32), other.edges(1)]
    pairs = {tuple((a * net.n + b).tolist()) for a, b in graphs}
    assert len(pairs) == 4


def checksum(nets) -> int:
    total = 0
    for net in nets:
        for s in (5, 1, 2**33):
            for part in (*net.edges(s), *net.csr(s)):
                total = zlib.crc32(part.astype(part.dtype.newbyteorder("<")).tobytes(), total)
    return total


def test_threads_and_pickled_copies_agree():
    expected = [checksum([net]) for net in KINDS]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda net: checksum([net]), KINDS * 3)) == expected * 3
    assert [checksum([pickle.loads(pickle.dumps(net))]) for net in KINDS] == expected


def test_another_process_and_every_machine_agree():
    """The checksum is pinned: a change of it breaks the reproducibility of every published figure."""
    program = (
        "from networks.test_random_graphs import KINDS, checksum\n"
        "for net in reversed(KINDS): net.mixing_matrix(7) if net.n < 100 else net.csr(7)\n"
        "print(checksum(KINDS))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=TESTS, capture_output=True, text=True, check=True)
    assert int(run.stdout) == checksum(KINDS) == PINNED


@pytest.mark.parametrize("rate", [1, 2, 2**31, 2**32 - 1, 2**32])
def test_thresholds_are_exact(rate):
    """A number u passes rate t / 2³² if and only if u < t, in both kernels; with rate 0 none passes."""
    bits = np.array([0, 1, rate - 1, min(rate, 2**32 - 1), 2**32 - 1], dtype=np.uint32)
    last = np.uint32(rate - 1)
    one = np.empty((1, bits.size), dtype=np.uint8)
    graphs._compare(bits[np.newaxis], np.uint32(0), np.full((1, bits.size), last), 0, bits.size, one)
    many = np.empty(graphs.TILE, dtype=np.uint8)
    graphs._compare_steps(np.resize(bits, (1, graphs.TILE)), 0, np.uint32(0), last, graphs.TILE, many)
    expected = bits.astype(np.uint64) < rate
    np.testing.assert_array_equal(one[0], expected)
    np.testing.assert_array_equal(many, np.resize(expected, graphs.TILE))
    graphs._compare(bits[np.newaxis], np.uint32(1), np.zeros((1, bits.size), np.uint32), 0, bits.size, one)
    graphs._compare_steps(np.resize(bits, (1, graphs.TILE)), 0, np.uint32(1), np.uint32(0), graphs.TILE, many)
    assert not one.any() and not many.any()
