"""The quick run of the command: exit code, JSON, HTML, and its behaviour when something is wrong."""

from __future__ import annotations

import base64
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from verification import NAMES
from verification.__main__ import main
from verification.errata import ERRATA

ROOT = Path(__file__).parents[2]
VERDICTS = {"holds", "violated as printed", "erratum shown"}  # a missed goal is a failure of this test
ROW = {"statement", "setting", "measured", "bound", "ratio", "rounding", "verdict", "form", "note"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(completed process, folder) of `python -m verification --quick`."""
    out = tmp_path_factory.mktemp("verification")
    command = [sys.executable, "-m", "verification", "--quick", "--out", str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True), out


@pytest.fixture(scope="module")
def document(quick):
    """The JSON file of the quick run."""
    return json.loads((quick[1] / "verification.json").read_text(encoding="utf-8"))


def test_quick_run_passes(quick):
    run, _ = quick
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "PASSED" in run.stdout


def test_json_has_every_statement_and_sound_rows(document):
    assert [one["name"] for one in document["statements"]] == list(NAMES)
    assert document["passed"] is True
    assert document["settings"] == {"seed": 0, "quick": True, "backend": "numpy"}
    for one in document["statements"]:
        assert one["rows"], one["name"]
        for row in one["rows"]:
            assert set(row) == ROW
            assert row["verdict"] in VERDICTS or row["verdict"].startswith("not applicable: ")
            assert row["form"] in ("printed", "corrected", "erratum", "goal")
            numbers = [row[k] for k in ("measured", "bound", "ratio") if row[k] is not None]
            assert all(isinstance(x, float) and math.isfinite(x) for x in numbers)
            assert row["form"] == "printed" or row["verdict"] != "violated as printed"
            if row["verdict"].startswith("not applicable"):
                assert row["bound"] is None and row["ratio"] is None


def test_no_corrected_ratio_is_below_one(document):
    ratios = [
        row["ratio"]
        for one in document["statements"]
        for row in one["rows"]
        if row["form"] == "corrected" and row["ratio"] is not None
    ]
    assert len(ratios) > 200
    assert min(ratios) >= 1 - 1e-9


def test_the_printed_counterexamples_show(document):
    broken = {row["statement"] for one in document["statements"] for row in one["rows"] if "violated" in row["verdict"]}
    assert {"Lemma 2, √n c", "Theorem 1", "Corollary 1", "Theorem 2", "Remark as printed"} <= broken


@pytest.mark.parametrize("number", sorted(ERRATA))
def test_each_erratum_shows(document, number):
    rows = next(one["rows"] for one in document["statements"] if one["name"] == "errata")
    assert next(row["verdict"] for row in rows if row["statement"] == f"erratum {number}") == "erratum shown"


class Resources(HTMLParser):
    """Everything a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            {"src": self.sources, "href": self.links, "id": self.ids}.get(name, []).append(value)


def test_html_needs_nothing_else(quick):
    text = (quick[1] / "verification.html").read_text(encoding="utf-8")
    page = Resources()
    page.feed(text)
    assert not page.tags & {"script", "link", "iframe", "object", "embed"}
    assert len(page.sources) >= 9  # the figures
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert "url(" not in text and "@import" not in text and "name='viewport'" in text and "@media print" in text
    for source in page.sources:
        drawn = base64.b64decode(source.partition(",")[2]).decode()
        assert drawn.lstrip().startswith("<?xml") and not re.search(r'href="(?!#)', drawn)


def halved(function, names=("total", "per_client")):
    """The bound `function` with its numbers divided by two."""

    def planted(*arguments, **options):
        found = function(*arguments, **options)
        if isinstance(found, float):
            return found / 2
        halves = {name: getattr(found, name) / 2 for name in names if getattr(found, name) is not None}
        return replace(found, **halves)

    return planted


@pytest.mark.parametrize(
    ("statement", "target", "names"),
    [
        ("lemma2", "verification.lemma2.lemma2_realised", ()),
        ("corollary1", "verification.corollary1.corollary1_repaired", None),
        ("convex_mean", "verification.curves.convex_mean", ("total", "per_client")),
        ("certificate", "verification.certificate.residual_bounds", ("c1", "c2", "c3", "c4")),
        ("minibatch_tail", "verification.minibatch_tail.minibatch_tail", ("total", "per_client")),
        ("mean_square", "verification.mean_square.mean_square_error", ("variance",)),
        ("inexact", "verification.errata.inexact.inexact_total", ()),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("contracting_clients", "verification.curves.contracting_clients", ("total", "per_client")),
                ("chebyshev", "verification.chebyshev.chebyshev", ("total", "per_client")),
                ("optimiser", "verification.optimiser.residual_bounds", ("c1", "c2", "c3", "c4")),
                ("search", "verification.search.convex_mean", ("total", "per_client")),
            )
        ),
    ],
)
def test_a_planted_violation_fails(statement, target, names, monkeypatch, tmp_path, capsys):
    import importlib

    module, _, name = target.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    if names is None:  # far from its errors on ordinary problems: made a thousandth
        planted = lambda *a, **k: _scaled(original(*a, **k), 1e-6)  # noqa: E731
    else:
        planted = halved(original, names)
    monkeypatch.setattr(target, planted)
    assert main([statement, "--quick", "--jobs", "1", "--out", str(tmp_path)]) == 1
    assert "VIOLATED" in capsys.readouterr().out
    assert json.loads((tmp_path / "verification.json").read_text(encoding="utf-8"))["passed"] is False
    assert "FAILED" in (tmp_path / "verification.html").read_text(encoding="utf-8")


def _scaled(bound, factor):
    return bound if bound.total is None else replace(bound, total=bound.total * factor)


def test_an_erratum_that_does_not_show_fails(monkeypatch, tmp_path, capsys):
    entry = ERRATA[3]
    monkeypatch.setitem(ERRATA, 3, replace(entry, show=lambda run: replace(entry.show(run), shown=False)))
    assert main(["errata", "3", "--quick", "--out", str(tmp_path)]) == 1
    assert "erratum NOT shown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["theorem3"], "unknown name 'theorem3'"),
        (["4"], "numbers choose among the errata"),
        (["lemma1", "--write", "ERRATA.md"], "--write needs the errata"),
        (["errata", "--quick", "--write", "ERRATA.md"], "--write needs a full run"),
    ],
)
def test_bad_arguments_are_named(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
