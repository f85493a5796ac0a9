"""What a run sends over the bus: nothing that grows with d, and graphs in chunks.

The rig below CuPy counts; every count is of a run, not of making the problem.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.four_clients import AVERAGINGS, NET, N, point
from support.libraries import open_library

import hgp_ref as hgp
from hgp_ref.mixing import WeightRule, connect
from hgp_ref.networks import FullyConnected, OnePeerExponential, StaticUndirected
from hgp_ref.problems import LogisticRegression, Quadratic


class Runs:
    """Runs on CuPy, with the number and bytes of transfers of each."""

    def __init__(self, counted):
        self.counted, self.lib = counted, open_library("cupy")

    def __call__(self, run, *arrays) -> tuple[int, int]:
        given = [self.lib.asarray(a) for a in arrays]
        self.counted.reset()
        run(*given)
        return self.counted.number, self.counted.nbytes

    def hypergradient(self, dim: int, iterations: int, avg, batch_size=None) -> tuple[int, int]:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2, N, 8, dim)) / dim**0.5
        y = rng.integers(0, 2, (2, N, 8)).astype(float)
        host = LogisticRegression(X[0], y[0], X[1], y[1])
        there = host.to(self.lib.backend, device=self.lib.device)
        options = {"eta": 0.4, "iterations": iterations, "batches": batch_size}
        return self(lambda x, lam: hgp.hypergradient(there, x, lam, avg(), **options), *point(host))

    def sgp(self, dim: int, steps: int, batch_size=None) -> tuple[int, int]:
        host = Quadratic.random(N, dim, dim, seed=1)
        there = host.to(self.lib.backend, device=self.lib.device)
        return self(lambda lam: hgp.sgp(there, lam, NET, steps=steps, lr=0.3), point(host)[1])


@pytest.fixture
def runs(counted):
    return Runs(counted)


MODES = ["push-sum composed", "push-sum stepping", "push-sum conserve", "push-sum conserve stepping", "exact"]


@pytest.mark.parametrize("batch_size", [None, 3], ids=["full", "mini-batch"])
@pytest.mark.parametrize("averaging", MODES)
def test_transfers_of_a_run_do_not_grow_with_d(runs, averaging, batch_size):
    small, large = (runs.hypergradient(d, 40, AVERAGINGS[averaging], batch_size) for d in (2, 200))
    assert small == large
    assert small[0] > 0


def test_transfers_of_training_do_not_grow_with_d(runs):
    assert runs.sgp(2, 40) == runs.sgp(60, 40)


@pytest.mark.parametrize("batch_size", [None, 3], ids=["full", "mini-batch"])
@pytest.mark.parametrize("averaging", MODES)
def test_graphs_and_batches_go_over_in_chunks(runs, averaging, batch_size):
    numbers = {M: runs.hypergradient(2, M, AVERAGINGS[averaging], batch_size)[0] for M in (32, 64, 256)}
    assert numbers[64] <= numbers[32] + 2  # not one for each of the 32 iterations more
    assert numbers[256] <= 256 / 5


def test_graphs_of_training_go_over_in_chunks(runs):
    assert runs.sgp(2, 80)[0] == runs.sgp(2, 17)[0]  # blocks of 16 and 64 calls
    assert runs.sgp(2, 256)[0] == runs.sgp(2, 81)[0]  # and one of 256
    assert runs.sgp(2, 1024)[0] <= 1024 / 40


@pytest.mark.parametrize(
    "net", [OnePeerExponential(N), StaticUndirected(N, seed=1)], ids=lambda net: type(net).__name__
)
def test_matrices_of_a_period_go_over_once_a_block(runs, net):
    averaging = hgp.PushSum(net, 3, mode="composed") if net.period > 1 else hgp.Gossip(net, 3, mode="composed")
    nbytes = {M: runs.hypergradient(2, M, lambda: averaging)[1] for M in (80, 336)}  # two blocks, three blocks
    assert nbytes[336] - nbytes[80] <= net.period * N * N * 8


def test_graphs_that_are_drawn_on_the_device_are_not_sent(runs):
    few, many = (runs.hypergradient(2, M, AVERAGINGS["push-sum composed"])[1] for M in (100, 200))
    assert many == few


def test_weights_of_graphs_that_the_host_draws_are_not_read_back(runs, counted):
    channel = connect(OnePeerExponential(N), "stepping")

    def calls(z):
        for _ in range(100):
            z = channel.average(z, 3, WeightRule.CARRY)

    runs(calls, np.ones((N, 2)))
    assert counted.to_host_bytes == 0


def test_one_application_sends_nothing(runs, counted):
    runs(hgp.PushSum(NET, 10).apply, np.ones((N, 50)))
    assert counted.to_device == 0 and counted.to_host_bytes <= 8  # the number of messages


def test_a_graph_that_never_changes(runs):
    number, _ = runs(hgp.Gossip(FullyConnected(N), 3).apply, np.ones((N, 50)))
    assert number == 1
