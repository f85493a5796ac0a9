"""The page of results shows what was run and names what was not."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser

import pytest

from reporting import reproduce
from reporting.__main__ import main
from reporting.overview import page
from reporting.reproduce import words

VERIFICATION = {
    "passed": True,
    "seconds": 3.0,
    "verdicts": {"holds": 2},
    "statements": [
        {
            "title": "Theorem <1>",
            "rows": [
                {"form": "corrected", "statement": "Theorem 1", "verdict": "holds"},
                {"form": "printed", "statement": "Theorem 1", "verdict": "violated as printed"},
            ],
        }
    ],
}
PRODUCT = {
    "name": "fig1a",
    "variant": "paper",
    "shows": "Error & more",
    "paths": ["figures/paper/fig1a.png", "figures/table.csv"],
    "cpu_seconds": 1.5,
    "rows": [{"what": "S=1", "ours": 0.125, "paper": 0.12, "met": True, "note": "near"}],
}


class Images(HTMLParser):
    """Pictures with their words."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.found.append(dict(attributes))


def test_an_empty_overview_states_that_nothing_was_run(tmp_path):
    assert page(tmp_path).count("Not run here") == 2


def test_everything_is_shown(tmp_path, capsys):
    (tmp_path / "verification").mkdir()
    (tmp_path / "figures").mkdir()
    (tmp_path / "verification" / "verification.json").write_text(json.dumps(VERIFICATION))
    (tmp_path / "figures" / "products.json").write_text(json.dumps([PRODUCT]))
    (tmp_path / "figures" / "table.csv").write_text('a,b\n"x < y",0.5\n')
    assert main([str(tmp_path)]) == 0
    assert str(tmp_path / "index.html") in capsys.readouterr().out
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert (
        "PASSED" in text
        and "Theorem &lt;1&gt;" in text
        and "<td class='first'>x &lt; y</td><td class='number' data-label='b'>0.5</td>" in text
        and "0.125" in text
    )
    images = Images()
    images.feed(text)
    assert images.found == [{"alt": "Figure 1a, setting of the paper: Error & more", "src": "figures/paper/fig1a.png"}]
    assert "<a href='#fig1a-paper'>" in text and "<section id='fig1a-paper'>" in text
    assert "1 numbers compared, 1 of 1 within tolerance" in text
    assert "http" not in text and "<script" not in text


def test_verdicts_of_every_kind_are_counted_for_each_statement(tmp_path):
    document = {**VERIFICATION, "verdicts": {"holds": 1, "violated as printed": 1}}
    (tmp_path / "verification").mkdir()
    (tmp_path / "verification" / "verification.json").write_text(json.dumps(document))
    counts = "".join(f"<td class='number' data-label='{verdict}'>1</td>" for verdict in document["verdicts"])
    assert f"<tr><td class='first'>Theorem &lt;1&gt;</td>{counts}</tr>" in page(tmp_path)


def test_wide_pictures_get_room_and_long_tables_are_folded(tmp_path):
    from PIL import Image

    (tmp_path / "figures").mkdir()
    Image.new("RGB", (2400, 1300)).save(tmp_path / "figures" / "wide.png")
    (tmp_path / "figures" / "long.csv").write_text("a,b\n" + "x,1\n" * 50)
    product = {**PRODUCT, "paths": ["figures/wide.png", "figures/long.csv"]}
    (tmp_path / "figures" / "products.json").write_text(json.dumps([product]))
    text = page(tmp_path)
    assert "<section id='fig1a-paper' class='wide'>" in text and "<summary>50 lines</summary>" in text
    Image.new("RGB", (1020, 400)).save(tmp_path / "figures" / "wide.png")
    assert "<section id='fig1a-paper'>" in page(tmp_path)


def row(form, statement, verdict):
    return {"form": form, "statement": statement, "verdict": verdict}


def test_the_summary_states_what_was_verified_refuted_and_compared(tmp_path, capsys):
    rows = [
        row("corrected", "Bound A", "holds"),
        row("corrected", "Bound A", "VIOLATED"),
        row("corrected", "Bound A", "not applicable: needs η < 1"),
        row("printed", "Theorem 1", "violated as printed"),
        row("printed", "Theorem 1", "holds"),
        row("printed", "Corollary 2", "holds"),
        row("erratum", "erratum 1", "erratum shown"),
    ]
    document = {**VERIFICATION, "statements": [{"title": "all", "rows": rows}]}
    number = {"what": "S", "ours": 1.0, "paper": 1.0, "met": True, "note": ""}
    compared = [
        {**number, "ours": 0.25, "met": False},
        {**number, "paper": 1.5},
        {**number, "ours": 1e-9, "note": "theirs is a float32 floor"},
        {**number, "ours": 9.0, "met": None},
        {**number, "ours": 9.0, "note": "goal: less than another method"},
    ]
    products = [{**PRODUCT, "rows": compared}, {**PRODUCT, "name": "table_cnn", "variant": "", "rows": []}]
    for folder, name, content in (("verification", "verification", document), ("figures", "products", products)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.json").write_text(json.dumps(content))
    assert main([str(tmp_path)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "verified as corrected: 1 of 2 comparisons hold" in lines
    assert lines[lines.index("refuted as printed:") + 1] == "Theorem 1: 1 of 2 comparisons violated"
    assert "not refuted as printed: Corollary 2" in lines
    assert "errata shown: 1 of 1; python -m verification took 3 s" in lines
    assert "2 drawn, 1 of them compared with the paper, its published program or a goal" in lines
    (figure,) = (line.split() for line in lines if line.startswith("Figure 1a, setting of the paper"))
    assert figure[6:] == ["5", "3", "of", "4", "2.75", "4.00"]  # factors 4 and 1.5
    assert lines[-3] == f"{tmp_path}/index.html: everything on one page"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fig1b_corrected", "Figure 1b, corrected"),
        ("figA2c", "Figure A2c"),
        ("table1", "Table 1"),
        ("table_cnn", "Table: CNN"),
        ("comparison_others", "Comparison: methods of others"),
        ("influence_breast_cancer", "Influence: breast cancer"),
        ("table_hyper_cleaning", "Table: hyper-cleaning"),
    ],
)
def test_names_in_words(name, expected):
    assert words(name) == expected


def test_run_starts_both_commands_and_fails_if_one_fails(tmp_path, monkeypatch, capsys):
    started, python = tmp_path / "started", sys.executable
    script = f"import sys; open({str(started)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n'); sys.exit(sys.argv[2] == "
    for failing in ("figures", "verification", "neither"):
        fake = tmp_path / f"python-{failing}"
        fake.write_text(f"#!{python}\n{script}{failing!r})\n")
        fake.chmod(0o755)
        monkeypatch.setattr(reproduce.sys, "executable", str(fake))
        assert reproduce.run(tmp_path / "results", ["--quick"]) == (failing != "neither")
        assert (f"exit code 1, see {tmp_path}/results/verification.log" in capsys.readouterr().out) == (
            failing == "verification"
        )
    out = tmp_path / "results"
    lines = set(started.read_text().splitlines())
    assert lines == {
        f"-m verification --out {out}/verification --quick",
        f"-m figures all --variant both --out {out}/figures --quick",
    }
