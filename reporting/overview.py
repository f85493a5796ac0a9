"""results/index.html: every figure and table with the numbers of the paper and of its program, and the verdicts.

The page shows the files that `python -m verification` and `python -m figures` wrote, and names what was not run. It has
no scripts and refers to the pictures in its folder.
"""

from __future__ import annotations

import csv
import re
import struct
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from reporting.reproduce import FIGURES, VERIFICATION, read, title
from reporting.table import html_table

STYLE = Path(__file__).with_name("page.css")
COLUMNS = 5  # tables with more columns take the whole width of the page
DOTS = 1500  # pictures of more dots have panels for the whole width; one column of the paper has 1020
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
    document = read(results / VERIFICATION)
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
    yield html_table(("statement", *kinds), rows, numbers=range(1, len(kinds) + 1)) + "</section>"


def _figures(results: Path) -> Iterator[str]:
    yield "<section class='products'><h2>Figures and tables</h2>"
    products = read(results / FIGURES)
    if products is None:
        yield "<p class='bad'>Not run here: <code>python -m figures all --variant both</code>.</p></section>"
        return
    seconds = sum(product["cpu_seconds"] for product in products)
    yield f"<p>{len(products)} of them; the experiments took {seconds:.0f} CPU seconds when they were computed.</p>"
    yield "<nav aria-label='figures and tables'><ul>"
    yield from (
        f"<li><a href='#{_anchor(product)}'>{escape(title(product), quote=True)}</a></li>" for product in products
    )
    yield "</ul></nav>"
    yield "<div class='columns'>"
    for product in products:
        yield from _product(product, results)
    yield "</div></section>"


def _product(product: dict[str, Any], results: Path) -> Iterator[str]:
    wide = " class='wide'" if _needs_width(product, results) else ""
    yield f"<section id='{_anchor(product)}'{wide}><h3>{escape(title(product), quote=True)}</h3>"
    variant = f" --variant {product['variant']}" if product["variant"] else ""
    command = f"<code>python -m figures {escape(product['name'] + variant)}</code>"
    shows = re.sub("`([^`]+)`", r"<code>\1</code>", escape(product["shows"]))
    yield f"<p>{shows}. <span class='soft'>{command}, {product['cpu_seconds']:.1f} CPU s.</span></p>"
    pictures = [path for path in product["paths"] if path.endswith(".png")]
    for path in (Path(p) for p in product["paths"]):
        if path.suffix == ".png" and path.as_posix() == pictures[0]:  # others are its thumbnails
            shown = f"{escape(title(product), quote=True)}: {escape(product['shows'], quote=True)}"
            yield f"<figure><a href='{path.as_posix()}'><img alt='{shown}' src='{path.as_posix()}'></a></figure>"
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
    table = html_table(("quantity", "here", "paper, its program or goal", "", "note"), cells, numbers=(1, 2))
    verdict = f", {sum(verdicts)} of {len(verdicts)} within tolerance" if verdicts else ""
    opened = " open" if len(rows) <= FEW else ""
    return f"<details{opened}><summary>{len(rows)} numbers compared{verdict}</summary>{table}</details>"


def _folded(rows: list[tuple[str, ...]]) -> str:
    """A table; a long one is folded."""
    head, *body = rows
    table = html_table(head, body, numbers=[k for k in range(1, len(head)) if all(_is_number(row[k]) for row in body)])
    return table if len(body) <= LONG else f"<details><summary>{len(body)} lines</summary>{table}</details>"


def _anchor(product: dict[str, Any]) -> str:
    return escape(f"{product['name']}-{product['variant']}".strip("-"), quote=True)


def _of_csv(path: Path) -> list[tuple[str, ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def _is_number(cell: str) -> bool:
    return not cell.strip(" —") or cell.lstrip("-").replace(".", "").replace("e-", "").isdigit()


def _needs_width(product: dict[str, Any], results: Path) -> bool:
    """Whether a PNG is wider than DOTS, by its header, or a table has more than COLUMNS columns."""
    for path in (results / name for name in product["paths"]):
        if path.suffix == ".png" and path.exists():
            (width,) = struct.unpack(">I", path.read_bytes()[16:20])
            if width > DOTS:
                return True
        if path.suffix == ".csv" and path.exists() and len(_of_csv(path)[0]) > COLUMNS:
            return True
    return False
