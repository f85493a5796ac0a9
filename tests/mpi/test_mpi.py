"""Clients on several ranks: results equal the simulation, and no run hangs."""

from __future__ import annotations

import os
import signal
import time

import pytest

import hgp_ref

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


@pytest.mark.parametrize(
    ("ranks", "which"),
    [
        (2, "few"),
        *(pytest.param(r, which, marks=pytest.mark.slow) for r, which in ((1, "few"), (3, "few"), (4, "all"))),
    ],
)
def test_links_that_lose_and_delay_over_ranks(ranks, which):
    done = run(ranks, "unreliable", which)
    assert done.status == 0, done.err[-4000:]
    assert f"comparisons agree on {ranks} ranks" in done.out


@pytest.mark.parametrize("ranks", [2, *(pytest.param(r, marks=pytest.mark.slow) for r in (3, 4))])
def test_what_does_not_fit_is_an_error_on_every_rank(ranks):
    done = run(ranks, "refusals")
    assert done.status == 0, done.err[-4000:]
    assert f"refused on {ranks} ranks" in done.out


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_arrays_on_a_device_go_to_mpi_directly_or_through_the_host(which):
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


TOLD = {  # what goes wrong on the last rank, and what is said of it
    "seed": "net: RandomOut(n=4, k=2, seed=4) on rank{} 0{}, RandomOut(n=4, k=2, seed=5) on rank {}",
    "shape": "columns: 4 on rank{} 0{}, 5 on rank {}",
    "dtype": "dtype: float64 on rank{} 0{}, float32 on rank {}",
    "version": f"hgp_ref: {hgp_ref.__version__} on rank{{}} 0{{}}, 0.0.1 on rank {{}}",
}


@pytest.mark.parametrize("ranks", [2, *(pytest.param(r, marks=pytest.mark.slow) for r in (3, 4))])
@pytest.mark.parametrize("what", ["seed", *(pytest.param(w, marks=pytest.mark.slow) for w in list(TOLD)[1:])])
def test_ranks_with_different_arguments_end_with_the_difference(what, ranks):
    done = run(ranks, "failures", what, seconds=60)
    others = "".join(f", {q}" for q in range(1, ranks - 1))
    message = TOLD[what].format("s" if ranks > 2 else "", others, ranks - 1)
    assert done.status != 0 and message in done.err, done.err


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("leaves", "rank 1 has ended its program, by sys.exit or at its end, while rank 0 of 2 waits for it in mixing"),
        pytest.param("ends", "rank 1 has ended its program", marks=pytest.mark.slow),
        pytest.param("absent", "TimeoutError: rank 0 of 2 has waited 2 s for other ranks", marks=pytest.mark.slow),
        pytest.param("never_spreads", "for other ranks in hgp.mpi.spread: do all ranks", marks=pytest.mark.slow),
    ],
)
def test_ranks_that_wait_in_vain_say_so(what, message):
    done = run(2, "failures", what, seconds=60)
    assert done.status != 0 and message in done.err, done.err


@pytest.mark.parametrize("last", [10**9, 20])
def test_nan_from_the_products_of_one_rank_raises_on_every_rank(last):
    done = run(2, "not_finite", str(last), seconds=120)
    assert done.status == 0, done.err


@pytest.mark.parametrize("how", ["shared", "own", "turns"])
def test_two_threads_of_a_rank(how):
    """At once over the same ranks is an error in both; over ranks of their own, or in turn, they may."""
    done = run(2, "threads", how, seconds=60)
    assert done.status == 0, done.err


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_is_needed_no_more_may_leave(ranks):
    done = run(ranks, "failures", "slow", seconds=60)
    assert done.status == 0 and not done.err, done.err


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_hundred_thousand_clients_over_random_graphs(ranks):
    done = run(ranks, "many")
    assert done.status == 0, done.err[-4000:]
    assert f"100000 clients on {ranks} ranks: equal bit for bit" in done.out


@pytest.mark.parametrize("ranks", [2, *(pytest.param(r, marks=pytest.mark.slow) for r in (3, 4))])
def test_a_killed_rank_ends_the_others(ranks):
    done = run(ranks, "failures", "going", meanwhile=lambda _, pids: os.kill(pids[0], signal.SIGKILL))
    assert done.status != 0 and len(done.pids) == ranks
    assert "KILLED" in (done.out + done.err).upper()
    assert_gone(done)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ctrl_c_ends_all_ranks(ranks):
    done = run(ranks, "failures", "going", meanwhile=lambda process, _: process.send_signal(signal.SIGINT))
    assert done.status != 0 and len(done.pids) == ranks
    assert_gone(done)


def assert_gone(done):
    """All ranks have ended within the time, and none is left behind."""
    until = time.monotonic() + max(0.0, WITHIN - done.seconds)
    while done.survivors() and time.monotonic() < until:
        time.sleep(0.05)
    assert not done.survivors() and done.seconds < WITHIN, f"{done.survivors()} still there after {done.seconds:.1f} s"
