"""Launches and transfers of the real CuPy, as the rig of tests/cupy_on_cpu counts them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.device_runs import CASES, LONG, SHORT, Case, clients, count, counts_of, launches_row, logistic, runs_of
from support.libraries import open_library

import hgp_ref as hgp
from hgp_ref.certificates.point import ClientMatrices
from hgp_ref.mixing import connect
from hgp_ref.mixing.channel import WeightRule
from hgp_ref.networks import RandomDirected, RandomOut, Star, Thinned, Unreliable

pytestmark = pytest.mark.cupy


@pytest.fixture
def lib():
    return open_library("cupy")


@pytest.fixture
def rig():
    return pytest.importorskip("cupy_on_cpu", reason="launches and transfers are counted on the CPU rig only")


def test_a_call_over_sparse_random_graphs_transfers_nothing(lib, rig):
    z = lib.asarray(np.ones((1000, 8)))

    def call():
        hgp.PushSum(RandomOut(1000, 4, seed=3), 10, mode="stepping").apply(z)

    call()
    counts = count(rig, call)
    assert counts["all launches"] <= 20
    assert (counts["h2d_bytes"], counts["d2h"], counts["syncs"]) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["stepping", "composed"])
@pytest.mark.parametrize("sleep", [0.1, [(2, 3, 9)]])
def test_a_run_over_unreliable_links_transfers_only_its_results(lib, rig, mode, sleep):
    host = logistic()
    problem, x, lam = host.to(lib.backend), lib.asarray(np.zeros((16, 40))), lib.asarray(np.ones((16, 40)))
    net = Unreliable(RandomDirected(16, seed=1), loss=0.1, delay=2, sleep=sleep, seed=3)

    def run(iterations):
        avg = hgp.RobustPushSum(net, 10, mode=mode)
        hgp.hypergradient(problem, x, lam, avg, eta=0.01, iterations=iterations)

    run(2)
    few, many = (count(rig, lambda M=M: run(M)) for M in (SHORT, LONG))
    assert many["h2d_bytes"] == few["h2d_bytes"] == (0 if isinstance(sleep, float) else 24)  # the interval
    assert (many["d2h"], many["syncs"]) == (few["d2h"], few["syncs"])
    launches = (many["all launches"] - few["all launches"]) / (LONG - SHORT)
    assert launches <= (7 if mode == "composed" else 18)


def test_a_call_over_sparse_unreliable_links_transfers_nothing(lib, rig):
    z, net = lib.asarray(np.ones((1000, 8))), Unreliable(RandomOut(1000, 4, seed=3), loss=0.1, delay=2, seed=1)

    def call():
        hgp.RobustPushSum(net, 10, mode="stepping").apply(z)

    call()
    counts = count(rig, call)
    assert counts["all launches"] <= 25
    assert (counts["h2d_bytes"], counts["d2h"], counts["syncs"]) == (0, 0, 0)


def test_graphs_of_the_host_go_over_in_three_transfers(lib, rig):
    z = lib.asarray(np.ones((40, 8)))
    for net in (Thinned(RandomOut(40, 4)), Unreliable(Thinned(RandomOut(40, 4)), loss=0.0, delay=0, sleep=0.2)):
        counts = count(rig, lambda net=net: hgp.PushSum(net, 10, mode="stepping").apply(z))
        assert (counts["h2d"], counts["d2h"], counts["syncs"]) == (3, 0, 0)


def test_a_late_average_keeps_no_earlier_steps(lib, rig):
    z, net = lib.asarray(np.ones((40, 8))), Unreliable(RandomOut(40, 4), loss=0.1, delay=2)
    average = hgp.RobustPushSum(net, 10, mode="stepping").apply(z)
    assert average.base is None and average.flags.c_contiguous


def test_a_hub_takes_memory_and_launches_by_its_edges(lib, rig):
    z = lib.asarray(np.ones((400, 4)))

    def call():
        hgp.PushSum(Star(400), 5, mode="stepping").apply(z)

    call()
    counts = count(rig, call)
    assert counts["all launches"] <= 10
    assert counts["h2d_bytes"] <= 20 * (3 * 400 - 2)


def test_many_composed_calls_are_prepared_together(lib, rig):
    z = lib.asarray(np.ones((16, 3)))

    def prepare():
        connect(RandomDirected(16, seed=1))._prepare(z, 10, WeightRule.RESET, True, 64)

    prepare()
    counts = count(rig, prepare)
    assert counts["all launches"] <= 23
    assert (counts["h2d"], counts["d2h"]) == (0, 0)


@pytest.mark.parametrize("name", CASES)
def test_launches_and_transfers_of_an_iteration(lib, rig, name):
    few, many = counts_of(rig, CASES[name])
    launches = (many["all launches"] - few["all launches"]) / (LONG - SHORT)
    assert 0 < launches <= CASES[name].launches
    assert launches > CASES[name].launches - 6, "the limit is out of date"
    assert (many["d2h"], many["syncs"]) == (few["d2h"], few["syncs"])
    history = 8 * (LONG - SHORT) * ("history" in CASES[name].options)
    assert (many["h2d"], many["h2d_bytes"]) == (few["h2d"], few["h2d_bytes"] + history)
    page = Path(__file__).parents[2] / "docs" / "measured" / "launches.md"  # tests/support/device_runs.py writes it
    assert launches_row(name, few, many) in page.read_text(encoding="utf-8").splitlines()


def test_a_launch_more_in_every_product_is_counted(lib, rig, monkeypatch):
    case = CASES["HGP, quadratic"]
    kind = type(case.problem().linearize(np.ones((16, 40)), np.ones((16, 40))))
    before, product = counts_of(rig, case), kind.hvp
    monkeypatch.setattr(kind, "hvp", lambda self, u: product(self, u) + 0.0)
    after = counts_of(rig, case)
    more = [(b - a)["all launches"] for a, b in ((before[0], before[1]), (after[0], after[1]))]
    assert more[1] == more[0] + LONG - SHORT


def test_a_tolerance_is_tested_in_every_eighth_iteration(lib, rig):
    unmet = Case(0, logistic, {"eta": 0.01, "tol": 1e-300})
    with pytest.warns(hgp.ConvergenceWarning, match="not met"):
        few, many = counts_of(rig, unmet)
    assert 0 < many["syncs"] - few["syncs"] <= (LONG - SHORT) // 8
    est = runs_of(Case(0, logistic, {"eta": 0.1, "tol": 1e-3}))(397)
    assert est.stopped == "tolerance" and 1 < est.iterations < 397 and est.iterations % 8 == 0


def test_products_do_not_copy_the_data(lib, rig):
    X, y, X_val, y_val = clients(4, 30, 200)
    problem = hgp.problems.LogisticRegression(X, y, X_val, y_val).to(lib.backend)
    x, lam = lib.asarray(np.zeros((4, 200))), lib.asarray(np.ones((4, 200)))
    derivatives, view = problem.linearize(x, lam), problem._val.all
    r = lib.asarray(np.ones((4, 10, 1)))
    products = {
        "hvp": lambda: derivatives.hvp(x),
        "inner_grad": lambda: problem.inner_grad(x, lam),
        "adjoint": lambda: view.adjoint(r, xp=lib.xp),
    }
    for name, product in products.items():
        product()
        rig.reset()
        product()
        assert not [kernel for kernel in rig.kernels() if kernel.startswith("cupy_copy")], name


def test_certify_moves_columns_together(lib, rig):
    host = hgp.problems.Quadratic.random(4, 20, 3, seed=0)
    x, lam = np.zeros((4, 20)), np.zeros((4, 3))
    problem, x, lam = host.to(lib.backend), lib.asarray(x), lib.asarray(lam)
    matrices = ClientMatrices("hvp(u)", problem.linearize(x, lam).hvp, None, 1e-12, x, 20)
    counts = count(rig, matrices._measure)
    assert (counts["h2d"], counts["d2h"]) == (1, 1)  # CuPy sends the addresses of the columns that it stacks
