"""`python -m benchmarks.worker NAME FILE [--quick] [BACKEND [DEVICE]]`: one benchmark in a process; reports as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(name: str, file: str, *options: str) -> None:
    """Run one benchmark and write its reports."""
    where = [option for option in options if option != "--quick"]
    reports = importlib.import_module(f"benchmarks.{name}").run("--quick" in options, *where)
    Path(file).write_text(json.dumps([report.document() for report in reports]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
