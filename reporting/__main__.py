"""`python -m reporting [RESULTS] [--run] [--durations]`: a summary of all results, and a page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hgp_ref.results import write_whole
from reporting.durations import record
from reporting.overview import page
from reporting.reproduce import run, summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Write index.html; with --run, the exit code of the commands that it runs before."""
    parser = argparse.ArgumentParser(prog="python -m reporting", description="A summary and a page of all results.")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--run", action="store_true", help="first run python -m figures and python -m verification")
    parser.add_argument("--quick", action="store_true", help="with --run: short runs that only test that all works")
    parser.add_argument("--durations", action="store_true", help="keep how long everything took, for --list")
    options = parser.parse_args(arguments)
    status = run(options.results, ["--quick"] if options.quick else []) if options.run else 0
    if status == 130:
        return status
    path = options.results / "index.html"
    write_whole(path, page(options.results).encode())
    if options.durations:
        record(options.results)
    print(summary(options.results))
    print("Where to look")
    print(f"  {path}: everything on one page")
    for folder, what in (("verification/verification.html", "every statement"), ("figures", "pictures and tables")):
        print(f"  {options.results / folder}: {what}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
