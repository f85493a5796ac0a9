"""The personalization experiment: parts and sizes, the chosen evaluations, the page, and parallel parts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from figures import cli
from figures.experiments.personalization import settings as personal
from figures.experiments.personalization.page import entry, findings, scores
from figures.experiments.personalization.refresh import stale
from figures.experiments.personalization.runs import (
    _cost,
    base_of,
    cost_text,
    make_network,
    make_task,
    rate_of,
    relabelled,
    run_part,
    split,
    timed,
)
from figures.experiments.personalization.settings import COMMON, GROUPS, SIZES, TABLE, experiments_of, parts
from figures.options import Options
from figures.reference import PERSONAL_PAPER
from figures.table_personalization import comparisons
from hgp_ref.personalization.task import best_evaluation
from reporting.store import obtain


def test_every_cell_of_the_papers_table_is_computed():
    everything = {part.rsplit(".", 1)[0] for group in GROUPS for part in parts([0], group)}
    for method, printed in PERSONAL_PAPER.items():
        assert set(printed) == set(TABLE[method][1])
        for network in printed:
            assert f"{personal.SAME.get(method, {}).get(network, network)}.{method}" in everything


def test_the_papers_settings():
    for group, made in experiments_of("paper").items():
        settings = made.settings
        assert settings["n"] == 100 and settings["images"] == 81_425 and settings["outer_steps"] == 5
        assert settings["steps"] == 600 and settings["iterations"] == settings["consensus_steps"] == 10
        assert made.cost is not None and made.workers == 2 and group in GROUPS
    assert experiments_of("reduced")["push"].settings["rates"]["push"] == {
        "fedavg": 0.3, "local": 0.3, "paper": 0.1, "chosen": 1.0, "hgp_pl": 0.3
    }  # fmt: skip


def test_a_row_with_another_rate_is_the_same_method_at_that_rate():
    rates = {"push": {"fedavg": 0.3, "hgp_pl": 0.3, "local": 0.3, "paper": 0.1, "chosen": 1.0}}
    names = {
        "fedavg_chosen": ("fedavg", "fedavg", "chosen"),
        "hgp_pl_m0_chosen": ("hgp_pl_m0", "hgp_pl", "chosen"),
        "class_prior_chosen": ("class_prior", "fedavg", "chosen"),
        "local_paper": ("local", "local", "paper"),
        "fine_tuned": ("fine_tuned", "fedavg", "fedavg"),
        "hgp_pl_m0": ("hgp_pl_m0", "hgp_pl", "hgp_pl"),
    }
    for row, (plain, base, rate) in names.items():
        assert (split(row)[0], base_of(row), rate_of({"rates": rates}, "RandD", row)) == (plain, base, rate)
    one = dict(experiments_of("small", quick=True)["push"].settings)
    other = {**one, "rates": {"push": {**one["rates"]["push"], "chosen": 1.0}}}
    faster = {**one, "rates": {"push": dict.fromkeys(one["rates"]["push"], 1.0)}}
    for method in ("fedavg", "hgp_pl", "hgp_pl_m0", "class_prior"):
        made, same = run_part(other, f"RandD.{method}_chosen.0", {}), run_part(faster, f"RandD.{method}.0", {})
        assert all(np.array_equal(made[name], same[name]) for name in same)
        assert not np.array_equal(made["validation"], run_part(one, f"RandD.{method}.0", {})["validation"])


def test_rows_without_a_rate_are_left_out():
    for size, included in (("small", False), ("reduced", True), ("paper", False)):
        made = experiments_of(size)["push"].parts
        assert ("RandD.hgp_pl_chosen.0" in made) is included and "RandD.local_paper.0" in made


def accuracies_at(**accuracies):
    """Accuracies of `reduced` over three seeds: 70, or over RandD the given ones."""
    entries = {}
    for method, (_, networks) in personal.ROWS.items():
        for network in networks:
            for seed in range(3):
                accuracy = accuracies.get(method, 70.0) if network == "RandD" else 70.0
                value = accuracy[seed] if isinstance(accuracy, list) else accuracy
                entries[f"{network}.{method}.{seed}"] = dict.fromkeys(("test_plain", "test_by_size"), value)
                entries[f"{network}.{method}.{seed}"]["test_bottom_10"] = value
    return entries


GOOD = {"hgp_pl": [77.0, 77.1, 77.2], "fedavg": [71.5, 72.0, 70.5], "local": [68.0, 70.5, 68.2], "local_paper": 66.4}


@pytest.mark.parametrize(
    "changed, missed",
    [
        ({}, []),
        ({"hgp_pl": 79.3}, ["HGP-PL, RandD, this protocol"]),
        ({"hgp_pl": 73.1}, ["HGP-PL, RandD, this protocol"]),
        ({"fedavg": 74.0}, ["SGP/FedAvg, RandD, this protocol"]),
        ({"local_paper": 68.2}, ["Local, the paper's rate 0.1, RandD, this protocol"]),
        ({"local_paper": 61.9}, ["Local, the paper's rate 0.1, RandD, this protocol"]),
        ({"local": 61.9}, ["Local, rate chosen on validation data, RandD, this protocol"]),
        ({"local": [68.0, 70.5, 70.6]}, ["SGP/FedAvg over Local, rate chosen on validation data"]),
        ({"local_paper": [64.0, 64.0, 70.6]}, ["SGP/FedAvg over Local, the paper's rate 0.1"]),
        ({"hgp_pl": [77.0, 72.0, 78.0]}, ["HGP-PL over SGP/FedAvg"]),
    ],
)
def test_goals_of_the_reduced_size(changed, missed):
    """Each average and each part of the order can be missed; a better tuned Local is reported but does not count."""
    rows = comparisons(accuracies_at(**{**GOOD, **changed}), [0, 1, 2], "reduced")
    found = [row.what for row in rows if row.met is False]
    assert len(found) == len(missed) and all(what.startswith(text) for what, text in zip(found, missed, strict=True))
    tuned = next(row for row in rows if row.what == "Local, rate chosen on validation data, RandD, this protocol")
    if tuned.ours > 68:
        assert tuned.met is None and f"above by {tuned.ours - 65:.1f}" in tuned.note and "after looking" in tuned.note
    assert sum(row.met is not None for row in rows) == (6 if tuned.ours > 68 else 7)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    out = tmp_path_factory.mktemp("personal")
    made = cli.make_all(
        ("table_personalization", "table_controls", "figA3"), Options(quick=True), ("paper",), out, docs=out / "docs"
    )
    return out, made


def test_tables_figure_and_page(quick):
    out, made = quick
    assert [product.fresh for product in made] == [True, True, True]
    table = (out / "table_personalization.txt").read_text(encoding="utf-8")
    assert all(text in table for text, _ in TABLE.values()) and "[88.1 / 82.6]" in table
    assert (out / "figA3.png").stat().st_size > 10_000
    stored = json.loads((out / "docs" / "personalization-small.json").read_text(encoding="utf-8"))
    assert stored["accuracies"]["RandD.hgp_pl.0"]["turns"] == [0, 1] and set(stored["stamps"]) == set(GROUPS)
    page = (out / "docs" / "personalization-small.md").read_text(encoding="utf-8")
    assert "**Controls" in page and "M = 10 adds" in page and "outer steps with HGP" in page


def test_the_best_evaluation_is_chosen_by_validation_data_alone():
    one = {
        "validation": np.array([[0.5, 0.5], [0.9, 0.2], [0.6, 0.6]]),
        "validation_sizes": np.array([1, 9]),
        "test": np.array([[1.0, 1.0], [1.0, 1.0], [0.2, 0.4]]),
        "test_sizes": np.array([3, 1]),
    }
    assert best_evaluation(one["validation"], one["validation_sizes"]) == 2
    one |= {"turns": np.arange(3), "traffic": np.zeros(3), "refused": 0, "growing": 0, "splits": 0}
    for network, mean in (("FC", 25.0), ("RandD", 30.0)):  # by size, and plain
        means, bottoms = scores({f"{network}.hgp_pl.0": entry(one)}, network, "hgp_pl", [0])
        assert means[0] == pytest.approx(mean) and bottoms[0] == pytest.approx(22.0)


def test_parallel_parts_give_the_same_bytes(tmp_path):
    one = experiments_of("small", quick=True)["push"]
    few = replace(one, parts=one.parts[:3])
    alone = obtain(few, tmp_path / "alone")
    together = obtain(replace(few, workers=2), tmp_path / "together")
    assert alone.stamp["sha256"] == together.stamp["sha256"] and together.fresh
    assert not obtain(replace(few, workers=2), tmp_path / "together").fresh


def test_an_error_in_a_worker_is_raised(tmp_path):
    one = experiments_of("small", quick=True)["push"]
    with pytest.raises(KeyError):
        obtain(replace(one, parts=("RandD.unknown.0", "RandD.fedavg.0"), workers=2), tmp_path)


INTERRUPTED = """
import signal, sys, time
from dataclasses import replace
from pathlib import Path
from figures.experiments.personalization.settings import experiments_of
from reporting.store import obtain


def compute(part, finished):
    Path(sys.argv[1], part).touch()
    time.sleep(60)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without
    one = replace(experiments_of("small", quick=True)["push"], compute=compute, workers=2)
    try:
        obtain(one, Path(sys.argv[1], "kept"))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupt_ends_parallel_parts_at_once(tmp_path):
    """Sent to all processes, as a terminal does: no worker goes on, or takes up another part."""
    (tmp_path / "program.py").write_text(INTERRUPTED, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.Popen(command, env=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    while len(list(tmp_path.glob("RandD.*"))) < 2 and run.poll() is None:
        time.sleep(0.05)
    start = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)
    try:
        said, _ = run.communicate(timeout=50)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    assert said == b"interrupted\n" and time.monotonic() - start < 30
    assert len(list(tmp_path.glob("RandD.*"))) == 2 and not list((tmp_path / "kept").glob("*"))


def test_a_size_that_a_figure_does_not_have_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["table_personalization", "--size", "emnist"])
    assert "exists in the sizes small, reduced, paper" in capsys.readouterr().err


def test_wrong_labels_are_another_class():
    data = make_task({**COMMON, **SIZES["small"], "backend": "numpy"}, seed=0).data
    changed, wrong = relabelled(data, 0.6, seed=0)
    assert abs(np.concatenate(wrong).mean() - 0.6) < 0.05
    for old, new, bad in zip(data.y, changed.y, wrong, strict=True):
        assert ((old != new) == bad).all() and new.min() >= 0 and new.max() < data.n_classes
    assert all((a == b).all() for a, b in zip(data.y_val, changed.y_val, strict=True))


def test_only_changed_parts_are_recomputed():
    """A part that is missing, parts with another rate, and all parts of a missing group."""
    groups = experiments_of("reduced")
    whole = {"stamps": {name: {"settings": dict(one.settings)} for name, one in groups.items()}}
    whole["accuracies"] = {part: {} for one in groups.values() for part in one.parts}
    whole = json.loads(json.dumps(whole))
    assert stale(whole) == []
    del whole["accuracies"]["RandD.hgp_pl.1"]
    whole["stamps"]["rounds"]["settings"]["rates"]["rounds"]["fedem"] = 0.7
    found = {part for part, _ in stale(whole)}
    assert found == {"RandD.hgp_pl.1"} | {f"{net}.fedem.{seed}" for net in ("FC", "FixU") for seed in (0, 1, 2)}
    del whole["stamps"]["wrong"]
    assert {part for part, _ in stale(whole)} - found == set(groups["wrong"].parts)


def test_the_estimated_cost_of_a_run(tmp_path):
    """Within a factor of three, at a size where a step takes milliseconds; exact at the larger ones it is for."""
    settings = {**COMMON, **SIZES["small"], "backend": "numpy", "steps": 60, "push_milestones": [50], "outer_steps": 1}
    settings |= {"size": "small", "group": "push"}
    task, net = make_task(settings, 0), make_network(settings, "RandD", 0)
    price = timed(settings, task, net)
    start = time.process_time()
    run_part(settings, "RandD.hgp_pl.0", {})
    measured, estimated = time.process_time() - start, _cost(settings, "RandD.hgp_pl.0", price)
    assert estimated / 3 < measured < 3 * estimated + 1.0, (measured, estimated, price)


def test_timing_computes_no_spectrum(monkeypatch):
    """An estimate whose terms do not shrink ends with products on all data: minutes at the paper's size."""

    def never(*arguments):
        raise AssertionError("products on all data are no part of an iteration")

    monkeypatch.setattr("hgp_ref.methods.divergence.extremes", never)
    monkeypatch.setattr("hgp_ref.methods.divergence.range_of_mean", never)
    settings = {**COMMON, **SIZES["small"], "backend": "numpy"}
    task, net = make_task(settings, 0), make_network(settings, "RandD", 0)
    for compiling in (0.0, 1e9):  # as where a step takes long, and as where it takes no time
        monkeypatch.setattr("figures.experiments.personalization.runs.COMPILING", compiling)
        price = timed(settings, task, net)
        assert min(price.step, price.epoch, price.iteration) > 0 and price.setup >= 0


def test_the_cost_text_has_all_groups():
    one = experiments_of("small")["push"]
    whole = {**COMMON, **SIZES["small"], "backend": "numpy"}, ("RandD.fedavg.0", "FC.fedem.0", "FixU.hgp_mtl.0")
    text = cost_text(one.settings, ("RandD.fedavg.0",), whole)
    assert "1 parts to compute" in text and "(3 parts, " in text


def test_the_page_states_whether_the_order_holds_at_the_chosen_rate():
    at = {"fedavg_chosen": 72.0, "hgp_pl_chosen": [73.0, 75.0, 74.0], "fedavg": 71.0}
    (line,) = [line for line in findings(accuracies_at(**at), [0, 1, 2]) if "chooses for SGP" in line]
    assert "HGP-PL +2.0 (+1.0, +3.0, +2.0)" in line and "HGP-PL is above SGP on each seed" in line
    assert "moves SGP by +1.0 (+1.0, +1.0, +1.0)" in line
    at["hgp_pl_chosen"] = [73.0, 71.9, 75.0]
    assert any("HGP-PL is not above SGP on each seed" in line for line in findings(accuracies_at(**at), [0, 1, 2]))


PROGRAM = """
from pathlib import Path
from figures.experiments.personalization.settings import _experiment, _needed, COMMON, SIZES
from reporting.store import obtain
from dataclasses import replace
settings = {**COMMON, **SIZES["paper"], "size": "paper", "backend": "numpy", "n": 2, "images": 120, "batch": 8}
settings |= {"steps": 2, "push_milestones": [1], "outer_steps": 1, "iterations": 1, "consensus_steps": 2}
settings.pop("workers")
one = _experiment(_needed(settings, "push"), 1)
print(obtain(replace(one, parts=one.parts[:3]), Path(FOLDER)).stamp["sha256"])
"""


@pytest.mark.slow
@pytest.mark.skipif("HGP_REF_EMNIST" not in os.environ, reason="needs EMNIST")
def test_a_killed_run_of_the_papers_size_resumes(tmp_path):
    """Its network and its data with few clients, images and steps: SIGKILL after a part, then the same bytes."""

    def start(folder):
        code = PROGRAM.replace("FOLDER", repr(str(folder)))
        root = Path(__file__).parents[2]
        return subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    whole, text = start(tmp_path / "whole").communicate()
    assert b"a step of all clients takes" in text and b"parts to compute" in text
    killed = start(tmp_path / "pieces")
    while len(list((tmp_path / "pieces").glob("*.parts/*.npz"))) < 1 and killed.poll() is None:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    stored = {path.name for path in (tmp_path / "pieces").glob("*.parts/*.npz")}
    assert 1 <= len(stored) < 3
    again, text = start(tmp_path / "pieces").communicate()
    assert again == whole != b"" and f"{3 - len(stored)} parts to compute".encode() in text
    files = [next(folder.glob("*.npz")).read_bytes() for folder in (tmp_path / "whole", tmp_path / "pieces")]
    assert files[0] == files[1]
