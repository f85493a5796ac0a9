"""Influence with a CNN, at a tiny size: the command runs, resumes with the same bytes, and says what it will cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figures import cli, cnn, cnn_clients, cnn_controls, cnn_parts
from figures.options import Options
from reporting.store import obtain

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return obtain(cnn.experiment("reduced", mini_batch=True, quick=True), tmp_path_factory.mktemp("cnn"))


@pytest.mark.parametrize("stop", ["predict", "scratch-2"])
def test_an_interrupted_run_goes_on_to_the_same_bytes(stop, tiny, tmp_path):
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


def test_what_is_removed_and_how(tiny):
    d = tiny.data
    assert d["removed"].shape == (6, 2, 2) and np.all(d["removed"][:4, 1] == -1) and np.all(d["removed"][4:] >= 0)
    alone = d["removed"][:4, 0]
    assert np.array_equal(d["predicted"][0, :4], d["per_instance"][alone[:, 0], alone[:, 1]])
    assert np.all(np.diff(np.abs(d["predicted"][0, :4])) <= 0)
    assert np.all(d["continued"] != 0) and np.all(d["scratch"] != 0) and d["low"] < d["high"]


def test_settling_takes_the_gradient_away(tiny):
    settings = {**cnn.experiment("reduced", mini_batch=True, quick=True).settings, "settle_steps": 400}
    settled = cnn_parts.train(settings)
    assert settled["gradient"] < 0.2 * tiny.data["gradient"] < 0.2 * tiny.data["gradient_sgp"]
    assert np.array_equal(settled["cost_sgp"], tiny.data["cost_sgp"])  # `scratch` compares SGP with SGP
    problem, lam, *_ = cnn_clients.from_settings(settings)
    left = np.linalg.norm(problem.inner_grad(settled["x"], lam).mean(axis=0))
    assert left == pytest.approx(float(settled["gradient"]), rel=1e-12)


def test_a_control_changes_what_it_names(capsys):
    few = {name: value for name, value in cnn.QUICK.items() if name not in ("groups", "share")}
    rows = [cnn_controls.row("name", {**few, "share": share}) for share in (150, 120)]
    assert [len(row) for row in rows] == [len(cnn_controls.HEADER)] * 2 and rows[0][1] == "90" and rows[1][1] == "72"
    base = cnn.experiment("reduced", mini_batch=False, seed=0).settings
    for name, changes in cnn_controls.CONTROLS.items():
        assert all(base[key] != value for key, value in changes.items()), name
    assert cnn_controls.main(["nothing"]) == 2 and "there are: as it is, not settled" in capsys.readouterr().err


def test_the_cost_is_said_before_it_begins_and_counts_what_is_left(tmp_path, capsys):
    one = cnn.experiment("reduced", mini_batch=False, quick=True)
    told = []

    def cost(parts):
        told.append(list(parts))
        return "so long"

    def stops(part, finished):
        if part == "predict":
            raise KeyboardInterrupt
        return one.compute(part, finished)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            obtain(replace(one, cost=cost, compute=stops), tmp_path)
    assert told == [list(one.parts), list(one.parts[1:])] and "cnn: so long" in capsys.readouterr().err
    words = cnn.cost_in_words(one.settings, one.parts, one.parts)
    assert "a gradient takes" in words and f"{len(one.parts)} parts to compute" in words


def test_paper_size_without_emnist_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("HGP_REF_EMNIST", raising=False)
    assert cli.main(["figA2b", "--size", "paper", "--out", str(tmp_path)]) == 2
    assert "HGP_REF_EMNIST" in capsys.readouterr().err


def test_sizes_have_files_of_their_own():
    module = cli._module("figA2b")
    assert cli._label("figA2b", module, Options()) == "figA2b"
    assert cli._label("figA2b", module, Options(size="paper")) == "figA2b-paper_size"
    settings = cnn.experiment("paper", mini_batch=True).settings
    paper = {"train_steps": 5000, "lr": 0.01, "l2": 1e-3, "eta": 0.05, "iterations": 1000, "steps": 100, "batch": 512}
    assert {name: settings[name] for name in paper} == paper and settings["removals"] == 50
