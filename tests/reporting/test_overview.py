"""The page of results shows what was run and names what was not."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from reporting.__main__ import main
from reporting.overview import page

VERIFICATION = {
    "passed": True,
    "seconds": 3.0,
    "verdicts": {"holds": 2},
    "statements": [{"title": "Theorem <1>", "rows": [{"verdict": "holds"}, {"verdict": "violated as printed"}]}],
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


def test_nothing_run_is_said(tmp_path):
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
        and "<td>x &lt; y</td><td class='number'>0.5</td>" in text
        and "0.125" in text
    )
    images = Images()
    images.feed(text)
    assert images.found == [{"alt": "fig1a, paper: Error & more", "src": "figures/paper/fig1a.png"}]
    assert "<a href='#fig1a-paper'>" in text and "<section id='fig1a-paper'>" in text
    assert "1 numbers compared, 1 of 1 within tolerance" in text
    assert "http" not in text and "<script" not in text


def test_verdicts_of_every_kind_are_counted_for_each_statement(tmp_path):
    document = {**VERIFICATION, "verdicts": {"holds": 1, "violated as printed": 1}}
    (tmp_path / "verification").mkdir()
    (tmp_path / "verification" / "verification.json").write_text(json.dumps(document))
    row = "<tr><td>Theorem &lt;1&gt;</td><td class='number'>1</td><td class='number'>1</td></tr>"
    assert row in page(tmp_path)


def test_wide_pictures_get_room_and_long_tables_are_folded(tmp_path):
    from PIL import Image

    (tmp_path / "figures").mkdir()
    Image.new("RGB", (300, 100)).save(tmp_path / "figures" / "wide.png")
    (tmp_path / "figures" / "long.csv").write_text("a,b\n" + "x,1\n" * 50)
    product = {**PRODUCT, "paths": ["figures/wide.png", "figures/long.csv"]}
    (tmp_path / "figures" / "products.json").write_text(json.dumps([product]))
    text = page(tmp_path)
    assert "<figure class='wide-figure' tabindex='0'>" in text and "<summary>50 lines</summary>" in text
