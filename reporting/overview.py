"""results/index.html: every figure and table beside what the paper and its program have, and the verdicts.

Made of what `python -m verification` and `python -m figures` left behind; what was not run is said to be missing.
One page without scripts; pictures are the files beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from reporting.table import numeric

STYLE = Path(__file__).with_name("page.css")
VERIFICATION = Path("verification") / "verification.json"
FIGURES = Path("figures") / "products.json"


def page(results: Path) -> str:
    """The whole page for the folder `results`."""
    head = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Results of hgp_ref</title><style>{STYLE.read_text(encoding='utf-8')}</style></head><body>"
        "<header><h1>Results</h1><p>What this machine computed, beside what the paper and its published program "
        "have.</p></header><main>"
    )
    return "\n".join([head, *_verdicts(results), *_figures(results), "</main></body></html>\n"])


def _verdicts(results: Path) -> Iterator[str]:
    yield "<section><h2>The theorems</h2>"
    document = _read(results / VERIFICATION)
    if document is None:
        yield "<p class='bad'>Not run here: <code>python -m verification</code>.</p></section>"
        return
    tone, word = ("good", "PASSED") if document["passed"] else ("bad", "FAILED")
    counts = ", ".join(f"{count} × {escape(verdict)}" for verdict, count in sorted(document["verdicts"].items()))
    yield f"<p><span class='verdict {tone}'>{word}</span> {counts}; {document['seconds']:.0f} s.</p>"
    yield f"<p><a href='{VERIFICATION.with_suffix('.html').as_posix()}'>The report, with every row and figure</a>.</p>"
    rows = [
        (one["title"], str(len(one["rows"])), str(sum(row["verdict"] == "holds" for row in one["rows"])))
        for one in document["statements"]
    ]
    yield _table(("statement", "rows", "of which hold"), rows) + "</section>"


def _figures(results: Path) -> Iterator[str]:
    yield "<section><h2>Figures and tables</h2>"
    products = _read(results / FIGURES)
    if products is None:
        yield "<p class='bad'>Not run here: <code>python -m figures all --variant both</code>.</p></section>"
        return
    seconds = sum(product["cpu_seconds"] for product in products)
    yield f"<p>{len(products)} of them; their experiments took {seconds:.0f} CPU seconds when they were computed.</p>"
    for product in products:
        yield from _product(product, results)
    yield "</section>"


def _product(product: dict[str, Any], results: Path) -> Iterator[str]:
    name = product["name"] + (f", {product['variant']}" if product["variant"] else "")
    yield f"<section id='{escape(product['name'])}-{escape(product['variant'])}'><h3>{escape(name)}</h3>"
    yield f"<p>{escape(product['shows'])}. <span class='soft'>{product['cpu_seconds']:.1f} CPU seconds.</span></p>"
    for path in (Path(p) for p in product["paths"]):
        if path.suffix == ".png":
            shown = escape(f"{name}: {product['shows']}", quote=True)
            yield f"<figure class='small'><img alt='{shown}' src='{path.as_posix()}'></figure>"
        elif path.suffix == ".txt" and (results / path).exists():
            text = escape((results / path).read_text(encoding="utf-8"))
            yield f"<div class='scroll' tabindex='0' role='group' aria-label='{escape(name)}'><pre>{text}</pre></div>"
    if product["rows"]:
        rows = [
            (
                r["what"],
                f"{r['ours']:.4g}",
                f"{r['paper']:.4g}",
                {True: "ok", False: "OFF", None: ""}[r["met"]],
                r["note"],
            )
            for r in product["rows"]
        ]
        table = _table(("quantity", "here", "paper or its program", "", "note"), rows)
        yield f"<details><summary>{len(rows)} numbers beside theirs</summary>{table}</details>"
    yield "</section>"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    titles = "".join(f"<th{numeric(k in (1, 2))}>{escape(title)}</th>" for k, title in enumerate(head))
    body = "".join(
        f"<tr>{''.join(f'<td{numeric(k in (1, 2))}>{escape(cell)}</td>' for k, cell in enumerate(row))}</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='scroll' tabindex='0' role='group' aria-label='table'>{table}</div>"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
