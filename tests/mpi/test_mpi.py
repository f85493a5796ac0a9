"""Clients on several ranks: equal to the simulation, and never a hang."""

from __future__ import annotations

import pytest

from .launch import run


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_ranks_compute_what_the_simulation_computes(ranks):
    done = run(ranks, "equality", "few")
    assert done.status == 0, done.err[-4000:]
    assert f"comparisons agree on {ranks} ranks" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_network_method_and_problem_on_more_ranks(ranks):
    done = run(ranks, "equality", "all", seconds=600)
    assert done.status == 0, done.err[-4000:]
    assert f"comparisons agree on {ranks} ranks" in done.out
