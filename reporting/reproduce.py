"""`make reproduce`: figures and verification side by side, and a summary of both.

The verification runs at low priority, so that it takes the cores that the figures leave. What it prints is in
`verification.log` in the folder of results.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from reporting.table import Table

VERIFICATION = Path("verification") / "verification.json"
FIGURES = Path("figures") / "products.json"
FLOOR = "float32 floor"  # in the note of a number whose counterpart is a rounding error
TITLES = {  # where the name of the command says too little
    "readme": "Figure of the README",
    "unreliable": "Unreliable links",
    "comparison": "Comparison of methods",
    "comparison_package": "Comparison: methods of this package",
    "comparison_others": "Comparison: methods of others",
    "comparison_cleaning": "Comparison: hyper-cleaning",
    "table_error": "Table: errors of hyper-gradients",
    "table_curvature": "Table: curvature of the CNN",
    "table_minibatch": "Table: mini-batches",
    "table_controls": "Table: controls of personalization",
    "table_comparison": "Table: every choice of the comparison",
}
GOAL = "goal"  # begins the note of a number that is compared with a goal


def run(results: Path, options: Sequence[str] = ()) -> int:
    """Run both commands and return the larger of their exit codes; `options` are for both."""
    results.mkdir(parents=True, exist_ok=True)
    start, log = time.perf_counter(), results / "verification.log"
    verification = [sys.executable, "-m", "verification", "--out", str(results / VERIFICATION.parent), *options]
    figures = [sys.executable, "-m", "figures", "all", "--variant", "both", "--out", str(results / FIGURES.parent)]
    print(f"The first figure takes less than a minute. python -m verification runs at the same time: {log}", flush=True)
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(["nice", "-n", "19", *verification], stdout=file, stderr=subprocess.STDOUT)
        front = subprocess.Popen([*figures, *options])
        try:
            drawn = front.wait()
            if process.poll() is None:
                print(f"figures: {time.perf_counter() - start:.0f} s; waiting for the verification", flush=True)
            verified = process.wait()
        except KeyboardInterrupt:  # both commands received it, too, and end their workers
            front.wait()
            process.wait()
            return 130
    print(f"\nfigures and verification: {time.perf_counter() - start:.0f} s")
    if verified:
        print(f"python -m verification: exit code {verified}, see {log}")
    return max(drawn, verified)


def summary(results: Path) -> str:
    """Statements verified and refuted, and figures and their distance from the paper."""
    return "\n".join([*_statements(read(results / VERIFICATION)), *_figures(read(results / FIGURES))])


def _statements(document: Any) -> Iterator[str]:
    yield "Statements"
    if document is None:
        yield "  not run here: python -m verification"
        return
    rows = [row for statement in document["statements"] for row in statement["rows"]]
    kinds = Counter((row["form"], row["verdict"].partition(":")[0]) for row in rows)
    held, broken = kinds["corrected", "holds"], kinds["corrected", "VIOLATED"]
    shown, hidden = kinds["erratum", "erratum shown"], kinds["erratum", "erratum NOT shown"]
    yield f"  verified as corrected: {held} of {held + broken} comparisons hold"
    printed = [row for row in rows if row["form"] == "printed"]
    refuted = Counter(row["statement"] for row in printed if row["verdict"] == "violated as printed")
    hold = Counter(row["statement"] for row in printed if row["verdict"] == "holds")
    yield "  refuted as printed:"
    yield from (f"    {name}: {n} of {n + hold[name]} comparisons violated" for name, n in refuted.items())
    yield f"  not refuted as printed: {'; '.join(name for name in hold if name not in refuted) or 'none'}"
    yield f"  errata shown: {shown} of {shown + hidden}; python -m verification took {document['seconds']:.0f} s"


def _figures(products: Any) -> Iterator[str]:
    yield "Figures and tables"
    if products is None:
        yield "  not run here: python -m figures all --variant both"
        return
    compared = [product for product in products if product["rows"]]
    rows = []
    for product in compared:
        met = [row["met"] for row in product["rows"] if row["met"] is not None]
        ratios = sorted(distances(product["rows"]))
        held = f"{sum(met)} of {len(met)}" if met else "none required"
        far = (f"{median(ratios):.2f}", f"{ratios[-1]:.2f}") if ratios else ("", "")
        rows.append((title(product), str(len(product["rows"])), held, *far))
    yield f"  {len(products)} drawn, {len(compared)} of them compared with the paper, its published program or a goal"
    heads = ("", "numbers", "agree as required", "median factor", "largest factor")
    yield from (f"  {line}" for line in Table("", heads, rows).text().splitlines())


def distances(rows: Sequence[dict[str, Any]]) -> Iterator[float]:
    """The factor between a number and the paper's, at least 1, where both are positive and neither is rounding."""
    for row in rows:
        of_paper = FLOOR not in row["note"] and not row["note"].startswith(GOAL)
        if row["met"] is not None and of_paper and row["ours"] > 0 and row["paper"] > 0:
            yield max(row["ours"] / row["paper"], row["paper"] / row["ours"])


def title(product: dict[str, Any]) -> str:
    """The name of a figure in words, and its setting."""
    setting = {"paper": "setting of the paper", "published": "setting of the published program"}
    parts = [words(product["name"]), setting.get(product["variant"], product["variant"])]
    return ", ".join(part for part in parts if part)


def words(name: str) -> str:
    """The name of a figure or table in words: fig1b_corrected is Figure 1b, corrected."""
    if name in TITLES:
        return TITLES[name]
    kind, _, rest = name.replace("hyper_", "hyper-").partition("_")
    rest = rest.replace("_", " ").replace("cnn", "CNN")
    if kind.startswith("fig"):
        head = f"Figure {kind[3:]}"
    elif kind.startswith("table"):
        head = f"Table {kind[5:]}".rstrip()
    else:
        return f"{kind}: {rest}".removesuffix(": ").capitalize()
    separator = ", " if kind not in ("fig", "table") else ": "
    return head + (f"{separator}{rest}" if rest else "")


def read(path: Path) -> Any:
    """The JSON document in `path`; None if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
