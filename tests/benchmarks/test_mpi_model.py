"""The model of scaling over ranks: what it counts, and that its fit finds the constants behind the times."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.mpi_cases import Case, Timed, cases, network
from benchmarks.mpi_model import CONSTANTS, Model, errors, exchange, fitted

TRUTH = np.array([2e-5, 3e-9, 4e-10, 6e-6, 1e-10, 7e-5, 8e-10])


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
    other = model.elsewhere(latency=2 * TRUTH[3], bandwidth=1 / TRUTH[4])
    added = 10 * exchange(case, 4)[0] * TRUTH[CONSTANTS.index("latency")]
    assert other(case, 4) == pytest.approx(model(case, 4) + added)
    assert other(case, 1) == model(case, 1)  # one process sends nothing


def test_expected_messages_and_bytes_are_those_that_are_sent():
    """Two ranks exchange half of their rows, there and back, once in a call of ten steps."""
    case = Case("unseen", "mixing", 2000, 16, 10, 4)
    assert exchange(case, 2) == (2 / 10, 1000 / 10)
    assert exchange(case, 1) == (0, 0)


def test_rings_are_static():
    net = network(Case("ring", "mixing", 5, 16, 1, 1), 5)
    assert net.period == 1
    assert net.edges(1)[0].size == 10
