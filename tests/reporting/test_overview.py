"""One page of results: what was run is on it, what was not is said to be missing."""

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
    "paths": ["figures/paper/fig1a.png", "figures/table.txt"],
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
    (tmp_path / "figures" / "table.txt").write_text("a < b\n")
    assert main([str(tmp_path)]) == 0
    assert str(tmp_path / "index.html") in capsys.readouterr().out
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "PASSED" in text and "Theorem &lt;1&gt;" in text and "a &lt; b" in text and "0.125" in text
    images = Images()
    images.feed(text)
    assert images.found == [{"alt": "fig1a, paper: Error & more", "src": "figures/paper/fig1a.png"}]
    assert "http" not in text and "<script" not in text
