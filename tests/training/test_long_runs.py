"""The maximal number of steps costs nothing: memory and start-up depend on the steps that are taken."""

from __future__ import annotations

import time
import tracemalloc
import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref.mixing import simulated
from hgp_ref.training.gradient_push import Rates

NET = hgp.networks.RandomDirected(n=3, seed=1)
MOST = 10**9


class Apart(hgp.networks.Network):
    """Nobody hears anybody, and no period tells so."""

    expected_edges = 3.0

    def out_adjacency(self, s):
        return np.arange(4), np.arange(3)


def stop_at(k):
    return lambda m, v: m == k


PROBLEM, X, LAM = quadratic()
RUNS = {
    "hypergradient": lambda M: hgp.hypergradient(
        PROBLEM, X, LAM, hgp.PushSum(NET, 20), eta=1.0, iterations=M, tol=1e-3
    ),
    "runs": lambda M: hgp.hypergradient(PROBLEM, X, LAM, [hgp.PushSum(NET, 20)] * 2, eta=1.0, iterations=M, tol=1e-3),
    "falling steps": lambda M: hgp.hypergradient(
        PROBLEM, X, LAM, hgp.PushSum(NET, (20, 19, 18)), eta=1.0, iterations=M, tol=1e-3
    ),
    "sgp": lambda M: hgp.sgp(PROBLEM, LAM, NET, steps=M, lr=0.3, tol=0.1, milestones=(0.6, 0.8)),
    "sgp with a function": lambda M: hgp.sgp(PROBLEM, LAM, NET, steps=M, lr=lambda s: 0.3, tol=0.1),
    "local_rounds": lambda M: hgp.training.local_rounds(
        PROBLEM, LAM, hgp.PushSum(NET, 2), rounds=M, lr=0.1, callback=stop_at(20), milestones=(0.6, 0.8)
    ),
    "at_point": lambda M: hgp.baselines.at_point(
        PROBLEM, X, LAM, hgp.networks.StaticUndirected(n=3, seed=1), "dbo", iterations=M, step=0.3, callback=stop_at(20)
    ),
    "clients that never meet": lambda M: hgp.hypergradient(
        PROBLEM, X, LAM, hgp.PushSum(Apart(3), 2), eta=1.0, iterations=M, callback=stop_at(20)
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_memory_and_startup_do_not_depend_on_the_maximum_of_steps(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        few = RUNS[name](10_000)
        tracemalloc.start()
        started = time.process_time()
        try:
            many = RUNS[name](MOST)
            spent, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8e6 and spent < 20
    done = "steps" if hasattr(many, "steps") else "iterations"
    assert np.array_equal(getattr(few, done), getattr(many, done))
    if "sgp" not in name and name != "local_rounds":  # milestones are shares of the maximum
        assert many.value.tobytes() == few.value.tobytes()


def test_rates_equal_a_table():
    for milestones, decay in (((0.6, 0.8), 0.1), ((3, 3, 7), 0.3), ((), 0.5), ((20, 2), 2.0), ((-1, 0), 0.5)):
        passed = np.searchsorted(
            np.sort((6, 8) if milestones == (0.6, 0.8) else milestones), np.arange(10), side="right"
        )
        table = 0.7 * decay**passed
        rates = Rates(10, 0.7, milestones, decay)
        assert rates.until(10).tolist() == table.tolist()
        assert rates.sample().tolist() == table[[0, 1, 2, 4, 8, 9]].tolist()


def test_a_fit_records_the_rates_of_its_steps():
    fit = hgp.sgp(PROBLEM, LAM, NET, steps=50, lr=lambda s: 0.3 / (s + 1), callback=stop_at(7))
    assert fit.steps == 7 and fit.rates.tolist() == [0.3 / (s + 1) for s in range(7)]
    fit = hgp.sgp(PROBLEM, LAM, NET, steps=10, lr=0.3, milestones=(0.6, 0.8))
    assert fit.rates.tolist() == (0.3 * 0.1 ** np.repeat([0, 1, 2], [6, 2, 2])).tolist()


def test_a_rate_that_is_not_positive_is_refused_at_its_step():
    for lr, step, rate in (
        (lambda s: -1.0, 0, -1.0),
        (lambda s: 0.1 if s < 4 else 0.0, 4, 0.0),
        (lambda s: 0.0 if s == 5 else 0.1, 5, 0.0),
    ):
        named = rf"lr\({step}\) must be a finite number > 0, got {rate}"
        with pytest.raises(ValueError, match=named):
            hgp.sgp(PROBLEM, LAM, NET, steps=9, lr=lr)


def test_a_rising_rate_may_carry_parameters_far():
    """The monitor allows for the largest rate so far, also one between the steps that were sampled."""
    rates = lambda step: 1000.0 if step == 11 else 1e-12  # noqa: E731
    fit = hgp.sgp(PROBLEM, LAM, hgp.networks.FullyConnected(3), steps=13, lr=rates)
    assert 11 not in (0, 1, 2, 4, 8, 12) and Rates(13, rates, (), 0.1).sample().max() == 1e-12
    assert np.abs(fit.x).max() > 10 and fit.rates.max() == 1000.0


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("steps", [2, (5, 4, 3, 1, 3, 1, 2)], ids=str)
@pytest.mark.parametrize("mode", ["composed", "stepping"])
def test_calls_prepared_in_smaller_blocks_are_the_same_calls(monkeypatch, runs, steps, mode):
    problem, x, lam = logistic()
    avg = hgp.PushSum(NET, steps, mode=mode)

    def run():
        options = {"batches": hgp.MiniBatches(3, seed=[1, 2])} if runs else {}
        return hgp.hypergradient(problem, x, lam, avg, eta=0.5, iterations=23, w0=x, **options)

    whole = run()
    monkeypatch.setattr(simulated, "MOST_CALLS", 4)
    parts = run()
    assert whole.value.tobytes() == parts.value.tobytes() and whole.traffic == parts.traffic
