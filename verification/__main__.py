"""`python -m verification [NAME ...]`: a table, a JSON file and an HTML report; exit code 1 if something fails."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

from reporting.extras import require

require("python -m verification", matplotlib="figures", latex2mathml="figures")  # before the modules that draw

from hgp_ref.backend import get_backend  # noqa: E402
from hgp_ref.progress import bar  # noqa: E402
from hgp_ref.results import write_whole  # noqa: E402
from reporting.durations import listing  # noqa: E402
from reporting.provenance import commit  # noqa: E402
from reporting.workers import JOBS  # noqa: E402
from verification import NAMES, report, table  # noqa: E402
from verification.errata import ERRATA  # noqa: E402
from verification.errata.document import write_errata  # noqa: E402
from verification.jobs import Done, finished  # noqa: E402
from verification.run import Run  # noqa: E402

DEFAULT_OUT = Path("results/verification")


def parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    cli = argparse.ArgumentParser(prog="python -m verification", description="Check every statement of the paper.")
    names = (
        f"all by default: {', '.join(NAMES)}; `errata 4 25` runs these errata alone; `search_methods`, named, all its "
        "settings"
    )
    cli.add_argument("names", nargs="*", metavar="NAME", help=names)
    cli.add_argument("--list", action="store_true", help="list the names, their statements, and how long they take")
    cli.add_argument("--quick", action="store_true", help="fewer and smaller settings, about half a minute")
    cli.add_argument("--backend", default="numpy", help="array library of the runs that are judged (default: numpy)")
    cli.add_argument("--seed", type=int, default=0, help="another sample of problems and networks (default: 0)")
    cli.add_argument("--out", type=Path, default=DEFAULT_OUT, help=f"folder of the reports (default: {DEFAULT_OUT})")
    cli.add_argument("--docs", type=Path, metavar="FOLDER", help="also write every table there, as NAME.md")
    cli.add_argument("--jobs", type=int, default=JOBS, help="processes (default: one per core, at most 4)")
    cli.add_argument("--write", type=Path, metavar="FILE", help="also write ERRATA.md with the numbers of this run")
    return cli


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write; 0 if every corrected statement held and every erratum was reproduced."""
    cli = parser()
    options = cli.parse_args(arguments)
    if options.jobs < 1:
        cli.error(f"--jobs must be an integer >= 1, got {options.jobs}")
    if options.list:
        titles = {name: importlib.import_module(f"verification.{name}").TITLE for name in NAMES}
        print(listing("verification", titles))
        return 0
    names, numbers = select(options.names, cli)
    if options.write and "errata" not in names:
        cli.error("--write needs the errata among the names")
    if options.write and (options.quick or numbers or options.seed):
        cli.error("--write needs a full run of all errata with seed 0")
    run = Run(options.seed, options.quick, options.backend, bool(options.names))
    try:
        get_backend(options.backend)
    except (ImportError, RuntimeError, ValueError) as error:
        cli.error(str(error))
    start = time.perf_counter()
    try:
        done = collect(names, run, numbers, options.jobs)
    except KeyboardInterrupt:
        print("verification: interrupted, nothing written", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - start
    failed = [row for one in done for row in one.result.rows if row.failed]
    print(table.text(done))
    document = table.document(done, run, seconds, bool(failed))
    paths = [options.out / "verification.json", options.out / "verification.html"]
    options.out.mkdir(parents=True, exist_ok=True)
    for path, content in zip(paths, (table.to_json(document), report.page(done, document)), strict=True):
        write_whole(path, content.encode())
    if options.docs:
        paths += tables(done, run, options.docs)
    if options.write:
        write_errata(options.write, next(one.result for one in done if one.name == "errata"))
        paths.append(options.write)
    print(f"\n{summary(document)}\nwritten: {', '.join(map(str, paths))}")
    return 1 if failed else 0


def tables(done: Sequence[Done], run: Run, folder: Path) -> list[Path]:
    """Each statement's tables as Markdown, with their provenance."""
    paths = []
    for one in done:
        if one.result.tables:
            parts = [f"{t.title}.\n\n{t.markdown()}" for t in one.result.tables]
            stamp = f"`python -m verification {one.name}`, seed {run.seed}, commit {(commit() or 'unknown')[:12]}."
            paths.append(folder / f"{one.name}.md")
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(paths[-1], ("\n\n".join([*parts, stamp]) + "\n").encode())
    return paths


def select(names: Sequence[str], cli: argparse.ArgumentParser) -> tuple[list[str], list[int]]:
    """The requested statements in order, and the numbers of errata."""
    numbers = [int(n) for n in names if n.isdigit()]
    chosen = [n for n in names if not n.isdigit()]
    unknown = [n for n in chosen if n not in NAMES]
    if unknown:
        cli.error(f"unknown name {unknown[0]!r}; choose from {', '.join(NAMES)}")
    absent = [n for n in numbers if n not in ERRATA]
    if absent:
        cli.error(f"there is no erratum {absent[0]}; they are numbered 1 to {max(ERRATA)}")
    if numbers and "errata" not in chosen:
        cli.error("numbers choose among the errata: python -m verification errata 4 25")
    return [n for n in NAMES if n in chosen or not chosen], numbers


def collect(names: Sequence[str], run: Run, numbers: Sequence[int], jobs: int) -> list[Done]:
    """The results of all statements in the order of `names`, with a progress bar."""
    results: dict[str, Done] = {}
    shown = bar(len(names), "verification", show=True, lines=True)
    try:
        with closing(finished(names, run, numbers, jobs)) as statements:
            for one in statements:
                results[one.name] = one
                shown.update(1, one.name)
    finally:
        shown.close()
    return [results[name] for name in names]


def summary(document: dict[str, object]) -> str:
    """One line."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(document["verdicts"].items()))  # type: ignore[attr-defined]
    return f"{'PASSED' if document['passed'] else 'FAILED'} in {document['seconds']} s: {verdicts}"


if __name__ == "__main__":
    raise SystemExit(main())
