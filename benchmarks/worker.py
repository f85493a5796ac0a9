"""`python -m benchmarks.worker NAME FILE [--quick]`: one benchmark in a process of its own; its reports as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(name: str, file: str, *options: str) -> None:
    """Run and write."""
    reports = importlib.import_module(f"benchmarks.{name}").run("--quick" in options)
    Path(file).write_text(json.dumps([report.document() for report in reports]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
