"""The personalization experiment: parts and sizes, what is read off, the page, and parts in several processes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from figures import cli, personal, table_personalization
from figures.options import Options
from figures.personal import GROUPS, NETWORKS, TABLE, best, experiments_of, parts, scores
from figures.reference import PERSONAL_PAPER
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
    assert experiments_of("reduced")["push"].settings["rates"]["push"] == {"fedavg": 0.3, "local": 0.3, "hgp_pl": 0.3}


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
    assert all(words in table for words, _ in TABLE.values()) and "[88.1 / 82.6]" in table
    assert (out / "figA3.png").stat().st_size > 10_000
    kept = json.loads((out / "docs" / "personalization-small.json").read_text(encoding="utf-8"))
    assert kept["accuracies"]["RandD.hgp_pl.0"]["turns"] == [0, 1] and set(kept["stamps"]) == set(GROUPS)
    page = (out / "docs" / "personalization-small.md").read_text(encoding="utf-8")
    assert "**Controls" in page and "M = 10 adds" in page and "outer steps with HGP" in page


def test_the_best_look_is_chosen_by_validation_data_alone():
    one = {
        "validation": np.array([[0.5, 0.5], [0.9, 0.2], [0.6, 0.6]]),
        "validation_sizes": np.array([1, 9]),
        "test": np.array([[1.0, 1.0], [1.0, 1.0], [0.2, 0.4]]),
        "test_sizes": np.array([3, 1]),
    }
    assert best(one) == 2
    for network, mean in (("FC", 25.0), ("RandD", 30.0)):  # by size, and plain
        data = {f"{network}.hgp_pl.0.{name}": array for name, array in one.items()}
        means, bottoms = scores(data, network, "hgp_pl", [0])
        assert means[0] == pytest.approx(mean) and bottoms[0] == pytest.approx(22.0)


def test_parts_side_by_side_are_the_same_bytes(tmp_path):
    one = experiments_of("small", quick=True)["push"]
    few = replace(one, parts=one.parts[:3])
    alone = obtain(few, tmp_path / "alone")
    together = obtain(replace(few, workers=2), tmp_path / "together")
    assert alone.stamp["sha256"] == together.stamp["sha256"] and together.fresh
    assert not obtain(replace(few, workers=2), tmp_path / "together").fresh


def test_an_error_in_a_worker_is_told(tmp_path):
    one = experiments_of("small", quick=True)["push"]
    with pytest.raises(KeyError):
        obtain(replace(one, parts=("RandD.unknown.0", "RandD.fedavg.0"), workers=2), tmp_path)


def test_a_size_that_a_figure_does_not_have_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["table_personalization", "--size", "emnist"])
    assert "exists in the sizes small, reduced, paper" in capsys.readouterr().err
    assert set(NETWORKS) == {"FC", "FixU", "RandU", "RandD"} and table_personalization.SIZES[0] == "small"
