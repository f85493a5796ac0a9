"""Checkpoints: a loop killed at any moment resumes with the same bytes; files of other runs are refused."""

from __future__ import annotations

import json
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
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref.bilevel import Adam, Box, Estimator, GradientDescent, Monitor, Trainer, optimise
from hgp_ref.results import npz_bytes, read_npz, write_whole
from hgp_ref.training import SGP

NET = hgp.networks.RandomDirected(n=3, seed=1)
BATCHES = hgp.MiniBatches(5, seed=4)
METHOD = SGP(30, 0.5, (0.6, 0.8), batches=BATCHES)
SETTINGS = dict(outer_steps=6, train=METHOD, estimate=Estimator(3, 20, eta=1.0), update=Adam(0.02))
TESTS = Path(__file__).parents[1]


class Killed(Exception):
    pass


def kill_at(step):
    def callback(k, lam, x, cost):
        if k == step:
            raise Killed

    return callback


@pytest.mark.parametrize("update", [Adam(0.05), GradientDescent(0.05)], ids=repr)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, update):
    problem, _, lam = logistic()
    whole = optimise(problem, lam, NET, monitor=Monitor(lambda x, lam: float(x[0, 0])), **SETTINGS | {"update": update})
    for stop in (1, 4):
        with pytest.raises(Killed):
            optimise(
                problem,
                lam,
                NET,
                monitor=Monitor(lambda x, lam: float(x[0, 0])),
                file=tmp_path / "loop.npz",
                callback=kill_at(stop),
                **SETTINGS | {"update": update},
            )
    path = optimise(
        problem,
        lam,
        NET,
        monitor=Monitor(lambda x, lam: float(x[0, 0])),
        file=tmp_path / "loop.npz",
        **SETTINGS | {"update": update},
    )
    assert path == whole
    assert path.save(tmp_path / "a.npz").read_bytes() == whole.save(tmp_path / "b.npz").read_bytes()


def test_a_finished_run_is_read_and_a_longer_one_continues(tmp_path):
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    short = SETTINGS | {"outer_steps": 2}
    optimise(problem, lam, NET, file=file, **short)
    before = file.read_bytes()
    assert optimise(problem, lam, NET, file=file, **short) == optimise(problem, lam, NET, **short)
    assert file.read_bytes() == before
    assert optimise(problem, lam, NET, file=file, **SETTINGS) == optimise(problem, lam, NET, **SETTINGS)
    with pytest.raises(ValueError, match="outer_steps must be >= 6, the steps that .* holds, got 2"):
        optimise(problem, lam, NET, file=file, **short)


def test_a_smaller_step_size_after_divergence_is_saved(tmp_path):
    problem, _, lam = quadratic()
    settings = dict(train=SGP(60, 0.5, (0.6, 0.8)), estimate=Estimator(20, 200, eta=8.0), outer_steps=3)
    with pytest.warns(RuntimeWarning, match="hyper-gradient refused"):
        whole = optimise(problem, lam, NET, **settings)
        with pytest.raises(Killed):
            optimise(problem, lam, NET, file=tmp_path / "loop.npz", callback=kill_at(1), **settings)
    assert optimise(problem, lam, NET, file=tmp_path / "loop.npz", **settings) == whole  # without a warning


def test_refused_steps_are_counted_across_an_interruption(tmp_path):
    """Two of them end the loop, also when it was taken up again in between."""
    problem, _, lam = quadratic()

    def infinite(problem, x, lam, net, **options):
        return SimpleNamespace(value=np.full_like(lam, np.inf), traffic=hgp.Traffic(rounds=1))

    settings = dict(train=SGP(60, 0.5, (0.6, 0.8)), estimate=infinite)
    with pytest.warns(RuntimeWarning, match="holds NaN or infinite"):
        whole = optimise(problem, lam, NET, outer_steps=9, **settings)
        optimise(problem, lam, NET, outer_steps=1, file=tmp_path / "loop.npz", **settings)
        path = optimise(problem, lam, NET, outer_steps=9, file=tmp_path / "loop.npz", **settings)
    assert path == whole and path.stopped == "divergence" and len(path.lam) == 3


def test_other_runs_are_refused(tmp_path):
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    optimise(problem, lam, NET, file=file, **SETTINGS | {"outer_steps": 1})
    for change, words in (
        (
            dict(train=SGP(30, 0.5, (0.6, 0.8), batches=hgp.MiniBatches(5, seed=1))),
            "with train=.*seed=4.*, but train is .*seed=1",
        ),
        (dict(net=hgp.networks.RandomDirected(n=3, seed=2)), "with net="),
        (dict(train=SGP(31, 0.5, (0.6, 0.8), batches=BATCHES)), "with train="),
        (dict(update=GradientDescent(0.1)), "with update="),
        (dict(estimate=Estimator(3, 21, eta=1.0)), "with estimate="),
        (
            dict(train=Trainer(METHOD, warm_start=False)),
            "with train=.*warm_start=True.*, but train is .*warm_start=False",
        ),
        (dict(project=Box(0.0, 1.0)), "with project=None"),
        (dict(update=Adam(0.02, log=True)), "with update=.*log=False"),
        (dict(lam=lam + 0.1), "another lam"),
        (dict(lam=lam.astype("float32"), problem=problem.to("numpy", "float32")), "belongs to λ of shape"),
        (
            dict(problem=logistic(seed=5)[0]),
            r"belongs to a problem whose inner cost at its x and λ is [\d.]+ for client",
        ),
        (dict(train=Trainer(METHOD, x0=np.ones((3, 4)))), "belongs to a run with another x0"),
        (dict(monitor=Monitor(lambda x, lam: 0.0)), "belongs to a run with another measure"),
    ):
        with pytest.raises(ValueError, match=words):
            optimise(file=file, **dict(problem=problem, net=NET, lam=lam) | SETTINGS | change)
    hgp.hypergradient(problem, np.zeros((3, 4)), lam, hgp.ExactAverage(3), eta=1.0, iterations=3).save(file)
    with pytest.raises(ValueError, match="must be a checkpoint of optimise, but .* holds a Estimate"):
        optimise(problem, lam, NET, file=file, **SETTINGS)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="cannot be read"):
        optimise(problem, lam, NET, file=file, **SETTINGS)


def test_other_problems_with_the_same_validation_data_are_refused(tmp_path):
    """Only training data or the L2 rate differ, so that the outer cost at the file's x and λ is the same."""
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(2, 3, 20, 4))
    y, y_val = ((A[..., 0] > 0).astype(int) for A in (X, X_val))
    file, lam = tmp_path / "loop.npz", np.zeros((3, 20))

    def run(labels, l2, steps):
        problem = hgp.problems.HyperCleaning(X, labels, X_val, y_val, l2=l2)
        settings = dict(train=SGP(20, 0.5, (0.6, 0.8)), estimate=Estimator(3, 5, eta=1.0), file=file)
        return optimise(problem, lam, NET, outer_steps=steps, **settings)

    run(y, 0.1, 1)
    for labels, l2 in ((1 - y, 0.1), (y, 3.0)):
        with pytest.raises(ValueError, match="belongs to a problem whose (inner cost|norm of the inner gradient)"):
            run(labels, l2, 2)
    assert len(run(y, 0.1, 2).outer_cost) == 3


def test_another_schedule_with_the_same_repr_is_refused(tmp_path):
    problem, _, lam = logistic()
    rng, file = np.random.default_rng(0), tmp_path / "loop.npz"
    nets = [hgp.networks.Schedule([m / m.sum(axis=0) for m in rng.random((59, 3, 3))]) for _ in range(2)]
    assert repr(nets[0]) == repr(nets[1])
    optimise(problem, lam, nets[0], file=file, **SETTINGS | {"outer_steps": 1})
    with pytest.raises(ValueError, match="belongs to a run with another graphs"):
        optimise(problem, lam, nets[1], file=file, **SETTINGS)


def test_a_schedule_that_differs_in_its_last_graph_only_is_refused(tmp_path):
    problem, _, lam = logistic()
    graphs, file = [m / m.sum(axis=0) for m in np.random.default_rng(0).random((59, 3, 3))], tmp_path / "loop.npz"
    nets = [hgp.networks.Schedule(graphs), hgp.networks.Schedule([*graphs[:-1], graphs[0]])]
    optimise(problem, lam, nets[0], file=file, **SETTINGS | {"outer_steps": 1})
    with pytest.raises(ValueError, match="belongs to a run with another graphs"):
        optimise(problem, lam, nets[1], file=file, **SETTINGS)


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import hgp_ref as hgp
from support.examples import logistic
problem, _, lam = logistic()
hgp.bilevel.optimise(problem, lam, hgp.networks.RandomDirected(n=3, seed=1), outer_steps=40,
                     train=hgp.training.SGP(60, 0.5, (0.6, 0.8), batches=5),
                     estimate=hgp.bilevel.Estimator(3, 40, eta=1.0),
                     update=hgp.bilevel.Adam(0.003), file={file!r}).save({path!r})
"""


@pytest.mark.slow
def test_a_run_killed_repeatedly_gives_the_same_bytes(tmp_path):
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
        problem,
        lam,
        NET,
        outer_steps=40,
        train=SGP(60, 0.5, (0.6, 0.8), batches=5),
        estimate=Estimator(3, 40, eta=1.0),
        update=Adam(0.003),
    )
    assert (tmp_path / "path.npz").read_bytes() == whole.save(tmp_path / "whole.npz").read_bytes()


def labelled(N=20_000, dtype="float64"):
    rng = np.random.default_rng(3)
    X, X_val = rng.normal(size=(2, 3, N, 2)).astype(dtype)
    y, y_val = ((A[..., 0] > 0).astype(int) for A in (X, X_val))
    return [X, y, X_val, y_val]


@pytest.mark.parametrize("kind", ["LogisticRegression", "SoftmaxRegression", "LogRates", "HyperCleaning"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_changed_label_is_detected(tmp_path, kind, dtype):
    parts, problems = labelled(2000 if kind == "HyperCleaning" else 20_000, dtype), hgp.problems

    def make(parts):
        if kind == "LogRates":
            return problems.LogRates(problems.LogisticRegression(*parts))
        return getattr(problems, kind)(*parts)

    problem, file = make(parts), tmp_path / "loop.npz"
    lam = np.full((3, problem.dim_lam), 0.1, dtype)
    settings = dict(train=SGP(3, 0.5, (0.6, 0.8)), estimate=Estimator(3, 2, eta=1.0), update=GradientDescent(0.01))
    with np.errstate(all="ignore"):
        optimise(problem, lam, NET, outer_steps=1, file=file, **settings)
        for index, entry in ((1, (2, 77)), (3, (0, 5)), (0, (1, 3, 0)), (2, (1, 3, 1))):
            other = [np.array(a) for a in parts]
            other[index][entry] = (
                1 - other[index][entry] if index % 2 else np.nextafter(other[index][entry], 9, dtype=dtype)
            )
            with pytest.raises(ValueError, match="belongs to a problem (with other data|whose)"):
                optimise(make(other), lam, NET, outer_steps=2, file=file, **settings)
        assert len(optimise(make([a.copy() for a in parts]), lam, NET, outer_steps=2, file=file, **settings).lam) == 3


def test_changed_data_of_a_network_and_of_a_quadratic_are_detected(tmp_path):
    rng = np.random.default_rng(0)
    model = hgp.neural.Sequential((4,), hgp.neural.Linear(4, 3))
    X, y = rng.normal(size=(3, 50, 4)), rng.integers(0, 3, (3, 50))
    near = np.nextafter(X, 9)
    lam, settings = np.zeros((3, 3)), dict(train=SGP(3, 0.1, (0.6, 0.8)), estimate=Estimator(3, 2, eta=1.0))
    cases = [hgp.problems.PersonalMask(model, *data) for data in ((X, y), (near, y), (X, y, near, y))]
    optimise(cases[0], lam, NET, outer_steps=1, file=tmp_path / "n.npz", **settings)
    for other in cases[1:]:
        with pytest.raises(ValueError, match="belongs to a problem with other data"):
            optimise(other, lam, NET, outer_steps=2, file=tmp_path / "n.npz", **settings)
    A, b, C, t = np.stack([np.eye(2)] * 3), rng.normal(size=(3, 2)), rng.normal(size=(3, 3, 2)), rng.normal(size=(3, 2))
    whole = hgp.problems.Quadratic(A, b, C, t)
    optimise(whole, lam, NET, outer_steps=1, file=tmp_path / "q.npz", **settings)
    for data, more in (((A * (1 + 1e-12), b, C, t), {}), ((A, np.nextafter(b, 9), C, t), {}),
                       ((A, b, np.nextafter(C, 9), t), {}), ((A, b, C, np.nextafter(t, 9)), {}),
                       ((A, b, C, t), {"outer_reg": 1e-12})):  # fmt: skip
        with pytest.raises(ValueError, match="belongs to a problem with other data"):
            optimise(
                hgp.problems.Quadratic(*data, **more), lam, NET, outer_steps=2, file=tmp_path / "q.npz", **settings
            )
    optimise(hgp.problems.Quadratic(A, b, C, t), lam, NET, outer_steps=2, file=tmp_path / "q.npz", **settings)


def test_another_x0_is_detected(tmp_path):
    problem, x, lam = logistic()
    file = tmp_path / "loop.npz"

    def run(x0, **settings):
        return optimise(problem, lam, NET, file=file, **SETTINGS | dict(train=Trainer(METHOD, x0=x0)) | settings)

    run(x, outer_steps=1)
    for x0 in (None, np.nextafter(x, 9)):
        with pytest.raises(ValueError, match="belongs to a run with another x0"):
            run(x0)
    run(x.copy())


def test_data_are_the_same_in_every_library(tmp_path):
    torch = pytest.importorskip("torch")
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    optimise(problem, lam, NET, file=file, **SETTINGS | {"outer_steps": 1})
    for steps in (2, 3):  # from a file that NumPy arrays have written, and from one of tensors
        settings = SETTINGS | {"outer_steps": steps}
        path = optimise(problem.to("torch"), torch.asarray(lam), NET, file=file, **settings)
        assert len(path.lam) == steps + 1


def state(f):
    """The fields of the loop's state in the record of a checkpoint."""
    return f["state"]["fields"]


EDITS = {
    "a cost that is text": lambda f: state(f).update(outer_cost={"list": ["a", "b"]}),
    "a huge number": lambda f: state(f).update(batches=10**400),
    "a negative number": lambda f: state(f).update(batches=-5),
    "no costs": lambda f: state(f).update(outer_cost=None),
    "no traffic": lambda f: state(f).update(traffic=3),
    "another traffic": lambda f: state(f)["traffic"]["fields"].update(messages="many"),
    "steps of another kind": lambda f: state(f).update(steps={"list": [1, 2]}),
    "no update_state": lambda f: state(f).update(update_state={"tuple": []}),
    "no state": lambda f: f.update(state=None),
    "another shrink": lambda f: state(f).update(shrink=1e-3),
    "another best": lambda f: state(f).update(best=10**9),
    "settings": lambda f: f.update(settings=[]),
    "no seal": lambda f: f.pop("seal"),
    "another seal": lambda f: f.update(seal=7),
    "x is λ": lambda f: state(f).update(x=state(f)["lam"]["list"][0]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_checkpoint_is_refused(tmp_path, edit):
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    optimise(problem, lam, NET, file=file, **SETTINGS | {"outer_steps": 1})
    arrays, texts = read_npz(file)
    record = json.loads(texts["result.json"])
    EDITS[edit](record["fields"])
    write_whole(file, npz_bytes(arrays, {"result.json": json.dumps(record)}))
    with pytest.raises(ValueError, match=r"loop\.npz (was edited|cannot be read)"):
        optimise(problem, lam, NET, file=file, **SETTINGS)


def test_an_edited_array_of_a_checkpoint_is_refused(tmp_path):
    problem, _, lam = logistic()
    file = tmp_path / "loop.npz"
    optimise(problem, lam, NET, file=file, **SETTINGS | {"outer_steps": 1})
    arrays, texts = read_npz(file)
    for name in arrays:
        changed = {other: np.array(a) for other, a in arrays.items()}
        changed[name].reshape(-1)[-1] += 1
        write_whole(file, npz_bytes(changed, texts))
        with pytest.raises(ValueError, match="was edited"):
            optimise(problem, lam, NET, file=file, **SETTINGS)
