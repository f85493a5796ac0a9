"""One self-contained HTML page: summary, figures, rows and errata; no script, no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import reporting
from reporting.table import numeric
from verification.equations import inline, mathml
from verification.errata import ERRATA
from verification.jobs import Done
from verification.rows import (
    GOAL,
    HOLDS,
    MISSED,
    NOT_APPLICABLE,
    NOT_SHOWN,
    PRINTED,
    SHOWN,
    VIOLATED,
    VIOLATED_AS_PRINTED,
    Row,
)
from verification.run import Picture
from verification.statements import GLOSSARY, title
from verification.table import HEAD, cells, ratio, short

STYLE = Path(reporting.__file__).with_name("page.css")
CORRECTED_STATEMENTS = ("Lemma 1", "Lemma 2, n c", "Remark", "Corollary 1, repaired", "Corollary 2, repaired", "A", "B",
                        "C1", "C2", "C3", "C4", "certify", "certify, decentralised", "D (azuma)", "D (bernstein)", "E",
                        "2*", "Chebyshev", "F")  # fmt: skip
COUNTED = ("hold", "violated", "not applicable", "smallest ratio")
IDENTITIES = ("Remark as printed", "κ before Corollary 2")  # pieces of statements, shown in their sections


def page(done: Sequence[Done], document: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<title>Verification of Hyper-Gradient "
        f"Push</title><style>{STYLE.read_text(encoding='utf-8')}</style></head><body>",
        *_head(done, document),
        *_glossary(),
        "<div class='columns'>",
    ]
    for one in done:
        parts += _errata(one) if one.name == "errata" else _section(one)
    parts.append("</div>")
    return "\n".join([*parts, "</body></html>\n"])


def _head(done: Sequence[Done], document: dict[str, Any]) -> Iterator[str]:
    passed, settings = document["passed"], document["settings"]
    explanation = "every corrected statement held, every erratum showed" if passed else "see the rows marked below"
    yield "<header><h1>Verification of Hyper-Gradient Push</h1>"
    tone, outcome = ("good", "PASSED") if passed else ("bad", "FAILED")
    yield f"<p><span class='verdict {tone}'>{outcome}</span> {explanation}.</p>"
    yield (
        f"<p class='soft'>seed {settings['seed']}, {'quick' if settings['quick'] else 'full'} run, array library "
        ""
        f"{escape(settings['backend'])}, {document['seconds']:.0f} s; hgp_ref "
        f"{escape(document['versions']['hgp_ref'])}, "
        f"NumPy {escape(document['versions']['numpy'])}.</p></header>"
    )
    verdicts = document["verdicts"]
    yield "<p>" + ", ".join(f"{verdicts[v]} × <b>{escape(v)}</b>" for v in sorted(verdicts)) + ".</p>"
    failed = [row for one in done for row in one.result.rows if row.failed]
    if failed:
        yield "<h2>What failed</h2>" + _rows_table(failed)
    yield "<nav aria-label='statements'><ul>"
    yield from (f"<li><a href='#{one.name}'>{escape(_short(one.title))}</a></li>" for one in done)
    yield "</ul></nav>"
    rows = [row for one in done for row in one.result.rows]
    yield "<div class='columns'><section><h2>The corrected statements</h2>"
    yield f"<p>{_searched(done)} A ratio of 1.000 is attained where a bound is sharp; less would be a violation.</p>"
    yield _grouped(row for row in rows if row.statement in CORRECTED_STATEMENTS) + "</section>"
    printed = [row for row in rows if row.form == PRINTED and row.statement not in IDENTITIES]
    if printed:
        yield "<section><h2>The paper's statements as printed</h2>"
        yield "<p>With the constants of the actual graphs and problems; each violation is explained in the errata.</p>"
        yield _grouped(iter(printed)) + "</section>"
    yield "</div>"


def _searched(done: Sequence[Done]) -> str:
    """How many settings were examined."""
    facts = {one.name: one.result.facts for one in done}
    parts = ["Smallest ratio bound/error over all that this run measured"]
    if "search" in facts:
        parts.append(f", {facts['search']['random settings']:.0f} random settings among it")
    if "optimiser" in facts:
        parts.append(", and settings that an optimiser moved so as to push the ratio down")
    return "".join(parts) + "."


def _short(title: str) -> str:
    """The title up to its first colon or bracket."""
    return title.split(":")[0].split(" (")[0]


def _glossary() -> Iterator[str]:
    yield "<h2>The statements</h2><dl class='statements columns'>"
    yield from (
        f"<div><dt>{escape(title(name))}</dt><dd>{mathml(name)}{inline(explanation)}</dd></div>"
        for name, explanation in GLOSSARY.items()
    )
    yield "</dl>"


def _section(one: Done) -> Iterator[str]:
    rows = list(one.result.rows)
    yield f"<section id='{one.name}'><h2>{escape(one.title)}</h2>"
    yield f"<p class='soft'><code>python -m verification {one.name}</code>, {one.seconds:.1f} CPU s</p>"
    yield _grouped(iter(rows))
    yield from (_figure(picture) for picture in one.result.pictures)
    yield from (table.html() for table in one.result.tables)
    yield f"<details><summary>All {len(rows)} rows</summary>{_rows_table(rows)}</details></section>"


def _errata(one: Done) -> Iterator[str]:
    yield f"<section id='errata' class='wide'><h2>{escape(one.title)}</h2>"
    yield "<p><code>python -m verification errata N</code> recomputes entry N alone.</p>"
    yield from (_figure(picture) for picture in one.result.pictures)
    yield "<div class='columns'>"
    for row in one.result.rows:
        entry = ERRATA[int(row.statement.split()[1])]
        yield (
            f"<article class='erratum' id='erratum-{entry.number}'><h3>{entry.number}. {escape(entry.where)} "
            f"<span class='{_tone(row.verdict)}'>— {escape(row.verdict)}</span></h3>"
            f"<p><span class='label'>printed</span> {escape(entry.wrong)}</p>"
            f"<p><span class='label'>correct</span> {escape(entry.right)}</p>"
            f"<p><span class='label'>measured</span> {escape(row.note)}.</p></article>"
        )
    yield "</div></section>"


def _grouped(rows: Iterator[Row]) -> str:
    """One line per statement: how many rows, their verdicts, and the smallest ratio with its setting."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.statement, row.form), []).append(row)
    heads = ("statement", *COUNTED, "where")
    head = "".join(f"<th{numeric(0 < k < len(heads) - 1)}>{name}</th>" for k, name in enumerate(heads))
    body = "".join(_group(statement, form, members) for (statement, form), members in groups.items())
    return f"<table class='cards'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _group(statement: str, form: str, rows: Sequence[Row]) -> str:
    tally = [sum(short(row.verdict) == verdict for row in rows) for verdict in (HOLDS, NOT_APPLICABLE)]
    broken = len(rows) - sum(tally)
    smallest, where = min(((r.ratio, r.setting) for r in rows if r.ratio is not None), default=(None, "–"))
    tone = "" if not broken else f" class='{'warn' if form in (PRINTED, GOAL) else 'bad'}'"
    numbers = (str(tally[0]), str(broken), str(tally[1]), ratio(smallest))
    cells = "".join(_cell(label, content) for label, content in zip(COUNTED, numbers, strict=True))
    name = title(statement) + (" (printed)" if form == PRINTED and "printed" not in statement else "")
    return f"<tr{tone}><td class='first'>{escape(name)}</td>{cells}<td data-label='where'>{escape(where)}</td></tr>"


def _rows_table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th{numeric(h in ('measured', 'bound', 'ratio'))}>{h}</th>" for h in HEAD)
    body = []
    for row in rows:
        name, setting, measured, bound, quotient, verdict = cells(row)
        body.append(
            f"<tr><td class='first'>{escape(title(name))}</td><td data-label='setting'>{escape(setting)}</td>"
            f"{_cell('measured', measured)}{_cell('bound', bound)}{_cell('ratio', quotient)}"
            f"<td data-label='verdict' class='{_tone(verdict)}'>{escape(verdict)}</td></tr>"
        )
    return f"<table class='cards'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _cell(label: str, content: str) -> str:
    return f"<td class='number' data-label='{label}'>{escape(content)}</td>"


def _tone(verdict: str) -> str:
    if verdict in (VIOLATED, NOT_SHOWN):
        return "bad"
    if verdict in (VIOLATED_AS_PRINTED, MISSED):
        return "warn"
    return "good" if verdict in (HOLDS, SHOWN) else "soft"


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.svg.encode()).decode()
    return (
        f"<figure id='figure-{picture.name}'><img "
        f"alt='{escape(picture.caption, quote=True)}' "
        f"src='data:image/svg+xml;base64,{data}'><figcaption><b>{escape(picture.title)}.</b> {escape(picture.caption)}"
        "</figcaption></figure>"
    )
