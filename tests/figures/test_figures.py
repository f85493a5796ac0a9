"""The figures: quick runs of every one, the command line, and the published numbers in full."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from figures import CONTROLS, NAMES, cli, curves, fig1c
from figures.experiments import estimation
from figures.experiments.estimation import PublishedGraphs
from figures.experiments.influence import removal
from figures.options import Options, Product, Row, near
from figures.reference import ERROR_SCALAR, FLOAT32_FLOOR, ITERATIONS, STEPS
from reporting import durations, style
from reporting.store import obtain
from reporting.table import Table

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


SLOW = (  # long, or much like another one
    *("influence_digits", "table_influence", "fig1b", "figA1a"),
    *("comparison", "comparison_package", "comparison_others", "comparison_cleaning", "table1", "table_planner"),
)
FAST = tuple(name for name in NAMES if name not in SLOW)


@pytest.fixture(scope="module")
def products(out):
    """What is fast, quickly, as published; Fig. 1c in both variants."""
    pytest.importorskip("sklearn")
    made = cli.make_all(FAST, Options(quick=True), ("published",), out, thumbnails=out / "thumbnails")
    return [*made, cli.make("fig1c", Options("paper", quick=True), out)]


def test_figures_are_made(products, out):
    made = {(p.name, p.variant) for p in products}
    assert {name for name, _ in made} == set(FAST)
    assert ("fig1c", "paper") in made and ("fig1a", "published") in made and ("table_error", "") in made
    for product in products:
        for path in product.paths:
            assert path.stat().st_size > 0
    for path in out.rglob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF")
        assert b"CreationDate" not in path.read_bytes()
    assert (out / "published" / "fig1a.png").exists() and (out / "table_error.csv").exists()


@pytest.mark.slow
def test_the_slow_ones_and_the_other_variant(out, tmp_path):
    pytest.importorskip("sklearn")
    made = cli.make_all(NAMES, Options(quick=True), ("paper", "published"), out, thumbnails=tmp_path)
    assert len(made) == sum(1 + cli._by_variant(cli._module(name)) for name in NAMES)
    table = (out / "table_influence.txt").read_text(encoding="utf-8")
    assert "digits" in table and "breast cancer" in table and "synthetic, paper" in table
    assert len(list(tmp_path.glob("*.png"))) == sum(any(p.suffix == ".png" for p in one.paths) for one in made) >= 22


def test_thumbnails_are_small_and_listed(products, out):
    thumbnails = sorted((out / "thumbnails").glob("*.png"))
    drawn = [p for p in products if any(path.suffix == ".png" for path in p.paths)]
    assert len(thumbnails) == len(drawn) - 1 >= 10  # fig1c was drawn twice
    assert all(path.stat().st_size <= style.THUMBNAIL_BYTES for path in thumbnails)
    index = (out / "thumbnails" / "README.md").read_text(encoding="utf-8")
    assert all(path.name in index for path in thumbnails)


def test_the_index_keeps_the_lines_of_other_pictures(products):
    before = cli._index([p for p in products if p.name == "fig1a"]).replace("fig1a", "other")
    after = cli._index([p for p in products if p.name == "fig1a"], before)
    assert set(before.splitlines()) < set(after.splitlines()) and cli._index([], after) == after


def test_the_index_names_the_size():
    drawn = Product("figA3", "", "accuracy", (Path("figA3-reduced_size.png"),), (), 1.0, False)
    assert "`python -m figures figA3 --size reduced`" in cli._index([drawn])


def test_tables_are_written_for_the_documentation(products, out, tmp_path):
    cli.make_all(("table_error",), Options(quick=True), ("paper",), out, docs=tmp_path)
    lines = (tmp_path / "table_error.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("| experiment | S | error here |") and len(lines) == 2 + 15  # the last m of each run


def test_a_second_run_computes_nothing_and_draws_the_same(products, out):
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = cli.make_all(("fig1c", "table_error"), Options(quick=True), ("paper",), out)
    assert not any(p.fresh for p in again)
    assert all(path.read_bytes() == before[path] for p in again for path in p.paths)


def test_data_are_the_same_byte_for_byte_when_computed_again(products, out, tmp_path):
    for experiment in (
        estimation.for_variant("published", 20, quick=True),
        removal.experiment("paper", quick=True),
    ):
        fresh = obtain(experiment, tmp_path)
        assert fresh.fresh
        assert fresh.path.read_bytes() == (out / "data" / fresh.path.name).read_bytes()


def test_nothing_is_clipped(products, out):
    """The border of every picture is white: no label, line or number is cut off at an edge."""
    image = pytest.importorskip("PIL.Image")
    pictures = [path for product in products for path in product.paths if path.suffix == ".png"]
    assert pictures
    for path in pictures:
        pixels = np.asarray(image.open(path).convert("L"))
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert border.min() == 255, path


@pytest.mark.parametrize("name", [name for name in FAST if not name.startswith("table")])
def test_every_point_is_inside_its_axes(name, products, out):
    """Limits set for one panel must not cut another: every line lies within what its axes show."""
    module = cli._module(name)
    options = Options("published", quick=True)
    data = {key: obtain(one, out / "data").data for key, one in module.experiments(options).items()}
    for axes in module.draw(data, options).axes:
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        lines = [line for line in axes.lines if line.get_transform() == axes.transData and len(line.get_xdata()) > 2]
        assert lines or name.startswith(
            ("influence", "figA2b", "figA2c", "hyper_cleaning", "figA3")
        )  # few points a line
        for line in lines:
            x, y = line.get_data()
            assert left <= np.min(x) and np.max(x) <= right and low <= np.min(y) and np.max(y) <= high


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return obtain(estimation.for_variant("published"), tmp_path_factory.mktemp("published")).data


def assert_published_means(data):
    """The mean of 10 seeds at every S and m of the table that was computed, to three per cent."""
    means = data["errors"].mean(axis=1) / 3
    for k, S in enumerate(STEPS):
        for m, paper in zip(ITERATIONS, ERROR_SCALAR[S], strict=True):
            if paper >= FLOAT32_FLOOR and m <= means.shape[1]:
                assert means[k, m - 1] == pytest.approx(paper, rel=0.03), (S, m)


def test_the_first_100_iterations_of_fig1a_are_the_published_programs(tmp_path):
    """Same data, same graphs, ours in float64."""
    experiment = estimation.for_variant("published")
    experiment.settings["iterations"] = 100
    data = obtain(experiment, tmp_path).data
    assert data["errors"].shape == (len(STEPS), 10, 100)
    assert_published_means(data)


@pytest.mark.slow
def test_fig1a_is_the_published_programs_to_three_per_cent(published):
    rows = curves.compare_errors(published, Options("published"))
    assert len(rows) == 35 and all(row.met for row in rows)
    assert_published_means(published)


@pytest.mark.slow
def test_fig1a_has_the_order_and_the_slope(published):
    """Errors fall with S; S = 10 follows exact averaging to its floor, S = 100 down to what the spectrum allows."""
    errors, limit = published["errors"].mean(axis=1), published["limit"]
    assert np.all(np.diff(errors[:, -1]) < 0)
    assert np.allclose(errors[4], limit, rtol=1e-4, atol=1e-12 * np.linalg.norm(published["truth"]))
    assert np.all(np.abs(errors[3][:200] / limit[:200] - 1) < 0.1)
    rate = 1 - published["spectrum"][0]
    assert limit[-1] / limit[499] == pytest.approx(rate**500, rel=0.01)
    assert limit[-1] < 1e-8 * np.linalg.norm(published["truth"])


def test_fig1c_meets_the_papers_scores(tmp_path):
    data = obtain(removal.experiment("published"), tmp_path).data
    rows = fig1c.compare({"removal": data}, Options("published"))
    assert [row.met for row in rows] == [True, True]
    assert rows[0].ours == pytest.approx(0.9968, abs=5e-4)


def test_published_graphs_are_graphs():
    net = PublishedGraphs(3, 0.4, 0.8, rates_seed=1234, seed=0, count=4000)
    W = net.mixing_matrices(1, 4000)
    assert np.allclose(W.sum(axis=1), 1) and np.all(W[:, range(3), range(3)] > 0)
    frequency = (W > 0).mean(axis=0)
    rates = np.random.RandomState(1234).uniform(0.4, 0.8, (3, 3))
    off = ~np.eye(3, dtype=bool)
    assert np.all(np.abs(frequency - rates)[off] < 5 * np.sqrt(0.25 / 4000))
    indptr, receivers = net.out_adjacency(7)
    dense = np.zeros((3, 3))
    for j in range(3):
        dense[receivers[indptr[j] : indptr[j + 1]], j] = 1 / (indptr[j + 1] - indptr[j])
    assert np.array_equal(dense, W[6])
    with pytest.raises(ValueError, match="s must be 1 … 4000, got 4000 … 4001"):
        net.mixing_matrices(4000, 2)


def test_the_command_line(out, products):
    command = [sys.executable, "-m", "figures", "fig1c", "--quick", "--variant", "published", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "fig1c" in done.stdout and "(stored)" in done.stdout and "published" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig9"], "no figure is called 'fig9'; there are: all, readme, fig1a"),
        (["--variant", "mine"], "invalid choice: 'mine'"),
        (["fig1a", "--backend", "abacus"], "'jax', 'array_api_strict', got 'abacus'"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_unknown_name():
    with pytest.raises(ValueError, match="no figure is called 'fig9'"):
        cli.make("fig9", Options())


def test_summary_marks_missed_comparisons():
    rows = [near("an error, m=1000", 1.0, 2.0), near("another, m=10", 9.0, 2.0), Row("a fact", 1.0, 1.0, None)]
    product = Product("fig", "paper", "x", [Path("a/fig.pdf"), Path("a/fig.png")], rows, 1.0, True)
    text = cli.summary([product])
    assert "OFF" in text and "1 of 2 comparisons" in text and "a/fig.{pdf,png}" in text


@pytest.mark.parametrize(("ours", "met"), [(0.9, True), (2.9, True), (0.3, False), (3.1, False)])
def test_near_is_a_factor_three_either_way(ours, met):
    assert near("x", ours, 1.0).met is met


@pytest.mark.parametrize("backend", ["array_api_strict", pytest.param("torch", marks=pytest.mark.slow)])
def test_another_library_gives_the_same_numbers(backend, products, out, tmp_path):
    pytest.importorskip(backend)
    ours = obtain(estimation.for_variant("published", quick=True, backend=backend), tmp_path).data
    numpy = obtain(estimation.for_variant("published", quick=True), out / "data").data
    assert np.allclose(ours["errors"], numpy["errors"], rtol=0, atol=1e-11)


def test_the_list_names_every_figure_and_control(capsys):
    assert cli.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name} " in shown for name in (*NAMES, *CONTROLS))
    stored = json.loads(durations.STORED.read_text(encoding="utf-8"))["figures"]
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert len(set(stored) & set(NAMES)) > 10
    assert all(f" {durations.about(stored[name])} " in lines[name] for name in set(stored) & set(NAMES))
    for module, function, _ in CONTROLS.values():
        assert callable(getattr(importlib.import_module(f"figures.experiments.{module}"), function))


def test_durations_have_one_digit():
    times = (None, 0.4, 1.2, 58, 63, 95, 5000)
    assert [durations.about(t) for t in times] == ["", "< 1 s", "1 s", "1 min", "1 min", "2 min", "1 h"]


def test_durations_of_a_run_are_kept(tmp_path):
    stored = tmp_path / "durations.json"
    stored.write_text(json.dumps({"figures": {"fig1a": 9.0, "fig1b": 2.0}}))
    (tmp_path / "figures").mkdir()
    products = [{"name": "fig1a", "cpu_seconds": 3.0}, {"name": "fig1a", "cpu_seconds": 4.0}]
    (tmp_path / "figures" / "products.json").write_text(json.dumps(products))
    durations.record(tmp_path, stored)
    figures = {"fig1a": 4.0, "fig1b": 2.0}
    assert json.loads(stored.read_text()) == {"benchmarks": {}, "figures": figures, "verification": {}}


def test_figures_in_several_processes_have_the_same_bytes(tmp_path, capsys):
    names, options = ("unreliable", "fig1a", "table_error"), Options(quick=True)
    alone = cli.make_all(names, options, ("published",), tmp_path / "alone")
    capsys.readouterr()
    together = cli.make_all(names, options, ("published",), tmp_path / "together", jobs=2)
    lines = capsys.readouterr().err.splitlines()
    assert [one.name for one in together] == [one.name for one in alone] == list(names)
    assert len(lines) == 3 and all(re.fullmatch(r" *[\d.]+ s  \S+", line) for line in lines)
    for a, b in zip(alone, together, strict=True):
        assert b.fresh and [p.read_bytes() for p in a.paths] == [p.read_bytes() for p in b.paths]
    again = cli.make_all(names, options, ("published",), tmp_path / "together", jobs=2)
    assert not any(one.fresh for one in again)


def test_a_control_runs_by_its_name(monkeypatch, capsys):
    controls = importlib.import_module("figures.experiments.cleaning.controls")
    monkeypatch.setattr(controls, "controls_table", lambda size="reduced": Table("", ("size",), ((size,),)))
    monkeypatch.setattr(importlib.import_module("figures.experiments.influence.controls"), "controls", lambda *names: 3)
    assert cli.main(["cleaning_controls", "emnist"]) == 0 and "| emnist |" in capsys.readouterr().out
    assert cli.main(["cnn_controls", "as it is"]) == 3
    assert cli.main(["cleaning_controls", "emnist", "more"]) == 2
    assert "cleaning_controls: too many positional arguments" in capsys.readouterr().err


def test_a_control_that_needs_the_repository_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["personal_refresh"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "needs docs/measured: run it in the top folder of the repository" in error


def test_lines_that_lie_on_others_are_named():
    """Within 2.5 % of the height of the axes everywhere, on their scale."""
    axes = style.new_figure().subplots()
    x = np.arange(1, 11)
    far, other_once = 1e-8 ** (x / 10), np.where(x == 5, 9, 1) * 1e-4 ** (x / 10)
    values = {"a": far, "b": 1.2 * far, "c": 1.1 * far, "d": 1e-4 ** (x / 10), "e": other_once}
    lines = [axes.plot(x, y, label=name)[0] for name, y in values.items()]
    axes.set(yscale="log", ylim=(1e-9, 1))
    assert curves.hidden_lines(axes, lines) == ["a and b lie on c"]
    axes.set(yscale="linear", ylim=(0, 100))
    assert curves.hidden_lines(axes, lines) == ["a, b, c and d lie on e"]
