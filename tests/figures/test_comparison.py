"""The comparison with other methods: values read off a curve, choices, and the growth of the traffic."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hgp_ref as hgp
from figures import cli, comparison, comparison_cleaning, table_comparison
from figures.experiments.comparison import growth, runs
from figures.experiments.comparison.runs import METHODS, quiet
from figures.options import Options
from reporting.store import obtain

BY_NAME = {m.name: m for m in METHODS}


def test_targets_count_from_where_the_error_stays_below():
    curve = np.array([[1, 1, 0.5], [2, 2, 5e-3], [3, 3, 0.2], [4, 4, 5e-3], [5, 5, 5e-5]], dtype=float)
    assert runs.reached(curve)[:, 0].tolist()[:2] == [4, 5]
    assert np.isnan(runs.reached(curve)[2]).all()
    assert np.isnan(runs.reached(np.empty((0, 3)))).all()
    better, lost = curve.copy(), curve.copy()
    better[:, 0] /= 2
    lost[-1, 2] = np.nan
    ranks = [runs._rank(c) for c in (better, curve, lost, np.empty((0, 3)))]
    assert ranks == sorted(ranks) and ranks[0] < ranks[1] < ranks[3]


def test_runs_per_target_count_only_for_their_own_target():
    row = [1.0, 2.0, 5e-7, 3.0, 4.0, 5.0]
    curve = np.array([row, [2.0, 4.0, 5e-3, 6.0, 8.0, 10.0]])
    found = BY_NAME["planner"].reached(curve)
    assert found[0].tolist() == row and np.isnan(found[1:]).all()
    assert runs.reached(curve[:1])[:, 0].tolist() == [1.0, 1.0, 1.0]


def test_methods_that_the_planner_is_compared_with():
    arrays = {f"0-0/{m.name}/reached": np.full((3, 3, 2), np.nan) for m in METHODS if m.works_on(runs.NETWORKS[0])}
    for name, floats in {
        "planner": 1,
        "Conjugate gradients": 2,
        "SPARKLE-ED": [9, 5, 7],
        "HGP": [3, 4, np.nan],
    }.items():
        arrays[f"0-0/{name}/reached"][:, 1, 0] = floats
    assert runs.best_other(arrays, 0, 0, 1) == ("HGP", 4.0)
    arrays["0-0/HGP/reached"][1, 1, 0] = np.nan  # reached by one seed of three
    assert runs.best_other(arrays, 0, 0, 1) == ("SPARKLE-ED", 7.0)
    assert runs.best_other(arrays, 0, 0, 0)[1] == np.inf
    data = {"runs": {**arrays, **{key.replace("0-0", "0-1"): a for key, a in arrays.items()}}}
    (static,) = comparison.compare(data, Options(quick=True))
    assert static.met and (static.ours, static.paper) == (1.0, 7.0)
    arrays["0-0/planner/reached"][:, 1, 0] = 8
    assert not comparison.compare({"runs": {**data["runs"], **arrays}}, Options(quick=True))[0].met


@pytest.mark.parametrize("name", ["planner", "planner, no tree", "Conjugate gradients", "Preconditioned tracking"])
def test_local_work_is_counted(name):
    """Products include those of explicit Hessians, d_x each; preconditioned tracking solves twice per iteration."""
    case, net = runs.case("logistic, n = 3", 0), runs.network("logistic, n = 3", runs.NETWORKS[1], 0)
    m, d = BY_NAME[name], 6
    curve = quiet(m.run, case, net, m.grid[0], 300.0)
    floats, rounds, error, products, solves, seconds = m.reached(curve)[1]
    assert error <= 1e-4 and 0 < floats < 300 and products > d and 0 < seconds < 60
    if name == "Preconditioned tracking":
        assert solves == 2 * rounds and products == d + rounds + 1
    else:
        assert solves == 1 if name != "planner, no tree" else solves > 10
    assert name != "Conjugate gradients" or (error < runs.reached(curve)[0, 2] and products < 3 * d)


def test_mean_hessian_has_the_stated_condition_number():
    problem = runs.quadratic(10, 20, 2, 100.0, seed=3)
    H = hgp.exact.hessians(problem, np.zeros((10, 20)), np.zeros((10, 2)))
    eigenvalues = np.linalg.eigvalsh(H.mean(axis=0))
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(100.0) and np.linalg.eigvalsh(H).min() > 0
    assert np.abs(H[0] - H[1]).max() > 0.1


def test_networks_have_equally_many_edges():
    for problem in ("logistic, n = 3", "quadratic, κ = 10"):
        static, directed = (runs.network(problem, kind, 2) for kind in runs.NETWORKS)
        assert directed.expected_edges == pytest.approx(static.expected_edges)


@pytest.mark.parametrize("name", ["HGP", "Tracking", "SPARKLE-ED", "FAB"])
def test_curves_count_floats_and_fall(name):
    case = runs.case("logistic, n = 3", 0)
    net = runs.network("logistic, n = 3", runs.NETWORKS[1 if name != "SPARKLE-ED" else 0], 0)
    m = BY_NAME[name]
    curve = quiet(m.run, case, net, m.grid[4] if name == "HGP" else 0.2, 300.0)
    assert (np.diff(curve[:, :2], axis=0) > 0).all() and curve[-1, 0] <= 350
    assert curve[-1, 2] < 0.02 * curve[0, 2]


def test_exponents_of_the_traffic():
    """Chen's floats grow as d_x d_λ, Yang's as d_x², HGP's as d_x."""
    sizes = np.array([10, 40, 160])
    for name, along_x, along_lam in (("HGP", 1, 0), ("DBO", 1, 1), ("GBDSBO", 2, 0), ("MA-DSBO", 1, 0)):
        x = growth._floats(name, [(s, 10) for s in sizes])
        lam = growth._floats(name, [(10, s) for s in sizes])
        assert growth.exponent(sizes, x) == pytest.approx(along_x, abs=0.06), name
        assert growth.exponent(sizes, lam) == pytest.approx(along_lam, abs=0.06), name
    assert np.isnan(growth._floats("GBDSBO", [(10000, 10)])).all()


def test_cleaning_falls_for_a_method_and_divergence_is_infinite():
    curve = comparison_cleaning.evaluated(comparison_cleaning.RUNS["SPARKLE-ED"], 10.0, 0, 60)
    assert curve.shape == (comparison_cleaning.ENTRIES, 2) and curve[-1, 1] < 0.8 * curve[0, 1]
    wild = comparison_cleaning._baseline("sparkle", comparison_cleaning._static, 1.0,
                                      lambda L: {"inner_lr": 100 / L, "aux_lr": 0.8 / L})  # fmt: skip
    assert np.isinf(comparison_cleaning.evaluated(wild, 1.0, 0, 60)).all()
    wrong = comparison_cleaning._baseline("sparkle", comparison_cleaning._static, 1.0, lambda L: {"inner_lr": -1.0})
    with pytest.raises((TypeError, ValueError)):
        comparison_cleaning.evaluated(wrong, 1.0, 0, 60)


# Methods that --with adds

ROOT = Path(__file__).parents[2]
HEAVY_BALL = ROOT / "docs/experiments/heavy_ball.py"
SCHEMA = json.loads((ROOT / "figures/experiments/comparison/schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}


def conforms(value, schema, path="$"):
    """The part of JSON Schema that schema.json uses."""
    texts, checked = {"$schema", "title", "description"}, {"type", "enum", "required", "properties", "items"}
    assert set(schema) <= texts | checked | {"additionalProperties"}, path
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, TYPES[name]) for name in types), (path, types, value)
    assert "enum" not in schema or value in schema["enum"], (path, value)
    if isinstance(value, dict):
        assert set(schema["required"]) <= set(value) and set(value) == set(value) & set(schema["properties"]), path
        for key, inner in value.items():
            conforms(inner, schema["properties"][key], f"{path}.{key}")
    if isinstance(value, list):
        for k, inner in enumerate(value):
            conforms(inner, schema["items"], f"{path}[{k}]")


def test_a_file_adds_a_method(tmp_path):
    pytest.importorskip("matplotlib")
    options = Options(quick=True, added=(HEAVY_BALL,))
    experiments = comparison.experiments(options)
    assert experiments["runs"].label == comparison.experiments(Options(quick=True))["runs"].label
    data = {"runs": {}, "added": obtain(experiments["added"], tmp_path).data}
    found = json.loads(runs.as_json(data, options))
    conforms(found, SCHEMA)
    assert [(entry["method"], entry["network"]) for entry in found["results"]] == [
        ("heavy ball", kind) for kind in runs.NETWORKS
    ]
    for entry, k in zip(found["results"], range(2), strict=True):
        (curve,) = entry["errors"]
        assert len(curve) == len(entry["floats"]) == runs.GRID and curve[-1] < 0.1
        (method,) = runs.added_methods((HEAVY_BALL,))
        case, net = runs.case(runs.PROBLEMS[0], 1), runs.network(runs.PROBLEMS[0], runs.NETWORKS[k], 1)
        again = quiet(method.run, case, net, entry["parameter"], runs.BUDGET[runs.PROBLEMS[0]] * 0.2)
        assert curve[-1] == again[-1, 2] and entry["chosen"] == f"S = {entry['parameter']:g}"
    lines = [row for row in table_comparison.table(data | {"runs": _empty()}, options).rows if row[2] == "heavy ball"]
    assert len(lines) == 2 and lines[0][3].startswith("S = ")
    figure = comparison.draw(data, options)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["heavy ball"]
    assert cli._label("comparison", comparison, options) == "comparison-with-heavy_ball"


def _empty():
    """Arrays of METHODS that reached nothing."""
    never = {"reached": np.full((1, 3, 2), np.nan), "chosen": np.array(1.0)}
    names = [f"0-{k}/{m.name}" for k in range(2) for m in METHODS]
    return {f"{name}/{key}": value for name in names for key, value in never.items()}


@pytest.mark.parametrize("wrong", ["version", "results", "extra"])
def test_the_schema_refuses(wrong):
    found = {"version": 1, "unit": "", "targets": [], "results": []}
    conforms(found, SCHEMA)
    found |= {"version": 2} if wrong == "version" else {"results": [{}]} if wrong == "results" else {"more": 1}
    with pytest.raises(AssertionError):
        conforms(found, SCHEMA)


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("METHODS = []", ["comparison"], "must define METHODS, a list of"),
        ("METHODS = [3]", ["comparison"], "must define METHODS, a list of"),
        (None, ["comparison"], "--with must name a Python file"),
        (HEAVY_BALL.read_text().replace('"heavy ball"', '"HGP"'), ["comparison"], "must be unique, got 'HGP' twice"),
        (HEAVY_BALL.read_text().replace('"Global", DIRECTED', '"Global", "x"'), ["comparison"], "got 'x'"),
        (HEAVY_BALL.read_text(), ["comparison", "fig1a"], "--with is for figures that compare methods, not for fig1a"),
    ],
)
def test_files_that_cannot_be_added(text, names, message, tmp_path, capsys):
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as error:
        cli.main([*names, "--with", str(path), "--quick", "--out", str(tmp_path)])
    assert error.value.code == 2 and message in capsys.readouterr().err
