"""A loop in a file: killed at any moment and taken up again, it gives the same bytes; other runs' files are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kinds import logistic, quadratic

import hgp_ref as hgp
from hgp_ref.bilevel import Adam, Box, GradientDescent, optimise

NET = hgp.networks.RandomDirected(n=3, seed=1)
SETTINGS = dict(outer_steps=6, train=dict(steps=30, lr=0.5, batch_size=5), estimate=dict(steps=3, iterations=20))
SETTINGS |= dict(update=Adam(0.02), seed=4)
TESTS = Path(__file__).parents[1]


class Killed(Exception):
    pass


def kill_at(step):
    def callback(k, lam, x, cost):
        if k == step:
            raise Killed

    return callback


@pytest.mark.parametrize("update", [Adam(0.05), GradientDescent(0.05)], ids=repr)
def test_a_run_in_pieces_is_the_run_in_one_go(tmp_path, update):
    problem, _, lam = logistic()
    whole = optimise(problem, NET, lam, **SETTINGS | {"update": update}, measure=lambda x, lam: float(x[0, 0]))
    for stop in (1, 4):
        with pytest.raises(Killed):
            optimise(problem, NET, lam, **SETTINGS | {"update": update}, measure=lambda x, lam: float(x[0, 0]),
                     file=tmp_path / "loop.npz", callback=kill_at(stop))  # fmt: skip
    path = optimise(problem, NET, lam, **SETTINGS | {"update": update}, measure=lambda x, lam: float(x[0, 0]),
                    file=tmp_path / "loop.npz")  # fmt: skip
    assert path == whole
    assert path.save(tmp_path / "a.npz").read_bytes() == whole.save(tmp_path / "b.npz").read_bytes()


def test_a_finished_run_is_read_and_a_longer_one_goes_on(tmp_path):
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    short = SETTINGS | {"outer_steps": 2}
    optimise(problem, NET, lam, **short, file=file)
    before = file.read_bytes()
    assert optimise(problem, NET, lam, **short, file=file) == optimise(problem, NET, lam, **short)
    assert file.read_bytes() == before
    assert optimise(problem, NET, lam, **SETTINGS, file=file) == optimise(problem, NET, lam, **SETTINGS)
    with pytest.raises(ValueError, match="outer_steps=2 given, but .* holds 6 steps"):
        optimise(problem, NET, lam, **short, file=file)


def test_a_smaller_step_size_after_divergence_is_kept(tmp_path):
    problem, _, lam = quadratic()
    given = dict(train=dict(steps=60, lr=0.5), estimate=dict(steps=20, iterations=200, eta=8.0), outer_steps=3)
    with pytest.warns(RuntimeWarning, match="hyper-gradient refused"):
        whole = optimise(problem, NET, lam, **given)
        with pytest.raises(Killed):
            optimise(problem, NET, lam, **given, file=tmp_path / "loop.npz", callback=kill_at(1))
    assert optimise(problem, NET, lam, **given, file=tmp_path / "loop.npz") == whole  # without a warning


def test_refused_steps_in_a_row_are_counted_across_a_break(tmp_path):
    """Two of them end the loop, also when it was taken up again in between."""
    problem, _, lam = quadratic()

    def infinite(problem, net, x, lam, **options):
        return SimpleNamespace(value=np.full_like(lam, np.inf), traffic=hgp.Traffic(rounds=1))

    given = dict(train=dict(steps=60, lr=0.5), estimate=infinite)
    with pytest.warns(RuntimeWarning, match="holds NaN or infinite"):
        whole = optimise(problem, NET, lam, 9, **given)
        optimise(problem, NET, lam, 1, **given, file=tmp_path / "loop.npz")
        path = optimise(problem, NET, lam, 9, **given, file=tmp_path / "loop.npz")
    assert path == whole and path.stopped == "divergence" and len(path.lam) == 3


def test_other_runs_are_refused(tmp_path):
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    optimise(problem, NET, lam, **SETTINGS | {"outer_steps": 1}, file=file)
    for change, words in (
        (dict(seed=1), "with seed=4, but 1 is given"),
        (dict(net=hgp.networks.RandomDirected(n=3, seed=2)), "with net="),
        (dict(train=dict(steps=31, lr=0.5)), "with train="),
        (dict(update=GradientDescent(0.1)), "with update="),
        (dict(estimate=dict(steps=3, iterations=21)), "with estimate="),
        (dict(warm_start=False), "with warm_start=True, but False is given"),
        (dict(project=Box(0.0, 1.0)), "with project=None"),
        (dict(log=True), "with log=False"),
        (dict(lam=lam + 0.1), "another lam"),
        (dict(lam=lam.astype("float32"), problem=problem.to("numpy", "float32")), "belongs to λ of shape"),
        (dict(problem=logistic(seed=5)[0]), "belongs to a problem whose inner cost"),
        (dict(x0=np.ones((3, 4))), "belongs to a run with x0"),
        (dict(measure=lambda x, lam: 0.0), "belongs to a run with measure"),
    ):
        with pytest.raises(ValueError, match=words):
            optimise(**dict(problem=problem, net=NET, lam=lam) | SETTINGS | change, file=file)
    hgp.hypergradient(problem, np.zeros((3, 4)), lam, hgp.ExactAverage(3), iterations=3).save(file)
    with pytest.raises(ValueError, match="holds a Estimate, needed what optimise"):
        optimise(problem, NET, lam, **SETTINGS, file=file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="cannot be read"):
        optimise(problem, NET, lam, **SETTINGS, file=file)


def test_other_problems_with_the_same_validation_data_are_refused(tmp_path):
    """Only training data or the L2 rate differ, so that the outer cost at the file's x and λ is the same."""
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(2, 3, 20, 4))
    y, y_val = ((A[..., 0] > 0).astype(int) for A in (X, X_val))
    file, lam = tmp_path / "loop.npz", np.zeros((3, 20))

    def run(labels, l2, steps):
        problem = hgp.problems.HyperCleaning(X, labels, X_val, y_val, l2=l2)
        given = dict(train=dict(steps=20, lr=0.5), estimate=dict(steps=3, iterations=5), file=file)
        return optimise(problem, NET, lam, steps, **given)

    run(y, 0.1, 1)
    for labels, l2 in ((1 - y, 0.1), (y, 3.0)):
        with pytest.raises(ValueError, match="belongs to a problem whose (inner cost|length of the inner gradient)"):
            run(labels, l2, 2)
    assert len(run(y, 0.1, 2).outer_cost) == 3


def test_another_schedule_of_the_same_text_is_refused(tmp_path):
    problem, _, lam = logistic()
    rng, file = np.random.default_rng(0), tmp_path / "loop.npz"
    nets = [hgp.networks.Schedule([m / m.sum(axis=0) for m in rng.random((59, 3, 3))]) for _ in range(2)]
    assert repr(nets[0]) == repr(nets[1])
    optimise(problem, nets[0], lam, **SETTINGS | {"outer_steps": 1}, file=file)
    with pytest.raises(ValueError, match="belongs to a run with graphs"):
        optimise(problem, nets[1], lam, **SETTINGS, file=file)


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import hgp_ref as hgp
from kinds import logistic
problem, _, lam = logistic()
hgp.bilevel.optimise(problem, hgp.networks.RandomDirected(n=3, seed=1), lam, 40, dict(steps=60, lr=0.5, batch_size=5),
                     dict(steps=3, iterations=40), hgp.bilevel.Adam(0.003),
                     file={file!r}).save({path!r})
"""


@pytest.mark.slow
def test_killed_again_and_again_it_gives_the_same_bytes(tmp_path):
    """SIGKILL at whatever moment; what is on the disk is a whole file every time."""
    file, rng, kills, seen = tmp_path / "loop.npz", np.random.default_rng(0), 0, None
    code = textwrap.dedent(PROGRAM.format(tests=str(TESTS), file=str(file), path=str(tmp_path / "path.npz")))
    for patience in (1, 6, 11, 3, 8, 10**6):  # files written before it is killed
        run, written = subprocess.Popen([sys.executable, "-c", code], cwd=TESTS.parent), 0
        while run.poll() is None and written < patience:
            time.sleep(0.002)
            now = file.stat().st_mtime_ns if file.exists() else None
            written, seen = written + (now != seen), now
        if run.poll() is None:
            time.sleep(rng.uniform(0, 0.05))
            os.kill(run.pid, signal.SIGKILL)
            run.wait()
            kills += 1
            hgp.load(file)  # whole
    assert run.returncode == 0 and kills >= 4, (run.returncode, kills)
    problem, _, lam = logistic()
    whole = optimise(
        problem, NET, lam, 40, dict(steps=60, lr=0.5, batch_size=5), dict(steps=3, iterations=40), Adam(0.003)
    )
    assert (tmp_path / "path.npz").read_bytes() == whole.save(tmp_path / "whole.npz").read_bytes()
