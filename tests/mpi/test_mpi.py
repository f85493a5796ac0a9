"""Clients on several ranks: equal to the simulation, and never a hang."""

from __future__ import annotations

import os
import signal
import time

import pytest

from .launch import run

WITHIN = 10.0  # seconds after which no rank may be left


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_ranks_compute_what_the_simulation_computes(ranks):
    done = run(ranks, "equality", "few")
    assert done.status == 0, done.err[-4000:]
    assert f"comparisons agree on {ranks} ranks" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
def test_every_network_and_method_on_more_ranks(ranks):
    done = run(ranks, "equality", "some", seconds=1500)
    assert done.status == 0, done.err[-4000:]
    assert f"comparisons agree on {ranks} ranks" in done.out


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_what_does_not_fit_is_an_error_on_every_rank(ranks):
    done = run(ranks, "refusals")
    assert done.status == 0, done.err[-4000:]
    assert f"refused on {ranks} ranks" in done.out


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_arrays_on_a_device_go_to_mpi_directly_or_by_the_host_door(which):
    done = run(2, "device", which)
    assert done.status == 0, done.err[-4000:]
    assert "comparisons" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_check_for_a_new_cluster(ranks):
    done = run(ranks, "-m", "hgp_ref", "check", "--mpi", "--dtype", "float32")
    assert done.status == 0, done.err[-4000:]
    assert done.out.startswith(f"{ranks} ranks: ") and "48 of 48 cases equal the simulation bit for bit" in done.out
    assert ("latency" in done.out) == (ranks > 1)
    assert "an HGP iteration, weak" in done.out


def test_an_exception_on_one_rank_ends_all_with_its_message():
    done = run(2, "failures", "exception", seconds=60)
    assert done.status != 0
    assert "[rank 1] KeyError: 'the callback of one rank'" in done.err
    assert "[rank 1] this ends all 2 ranks" in done.err and "[rank 0]" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("seed", "net: RandomOut(n=4, k=2, seed=4) on rank 0, RandomOut(n=4, k=2, seed=5) on rank 1"),
        ("shape", "columns: 4 on rank 0, 5 on rank 1"),
        ("absent", "TimeoutError: rank 0 of 2 has waited 2 s for other ranks"),
    ],
)
def test_ranks_that_were_told_different_things_end_with_the_difference(what, message):
    done = run(2, "failures", what, seconds=60)
    assert done.status != 0 and message in done.err, done.err


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_rank_ends_the_others(ranks):
    done = run(ranks, "failures", "going", meanwhile=lambda _, pids: os.kill(pids[0], signal.SIGKILL))
    assert done.status != 0 and len(done.pids) == ranks
    assert "KILLED" in (done.out + done.err).upper()
    assert_gone(done)


@pytest.mark.slow
def test_ctrl_c_ends_all_ranks():
    done = run(2, "failures", "going", meanwhile=lambda process, _: process.send_signal(signal.SIGINT))
    assert done.status != 0 and len(done.pids) == 2
    assert_gone(done)


def assert_gone(done):
    """All ranks have ended within the time, and none is left behind."""
    until = time.monotonic() + max(0.0, WITHIN - done.seconds)
    while done.survivors() and time.monotonic() < until:
        time.sleep(0.05)
    assert not done.survivors() and done.seconds < WITHIN, f"{done.survivors()} still there after {done.seconds:.1f} s"
