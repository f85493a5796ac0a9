"""results/index.html: every figure and table with the numbers of the paper and of its program, and the verdicts.

The page shows the files that `python -m verification` and `python -m figures` wrote, and names what was not run. It has
no scripts and refers to the pictures in its folder.
"""

from __future__ import annotations

import csv
import json
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from reporting.table import numeric

STYLE = Path(__file__).with_name("page.css")
VERIFICATION = Path("verification") / "verification.json"
FIGURES = Path("figures") / "products.json"
LONG, FEW = 30, 12  # tables with more lines are folded; comparisons with at most so many numbers are not


def page(results: Path) -> str:
    """The whole page for the folder `results`."""
    head = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Results of hgp_ref</title><style>{STYLE.read_text(encoding='utf-8')}</style></head><body>"
        "<header><h1>Results</h1><p>What this machine computed, compared with the numbers of the paper and of its "
        "published program.</p></header><main>"
    )
    return "\n".join([head, *_verdicts(results), *_figures(results), "</main></body></html>\n"])


def _verdicts(results: Path) -> Iterator[str]:
    yield "<section><h2>The theorems</h2>"
    document = _read(results / VERIFICATION)
    if document is None:
        yield "<p class='bad'>Not run here: <code>python -m verification</code>.</p></section>"
        return
    tone, outcome = ("good", "PASSED") if document["passed"] else ("bad", "FAILED")
    counts = ", ".join(f"{count} × {escape(verdict)}" for verdict, count in sorted(document["verdicts"].items()))
    yield f"<p><span class='verdict {tone}'>{outcome}</span> {counts}; {document['seconds']:.0f} s.</p>"
    yield f"<p><a href='{VERIFICATION.with_suffix('.html').as_posix()}'>The report, with every row and figure</a>.</p>"
    kinds = list(document["verdicts"])
    rows = []
    for one in document["statements"]:
        counted = Counter(str(row["verdict"]).partition(":")[0] for row in one["rows"])
        rows.append((one["title"], *(str(counted[kind] or "") for kind in kinds)))
    yield _table(("statement", *kinds), rows, numbers=range(1, len(kinds) + 1)) + "</section>"


def _figures(results: Path) -> Iterator[str]:
    yield "<section><h2>Figures and tables</h2>"
    products = _read(results / FIGURES)
    if products is None:
        yield "<p class='bad'>Not run here: <code>python -m figures all --variant both</code>.</p></section>"
        return
    seconds = sum(product["cpu_seconds"] for product in products)
    yield f"<p>{len(products)} of them; the experiments took {seconds:.0f} CPU seconds when they were computed.</p>"
    yield "<nav aria-label='figures and tables'><ul>"
    yield from (f"<li><a href='#{_anchor(product)}'>{_title(product)}</a></li>" for product in products)
    yield "</ul></nav>"
    for product in products:
        yield from _product(product, results)
    yield "</section>"


def _product(product: dict[str, Any], results: Path) -> Iterator[str]:
    yield f"<section id='{_anchor(product)}'><h3>{_title(product)}</h3>"
    yield f"<p>{escape(product['shows'])}. <span class='soft'>{product['cpu_seconds']:.1f} CPU seconds.</span></p>"
    for path in (Path(p) for p in product["paths"]):
        if path.suffix == ".png":
            shown = f"{_title(product)}: {escape(product['shows'], quote=True)}"
            kind = "class='wide-figure' tabindex='0'" if _is_wide(results / path) else "class='small'"
            yield f"<figure {kind}><img alt='{shown}' src='{path.as_posix()}'></figure>"
        elif path.suffix == ".csv" and (results / path).exists():
            yield _folded(_of_csv(results / path))
    if product["rows"]:
        yield _comparison(product["rows"])
    yield "</section>"


def _comparison(rows: list[dict[str, Any]]) -> str:
    """Numbers compared with those of the paper and of its program, and how many comparisons hold."""
    verdicts = [row["met"] for row in rows if row["met"] is not None]
    marks = {True: "ok", False: "OFF", None: ""}
    cells: list[tuple[str, ...]] = [
        (r["what"], f"{r['ours']:.4g}", f"{r['paper']:.4g}", marks[r["met"]], r["note"]) for r in rows
    ]
    table = _table(("quantity", "here", "paper or its program", "", "note"), cells, numbers=(1, 2))
    verdict = f", {sum(verdicts)} of {len(verdicts)} within tolerance" if verdicts else ""
    opened = " open" if len(rows) <= FEW else ""
    return f"<details{opened}><summary>{len(rows)} numbers compared{verdict}</summary>{table}</details>"


def _folded(rows: list[tuple[str, ...]]) -> str:
    """A table; a long one is folded."""
    head, *body = rows
    table = _table(head, body, numbers=[k for k in range(1, len(head)) if all(_is_number(row[k]) for row in body)])
    return table if len(body) <= LONG else f"<details><summary>{len(body)} lines</summary>{table}</details>"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], numbers: Sequence[int]) -> str:
    titles = "".join(f"<th{numeric(k in numbers)}>{escape(title)}</th>" for k, title in enumerate(head))
    body = "".join(
        f"<tr>{''.join(f'<td{numeric(k in numbers)}>{escape(cell)}</td>' for k, cell in enumerate(row))}</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='scroll' tabindex='0' role='group' aria-label='table'>{table}</div>"


def _title(product: dict[str, Any]) -> str:
    return escape(product["name"] + (f", {product['variant']}" if product["variant"] else ""), quote=True)


def _anchor(product: dict[str, Any]) -> str:
    return escape(f"{product['name']}-{product['variant']}".strip("-"), quote=True)


def _of_csv(path: Path) -> list[tuple[str, ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def _is_number(cell: str) -> bool:
    return not cell.strip(" —") or cell.lstrip("-").replace(".", "").replace("e-", "").isdigit()


def _is_wide(path: Path) -> bool:
    """Whether a PNG is more than twice as wide as high, by its header."""
    width, height = struct.unpack(">II", path.read_bytes()[16:24]) if path.exists() else (1, 1)
    return width > 2 * height


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
