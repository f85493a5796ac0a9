"""Influence with a CNN, at a tiny size: the command runs, resumes with the same bytes, and states its cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import hgp_ref as hgp
from figures import cli, table_minibatch
from figures.experiments.influence import cnn, controls
from figures.options import Options
from hgp_ref.attribution import retrain_from, scores
from reporting.store import obtain

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return obtain(cnn.experiment("reduced", mini_batch=True, quick=True), tmp_path_factory.mktemp("cnn"))


@pytest.mark.parametrize("stop", ["predict", "scratch-2"])
def test_an_interrupted_run_resumes_with_the_same_bytes(stop, tiny, tmp_path):
    one = cnn.experiment("reduced", mini_batch=True, quick=True)

    def interrupted(part, finished):
        if part == stop:
            raise KeyboardInterrupt
        return one.compute(part, finished)

    with pytest.raises(KeyboardInterrupt):
        obtain(replace(one, compute=interrupted), tmp_path)
    assert list(tmp_path.rglob("train.npz")) and not list(tmp_path.rglob(f"{stop}.npz"))
    again = obtain(one, tmp_path)
    assert again.fresh and again.path.read_bytes() == tiny.path.read_bytes()


def test_removals(tiny):
    d = tiny.data
    assert d["removed"].shape == (6, 2, 2) and np.all(d["removed"][:4, 1] == -1) and np.all(d["removed"][4:] >= 0)
    alone = d["removed"][:4, 0]
    assert np.array_equal(d["predicted"][0, :4], d["per_instance"][alone[:, 0], alone[:, 1]])
    assert np.all(np.diff(np.abs(d["predicted"][0, :4])) <= 0)
    assert np.all(d["continued"] != 0) and np.all(d["scratch"] != 0) and d["low"] < d["high"]


def test_steps_on_the_batches_of_hgp_are_what_it_predicts(tiny):
    """A little of each weight, held to x: the prediction of one sequence for J and H̄ is the slope."""
    d, settings = tiny.data, cnn.experiment("reduced", mini_batch=True, quick=True).settings
    problem, lam, *_ = cnn.from_settings(settings)
    options = {"eta": settings["eta"], "steps": settings["iterations"]}
    batches = lambda seed: hgp.MiniBatches(settings["batch"], seed)  # noqa: E731
    some = cnn.removals_of(d["removed"])[:2]
    little = retrain_from(problem, d["x"], lam, some, batches=batches(settings["seed"]),
                          subtract_gradient_at_x=True, fraction=1e-4, **options)  # fmt: skip
    assert np.allclose(little.actual / 1e-4, d["shared"][:2], rtol=0.02)
    for retraining, of in cnn.STEPS.items():
        seed = settings["seed"] + settings["repeats"] * of["other"]
        whole = retrain_from(
            problem, d["x"], lam, some, batches=batches(seed), subtract_gradient_at_x=of["held"], **options
        )
        assert np.array_equal(whole.actual, d[retraining][:2]), retraining


def test_repeated_predictions(tiny):
    d, single = tiny.data, tiny.data["removed"][:, 1, 0] < 0
    assert d["repeated"].shape == d["whole"].shape == (3, 6) and np.array_equal(d["repeated"][0], d["predicted"][0])
    first = d["removed"][single, 0]
    assert np.array_equal(d["full"][single], d["full_per_instance"][first[:, 0], first[:, 1]])
    settings = cnn.experiment("reduced", mini_batch=True, quick=True).settings
    full = cnn.predict_with(settings, d["x"], size=None).per_instance
    assert np.allclose(full, d["full_per_instance"], rtol=1e-10, atol=1e-16)
    assert np.all(np.std(d["whole"], axis=0) < np.std(d["repeated"], axis=0)[single].max())


@pytest.mark.parametrize("removal", [((1, 2),), ((1, 0), (1, 3))], ids=["one", "group"])
def test_sampling_noise_against_all_batches(removal):
    """Every choice of 2 of 5 instances in each of two iterations: 100 sums, and their standard deviation exactly."""
    terms, N, b = np.random.default_rng(0).standard_normal((2, 2, 5)), 5, 2
    members = [k for _, k in removal]
    once = [[N / b * sum(terms[m, 1, k] for k in members if k in batch) for batch in combinations(range(N), b)]
            for m in range(2)]  # fmt: skip
    totals = np.add.outer(*map(np.array, once))
    assert totals.mean() == pytest.approx(terms[:, 1, members].sum())
    noise = cnn.sampling_noise(terms, np.array([4, 5]), removal, b)
    assert noise == pytest.approx(totals.std(), rel=1e-12)
    assert cnn.sampling_noise(terms, np.array([4, 5]), removal, 5) == 0


def test_rows_of_the_table_of_mini_batches_have_different_labels(tiny):
    rows = table_minibatch.table({"mini": tiny.data}, Options(quick=True)).rows
    assert len({row[:2] for row in rows}) == len(rows) == 15
    d, chosen = tiny.data, tiny.data["removed"][:, 1, 0] < 0
    by_name = {row[:2]: row for row in rows}
    hgp_batches = by_name["mini-batches, one sequence for J and H̄", "M steps on the same batches, held to x"]
    assert hgp_batches[2] == f"{scores(d['held'][chosen], d['shared'][chosen]).r2:.3f}"
    noise = np.sqrt(np.mean(d["noise"][chosen] ** 2)) / np.std(d["continued"][chosen])
    assert rows[0][5] == f"{noise:.2f}"


def test_settling_reduces_the_gradient(tiny):
    settings = {**cnn.experiment("reduced", mini_batch=True, quick=True).settings, "settle_steps": 400}
    settled = cnn.train(settings)
    assert settled["gradient"] < 0.2 * tiny.data["gradient"] < 0.2 * tiny.data["gradient_sgp"]
    assert np.array_equal(settled["cost_sgp"], tiny.data["cost_sgp"])  # `scratch` compares SGP with SGP
    problem, lam, *_ = cnn.from_settings(settings)
    left = np.linalg.norm(problem.inner_grad(settled["x"], lam).mean(axis=0))
    assert left == pytest.approx(float(settled["gradient"]), rel=1e-12)


def test_a_control_changes_what_it_names(capsys):
    few = {name: value for name, value in cnn.QUICK.items() if name not in ("groups", "share")}
    rows = [controls.row("name", {**few, "share": share}) for share in (150, 120)]
    assert [len(row) for row in rows] == [len(controls.HEADER)] * 2 and rows[0][1] == "90" and rows[1][1] == "72"
    base = cnn.experiment("reduced", mini_batch=False, seed=0).settings
    for name, changes in controls.CONTROLS.items():
        assert all(base[key] != value for key, value in changes.items()), name
    assert controls.controls("nothing") == 2 and "there are: as it is, not settled" in capsys.readouterr().err


def test_the_cost_is_printed_first_and_counts_missing_parts(tmp_path, capsys):
    one = cnn.experiment("reduced", mini_batch=False, quick=True)
    requested = []

    def cost(parts):
        requested.append(list(parts))
        return "so long"

    def stops(part, finished):
        if part == "predict":
            raise KeyboardInterrupt
        return one.compute(part, finished)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            obtain(replace(one, cost=cost, compute=stops), tmp_path)
    assert requested == [list(one.parts), list(one.parts[1:])] and "cnn: so long" in capsys.readouterr().err
    text = cnn.cost_text(one.settings, one.parts, one.parts)
    assert "a gradient takes" in text and f"{len(one.parts)} parts to compute" in text


def test_paper_size_without_emnist_names_the_missing_files(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("HGP_REF_EMNIST", raising=False)
    assert cli.main(["figA2b", "--size", "paper", "--out", str(tmp_path)]) == 2
    assert "HGP_REF_EMNIST" in capsys.readouterr().err


def test_sizes_have_separate_files():
    module = cli._module("figA2b")
    assert cli._label("figA2b", module, Options()) == "figA2b"
    assert cli._label("figA2b", module, Options(size="paper")) == "figA2b-paper_size"
    settings = cnn.experiment("paper", mini_batch=True).settings
    paper = {"train_steps": 5000, "lr": 0.01, "l2": 1e-3, "eta": 0.05, "iterations": 1000, "steps": 100, "batch": 512}
    assert {name: settings[name] for name in paper} == paper and settings["removals"] == 50


RESUMED = """
import sys
from pathlib import Path
from figures.experiments.influence import cnn
from reporting.store import obtain
small = {**cnn.QUICK, "data": "digits", "side": 8, "block": 1, "more_block": 2}
print(obtain(cnn.experiment("paper", mini_batch=True, **small), Path(sys.argv[1])).path)
"""


def _run(folder):
    """The paper's size with fewer and smaller images, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen([sys.executable, "-c", RESUMED, str(folder)], env=environment, cwd=root, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


@pytest.mark.slow
def test_a_killed_run_with_the_papers_network_resumes_with_the_same_bytes(tmp_path):
    """kill -9 three times, where it hurts: while training, while predicting again, while training from scratch."""
    whole, errors = _run(tmp_path / "whole").communicate(timeout=300)
    assert "parts to compute, about" in errors
    for part in ("train", "repeat", "scratch-1"):
        process = _run(tmp_path / "killed")
        until = time.monotonic() + 300
        while not list((tmp_path / "killed").rglob(f"{part}.npz")) and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.005)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    resumed, errors = _run(tmp_path / "killed").communicate(timeout=300)
    assert "parts to compute, about" in errors and not list((tmp_path / "killed").rglob("*.parts"))
    names = {Path(path.strip()).name for path in (whole, resumed)}
    assert len(names) == 1
    assert Path(resumed.strip()).read_bytes() == Path(whole.strip()).read_bytes()
