"""The model of scaling over ranks: what it counts, and that its fit finds the constants behind the times."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from benchmarks.mpi_cases import Case, Timed, cases, network
from benchmarks.mpi_model import CONSTANTS, Model, errors, exchange, fitted
from hgp_ref.mpi.channel import columns_pay, rows_that_cross

TRUTH = np.array([2e-5, 3e-9, 4e-10, 5e-9, 6e-6, 1e-10, 7e-5, 8e-10])


def timings(ranks=2):
    """Times as the model with the true constants has them."""
    model = Model(TRUTH)
    return [
        Timed(case, ranks, model(Case(**{**vars(case), "n": case.alone or case.n}), 1), model(case, ranks), 0)
        for case in cases(quick=False)
    ]


def test_the_fit_finds_the_constants_that_made_the_times():
    model = fitted(timings())
    np.testing.assert_allclose(model.constants, TRUTH, rtol=1e-6)
    assert all(predicted == pytest.approx(seen, rel=1e-6) for _, _, seen, predicted in errors(model, timings()))


def test_shares_are_of_everything_and_another_network_changes_the_exchange_alone():
    model, case = Model(TRUTH), Case("prediction", "hgp", 800, 64, 10, 8, N=20)
    assert sum(model.shares(case, 4).values()) == pytest.approx(1)
    other = model.elsewhere(latency=2 * TRUTH[4], bandwidth=1 / TRUTH[5])
    added = 10 * exchange(case, 4).messages * TRUTH[CONSTANTS.index("latency")]
    assert other(case, 4) == pytest.approx(model(case, 4) + added)
    assert other(case, 1) == model(case, 1)  # one process sends nothing


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("degree", [1, 4, 16])
def test_expected_rows_are_those_that_cross(degree, ranks):
    """The mean over graphs, of one rank; a standard deviation is far below 2 % here."""
    case = Case("unseen", "mixing", 2000, 16, 10, degree)
    net, starts = hgp.networks.RandomOut(2000, degree, seed=1), np.arange(ranks + 1) * 2000 // ranks
    seen = np.mean([rows_that_cross(net.out_adjacency(s), starts) for s in range(1, 6)]) / ranks
    assert exchange(case, ranks).rows == pytest.approx(seen, rel=0.02)


def test_columns_are_taken_where_the_package_takes_them():
    for degree, S in ((1, 1), (1, 4), (4, 1), (4, 10), (16, 10)):
        case = Case("unseen", "mixing", 2000, 256, S, degree, mode="auto")
        net, starts = network(case, case.n), np.array([0, 1000, 2000])
        assert exchange(case, 2).columns == columns_pay(net, 1, S, 256, starts), case


def test_a_graph_made_for_it_has_so_many_rows_that_cross():
    case = Case("crossing", "mixing", 256, 16, 20, 1, crossing=16)
    rows = rows_that_cross(network(case, 256).out_adjacency(1), np.array([0, 128, 256]))
    assert rows == 2 * exchange(case, 2).rows == 32
